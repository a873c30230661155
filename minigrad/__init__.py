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

from . import fast as fast
from . import optim as optim
from .check import blocks as blocks  # checks blocks of no_grad() in generators
from .check.anomaly import *
from .check.custom_op import *
from .check.extras import *
from .check.extras import check_nn_package as _check_nn_package
from .check.gradcheck import *
from .check.memory import *
from .check.namespace import namespace as _namespace
from .check.profiler import *
from .check.report import list_names as _list_names
from .errors import *
from .fast.parallel import *
from .fast.runtime import *
from .fuse import *
from .grad import *
from .io.arrays import load as load
from .io.arrays import save as save
from .io.random_state import *
from .modes import *
from .numpy import array_api as array_api  # the namespace of the array API standard
from .numpy import complex_tensor as complex_tensor  # results of 1j * x and np.fft.fft(x)
from .numpy import conversion as conversion  # advice for np.asarray of tensors
from .numpy import fourier as fourier  # answers functions of np.fft
from .numpy import options as options  # answers sum(dtype=), var(ddof=) and similar calls
from .numpy import protocols as _protocols
from .numpy import scipy_special as scipy_special  # answers functions of scipy.special
from .numpy import sparse as sparse  # answers products with matrices of scipy.sparse
from .numpy import ufunc_methods as ufunc_methods  # answers np.add.reduce and similar methods
from .numpy import writing as writing  # answers np.copyto and similar functions
from .numpy.activations import *
from .numpy.calculus import *
from .numpy.compare import *
from .numpy.creation import *
from .numpy.decompositions import *
from .numpy.derivatives import *
from .numpy.einsum import *
from .numpy.elementwise import *
from .numpy.indexing import *
from .numpy.joining import *
from .numpy.linalg import *
from .numpy.multinomial import *
from .numpy.nan import *
from .numpy.norms import *
from .numpy.rearrange import *
from .numpy.reduction import *
from .numpy.scipy_linalg import *
from .numpy.shape import *
from .numpy.sorting import *
from .numpy.special import *
from .numpy.statistics import *
from .numpy.vmap import *
from .ops.arithmetic import *
from .ops.attention import *
from .ops.loss import *
from .ops.network import *
from .ops.reduce import *
from .ops.shape import *
from .random import *
from .registry import *
from .tensor import *
from .torch.losses import *
from .torch.names import *

from .numpy.creation import tensor as tensor  # isort: skip  # type checkers see the module before

__version__ = "0.3.0"

_check_nn_package()
__doc__ += _list_names(_sys.modules[__name__])  # names of operations are listed nowhere else

if not _typing.TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = _namespace(__name__, "linalg", "optim", "torch")
