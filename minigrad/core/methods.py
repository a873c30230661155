"""The methods that the registry sets on Tensor: for type checkers, which read `methods.pyi` in
place of this file.
"""


class Methods:
    """The base of Tensor; empty until the operations are imported."""

    __slots__ = ()
