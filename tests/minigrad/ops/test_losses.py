"""Values of losses by their formulas, and refused targets; PyTorch's samples have other options."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.environment import max_examples
from support.properties import normal, seeds

import minigrad as mg

ENTROPIES = math.log1p(math.e), 3 * math.log1p(math.exp(3))  # the positive target counts 3 times


@pytest.mark.parametrize(
    "loss, options, expected",
    [
        (mg.mse_loss, {}, (1 + 16) / 2),
        (mg.l1_loss, {"reduction": "sum"}, 1 + 4),
        (mg.smooth_l1_loss, {"beta": 2.0}, (1 / 4 + 4 - 1) / 2),
        (mg.huber_loss, {"delta": 2.0}, (1 / 2 + 2 * 4 - 2) / 2),
        (mg.kl_div, {}, (0 + 3) / 2),
        (mg.binary_cross_entropy_with_logits, {"pos_weight": 3.0}, sum(ENTROPIES) / 2),
    ],
)
def test_loss_of_two_elements_equals_its_formula(loss: Any, options: Any, expected: float) -> None:
    assert loss([1.0, -3.0], [0.0, 1.0], **options).item() == pytest.approx(expected)


def entropy(p: Any, t: Any) -> Any:
    """Return the binary cross-entropy, whose logarithms are at least -100."""
    with np.errstate(divide="ignore"):
        return -t * np.maximum(np.log(p), -100) - (1 - t) * np.maximum(np.log1p(-p), -100)


ELEMENTS: dict[str, tuple[Any, dict[str, list[Any]], Any]] = {
    "mse_loss": (lambda x, t: (x - t) ** 2, {}, None),
    "l1_loss": (lambda x, t: abs(x - t), {}, None),
    "smooth_l1_loss": (
        lambda x, t, beta: np.where(abs(x - t) < beta, (x - t) ** 2 / (2 * (beta or 1)), abs(x - t) - beta / 2), {"beta": [0.0, 0.5, 1.0, 2.0]}, None,
    ),
    "huber_loss": (
        lambda x, t, delta: np.where(abs(x - t) <= delta, (x - t) ** 2 / 2, delta * (abs(x - t) - delta / 2)), {"delta": [0.5, 1.0, 2.0]}, None,
    ),
    "binary_cross_entropy": (entropy, {"weight": [None, 2.0, [1.0, 2.0, 0.0]]}, "both"),
    "binary_cross_entropy_with_logits": (
        lambda x, t, pos_weight: np.where(t, (1 if pos_weight is None else pos_weight) * t * np.log1p(np.exp(-x)), 0) + (1 - t) * np.log1p(np.exp(x)),
        {"pos_weight": [None, 3.0, [1.0, 0.0, 2.0]], "weight": [None, [1.0, 2.0, 0.0]]}, "target",
    ),
    "kl_div": (
        lambda x, t, log_target: np.exp(t) * (t - x) if log_target else np.where(t, t * (np.log(t + (t == 0)) - x), -t * x), {"log_target": [False, True]}, "target",
    ),
}  # fmt: skip
"""Formula of an element, values of options, and which operands are probabilities."""


@pytest.mark.parametrize("name", ELEMENTS)
@given(data=st.data())
def test_loss_of_elements_equals_its_formula(name: str, data: st.DataObject) -> None:
    """Beside the limits of a quadratic part, of probabilities 0 and 1, in the dtype of the input."""
    formula, values, kind = ELEMENTS[name]
    options = {key: data.draw(st.sampled_from(x), key) for key, x in values.items()}
    is_log = options.get("log_target", False)
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), "dtype")
    numbers = st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0])
    shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    kinds = [shares if kind == "both" else numbers, shares if kind and not is_log else numbers]
    x, t = (data.draw(arrays(dtype, (2, 3), elements=k)) for k in kinds)
    reduction = data.draw(st.sampled_from(["mean", "sum", "none"]), "reduction")
    weight = options.pop("weight", None)
    arguments = {k: np.array(v) if isinstance(v, list) else v for k, v in options.items()}
    expected = formula(x.astype(float), t.astype(float), **arguments)
    expected = expected * (1 if weight is None else np.array(weight))
    expected = {"mean": expected.mean(), "sum": expected.sum(), "none": expected}[reduction]
    beside = {} if weight is None else {"weight": weight}
    y = getattr(mg, name)(mg.tensor(x), t, reduction=reduction, **options, **beside)
    np.testing.assert_allclose(y.data, expected, rtol=1e-5, atol=1e-6)
    assert y.dtype == dtype
    found = getattr(mg, name)(
        mg.tensor(x), mg.tensor(t), reduction=reduction, **arguments, **beside
    )
    np.testing.assert_array_equal(found.data, y.data)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *((mg.smooth_l1_loss, {"beta": x}) for x in (-1e-9, math.nan)),
        *((mg.huber_loss, {"delta": x}) for x in (0.0, -1.0, math.nan)),
        *((mg.binary_cross_entropy, {"input": [0.5, x]}) for x in (-1e-9, 1 + 1e-9, math.nan)),
        (mg.binary_cross_entropy, {"weight": np.ones((2, 2))}),
        (mg.binary_cross_entropy_with_logits, {"pos_weight": np.ones(3)}),
    ],
)
def test_loss_refuses_limits_probabilities_and_weights_that_do_not_fit(
    loss: Any, options: Any
) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"{loss.__name__}: {name} must"):
        loss(**{"input": [0.5, 0.5], "target": [0.0, 1.0], **options})


@pytest.mark.parametrize("loss", [mg.huber_loss, mg.smooth_l1_loss])
def test_loss_of_large_distances_has_finite_gradients(loss: Any) -> None:
    x = mg.tensor([1e200, -1e200, 0.5], requires_grad=True)
    loss(x, np.zeros(3), reduction="sum").backward()
    assert x.grad.tolist() == [1.0, -1.0, 0.5]


@pytest.mark.parametrize(
    "logits, target", [(1.0, 1.0), (1.0, 0), (np.zeros((3, 0)), np.zeros(3, int))]
)
def test_cross_entropy_without_classes_is_refused(logits: Any, target: Any) -> None:
    with pytest.raises(ValueError, match="input must have classes on a last axis, got shape"):
        mg.cross_entropy(logits, target, label_smoothing=0.1)


def test_targets_may_be_integers_or_flags() -> None:
    x = mg.tensor(np.array([0.25, -1.0], np.float32))
    for t in (np.array([0, 1]), np.array([False, True]), [0, 1]):
        y = mg.binary_cross_entropy_with_logits(x, t)
        expected = mg.binary_cross_entropy_with_logits(x, np.array([0, 1], np.float32))
        assert y.dtype == np.float32 and y.item() == expected.item()


@given(st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_batchmean_divides_by_the_number_of_rows(n: int, d: int, is_log: bool) -> None:
    x, t = -np.ones((n, d)), np.full((n, d), 0.5)
    found = mg.kl_div(x, t, reduction="batchmean", log_target=is_log)
    expected = mg.kl_div(x, t, reduction="sum", log_target=is_log).data / n
    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ignored", [-100, 1, 0])
def test_nll_loss_is_the_weighted_mean_of_targets_that_are_not_ignored(
    dtype: Any, ignored: int
) -> None:
    x = mg.log_softmax(normal(0, 4, 3).astype(dtype)).data
    targets, weight = np.array([0, 2, ignored, 1]), np.array([1.0, 2, 3])
    kept = targets != ignored
    losses = (
        -x[np.arange(4), np.where(kept, targets, 0)] * weight[np.where(kept, targets, 0)] * kept
    )
    divisor = weight[targets[kept]].sum()
    for reduction, expected in {
        "none": losses,
        "sum": losses.sum(),
        "mean": losses.sum() / divisor,
    }.items():
        y = mg.nll_loss(x, targets, weight, ignore_index=ignored, reduction=reduction)
        np.testing.assert_allclose(y.data, expected, rtol=1e-5, atol=1e-7)
        assert y.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_of_probabilities_has_the_dtype_of_its_logits(dtype: Any) -> None:
    x = normal(0, 2, 3).astype(dtype)
    p = np.full((2, 3), 1 / 3, dtype)
    assert mg.cross_entropy(x, p, weight=np.arange(3.0)).dtype == dtype
    with pytest.raises(ValueError, match="weight must"):
        mg.cross_entropy(x, p, weight=np.ones(2))


def test_probabilities_on_axis_1_are_refused_only_if_they_are_there() -> None:
    """Rounded ones count as probabilities, and others are taken as they are."""
    rng = np.random.default_rng(0)
    p = rng.random((2, 4, 3)).astype(np.float32)
    p /= p.sum(1, keepdims=True)
    for values in (p, p.astype(np.float16)):
        with pytest.raises(ValueError, match="must sum to 1 over the last axis, not over axis 1"):
            mg.cross_entropy(np.zeros(p.shape), values)
    both = np.full((2, 3, 3), 1 / 3)  # sums to 1 over both axes
    neither, one = both + 0.5, p.copy()
    one[0] *= 2
    for values in (both, neither, one):
        assert np.isfinite(mg.cross_entropy(np.zeros(values.shape), values).item())
    columns = np.array([[0.9, 0.9], [0.1, 0.1]])  # two axes: axis 1 is the last
    assert np.isfinite(mg.cross_entropy(np.zeros((2, 2)), columns).item())


@max_examples(30)
@given(data=st.data(), seed=seeds)
def test_cross_entropy_of_probabilities_equals_its_formula(data: st.DataObject, seed: int) -> None:
    classes = data.draw(st.integers(1, 4), "classes")
    rows = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2), "rows"))
    x = normal(seed, *rows, classes)
    p = np.exp(normal(seed + 1, *rows, classes))
    p *= data.draw(st.sampled_from([1, 2]), "sum") / p.sum(-1, keepdims=True)
    weight = data.draw(st.none() | st.just(np.arange(1.0, classes + 1)), "weight")
    smoothing = data.draw(st.sampled_from([0.0, 1e-4, 0.1, 1.0]), "label_smoothing")
    reduction = data.draw(st.sampled_from(["mean", "sum", "none"]), "reduction")
    smooth = (1 - smoothing) * p + smoothing / classes
    goal = smooth * (1 if weight is None else weight)
    losses = -(goal * (x - np.log(np.exp(x).sum(-1, keepdims=True)))).sum(-1)
    expected = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    y = mg.cross_entropy(x, p, **options)
    np.testing.assert_allclose(y.data, expected, rtol=1e-10, atol=1e-12)
    mg.gradcheck(lambda x, p: mg.cross_entropy(x, p, **options), [x, p], directions=1, seed=seed)


@pytest.mark.parametrize("loss", ["kernel", "definition", "linear"])
@given(rows=st.integers(1, 3), classes=st.integers(1, 3), more=st.integers(0, 2), seed=seeds)
def test_cross_entropy_leaves_out_classes_whose_logits_are_minus_infinity(
    loss: str, rows: int, classes: int, more: int, seed: int
) -> None:
    x, target = normal(seed, rows, classes), np.arange(rows) % classes
    unlikely = np.repeat([0, -np.inf], [classes, more])

    def masked_loss(x: Any) -> Any:
        weight = np.eye(classes + more, classes)
        if loss == "linear":
            return mg.linear_cross_entropy(x, weight, target, linear_bias=unlikely)
        return mg.cross_entropy(mg.linear(x, weight) + unlikely, target)

    expected = mg.value_and_grad(lambda x: mg.cross_entropy(x, target))(x)
    with mg.use_definitions("cross_entropy" if loss == "definition" else "gelu"):
        found = mg.value_and_grad(masked_loss)(x)
    for y, e in zip(found, expected):
        np.testing.assert_allclose(y.data, e.data, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [mg.cross_entropy, mg.linear_cross_entropy, mg.nll_loss])
@given(
    weight=st.lists(st.sampled_from([1.0, 2.0, 0.0, -1.0]), min_size=1, max_size=3),
    rows=st.integers(0, 4),
)
@example(weight=[0.0, 1.0], rows=1)
@example(weight=[-1.0], rows=1)
def test_mean_of_classes_is_the_sum_divided_by_the_weights_of_the_targets(
    loss: Any, weight: list[float], rows: int
) -> None:
    """If the weights add up to 0, the sum is divided by 1."""
    target = np.arange(rows) % len(weight)
    options: Any = {"weight": weight} | ({} if loss is mg.nll_loss else {"label_smoothing": 0.5})
    operands = [normal(0, rows, len(weight))]
    operands += [np.eye(len(weight))] * (loss is mg.linear_cross_entropy)
    mean, total = (loss(*operands, target, **options, reduction=r).item() for r in ("mean", "sum"))
    assert mean == pytest.approx(total / (sum(weight[t] for t in target) or 1))


@pytest.mark.parametrize("other", [-100, -2, -1, 0, 1, 2, 3])
@given(
    classes=st.integers(1, 2),
    ignored=st.sampled_from([None, -100, -1, 1]),
    is_linear=st.booleans(),
)
def test_cross_entropy_refuses_targets_that_are_no_classes(
    other: int, classes: int, ignored: int | None, is_linear: bool
) -> None:
    """Targets that are ignored may have any value."""
    target = np.array([0, other])
    x = normal(0, len(target), classes)
    if is_linear:
        loss = lambda: mg.linear_cross_entropy(x, np.eye(classes), target, ignore_index=ignored)
    else:
        loss = lambda: mg.cross_entropy(x, target, ignore_index=ignored)
    if all(0 <= t < classes or t == ignored for t in target):
        assert np.isfinite(loss().item())
        return
    or_ignored = "" if ignored is None else f" or {ignored}"
    seen = [0 if t == ignored else t for t in target]
    message = f"target must be from 0 to {classes - 1}{or_ignored}, got {min(seen)} to {max(seen)}"
    with pytest.raises(IndexError, match=f"cross_entropy: {message}$"):
        loss()


@given(
    shapes=st.tuples(*[st.lists(st.integers(1, 3), max_size=3).map(tuple)] * 2),
    is_linear=st.booleans(),
)
@example(shapes=((), (2,)), is_linear=False)
def test_cross_entropy_refuses_targets_of_another_shape(shapes: Any, is_linear: bool) -> None:
    rows, got = shapes
    x, target = np.zeros((*rows, 2)), np.zeros(got, int)
    if is_linear:
        loss = lambda: mg.linear_cross_entropy(x, np.eye(2), target)
    else:
        loss = lambda: mg.cross_entropy(x, target)
    if rows == got:
        assert loss().item() == pytest.approx(math.log(2))
        return
    is_torch_layout = len(rows) > 1 and got == (rows[0], *rows[2:], 2)
    message = (
        "classes must be on the last axis, not on axis 1 as in PyTorch"
        if is_torch_layout
        else re.escape(f"target must have shape {rows}, got {got}") + "$"
    )
    with pytest.raises(ValueError, match=f"cross_entropy: {message}"):
        loss()


def test_cross_entropy_takes_tensors_as_weight_unless_they_require_gradients() -> None:
    weight = mg.Tensor([1.0, 2.0])
    loss = lambda: mg.cross_entropy([[0.0, 1.0], [2.0, 0.0]], [0, 1], weight)
    assert loss().item() == pytest.approx((math.log1p(math.e) + 2 * math.log1p(math.e**2)) / 3)
    weight.requires_grad = True
    with pytest.raises(TypeError, match="must not require gradients; use .detach"):
        loss()


@pytest.mark.parametrize("target", [np.zeros((2, 3), bool), np.zeros((3, 3)), np.zeros(2)])
def test_cross_entropy_reads_only_floats_of_the_shape_of_logits_as_probabilities(
    target: Any,
) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=r"target must (have shape \(2,\)|be integers)"
    ):
        mg.cross_entropy(np.zeros((2, 3)), target)


@pytest.mark.parametrize("target", [np.array([0, 1]), np.full((2, 3), 1 / 3)])
@given(smoothing=st.sampled_from([-0.01, 1.01, 2.0]))
def test_cross_entropy_refuses_smoothing_outside_of_0_to_1(target: Any, smoothing: float) -> None:
    with pytest.raises(ValueError, match=f"label_smoothing must be from 0 to 1, got {smoothing}"):
        mg.cross_entropy(np.zeros((2, 3)), target, label_smoothing=smoothing)
    for bound in (0, 1):
        y = mg.cross_entropy(np.zeros((2, 3)), target, label_smoothing=bound)
        assert y.item() == pytest.approx(math.log(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mg.cross_entropy(np.zeros((2, 3, 4)), np.zeros((2, 4), int)), r"not on axis 1 .* logits \(2, 3, 4\) and targets \(2, 4\)"),
        *((lambda target=target: mg.cross_entropy(1.0, target), "input must have classes on a last axis, got shape") for target in (0, 0.5)),
        (lambda: mg.cross_entropy(np.zeros((2, 3)), np.zeros((3, 1), int)), r"target must have shape \(2,\), got \(3, 1\)"),
        (lambda: mg.cross_entropy(np.zeros((2, 3, 4)), np.full((2, 3, 4), 0.3335)), "must sum to 1 over the last axis, not over axis 1"),
        (lambda: mg.cross_entropy(np.zeros((2, 2, 3)), np.full((2, 2, 3), 1 / 2)), "must sum to 1 over the last axis, not over axis 1"),
        (lambda: mg.cross_entropy(np.zeros((2, 3)), [0, 1], np.ones(2)), r"weight must have shape \(3,\), got \(2,\)"),
        (lambda: mg.cross_entropy(np.zeros((2, 3)), np.full((2, 3), 1 / 3), np.ones(2)), r"weight must have shape \(3,\), got \(2,\)"),
        *((lambda weight=weight: mg.linear_cross_entropy(1.0, weight, 0), "x must have features, a last axis, got a scalar") for weight in (np.zeros(3), np.zeros((4, 3)))),
        (lambda: mg.linear_cross_entropy(np.zeros((2, 3)), np.zeros((4, 2)), [0, 1]), r"linear_weight must have shape \(C, 3\), got \(4, 2\)"),
        (lambda: mg.linear_cross_entropy(np.zeros((2, 3)), np.zeros(3), [0, 1]), r"linear_weight must have shape \(C, 3\), got \(3,\)"),
        (lambda: mg.linear_cross_entropy(np.zeros((2, 4, 3)), np.zeros((5, 3, 3)), np.zeros((2, 4), int)), r"linear_weight must have shape \(C, 3\), got \(5, 3, 3\)"),
        (lambda: mg.linear_cross_entropy(np.zeros((2, 3)), np.zeros((4, 5)), [0, 1]), r"linear_weight must have shape \(C, 3\), got \(4, 5\)"),
        (lambda: mg.linear_cross_entropy(np.zeros((2, 3)), np.zeros((4, 3)), [0, 1], linear_bias=np.zeros(3)), r"linear_bias must have shape \(4,\), got \(3,\)"),
    ],
)  # fmt: skip
def test_cross_entropy_of_bad_shapes_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("smoothing", [0, 1e-6, np.float64(0.1), np.float32(0.5), 1, True])
@pytest.mark.parametrize("dtype", [np.float32, float])
def test_smoothing_of_any_size_and_type_has_its_formula(smoothing: Any, dtype: Any) -> None:
    x, target = np.array([[1.0, 2.0, -30.0]]), np.array([1])
    logp = x - np.log(np.exp(x).sum())
    expected = (smoothing - 1) * logp[0, 1] - smoothing * logp.mean()
    for weight in (None, np.ones(3)):
        y = mg.cross_entropy(x.astype(dtype), target, weight, label_smoothing=smoothing)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.data, expected, rtol=1e-6 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2), ()])
@pytest.mark.parametrize("block", [contextlib.nullcontext, mg.use_definitions])
def test_losses_of_rows_have_the_shape_of_the_targets(shape: Any, block: Any) -> None:
    with block():
        y = mg.cross_entropy(np.ones((*shape, 3)), np.zeros(shape, int), reduction="none")
        assert y.shape == shape
        for reduction, empty in (("sum", 0.0), ("mean", 0.0)):
            y = mg.cross_entropy(np.ones((*shape, 3)), np.zeros(shape, int), reduction=reduction)
            assert y.item() == pytest.approx(np.log(3) if shape == () else empty)
