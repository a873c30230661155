"""PyTorch's own sample inputs, run through every op that both libraries have.

`op_db` is PyTorch's list of its ops, with sample inputs of each; `adapters.TABLE` says how minigrad
expresses them. Values and gradients have to agree in float64 to 1e-8. A sample is left out only for a
reason, which is counted and printed.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adapters
import hypothesis
import numpy as np
import pytest
from adapters import DETERMINED, TABLE, LeftOut, left_out
from opinfo import NO_GRADIENT

import minigrad as mg
from minigrad.core.registry import FUNCTIONS, OPS
from minigrad.core.watch import Watch

torch: Any = pytest.importorskip("torch", reason="the comparison with PyTorch needs torch")
torch.set_num_threads(1)


def entries() -> dict[str, Any]:
    """PyTorch's list. Its test utilities take seconds to import, warn, and load a hypothesis profile of their own."""
    pytest.importorskip("expecttest", reason="the sample inputs of PyTorch need expecttest")
    profile = hypothesis.settings.default
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    hypothesis.settings.register_profile("ours", profile)
    hypothesis.settings.load_profile("ours")
    return {":".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db}


NOT_COMPARED = {
    **dict.fromkeys(
        ("cbrt", "merge_heads", "split_heads"),
        "opinfo holds it against NumPy and against differences",
    ),
    **dict.fromkeys(("safe_divide", "safe_multiply"), "only rules use it, for second derivatives"),
    **dict.fromkeys(("split_heads", "merge_heads"), "only attention uses it; opinfo holds it"),
    "relu_dropout": "its results are random",
    "dropout": "its results are random, except for p = 0",
}
"""Ops whose gradients no sample compares, and why."""

SYMMETRIC = {"linalg.eigh", "linalg.eigvalsh"}
"""Ops of symmetric matrices, of whose gradients the symmetric part counts."""

NUMPY_ALONE = {
    "convolve", "divmod", "interp", "polyval", "select", "append", "average", "block", "compress",
    "extract", "median", "nanmax", "nanmin", "nanprod",
    "nanstd", "nanvar", "partition", "percentile", "ptp", "relu_dropout", "sliding_window_view",
    "cond", "correlate", "diagflat", "unwrap",
}  # fmt: skip
"""Functions that PyTorch has not, or means otherwise; `opinfo` holds them against NumPy's."""


class Reached(Watch):
    """Notes the ops that backward passes run through."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def backward(self, node: Any, rule: Any, g: Any, args: Any) -> Any:
        self.names.add(node.op.name)
        return super().backward(node, rule, g, args)


class Tally:
    """What the comparison has found so far."""

    def __init__(self) -> None:
        self.ops = 0
        self.agree = 0  # samples
        self.gradients = 0  # samples that have some
        self.left_out: Counter[str] = Counter()  # samples, by reason
        self.reached: set[str] = set()  # ops of minigrad, by a backward pass

    def __str__(self) -> str:
        reasons = "; ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
        left_out = f"; {self.left_out.total():,} left out ({reasons})" if reasons else ""
        return f"op_db: {self.ops} ops, {self.agree:,} samples agree ({self.gradients:,} with gradients){left_out}"


def samples(op: Any) -> Iterator[Any]:
    from torch.testing._internal.common_utils import set_rng_seed

    dtype = torch.float64 if torch.float64 in op.dtypes else torch.int64
    set_rng_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own use of what it deprecates
        yield from op.sample_inputs_func(
            op, "cpu", dtype, requires_grad=dtype.is_floating_point and op.supports_autograd
        )


def converted(value: Any, leaves: dict[Any, mg.Tensor]) -> Any:
    """An argument in NumPy's terms; the tensors that want a gradient are noted in `leaves`."""
    if isinstance(value, torch.Tensor):
        array = value.detach().numpy().copy()
        if value.requires_grad:
            return leaves.setdefault(value, mg.Tensor(array, requires_grad=True))
        return mg.Tensor(array) if value.is_floating_point() else array
    if isinstance(value, (list, tuple)):
        return type(value)([converted(part, leaves) for part in value])
    return torch.empty((), dtype=value).numpy().dtype if isinstance(value, torch.dtype) else value


def array(y: Any) -> np.ndarray:
    return np.asarray(
        y.data
        if isinstance(y, mg.Tensor)
        else y.numpy(force=True)
        if isinstance(y, torch.Tensor)
        else y
    )


def results(y: Any) -> list[Any]:
    """What an op returns as a flat list: only what is floating, where something is."""
    flat = (
        [result for part in y for result in results(part)] if isinstance(y, (list, tuple)) else [y]
    )
    return [result for result in flat if array(result).dtype.kind == "f"] or flat


def assert_equal(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind == "f":
        assert found.dtype == expected.dtype, (
            f"{what}: dtype {found.dtype}, expected {expected.dtype}"
        )
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8, err_msg=what)


def gradients(of: Any, ys: Any, xs: Any, gs: Any) -> list[np.ndarray]:
    """The gradients that `of` gives, with zeros where a result does not depend on an input."""
    pairs = [(y, g) for y, g in zip(ys, gs) if getattr(y, "requires_grad", False)]
    xs, (ys, gs) = [*xs], zip(*pairs) if pairs else ((), ())
    found = of(ys, xs, gs, allow_unused=True) if pairs else [None] * len(xs)
    return [np.zeros(x.shape) if g is None else array(g) for x, g in zip(xs, found)]


def compare(op: Any, name: str, sample: Any, rng: np.random.Generator) -> bool:
    """Compare values, and gradients of the inputs for random gradients of the results; whether there were any."""
    adapter = TABLE[name]
    leaves: dict[Any, mg.Tensor] = {}
    determined = DETERMINED.get(name, lambda y: y)
    args = converted([sample.input, *sample.args], leaves)
    options = {name: converted(value, leaves) for name, value in sample.kwargs.items()}
    if any(x.dtype != np.float64 for x in leaves.values()):
        left_out("are in single precision")
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN and infinity have to agree as well
        ours = results(determined(adapter(*args, **options)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = results(determined(op(sample.input, *sample.args, **sample.kwargs)))

    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}"
    for y, expected in zip(ours, theirs):
        assert_equal(array(y), array(expected), "values")

    gs = [rng.standard_normal(np.shape(y)).astype(array(y).dtype) for y in ours]
    expected = gradients(torch.autograd.grad, theirs, leaves, map(torch.from_numpy, gs))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = gradients(mg.gradients, ours, leaves.values(), gs)
    for f, e in zip(found, expected):
        if name in SYMMETRIC and f.ndim > 1:
            f, e = f + np.swapaxes(f, -1, -2), e + np.swapaxes(e, -1, -2)
        assert_equal(f, e, "gradients")
    return bool(leaves)


def one_op(op: Any, name: str, tally: Tally) -> None:
    rng, agree = np.random.default_rng(0), 0
    for sample in samples(op):
        try:
            with Reached(tally.reached):
                tally.gradients += compare(op, name, sample, rng)
        except LeftOut as reason:
            tally.left_out[str(reason)] += 1
        except Exception as error:
            raise AssertionError(f"{sample.summary()}\n{type(error).__name__}: {error}") from error
        else:
            agree += 1
    assert agree, "every sample was left out"
    tally.ops += 1
    tally.agree += agree


def test_all_samples_agree_and_reach_every_op(tell: Callable[[str], None]) -> None:
    """In one test, since only all of them reach every op; what is wrong with any is told in the end."""
    found, tally, wrong = entries(), Tally(), []
    for name in TABLE:
        if name in found:
            try:
                one_op(found[name], name, tally)
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    tell(f"{tally}; {len(TABLE.keys() - found.keys())} ops are not in this version of PyTorch")
    assert not wrong, "\n\n".join(wrong)
    assert set(OPS) - tally.reached == set(NOT_COMPARED)


def test_every_function_is_called() -> None:
    called = set(re.findall(r"\bmg\.(\w+)", Path(adapters.__file__).read_text(encoding="utf-8")))
    assert set(FUNCTIONS) - NO_GRADIENT - NUMPY_ALONE <= called
    assert not NUMPY_ALONE & called
