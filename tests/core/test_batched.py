"""Batches of gradients: all rows of a Jacobian in one backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opinfo import TABLE, OpInfo, naming

import minigrad as mg
from minigrad import derivatives
from minigrad.core.graph import topological
from minigrad.derivatives import _rows_in_batches, _rows_one_by_one, _Traced


@pytest.mark.parametrize("info", TABLE.values(), ids=list(TABLE))
def test_rows_of_op_in_batches_equal_rows_one_by_one(info: OpInfo) -> None:
    for sample in info.each_sample():
        xs = list(sample.floats.values())
        with mg.use_definitions():
            run = _Traced("jacobian", sample.call, xs, range(len(xs)), {})
        for y in run.result:
            if not y.requires_grad or not 0 < y.size <= 40:
                continue
            with naming(sample):
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
