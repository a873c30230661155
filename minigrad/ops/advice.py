"""Names of PyTorch's tensors that are not here: what to write instead, in the AttributeError."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..core.registry import FUNCTIONS, OPS
from ..core.tensor import Tensor


def table(text: str) -> dict[str, str]:
    """What to write instead, by name: of lines that begin with one name, or with several and |
    between them.
    """
    rows = [line.split(maxsplit=1) for line in text.splitlines() if line]
    return {name: instead for names, instead in rows for name in names.split("|")}


INSTEAD = table("""
H                     x.T
absolute              x.abs()
acos                  x.arccos()
acosh                 x.arccosh()
addbmm                x + (a @ b).sum(axis=0)
addcdiv               x + value * a / b
addcmul               x + value * a * b
addmm|addmv|baddbmm   x + a @ b
addr                  x + minigrad.outer(a, b)
adjoint|mH            x.mT
aminmax               (x.min(), x.max())
as_strided            x.unfold(axis, size, step), or np.lib.stride_tricks.as_strided(x.data, ...) without gradient
as_subclass           x
asin                  x.arcsin()
asinh                 x.arcsinh()
at|index_put|put      x.index_add(index, values), or minigrad.where(mask, values, x)
atan                  x.arctan()
atan2                 minigrad.arctan2(x, y)
atanh                 x.arctanh()
bernoulli             (minigrad.rand(*x.shape) < x).double()
bfloat16              x.float(): NumPy has no bfloat16
bincount              np.bincount(x)
bitwise_left_shift    np.left_shift(x.data, n)
bitwise_right_shift   np.right_shift(x.data, n)
bmm|mm|mv             x @ y
byte                  x.astype(np.uint8)
char                  x.astype(np.int8)
cholesky_inverse      minigrad.inv(x @ x.mT)
cholesky_solve        minigrad.solve(a @ a.mT, x)
clamp_max             x.clip(max=...)
clamp_min             x.clip(min=...)
cummax                np.maximum.accumulate(x, axis)
cummin                np.minimum.accumulate(x, axis)
cross                 minigrad.cross(x, y), along the last axis
diag_embed            x[..., None] * minigrad.eye(x.shape[-1])
diagflat              minigrad.diagflat(x)
digamma               scipy.special.digamma(x)
dist                  (x - y).norm()
dsplit                minigrad.split(x, n, axis=2)
eig                   np.linalg.eig(x.data), without gradient; for symmetric matrices minigrad.eigh(x)
element_size          x.itemsize
eq                    x == y
equal                 minigrad.array_equal(x, y)
erfc                  1 - x.erf()
erfinv                scipy.special.erfinv(x)
expand_as             x.expand(y.shape)
fix                   x.trunc()
fmod                  minigrad.fmod(x, y)
frac                  x - x.trunc()
frexp                 np.frexp(x)
gcd                   np.gcd(x.data, y)
ge                    x >= y
ger                   x.outer(y)
grad_fn               x.is_leaf, and draw_graph(x)
gt                    x > y
hardshrink            minigrad.where(x.abs() > 0.5, x, 0.0)
histc|histogram       np.histogram(x, bins)
hsplit                minigrad.split(x, n, axis=1)
i0                    np.i0(x)
igamma                scipy.special.gammainc(x, y)
igammac               scipy.special.gammaincc(x, y)
index|select          x[index]
index_copy|masked_scatter|select_scatter|diagonal_scatter|slice_scatter  minigrad.where(mask, values, x)
index_fill            x.masked_fill(mask, value)
index_reduce|scatter_reduce  x.index_add(index, values), which sums
inverse               minigrad.inv(x)
is_contiguous         x.flags.c_contiguous
is_floating_point     x.dtype.kind == "f"
is_inference          not x.requires_grad
is_nonzero            bool(x)
is_same_size          x.shape == y.shape
is_set_to             x.data is y.data
is_signed             x.dtype.kind in "fi"
isneginf              x == -np.inf
isposinf              x == np.inf
kthvalue              np.sort(x, axis=-1)[..., k - 1]
lcm                   np.lcm(x.data, y)
ldexp                 x * 2.0**y
le                    x <= y
lerp                  x + weight * (y - x)
lgamma                scipy.special.gammaln(x)
logcumsumexp          np.logaddexp.accumulate(x, axis)
logdet                minigrad.slogdet(x)[1]
logit                 (x / (1 - x)).log()
lt                    x < y
matrix_exp            scipy.linalg.expm(x.data), which has no gradient
median                minigrad.median(x), which averages the two in the middle
mode                  scipy.stats.mode(x.data)
msort                 np.sort(x, axis=0)
multinomial           np.random.default_rng().choice(len(x), n, p=x.data)
mvlgamma              scipy.special.gammaln(x[..., None] - np.arange(p) / 2).sum(-1) + p * (p - 1) / 4 * np.log(np.pi)
narrow                x[start : start + length]
narrow_copy           x[start : start + length].clone()
ndimension            x.ndim
ne                    x != y
neg|negative          -x
nelement              x.numel()
new                   minigrad.tensor(data)
new_empty|new_empty_strided|new_zeros  minigrad.zeros(shape, dtype=x.dtype)
new_full              minigrad.full(shape, value, dtype=x.dtype)
new_ones              minigrad.ones(shape, dtype=x.dtype)
new_tensor            minigrad.tensor(data, dtype=x.dtype)
nextafter             np.nextafter(x.data, y)
nonzero_static        x.nonzero()
pinverse              minigrad.pinv(x)
polygamma             scipy.special.polygamma(n, x.data); scipy.special.digamma(x) has a gradient
prelu                 minigrad.where(x > 0, x, weight * x)
register_post_accumulate_grad_hook  x.register_hook(hook)
renorm                x * minigrad.minimum(1, maxnorm / x.norm(axis=..., keepdims=True))
repeat_interleave     x.repeat(n, axis=...)
reshape_as|resize_as|view_as  x.reshape(y.shape)
resize                x.reshape(shape), or minigrad.resize(x, shape)
retains_grad          x.retain_grad()
scatter               minigrad.scatter(values, index=..., shape=...)
scatter_add|slice_inverse  x.index_add(index, values)
sgn                   x.sign()
short                 x.astype(np.int16)
solve|triangular_solve  minigrad.solve(a, x)
split_with_sizes|unsafe_split_with_sizes  x.split(np.cumsum(sizes)[:-1], axis=0)
stride                tuple(n // x.itemsize for n in x.strides)
sum_to_size           x.sum(axis=..., keepdims=True)
svd                   minigrad.svd(x, full_matrices=False), whose last part is V transposed
symeig                minigrad.eigh(x)
take_along_dim        minigrad.take_along_axis(x, indices, axis)
tensor_split          minigrad.array_split(x, n, axis=0)
true_divide           x / y
type                  x.astype(dtype)
type_as               x.astype(y.dtype)
unflatten             x.reshape(...)
unique                np.unique(x)
unique_consecutive    x[np.concatenate([[True], x.data[1:] != x.data[:-1]])]
unsafe_chunk|unsafe_split  x.chunk(n)
var_mean              x.var() and x.mean()
volatile              minigrad.no_grad()
vsplit                minigrad.split(x, n, axis=0)
where                 minigrad.where(condition, x, y)

copy_                 x[...] = y
fill_                 x[...] = value
zero_                 x[...] = 0
set_                  x.data = array
swap_tensors          x.data, y.data = y.data, x.data
normal_               nn.init.normal_(x)
uniform_              nn.init.uniform_(x)
bernoulli_            x[...] = generator.random(x.shape) < p
random_               x[...] = generator.integers(low, high, x.shape)
exponential_          x[...] = generator.exponential(size=x.shape)
geometric_            x[...] = generator.geometric(p, x.shape)
cauchy_               x[...] = generator.standard_cauchy(x.shape)
log_normal_           x[...] = generator.lognormal(size=x.shape)
detach_               x.detach()
fill_diagonal_        np.fill_diagonal(x, value)
apply_                x[...] = np.vectorize(f)(x.data)
map_                  x[...] = np.vectorize(f)(x.data, y.data)
map2_                 x[...] = np.vectorize(f)(x.data, y.data, z.data)
""")

_KINDS = {
    "everything is in the memory of the CPU, on one device": """
cuda get_device hpu ipu xpu mtia is_cpu is_cuda is_hpu is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_ort
is_vulkan is_xla is_xpu pin_memory is_pinned is_shared record_stream to_mkldnn is_distributed share_memory_""",
    "the memory of a tensor is that of the ndarray x.data: see x.strides, x.data.ctypes and "
    "x.data.base": """
const_data_ptr data_ptr dim_order layout storage storage_offset storage_type untyped_storage as_strided_scatter
hash_tensor""",
    "there are no sparse tensors; scipy.sparse works on x.data": """
ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced is_sparse is_sparse_csr row_indices smm
sparse_dim sparse_mask sspaddmm to_dense to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc
to_sparse_csr values resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_""",
    "there are no quantised tensors": """
dequantize int_repr is_quantized q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
qscheme""",
    "complex numbers have no gradients here; write real and imaginary parts, and np.angle(x.data) "
    "and its kind": """
angle cdouble cfloat chalf conj_physical is_complex is_conj is_neg isreal resolve_conj resolve_neg""",
    "there is no Fourier transform with gradients; np.fft works on x.data": "istft stft",
    "this routine of LAPACK has no gradient here; write minigrad.solve, inv or qr, or "
    "scipy.linalg on x.data": """
geqrf lu lu_solve orgqr ormqr""",
    "axes have no names": "align_as align_to has_names name names refine_names rename",
    "there are no nested tensors; write a list, or a batch with a mask": "is_nested "
    "to_padded_tensor",
    "that is inside PyTorch's engine": "grad_dtype module_load output_nr reinforce",
}
KINDS = {name: text for text, names in _KINDS.items() for name in names.split()}
"""For names of one kind: why there is none, and what there is."""


def advice(name: str) -> str:
    """The sentence for a name that Tensor has not; "" where nothing is known of it."""
    if name in INSTEAD:
        return f"write {INSTEAD[name]}"
    if name in KINDS:
        return KINDS[name]
    if name in OPS or name in FUNCTIONS:
        home = (
            "minigrad" if name in vars(sys.modules["minigrad"]) else "np"
        )  # some answer NumPy alone
        return f"write {home}.{name}(x, ...)"
    if hasattr(np.ndarray, name):
        return f"it is there of the array: x.data.{name}"
    if name.endswith("_") and not name.startswith("_"):
        base = name[:-1]
        otherwise = f"write x.{base}(...)" if hasattr(Tensor, base) else advice(base)
        return (
            f"tensors are not changed in place; {otherwise.replace('write ', 'write x = ')}"
            if otherwise
            else ""
        )
    return ""


def _missing(self: Tensor, name: str) -> Any:
    """For names that are not here: an AttributeError that says what to write."""
    found = (
        advice(name)
        or "help(minigrad.Tensor) lists the methods, and functions are called as np.f(x)"
    )
    raise AttributeError(f"no `{name}`: {found}")


Tensor.__getattr__ = _missing  # type: ignore
