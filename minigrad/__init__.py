"""minigrad: reverse-mode automatic differentiation of NumPy code, to any order.

    import minigrad as mg

    w = mg.tensor([1.0, 2.0], requires_grad=True)
    (w**2).sum().backward()           # w.grad is 2 w
    mg.grad(lambda x: np.sin(x).sum())(np.ones(3))

Tensors go where arrays go: np.f(t), t.f() and mg.f(t) are one function, `dim=` is read as `axis=`.
help(mg.f) tells what it computes; help(mg.Tensor) lists the methods, help(mg.optim) the optimizers
and schedules.

Tensors:
    Tensor, tensor, as_tensor, zeros, ones, empty, full, arange, linspace, eye, rand, randn,
    randint, randperm, from_numpy, zeros_like, ones_like, empty_like, full_like, rand_like,
    randn_like, default_generator, get_rng_state, manual_seed, set_rng_state, device, cuda

Derivatives:
    gradients, grad, value_and_grad, elementwise_grad, vjp, jvp, hvp, jacobian, hessian, no_grad,
    enable_grad, set_grad_enabled, is_grad_enabled, custom_op

Checking and watching:
    gradcheck, gradgradcheck, detect_anomaly, profile, memory_report, to_dot, draw_graph,
    use_definitions

Errors, threads, processes:
    GradientError, AnomalyError, GradcheckError, MissingExtraError, get_num_threads, set_num_threads

Several processes and others:
    Alone, DataParallel, MPIParallel, start_parallel

Elementwise:
    add, subtract, multiply, divide, negative, positive, absolute, sign, power, square, reciprocal,
    remainder, exp, expm1, log, log1p, log2, log10, sqrt, rsqrt, logaddexp, hypot, sin, cos, tan,
    arcsin, arccos, arctan, arctan2, sinh, cosh, tanh, arcsinh, arccosh, arctanh, maximum, minimum,
    where, masked_fill, clip, cbrt, exp2, logaddexp2, fmax, fmin, copysign, deg2rad,
    rad2deg, sinc, xlogy, divmod, fmod, unwrap, select, polyval,
    conjugate

Activations:
    relu, sigmoid, softplus, log_sigmoid, leaky_relu, elu, silu, erf, gelu

Reductions:
    sum, mean, var, std, max, min, prod, ptp, average, logsumexp, cumsum, cumprod,
    cov, corrcoef, nansum, nanprod, nanmean, nanvar, nanstd, nanmax, nanmin,
    nan_to_num, norm, vector_norm,
    matrix_norm, cond, softmax, log_softmax

Linear algebra:
    matmul, dot, vdot, inner, outer, tensordot, diagonal, diag, diagflat, trace, tril, triu, inv,
    solve, det, slogdet, cholesky, vecdot, kron, cross, eigh, eigvalsh, svd,
    svdvals, qr, pinv, lstsq, matrix_power, einsum

Shape:
    astype, clone, reshape, transpose, swapaxes, moveaxis, expand_dims, squeeze, ravel,
    broadcast_to, broadcast_arrays, atleast_1d, atleast_2d, atleast_3d, concatenate, stack, append,
    vstack, hstack, dstack, column_stack, block, split, array_split, unstack, meshgrid, flip,
    fliplr, flipud, rot90, roll, repeat, tile, pad,
    sliding_window_view, unfold

Indexing and sorting:
    scatter, getitem, take, take_along_axis, gather, compress, extract, index_select, masked_select,
    index_add, one_hot, sort, argsort, partition, top_k, median, quantile, percentile

Differences and integrals:
    diff, trapezoid, gradient, interp, convolve, correlate

PyTorch's names:
    amax, amin, cat, chunk, expand, flatten

Networks:
    linear, layer_norm, rms_norm, dropout, relu_dropout, embedding, scaled_dot_product_attention,
    split_heads, merge_heads

Losses:
    cross_entropy, linear_cross_entropy, mse_loss, l1_loss, smooth_l1_loss, huber_loss,
    binary_cross_entropy, binary_cross_entropy_with_logits, nll_loss, kl_div

Without gradient:
    greater, greater_equal, less, less_equal, equal, not_equal, isclose, allclose, array_equal,
    logical_not, logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor,
    bitwise_not, any, all, isnan, isinf, isfinite, signbit, floor, ceil, trunc, round, rint,
    floor_divide, argmax, argmin, nonzero, argwhere, count_nonzero, searchsorted

Other names of these:
    abs, bmm, clamp, inverse, mm, movedim, permute, pow, topk, unsqueeze
"""

import typing as _typing

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
from .advice import missing as _missing
from .core.creation import *
from .core.device import *
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
from .kernels.attention import *
from .kernels.cross_entropy import *
from .kernels.definitions import *
from .kernels.dropout import *
from .kernels.embedding import *
from .kernels.gelu import *
from .kernels.linear import *
from .kernels.normalization import *
from .numpy_ops import ranges as ranges  # answers np.linspace of tensors
from .numpy_ops import scipy_special as scipy_special  # answers scipy.special.erf and its kind
from .numpy_ops import ufunc_methods as ufunc_methods  # answers np.add.reduce and its kind
from .numpy_ops import writing as writing  # answers np.copyto and its kind
from .numpy_ops.calculus import *
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
from .runtime import *
from .torch_names import *
from .torch_names import accept_torch_options as _accept_torch_options

__version__ = "0.2.0"

_check_nn_package()
_accept_torch_options(globals())

if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error

    def __getattr__(name: str) -> _typing.NoReturn:
        _missing("minigrad", name)
