"""Modules of docs/ for its tests, and Chromium."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.environment import needs

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make importable the modules of docs/ and of the course."""
    for directory in ("docs", "docs/live", "examples/course"):
        monkeypatch.syspath_prepend(str(ROOT / directory))


@pytest.fixture
def driver(paths: None) -> Iterator[Any]:
    """Return the driver of a Chromium that ends with the test."""
    needs("selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver)")
    driver = importlib.import_module("check").browser()
    yield driver
    driver.quit()
