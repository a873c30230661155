"""Samples and an independent reference of every op and function; properties of ops use them.

All ops with a rule and all compositions with gradients have an entry. `tests/minigrad/numpy/test_forms.py` compares other forms of their
arguments with NumPy.
"""

from . import arrays, compositions, elementwise, kernels, linalg, losses, reduction
from .base import (
    NO_GRADIENT,
    TABLE,
    Draw,
    OpInfo,
    Sample,
    cotangents,
    samples,
    source,
)
