"""A page to explore attention in: one HTML file that needs no network and no server.

`explorer.html`, beside this file, is the page without data. Here the data are checked and put in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.serialization import write_atomically

from ..text.vocabulary import BOS, SPECIALS

__all__ = ["attention_page"]


def attention_page(
    maps: Mapping[str, Sequence[Any]], source: Sequence[str], target: Sequence[str] = (),
    path: str | Path | None = None, title: str = "Attention",
) -> str:  # fmt: skip
    """The HTML of the page, which is written to `path` too where one is given.

    `maps` has a list of weights (h, L_q, L_kv) by layer under each name, and `source` and `target` are
    tokens, as `Translator.attention` returns them. The names stand for tokens of queries and keys:

    - "decoder": the target, and what its steps had seen, `<bos>` and the target without its last token;
    - "cross": the target, and the source;
    - "encoder", and any other name: the source, and the source.

    What is empty is left out. A weight w is kept as one byte, 255 √w, so to within √w / 255.
    """
    seen = [SPECIALS[BOS], *target[:-1]]
    sides = {"decoder": ("target", target, "target so far", seen), "cross": ("target", target, "source", source)}
    data = [
        _map_data(name, layers, *sides.get(name, ("source", source, "source", source)))
        for name, layers in maps.items()
        if len(layers) and np.size(layers[0])
    ]
    if not data:
        raise ValueError("attention_page: expected the weights of at least one layer")
    # Without any "<", nothing in a token or a title can end the <script> that holds the data.
    text = json.dumps({"title": title, "maps": data}).replace("<", "\\u003c")
    page = resources.files(__package__).joinpath("explorer.html").read_text(encoding="utf-8").replace("@data@", text)
    if path is not None:
        write_atomically(path, lambda part: part.write_text(page, encoding="utf-8"))
    return page


def _map_data(
    name: str, layers: Sequence[Any], query_label: str, queries: Sequence[str], key_label: str, keys: Sequence[str]
) -> dict[str, Any]:
    """What the page is told of the layers of one name."""
    shape = (*np.shape(layers[0])[:1], len(queries), len(keys))
    encoded = []
    for i, layer in enumerate(layers, 1):
        weights = np.asarray(layer)
        if weights.shape != shape:
            raise ValueError(
                f"attention_page: expected weights (heads, {query_label}, {key_label}) of shape {shape} "
                f"in layer {i} of {name!r}, got {weights.shape}"
            )
        if not ((weights >= 0) & (weights < 1.001)).all():  # neither is NaN; sums of float16 can pass 1 a little
            raise ValueError(f"attention_page: expected weights from 0 to 1 in layer {i} of {name!r}")
        shades = np.rint(255 * np.sqrt(np.minimum(weights, 1))).astype(np.uint8)
        encoded.append(base64.b64encode(shades.tobytes()).decode())
    return {
        "name": name, "heads": shape[0], "layers": encoded,
        "queries": {"label": query_label, "tokens": [str(t) for t in queries]},
        "keys": {"label": key_label, "tokens": [str(t) for t in keys]},
    }  # fmt: skip
