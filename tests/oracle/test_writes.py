"""Random programs with writes in PyTorch beside minigrad: values and gradients of all their arrays."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples, needs
from support.write_programs import SIZE, Step, programs, run

from minigrad import Tensor

torch = needs("torch")
points = st.lists(st.integers(-9, 9).map(lambda i: i / 4), min_size=SIZE, max_size=SIZE)


@max_examples(60)
@given(program=programs(repeated=False), x=points, seed=st.integers(0, 2**32 - 1))
def test_program_with_writes_agrees_with_pytorch(
    program: list[Step], x: list[float], seed: int
) -> None:
    weights = np.random.default_rng(seed).standard_normal((12, SIZE))
    leaves = Tensor(x, requires_grad=True), torch.tensor(x, dtype=torch.float64, requires_grad=True)
    ours, theirs = (run(program, leaf).results() for leaf in leaves)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.data, b.detach().numpy(), rtol=1e-12)
    try:
        for b, w in zip(theirs, weights):
            b.backward(torch.tensor(w[: len(b)]), retain_graph=True)
    except RuntimeError as error:  # PyTorch keeps no copy of what the graph saved
        assert "modified by an inplace operation" in str(error)
        return
    for a, w in zip(ours, weights):
        a.backward(w[: len(a)], retain_graph=True)
    grad = np.zeros(SIZE) if leaves[0].grad is None else leaves[0].grad.data
    np.testing.assert_allclose(grad, leaves[1].grad.numpy(), rtol=1e-10, atol=1e-10)


@max_examples(100)
@given(program=programs(repeated=False, gradients=True), x=points)
def test_gradients_and_hooks_after_writes_agree_with_pytorch(
    program: list[Step], x: list[float]
) -> None:
    def run_backward(leaf: Any) -> Any:
        arrays = run(program, leaf)
        sum([(a * (i + 1)).sum() for i, a in enumerate(arrays.written)]).backward()
        return arrays

    try:
        theirs = run_backward(torch.tensor(x, dtype=torch.float64, requires_grad=True))
    except RuntimeError as error:  # PyTorch keeps no copy of what the graph saved
        assert "modified by an inplace operation" in str(error)
        return
    ours = run_backward(Tensor(x, requires_grad=True))
    for a, b in zip([ours.x, *ours.results()], [theirs.x, *theirs.results()], strict=True):
        assert (a.is_leaf, a.requires_grad) == (b.is_leaf, b.requires_grad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a computed tensor without retain_grad()
            expected = b.grad
        if a.grad is None:
            assert expected is None or (a.is_leaf and not expected.any())
        else:
            np.testing.assert_allclose(a.grad.data, expected.numpy(), rtol=1e-10, atol=1e-10)
    for a, b in zip(ours.seen, theirs.seen, strict=True):
        np.testing.assert_allclose(nonzero(a), nonzero(b), rtol=1e-10, atol=1e-10)


def nonzero(gradients: Any) -> list[np.ndarray]:
    """Return gradients without zeros, which PyTorch's hooks get for values that were replaced."""
    arrays = [np.asarray(g.detach()) for g in gradients]
    return [a for a in arrays if a.any()]
