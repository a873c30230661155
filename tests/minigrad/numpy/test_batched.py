"""Batches of gradients: all rows of a Jacobian in one backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.opinfo import TABLE, OpInfo, samples

import minigrad as mg
from minigrad.grad import TracedCall
from minigrad.graph import topological
from minigrad.numpy import derivatives
from minigrad.numpy.batched import BatchedArray
from minigrad.numpy.derivatives import _gradients, _rows_in_batches


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
@max_examples(6)
@given(data=st.data())
def test_rows_of_op_in_batches_equal_rows_one_by_one(info: OpInfo, data: st.DataObject) -> None:
    sample = data.draw(samples(info))
    with mg.use_definitions():
        run = TracedCall("jacobian", sample.call, sample.floats, range(len(sample.floats)), {})
    for y in run.result:
        if not y.requires_grad or not 0 < y.size <= 40:
            continue
        seeds = np.eye(y.size, dtype=y.dtype).reshape(-1, *y.shape)
        one_by_one = zip(*[_gradients(run, [y], [g]) for g in seeds])
        rows = _rows_in_batches(run, y, topological([y._node]))
        for row, expected in zip(rows, one_by_one):
            e = np.stack([g.data for g in expected]).reshape(row.shape)
            np.testing.assert_allclose(row.data, e, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("elements", [1, 4, 5, 6, 10, 24, 25, 26])
def test_jacobian_in_several_batches_is_the_same(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    W, x = np.random.default_rng(0).standard_normal((2, 5, 5))
    f = mg.jacobian(lambda t: np.tanh(W @ t))
    expected = f(x[0])
    monkeypatch.setattr(derivatives, "ELEMENTS", elements)
    np.testing.assert_allclose(f(x[0]).data, expected.data, rtol=1e-12)


@pytest.mark.parametrize("error", [TypeError, ValueError, IndexError, AttributeError])
def test_jacobian_of_an_operation_for_ndarrays_only_goes_row_by_row(error: Any) -> None:
    def rule(g: Any) -> Any:
        if type(g) is not np.ndarray:
            raise error
        return np.fft.ifft(np.fft.fft(g)).real

    @mg.custom_op(x=rule)
    def same(x: Any, /) -> Any:
        return x * 1.0

    np.testing.assert_allclose(mg.jacobian(same)(np.arange(3.0)).data, np.eye(3), atol=1e-15)


def test_jacobian_reports_an_error_that_is_not_about_the_type_of_arrays() -> None:
    def rule(g: Any) -> Any:
        if not isinstance(g, np.ndarray):
            raise MemoryError
        return g

    @mg.custom_op(x=rule)
    def same(x: Any, /) -> Any:
        return x * 1.0

    with pytest.raises(MemoryError):
        mg.jacobian(same)(np.arange(3.0))


CALLS = """
np.add.reduce(x)
np.add.reduce(x, axis=None)
np.add.reduce(x, axis=1, keepdims=True)
np.add.reduce(x, axis=(0, -1), dtype=np.float32)
np.add.reduce(x, axis=-1, where=m)
np.maximum.reduce(x, axis=0, initial=9.0)
np.maximum.reduce(x, axis=None, initial=0.5, where=m)
np.add.accumulate(x)
np.add.accumulate(x, axis=-1, dtype=np.float32)
np.sum(x)
np.sum(x, axis=1, dtype=np.float32, keepdims=True)
np.sum(x, axis=(0, 1), initial=2.0)
np.mean(x, axis=0, keepdims=True)
x.sum()
x.sum(0)
x.sum(axis=-1, keepdims=True)
x.mean(0)
x.mean()
x.max(1, keepdims=True)
x.min()
np.var(x, axis=1, ddof=1)
np.std(x)
np.any(x > 0, axis=0)
np.all(x > -1, axis=1, keepdims=True)
np.all(x > -9)
np.count_nonzero(x > 0)
np.count_nonzero(x > 0, axis=1, keepdims=True)
np.prod(x, axis=0)
np.cumsum(x)
np.cumsum(x, 1, np.float32)
np.cumprod(x, axis=0, dtype=np.float32)
np.argmax(x)
np.argmax(x, 1)
np.argmin(x, axis=0, keepdims=True)
np.argmin(x, keepdims=False)
np.sort(x)
np.sort(x, axis=0, kind='stable')
np.sort(x, axis=None)
np.argsort(x)
np.argsort(x, axis=None, kind='stable')
np.argsort(x, 0)
np.flip(x)
np.flip(x, axis=-1)
np.where(m, x, 0)
np.where(x > 0, w, v[:, None])
np.clip(x, -0.5, v[:, None])
np.isclose(x, w, rtol=10, atol=0)
np.round(x * 3, 1)
np.sinc(x)
np.isneginf(x)
np.isposinf(np.where(m, np.inf, x))
np.real(z)
np.imag(z)
np.real(n)
np.imag(n)
z.real
z.imag
np.fft.fft(x)
np.fft.fft(x, axis=0, norm='ortho')
np.linalg.inv(s)
np.linalg.cond(s)
np.linalg.cond(s, 'fro')
np.linalg.pinv(x)
np.linalg.pinv(x, rcond=0.5)
np.linalg.det(s)
np.linalg.slogdet(s)[0]
np.linalg.slogdet(s).logabsdet
np.linalg.cholesky(p)
np.linalg.eigh(p).eigenvalues
np.linalg.svd(x, compute_uv=False)
np.linalg.svd(x, full_matrices=False).S
np.linalg.qr(x).R
np.linalg.qr(x, mode='r')
np.linalg.solve(s, v)
np.linalg.solve(s, w)
np.linalg.solve(s, x)
np.linalg.solve(s, w[:, 0])
np.linalg.solve(w[:, 1:], v)
np.concatenate([x, w])
np.concatenate([w, x], axis=-2)
np.concatenate([x, x], axis=1, dtype=np.float32)
np.concatenate([v, x, w], axis=None)
np.stack([x, w])
np.stack([w, x], axis=-1)
np.stack([v, v], axis=1)
np.stack([n, 2.0])
np.stack([n, n], axis=-1)
np.broadcast_to(v, (2, 3))
np.broadcast_to(n, 2)
np.broadcast_to(v[:, None], [2, 3, 4])
np.broadcast_to(n, ())
np.expand_dims(x, 0)
np.expand_dims(x, -1)
np.expand_dims(x, [0, -1])
np.expand_dims(n, (0, 1))
np.moveaxis(x[None], 0, -1)
np.moveaxis(x[None], (0, 1), (1, -1))
np.moveaxis(v, 0, 0)
np.einsum('ij->ji', x)
np.einsum('ji', x)
np.einsum('ij, jk', s, x)
np.einsum('ij,Zj->iZ', x, w)
np.einsum('b a', x)
np.einsum('...i,...i', x, w)
np.einsum('i,i->', v, v)
np.einsum('ii', s)
np.searchsorted([-0.5, 0.0, 0.5], v)
np.searchsorted([-0.5, 0.0, 0.5], x, 'right')
np.searchsorted(np.array([2.0, 0.0, 1.0]), v, sorter=np.array([1, 2, 0]))
np.squeeze(x[:, None], 1)
np.squeeze(x[None, :, None], (0, -2))
np.squeeze(n[None], 0)
np.reshape(x, (4, 3))
np.reshape(x, -1)
np.reshape(x, (2, -1), order='C')
x.reshape(-1)
x.reshape(2, 6)
x.reshape([6, 2])
n.reshape(1, 1)
np.transpose(x)
np.transpose(x[None], (1, 0, 2))
np.transpose(x[None], (-1, 0, 1))
x.transpose(None)
x.transpose(-1, 0)
x.transpose([1, 0])
x.transpose()
x[None].transpose()
x[None].T
x[None].mT
v.T
np.swapaxes(x, 0, -1)
x[None].swapaxes(0, 1)
np.iscomplexobj(z)
np.isrealobj(x)
np.ndim(x)
np.size(x)
np.size(n)
x.size
x.ndim
len(x)
x.dtype
np.result_type(x, 1j)
np.result_type(m, np.float32)
np.zeros_like(x)
np.ones_like(x, dtype=np.float32)
np.full_like(x, 2, shape=(2,))
np.zeros_like(x, shape=())
np.zeros_like(n)
np.split(x, 2, 1)[1]
np.split(x, [1])[1]
np.split(x, [1, 3], axis=-1)[1]
np.pad(x, [(1, 0), (0, 2)])
np.pad(x, [(1, 0), (0, 2)], constant_values=3)
np.pad(x, [(1, 0), (0, 2)], constant_values=(3, 4))
np.pad(x, [(1, 0), (0, 2)], 'edge')
np.pad(x, [(1, 0), (0, 2)], mode='reflect')
np.diagonal(x)
np.diagonal(x, 1)
np.diagonal(x[None], -1, 2, 1)
np.diagonal(x[None], axis1=-1, axis2=0)
np.tril(x)
np.tril(x, k=1)
np.triu(x, -1)
np.copy(x)
np.copy(n)
x.copy()
x.astype(np.float32)
x.astype(int, casting='unsafe')
x + w
w - x
2 * x
x ** 2
[1.0, 2.0, 3.0] * v
x / v[:, None]
v[:, None] < x
np.add(x, w, dtype=np.float32)
np.divmod(x, 2)[1]
np.modf(n)[0]
np.float64(2) - n
s @ x
s @ v
v @ s
v @ v
w.T @ v
v @ w
x @ w.T
w.T @ s
x[None] @ w.T
np.matmul(v, x)
x[0]
x[-1, 1:]
x[..., 0]
x[:, None, ::2]
x[[2, 0]]
x[:, [1, 1, 0]]
x[w[:, 0] > 0]
x[w > 0]
x[i]
x[i, 1]
x[:, i]
x[i, :2]
x[None, i]
x[i, None, [0, 1, 2]]
x[..., i]
x[i, ..., None]
x[0, i]
x[i[0]]
x[i[0], i[1]]
x[None, None][:, 0, :, i]
x[None, None][:, [0, 0, 0], :, i]
x[None][:, i, None, [0, 1, 2]]
[y := np.copy(x[None, None]), y.__setitem__((slice(None), 0, slice(None), i), w[:, :1, None]), y][2]
n[()]
n[...]
x[0, 0]
x[0, 0, ...]
v[i[0]]
x[[True, False, True], i[0]]
x[1, :, None]
n.reshape(())
np.reshape(n, ())
np.flip(n)
np.moveaxis(n, (), ())
np.squeeze(n, ())
np.transpose(n)
np.where(n > 0, n, 0)
np.real(z[0, ...])
np.imag(z[0, ...])
np.ones_like(n)
np.full_like(n, 3)
np.broadcast_to(n, ())
np.shape(x)
np.where(x > 0, x, 1)
np.add.reduce(x, axis=0, where=m[:, :1])
[x.__setitem__((0, slice(1, 3)), v[:2]), x][1]
[x.__setitem__(i, w), x][1]
[x.__setitem__((slice(None), i), w[:, 1:]), x][1]
[x.__setitem__((i[:2], None, i[1:]), w[:2, None, 0]), x][1]
[x.__setitem__(0, x[None, None, 1]), x][1]
[np.add.at(x, [0, 0], v[:, None][0]), x][1]
[np.add.at(x, (i, i), v), x][1]
[np.add(x, w, out=x), x][1]
[y := x[0, 0, ...], np.add(y, 1, out=y), x][2]
[np.matmul(s, s, out=s), s][1]
np.add(n, 1, out=n)
x[None][[0, 0], :, [1, 2]]
x[None][:, [2, 1], [0, 3]]
x[True]
[y := v[0], v.__setitem__(0, 9.0), y][2]
[y := x[0], x.__setitem__(0, 9.0), y][2]
[y := v[0, ...], v.__setitem__(0, 9.0), y][2]
""".strip().splitlines()
"""Calls of what a rule may use, with defaults, options and operands that all examples share."""


REFUSED = """
x.__setitem__(0, x[:2])
x.__setitem__(0, np.ones((2, 4)))
x.__setitem__((0, [0, 1]), x[:2, :2])
np.add.reduce(x, where=np.ones((2, 3, 4), bool))
np.broadcast_to(x, (4,))
x.sum(axis=2)
x.sum(axis=-3)
np.cumsum(x, axis=2)
np.expand_dims(x, 3)
np.moveaxis(x, 2, 0)
np.transpose(x, (0, 0))
np.add.reduce(x, axis=(0, 2))
x[3]
x[..., 0, ..., 0]
len(n)
x.astype(int, casting='safe')
""".strip().splitlines()
"""Calls that raise an error, with one example and with several."""


def examples() -> dict[str, np.ndarray]:
    """Return two examples of each argument of CALLS: matrices, a vector v, a number n, indices i."""
    rng = np.random.default_rng(0)
    x, s, v = (rng.standard_normal((2, *shape)).round(1) for shape in ((3, 4), (3, 3), (3,)))
    p, z, n = s @ s.swapaxes(1, 2) + np.eye(3), v + 1j * s[:, 0], np.array([1.5, -2.0])
    i = np.array([[0, 2, 1], [1, 1, 0]])
    return {"x": x, "s": s, "p": p, "v": v, "z": z, "n": n, "i": i, "m": x > 0}


def test_call_with_batched_arrays_equals_the_calls_with_their_examples() -> None:
    """Values, shape, order of memory, dtype, and numbers, whose memory must not be written."""
    w, wrong = np.random.default_rng(1).standard_normal((3, 4)), []

    for call in CALLS:
        run = lambda names, call=call: eval(call, {"np": np, "w": w} | names)
        y = run({name: BatchedArray(x) for name, x in examples().items()})
        rows = [run({name: np.array(x[k]) for name, x in examples().items()}) for k in (0, 1)]
        if not isinstance(y, BatchedArray):
            right = y == rows[0] == rows[1]
        else:
            expected = np.stack(rows)
            right = y.dtype == expected.dtype and y.values.shape == expected.shape
            right = right and np.allclose(y.values, expected, rtol=1e-12)
            counted = isinstance(rows[0], int)  # by np.count_nonzero, before NumPy 2.3
            right &= counted or y.values.flags.writeable == rows[0].flags.writeable
            right &= y.size < 2 or y.values.strides[1:] == rows[0].strides
        if not right:
            wrong.append(call)
    assert not wrong


@pytest.mark.parametrize("call", REFUSED)
def test_call_that_numpy_refuses_is_refused_for_batched_arrays(call: str) -> None:
    kinds: list[Any] = []
    for names in (
        {name: np.array(x[0]) for name, x in examples().items()},
        {name: BatchedArray(x) for name, x in examples().items()},
    ):
        with pytest.raises((ValueError, IndexError, TypeError)) as caught:
            eval(call, {"np": np} | names)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]
