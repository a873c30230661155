"""For every op: samples of its inputs, an independent reference, and inputs it must refuse.

`test_ops.py` generates the tests from this table; one of them asserts that it names the same ops as
the registry, so that an untested op cannot land.
"""

from minigrad.core.registry import FUNCTIONS

from . import (
    calculus,
    decompositions,
    elementwise,
    indexing,
    joining,
    kernels,
    later,
    linalg,
    losses,
    nan,
    reduction,
    shape,
    sorting,
    special,
    statistics,
)
from .base import TABLE, Draw, OpInfo, Sample

NO_GRADIENT = {
    name
    for name, f in FUNCTIONS.items()
    if f.__module__ == "minigrad.ops.compare" or name in ("one_hot", "argsort")
}
