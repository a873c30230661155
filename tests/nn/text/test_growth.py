"""Tokenizers whose steps make texts too long are refused: the limit, and one more or less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import beside
from support.tiny_folders import text_files

import nn

Step = dict[str, Any]
MESSAGE = "there must be at most 100 steps that make a text at most 16 times as long"


def replace(pattern: str, content: str, kind: str = "String") -> Step:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def template(single: int, pair: int) -> Step:
    """Return a template with a number of copies of its texts."""
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    row = {"single": [a] * single, "pair": [a] * pair + [b] * pair, "special_tokens": {}}
    return {"type": "TemplateProcessing", **row}


def sequence(key: str, steps: list[Step]) -> Step:
    return {"type": "Sequence", key: steps}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GROWTHS: dict[str, tuple[str, Callable[[int], Step]]] = {
    "string": ("normalizer", lambda n: replace("ab", "c" * 2 * n)),
    "regex": ("normalizer", lambda n: replace("a", "c" * (n - 1), "Regex")),
    "prefix": ("normalizer", lambda n: {"type": "Prepend", "prepend": "_" * 32 * (n - 1)}),
    "product": ("normalizer", lambda n: sequence("normalizers", [replace("a", "cc")] * 4 + [replace("a" * 16, "c" * n)])),
    "bytes": ("pre_tokenizer", lambda n: sequence("pretokenizers", [BYTES] * (4 + max(0, n - 16)))),
    "template": ("post_processor", lambda n: template(n, 1)),
    "template of pairs": ("post_processor", lambda n: template(1, n)),
    "decoder": ("decoder", lambda n: replace("a", "c" * n)),
}  # fmt: skip
"""For each kind, the part of the tokenizer, and its step that makes a text n times as long."""


def load(path: Path, part: str, step: Step) -> Any:
    text_files(path, False)
    file = path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: step}))
    return nn.text.load(path)


@pytest.mark.parametrize("name", GROWTHS)
@given(n=beside(16))
def test_steps_that_make_a_text_longer_than_the_limit_are_refused(
    name: str, n: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    part, make = GROWTHS[name]
    path = tmp_path_factory.getbasetemp()
    if n <= 16:
        load(path, part, make(n))
    else:
        with pytest.raises(ValueError, match=f"{part}: {MESSAGE}"):
            load(path, part, make(n))


@given(n=beside(100), deep=st.booleans())
def test_more_steps_than_the_limit_are_refused(
    n: int, deep: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps: list[Step] = [{"type": "Lowercase"}] * n
    if deep:
        steps = [sequence("normalizers", steps[:-1]), steps[-1]]
    path = tmp_path_factory.getbasetemp()
    if n <= 100:
        load(path, "normalizer", sequence("normalizers", steps))
    else:
        with pytest.raises(ValueError, match=f"normalizer: {MESSAGE}, got {n} "):
            load(path, "normalizer", sequence("normalizers", steps))
