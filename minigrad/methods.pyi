"""Made by `python -m tools.stubs`: the methods that the registry sets on Tensor."""

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from .numpy.sorting import TopK
from .optim.state import StateMethods
from .tensor import Tensor

class OptimizerMethods(StateMethods): ...

class Size(builtins.int):
    shape: builtins.tuple[builtins.int, ...]
    def __call__(self, dim: builtins.int | None = ...) -> Any: ...

class Methods:
    __slots__ = ()
    def __abs__(self) -> Tensor:
        """Compute |x|; its derivative at 0 is 0."""
    def __add__(self, other: Any) -> Tensor:
        """Add a and b."""
    def __and__(self, other: Any) -> Tensor:
        """Compute a & b for booleans or integers."""
    def __array_namespace__(self, other: Any) -> Tensor:
        """Return the namespace of the array API standard."""
    def __divmod__(self, other: Any) -> Tensor:
        """Return floor(a / b), which has no gradient, and the remainder."""
    def __dlpack__(self, other: Any) -> Tensor:
        """Return the array as a DLPack capsule, which torch.as_tensor and jax.numpy.asarray read."""
    def __dlpack_device__(self, other: Any) -> Tensor:
        """Return the device of the array, the CPU."""
    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        """Compute a == b for each element."""
    def __floordiv__(self, other: Any) -> Tensor:
        """Compute a / b, rounded down."""
    def __ge__(self, other: Any) -> Tensor:
        """Compute a >= b for each element."""
    def __getitem__(self, index: Any) -> Tensor:
        """Return x[index], for every index of NumPy; a view of x if NumPy returns one."""
    def __gt__(self, other: Any) -> Tensor:
        """Compute a > b for each element."""
    def __iadd__(self, other: Any) -> Tensor:
        """Compute add in place."""
    def __iand__(self, other: Any) -> Tensor:
        """Compute bitwise_and in place."""
    def __ifloordiv__(self, other: Any) -> Tensor:
        """Compute floor_divide in place."""
    def __ilshift__(self, other: Any) -> Tensor:
        """Compute left_shift in place."""
    def __imatmul__(self, other: Any) -> Tensor:
        """Compute matmul in place."""
    def __imod__(self, other: Any) -> Tensor:
        """Compute remainder in place."""
    def __imul__(self, other: Any) -> Tensor:
        """Compute multiply in place."""
    def __invert__(self) -> Tensor:
        """Compute ~x for booleans or integers."""
    def __ior__(self, other: Any) -> Tensor:
        """Compute bitwise_or in place."""
    def __ipow__(self, other: Any) -> Tensor:
        """Compute power in place."""
    def __irshift__(self, other: Any) -> Tensor:
        """Compute right_shift in place."""
    def __isub__(self, other: Any) -> Tensor:
        """Compute subtract in place."""
    def __itruediv__(self, other: Any) -> Tensor:
        """Compute divide in place."""
    def __ixor__(self, other: Any) -> Tensor:
        """Compute bitwise_xor in place."""
    def __le__(self, other: Any) -> Tensor:
        """Compute a <= b for each element."""
    def __lshift__(self, other: Any) -> Tensor:
        """Shift the bits of a by b to the left."""
    def __lt__(self, other: Any) -> Tensor:
        """Compute a < b for each element."""
    def __matmul__(self, other: Any) -> Tensor:
        """Multiply matrices, as the operator `@`."""
    def __mod__(self, other: Any) -> Tensor:
        """Compute a - b * floor(a / b), which has the sign of b."""
    def __mul__(self, other: Any) -> Tensor:
        """Multiply a and b."""
    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        """Compute a != b for each element."""
    def __neg__(self) -> Tensor:
        """Negate x."""
    def __or__(self, other: Any) -> Tensor:
        """Compute a | b for booleans or integers."""
    def __pos__(self) -> Tensor:
        """Return a copy of x."""
    def __pow__(self, other: Any) -> Tensor:
        """Compute a to the power b; the derivative of 0ᵇ by b is 0."""
    def __radd__(self, other: Any) -> Tensor: ...
    def __rand__(self, other: Any) -> Tensor: ...
    def __rdivmod__(self, other: Any) -> Tensor: ...
    def __rfloordiv__(self, other: Any) -> Tensor: ...
    def __rlshift__(self, other: Any) -> Tensor: ...
    def __rmatmul__(self, other: Any) -> Tensor: ...
    def __rmod__(self, other: Any) -> Tensor: ...
    def __rmul__(self, other: Any) -> Tensor: ...
    def __ror__(self, other: Any) -> Tensor: ...
    def __rpow__(self, other: Any) -> Tensor: ...
    def __rrshift__(self, other: Any) -> Tensor: ...
    def __rshift__(self, other: Any) -> Tensor:
        """Shift the bits of a by b to the right."""
    def __rsub__(self, other: Any) -> Tensor: ...
    def __rtruediv__(self, other: Any) -> Tensor: ...
    def __rxor__(self, other: Any) -> Tensor: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        """Write a value at an index."""
    def __sub__(self, other: Any) -> Tensor:
        """Subtract b from a."""
    def __truediv__(self, other: Any) -> Tensor:
        """Divide a by b."""
    def __xor__(self, other: Any) -> Tensor:
        """Compute a ^ b for booleans or integers."""
    def _repr_html_(self) -> builtins.str: ...
    def abs(self) -> Tensor:
        """Compute |x|; its derivative at 0 is 0."""
    def add(self, b: Any, /) -> Tensor:
        """Add a and b."""
    def all(self, axis: Any = ..., out: Any = ..., keepdims: Any = ..., *, where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return True where all elements along `axis` are true."""
    def amax(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the maximum over `axis`, as `max` does."""
    def amin(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the minimum over `axis`, as `min` does."""
    def any(self, axis: Any = ..., out: Any = ..., keepdims: Any = ..., *, where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return True where any element along `axis` is true."""
    def arccos(self) -> Tensor:
        """Return the angle in [0, π] with cosine x."""
    def arccosh(self) -> Tensor:
        """Compute the inverse of cosh."""
    def arcsin(self) -> Tensor:
        """Return the angle in [-π/2, π/2] with sine x."""
    def arcsinh(self) -> Tensor:
        """Compute the inverse of sinh."""
    def arctan(self) -> Tensor:
        """Return the angle in (-π/2, π/2) with tangent x."""
    def arctan2(self, b: Any, /) -> Tensor:
        """Return the angle in (-π, π] of the point (b, a)."""
    def arctanh(self) -> Tensor:
        """Compute the inverse of tanh."""
    def argmax(self, axis: Any = ..., out: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the index of the largest element along `axis`."""
    def argmin(self, axis: Any = ..., out: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the index of the smallest element along `axis`."""
    def argsort(self, axis: builtins.int | None = ..., kind: Any = ..., *, stable: builtins.bool | None = ..., descending: builtins.bool = ..., dim: Any = ...) -> Tensor:
        """Return the indices that sort x along `axis`; NaN comes last."""
    def astype(self, dtype: Any, *, casting: Any = ..., copy: builtins.bool = ...) -> Tensor:
        """Convert x to `dtype`; the gradient has the dtype of x."""
    def bool(self) -> Tensor:
        """Convert to bool."""
    def broadcast_to(self, shape: Any) -> Tensor:
        """Return a view of x, repeated to a shape by NumPy's rules of broadcasting."""
    def ceil(self) -> Tensor:
        """Round up to integers."""
    def cholesky(self, *, upper: builtins.bool = ...) -> Tensor:
        """Compute the lower triangles L with L @ L.mT = x."""
    def chunk(self, chunks: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> builtins.list[Tensor]:
        """Return views of at most `chunks` parts of x along `axis`, of equal length."""
    def clamp(self, min: Any = ..., max: Any = ...) -> Tensor:
        """Limit x to a range."""
    def clip(self, min: Any = ..., max: Any = ...) -> Tensor:
        """Limit x to a range."""
    def clone(self, order: Any = ...) -> Tensor:
        """Return the elements of x in new memory, with a gradient to x."""
    def conj(self) -> Tensor:
        """Return x, or the conjugates of complex numbers."""
    def contiguous(self) -> Tensor:
        """Return x; operations accept any strides."""
    def copy(self, order: builtins.str = ...) -> Tensor:
        """Return the elements in new memory, as `ndarray.copy`."""
    def cos(self) -> Tensor:
        """Compute the cosine; x is in radians."""
    def cosh(self) -> Tensor:
        """Compute the hyperbolic cosine."""
    def cpu(self) -> Tensor:
        """Return x."""
    def cumprod(self, axis: Any = ..., *, dim: Any = ...) -> Tensor:
        """Compute the running product along `axis`."""
    def cumsum(self, axis: Any = ..., *, dim: Any = ...) -> Tensor:
        """Compute the running sum along `axis`."""
    def deg2rad(self) -> Tensor:
        """Convert degrees to radians."""
    def det(self) -> Tensor:
        """Compute the determinants of matrices; singular ones have gradients too."""
    def diagonal(self, offset: builtins.int = ..., axis1: builtins.int = ..., axis2: builtins.int = ...) -> Tensor:
        """Return diagonals as a last axis."""
    def diff(self, n: builtins.int = ..., axis: builtins.int = ..., prepend: Any = ..., append: Any = ..., *, dim: Any = ...) -> Tensor:
        """Compute differences of neighbours along `axis`."""
    def dim(self) -> Tensor:
        """Return the number of axes."""
    def div(self, b: Any, /) -> Tensor:
        """Divide a by b."""
    def dot(self, b: Any) -> Tensor:
        """Sum products over the last axis of a and the second-to-last axis of b."""
    def double(self) -> Tensor:
        """Convert to float64."""
    def elu(self, alpha: builtins.float = ...) -> Tensor:
        """Return x if positive, else `alpha` * (exp(x) - 1)."""
    def eq(self, other: Any) -> Tensor:
        """As `operator.eq`."""
    def erf(self) -> Tensor:
        """Compute the error function, to the precision of the dtype."""
    def exp(self) -> Tensor:
        """Compute eˣ."""
    def exp2(self) -> Tensor:
        """Compute 2ˣ."""
    def expand(self, *shape: Any) -> Tensor:
        """Return a view of x that is broadcast to a shape."""
    def expand_dims(self, axis: builtins.int | Sequence[builtins.int], *, dim: Any = ...) -> Tensor:
        """Return x with new axes of length 1, a view."""
    def expm1(self) -> Tensor:
        """Compute eˣ - 1, exact for small x."""
    def flatten(self, start_dim: builtins.int = ..., end_dim: builtins.int = ..., *, order: builtins.str = ...) -> Tensor:
        """Return a copy of x with the axes from `start_dim` to `end_dim`, both included, joined."""
    def flip(self, axis: builtins.int | Sequence[builtins.int] | None = ..., *, dim: Any = ...) -> Tensor:
        """Reverse the order of elements along `axis`."""
    def float(self) -> Tensor:
        """Convert to float32."""
    def floor(self) -> Tensor:
        """Round down to integers."""
    def gather(self, axis: builtins.int, index: Any, *, dim: Any = ...) -> Tensor:
        """Return y with y[i, j, k] = x[i, index[i, j, k], k], for axis 1 of three."""
    def ge(self, other: Any) -> Tensor:
        """As `operator.ge`."""
    def gelu(self, *, approximate: builtins.str = ...) -> Tensor:
        """Compute x · Φ(x), with Φ the cumulative normal distribution."""
    def gt(self, other: Any) -> Tensor:
        """As `operator.gt`."""
    def half(self) -> Tensor:
        """Convert to float16."""
    def heaviside(self, values: Any) -> Tensor:
        """Return 0 for negative, 1 for positive and NaN for NaN elements of x, and `values` for zeros."""
    def hypot(self, b: Any, /) -> Tensor:
        """Compute sqrt(a² + b²), without overflow."""
    def index_add(self, *, index: Any, values: Any) -> Tensor:
        """Return x with values added at an index; repeated indices add up."""
    def index_select(self, axis: builtins.int, index: Any, *, dim: Any = ...) -> Tensor:
        """Return the slices of x at a vector of indices, as in PyTorch."""
    def int(self) -> Tensor:
        """Convert to int32."""
    def inv(self) -> Tensor:
        """Compute the inverses of matrices."""
    def le(self, other: Any) -> Tensor:
        """As `operator.le`."""
    def leaky_relu(self, negative_slope: builtins.float = ...) -> Tensor:
        """Return x if positive, else `negative_slope` * x."""
    def log(self) -> Tensor:
        """Compute the natural logarithm."""
    def log10(self) -> Tensor:
        """Compute the base-10 logarithm."""
    def log1p(self) -> Tensor:
        """Compute log(1 + x), exact for small x."""
    def log2(self) -> Tensor:
        """Compute the base-2 logarithm."""
    def log_sigmoid(self) -> Tensor:
        """Compute log(sigmoid(x)), without underflow."""
    def log_softmax(self, axis: Any = ..., *, dim: Any = ...) -> Tensor:
        """Compute log(softmax(x)) over `axis`, without underflow."""
    def logaddexp(self, b: Any, /) -> Tensor:
        """Compute log(eᵃ + eᵇ), without overflow."""
    def logsumexp(self, axis: Any = ..., keepdims: Any = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute log(sum(exp(x))) over `axis`, without overflow; -inf if all x are -inf."""
    def long(self) -> Tensor:
        """Convert to int64."""
    def lt(self, other: Any) -> Tensor:
        """As `operator.lt`."""
    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """Return x with a value in place of the elements where `mask` is True."""
    def masked_select(self, mask: Any) -> Tensor:
        """Return the elements of x where `mask` is True."""
    def matmul(self, b: Any, /) -> Tensor:
        """Multiply matrices, as the operator `@`."""
    def max(self, axis: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the largest element over `axis`; equal ones share the gradient."""
    def maximum(self, b: Any, /) -> Tensor:
        """Return the larger of a and b; equal ones share the gradient."""
    def mean(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute the mean over `axis`."""
    def min(self, axis: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the smallest element over `axis`; equal ones share the gradient."""
    def minimum(self, b: Any, /) -> Tensor:
        """Return the smaller of a and b; equal ones share the gradient."""
    def moveaxis(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Move axes to other positions; the others keep their order."""
    def movedim(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Move axes to other positions; the others keep their order."""
    def mul(self, b: Any, /) -> Tensor:
        """Multiply a and b."""
    def nan_to_num(self, *, nan: builtins.float = ..., posinf: Any = ..., neginf: Any = ...) -> Tensor:
        """Replace NaN, inf and -inf."""
    def nanmean(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute the mean over `axis` of the elements that are not NaN; NaN if there are none."""
    def nansum(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Sum the elements over `axis` that are not NaN."""
    def ne(self, other: Any) -> Tensor:
        """As `operator.ne`."""
    def nonzero(self) -> builtins.tuple[np.ndarray, ...]:
        """Return the indices of the elements that are not zero."""
    def norm(self, ord: Any = ..., axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute norms of vectors or matrices."""
    def numel(self) -> Tensor:
        """Return the number of elements."""
    def outer(self, b: Any) -> Tensor:
        """Multiply each element of a by each element of b."""
    def permute(self, *axes: Any) -> Tensor:
        """Return a view of x with its axes in another order, as `numpy.transpose`."""
    def pow(self, b: Any, /) -> Tensor:
        """Compute a to the power b; the derivative of 0ᵇ by b is 0."""
    def prod(self, axis: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Multiply the elements over `axis`."""
    def rad2deg(self) -> Tensor:
        """Convert radians to degrees."""
    def ravel(self, order: builtins.str = ...) -> Tensor:
        """Return the elements of x as a vector."""
    def reciprocal(self) -> Tensor:
        """Compute 1 / x."""
    def relu(self) -> Tensor:
        """Compute max(x, 0); the derivative at 0 is 0."""
    def repeat(self, repeats: builtins.int | Sequence[builtins.int], *more: builtins.int, axis: builtins.int | None = ..., dim: Any = ...) -> Tensor:
        """Repeat each element."""
    def reshape(self, *shape: Any, order: builtins.str = ...) -> Tensor:
        """Return x in another shape of the same size, a view if its memory layout permits."""
    def roll(self, shift: builtins.int | Sequence[builtins.int], axis: builtins.int | Sequence[builtins.int] | None = ..., *, dim: Any = ...) -> Tensor:
        """Shift elements along `axis`; those beyond the end continue at the start."""
    def round(self, decimals: Any = ..., out: Any = ...) -> Tensor:
        """Round to a number of decimals, halves to even."""
    def rsqrt(self) -> Tensor:
        """Compute 1 / sqrt(x)."""
    def sigmoid(self) -> Tensor:
        """Compute 1 / (1 + exp(-x))."""
    def sign(self) -> Tensor:
        """Return -1, 0 or 1; the derivative is 0."""
    def silu(self) -> Tensor:
        """Compute x * sigmoid(x), also called swish."""
    def sin(self) -> Tensor:
        """Compute the sine; x is in radians."""
    def sinc(self) -> Tensor:
        """Compute sin(πx) / (πx), which is 1 at 0."""
    def sinh(self) -> Tensor:
        """Compute the hyperbolic sine."""
    def slogdet(self) -> Any:
        """Compute signs and logarithms of absolute values of determinants."""
    def softmax(self, axis: builtins.int = ..., *, where: Any = ..., dim: Any = ...) -> Tensor:
        """Compute exp(x) / sum(exp(x)) over `axis`."""
    def softplus(self, beta: builtins.float = ...) -> Tensor:
        """Compute log(1 + exp(beta * x)) / beta, without overflow."""
    def split(self, split_size: builtins.int | Sequence[builtins.int], dim: builtins.int = ...) -> builtins.tuple[Tensor, ...]:
        """Return views of parts of x along `dim`, of one length or of several lengths."""
    def sqrt(self) -> Tensor:
        """Compute the square root."""
    def square(self) -> Tensor:
        """Compute x²."""
    def squeeze(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, dim: Any = ...) -> Tensor:
        """Return x without axes of length 1, a view."""
    def std(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., correction: builtins.float | None = ..., ddof: builtins.float | None = ..., unbiased: builtins.bool | None = ..., dtype: Any = ..., where: Any = ..., mean: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute the standard deviation over `axis`, the square root of `var`."""
    def sub(self, b: Any, /) -> Tensor:
        """Subtract b from a."""
    def sum(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Return the sum of the elements over `axis`."""
    def swapaxes(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """Return a view of x with two axes exchanged."""
    def swapdims(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """Return a view of x with two axes exchanged."""
    def t(self) -> Tensor:
        """Return the transpose of a matrix, or a vector or scalar unchanged."""
    def take(self, indices: Any, axis: builtins.int | None = ..., *, mode: builtins.str = ..., dim: Any = ...) -> Tensor:
        """Return elements or slices at integer indices."""
    def tan(self) -> Tensor:
        """Compute the tangent; x is in radians."""
    def tanh(self) -> Tensor:
        """Compute the hyperbolic tangent."""
    def tile(self, reps: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Repeat x as a whole."""
    def to(self, to: Any, dtype: Any = ..., non_blocking: builtins.bool = ..., copy: builtins.bool = ...) -> Tensor:
        """Convert to the dtype `to`, or to the dtype of the tensor `to`."""
    def to_device(self, device: Any, /, *, stream: Any = ...) -> Tensor:
        """Return x, whose device is the CPU."""
    def top_k(self, k: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> TopK:
        """Return the k largest elements along `axis`, largest first, and their indices."""
    def topk(self, k: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> TopK:
        """Return the k largest elements along `axis`, largest first, and their indices."""
    def trace(self, offset: builtins.int = ..., axis1: builtins.int = ..., axis2: builtins.int = ..., dtype: Any = ...) -> Tensor:
        """Sum the elements of a diagonal."""
    def transpose(self, *axes: Any) -> Tensor:
        """Return a view of x with its axes in another order, as `numpy.transpose`."""
    def tril(self, k: builtins.int = ...) -> Tensor:
        """Replace the elements above a diagonal by 0."""
    def triu(self, k: builtins.int = ...) -> Tensor:
        """Replace the elements below a diagonal by 0."""
    def trunc(self) -> Tensor:
        """Round towards zero to integers."""
    def unbind(self, axis: builtins.int = ..., *, dim: Any = ...) -> builtins.tuple[Tensor, ...]:
        """Return slices of x along `axis`: the inverse of `stack`."""
    def unfold(self, axis: builtins.int, size: builtins.int, step: builtins.int = ..., *, dim: Any = ...) -> Tensor:
        """Return windows along `axis` as a new last axis, as PyTorch's `Tensor.unfold`."""
    def unsqueeze(self, axis: builtins.int | Sequence[builtins.int], *, dim: Any = ...) -> Tensor:
        """Return x with new axes of length 1, a view."""
    def var(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., correction: builtins.float | None = ..., ddof: builtins.float | None = ..., unbiased: builtins.bool | None = ..., dtype: Any = ..., where: Any = ..., mean: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """Compute the variance over `axis`."""
    def view(self, *shape: Any) -> Tensor:
        """Reshape x; without a shape, return a view of the same shape."""
    def xlogy(self, b: Any, /) -> Tensor:
        """Compute a * log(b), which is 0 where a is 0, unless b is NaN."""
    @property
    def shape(self) -> builtins.tuple[builtins.int, ...]:
        """Length of each axis."""
    @property
    def ndim(self) -> builtins.int:
        """Number of axes."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements."""
    @property
    def itemsize(self) -> builtins.int:
        """Bytes of one element."""
    @property
    def nbytes(self) -> builtins.int:
        """Bytes that the elements take."""
    @property
    def strides(self) -> builtins.tuple[builtins.int, ...]:
        """Bytes from one element to the next along each axis."""
    @property
    def flags(self) -> Any:
        """Memory layout, as in NumPy."""
    @property
    def T(self) -> Tensor:
        """Tensor with its axes reversed."""
    @property
    def mT(self) -> Tensor:
        """Tensor with its last two axes exchanged."""
    @property
    def real(self) -> Tensor:
        """Real part, which is the tensor itself for real numbers."""
    @property
    def imag(self) -> Tensor:
        """Imaginary part, which is 0 for real numbers."""
    @property
    def flat(self) -> Tensor:
        """Elements one after the other."""
    @property
    def device(self) -> Any:
        """Device "cpu"."""
