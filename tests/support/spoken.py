"""What a NumPy, SciPy, PyTorch or JAX user writes, as expressions: tests run each, and `docs/numpy.md` is made of them.

    python tests/support/spoken.py docs/numpy.md

An expression is evaluated on arrays and on tensors that require gradients (or by PyTorch and by minigrad), and the
results, and a derivative in a random direction, have to agree. LEFT says of each that does not work why not; the test
sees it refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

Groups = dict[str, list[str]]


def listed(text: str) -> Groups:
    """Groups of expressions: a title ends in a colon, expressions are separated by semicolons or lines."""
    groups: Groups = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.endswith(":"):
            groups[line[:-1]] = current = []
        else:
            current += [part.strip() for part in line.split(";") if part.strip()]
    return groups


NUMPY = listed("""
Elementwise:
np.add(x, y); np.subtract(x, y); np.multiply(x, y); np.divide(x, y); np.true_divide(x, y); np.negative(x); np.positive(x)
np.absolute(x); np.abs(x); np.fabs(x); np.sign(x); np.power(x, 3); np.power(x, y); np.power(2, x); np.float_power(x, y)
np.square(x); np.sqrt(x); np.cbrt(x); np.reciprocal(x); np.exp(x); np.exp2(x); np.expm1(x); np.log(x); np.log2(x)
np.log10(x); np.log1p(x); np.logaddexp(x, y); np.logaddexp2(x, y); np.sin(x); np.cos(x); np.tan(x); np.arcsin(x)
np.arccos(x); np.arctan(x); np.arctan2(x, y); np.hypot(x, y); np.sinh(x); np.cosh(x); np.tanh(x); np.arcsinh(x)
np.arccosh(y); np.arctanh(x); np.asin(x); np.acos(x); np.atan(x); np.atan2(x, y); np.pow(x, 2); np.maximum(x, y)
np.minimum(x, y); np.fmax(x, 0.5); np.fmin(x, 0.5); np.clip(x, 0.3, 0.6); np.clip(x, None, 0.6); np.clip(x, min=0.3)
np.remainder(y, x); np.mod(y, x); np.fmod(y, x); np.divmod(y, x); np.floor_divide(y, x); np.copysign(x, -y)
np.heaviside(x - 0.5, 0.5); np.deg2rad(x); np.rad2deg(x); np.degrees(x); np.radians(x); np.sinc(x); np.nan_to_num(n)
np.where(m, x, y); np.where(x > 0.5, x, 0); np.where(m); np.select([m, x > 0.5], [x, y], 0.0)
np.piecewise(x, [x < 0.5], [lambda t: t**2, lambda t: 3 * t]); np.modf(3 * x); np.ldexp(x, 2); np.i0(x)
np.frexp(x); np.conj(x); np.conjugate(x); np.real(x); np.imag(x); np.angle(x); np.real_if_close(x); np.nextafter(x, y)
np.choose(c, [v, v * 2]); np.choose(k, [x[:, :2], y[:, :2], 0.5, 1.0], mode="clip")
Rounding and questions:
np.round(x, 1); np.around(x, decimals=1); np.floor(x); np.ceil(x); np.trunc(x); np.rint(x); np.fix(x); np.isnan(n)
np.isinf(x); np.isfinite(n); np.isclose(x, y); np.allclose(x, x); np.array_equal(x, y); np.signbit(x); np.greater(x, y)
np.less_equal(x, y); np.equal(x, y); np.logical_and(m, x > 0.5); np.logical_not(m); np.any(m, axis=0); np.all(m)
np.iscomplexobj(x); np.isscalar(x); np.shares_memory(x, x)
np.isreal(x); np.iscomplex(x); np.isneginf(x); np.isposinf(x); np.array_equiv(x, y); np.isin(x, y); np.isrealobj(x); np.min_scalar_type(x); np.result_type(x, y)
Reductions:
np.sum(x); np.sum(x, axis=0); np.sum(x, axis=(0, 1)); np.sum(x, axis=-1, keepdims=True); np.sum(a=x, axis=1)
np.sum(x, where=m); np.sum(x, initial=2.0); np.sum(x, dtype=np.float32); np.mean(x); np.mean(x, axis=1, where=m)
np.mean(x, dtype=np.float64); np.std(x); np.std(x, axis=0, ddof=1); np.var(x, axis=1, correction=1); np.var(x, where=m)
np.prod(x, axis=1); np.prod(x, initial=2.0, where=m); np.max(x, axis=1); np.amax(x); np.min(x, axis=0); np.amin(x, axis=1)
np.max(x, axis=0, initial=0.5); np.max(x, where=m, initial=0.0); np.ptp(x, axis=1); np.average(x, weights=y)
np.average(x, axis=0, weights=w, returned=True); np.median(x); np.median(x, axis=1); np.quantile(x, 0.3)
np.quantile(x, [0.1, 0.5], axis=1); np.quantile(x, 0.3, method="nearest"); np.percentile(x, 30, axis=0); np.cumsum(x, axis=1)
np.cumprod(x, axis=0); np.cumulative_sum(v); np.nansum(n); np.nanmean(n, axis=0); np.nanstd(n); np.nanvar(n, axis=1)
np.nanmax(n, axis=0); np.nanmin(n); np.nanprod(n, axis=1); np.nanmedian(n, axis=0); np.nanquantile(n, 0.4)
np.nanpercentile(n, 40, axis=1); np.nancumsum(n, axis=1); np.nancumprod(n); np.count_nonzero(m); np.argmax(x, axis=1)
np.argmin(x); np.nanargmax(n, axis=1); np.add.reduce(x, axis=0); np.multiply.reduce(x, axis=1); np.maximum.reduce(x, axis=1)
np.logaddexp.reduce(x, axis=1); np.add.accumulate(x, axis=1); np.maximum.accumulate(x); np.minimum.accumulate(x, axis=1); np.add.outer(v, w)
np.subtract.reduce(x); np.hypot.reduce(x, axis=(0, 1)); np.fmax.reduce(x, axis=1, keepdims=True); np.divide.accumulate(x, axis=1); np.logaddexp.accumulate(v)
np.add.reduceat(v, [0, 2, 1]); np.multiply.reduceat(x, [0, 2], axis=1); np.power.outer(v, w)
np.cov(x); np.cov(v, w4); np.cov(x, rowvar=False, bias=True); np.cov(x, aweights=v); np.corrcoef(x)
Shape:
np.reshape(x, (4, 3)); np.reshape(x, -1, order="F"); np.ravel(x); np.ravel(x, order="F"); np.transpose(x)
np.transpose(t, (2, 0, 1)); np.permute_dims(t, (1, 0, 2)); np.matrix_transpose(x); np.swapaxes(t, 0, 2)
np.moveaxis(t, 0, -1); np.rollaxis(t, 2); np.expand_dims(x, (0, 2)); np.squeeze(x[:, None]); np.broadcast_to(w, (2, 3))
np.broadcast_arrays(x, v); np.atleast_1d(s); np.atleast_2d(v); np.atleast_3d(x); np.copy(x); np.array(x); np.asarray(x)
np.ndim(x); np.shape(x); np.size(x); np.flip(x, axis=0); np.flip(m=x); np.fliplr(x); np.flipud(x); np.rot90(x); np.roll(x, 1, axis=1)
np.repeat(x, 2, axis=0); np.repeat(v, [1, 0, 2, 1]); np.tile(x, (2, 1)); np.resize(x, (2, 5)); np.pad(x, 1)
np.pad(x, ((0, 1), (2, 0)), mode="edge"); np.pad(x, 1, mode="reflect"); np.pad(x, 1, mode="wrap"); np.pad(x, 1, constant_values=2.0)
np.lib.stride_tricks.sliding_window_view(x, 2, axis=1); np.lib.stride_tricks.sliding_window_view(x, (2, 2)); np.trim_zeros(np.concatenate([[0.0], v, [0.0]])); np.trim_zeros(np.pad(x, 1)); np.trim_zeros(np.pad(v, 2), "f")
np.zeros_like(x); np.ones_like(x); np.full_like(x, 2.0); np.empty_like(x).shape
Joining and splitting:
np.concatenate([x, y], axis=1); np.concatenate([x, y], axis=None); np.concat([x, y]); np.stack([x, y], axis=-1); np.vstack([x, v])
np.hstack([x, y]); np.dstack([x, y]); np.column_stack([w, x]); np.append(x, y, axis=0); np.append(x, 1.0)
np.block([[A, B], [B, A]]); np.split(x, 2, axis=1); np.split(v, [1, 3]); np.array_split(v, 3); np.hsplit(x, 2)
np.vsplit(x, 3); np.meshgrid(v, w); np.meshgrid(v, w, indexing="ij"); np.insert(v, 1, 2.0); np.delete(v, [0, 2]); np.unstack(x)
np.r_[v, w]; np.c_[w, w]
Indexing and sorting:
np.take(x, [0, 2], axis=1); np.take(v, [5, -1], mode="wrap"); np.take_along_axis(x, k, axis=1); np.compress([True, False, True], x, axis=0)
np.extract(m, x); np.sort(x, axis=0); np.sort(x, axis=None); np.argsort(x, axis=1); np.partition(v, 2)
np.argpartition(v, 2); np.searchsorted(np.sort(v), 0.5); np.nonzero(m); np.argwhere(m); np.flatnonzero(m); np.lexsort([v]); np.partition(x, 1, axis=0)
np.digitize(v, [0.3, 0.6]); np.tril(A); np.triu(A, 1); np.diag(v); np.diag(A, 1); np.diagonal(A); np.diagflat(v); np.trace(A); np.diag_indices_from(A); np.tril_indices_from(A, -1); np.triu_indices_from(A)
Sets and counts:
np.unique(v); np.unique(np.round(x, 1), return_counts=True); np.unique(x, axis=0); np.unique(c, return_index=True, return_inverse=True); np.unique_all(v); np.unique_counts(v); np.unique_inverse(v); np.sort(np.unique_values(v))
np.union1d(v, w); np.intersect1d(v, v[:2]); np.setdiff1d(v, v[:2]); np.setxor1d(v, v[:2]); np.bincount(c); np.bincount(c, v); np.bincount(c, weights=v, minlength=4)
np.histogram(v); np.histogram(v, bins=3, range=(0, 1)); np.histogram(w4, [0.2, 0.5, 0.9], weights=v); np.histogram(v, 3, density=True); np.histogram_bin_edges(v, 4); np.histogram2d(v, w4); np.histogramdd(x)
Linear algebra:
np.matmul(x, v); np.dot(x, v); np.vdot(x, y); np.inner(x, y); np.outer(v, w); np.tensordot(x, y, axes=2); np.tensordot(t, x, axes=([1, 2], [0, 1]))
np.einsum("ij,kj->ik", x, y); np.einsum("ii", A); np.einsum("ij->j", x); np.kron(A, B); np.cross(w, A); np.vecdot(x, y); np.matvec(A, w); np.vecmat(w, A)
np.linalg.inv(A); np.linalg.det(A); np.linalg.slogdet(A); np.linalg.slogdet(A).logabsdet; np.linalg.solve(A, w)
np.linalg.solve(A, x); np.linalg.cholesky(A); np.linalg.cholesky(A, upper=True); np.linalg.eigh(A).eigenvalues; np.linalg.eigvalsh(A)
np.linalg.svd(x, full_matrices=False).S; np.linalg.svd(x, compute_uv=False); np.linalg.svdvals(x); np.linalg.qr(x.T).R
np.linalg.pinv(x); np.linalg.lstsq(x.T, v)[0]; np.linalg.matrix_power(A, 3); np.linalg.multi_dot([x.T, A, x])
np.linalg.norm(x); np.linalg.norm(v, 1); np.linalg.norm(v, np.inf); np.linalg.norm(v, 3); np.linalg.norm(x, "nuc"); np.linalg.norm(x, 2)
np.linalg.norm(x, 1); np.linalg.norm(x, axis=1); np.linalg.norm(t, axis=(1, 2)); np.linalg.vector_norm(x, axis=0); np.linalg.matrix_norm(x)
np.linalg.matmul(x, v); np.linalg.outer(v, w); np.linalg.trace(A); np.linalg.diagonal(A); np.linalg.tensordot(x, y); np.linalg.vecdot(x, y)
np.linalg.cross(w, A); np.linalg.matrix_transpose(x); np.linalg.cond(A); np.linalg.matrix_rank(A); np.linalg.eig(A); np.linalg.eigvals(A); np.linalg.tensorinv(A, 1); np.linalg.tensorsolve(A, w); np.linalg.tensorinv(np.reshape(np.kron(A, B @ B.T), (3, 3, 9)), 2)
Calculus and polynomials:
np.diff(x); np.diff(x, n=2, axis=1); np.diff(v, prepend=0.0); np.diff(v, append=v[:1]); np.ediff1d(v); np.ediff1d(x, to_end=w, to_begin=0.5); np.gradient(v); np.gradient(x, 0.5, axis=1); np.gradient(x)
np.trapezoid(x, axis=1); np.trapezoid(v, dx=0.5); np.convolve(v, w); np.convolve(v, w, mode="same"); np.correlate(v, w); np.interp(w, [0, 0.5, 1], [1.0, 3, 2])
np.interp([0.2, 0.4], [0, 0.5, 1], w); np.polyval(v, w); np.vander(w); np.vander(w, 2, increasing=True); np.polyfit(w, w * w, 1); np.polyfit(w4, v, 2, w=v); np.polyfit(w4, x.T, 1, cov="unscaled"); np.polyfit(w4, v, 1, cov=True); np.polyfit(w4, v, 1, full=True)[:2]
np.polyadd(v, w); np.polysub(w, v); np.polymul(v, w); np.polydiv(v, w); np.polyder(v); np.polyder(v, 2); np.polyint(v); np.polyint(v, 2, k=[1.0, 2.0]); np.poly(w); np.roots(v); np.unwrap(v)
np.linspace(s, 2.0, 5); np.linspace(v, w4, 4, endpoint=False, axis=1); np.linspace(0, s, 5, retstep=True); np.logspace(s, 1.0, 4); np.geomspace(s, 2.0, 4); np.geomspace(-v, -w4, 3, axis=-1); np.full_like(x, s); np.full_like(w, s, shape=(2, 2))
Functions of functions:
np.apply_along_axis(np.sum, 1, x); np.apply_along_axis(lambda r: r[:2] * r[1], 0, x); np.apply_over_axes(np.sum, t, [0, 2]); np.vectorize(np.sin)(v); np.fromiter((2 * e for e in v), float); np.array([v[0], v[1]]); np.fft.fft(v)
""")

IDIOMS = listed("""
Operators:
x + y; x - y; x * y; x / y; x // y; x % y; x**2; x**y; 2**x; -x; +x; abs(x); x @ v; v @ v; x @ y.T; 1 + x; 1 - x; 1 / x; 2 * x
x > y; x <= 0.5; x == y; x != y; m & (x > 0.5); m | (x > 0.5); ~m; divmod(y, x); sum(v); max(v); min(v); len(x); list(v); sorted(v)
(x > 0.5) * x; x * m; x.T * w; x - x.mean(); (x - x.mean(0)) / x.std(0); x / x.sum(1, keepdims=True); np.pi * x; np.float64(2) * x; np.array([1.0, 2, 3]) @ x
float(v.sum() > 1); bool(v[0] > 0); v[0].item() if hasattr(v[0], "item") else v[0]
Indexing:
x[0]; x[-1]; x[0, 1]; x[:, 1]; x[..., 0]; x[1:]; x[::2]; x[::-1]; x[:, ::-1]; x[None]; x[:, np.newaxis]; x[[0, 2]]; x[[0, 2], [1, 3]]; x[m]; x[x > 0.5]
x[:, [0, 0, 1]]; x[np.arange(3), [0, 1, 2]]; x[np.ix_([0, 2], [1, 3])]; x[c[:2]]; x[0][1]; v[-2:]; t[0, ..., 1]; x[()]; x[np.array([True, False, True])]; x[slice(1, None)]
x[np.argsort(x[:, 0])]; x[np.triu_indices(3)]; [row.sum() for row in x]; v[v.argmax()]; x[~m]; x.flat[3]; [e for e in x.flat]
Methods:
x.sum(); x.sum(axis=0); x.sum(1, keepdims=True); x.mean(axis=(0, 1)); x.std(ddof=1); x.var(0); x.prod(); x.max(); x.max(axis=1); x.min(0); x.argmax(); x.argmin(axis=1)
x.cumsum(); x.cumsum(axis=1); x.cumprod(0); x.any(); x.all(axis=0); x.reshape(4, 3); x.reshape((2, -1)); x.reshape(-1); x.ravel(); x.flatten(); x.T; t.mT; x.transpose(); t.transpose(2, 0, 1)
x.swapaxes(0, 1); x.squeeze(); x.repeat(2); x.repeat(2, axis=0); x.take([0, 1]); x.clip(0.3, 0.6); x.round(1); x.astype(float); x.astype("float32"); x.copy(); x.dot(v); A.diagonal(); A.trace()
x.argsort(axis=1); x.nonzero(); x.tolist(); x.item(3); x.shape; x.ndim; x.size; x.dtype; x.nbytes; x.conj(); x.real; x.imag; x.device; x.fill(0.0); x.sort(); x.view(); x.partition(2); x.compress([True, False], axis=0); x.itemsize; x.strides; x.flags
Programs of a line:
np.exp(x) / np.exp(x).sum(axis=1, keepdims=True); np.log(np.sum(np.exp(x - x.max()))) + x.max(); 1 / (1 + np.exp(-x)); np.tanh(x @ y.T) @ w; np.sqrt(((x[:, None] - x) ** 2).sum(-1) + 1e-9)
((x - y) ** 2).mean(); np.abs(x - y).max(); -(y * np.log(x)).sum(); np.where(x > 0.5, x, 0.1 * x); np.linalg.norm(x[:, None] - y, axis=-1); v @ np.linalg.solve(x.T @ x + np.eye(4), v)
np.stack([np.sin(v), np.cos(v)]).T; np.array([[1.0, 2.0], [3.0, 4.0]]) @ x[:2]; sum(np.sin(k * v).sum() for k in range(3)); np.log(np.diag(np.linalg.cholesky(A))).sum() * 2; np.cumsum(np.diff(v)); x[np.arange(3), c[:3]].mean()
np.concatenate([[0.0], np.cumsum(v)]); np.einsum("...i,...i", x, x); np.trace(A @ B); np.exp(-0.5 * v @ np.linalg.inv(x.T @ x + np.eye(4)) @ v); np.maximum(0, x) @ v; np.add.reduce([x, y]); np.outer(w, v) + x; np.polyval([1.0, 2.0, 3.0], v)
f"{v.sum():.3f}"; repr(x)[:6]; np.dot(v, v) ** 0.5; np.prod(x.shape); np.isnan(x).any(); (x > y).sum(); (x.argmax(1) == [0, 1, 2]).mean(); x.mean(0)[None] + x; np.minimum.reduce([x, y, x * y]); np.tensordot(v, v, 0); np.linalg.matrix_power(A, -1) @ w
""")

TORCH = listed("""
Making tensors:
torch.tensor([1.0, 2.0]); torch.zeros(2, 3); torch.ones((2, 3)); torch.full((2,), 3.0); torch.arange(5); torch.linspace(0, 1, 5); torch.eye(3); torch.zeros_like(x); torch.ones_like(x); torch.full_like(x, 2.0); torch.from_numpy(array)
torch.as_tensor([1.0, 2.0]); torch.empty(2, 3).shape; torch.empty_like(x).shape; torch.zeros(2, device="cpu"); torch.device("cpu").type; torch.ones(2, 3, device=x.device); torch.randperm(5).shape; torch.rand(2, 3).shape; torch.randn(2, 3).shape; torch.randint(0, 5, (2, 3)).shape; torch.rand_like(x).shape; torch.arange(2, 8, 2); torch.tensor([1, 2]).float(); torch.tensor(2.0).item()
Asking:
x.shape; x.size(); x.size(0); x.size(-1); x.device.type; x.dim(); x.ndim; x.numel(); len(x); x.dtype == torch.float64; x.requires_grad; x.is_leaf; x.grad is None; x.tolist(); x.detach().numpy(); x.sum().item(); x.cpu(); x.to("cpu"); x.double(); x.detach(); x.clone(); x.data
Shape:
x.view(-1); x.view(4, 3); x.reshape(2, -1); x.t(); x.T; x.mT; x.permute(1, 0); torch.permute(x, (1, 0)); x.unsqueeze(0); x.unsqueeze(-1); torch.unsqueeze(x, dim=1); x.unsqueeze(1).squeeze(1); x.flatten(); t.flatten(1); t.flatten(start_dim=0, end_dim=1); torch.flatten(t, 1); x.contiguous().view(-1)
v.expand(3, 4); v.expand(3, -1); v.expand(2, 3, 4); torch.cat([x, y]); torch.cat([x, y], dim=1); torch.cat((x, y), -1); torch.stack([x, y]); torch.stack([x, y], dim=1); x.chunk(2, dim=1); torch.chunk(x, 3); x.unbind(0); x.unbind(dim=1); x.swapaxes(0, 1); torch.swapaxes(x, 0, 1); x.movedim(0, 1); x.flip(0); torch.flip(x, dims=(0, 1)); x.roll(1, 0); torch.roll(x, 1, 1); x.tile(2); torch.tile(x, (2, 1))
x.unfold(1, 2, 1); x.tril(); torch.tril(B); torch.triu(B, 1); torch.diag(v); torch.diagonal(B); B.diagonal(); torch.atleast_2d(v); torch.broadcast_to(v, (3, 4)); torch.meshgrid(v, w, indexing="ij"); torch.hstack([x, y]); torch.vstack([x, y]); torch.column_stack([w, w]); torch.movedim(t, 0, -1)
Reducing:
x.sum(); x.sum(dim=1); x.sum(1, keepdim=True); torch.sum(x, dim=(0, 1)); x.mean(dim=-1); torch.mean(x, 0, keepdim=True); x.amax(dim=1); x.amin(dim=0); x.max(); x.min(); torch.max(x); torch.maximum(x, y); x.prod(dim=1); x.cumsum(dim=0); x.cumprod(dim=1); x.argmax(dim=1); x.argmin(); x.norm(); x.norm(dim=1); x.logsumexp(dim=1); torch.logsumexp(x, dim=0)
x.var(unbiased=False); x.var(dim=0, unbiased=True); x.std(dim=1, correction=1); x.std(dim=0, unbiased=False); (x > 0.5).any(); (x > 0.5).all(dim=0); torch.quantile(x, 0.3); torch.nansum(x); x.nansum(dim=0); torch.count_nonzero(x)
x.max(dim=1); x.min(dim=1); x.median(); x.sort(dim=1); x.std(); x.var(dim=0); x.topk(2).values; torch.topk(x, 2, dim=1); x.sort()
Elementwise:
x.exp(); x.log(); x.sqrt(); x.abs(); x.sin(); x.cos(); x.tanh(); x.sigmoid(); x.relu(); x.pow(2); x.square(); x.reciprocal(); x.rsqrt(); x.clamp(0.3, 0.6); x.clamp(min=0.3); x.clamp(max=0.6); torch.clamp(x, min=0.3); x.add(y); x.add(1); x.sub(y); x.mul(y); x.div(y); x.erf(); x.expm1(); x.log1p(); x.floor(); x.round(); x.sign(); torch.where(x > 0.5, x, y); x.masked_fill(x > 0.5, 0.0)
x.softmax(dim=1); x.softmax(-1); torch.softmax(x, dim=0); x.log_softmax(dim=1); torch.exp(x); torch.relu(x); torch.sigmoid(x); torch.tanh(x); torch.abs(x); torch.pow(x, 2); torch.sqrt(x); torch.minimum(x, y); torch.logaddexp(x, y); torch.hypot(x, y); torch.nan_to_num(x); torch.isnan(x); torch.isfinite(x); torch.allclose(x, x); x.logaddexp(y); torch.xlogy(x, y)
Indexing:
x[0]; x[:, 1]; x[..., -1]; x[None]; x[x > 0.5]; x[[0, 2]]; x.index_select(1, torch.tensor([0, 2])); x.masked_select(x > 0.5); x.gather(1, index); torch.gather(x, 1, index); torch.where(x > 0.5); x.take(torch.tensor([0, 5])); torch.index_select(x, 0, torch.tensor([1])); torch.masked_select(x, x > 0.5); x.nonzero()
Linear algebra:
x @ v; x @ y.T; torch.matmul(x, v); x.matmul(v); v.dot(v); torch.dot(v, v); torch.einsum("ij,kj->ik", x, y); torch.outer(v, w); v.outer(w); torch.tensordot(x, y, 2); torch.trace(B); torch.det(B); torch.logdet(B.T @ B); torch.inverse(B); torch.mm(x, y.T); torch.bmm(t, t.mT); x.mm(y.T); torch.linalg.norm(x); torch.kron(B, B)
Gradients and modules:
torch.no_grad(); x.requires_grad_(); x.register_hook(lambda g: 2 * g); nn.Linear(3, 2).weight.shape; nn.Sequential(nn.Linear(4, 2), nn.ReLU())(x.float()).shape; nn.functional.relu(x); nn.functional.softmax(x, dim=1); nn.functional.mse_loss(x, y); nn.functional.cross_entropy(x, labels); nn.functional.binary_cross_entropy_with_logits(x, y); nn.MSELoss()(x, y); nn.CrossEntropyLoss()(x, labels); nn.Flatten()(t); nn.Identity()(x); nn.functional.gelu(x); nn.functional.layer_norm(x, (4,)); nn.functional.one_hot(labels, 4); nn.functional.one_hot(labels)
nn.functional.nll_loss(x, labels); nn.SmoothL1Loss()(x, y); nn.Softmax(dim=-1)(x); len(list(nn.Linear(3, 2).parameters())); nn.functional.pad(x, (1, 1)); nn.functional.normalize(x, dim=1); nn.ModuleList([nn.Linear(2, 2)])[0].bias.shape; nn.Conv2d(3, 8, 3); torch.cuda.is_available(); torch.optim.lr_scheduler.StepLR; torch.optim.AdamW(nn.Linear(2, 2).parameters(), lr=1e-3).param_groups[0]["lr"]
""")

LEFT = {
    "np.array(x)": "an ndarray cannot carry a gradient: `x.clone()`, or `x.detach()` where none is needed",
    "np.asarray(x)": "an ndarray cannot carry a gradient: `x` itself, or `x.detach()`",
    "np.array([v[0], v[1]])": "NumPy asks for numbers: write `np.stack([v[0], v[1]])`, or `mg.tensor([...])`, which stacks at any depth",
    "np.r_[v, w]": "NumPy does not ask tensors here: write `np.concatenate`",
    "np.c_[w, w]": "NumPy does not ask tensors here: write `np.column_stack`",
    "np.nextafter(x, y)": "a step of one rounding has no derivative: write `np.nextafter(x.data, y)`",
    "np.histogram2d(v, w4)": "counts have no derivative: write `np.histogram2d(v.data, w4.data)`",
    "np.histogramdd(x)": "counts have no derivative: write `np.histogramdd(x.data)`",
    "np.lexsort([v])": "NumPy does not ask the tensors in a list; positions have no derivative: write `np.lexsort([v.data])`",
    "np.linalg.eig(A)": "its results are complex: `np.linalg.eigh` for symmetric matrices",
    "np.linalg.eigvals(A)": "its results are complex: `np.linalg.eigvalsh` for symmetric matrices",
    "np.roots(v)": "its results are complex; for a real root write Newton's method on `np.polyval`",
    "np.vectorize(np.sin)(v)": "it computes with numbers: write the function with arrays",
    "np.fromiter((2 * e for e in v), float)": "it asks for numbers, with a warning: write `np.stack([2 * e for e in v])`",
    "np.fft.fft(v)": "complex numbers have no gradients here",
    "x.fill(0.0)": "in place, where no gradient flows; otherwise `np.full_like(x, 0.0)`",
    "x.sort()": "in place in NumPy, and here where no gradient flows; a pair in PyTorch. Write `np.sort(x)`",
    "x.partition(2)": "in place, where no gradient flows; otherwise `np.partition(x, 2)`",
    "np.add.reduce([x, y])": "NumPy does not ask the tensors in a list: write `x + y`, or `np.sum(np.stack([x, y]), axis=0)`",
    "np.minimum.reduce([x, y, x * y])": "NumPy does not ask the tensors in a list: write `np.min(np.stack([...]), axis=0)`",
    "x.max(dim=1)": "PyTorch returns a pair: write `x.amax(dim=1)` and `x.argmax(dim=1)`",
    "x.min(dim=1)": "PyTorch returns a pair: write `x.amin(dim=1)` and `x.argmin(dim=1)`",
    "x.median()": "PyTorch takes the lower of the two in the middle: write `minigrad.median(x)`, their mean",
    "x.sort(dim=1)": "PyTorch returns a pair: write `np.sort(x, 1)` and `x.argsort(axis=1)`",
    "x.std()": "divided by n here, as in NumPy: write `x.std(correction=1)`",
    "x.var(dim=0)": "divided by n here, as in NumPy: write `x.var(axis=0, correction=1)`",
    "torch.where(x > 0.5)": "write `(x > 0.5).nonzero()`",
    "x.nonzero()": "a tuple of index arrays, as in NumPy: PyTorch's rows are `minigrad.argwhere(x)`",
    "torch.logdet(B.T @ B)": "write `minigrad.slogdet(B.T @ B)[1]`",
    "x.mm(y.T)": "write `x @ y.T`",
    "nn.functional.pad(x, (1, 1))": "write `minigrad.pad`, whose widths are NumPy's",
    "nn.Conv2d(3, 8, 3)": "there are no convolution layers: `x.unfold` and a product",
}
"""Why an expression does not work, or means something else; what to write."""

NO_RULE = listed("""
Refused:
np.fabs(x); np.linalg.outer(v, w)
np.float_power(x, y); np.heaviside(x - 0.5, 0.5)
np.piecewise(x, [x < 0.5], [lambda t: t**2, lambda t: 3 * t]); np.modf(3 * x); np.ldexp(x, 2)
np.i0(x); np.frexp(x); np.choose(c, [v, v * 2])
np.choose(k, [x[:, :2], y[:, :2], 0.5, 1.0], mode="clip"); np.cumulative_sum(v)
np.nanmedian(n, axis=0); np.nanquantile(n, 0.4); np.nanpercentile(n, 40, axis=1)
np.nancumsum(n, axis=1); np.nancumprod(n); np.maximum.accumulate(x)
np.minimum.accumulate(x, axis=1); np.subtract.reduce(x); np.hypot.reduce(x, axis=(0, 1))
np.fmax.reduce(x, axis=1, keepdims=True); np.divide.accumulate(x, axis=1)
np.logaddexp.accumulate(v); np.add.reduceat(v, [0, 2, 1]); np.multiply.reduceat(x, [0, 2], axis=1)
np.cov(x, aweights=v); np.rollaxis(t, 2); np.resize(x, (2, 5))
np.trim_zeros(np.concatenate([[0.0], v, [0.0]])); np.trim_zeros(np.pad(x, 1))
np.trim_zeros(np.pad(v, 2), "f"); np.insert(v, 1, 2.0); np.delete(v, [0, 2]); np.unique(v)
np.unique(x, axis=0); np.unique_all(v); np.unique_counts(v); np.unique_inverse(v)
np.sort(np.unique_values(v)); np.union1d(v, w); np.intersect1d(v, v[:2]); np.setdiff1d(v, v[:2])
np.setxor1d(v, v[:2]); np.bincount(c, v); np.bincount(c, weights=v, minlength=4); np.histogram(v)
np.histogram(v, bins=3, range=(0, 1)); np.histogram(w4, [0.2, 0.5, 0.9], weights=v)
np.histogram(v, 3, density=True); np.histogram_bin_edges(v, 4); np.matvec(A, w); np.vecmat(w, A)
np.linalg.multi_dot([x.T, A, x]); np.linalg.tensorinv(A, 1); np.linalg.tensorsolve(A, w)
np.linalg.tensorinv(np.reshape(np.kron(A, B @ B.T), (3, 3, 9)), 2); np.ediff1d(v)
np.ediff1d(x, to_end=w, to_begin=0.5); np.vander(w); np.vander(w, 2, increasing=True)
np.polyfit(w, w * w, 1); np.polyfit(w4, v, 2, w=v); np.polyfit(w4, x.T, 1, cov="unscaled")
np.polyfit(w4, v, 1, cov=True); np.polyfit(w4, v, 1, full=True)[:2]; np.polyadd(v, w)
np.polysub(w, v); np.polymul(v, w); np.polydiv(v, w); np.polyder(v); np.polyder(v, 2)
np.polyint(v); np.polyint(v, 2, k=[1.0, 2.0]); np.poly(w); np.logspace(s, 1.0, 4)
np.geomspace(s, 2.0, 4); np.geomspace(-v, -w4, 3, axis=-1); np.apply_along_axis(np.sum, 1, x)
np.apply_along_axis(lambda r: r[:2] * r[1], 0, x); np.apply_over_axes(np.sum, t, [0, 2])
""")["Refused"]
"""Calls of functions, or with options, that hardly anyone differentiates."""

LEFT |= dict.fromkeys(
    NO_RULE, "no rule for tensors that require gradients: `.detach()`, or `custom_op` to add one"
)

OTHERWISE = {"x.std()", "x.nonzero()"}
"""Those of them that are taken, and mean what NumPy means, or what is said."""

DIFFERENCES = [  # name, in NumPy and here, in PyTorch, what is refused
    (
        "transpose",
        "`x.transpose(2, 0, 1)` orders all axes",
        "exchanges two axes",
        "two axes of a tensor of three or more: `swapaxes`; `x.transpose(0, 1)` of a matrix: `x.T`",
    ),
    (
        "max, min",
        "`x.max(axis=1)` is a tensor",
        "`x.max(dim=1)` is a pair",
        "`dim=`: `amax`, `argmax`",
    ),
    (
        "sort",
        "`np.sort(x)` is a tensor; `x.sort()` is in place",
        "`x.sort()` is a pair",
        "the method where a gradient flows: `np.sort`, `np.argsort`",
    ),
    (
        "median",
        "the mean of the two in the middle",
        "the lower of them",
        "the method: `minigrad.median`",
    ),
    (
        "split",
        "before these places, or into that many parts",
        "into parts of this size",
        "`dim=`: `chunk`, `array_split`",
    ),
    (
        "meshgrid",
        '`indexing="xy"` unless told',
        '`indexing="ij"` unless told',
        "nothing: write `indexing=`",
    ),
    ("repeat", "each element", "the whole, as `tile` does", "more than one count: `tile`"),
    ("std, var", "divided by n", "divided by n - 1", "`dim=` without `correction=`"),
    (
        "size",
        "the number of elements",
        "`x.size()` is the shape",
        "nothing: `x.size` is a number that can be called",
    ),
    ("nonzero", "a tuple of arrays", "a matrix of rows", "nothing: `argwhere` gives rows"),
    (
        "cross_entropy",
        "classes on the last axis",
        "classes on axis 1",
        "shapes that fit axis 1 alone: `moveaxis(x, 1, -1)`",
    ),
    (
        "zeros, ones, randn",
        "float64 unless `dtype=`",
        "float32",
        "nothing; parameters of layers are float32",
    ),
    (
        "x += y",
        "in place; views of x keep the old values where a gradient flows",
        "in place, and views change too",
        "outside `no_grad()`, a leaf that requires gradients or a view: `x = x + y`",
    ),
]


def code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def count(groups: Groups) -> str:
    every = [e for group in groups.values() for e in group]
    return f"{sum(e not in LEFT for e in every)} of {len(every)}"


def section(title: str, groups: Groups) -> list[str]:
    lines = [f"## {title}: {count(groups)}", ""]
    for name, group in groups.items():
        if taken := [code(e) for e in group if e not in LEFT]:
            lines += [f"**{name}**: " + " · ".join(taken), ""]
    left: dict[str, list[str]] = {}  # by reason
    for e in [e for group in groups.values() for e in group if e in LEFT]:
        left.setdefault(LEFT[e], []).append(code(e).replace("x | y", "x \\| y"))
    lines += ["| not as there | why, and what to write instead |", "| --- | --- |"]
    return [*lines, *(f"| {' · '.join(calls)} | {reason} |" for reason, calls in left.items()), ""]


def page(scipy_calls: list[str], special: list[str]) -> str:
    """The page, as Markdown."""
    lines = [
        "# NumPy, SciPy and PyTorch", "",
        "<!-- made by python tests/support/spoken.py docs/numpy.md -->", "",
        "What people write with these libraries, and which of it works here. Every expression was run both ways, on arrays",
        "and on tensors that require gradients, or in PyTorch and here: the values agree, and so does a derivative in a",
        "random direction. To NumPy and SciPy, a tensor that requires no gradient is an array.", "",
        "| what | of it works |", "| --- | --- |", f"| NumPy's functions and options | {count(NUMPY)} |",
        f"| NumPy's idioms | {count(IDIOMS)} |", f"| PyTorch's idioms | {count(TORCH)} |",
        f"| calls of SciPy | {len(scipy_calls)} of {len(scipy_calls)} |",
        f"| functions of scipy.special | {len(special)}, with derivatives |", "",
        "`x`, `y` are matrices, `v`, `w` vectors, `A`, `B` square, `t` has three axes, `n` holds a NaN, `m` is a mask.", "",
        *section("Functions of NumPy", NUMPY), *section("Idioms of NumPy", IDIOMS),
        "## SciPy", "",
        "`grad`, `value_and_grad`, `jacobian` and `hessian` of functions of arrays can be handed to SciPy as they are: "
        + " · ".join(scipy_calls) + ".", "",
        "These functions of `scipy.special` take tensors that require gradients, and have derivatives of every order: "
        + ", ".join(f"`{name}`" for name in special) + ". `logsumexp`, `softmax` and `log_softmax` are not ufuncs, so",
        "SciPy's do not take such tensors: use minigrad's, which have the same names.", "",
        *section("Idioms of PyTorch", TORCH),
        "## Where NumPy and PyTorch mean different things by one name", "",
        "NumPy's meaning holds. Where a call can only have been meant PyTorch's way, it is refused.", "",
        "| name | NumPy, and here | PyTorch | refused, and what to write |", "| --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in DIFFERENCES), "",
        "For every other name of PyTorch's tensors, and of its modules `torch`, `nn`, `nn.functional`, `optim`, "
        "`optim.lr_scheduler` and `utils.data`, the `AttributeError` says what to write: "
        "``no `view_as`: write x.reshape(y.shape)``.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    sys.path[:0] = [str(root), str(root / "tests" / "oracle")]
    from test_scipy import CALLS

    from minigrad.numpy_ops.scipy_special import RULES

    text = page([*CALLS], sorted(name.strip("_") for name in RULES))
    Path(sys.argv[1]).write_text(text, encoding="utf-8")
