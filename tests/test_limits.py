"""Limits of sizes: the largest size that is allowed, and the next ones on both sides."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import beside

import minigrad as mg
import minigrad.torch as torch
import minigrad.torch.nn.functional as F
import nn
from minigrad import optim
from minigrad.io.gguf import GGUFHeader
from minigrad.io.json import Settings
from minigrad.io.reading import read_bytes
from minigrad.io.safetensors import SafetensorsFile
from nn.decoding.beam import MAX_BEAM, MAX_PENALTY, check_beam
from nn.decoding.search import Sampling
from nn.published.generation_config import LIMITS as OF_FILES
from nn.text.pairs import read_lines

LEAF = mg.Tensor(np.ones(2), requires_grad=True)
Size = Callable[[Path, int], Any]


def safetensors(header: Callable[[int], dict[str, Any]], length: int = 0) -> Size:
    """Return a function that reads a file whose header has a size."""

    def read(path: Path, n: int) -> SafetensorsFile:
        text = json.dumps(header(n)).encode()
        text += b" " * (n - len(text) if length else 0)
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        return SafetensorsFile(path)

    return read


def gguf(entries: Callable[[int], list[tuple[bytes, bytes]]]) -> Size:
    """Return a function that reads all metadata of a file: pairs of a name, and a type and value."""

    def read(path: Path, n: int) -> dict[str, Any]:
        data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries(n)))
        for name, value in entries(n):
            data += struct.pack("<Q", len(name)) + name + value
        path.write_bytes(data + bytes(-len(data) % 32))
        return dict(GGUFHeader(path, SimpleNamespace()).metadata)

    return read


def empty(shape: tuple[int, ...] = (0,)) -> dict[str, Any]:
    return {"dtype": "U8", "shape": list(shape), "data_offsets": [0, 0]}


FLAG = struct.pack("<I?", 7, True)


def lines(path: Path, n: int) -> list[str]:
    path.write_bytes(b"a\n" + b"b" * (n - 1) + b"\n")
    return [*read_lines(path)]


LIMITS: dict[str, Size] = {
    "minigrad.io.safetensors._MAX_NAME": safetensors(lambda n: {"a" * n: empty()}),
    "minigrad.io.safetensors._MAX_AXES": safetensors(lambda n: {"a": empty((0,) * n)}),
    "minigrad.io.safetensors._MAX_ARRAYS": safetensors(lambda n: {str(i): empty() for i in range(n)}),
    "minigrad.io.safetensors._MAX_HEADER": safetensors(lambda n: {}, 1),
    "minigrad.io.gguf.MAX_NAME": gguf(lambda n: [(b"a" * n, FLAG)]),
    "minigrad.io.gguf.MAX_ENTRIES": gguf(lambda n: [(b"%d" % i, FLAG) for i in range(n)]),
    "minigrad.io.gguf.MAX_VALUE": gguf(lambda n: [(b"a", struct.pack("<IQ", 8, n - 8) + b"b" * (n - 8))]),
    "minigrad.io.gguf.MAX_ITEMS": gguf(lambda n: [(b"a", struct.pack("<IIQ", 9, 0, n) + bytes(n))]),
    "nn.text.pairs.MAX_LINE": lines,
}  # fmt: skip
"""For each limit, a function that makes something of a size and raises a ValueError above it."""


@pytest.mark.parametrize("name", LIMITS)
@given(limit=st.integers(10, 14), data=st.data())
def test_largest_size_is_allowed_and_the_next_is_refused(
    name: str, limit: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module, _, constant = name.rpartition(".")
    path, n = tmp_path_factory.getbasetemp() / "limit", data.draw(beside(limit), "size")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module(module), constant, limit)
        if n <= limit:
            LIMITS[name](path, n)
        else:
            with pytest.raises(ValueError, match=rf"(at most {limit}|header of {n} bytes)"):
                LIMITS[name](path, n)


@given(most=st.integers(1, 9), data=st.data())
def test_read_bytes_returns_files_of_at_most_its_limit(
    most: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, n = tmp_path_factory.getbasetemp() / "limit", data.draw(beside(most), "size")
    path.write_bytes(b"a" * n)
    if n <= most:
        assert read_bytes(path, most=most) == b"a" * n
    else:
        with pytest.raises(ValueError, match=f"must have at most {most} bytes, got {n}"):
            read_bytes(path, most=most)


TINY = float(np.nextafter(0, 1))
RANGES: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "beam_size": (lambda n: check_beam(n, 1.0), 1, MAX_BEAM),
    "length_penalty": (lambda x: check_beam(1, x), -float(MAX_PENALTY), float(MAX_PENALTY)),
    "temperature": (lambda x: Sampling(temperature=x), TINY, None),
    "top_k": (lambda n: Sampling(top_k=n), 1, None),
    "top_p": (lambda x: Sampling(top_p=x), TINY, 1.0),
    "min_p": (lambda x: Sampling(min_p=x), 0.0, 1.0),
    "repetition_penalty": (lambda x: nn.Rules(repetition_penalty=x), TINY, None),
    "min_len": (lambda n: nn.Rules(min_len=n), 0, None),
    "no_repeat_ngram_size": (lambda n: nn.Rules(no_repeat_ngram_size=n), 0, None),
    "label_smoothing": (lambda x: mg.cross_entropy(np.ones((2, 2)), [0, 1], label_smoothing=x), 0.0, 1.0),
    "dropout": (lambda x: mg.dropout(np.ones(2), p=x), 0.0, float(np.nextafter(1, 0))),
    "momentum": (lambda x: optim.SGD([LEAF], momentum=x), 0.0, None),
    "betas": (lambda x: optim.Adam([LEAF], betas=(x, 0.5)), 0.0, float(np.nextafter(1, 0))),
    "lr": (lambda x: optim.SGD([LEAF], lr=x), 0.0, None),
    "weight_decay": (lambda x: optim.SGD([LEAF], weight_decay=x), 0.0, None),
    "eps": (lambda x: optim.Adam([LEAF], eps=x), TINY, None),
    "delta": (lambda x: F.huber_loss(1.0, 3.0, delta=x), TINY, None),
    "beta": (lambda x: F.smooth_l1_loss(1.0, 3.0, beta=x), 0.0, None),
    "top_k: k": (lambda n: mg.top_k(np.ones((2, 3)), n), 1, 3),
    "topk: k": (lambda n: torch.topk(np.ones((2, 3)), n), 0, 3),
    "q": (lambda x: mg.quantile(np.ones(3), x), 0.0, 1.0),
    "size": (lambda n: mg.unfold(np.ones((2, 3)), 1, n), 1, 3),
    "embedding: indices": (lambda n: mg.embedding(np.ones((3, 2)), [n]), 0, 2),
    "padding_idx": (lambda n: mg.embedding(np.ones((3, 2)), [0], padding_idx=n), -3, 2),
    "one_hot: indices": (lambda n: mg.one_hot([n], 3), 0, 2),
    "cross_entropy: target": (lambda n: mg.cross_entropy(np.ones((1, 3)), [n]), 0, 2),
    "fft: n": (lambda n: np.fft.fft(mg.Tensor(np.ones(3), True), n), 1, None),
    "diff: n": (lambda n: mg.diff(np.ones(3), n), 0, None),
    "num_samples": (lambda n: mg.multinomial(np.ones(3), n), 1, 3),
    "directions": (lambda n: mg.gradcheck(np.sin, [np.ones(2)], directions=n, elementwise=False), 1, None),
    "factor": (lambda x: torch.optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([LEAF]), factor=x), 0.0, float(np.nextafter(1, 0))),
    "argnums": (lambda n: mg.grad(np.multiply, n)(1.0, 2.0), -2, 1),
    "clip_value": (lambda x: nn.utils.clip_grad_value_([LEAF], x), 0.0, None),
    "max_norm": (lambda x: nn.utils.clip_grad_norm_([LEAF], x), 0.0, None),
    "settings": (lambda n: Settings({"settings": n}, "c.json").integer("settings"), 1, 1 << 40),
    "clip_norm": (lambda x: optim.SGD([LEAF], clip_norm=x), TINY, None),
}  # fmt: skip
"""For each argument a call, and its least and largest value; None: there is no largest."""


@pytest.mark.parametrize("name", RANGES)
def test_ends_of_a_range_are_allowed_and_the_next_values_are_refused(name: str) -> None:
    call, least, largest = RANGES[name]
    for end, sign in ((least, -1), (largest, 1)):
        if end is None:
            continue
        call(end)
        beyond = end + sign if isinstance(end, int) else float(np.nextafter(end, sign * np.inf))
        with pytest.raises((ValueError, IndexError), match=name):
            call(beyond)


def test_ranges_of_generation_config_are_those_of_the_searches() -> None:
    assert OF_FILES["num_beams"][1:] == RANGES["beam_size"][1:]
    assert OF_FILES["length_penalty"][1:] == RANGES["length_penalty"][1:]


@given(low=st.integers(-3, 3), width=st.integers(0, 2), data=st.data())
def test_settings_are_numbers_of_their_range(low: int, width: int, data: st.DataObject) -> None:
    high = low + width
    n = data.draw(beside(low, high, low=-9), "n")
    settings = Settings({"n": n}, "c.json")
    for take in (settings.integer, settings.number):
        if low <= n <= high:
            assert take("n", low=low, high=high) == n
        else:
            with pytest.raises(ValueError, match=f"^c.json: n must be .*, got {n}$"):
                take("n", low=low, high=high)
