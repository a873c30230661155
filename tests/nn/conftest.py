"""Packages of the tests of models."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from support.gguf_library import gguf
from support.tokenizer_library import tokenizers


@pytest.fixture(scope="module", autouse=True)
def libraries() -> Iterator[None]:
    """Let `nn` import stand-ins of the packages that are missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gguf", gguf)
        patch.setitem(sys.modules, "tokenizers", tokenizers)
        yield
