"""Made by `python -m tools.stubs`: the methods that the registry sets on Tensor."""

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from .core.tensor import Tensor
from .numpy_ops.sorting import TopK

class Size(builtins.int):
    shape: builtins.tuple[builtins.int, ...]
    def __call__(self, dim: builtins.int | None = ...) -> Any: ...

class Methods:
    __slots__ = ()
    def __abs__(self) -> Tensor:
        """|x|; its derivative at 0 is 0."""
    def __add__(self, other: Any) -> Tensor:
        """a + b."""
    def __and__(self, other: Any) -> Tensor:
        """a & b, for booleans and integers."""
    def __divmod__(self, other: Any) -> Tensor:
        """a / b rounded down, which has no gradient, and the remainder."""
    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        """a == b, element by element."""
    def __floordiv__(self, other: Any) -> Tensor:
        """a / b, rounded down."""
    def __ge__(self, other: Any) -> Tensor:
        """a >= b."""
    def __getitem__(self, index: Any) -> Tensor:
        """x[index], for every index that NumPy knows; the result is a view where NumPy's would be one."""
    def __gt__(self, other: Any) -> Tensor:
        """a > b."""
    def __iadd__(self, other: Any) -> Tensor:
        """Compute add in place: the same Tensor has the new values and gradient."""
    def __iand__(self, other: Any) -> Tensor:
        """Compute bitwise_and in place: the same Tensor has the new values and gradient."""
    def __ifloordiv__(self, other: Any) -> Tensor:
        """Compute floor_divide in place: the same Tensor has the new values and gradient."""
    def __imatmul__(self, other: Any) -> Tensor:
        """Compute matmul in place: the same Tensor has the new values and gradient."""
    def __imod__(self, other: Any) -> Tensor:
        """Compute remainder in place: the same Tensor has the new values and gradient."""
    def __imul__(self, other: Any) -> Tensor:
        """Compute multiply in place: the same Tensor has the new values and gradient."""
    def __invert__(self) -> Tensor:
        """~x, for booleans and integers."""
    def __ior__(self, other: Any) -> Tensor:
        """Compute bitwise_or in place: the same Tensor has the new values and gradient."""
    def __ipow__(self, other: Any) -> Tensor:
        """Compute power in place: the same Tensor has the new values and gradient."""
    def __isub__(self, other: Any) -> Tensor:
        """Compute subtract in place: the same Tensor has the new values and gradient."""
    def __itruediv__(self, other: Any) -> Tensor:
        """Compute divide in place: the same Tensor has the new values and gradient."""
    def __ixor__(self, other: Any) -> Tensor:
        """Compute bitwise_xor in place: the same Tensor has the new values and gradient."""
    def __le__(self, other: Any) -> Tensor:
        """a <= b."""
    def __lt__(self, other: Any) -> Tensor:
        """a < b."""
    def __matmul__(self, other: Any) -> Tensor:
        """The matrix product, with NumPy's broadcasting: (..., n, k) @ (..., k, m), and vectors (k,) on"""
    def __mod__(self, other: Any) -> Tensor:
        """a - b ⌊a / b⌋, which has the sign of b."""
    def __mul__(self, other: Any) -> Tensor:
        """a · b."""
    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        """a != b, element by element."""
    def __neg__(self) -> Tensor:
        """-x."""
    def __or__(self, other: Any) -> Tensor:
        """a | b, for booleans and integers."""
    def __pos__(self) -> Tensor:
        """+x, a copy."""
    def __pow__(self, other: Any) -> Tensor:
        """a to the power b; either can be a tensor. d/db of 0ᵇ is taken as 0."""
    def __radd__(self, other: Any) -> Tensor: ...
    def __rand__(self, other: Any) -> Tensor: ...
    def __rdivmod__(self, other: Any) -> Tensor: ...
    def __rfloordiv__(self, other: Any) -> Tensor: ...
    def __rmatmul__(self, other: Any) -> Tensor: ...
    def __rmod__(self, other: Any) -> Tensor: ...
    def __rmul__(self, other: Any) -> Tensor: ...
    def __ror__(self, other: Any) -> Tensor: ...
    def __rpow__(self, other: Any) -> Tensor: ...
    def __rsub__(self, other: Any) -> Tensor: ...
    def __rtruediv__(self, other: Any) -> Tensor: ...
    def __rxor__(self, other: Any) -> Tensor: ...
    def __setitem__(self, index: Any, value: Any) -> None:
        """Write into this tensor where no gradient flows; graphs that need the old values notice it."""
    def __sub__(self, other: Any) -> Tensor:
        """a - b."""
    def __truediv__(self, other: Any) -> Tensor:
        """a / b."""
    def __xor__(self, other: Any) -> Tensor:
        """a ^ b, for booleans and integers."""
    def abs(self) -> Tensor:
        """|x|; its derivative at 0 is 0."""
    def add(self, other: Any, **options: Any) -> Tensor:
        """x + other."""
    def all(self, axis: Any = ..., keepdims: Any = ..., *, where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Any:
        """Whether all elements are true, over all axes or `axis`."""
    def amax(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """`max`, by the name that means the same in PyTorch."""
    def amin(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """`min`, by the name that means the same in PyTorch."""
    def any(self, axis: Any = ..., keepdims: Any = ..., *, where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Any:
        """Whether any element is true, over all axes or `axis`."""
    def arccos(self) -> Tensor:
        """The angle in [0, π] with cosine x."""
    def arccosh(self) -> Tensor:
        """The inverse of cosh."""
    def arcsin(self) -> Tensor:
        """The angle in [-π/2, π/2] with sine x."""
    def arcsinh(self) -> Tensor:
        """The inverse of sinh."""
    def arctan(self) -> Tensor:
        """The angle in (-π/2, π/2) with tangent x."""
    def arctan2(self, b: Any, /) -> Tensor:
        """The angle in (-π, π] of the point (b, a)."""
    def arctanh(self) -> Tensor:
        """The inverse of tanh."""
    def argmax(self, axis: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Any:
        """The position of the largest element: of all, or along `axis`."""
    def argmin(self, axis: Any = ..., *, keepdims: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Any:
        """The position of the smallest element: of all, or along `axis`."""
    def argsort(self, axis: builtins.int | None = ..., kind: Any = ..., *, stable: builtins.bool | None = ..., descending: builtins.bool = ..., dim: Any = ...) -> Tensor:
        """The positions that would sort x along `axis`, or all of it where that is None; NaN comes"""
    def astype(self, dtype: Any) -> Tensor:
        """x converted to `dtype`; the gradient comes back in the dtype of x."""
    def bool(self) -> Tensor: ...
    def broadcast_to(self, shape: Any) -> Tensor:
        """x repeated to `shape`, as NumPy broadcasts; its memory is shared."""
    def ceil(self, *, where: Any = ..., casting: Any = ..., order: Any = ..., dtype: Any = ..., subok: Any = ...) -> Any:
        """The smallest integer that is no smaller than x."""
    def cholesky(self, *, upper: builtins.bool = ...) -> Tensor:
        """The lower triangles L with L @ L.T = x, of symmetric positive matrices (..., n, n); with"""
    def chunk(self, chunks: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> builtins.list[Tensor]:
        """x cut along `axis` into at most that many parts of one length, the last one shorter, as in"""
    def clamp(self, min: Any = ..., max: Any = ...) -> Tensor:
        """x, but no less than `min` and no more than `max` (either can be None, or a tensor)."""
    def clip(self, min: Any = ..., max: Any = ...) -> Tensor:
        """x, but no less than `min` and no more than `max` (either can be None, or a tensor)."""
    def clone(self) -> Tensor:
        """A copy of x, in memory of its own."""
    def compress(self, condition: Any, axis: Any = ..., *, dim: Any = ...) -> Tensor: ...
    def conj(self) -> Tensor:
        """x, since it is real; of complex numbers the conjugates."""
    def contiguous(self) -> Tensor: ...
    def copy(self) -> Tensor:
        """A copy of x, in memory of its own."""
    def cos(self) -> Tensor:
        """The cosine (radians)."""
    def cosh(self) -> Tensor:
        """The hyperbolic cosine."""
    def cpu(self) -> Tensor: ...
    def cumprod(self, axis: builtins.int | None = ..., *, dtype: Any = ..., dim: Any = ...) -> Tensor:
        """The running product along `axis`, or of the flattened array where it is None, in `dtype`."""
    def cumsum(self, axis: builtins.int | None = ..., *, dtype: Any = ..., dim: Any = ...) -> Tensor:
        """The running sum along `axis`, or of the flattened array where it is None, in `dtype`."""
    def deg2rad(self) -> Tensor:
        """Degrees as radians."""
    def det(self) -> Tensor:
        """The determinants of matrices (..., n, n); singular ones have a gradient too."""
    def diagonal(self, offset: builtins.int = ..., axis1: builtins.int = ..., axis2: builtins.int = ...) -> Tensor:
        """The diagonals of the matrices in axes `axis1` and `axis2`, as a last axis."""
    def diff(self, n: builtins.int = ..., axis: builtins.int = ..., prepend: Any = ..., append: Any = ..., *, dim: Any = ...) -> Tensor:
        """The differences of neighbours along `axis`, taken `n` times; of x with `prepend` before and"""
    def dim(self) -> Tensor: ...
    def div(self, other: Any, **options: Any) -> Tensor:
        """x / other."""
    def dot(self, b: Any) -> Tensor:
        """`np.dot`: the sum over the last axis of a and the last but one of b (or its only one)."""
    def double(self) -> Tensor: ...
    def elu(self, alpha: builtins.float = ...) -> Tensor:
        """x where positive, else `alpha` (eˣ - 1)."""
    def erf(self) -> Tensor:
        """The error function, 2/√π ∫₀ˣ exp(-t²) dt, to the precision of the dtype."""
    def exp(self) -> Tensor:
        """eˣ."""
    def exp2(self) -> Tensor:
        """2ˣ."""
    def expand(self, *shape: Any) -> Tensor:
        """x broadcast to a shape, as ints or one tuple, in which -1 is the length that there is."""
    def expand_dims(self, axis: builtins.int | Sequence[builtins.int], *, dim: Any = ...) -> Tensor:
        """x with a new axis of length 1 at each place `axis` of the result."""
    def expm1(self) -> Tensor:
        """eˣ - 1, exact for small x."""
    def fill(self, *args: Any, **options: Any) -> None:
        """As NumPy's, in place, where no gradient flows through x; otherwise write np.full_like(x, value)."""
    def flatten(self, start_dim: builtins.int = ..., end_dim: builtins.int = ..., *, order: builtins.str = ...) -> Tensor:
        """x with the axes from `start_dim` to `end_dim`, both counted in, as one; as in NumPy of all"""
    def flip(self, axis: builtins.int | Sequence[builtins.int] | None = ..., *, dim: Any = ...) -> Tensor:
        """x with the order of its elements reversed along `axis` (all axes where it is None)."""
    def float(self) -> Tensor: ...
    def floor(self, *, where: Any = ..., casting: Any = ..., order: Any = ..., dtype: Any = ..., subok: Any = ...) -> Any:
        """The largest integer that is no larger than x."""
    def gather(self, axis: builtins.int, index: Any, *, dim: Any = ...) -> Tensor:
        """y[i, j, k] = x[i, index[i, j, k], k] for axis 1, and likewise, as PyTorch's `gather`."""
    def gelu(self, *, approximate: builtins.str = ...) -> Tensor:
        """x · Φ(x), with Φ the normal distribution; `approximate="tanh"` for its tanh form."""
    def half(self) -> Tensor: ...
    def hypot(self, b: Any, /) -> Tensor:
        """√(a² + b²), without overflow."""
    def index_add(self, *, index: Any, values: Any) -> Tensor:
        """x with `values` added at `index` (any NumPy index); repeated indices add up."""
    def index_select(self, axis: builtins.int, index: Any, *, dim: Any = ...) -> Tensor:
        """The slices of x at the places `index` (a vector) along `axis`, as in PyTorch; `take` does"""
    def int(self) -> Tensor: ...
    def inv(self) -> Tensor:
        """The inverses of matrices (..., n, n)."""
    def leaky_relu(self, negative_slope: builtins.float = ...) -> Tensor:
        """x where positive, else `negative_slope` · x."""
    def log(self) -> Tensor:
        """The natural logarithm."""
    def log10(self) -> Tensor:
        """The logarithm to base 10."""
    def log1p(self) -> Tensor:
        """log(1 + x), exact for small x."""
    def log2(self) -> Tensor:
        """The logarithm to base 2."""
    def log_sigmoid(self) -> Tensor:
        """log(sigmoid(x)), without underflow."""
    def log_softmax(self, axis: Any = ..., *, dim: Any = ...) -> Tensor:
        """log(softmax(x)) over `axis`, without underflow."""
    def logaddexp(self, b: Any, /) -> Tensor:
        """log(eᵃ + eᵇ), without overflow."""
    def logsumexp(self, axis: Any = ..., keepdims: Any = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """log Σ eˣ over `axis`, without overflow; -inf where all x are -inf."""
    def long(self) -> Tensor: ...
    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        """`value` where `mask` (booleans, broadcast to x) is True, else x."""
    def masked_select(self, mask: Any) -> Tensor:
        """The elements of x where `mask` (booleans, which broadcast with x) is True, as one axis."""
    def matmul(self, b: Any, /) -> Tensor:
        """The matrix product, with NumPy's broadcasting: (..., n, k) @ (..., k, m), and vectors (k,) on"""
    def max(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., initial: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The largest of `initial` and the elements over `axis` that count by `where`; equal ones share"""
    def maximum(self, b: Any, /) -> Tensor:
        """The larger of a and b; equal ones share the gradient as in PyTorch."""
    def mean(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The mean over `axis`, of what counts by `where` (booleans), computed in `dtype`."""
    def min(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., initial: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The smallest of `initial` and the elements over `axis` that count by `where`; equal ones"""
    def minimum(self, b: Any, /) -> Tensor:
        """The smaller of a and b; equal ones share the gradient as in PyTorch."""
    def moveaxis(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """x with the axes `source` moved to the places `destination`; the others keep their order."""
    def movedim(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """x with the axes `source` moved to the places `destination`; the others keep their order."""
    def mul(self, other: Any, **options: Any) -> Tensor:
        """x * other."""
    def nan_to_num(self, copy: builtins.bool = ..., nan: builtins.float = ..., posinf: Any = ..., neginf: Any = ...) -> Tensor:
        """x with numbers in place of NaN, ∞ and -∞: unless given 0, the largest and the smallest of the"""
    def nanmean(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The mean over `axis` of what is not NaN (and counts by `where`), in `dtype`; NaN where there"""
    def nansum(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dim: Any = ..., keepdim: Any = ..., **options: Any) -> Tensor:
        """The sum over `axis` of what is not NaN; `dtype`, `initial` and `where` as in `sum`."""
    def nonzero(self) -> Any:
        """The indices of the elements that are not zero: a tuple of ndarrays."""
    def norm(self, ord: Any = ..., axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., keepdims: builtins.bool = ..., *, dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The norm over `axis`: Euclidean unless `ord` says otherwise, as in `np.linalg.norm`."""
    def numel(self) -> Tensor: ...
    def outer(self, b: Any) -> Tensor:
        """All products of an element of a (n in all) and one of b (m in all): (n, m)."""
    def partition(self, *args: Any, **options: Any) -> None:
        """As NumPy's, in place, where no gradient flows through x; otherwise write np.partition(x, kth)."""
    def permute(self, *axes: Any) -> Tensor:
        """x with its axes in the order `axes` (ints or one tuple), or reversed. To exchange two axes:"""
    def pow(self, b: Any, /) -> Tensor:
        """a to the power b; either can be a tensor. d/db of 0ᵇ is taken as 0."""
    def prod(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., initial: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The product over `axis`; `dtype`, `initial` and `where` as in `sum`."""
    def rad2deg(self) -> Tensor:
        """Radians as degrees."""
    def ravel(self, order: builtins.str = ...) -> Tensor:
        """x as one axis; `order` as in `reshape`."""
    def reciprocal(self) -> Tensor:
        """1 / x."""
    def relu(self) -> Tensor:
        """max(x, 0); its derivative at 0 is 0."""
    def repeat(self, repeats: builtins.int | Sequence[builtins.int], axis: builtins.int | None = ..., *more: builtins.int, dim: Any = ...) -> Tensor:
        """x with each element repeated in place along `axis`, or of the flattened x where it is None."""
    def reshape(self, *shape: Any, order: builtins.str = ...) -> Tensor:
        """x with another shape of the same size, as ints or one tuple; one length can be -1."""
    def roll(self, shift: builtins.int | Sequence[builtins.int], axis: builtins.int | Sequence[builtins.int] | None = ..., *, dim: Any = ...) -> Tensor:
        """x with its elements moved on by `shift` along `axis`, those pushed out coming in again in"""
    def round(self, decimals: Any = ...) -> Any:
        """x rounded to `decimals`, halves to even."""
    def rsqrt(self) -> Tensor:
        """1 / √x."""
    def sigmoid(self) -> Tensor:
        """1 / (1 + e⁻ˣ)."""
    def sign(self) -> Tensor:
        """-1, 0 or 1; its derivative is 0."""
    def silu(self) -> Tensor:
        """x · sigmoid(x), also called swish."""
    def sin(self) -> Tensor:
        """The sine (radians)."""
    def sinc(self) -> Tensor:
        """sin(πx) / (πx), and 1 at 0."""
    def sinh(self) -> Tensor:
        """The hyperbolic sine."""
    def slogdet(self) -> Any:
        """The sign of the determinant of matrices (..., n, n), and the logarithm of its size: (sign,"""
    def softmax(self, axis: builtins.int = ..., *, where: Any = ..., dim: Any = ...) -> Tensor:
        """eˣ, divided by its sum over `axis`."""
    def softplus(self, beta: builtins.float = ...) -> Tensor:
        """log(1 + e^(beta x)) / beta, without overflow."""
    def sort(self, *args: Any, **options: Any) -> None:
        """As NumPy's, in place, where no gradient flows through x; otherwise write np.sort(x)."""
    def split(self, indices_or_sections: builtins.int | Sequence[builtins.int], axis: builtins.int = ..., *, dim: Any = ...) -> builtins.list[Tensor]:
        """x cut along `axis` before each of the indices, or into that many equal parts."""
    def sqrt(self) -> Tensor:
        """The square root."""
    def square(self) -> Tensor:
        """x²."""
    def squeeze(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, dim: Any = ...) -> Tensor:
        """x without its axes of length 1, or without those in `axis`."""
    def std(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., correction: builtins.float | None = ..., ddof: builtins.float | None = ..., unbiased: builtins.bool | None = ..., dtype: Any = ..., where: Any = ..., mean: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The square root of `var`."""
    def sub(self, other: Any, **options: Any) -> Tensor:
        """x - other."""
    def sum(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., dtype: Any = ..., initial: Any = ..., where: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The sum over `axis` (an int, a tuple, or None for all axes)."""
    def swapaxes(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """x with two axes exchanged."""
    def swapdims(self, axis1: builtins.int, axis2: builtins.int) -> Tensor:
        """x with two axes exchanged."""
    def t(self) -> Tensor: ...
    def take(self, indices: Any, axis: builtins.int | None = ..., *, mode: builtins.str = ..., dim: Any = ...) -> Tensor:
        """The elements at `indices` along `axis`, or of the flattened x where it is None."""
    def tan(self) -> Tensor:
        """The tangent (radians)."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
    def tile(self, reps: builtins.int | Sequence[builtins.int]) -> Tensor:
        """x repeated as a whole, `reps` times along each axis (the last axes, where they are fewer)."""
    def to(self, to: Any) -> Tensor:
        """x in the dtype `to`, or in that of the tensor `to`; the device "cpu", where everything is,"""
    def top_k(self, k: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> TopK:
        """The k largest elements along `axis`, largest first, and where they stood. NaN counts as"""
    def topk(self, k: builtins.int, axis: builtins.int = ..., *, dim: Any = ...) -> TopK:
        """The k largest elements along `axis`, largest first, and where they stood. NaN counts as"""
    def trace(self, offset: builtins.int = ..., axis1: builtins.int = ..., axis2: builtins.int = ..., dtype: Any = ...) -> Tensor:
        """The sum of the diagonal, computed in `dtype`."""
    def transpose(self, *axes: Any) -> Tensor:
        """x with its axes in the order `axes` (ints or one tuple), or reversed. To exchange two axes:"""
    def tril(self, k: builtins.int = ...) -> Tensor:
        """x with 0 above its k-th diagonal."""
    def triu(self, k: builtins.int = ...) -> Tensor:
        """x with 0 below its k-th diagonal."""
    def trunc(self, *, where: Any = ..., casting: Any = ..., order: Any = ..., dtype: Any = ..., subok: Any = ...) -> Any:
        """x without its fraction."""
    def unbind(self, axis: builtins.int = ..., *, dim: Any = ...) -> builtins.tuple[Tensor, ...]:
        """The slices of x along `axis`, without it: what `stack` joins."""
    def unfold(self, axis: builtins.int, size: builtins.int, step: builtins.int = ..., *, dim: Any = ...) -> Tensor:
        """The windows of `size` elements along `axis`, every `step`, as a new last axis, as PyTorch's"""
    def unsqueeze(self, axis: builtins.int | Sequence[builtins.int], *, dim: Any = ...) -> Tensor:
        """x with a new axis of length 1 at each place `axis` of the result."""
    def var(self, axis: builtins.int | builtins.tuple[builtins.int, ...] | None = ..., *, keepdims: builtins.bool = ..., correction: builtins.float | None = ..., ddof: builtins.float | None = ..., unbiased: builtins.bool | None = ..., dtype: Any = ..., where: Any = ..., mean: Any = ..., dim: Any = ..., keepdim: Any = ...) -> Tensor:
        """The mean squared distance from the mean over `axis`, the sum divided by n - `correction`."""
    def view(self, *shape: Any) -> Tensor: ...
    def xlogy(self, b: Any, /) -> Tensor:
        """a log b, and 0 where a is 0, whatever b is but NaN; the derivative by a is 0 where both are"""
    @property
    def shape(self) -> builtins.tuple[builtins.int, ...]:
        """The length of each axis."""
    @property
    def size(self) -> Size:
        """The number of elements; called, the shape or the length of one axis."""
    @property
    def ndim(self) -> builtins.int:
        """The number of axes."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
    @property
    def itemsize(self) -> builtins.int:
        """The bytes of one element."""
    @property
    def nbytes(self) -> builtins.int:
        """The bytes that the elements take."""
    @property
    def strides(self) -> builtins.tuple[builtins.int, ...]:
        """The bytes from one element to the next along each axis."""
    @property
    def flags(self) -> Any:
        """How the memory lies, as in NumPy."""
    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes exchanged."""
    @property
    def flat(self) -> Tensor:
        """The elements one after the other."""
    @property
    def real(self) -> Tensor:
        """The real part; of real numbers the tensor itself."""
    @property
    def imag(self) -> Tensor:
        """The imaginary part; of real numbers zeros."""
    @property
    def device(self) -> Any:
        """The device "cpu"."""
