"""Base class of Tensor for type checkers, which read `methods.pyi` instead of this file.

`registry.py` sets the methods when operations are declared, so type checkers cannot see them. A
first reader can skip this file.
"""


class Methods:
    """Base of Tensor, on which the operations are set as methods."""

    __slots__ = ()
