"""Optional dependencies: each is imported where it is used, and named clearly where it is missing."""

from __future__ import annotations

import importlib
from typing import Any

from .core.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import an optional module, or say which extra to install for `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f'{purpose} needs {package}: pip install "minigrad[{extra}]"') from error
