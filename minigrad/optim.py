"""Optimizers and learning-rate schedules.

An optimizer moves the parameters of each of its groups into one flat array, of which they become
views, and their gradients into another. A step is then a few passes over those arrays, in blocks
that stay in the cache, however many parameters there are; clipping by norm is folded into it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .core.graph import mark_changed, notes_of
from .core.tensor import Tensor
from .kernels.blocks import BLOCK
from .runtime import keep_freed_memory

__all__ = [
    "SGD", "Adam", "AdamW", "Optimizer", "Schedule", "clip_grad_norm_", "cosine_schedule", "inverse_sqrt_schedule",
    "linear_schedule", "noam_schedule",
]  # fmt: skip


class _Group:
    """Parameters of one dtype that share their settings: flat arrays of values, gradients and state."""

    def __init__(self, parameters: list[Tensor], settings: dict[str, Any], state_names: tuple[str, ...]) -> None:
        self.parameters = parameters
        self.settings = settings
        self.steps = 0
        ends = list(itertools.accumulate(p.size for p in parameters))
        self.places = [slice(end - p.size, end) for p, end in zip(parameters, ends)]
        self.size = ends[-1]
        self.state: dict[str, np.ndarray] = dict.fromkeys(state_names, np.zeros(0))
        self.move(np.zeros)

    def move(self, zeros: Callable[[int, Any], np.ndarray]) -> None:
        """Move everything into flat arrays that `zeros(size, dtype)` makes."""
        dtype = self.parameters[0].dtype
        self.data = zeros(self.size, dtype)
        for p, place in zip(self.parameters, self.places):
            view = self.data[place].reshape(p.shape)
            view[...] = p.data
            p._data = view
        for name, old in self.state.items():
            self.state[name] = zeros(self.size, dtype)
            self.state[name][: len(old)] = old
        self.collect_in(zeros(self.size, dtype))

    def collect_in(self, grad: np.ndarray) -> None:
        """Let the gradients of the parameters be collected in this flat array."""
        self.grad = grad
        for p, place in zip(self.parameters, self.places):
            notes_of(p._needed_node("Optimizer")).grad_buffer = grad[place].reshape(p.shape)

    def gathered(self) -> list[slice]:
        """The stretches of the flat arrays whose parameters have a gradient, which is brought there."""
        runs: list[slice] = []
        for p, place in zip(self.parameters, self.places):
            if p._data.base is not self.data:
                raise RuntimeError(
                    f"a parameter of shape {p.shape} has other memory than when its optimizer was made; "
                    "convert (astype) or prune a model before its optimizer is made"
                )
            g = None if p._node is None else p._node.grad
            if g is None:
                continue
            g = g._data if isinstance(g, Tensor) else g
            if g.base is not self.grad:
                self.grad[place] = g.reshape(-1)
            if runs and runs[-1].stop == place.start:
                runs[-1] = slice(runs[-1].start, place.stop)
            else:
                runs.append(place)
        return runs


Work = list[tuple[_Group, slice]]  # blocks of flat arrays, to be gone through one by one


class Optimizer:
    """Changes parameters along their gradients; base of `SGD`, `Adam` and `AdamW`.

    `params` is an iterable of leaves, or of groups: dictionaries with "params" and settings of their
    own. With `clip_norm`, gradients are scaled down together where their norm is larger.
    """

    state_names: tuple[str, ...] = ()

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], clip_norm: float | None = None) -> None:
        if clip_norm is not None and clip_norm <= 0:
            raise ValueError(f"{type(self).__name__}: expected clip_norm > 0, got {clip_norm}")
        for name, value in defaults.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
                raise ValueError(f"{type(self).__name__}: expected {name} >= 0, got {value}")
        self.clip_norm = clip_norm
        self.param_groups: list[dict[str, Any]] = []
        self._groups: list[_Group] = []
        listed = list(params)
        seen: set[int] = set()
        for group in listed if listed and isinstance(listed[0], dict) else [{"params": listed}]:
            if unknown := set(group) - {"params", *defaults}:
                raise ValueError(f"{type(self).__name__}: unknown settings {sorted(unknown)} in a parameter group")
            settings = {**defaults, **group, "params": list(group["params"])}
            self.param_groups.append(settings)
            by_dtype: dict[Any, list[Tensor]] = {}
            for p in settings["params"]:
                if not isinstance(p, Tensor) or not p.is_leaf:
                    raise TypeError(f"{type(self).__name__}: expected leaf tensors, got {p!r:.80}")
                if id(p) in seen:
                    raise ValueError(f"{type(self).__name__}: a parameter of shape {p.shape} is given twice")
                seen.add(id(p))
                if p.requires_grad:
                    by_dtype.setdefault(p.dtype, []).append(p)
            self._groups += [_Group(ps, settings, self.state_names) for ps in by_dtype.values()]
        if not self._groups:
            raise ValueError(f"{type(self).__name__}: no parameter requires gradients")
        keep_freed_memory()  # not before: the memory that parameters had until now goes back to the system

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self._groups:
            for p in group.parameters:
                p.grad = None

    def step(self) -> float | None:
        """Change the parameters that have a gradient; the norm of all gradients, if it is to be clipped.

        A norm that is not finite is a FloatingPointError, and changes nothing.
        """
        work = self.work([group.gathered() for group in self._groups])
        norm, factor = self.clipping(0.0 if self.clip_norm is None else self.squares(work))
        self.update(work, factor, self.advance())
        return norm

    # The parts of a step, which `minigrad.parallel` lets several processes do.

    def work(self, runs: list[list[slice]]) -> Work:
        """The stretches of each group, in blocks."""
        return [
            (group, slice(start, min(start + BLOCK, run.stop)))
            for group, found in zip(self._groups, runs)
            for run in found
            for start in range(run.start, run.stop, BLOCK)
        ]

    def squares(self, work: Work) -> float:
        """The sum of the squares of gradients."""
        return sum(float(np.dot(group.grad[block], group.grad[block])) for group, block in work)

    def clipping(self, squares: float) -> tuple[float | None, float]:
        """The norm of all gradients, if it is to be clipped, and the factor that clips them."""
        if self.clip_norm is None:
            return None, 1.0
        norm = math.sqrt(squares) if squares >= 0 else math.nan
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"the norm of the gradients is {norm}; detect_anomaly() finds the operation that made it so"
            )
        return norm, min(1.0, self.clip_norm / (norm + 1e-6))

    def advance(self) -> list[Any]:
        """Count a step; the constants of each group for it."""
        for group in self._groups:
            group.steps += 1
            mark_changed(group.data)
        return [self._constants(group.settings, group.steps) for group in self._groups]

    def update(self, work: Work, factor: float, constants: list[Any]) -> None:
        """Change parameters, for gradients to be multiplied by `factor`."""
        own = dict(zip(map(id, self._groups), constants))
        for group, block in work:
            self._update(group, block, factor, own[id(group)])

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        """What all blocks of a step share."""
        return settings

    def _update(self, group: _Group, block: slice, factor: float, constants: Any) -> None:
        """Change one block of parameters, for gradients to be multiplied by `factor`."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Settings, step counts and flat state arrays: `{"groups": [...], "arrays": {"0.momentum": ...}}`."""
        groups = [{"steps": g.steps, **{k: v for k, v in g.settings.items() if k != "params"}} for g in self._groups]
        arrays = {f"{i}.{name}": array for i, g in enumerate(self._groups) for name, array in g.state.items()}
        return {"groups": groups, "arrays": arrays}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` of an optimizer of the same kind and parameters."""
        own = self.state_dict()
        expected = {name: array.shape for name, array in own["arrays"].items()}
        got = {name: np.shape(array) for name, array in state["arrays"].items()}
        if expected != got or len(own["groups"]) != len(state["groups"]):
            raise ValueError(f"the optimizer's state does not fit: expected arrays {expected}, got {got}")
        for group, settings in zip(self._groups, state["groups"]):
            group.steps = int(settings["steps"])
            group.settings.update({k: v for k, v in settings.items() if k != "steps"})
        for name, array in state["arrays"].items():
            own["arrays"][name][...] = array


class SGD(Optimizer):
    """p ← p - lr · d, with d = g, or with `momentum` μ: d ← μ d + g; with `nesterov`, g + μ d in its place.

    `weight_decay` adds that multiple of p to g.
    """

    def __init__(
        self, params: Iterable[Any], lr: float, momentum: float = 0.0, nesterov: bool = False,
        weight_decay: float = 0.0, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        if nesterov and momentum == 0:
            raise ValueError("SGD: nesterov needs a momentum")
        self.state_names = ("momentum",) if momentum else ()
        super().__init__(
            params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}, clip_norm
        )

    def _update(self, group: _Group, block: slice, factor: float, constants: Any) -> None:
        p = group.data[block]
        d = group.grad[block] * factor
        if constants["weight_decay"]:
            d += constants["weight_decay"] * p
        if constants["momentum"]:
            m = group.state["momentum"][block]
            m *= constants["momentum"]
            m += d
            d = d + constants["momentum"] * m if constants["nesterov"] else m
        p -= constants["lr"] * d


class Adam(Optimizer):
    """Kingma, Ba (2015), arXiv:1412.6980; `weight_decay` adds that multiple of the parameter to its gradient.

    Kept are the sums Σ β^k g and Σ β^k g², which are the paper's averages without their factors 1 - β.
    """

    state_names = ("sum_g", "sum_gg")
    decoupled = False

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"{type(self).__name__}: expected 0 <= beta < 1, got betas={betas}")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}, clip_norm)

    def _constants(self, settings: dict[str, Any], steps: int) -> Any:
        (b1, b2), lr, decay = settings["betas"], settings["lr"], settings["weight_decay"]
        # lr · m̂ / (√v̂ + eps), in terms of the sums: rate · sum_g / (√sum_gg + small)
        root = math.sqrt((1 - b2) / (1 - b2**steps))
        rate = lr * (1 - b1) / (1 - b1**steps) / root
        return b1, b2, rate, settings["eps"] / root, decay, 1 - lr * decay

    def _update(self, group: _Group, block: slice, factor: float, constants: Any) -> None:
        b1, b2, rate, small, decay, shrink = constants
        p, m, v = group.data[block], group.state["sum_g"][block], group.state["sum_gg"][block]
        t = group.grad[block] * factor
        if decay and self.decoupled:
            p *= shrink
        elif decay:
            t += decay * p
        m *= b1
        m += t
        t *= t
        v *= b2
        v += t
        np.sqrt(v, out=t)
        t += small
        np.divide(m, t, out=t)
        t *= rate
        p -= t


class AdamW(Adam):
    """Adam whose `weight_decay` shrinks the parameters directly: Loshchilov, Hutter (2019), arXiv:1711.05101."""

    decoupled = True

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.01, clip_norm: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, clip_norm)


def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> float:
    """Scale all gradients down together, in place, to a norm of at most `max_norm`; the norm they had.

    An optimizer's `clip_norm` does the same in passing.
    """
    grads = [p.grad.data for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in grads))
    if norm > max_norm:
        for g in grads:
            g *= max_norm / (norm + 1e-6)
    return norm


# -- schedules -------------------------------------------------------------------------------------


class Schedule:
    """Sets the learning rate of every group to its own times `factor(step)`, for steps 1, 2, 3, ..."""

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        self.optimizer = optimizer
        self.factor = factor
        self.base = [group["lr"] for group in optimizer.param_groups]
        self.count = 0
        self.step()

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return self.optimizer.param_groups[0]["lr"]

    def step(self) -> None:
        """Go on to the next step: call it after the optimizer's."""
        self.set(self.count + 1)

    def set(self, count: int) -> None:
        """Go to this step."""
        self.count = count
        for group, base in zip(self.optimizer.param_groups, self.base):
            group["lr"] = base * self.factor(count)


def noam_schedule(d_model: int, warmup: int = 4000) -> Callable[[int], float]:
    """d_model^-½ · min(step^-½, step · warmup^-1½): the paper's section 5.3; use it with lr=1."""
    return lambda step: d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def inverse_sqrt_schedule(warmup: int = 4000) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then down as the inverse of the root of the step."""
    return lambda step: min(step / warmup, (warmup / step) ** 0.5)


def cosine_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then down half a cosine to `final` at step `total`."""

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * done))

    return factor


def linear_schedule(total: int, warmup: int = 0, final: float = 0.0) -> Callable[[int], float]:
    """Up to 1 in `warmup` steps, then straight down to `final` at step `total`."""

    def factor(step: int) -> float:
        if step < warmup:
            return step / warmup
        return 1 + (final - 1) * min(1.0, (step - warmup) / max(1, total - warmup))

    return factor
