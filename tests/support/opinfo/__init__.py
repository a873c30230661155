"""Random samples and an independent reference of every op; the tests of ops are generated from them.

Entries are needed for all ops with a rule and for all differentiable functions that NumPy lacks. Compositions that
answer a NumPy function are compared with NumPy by `tests/forms`.
"""

from . import arrays, elementwise, kernels, linalg, losses, reduction
from .base import EXAMPLES, NO_GRADIENT, TABLE, Draw, OpInfo, Sample, naming
