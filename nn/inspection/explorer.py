"""Attention explorer: one HTML file that needs no network and no server.

`explorer.html` is the page without data, and `explorer.zh.json` has its phrases in Chinese.
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
from minigrad.io import write_atomically
from minigrad.ops.attention import attention_weights
from minigrad.tensor import unwrap

from ..decoding.search import attention_kind, target_inputs
from ..models import Transformer
from ..module import Module, evaluating
from ..options.encoder import EncoderModel, MaskedLanguageModel
from ..options.probes import recording
from ..text.vocabulary import BOS, SPECIALS
from .backward import by_kind, choose_outputs, differentiate

__all__ = ["explore"]


class ExplorerPage(str):
    """HTML of a page. A notebook shows it."""

    def _repr_html_(self) -> str:
        inside = html.escape(self, quote=True)
        return (
            f'<iframe srcdoc="{inside}" title="Attention" '
            'style="width: 100%; height: 640px; border: 0"></iframe>'
        )


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
    backward: Sequence[Mapping[str, Any]] = (),
    language: str = "en",
) -> ExplorerPage:
    """Return a page that shows attention weights, from the results that `explore` computes.

    It opens with the layer and head whose keys depend most on the query. `maps` are the weights
    (h, L_q, L_kv) of each layer, by name. Queries and keys of "decoder" are the target, and `<bos>`
    and the target without its last token; of "cross" the target and the source; of other names the
    source. Names without layers or tokens are left out. A weight w is stored to within √w / 255.

    `vectors` are the queries (h, L_q, d_k) and keys (h, L_kv, d_k) of each layer, and optionally
    the scale (1 / √d_k by default) and the bias (h, L_q, L_kv) of the scores. `steps` have for each
    generated token the token, "said", and "likeliest": pairs of tokens and probabilities.
    `backward` has for each output that is differentiated:

    - "token", its probability "p", and "place", its number in the sequence from 1.
    - "gradients" of its log-probability by the weights, of the form of `maps`. A gradient g is
      stored to within √(g · g_max) / 127, where g_max is the largest one of its map.
    - "ascent": the "map", and "layer" and "head" from 0, of a head that changes as the
      probability is increased in steps, its "weights" (steps + 1, L_q, L_kv), and the
      probability "p" before the first step and after each step. None if no head changes.
    """
    if language not in ("en", "zh"):
        raise ValueError(f"attention_page: language must be 'en' or 'zh', got {language!r}")
    seen = [SPECIALS[BOS], *target[:-1]]
    sides = {
        "decoder": ("target", target, "target so far", seen),
        "cross": ("target", target, "source", source),
    }
    label = "source" if len(target) else "sequence"
    data = []
    for name, layers in maps.items():
        if len(layers) and np.size(layers[0]):
            side = sides.get(name, (label, source, label, source))
            data.append(_map_data(name, layers, *side))
            if vectors:
                data[-1] |= _vector_data(vectors[name], layers)
    scored = [(str(text), float(score)) for text, score in beams]
    for text, score in scored:
        if not np.isfinite(score):
            raise ValueError(
                f"attention_page: beams must have finite scores, got {score} for {text!r:.60}"
            )
    contents = {
        "title": title,
        "language": language,
        "maps": data,
        "steps": [
            {"said": str(s["said"]), "likeliest": [(str(t), float(p)) for t, p in s["likeliest"]]}
            for s in steps
        ],
        "beams": scored,
    }
    if backward:
        names = [entry["name"] for entry in data]
        contents["backward"] = [_output_data(output, names) for output in backward]
    if language != "en":
        contents["words"] = json.loads(_read(f"explorer.{language}.json"))
    # Without any "<", nothing in a token or a title can end the <script> that holds the data.
    text = json.dumps(contents, allow_nan=False).replace("<", "\\u003c")
    page = _read("explorer.html").replace("@data@", text)
    if path is not None:
        write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))
    return ExplorerPage(page)


def _read(name: str) -> str:
    """Return a file beside this one."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _map_data(
    name: str,
    layers: Sequence[Any],
    query_label: str,
    queries: Sequence[str],
    key_label: str,
    keys: Sequence[str],
) -> dict[str, Any]:
    """Return the tokens and weights of the layers of one name."""
    shape = (*np.shape(layers[0])[:1], len(queries), len(keys))
    encoded = []
    for i, weights in enumerate(layers, 1):
        where = f"in layer {i} of {name!r}"
        if weights.shape != shape:
            raise ValueError(
                f"attention_page: weights (heads, {query_label}, {key_label}) must have shape "
                f"{shape} {where}, got {weights.shape}"
            )
        if not ((weights >= 0) & (weights < 1.001)).all():  # sums of float16 can pass 1 a little
            raise ValueError(
                f"attention_page: weights must be from 0 to 1 {where}, got {weights.min():g} to "
                f"{weights.max():g}"
            )
        encoded.append(_encoded_weights(weights))
    return {
        "name": name,
        "heads": shape[0],
        "layers": encoded,
        "queries": {"label": query_label, "tokens": [str(t) for t in queries]},
        "keys": {"label": key_label, "tokens": [str(t) for t in keys]},
    }


def _vector_data(vectors: Sequence[tuple[Any, ...]], layers: Sequence[Any]) -> dict[str, Any]:
    """Return queries, keys and biases of each layer as float32 in base64, and its scale."""
    entries = []
    for layer, (queries, keys, *rest) in zip(layers, vectors):
        q, k = (np.asarray(part, "<f4") for part in (queries, keys))
        scale, bias = (*rest, None, None)[:2]
        entry: dict[str, Any] = {"q": _encoded(q), "k": _encoded(k)}
        if scale is not None and not np.isclose(scale, q.shape[-1] ** -0.5):
            entry["scale"] = float(scale)
        if bias is not None:
            entry["bias"] = _encoded(np.broadcast_to(bias, np.shape(layer)).astype("<f4"))
        entries.append(entry)
    return {"vectors": entries, "size": int(q.shape[-1])}


def _output_data(output: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return an output with its gradients as signed bytes (L_q, h, L_kv) without trailing zeros."""
    maps = []
    for name in names:
        layers = output["gradients"][name]
        scale = max(float(np.abs(layer).max(initial=0)) for layer in layers)
        encoded = []
        for layer in layers:
            roots = np.sign(layer) * np.sqrt(np.abs(layer) / (scale or 1))
            rounded = np.rint(127 * roots).astype(np.int8).transpose(1, 0, 2)
            encoded.append(_encoded(np.trim_zeros(rounded.ravel(), "b")))
        maps.append({"scale": float(f"{scale:.6g}"), "layers": encoded})
    ascent = output["ascent"]
    if ascent is not None:
        weights = _encoded_weights(ascent["weights"])
        ascent = ascent | {"map": names.index(ascent["map"]), "weights": weights}
    shared = {name: output[name] for name in ("token", "place", "p")}
    return {**shared, "maps": maps, "ascent": ascent}


def _encoded_weights(weights: np.ndarray) -> str:
    """Return weights as bytes of 255 √weight in base64."""
    return _encoded(np.rint(255 * np.sqrt(weights)).astype(np.uint8))


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


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
    backward: bool = False,
    language: str = "en",
) -> ExplorerPage:
    """Return a page that shows the attention of a model in one sequence, or in a pair.

    Parameters
    ----------
    model : Module
        A language model, an encoder, or a Transformer with a source and a target.
    ids : array of int, shape (L,)
        The sequence, or a Transformer's source.
    tokens : sequence of str
        Tokens of `ids`.
    target : array of int, shape (L_t,), optional
        Ids of a Transformer's target, without BOS.
    target_tokens : sequence of str
        Tokens of `target`.
    path : str or Path, optional
        File that the page is written to.
    title : str
        Heading of the page.
    vocabulary : sequence of str, optional
        Tokens by id. The page then shows the five most probable tokens of each step, if the model
        returns logits of tokens. A step of a `MaskedLanguageModel` is the token itself, and of
        other models the next token.
    beams : sequence of (str, float)
        Results of a beam search, best first, and the scores that rank them.
    backward : bool, default False
        Add the gradient of the log-probability of each token, and of its most probable alternative
        if there is a vocabulary, by each attention weight. Also add the head that changes most in
        ten steps of gradient ascent. They change the weights of all queries and keys, by at most
        1 % of their length in a step, and the model itself does not change. Each of these outputs
        takes the time of at most 12 training steps of a single sequence, and the page grows by up
        to 4 / 3 bytes for each output and attention weight.
    language : {"en", "zh"}
        Language of the page, English or Chinese.
    """
    if target is None and isinstance(model, Transformer):
        raise ValueError("explore: target must be given for a Transformer, got None")
    for name, texts, values in (("tokens", tokens, ids), ("target_tokens", target_tokens, target)):
        if values is not None and len(texts) != np.size(values):
            raise ValueError(
                f"explore: {name} must have a string for each of {np.size(values)} ids, got "
                f"{len(texts)}"
            )
    ids = np.asarray(ids).reshape(1, -1)
    inputs = [ids] if target is None else [ids, target_inputs(model, target)]
    with evaluating(), no_grad(), recording(model, _attended) as calls:
        logits = model(*inputs)
    kinds = {name: "self" if target is None else attention_kind(name) for name in calls}
    seen = by_kind(calls, kinds)
    maps = {kind: [weights for weights, *_ in results] for kind, results in seen.items()}
    if not any(maps.values()):
        raise ValueError("explore: model must have at least one attention, got none")
    vectors = {kind: [tuple(parts) for _, *parts in results] for kind, results in seen.items()}
    is_masked = isinstance(model, MaskedLanguageModel)  # predicts the tokens themselves
    has_logits = logits.ndim == 3 and (is_masked or not isinstance(model, EncoderModel))
    first = int(target is None and not is_masked)  # index of the first token that is predicted
    said = tokens[first:] if target is None else target_tokens
    steps: list[dict[str, Any]] = []
    if vocabulary is not None and has_logits:
        for token, p in zip(said, softmax(logits[0]).data):
            best = [(vocabulary[i], p[i]) for i in np.argsort(-p)[:5]]
            steps.append({"said": token, "likeliest": best})
    outputs: list[dict[str, Any]] = []
    if backward:
        if not has_logits:
            raise ValueError(
                "explore: backward must be False for a model without logits of tokens, got True"
            )
        said_ids = ids[0, first:] if target is None else np.asarray(target).reshape(-1)
        chosen = choose_outputs(softmax(logits[0]).data, said_ids, said, vocabulary)
        outputs = differentiate(model, inputs, chosen, kinds, first + 1)
    return attention_page(
        maps,
        tokens,
        target_tokens,
        path,
        title,
        vectors=vectors,
        steps=steps,
        beams=beams,
        backward=outputs,
        language=language,
    )


def _attended(q: Any, k: Any, mask: Any, bias: Any, scale: float) -> tuple[Any, ...]:
    """Return weights (h, L_q, L_kv), queries and keys (h, L, d_k), scale and bias of a call."""
    weights = attention_weights(q, k, mask, bias, scale)
    queries, keys = unwrap(q)[0], unwrap(k)[0]
    shared = np.repeat(keys, len(queries) // len(keys), axis=0)
    return unwrap(weights)[0], queries, shared, scale, None if bias is None else unwrap(bias)
