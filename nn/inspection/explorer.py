"""A page to explore attention in: one HTML file that needs no network and no server.

`explorer.html`, beside this file, is the page without data. Here the data are checked and put in.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import no_grad, softmax
from minigrad.core.tensor import unwrap
from minigrad.io import write_atomically

from ..generation.search import kind_of
from ..layers.module import Module, evaluating
from ..layers.probes import record_attention, recording
from ..text.vocabulary import BOS, SPECIALS

__all__ = ["ExplorerPage", "attention_page", "explore"]


class ExplorerPage(str):
    """The HTML of a page; a notebook shows it where it stands."""

    def _repr_html_(self) -> str:
        inside = html.escape(self, quote=True)
        return f'<iframe srcdoc="{inside}" title="Attention" style="width: 100%; height: 640px; border: 0"></iframe>'


def attention_page(
    maps: Mapping[str, Sequence[Any]],
    source: Sequence[str],
    target: Sequence[str] = (),
    path: str | Path | None = None,
    title: str = "Attention",
    *,
    vectors: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
    steps: Sequence[Mapping[str, Any]] = (),
    beams: Sequence[tuple[str, float]] = (),
) -> ExplorerPage:
    """The HTML of the page, which is written to `path` too where one is given.

    `maps` has a list of weights (h, L_q, L_kv) by layer under each name, and `source` and `target`
    are tokens, as `Translator.attention` returns them. The names stand for tokens of queries and
    keys:

    - "decoder": the target, and what its steps had seen, `<bos>` and the target without its last token;
    - "cross": the target, and the source;
    - "encoder", and any other name: the source, and the source (called the sequence, where there is no target).

    What is empty is left out. A weight w is kept as one byte, 255 √w, so to within √w / 255.

    More to look at, where it is given: `vectors`, for each name and layer the queries (h, L_q, d_k)
    and keys (h, L_kv, d_k) that the scores are the products of, and, if they have them, a scale
    other than 1 / √d_k and a bias (h, L_q, L_kv) that is added; `steps`, for each token that was
    chosen a dictionary of the token, "said", and "likeliest", pairs of tokens and probabilities;
    `beams`, other results and their logarithms of probability. `explore` makes all of it from a
    model.
    """
    seen = [SPECIALS[BOS], *target[:-1]]
    sides = {
        "decoder": ("target", target, "target so far", seen),
        "cross": ("target", target, "source", source),
    }
    own = "source" if target else "sequence"
    data = [
        _map_data(name, layers, *sides.get(name, (own, source, own, source)))
        | _vector_data(name, (vectors or {}).get(name, ()), layers)
        for name, layers in maps.items()
        if len(layers) and np.size(layers[0])
    ]
    if not data:
        raise ValueError("attention_page: expected the weights of at least one layer")
    # Without any "<", nothing in a token or a title can end the <script> that holds the data.
    said = [
        {"said": str(s["said"]), "likeliest": [(str(t), float(p)) for t, p in s["likeliest"]]}
        for s in steps
    ]
    whole = {
        "title": title,
        "maps": data,
        "steps": said,
        "beams": [(str(t), float(p)) for t, p in beams],
    }
    text = json.dumps(whole, allow_nan=False).replace("<", "\\u003c")
    page = (
        resources.files(__package__)
        .joinpath("explorer.html")
        .read_text(encoding="utf-8")
        .replace("@data@", text)
    )
    if path is not None:
        write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))
    return ExplorerPage(page)


def _map_data(
    name: str,
    layers: Sequence[Any],
    query_label: str,
    queries: Sequence[str],
    key_label: str,
    keys: Sequence[str],
) -> dict[str, Any]:
    """What the page shows of the layers of one name."""
    shape = (*np.shape(layers[0])[:1], len(queries), len(keys))
    encoded = []
    for i, layer in enumerate(layers, 1):
        weights = np.asarray(layer)
        if weights.shape != shape:
            wanted = f"weights (heads, {query_label}, {key_label}) of shape {shape} in layer {i} of {name!r}"
            raise ValueError(f"attention_page: expected {wanted}, got {weights.shape}")
        if not (
            (weights >= 0) & (weights < 1.001)
        ).all():  # neither is NaN; sums of float16 can pass 1 a little
            raise ValueError(
                f"attention_page: expected weights from 0 to 1 in layer {i} of {name!r}"
            )
        shades = np.rint(255 * np.sqrt(np.minimum(weights, 1))).astype(np.uint8)
        encoded.append(_encoded(shades))
    return {
        "name": name, "heads": shape[0], "layers": encoded,
        "queries": {"label": query_label, "tokens": [str(t) for t in queries]},
        "keys": {"label": key_label, "tokens": [str(t) for t in keys]},
    }  # fmt: skip


def _vector_data(
    name: str, vectors: Sequence[tuple[Any, ...]], layers: Sequence[Any]
) -> dict[str, Any]:
    """Queries, keys and biases of each layer, as float32 in base64, and its scale; nothing where
    there are none.
    """
    if not vectors:
        return {}
    found = []
    for i, (layer, (queries, keys, scale, bias)) in enumerate(
        zip(layers, ((*v, None, None)[:4] for v in vectors)), 1
    ):
        q, k = (np.ascontiguousarray(part, "<f4") for part in (queries, keys))
        h, rows, columns = np.shape(layer)
        if q.shape[:2] != (h, rows) or k.shape != (h, columns, q.shape[-1]):
            sizes = f"queries {(h, rows, 'd_k')} and keys {(h, columns, 'd_k')}"
            where = f"in layer {i} of the vectors of {name!r}"
            raise ValueError(
                f"attention_page: expected {sizes} {where}, got {q.shape} and {k.shape}"
            )
        entry: dict[str, Any] = {"q": _encoded(q), "k": _encoded(k)}
        if scale is not None and not np.isclose(scale, q.shape[-1] ** -0.5):
            entry["scale"] = float(scale)
        if bias is not None:
            entry["bias"] = _encoded(np.broadcast_to(bias, (h, rows, columns)).astype("<f4"))
        found.append(entry)
    return {"vectors": found, "size": int(q.shape[-1])}


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


# -- from a model
# --------------------------------------------------------------------------------------


def explore(
    model: Module,
    ids: Any,
    tokens: Sequence[str],
    target: Any = None,
    target_tokens: Sequence[str] = (),
    path: str | Path | None = None,
    title: str = "Attention",
    *,
    vocabulary: Sequence[str] | None = None,
    beams: Sequence[tuple[str, float]] = (),
) -> ExplorerPage:
    """The page of any model, for one sequence: ids (L,) and their tokens; for a Transformer also
    the target's.

    The target's ids (L_t,) are without BOS, as `attention_maps` takes them. A language model and an
    encoder have one map, of their own sequence. Where the logits of a vocabulary come out and
    `vocabulary` names its tokens, the five likeliest of each step are shown.
    """
    ids = np.asarray(ids).reshape(1, -1)
    seen: list[Any] = [ids]
    if target is not None:
        after = np.asarray(target).reshape(1, -1)
        seen.append(np.concatenate([[[model.config.bos_id]], after[:, :-1]], 1))  # type: ignore[attr-defined]
    with (
        evaluating(),
        no_grad(),
        record_attention(model) as weights,
        recording(model, _vectors) as pairs,
    ):
        logits = unwrap(model(*seen))
    maps: dict[str, list[np.ndarray]] = {}
    vectors: dict[str, list[tuple[Any, ...]]] = {}
    for name, found in weights.items():
        kind = "self" if target is None else kind_of(name)
        maps.setdefault(kind, []).extend(w[0] for w in found)
        vectors.setdefault(kind, []).extend(pairs[name])
    said = list(target_tokens) if target is not None else list(tokens[1:])
    steps = _steps(logits, said, vocabulary) if vocabulary is not None and logits.ndim == 3 else []
    return attention_page(
        maps, tokens, target_tokens, path, title, vectors=vectors, steps=steps, beams=beams
    )


def _steps(
    logits: np.ndarray, said: Sequence[str], vocabulary: Sequence[str], count: int = 5
) -> list[dict[str, Any]]:
    """The likeliest tokens at each step, of logits (1, L, vocabulary)."""
    found = []
    for row, token in zip(logits[0], said):
        p = softmax(row).data
        found.append(
            {
                "said": token,
                "likeliest": [(vocabulary[i], float(p[i])) for i in np.argsort(-p)[:count]],
            }
        )
    return found


def _vectors(q: Any, k: Any, mask: Any, bias: Any, scale: float) -> tuple[Any, ...]:
    """Return what scores are made of: queries and keys (h, L, d_k), the scale and the bias."""
    queries, keys = unwrap(q)[0], unwrap(k)[0]
    shared = np.repeat(keys, len(queries) // len(keys), axis=0)
    return queries, shared, scale, None if bias is None else unwrap(bias)
