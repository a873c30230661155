"""What a NumPy, SciPy, PyTorch or JAX user writes, run on arrays and on tensors, by PyTorch and here; and its page."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spoken
from cases import each
from spoken import IDIOMS, LEFT, NUMPY, OTHERWISE, TORCH

import minigrad as mg
import nn
from minigrad import Tensor

ROOT = Path(__file__).parents[2]
rng = np.random.default_rng(0)
X = rng.uniform(0.2, 0.9, (3, 4))
SQUARE = rng.uniform(0.5, 2, (3, 3))
TRACKED = {
    "x": X, "y": rng.uniform(1.1, 2, (3, 4)), "n": np.where(np.arange(12).reshape(3, 4) == 6, np.nan, X), "B": SQUARE,
    "A": SQUARE @ SQUARE.T + np.eye(3), "v": rng.uniform(0.2, 0.9, 4), "w": rng.uniform(0.2, 0.9, 3),
    "w4": rng.uniform(0.2, 0.9, 4), "s": np.array(0.7), "t": rng.uniform(0.2, 0.9, (2, 3, 4)),
}  # fmt: skip
FREE = {
    "m": rng.random((3, 4)) < 0.6,
    "k": np.argsort(X, 1)[:, :2],
    "c": np.array([1, 0, 1, 0]),
    "np": np,
}
REFUSALS = (TypeError, ValueError, AttributeError, mg.GradientError, UserWarning)
EXPRESSIONS = [e for groups in (NUMPY, IDIOMS) for group in groups.values() for e in group]
NUMPY_VERSION = np.lib.NumpyVersion(np.__version__)
SINCE = {"np.clip(x, min=0.3)": "2.1.0", "np.trim_zeros(np.pad(x, 1))": "2.2.0"}
"""The NumPy that first takes a call of an older function."""
SPOKEN = [e for group in TORCH.values() for e in group]


def flat(value: Any) -> list[Any]:
    return (
        [part for v in value for part in flat(v)] if isinstance(value, (list, tuple)) else [value]
    )


def on_arrays(text: str, step: float = 0.0, along: Any = None) -> list[Any]:
    moved = {name: x + step * along[name] if along else x.copy() for name, x in TRACKED.items()}
    return flat(eval(text, {**moved, **FREE}))


def leaves_at(step: float = 0.0, along: Any = None) -> dict[str, Tensor]:
    return {
        name: Tensor(x + step * along[name] if along else x, requires_grad=True)
        for name, x in TRACKED.items()
    }


def tracked(value: Any) -> list[Tensor]:
    return [f for f in flat(value) if isinstance(f, Tensor) and f.requires_grad]


def slope_of(results: list[Tensor], leaves: dict[str, Tensor], along: Any, gs: list[Any]) -> Tensor:
    """The derivative of the results, weighted with gs, in a direction; it can be differentiated again."""
    grads = mg.gradients(results, list(leaves.values()), gs, create_graph=True, allow_unused=True)
    return Tensor(0.0) + sum(
        (g * along[name]).sum() for name, g in zip(leaves, grads) if g is not None
    )


def agree(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for f, e in zip(found, expected):
        if isinstance(e, (np.ndarray, np.generic, float, int)):
            np.testing.assert_allclose(np.asarray(getattr(f, "data", f)), e, rtol=1e-9)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::RuntimeWarning", "ignore:.int...of a tensor"
)
@pytest.mark.parametrize("group", {**NUMPY, **IDIOMS})
def test_as_numpy(group: str) -> None:
    each([*NUMPY.get(group, []), *IDIOMS.get(group, [])], as_numpy)


def as_numpy(text: str) -> None:
    if SINCE.get(text, "2.0.0") > NUMPY_VERSION or not all(
        hasattr(np, n) for n in re.findall(r"\bnp\.(\w+)", text)
    ):
        return  # this NumPy does not have it yet
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    expected = on_arrays(text)
    leaves = leaves_at()
    if text in LEFT and text not in OTHERWISE:
        with pytest.raises(REFUSALS, match=r"\w"):
            eval(text, {**leaves, **FREE})
        return
    found = flat(eval(text, {**leaves, **FREE}))
    if text in LEFT:
        return
    agree([f.detach() if isinstance(f, Tensor) else f for f in found], expected)
    results = tracked(found)
    if not results:
        return
    along = {name: rng.standard_normal(x.shape) for name, x in TRACKED.items()}
    along["A"] = (
        along["A"] + along["A"].T
    )  # the derivatives of functions of symmetric matrices are symmetric
    gs = [rng.standard_normal(f.shape).astype(f.dtype) for f in results]
    derivative = slope_of(results, leaves, along, gs)
    slope = derivative.item()
    h = 1e-3 if any(f.dtype == np.float32 for f in results) else 1e-6
    places = [i for i, f in enumerate(found) if isinstance(f, Tensor) and f.requires_grad]
    ends = [[on_arrays(text, step, along)[i] for i in places] for step in (h, -h)]
    difference = sum(float(np.nansum((a - b) * g)) for a, b, g in zip(*ends, gs)) / (2 * h)
    if not np.isfinite(slope):
        return
    assert slope == pytest.approx(difference, rel=1e-4, abs=1e-4 if h < 1e-3 else 1e-3)
    if derivative.requires_grad and h < 1e-3:
        slopes = []
        for moved in (leaves_at(h, along), leaves_at(-h, along)):
            ys = tracked(eval(text, {**moved, **FREE}))
            slopes.append(slope_of(ys, moved, along, gs).item())
        curvature = slope_of([derivative], leaves, along, [np.ones(())]).item()
        assert curvature == pytest.approx((slopes[0] - slopes[1]) / (2 * h), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("group", TORCH)
def test_as_pytorch(group: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
    each(TORCH[group], lambda text: as_pytorch(text, torch))


def as_pytorch(text: str, torch: Any) -> None:
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    results: list[Any] = []
    for library, layers, made in (
        (torch, torch.nn, lambda a: torch.tensor(a, requires_grad=True)),
        (mg, nn, lambda a: Tensor(a, requires_grad=True)),
    ):
        names = {name: made(x) for name, x in TRACKED.items()}
        names |= {
            "index": library.tensor(FREE["k"]),
            "labels": library.tensor([0, 2, 1]),
            "array": np.ones(2),
        }
        run = lambda names=names, library=library, layers=layers: eval(
            text, {**names, "torch": library, "nn": layers}
        )
        if library is mg and text in LEFT and text not in OTHERWISE:
            with pytest.raises(REFUSALS, match=r"\w"):
                run()
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append((run(), names))
    if text in LEFT:
        return
    (theirs, their_names), (ours, names) = results
    pairs = [*zip(flat(ours), flat(theirs))]
    assert len(flat(ours)) == len(flat(theirs))
    for f, e in pairs:
        if isinstance(e, torch.Tensor):
            np.testing.assert_allclose(
                np.asarray(getattr(f, "data", f)), e.detach().numpy(), rtol=1e-5, atol=1e-7
            )
        elif isinstance(e, (int, float, bool)):
            assert f == pytest.approx(e)
    tracked = [
        (f, e)
        for f, e in pairs
        if isinstance(e, torch.Tensor) and e.requires_grad and e.grad_fn is not None
    ]
    if tracked and "nn.Linear" not in text:
        gs = [rng.standard_normal(f.shape).astype(f.dtype) for f, _ in tracked]
        leaves = [name for name in TRACKED if their_names[name].requires_grad]
        found = mg.gradients(
            [f for f, _ in tracked], [names[n] for n in leaves], gs, allow_unused=True
        )
        expected = torch.autograd.grad(
            [e for _, e in tracked],
            [their_names[n] for n in leaves],
            [*map(torch.tensor, gs)],
            allow_unused=True,
        )
        for g, e in zip(found, expected):
            if e is not None:
                found_g = np.zeros(e.shape) if g is None else g.data
                np.testing.assert_allclose(found_g, e.numpy(), rtol=1e-4, atol=1e-6)


def test_the_lists_are_long_and_each_reason_has_its_line() -> None:
    assert len(EXPRESSIONS) >= 149 + 150 and len(EXPRESSIONS) + len(SPOKEN) >= 149 + 259
    assert len({*EXPRESSIONS}) == len(EXPRESSIONS) and len({*SPOKEN}) == len(SPOKEN)
    assert not LEFT.keys() - {*EXPRESSIONS} - {*SPOKEN}


def test_the_page_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="scipy is not installed")
    command = [sys.executable, spoken.__file__, str(tmp_path / "numpy.md")]
    subprocess.run(command, check=True, cwd=ROOT)
    made = (tmp_path / "numpy.md").read_text(encoding="utf-8")
    assert made == (ROOT / "docs" / "numpy.md").read_text(encoding="utf-8"), (
        f"run {' '.join(command[1:])}"
    )
