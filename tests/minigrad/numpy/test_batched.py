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
from minigrad.numpy.derivatives import _rows_in_batches, _rows_one_by_one


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
        expected = _rows_one_by_one(run, y)
        rows = _rows_in_batches(run, y, topological([y._node]))
        for row, e in zip(rows, expected):
            np.testing.assert_allclose(row.data, e.data, rtol=1e-9, atol=1e-10)


def test_jacobian_in_several_batches_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    W, x = np.random.default_rng(0).standard_normal((2, 5, 5))
    f = mg.jacobian(lambda t: np.tanh(W @ t))
    expected = f(x[0])
    monkeypatch.setattr(derivatives, "ELEMENTS", 10)  # two rows a batch
    np.testing.assert_allclose(f(x[0]).data, expected.data, rtol=1e-12)


def test_jacobian_of_an_operation_for_ndarrays_only_goes_row_by_row() -> None:
    @mg.custom_op(x=lambda g: np.fft.ifft(np.fft.fft(g)).real)
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
