"""Base classes for type checkers, which read `methods.pyi` instead of this file.

`registry.py` sets methods when operations are declared, and packages around the book set others, so
type checkers cannot see them. A first reader can skip this file.
"""


class Methods:
    """Base of Tensor, on which the operations are set as methods."""

    __slots__ = ()


class OptimizerMethods:
    """Base of Optimizer, on which further methods are set."""
