"""Programs about leaves between operations, for minigrad and for PyTorch.

Each program gets a library, `Ours` or `Theirs`, and returns numbers, lists of numbers, flags or None.
The expected results are those of PyTorch, which `tests/oracle/test_leaves.py` confirms.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import minigrad as mg
from minigrad import optim


class Ours:
    """minigrad."""

    SGD, Adam = optim.SGD, optim.Adam
    clip_grad_norm_ = staticmethod(optim.clip_grad_norm_)
    no_grad = staticmethod(mg.no_grad)

    @staticmethod
    def leaf(*values: float) -> Any:
        """Return a leaf that requires gradients."""
        return mg.Tensor(values, True, dtype=float)


def values(t: Any) -> Any:
    """Return a tensor as lists, and None itself."""
    return None if t is None else t.tolist()


def rounded(result: Any) -> Any:
    """Return a result with numbers of six decimals."""
    if isinstance(result, (list, tuple)):
        return type(result)(map(rounded, result))
    return round(result, 6) if isinstance(result, float) else result


# -- freezing


def backward_after_thawing(lib: Any) -> Any:
    """Run the backward pass of a graph that was recorded before the leaf was frozen."""
    p = lib.leaf(1, 2)
    loss = (p * p).sum()
    p.requires_grad = False
    p.requires_grad = True
    loss.backward()
    return values(p.grad)


def backward_while_frozen(lib: Any) -> Any:
    """A frozen leaf collects no gradient; other leaves of the graph do."""
    p, q = lib.leaf(1, 2), lib.leaf(3, 4)
    loss = (p * q).sum()
    p.requires_grad = False
    loss.backward()
    before = values(p.grad)
    p.requires_grad = True
    return before, values(p.grad), values(q.grad)


def gradient_while_frozen(lib: Any) -> Any:
    """Freezing keeps the gradient, and the next pass after thawing adds to it."""
    p = lib.leaf(1, 2)
    (p * p).sum().backward()
    p.requires_grad = False
    frozen = values(p.grad)
    p.requires_grad = True
    (p * p).sum().backward()
    return frozen, values(p.grad)


def gradient_set_while_frozen(lib: Any) -> Any:
    """The gradient of a frozen leaf can be replaced and dropped."""
    p = lib.leaf(1, 2)
    (p * p).sum().backward()
    p.requires_grad = False
    p.grad = lib.leaf(5, 6).detach()
    replaced = values(p.grad)
    p.grad = None
    return replaced, values(p.grad)


def flags_while_frozen(lib: Any) -> Any:
    """Operations on a frozen leaf are not recorded."""
    p = lib.leaf(1, 2)
    p.requires_grad_(False)
    flags = [p.requires_grad, p.is_leaf, (p * 2).requires_grad]
    p.requires_grad_()
    return [*flags, p.requires_grad, p.is_leaf, (p * 2).requires_grad]


def hooks_of_frozen_leaf(lib: Any) -> Any:
    """A hook outlives freezing; it runs in a pass through an older graph, too."""
    p, seen = lib.leaf(1, 2), []
    handle = p.register_hook(lambda g: seen.append(values(g)))
    loss = (p * 3).sum()
    p.requires_grad = False
    loss.backward()
    p.requires_grad = True
    (p * p).sum().backward()
    handle.remove()
    (p * p).sum().backward()
    return seen, values(p.grad)


def write_while_frozen(lib: Any) -> Any:
    """A frozen leaf can be changed in place."""
    p = lib.leaf(1, 2)
    p.requires_grad = False
    p += 1
    p.requires_grad = True
    (p * p).sum().backward()
    return values(p.detach()), values(p.grad)


def recorded_write_while_frozen(lib: Any) -> Any:
    """A frozen leaf that gets computed values in place is a leaf no more."""
    p, q = lib.leaf(1, 2), lib.leaf(3, 4)
    p.requires_grad = False
    p += q * 2
    (p * p).sum().backward()
    return p.is_leaf, values(q.grad)


def copies_of_frozen_leaf(lib: Any) -> Any:
    """A deep copy has the gradient and stays frozen; it can be thawed alone."""
    p = lib.leaf(1, 2)
    (p * p).sum().backward()
    p.requires_grad = False
    q = copy.deepcopy(p)
    flags = q.requires_grad, values(q.grad)
    q.requires_grad = True
    (q * 3).sum().backward()
    return flags, values(q.grad), values(p.grad), p.requires_grad


def step_after_thawing(lib: Any) -> Any:
    """A step moves the parameters that the loss was computed from before they were frozen."""
    p = lib.leaf(1, 2)
    sgd = lib.SGD([p], lr=0.5)
    loss = (p * p).sum()
    p.requires_grad = False
    p.requires_grad = True
    loss.backward()
    sgd.step()
    return values(p.detach())


def step_while_frozen(lib: Any) -> Any:
    """A step moves each parameter that has a gradient; `zero_grad` drops it."""
    p, q = lib.leaf(1, 2), lib.leaf(3, 4)
    sgd = lib.SGD([p, q], lr=0.5)
    (p * q).sum().backward()
    p.requires_grad = False
    sgd.step()
    sgd.zero_grad()
    moved = values(p.detach()), values(p.grad)
    (q * 2).sum().backward()
    sgd.step()
    return moved, values(p.detach()), values(q.detach())


def adversarial_step(lib: Any) -> Any:
    """As for a GAN: the generator's step with a frozen discriminator, then the discriminator's."""
    g, d = lib.leaf(1, 2), lib.leaf(0.5, 0.25)
    of_g, of_d = lib.SGD([g], lr=0.1), lib.SGD([d], lr=0.1)
    real = (d * 3).sum()
    d.requires_grad = False
    (d * g).sum().backward()
    of_g.step()
    d.requires_grad = True
    (real + (d * g.detach()).sum()).backward()
    of_d.step()
    return values(g.detach()), values(d.detach())


def clipping_while_frozen(lib: Any) -> Any:
    """The gradient of a frozen leaf counts for the norm."""
    p = lib.leaf(1.5, 2)
    (p * p).sum().backward()
    p.requires_grad = False
    return float(lib.clip_grad_norm_([p], 1000.0)), values(p.grad)


# -- gradients that the program keeps


def surgery(lib: Any, make: str = "SGD") -> Any:
    """Project the gradient of one task onto the normal plane of another one (Yu et al., 2020)."""
    p = lib.leaf(1, 2)
    optimizer = getattr(lib, make)([p], lr=0.5)
    grads = []
    for task in ((1.0, -2.0), (1.0, 1.0)):
        optimizer.zero_grad()
        (p * lib.leaf(*task).detach()).sum().backward()
        grads.append(p.grad)
    a, b = grads
    p.grad = a - (a * b).sum() / (b * b).sum() * b + b
    optimizer.step()
    return values(a), values(b), values(p.detach())


def cosines(lib: Any, make: str = "SGD") -> Any:
    """Compare the gradients of three tasks, with a step after each."""
    p = lib.leaf(1, 2)
    optimizer = getattr(lib, make)([p], lr=0.5)
    kept = []
    for factor in (1.0, -2.0, 3.0):
        optimizer.zero_grad()
        (p * factor).sum().backward()
        kept.append(p.grad)
        optimizer.step()
    return [float((a * b).sum()) for a in kept for b in kept]


def kept_views(lib: Any, make: str = "SGD") -> Any:
    """Keep a view and a detached gradient, of a pass that adds up several uses."""
    p = lib.leaf(1, 2)
    optimizer = getattr(lib, make)([p], lr=0.5)
    (p * 2 + p * p).sum().backward()
    kept = p.grad[1:], p.grad.detach(), p.grad.reshape(2, 1)
    optimizer.zero_grad()
    (p * 7).sum().backward()
    lib.clip_grad_norm_([p], 1.0)
    return [values(g) for g in kept]


def gradient_that_is_added_to(lib: Any, make: str = "SGD") -> Any:
    """Without `zero_grad`, the next pass adds to the gradient that the program kept."""
    p = lib.leaf(1, 2)
    optimizer = getattr(lib, make)([p], lr=0.5)
    (p * 2).sum().backward()
    kept = p.grad
    (p * 3).sum().backward()
    added = values(kept)
    optimizer.zero_grad(set_to_none=False)
    return added, values(kept), values(p.grad)


def graph_of_a_gradient(lib: Any, make: str = "SGD") -> Any:
    """A graph reads a gradient, which the next passes leave unchanged."""
    p, q = lib.leaf(1, 2), lib.leaf(3, 4)
    optimizer = getattr(lib, make)([p], lr=0.5)
    (p * 2).sum().backward()
    loss = (q * p.grad).sum()
    for _ in range(2):
        optimizer.zero_grad()
        (p * 3).sum().backward()
        optimizer.step()
    loss.backward()
    return values(q.grad)


def gradient_kept_before_the_optimizer(lib: Any, make: str = "SGD") -> Any:
    """A gradient from before the optimizer was made is used in its step."""
    p = lib.leaf(1, 2)
    (p * 2).sum().backward()
    kept = p.grad
    optimizer = getattr(lib, make)([p], lr=0.5)
    optimizer.step()
    optimizer.zero_grad()
    (p * 3).sum().backward()
    return values(kept), values(p.grad)


def gradients_that_hooks_read(lib: Any, make: str = "SGD") -> Any:
    """A hook of an older leaf reads the gradient of a newer one, during the pass."""
    p, q = lib.leaf(1, 2), lib.leaf(3, 4)
    optimizer, kept = getattr(lib, make)([p, q], lr=0.5), []
    p.register_hook(lambda g: None if q.grad is None else kept.append(q.grad))
    (q * 2).sum().backward()
    for _ in range(2):
        (p * q).sum().backward()
    optimizer.zero_grad()
    (q * 5).sum().backward()
    return len(kept), values(q.grad)


Program = Callable[[Any], Any]

FREEZING: dict[Program, Any] = {
    backward_after_thawing: [2, 4],
    backward_while_frozen: (None, None, [1, 2]),
    gradient_while_frozen: ([2, 4], [4, 8]),
    gradient_set_while_frozen: ([5, 6], None),
    flags_while_frozen: [False, True, False, True, True, True],
    hooks_of_frozen_leaf: ([[3, 3], [2, 4]], [4, 8]),
    write_while_frozen: ([2, 3], [4, 6]),
    recorded_write_while_frozen: (False, [28, 40]),
    copies_of_frozen_leaf: ((False, [2, 4]), [5, 7], [2, 4], False),
    step_after_thawing: [0, 0],
    step_while_frozen: (([-0.5, 0], None), [-0.5, 0], [1.5, 2]),
    adversarial_step: ([0.95, 1.975], [0.105, -0.2475]),
    clipping_while_frozen: (5, [3, 4]),
}
KEEPING: dict[Callable[..., Any], Any] = {
    surgery: ([1, -2], [1, 1], {"SGD": [-0.25, 2.25], "Adam": [0.5, 2.5]}),
    cosines: [2, -4, 6, -4, 8, -12, 6, -12, 18],
    kept_views: [[6], [4, 6], [[4], [6]]],
    gradient_that_is_added_to: ([5, 5], [0, 0], [0, 0]),
    graph_of_a_gradient: [2, 2],
    gradient_kept_before_the_optimizer: ([2, 2], [3, 3]),
    gradients_that_hooks_read: (2, [5, 5]),
}


def all_programs() -> list[tuple[str, Program, Any]]:
    """Return the name, the function and the expected result of each program."""
    table = [(f.__name__, f, expected) for f, expected in FREEZING.items()]
    for make in ("SGD", "Adam"):
        for f, expected in KEEPING.items():
            if isinstance(expected, tuple):
                expected = tuple(x[make] if isinstance(x, dict) else x for x in expected)
            table.append(
                (f"{f.__name__}-{make}", lambda lib, f=f, make=make: f(lib, make), expected)
            )
    return table
