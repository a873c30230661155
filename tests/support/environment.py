"""What a run of the tests may use: examples of hypothesis, optional packages."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
"""Whether loops without hypothesis visit all cases."""
SEARCHES = os.environ.get("HYPOTHESIS_PROFILE") in ("full", "thorough")
"""Whether slow properties have as many examples as fast ones."""

OPTIONAL = {
    "tests/minigrad/numpy/test_recommended_calls.py": "calls of SciPy that errors recommend",
    "tests/course/": "lessons with pictures and Chinese catalogs",
    "tests/docs/": "the site",
    "tests/examples/": "examples with pictures, BLEU and published models",
    "tests/nn/commands/": "commands with pictures, BLEU and published models",
    "tests/nn/decoding/test_text_generation.py": "strings to strings, by tokenizers",
    "tests/nn/inspection/test_plots.py": "pictures by matplotlib",
    "tests/nn/test_pickling.py": "published models with their tokenizers",
    "tests/nn/published/": "directories of published models with their tokenizers",
    "tests/nn/published/test_damaged_files.py": "directories of published models with their tokenizers",
    "tests/nn/text/": "tokenizers, templates and scores by other packages",
    "tests/nn/runs/test_progress.py": "a bar by tqdm",
    "tests/oracle/": "PyTorch, transformers and SciPy as references",
}
"""Fast tests that may be skipped without a package, and why it is needed. All others need NumPy,
pytest and hypothesis alone, so that operations, layers, models, optimizers and searches are tested
wherever the tests run."""

REMAINING = (
    "needs a deep stack",
    "needs a font with Chinese characters",
    "needs a function of a newer NumPy",
    "needs chromium",
    "needs columns of code",
    "needs a thread",
    "needs flags of the processor",
    "needs fork",
    "needs Linux",
    "needs OpenBLAS",
    "needs processes",
    "needs resource",
    "needs signatures of functions in C",
    "needs the forms of NumPy",
    "needs the names of NumPy",
    "needs the signature of NumPy",
    "needs stack switching",
    "needs tomllib",
    "needs weights",
)
"""Starts of the reasons of skips that remain with all extras: systems, programs, older versions."""


def max_examples(count: int, **options: Any) -> settings:
    """Return settings of a property with `count` examples, or more in the profiles that search."""
    count = max(count, settings.default.max_examples if SEARCHES else 0)
    return settings(max_examples=count, **options)


def needs(*modules: str) -> Any:
    """Import optional modules and return the last, or skip the test or the file if one is missing."""
    for module in modules:
        name = module.partition(".")[0]
        loaded = pytest.importorskip(module, reason=f"needs {name}", exc_type=ImportError)
    return loaded


def is_allowed_skip(test: str, reason: str, *, slow: bool, full: bool) -> bool:
    """Return whether a test may be skipped.

    Parameters
    ----------
    test : str
        Node id of the test or file.
    reason : str
    slow : bool
        Whether the test is marked slow, as tests are that compare with another library.
    full : bool
        Whether all extras are installed, so that no package may be missing.
    """
    if reason.startswith(REMAINING):
        return True
    return not full and reason.startswith("needs ") and (slow or test.startswith(tuple(OPTIONAL)))
