"""04_attention_mechanism.py: the formula by einsum, its reasons measured, and the three classes."""

from __future__ import annotations

import math
import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import nn

NAME = "04_attention_mechanism"


@pytest.fixture
def script() -> ModuleType:
    from scripts import load

    return sys.modules.get(f"course_{NAME}") or load(NAME)


def test_the_lesson(lesson) -> None:  # type: ignore[no-untyped-def]
    checked, text, out = lesson(NAME)
    assert checked >= 58
    for name in ("asymmetry.png", "root_of_d_k.png", "masks.png"):
        picture = imread(out / name)[..., :3]
        assert min(picture.shape[:2]) > 200 and picture.std() > 0.02 and picture.min() < 0.2, name
    # the table of d_k: variance d_k and 1, gradient that vanishes and one that does not
    rows = np.array(re.findall(r"^ +(\d+)" + r" +([\d.e+-]+)" * 6 + "$", text, re.M), float)
    d_k, variance, scaled, _, spread, gradient, kept = rows.T
    assert d_k.tolist() == [4**i for i in range(7)]
    np.testing.assert_allclose(variance[1:] / d_k[1:], 1, atol=0.25)
    np.testing.assert_allclose(scaled[1:], 1, atol=0.25)
    assert (
        (np.diff(gradient[3:]) < 0).all()
        and gradient[-1] < 1e-6
        and kept.min() > 0.2
        and spread.max() < 5
    )
    for kind in ("MultiHeadAttention", "MultiHeadSelfAttention", "MultiHeadCrossAttention"):
        assert f"✓ {kind}: (2, " in text


def attention_by_numbers(
    layer: Any, x_q: Any, x_k: Any, x_v: Any, padding: Any, mask: Any
) -> np.ndarray:
    """Multi-head attention one number at a time: no einsum, no matmul, no softmax of ours; -∞ is a key left out."""
    h, d = layer.num_heads, layer.d_model // layer.num_heads

    def apply(linear: Any, x: Any) -> list[float]:
        rows = zip(linear.weight.data.tolist(), linear.bias.data.tolist())
        return [math.fsum(w * v for w, v in zip(row, x)) + b for row, b in rows]

    result = np.zeros((len(x_q), x_q.shape[1], layer.d_model))
    for n in range(len(x_q)):
        Q, K, V = (
            [apply(linear, row) for row in x[n].tolist()]
            for linear, x in ((layer.q_proj, x_q), (layer.k_proj, x_k), (layer.v_proj, x_v))
        )
        for i in range(len(Q)):
            allowed = [j for j in range(len(K)) if padding[n, j] and mask[i, j]]
            joined = []
            for head in range(h):
                own = range(head * d, (head + 1) * d)
                e = {
                    j: math.exp(math.fsum(Q[i][c] * K[j][c] for c in own) / math.sqrt(d))
                    for j in allowed
                }
                joined += [
                    math.fsum(e[j] * V[j][c] for j in allowed) / math.fsum(e.values()) for c in own
                ]
            result[n, i] = apply(layer.out_proj, joined)
    return result


@pytest.mark.parametrize(
    "kind", ["MultiHeadAttention", "MultiHeadSelfAttention", "MultiHeadCrossAttention"]
)
def test_formula_and_class_against_single_numbers(script: ModuleType, kind: str) -> None:
    rng = np.random.default_rng(7)
    layer = getattr(nn, kind)(12, 3, dtype=float, generator=rng)
    a, b, c = (rng.standard_normal((2, length, 12)) for length in (4, 5, 5))
    inputs, (q, k, v) = {
        "MultiHeadAttention": ((a, b, c), (a, b, c)),
        "MultiHeadSelfAttention": ((b,), (b, b, b)),
        "MultiHeadCrossAttention": ((a, b), (a, b, b)),
    }[kind]
    padding = np.array([[True] * 5, [True, True, True, False, False]])
    mask = rng.random((q.shape[1], 5)) < 0.5
    mask[:, 0] = True
    expected = attention_by_numbers(layer, q, k, v, padding, mask)
    np.testing.assert_allclose(
        layer(*inputs, mask=padding[:, None, None] & mask).data, expected, atol=1e-12
    )
    np.testing.assert_allclose(
        script.multi_head_formula(layer, q, k, v, padding, mask).data, expected, atol=1e-12
    )
    as_numbers = script.multi_head_formula(
        layer, q, k, v, padding.astype(int), mask.astype(int)
    )  # as the text: 0 hides
    np.testing.assert_array_equal(
        as_numbers.data, script.multi_head_formula(layer, q, k, v, padding, mask).data
    )


def test_loops_of_einsum(script: ModuleType) -> None:
    """The loops that einsum is compared with are right on a product done by hand."""
    A, B = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]])
    assert script.by_loops("ij,jk->ik", A, B).tolist() == [[19, 22], [43, 50]]
    assert script.by_loops("id,jd->ij", A, B).tolist() == [[17, 23], [39, 53]]
    assert set(script.EINSUMS) == {"ij,jk->ik", "id,jd->ij", "nihd,njhd->nijh", "nijh,njhd->nihd"}


def test_symmetric_scores_leave_cycles_equal(script: ModuleType) -> None:
    """The criterion that weights without a linear map obey: exact for symmetric scores, and not for others."""
    rng = np.random.default_rng(3)
    for size in (3, 6):
        scores = rng.standard_normal((size, size))
        assert (
            script.cycle_gap(script.softmax(scores + scores.T))
            < 1e-12
            < 0.1
            < script.cycle_gap(script.softmax(scores))
        )
    # ... but for a number added to each row, which the softmax drops, and one to each column
    bent = scores + scores.T + rng.standard_normal((size, 1)) + rng.standard_normal(size)
    assert script.cycle_gap(script.softmax(bent)) < 1e-12


def test_a_wrong_class_is_noticed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lesson would not agree with values that are a thousandth too large, nor with another root than √d_k."""
    lesson = script.Lesson(NAME, "", ["--no-pictures"])

    class Wrong(nn.MultiHeadAttention):
        def forward(self, x_q: Any, x_kv: Any, mask: Any = None) -> Any:  # type: ignore[override]
            return super().forward(x_q, x_kv, 1.001 * x_kv, mask)

    with monkeypatch.context() as m:
        m.setattr(nn, "MultiHeadCrossAttention", Wrong)
        script.three_classes(lesson, np.random.default_rng(0))
    assert len(lesson.failed) == 2 and "x_q, x_kv, x_kv" in lesson.failed[1], lesson.failed
    with monkeypatch.context() as m:
        m.setattr(script, "sqrt", lambda x: 1.0)
        script.attention_formula(lesson, np.random.default_rng(0))
    assert "The formula" in lesson.failed
    assert lesson.end() == 1
