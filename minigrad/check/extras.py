"""Optional dependencies, which are imported where they are used."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["MissingExtraError"]


class MissingExtraError(ImportError):
    """Error for a missing optional dependency, with the packages to install."""


_PACKAGES = {"mpi4py": "mpi4py mpich"}
"""Packages to install for a module, if its name is not enough."""


def require(module: str, purpose: str, least: str = "") -> Any:
    """Import an optional module for a purpose, at least of a version, if one is given.

    If it is missing or older, the error names the package to install.
    """
    name = module.partition(".")[0]
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {name}: pip install {_PACKAGES.get(name, name)}"
        ) from error
    if least:
        from importlib.metadata import PackageNotFoundError, version

        with suppress(PackageNotFoundError):  # a program packed into one file has no versions
            if _numbers(version(name)) < _numbers(least):
                raise MissingExtraError(
                    f"{purpose} needs {name} {least}, got {version(name)}: pip install -U {name}"
                )
    return loaded


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _source_of(spec: Any) -> str:
    """Return the text of a package; it is empty for a directory without `__init__.py`."""
    if not spec.origin or spec.loader is None:
        return ""
    return spec.loader.get_source(spec.name)


def check_nn_package() -> None:
    """Warn if `import nn` would not import the package `nn` that is installed beside minigrad."""
    spec = importlib.util.find_spec("nn")
    if spec is None:
        return
    beside = str(Path(__file__).resolve().parents[2])
    location = (spec.submodule_search_locations or [spec.origin or ""])[0]
    if os.path.abspath(location) != os.path.join(beside, "nn"):
        warnings.warn(
            f"`import nn` imports another package, {location}; minigrad's is in {beside}: "
            "rename the other one, or put this directory before it in sys.path",
            stacklevel=2,
        )
    elif "minigrad" not in _source_of(spec):
        from importlib.metadata import packages_distributions  # slow

        others = packages_distributions().get("nn", [])
        names = " ".join(sorted({*others} - {"minigrad-nn"})) or "nn"
        warnings.warn(
            f"another distribution has replaced or removed minigrad's package nn; run: pip "
            f"uninstall {names}, then pip install --force-reinstall minigrad-nn",
            stacklevel=2,
        )
