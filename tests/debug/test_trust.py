"""detect_anomaly, draw_graph, and numbers that must not become NaN."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
from minigrad import AnomalyError, GradientError, MissingExtraError, Tensor


def test_anomaly_in_forward_names_op_and_line() -> None:
    x = Tensor([1.0, 0.0], requires_grad=True)
    with pytest.raises(
        AnomalyError,
        match=r"^log: made Inf from finite operands; called at .*test_trust\.py:\d+ in .*np\.log\(x\)",
    ):
        with mg.detect_anomaly():
            np.log(x)
    with (
        pytest.raises(AnomalyError, match="^divide: made NaN from finite operands"),
        mg.detect_anomaly(),
    ):
        Tensor([0.0]) / Tensor([0.0])  # also where nothing is recorded


def test_anomaly_in_backward_names_op_and_line_of_the_forward_call() -> None:
    x = Tensor([4.0, 0.0], requires_grad=True)
    with mg.detect_anomaly():
        h = np.sqrt(x)  # the marked line
        y = (h * 2).sum()
        with pytest.raises(
            AnomalyError, match=r"^sqrt: its gradient made Inf .*np\.sqrt\(x\)  # the marked line"
        ):
            y.backward()


def test_anomaly_lets_infinities_through_that_were_given() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with mg.detect_anomaly():
        mg.softmax(mg.masked_fill(x, np.array([True, False]), -np.inf)).sum().backward()
    assert np.isfinite(x.grad.data).all()


def test_anomaly_reports_a_nan_that_was_given() -> None:
    x = Tensor([1.0, math.nan], requires_grad=True)
    with mg.detect_anomaly():
        with pytest.raises(
            AnomalyError,
            match=r"multiply: passed on a NaN in its operands; called at .*test_trust.py",
        ):
            x * 2
        with pytest.raises(AnomalyError, match="subtract: made NaN from operands with an Inf"):
            Tensor([math.inf], True) - math.inf
        y = (Tensor([1.0, 2.0], True) * 3).sum()
        with pytest.raises(
            AnomalyError, match="sum: its gradient passed on a NaN in its gradients"
        ):
            y.backward(np.array(math.nan))
        assert np.where(np.isnan(x.data), 0.0, Tensor([1.0, 2.0])).sum().item() == 1.0


def test_anomaly_knows_its_own_files_by_their_package(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """A module of a user's package whose name starts as ours does is the user's, wherever it lies."""
    for name in ("nnproject", "minigrad_models", "nn"):
        folder = tmp_path / name
        folder.mkdir()
        source = "import numpy as np\ndef f(x):\n    return np.log(x)\n"
        (folder / "__init__.py").write_text(source, encoding="utf-8")
        module = type(sys)(name)
        module.__file__ = str(folder / "__init__.py")
        monkeypatch.setitem(sys.modules, name, module)
        for file in (
            folder / "__init__.py",
            Path(mg.__file__).parent.parent / name / "__init__.py",
        ):
            if name == "nn" and file.parent.parent != tmp_path:
                continue
            exec(compile(source, str(file), "exec"), vars(module))
            with (
                np.errstate(divide="ignore"),
                mg.detect_anomaly(),
                pytest.raises(AnomalyError) as error,
            ):
                module.f(Tensor([0.0], True))
            assert f"{file}:3 in f" in str(error.value)


def test_anomaly_notices_a_write_through_a_view() -> None:
    x = Tensor(np.ones(2), requires_grad=True)
    with mg.detect_anomaly():
        y = (x * x).sum()
        x.data[0] = 5.0
        with pytest.raises(
            GradientError,
            match=r"multiply: values that its gradient needs were changed since .*\(x \* x\)",
        ):
            y.backward()


def test_anomaly_changes_no_result() -> None:
    a = np.random.default_rng(0).standard_normal((3, 3))
    f = lambda x: (mg.softmax(x @ x) * mg.concatenate([x, x])[:3]).sum()
    with mg.detect_anomaly():
        watched = mg.grad(f)(a)
    np.testing.assert_array_equal(watched.data, mg.grad(f)(a).data)


def test_to_dot() -> None:
    w, x = Tensor(np.ones((2, 3)), requires_grad=True), Tensor(np.ones(3), requires_grad=True)
    text = mg.to_dot(np.tanh(w @ x).sum(), names={"weight": w})
    assert text.startswith("digraph {") and text.endswith("}\n")
    assert 'label="weight\\n2 × 3", fillcolor="#bbdefb"' in text and 'label="leaf\\n3"' in text
    assert 'label="tanh\\n2"' in text and 'label="sum\\nscalar"' in text
    assert text.count("->") == 4
    with pytest.raises(GradientError, match="to_dot: this tensor does not require gradients"):
        mg.to_dot(Tensor(1.0))


def test_draw_graph(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    y = Tensor(1.0, requires_grad=True) * 2
    for name in ("g.gv", "g.dot", "g", "g.svg.gv", "g.svg.dot"):
        (tmp_path / name).write_text("precious")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "graphviz", None)
        with pytest.raises(
            MissingExtraError, match=r"draw_graph needs graphviz: pip install graphviz"
        ):
            mg.draw_graph(y, path=tmp_path / "g.svg")
    pytest.importorskip("graphviz")
    if shutil.which("dot") is None:
        with pytest.raises(RuntimeError, match="Graphviz programs are not installed"):
            mg.draw_graph(y, path=tmp_path / "g.svg")
    else:
        assert "multiply" in mg.draw_graph(y, path=tmp_path / "g.svg").read_text()
        assert "<svg" in mg.draw_graph(y)._repr_svg_() and "multiply" in mg.draw_graph(y).svg
        monkeypatch.setenv("PATH", "")
        with pytest.raises(
            RuntimeError, match="Graphviz programs are not installed; to_dot\\(\\) gives the text"
        ):
            mg.draw_graph(y, path=tmp_path / "h.svg")
    with pytest.raises(ValueError, match="draw_graph: .*g.text: expected a name that ends in .svg"):
        mg.draw_graph(y, path=tmp_path / "g.text")
    assert all(p.read_text() == "precious" for p in tmp_path.iterdir() if p.name != "g.svg")


# -- numerics ----------------------------------------------------------------------------------------


def slope(f, x: float) -> float:  # type: ignore[no-untyped-def]
    return mg.grad(f)(x).item()


def test_far_from_zero() -> None:
    for x in (-1000.0, 1000.0):
        for f in (
            mg.sigmoid,
            mg.softplus,
            mg.silu,
            mg.gelu,
            mg.elu,
            np.tanh,
            mg.log_sigmoid,
            np.arctan,
            mg.erf,
        ):
            assert math.isfinite(f(Tensor(x)).item()) and math.isfinite(slope(f, x)), f
    assert mg.softplus(Tensor(-40.0)).item() == pytest.approx(math.exp(-40), rel=1e-12)
    assert mg.log_sigmoid(Tensor(-1000.0)).item() == -1000.0
    assert mg.sigmoid(Tensor(-40.0)).item() == pytest.approx(math.exp(-40), rel=1e-12)
    big = np.array([1e4, 0.0, -1e4])
    np.testing.assert_array_equal(mg.softmax(Tensor(big)).data, [1, 0, 0])
    np.testing.assert_array_equal(mg.log_softmax(Tensor(big)).data, [0, -1e4, -2e4])
    assert mg.logsumexp(Tensor(big)).item() == 1e4
    assert np.isfinite(mg.grad(lambda x: mg.logsumexp(x))(big).data).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_large_scores_of_every_dtype(dtype: Any) -> None:
    """Exponentials that would overflow are shifted, in half precision too; the rest of the block may be small."""
    scores = np.array([[30, 31, 0], [1, 2, 3], [-200, -100, -99], [200, 0, 100]], dtype)
    e = np.exp(scores - scores.max(-1, keepdims=True), dtype=float)
    expected = np.log(e.sum(-1)) + scores.max(-1) - scores[:, 1]
    tolerance = {"rtol": 4 * float(np.finfo(dtype).eps), "atol": 100 * float(np.finfo(dtype).eps)}
    for rows in (slice(None), slice(0, 1), slice(1, 2)):
        x = Tensor(scores[rows], requires_grad=True)
        goals = np.ones(len(x.data), int)
        loss = mg.cross_entropy(x, goals, reduction="none")
        np.testing.assert_allclose(loss.data, expected[rows], **tolerance)
        loss.sum().backward()
        probabilities = e[rows] / e[rows].sum(-1, keepdims=True)
        np.testing.assert_allclose(x.grad.data, probabilities - [0, 1, 0], **tolerance)
        total = mg.linear_cross_entropy(x, np.eye(3, dtype=dtype), goals, reduction="sum")
        np.testing.assert_allclose(total.data, expected[rows].sum(), **tolerance)
        out = mg.scaled_dot_product_attention(
            scores[rows][None, None],
            np.eye(3, dtype=dtype)[None, None],
            np.eye(3, dtype=dtype)[None, None],
            scale=1.0,
        )
        np.testing.assert_allclose(out.data[0, 0], probabilities, **tolerance)


def test_all_minus_infinity() -> None:
    x = Tensor(np.full((2, 3), -np.inf), requires_grad=True)
    y = mg.logsumexp(x, axis=1)
    np.testing.assert_array_equal(y.data, [-np.inf, -np.inf])
    y.backward(np.ones(2))
    np.testing.assert_array_equal(x.grad.data, np.zeros((2, 3)))
    assert slope(lambda x: np.logaddexp(x, -np.inf), -np.inf) == 0


def test_masked_softmax_of_nothing_is_zero_with_zero_gradient() -> None:
    x = Tensor(np.array([[1.0, 2.0], [3.0, np.inf]]), requires_grad=True)
    mask = np.array([[True, False], [False, False]])
    y = mg.softmax(x, where=mask)
    np.testing.assert_array_equal(y.data, [[1, 0], [0, 0]])
    y.backward(np.random.default_rng(0).standard_normal((2, 2)))
    np.testing.assert_array_equal(x.grad.data, np.zeros((2, 2)))


def test_a_branch_not_taken_sends_no_nan() -> None:
    f = lambda x: mg.where(x > 0, np.sqrt(mg.maximum(x, 0.0)), 0.0).sum()
    np.testing.assert_array_equal(mg.grad(f)(np.array([4.0, 0.0, -1.0])).data, [0.25, 0, 0])
    assert slope(lambda x: np.linalg.norm(x * np.zeros(3)), 1.0) == 0
    np.testing.assert_array_equal(
        mg.grad(lambda x: np.linalg.norm(x))(np.zeros(3)).data, np.zeros(3)
    )
    np.testing.assert_array_equal(
        mg.grad(lambda x: np.hypot(x, 0.0).sum())(np.zeros(2)).data, np.zeros(2)
    )
    np.testing.assert_array_equal(
        mg.grad(lambda x: mg.where(x > 5, np.inf, x).sum())(np.ones(2)).data, np.ones(2)
    )


def test_powers_at_zero() -> None:
    assert (
        slope(lambda x: x**2, 0.0) == 0
        and slope(lambda x: x**1, 0.0) == 1
        and slope(lambda x: x**0, 0.0) == 0
    )
    assert slope(lambda x: x**2.0, -3.0) == -6
    assert slope(lambda x: 2.0**x, 3.0) == pytest.approx(8 * math.log(2))
    assert slope(lambda b: mg.power(0.0, b), 2.0) == 0
    np.testing.assert_array_equal(
        mg.grad(lambda a: mg.power(a, np.array([0.0, 1.0, 2.0])).sum())(np.zeros(3)).data, [0, 1, 0]
    )


def test_ties_share_the_gradient() -> None:
    x = np.array([1.0, 3.0, 3.0])
    np.testing.assert_array_equal(mg.grad(lambda x: x.max())(x).data, [0, 0.5, 0.5])
    np.testing.assert_array_equal(mg.grad(lambda x: mg.min(-x))(x).data, [0, -0.5, -0.5])
    assert (
        slope(lambda x: mg.maximum(x, 2.0), 2.0) == 0.5
        and slope(lambda x: mg.maximum(x, x), 2.0) == 1
    )
    assert (
        slope(lambda x: mg.clip(x, 0.0, 2.0), 2.0) == 1
        and slope(mg.relu, 0.0) == 0
        and slope(np.abs, 0.0) == 0
    )


def test_products_with_zeros_have_exact_gradients_of_any_order() -> None:
    x = np.array([2.0, 0.0, 3.0])
    np.testing.assert_array_equal(mg.grad(lambda x: x.prod())(x).data, [0, 6, 0])
    np.testing.assert_allclose(
        mg.hessian(lambda x: x.prod())(x).data, [[0, 3, 0], [3, 0, 2], [0, 2, 0]]
    )
    np.testing.assert_allclose(mg.hessian(lambda x: x.prod())(np.zeros(2)).data, [[0, 1], [1, 0]])


def test_determinant_of_a_singular_matrix_has_a_gradient() -> None:
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    cofactors = np.array([[-3.0, 6, -3], [6, -12, 6], [-3, 6, -3]])
    np.testing.assert_allclose(mg.grad(np.linalg.det)(a).data, cofactors, atol=1e-12)
    assert mg.gradgradcheck(np.linalg.det, a, atol=1e-6)


def test_erf_is_exact_to_rounding() -> None:
    x = np.concatenate(
        [np.linspace(-7, 7, 5001), np.logspace(-300, 0, 301), [0.46875, 4.0, np.inf, -np.inf]]
    )
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(mg.erf(x).data, exact, rtol=5e-16, atol=0)
    assert math.isnan(mg.erf(Tensor(np.nan)).item())
    assert mg.erf(Tensor(x.astype(np.float32))).dtype == np.float32
    assert mg.erf([0, 1]).tolist() == pytest.approx([0, math.erf(1)], rel=1e-15)
