"""Many small cases in one test: to hand out thousands of tests takes longer than to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(cases: Iterable[Any], check: Callable[[Any], None]) -> None:
    """Check every case, and fail in the end with all that are wrong."""
    wrong = []
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            wrong.append(f"{case}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} cases are wrong", *wrong])
