"""Optional dependencies: each is imported where it is used, and named clearly where it is missing."""

from __future__ import annotations

import importlib
from typing import Any

from .core.errors import MissingExtraError

_PACKAGES = {"mpi4py": "mpi4py mpich", "opencc": "opencc-python-reimplemented"}  # where they are named otherwise


def require(module: str, purpose: str) -> Any:
    """Import an optional module, or say which packages to install for `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise MissingExtraError(f"{purpose} needs {name}: pip install {_PACKAGES.get(name, name)}") from error
