"""Optional packages and their versions."""

from __future__ import annotations

import importlib.metadata
import sys
from types import ModuleType
from typing import Any

import pytest

from minigrad import MissingExtraError
from minigrad.check.extras import require


@pytest.mark.parametrize("installed", ["2.3.4", "2.3.4rc1", "2.10.0", "10.0", "2.3.4.post1", None])
@pytest.mark.parametrize("least", ["", "2.3.4", "2.3.5", "2.4", "3"])
def test_require_compares_the_numbers_of_versions(
    installed: str | None, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accept a package without metadata, as in a program packed into one file."""

    def version(name: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    module: Any = ModuleType("extra.part")
    monkeypatch.setitem(sys.modules, "extra", ModuleType("extra"))
    monkeypatch.setitem(sys.modules, "extra.part", module)
    monkeypatch.setattr(importlib.metadata, "version", version)
    refused = {"2.3.5": ("2.3.4",), "2.4": ("2.3.4",), "3": ("2.3.4", "2.10.0")}.get(least, ())
    if installed is None or not installed.startswith(refused or ("none",)):
        assert require("extra.part", "testing", least) is module
        return
    message = f"^testing needs extra {least}, got {installed}: pip install -U extra$"
    with pytest.raises(MissingExtraError, match=message):
        require("extra.part", "testing", least)
