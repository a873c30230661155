"""Base class of Module for type checkers, which read `methods.pyi` instead of this file.

`nn/options/modules.py` sets its methods on Module. A first reader can skip this file.
"""

__all__: list[str] = []


class Methods:
    """Base of Module, on which further methods are set."""
