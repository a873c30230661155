"""minigrad: reverse-mode automatic differentiation of NumPy code, to any order."""

from . import optim as optim
from .anomaly import *
from .creation import *
from .derivatives import *
from .errors import *
from .gradcheck import *
from .graph import *
from .kernels.attention import *
from .kernels.cross_entropy import *
from .kernels.dropout import *
from .kernels.embedding import *
from .kernels.gelu import *
from .kernels.linear import *
from .kernels.normalization import *
from .memory import *
from .modes import *
from .op import *
from .ops import ufunc_methods as ufunc_methods  # answers np.add.reduce and its kind
from .ops.activations import *
from .ops.compare import *
from .ops.einsum import *
from .ops.elementwise import *
from .ops.elementwise import absolute as abs
from .ops.indexing import *
from .ops.linalg import *
from .ops.reduction import *
from .ops.shape import *
from .ops.softmax import *
from .parallel import *
from .profiler import *
from .random import *
from .tensor import *
from .threads import *

__version__ = "0.1.0"
