"""minigrad: reverse-mode automatic differentiation of NumPy code, to any order."""

from numpy import e as e  # the constants and dtypes, where a PyTorch user looks for them
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
from .kernels.attention import *
from .kernels.cross_entropy import *
from .kernels.definitions import *
from .kernels.dropout import *
from .kernels.embedding import *
from .kernels.gelu import *
from .kernels.linear import *
from .kernels.normalization import *
from .ops import advice as advice  # says what to write for PyTorch's other names
from .ops import scipy_special as scipy_special  # answers scipy.special.erf and its kind
from .ops import ufunc_methods as ufunc_methods  # answers np.add.reduce and its kind
from .ops import writing as writing  # answers np.copyto and its kind
from .ops.activations import *
from .ops.calculus import *
from .ops.compare import *
from .ops.decompositions import *
from .ops.einsum import *
from .ops.elementwise import *
from .ops.elementwise import absolute as abs
from .ops.elementwise import clip as clamp  # and PyTorch's names of functions, as they are written most
from .ops.elementwise import power as pow
from .ops.habits import *
from .ops.indexing import *
from .ops.joining import *
from .ops.linalg import *
from .ops.linalg import inv as inverse
from .ops.linalg import matmul as bmm
from .ops.linalg import matmul as mm
from .ops.losses import *
from .ops.nan import *
from .ops.norms import *
from .ops.rearrange import *
from .ops.reduction import *
from .ops.shape import *
from .ops.shape import expand_dims as unsqueeze
from .ops.shape import moveaxis as movedim
from .ops.shape import transpose as permute
from .ops.softmax import *
from .ops.sorting import *
from .ops.sorting import top_k as topk
from .ops.special import *
from .ops.statistics import *
from .parallel import *
from .runtime import *

__version__ = "0.2.0"
