"""minigrad: reverse-mode automatic differentiation of NumPy code, to any order.

    import minigrad as mg

    w = mg.tensor([1.0, 2.0], requires_grad=True)
    (w**2).sum().backward()           # w.grad is 2 w
    mg.grad(lambda x: np.sin(x).sum())(np.ones(3))

Tensors go where arrays go: np.f(t), t.f() and mg.f(t) are one function, `dim=` is read as `axis=`.
help(mg.f) describes a function, help(mg.Tensor) lists the methods, help(mg.optim) the optimizers
and schedules.

The names by module:
"""

import sys as _sys
import typing as _typing

from numpy import e as e  # constants and dtypes that PyTorch users expect here
from numpy import float16 as float16
from numpy import float32 as float32
from numpy import float64 as float64
from numpy import inf as inf
from numpy import int8 as int8
from numpy import int16 as int16
from numpy import int32 as int32
from numpy import int64 as int64
from numpy import linalg as linalg
from numpy import nan as nan
from numpy import pi as pi
from numpy import uint8 as uint8

from . import optim as optim
from .advice import missing as _missing
from .batching import *
from .core.creation import *
from .core.errors import *
from .core.modes import *
from .core.random import *
from .core.registry import *
from .core.tensor import *
from .debug.anomaly import *
from .debug.draw import *
from .debug.gradcheck import *
from .debug.memory import *
from .debug.profiler import *
from .derivatives import *
from .extras import check_nn_package as _check_nn_package
from .io.arrays import load as load
from .io.arrays import save as save
from .kernels.attention import *
from .kernels.cross_entropy import *
from .kernels.definitions import *
from .kernels.dropout import *
from .kernels.embedding import *
from .kernels.gelu import *
from .kernels.linear import *
from .kernels.normalization import *
from .numpy_ops import ranges as ranges  # answers np.linspace of tensors
from .numpy_ops import scipy_special as scipy_special  # answers functions of scipy.special
from .numpy_ops import ufunc_methods as ufunc_methods  # answers np.add.reduce and similar methods
from .numpy_ops import writing as writing  # answers np.copyto and similar functions
from .numpy_ops.calculus import *
from .numpy_ops.multinomial import *
from .numpy_ops.nan import *
from .numpy_ops.rearrange import *
from .numpy_ops.sorting import *
from .numpy_ops.special import *
from .ops.activations import *
from .ops.compare import *
from .ops.decompositions import *
from .ops.einsum import *
from .ops.elementwise import *
from .ops.indexing import *
from .ops.joining import *
from .ops.linalg import *
from .ops.losses import *
from .ops.norms import *
from .ops.reduction import *
from .ops.shape import *
from .ops.softmax import *
from .ops.statistics import *
from .parallel import *
from .report import list_names as _list_names
from .runtime import *
from .torch_names import *
from .torch_names import accept_torch_options as _accept_torch_options

__version__ = "0.2.0"

_check_nn_package()
__doc__ += _list_names(_sys.modules[__name__])  # names of operations are listed nowhere else
_accept_torch_options(globals())

if not _typing.TYPE_CHECKING:  # type checkers report a missing name

    def __getattr__(name: str) -> _typing.NoReturn:
        _missing("minigrad", name)
