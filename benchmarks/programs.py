"""Benchmark `programs`: value and gradient of eight small programs of NumPy users.

Each is written once for every library, with the names of NumPy. A library that has writes into
arrays uses them (`xp.writes`); the others stack rows, which their users do, too. `PROGRAMS` gives
three sizes each. A library is left out if it has no function for a program.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from statistics import geometric_mean, median
from typing import Any

import numpy as np
from harness import compare

NAMES = {
    "minigrad": "minigrad", "torch": "PyTorch", "autograd": "autograd", "mygrad": "MyGrad",
    "jax": "JAX", "jax:compiled": "JAX, jit",
}  # fmt: skip


class Functions:
    """Functions by the names of NumPy: those given, and the others from modules.

    Parameters
    ----------
    modules : module
        Where names are looked up, in this order.
    writes : bool
        Whether elements of a recorded array can be assigned.
    rereads : bool
        Whether an array can be read, written, and read again.
    **functions
        Those with another name or signature: `constant`, `copied`, `cho_solve`, ...
    """

    def __init__(self, *modules: Any, writes: bool, rereads: bool, **functions: Any) -> None:
        self.modules, self.writes, self.rereads = modules, writes, rereads
        vars(self).update(functions)

    def scan(self, step: Callable[[Any, Any], Any], state: Any, rows: Any) -> Any:
        """Return `state` after a step for each row; JAX compiles one step for all."""
        for row in rows:
            state = step(state, row)
        return state

    def __getattr__(self, name: str) -> Any:
        return next(getattr(m, name) for m in self.modules if hasattr(m, name))


Program = Callable[[Any, int], tuple[Callable[[Any], Any], np.ndarray]]


def logistic(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the loss of a logistic regression with a penalty, and a start."""
    rng = np.random.default_rng(0)
    inputs = np.c_[np.ones(n), rng.normal(size=(n, 4))]
    p = 1 / (1 + np.exp(-inputs @ [0.5, 1.0, -2.0, 0.0, 3.0]))
    x, y = xp.constant(inputs), xp.constant((rng.random(n) < p).astype(float))
    zeros = xp.constant(np.zeros(n))

    def loss(w: Any) -> Any:
        z = x @ w
        return xp.sum(xp.logaddexp(zeros, z) - y * z) + 0.5 * xp.sum(w[1:] ** 2)

    return loss, np.full(5, 0.1)


def likelihood(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the loss of censored normal values and negative binomial counts, and a start."""
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 2, n)
    seen = np.minimum(1 + 2 * places + rng.normal(0, 0.7, n), 4.0)
    x, y, limited = xp.constant(places), xp.constant(seen), xp.constant(seen >= 4.0)
    counts = xp.constant(rng.poisson(np.exp(0.3 + 0.5 * places)).astype(float))

    def loss(theta: Any) -> Any:
        a, b, log_s, c, d, log_k = theta
        z = (y - a - b * x) / xp.exp(log_s)
        density = -0.5 * z**2 - log_s - 0.5 * np.log(2 * np.pi)
        total = xp.sum(xp.where(limited, xp.log_ndtr(-z), density))
        k, m = xp.exp(log_k), xp.exp(c + d * x)
        rest = k * xp.log(k / (k + m)) + counts * xp.log(m / (k + m))
        return -total - xp.sum(xp.gammaln(counts + k) - xp.gammaln(k) + rest)

    return loss, np.array([0.5, 1.5, -0.2, 0.1, 0.4, 0.2])


def ode(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the loss of a neural differential equation (Runge-Kutta), and a start."""
    rng = np.random.default_rng(2)
    t = np.linspace(0, 3, n)
    h = t[1]
    truth = np.stack([np.cos(t), -np.sin(t)], axis=1)
    target = xp.constant(truth)

    def loss(p: Any) -> Any:
        w, b, v, c = p[:16].reshape(2, 8), p[16:24], p[24:40].reshape(8, 2), p[40:]

        def field(y: Any) -> Any:
            return xp.tanh(y @ w + b) @ v + c

        def following(y: Any) -> Any:
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        if not xp.rereads:  # add up the squares on the way
            step = lambda state, row: (
                following(state[0]),
                state[1] + xp.sum((state[0] - row) ** 2),
            )
            return xp.scan(step, (target[0], 0.0), target)[1] / (2 * n)
        path = xp.zeros((n, 2))
        path[0] = target[0]
        for i in range(n - 1):
            path[i + 1] = following(path[i])
        return xp.mean((path - target) ** 2)

    return loss, rng.normal(0, 0.3, 42)


def kalman(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the negative log-likelihood of a Kalman filter, and a start."""
    rng, dt = np.random.default_rng(3), 0.1
    seen = xp.constant(np.cumsum(rng.normal(0.1, 0.1, n)) + rng.normal(0, 0.3, n))
    f, g = xp.constant(np.array([[1, dt], [0, 1]])), xp.constant(np.array([[1.0, 0.0]]))
    shape = xp.constant(np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]]))
    eye, one, origin = xp.constant(np.eye(2)), xp.constant(np.eye(1)), xp.constant(np.zeros(2))

    def loss(theta: Any) -> Any:
        q, r = xp.exp(theta)

        def step(state: Any, row: Any) -> Any:
            x, p, total = state
            x = f @ x
            p = f @ p @ f.T + q * shape
            v = row - g @ x
            s = g @ p @ g.T + r * one
            k = p @ g.T @ xp.linalg.inv(s)
            total = total + xp.log(xp.linalg.det(2 * np.pi * s)) + v @ xp.linalg.solve(s, v)
            return x + k @ v, (eye - k @ g) @ p, total

        return 0.5 * xp.scan(step, (origin, eye, 0.0), seen)[2]

    return loss, np.log([0.1, 0.1])


def gaussian_process(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the negative log-likelihood of a Gaussian process, and a start."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-3, 3, n)
    distances = xp.constant((x[:, None] - x) ** 2)
    y, eye = xp.constant(np.sin(2 * x) + 0.1 * rng.normal(size=n)), xp.constant(np.eye(n))

    def loss(theta: Any) -> Any:
        size, length, noise = xp.exp(2 * theta)
        k = size * xp.exp(-0.5 * distances / length) + (noise + 1e-8) * eye
        factor = xp.linalg.cholesky(k)
        return 0.5 * y @ xp.cho_solve(factor, y) + xp.sum(xp.log(xp.diag(factor)))

    return loss, np.array([0.1, 0.2, -1.0])


def clustering(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the loss of soft clustering around three centres, and a start."""
    rng = np.random.default_rng(5)
    points = np.concatenate([rng.normal(m, 0.4, (n // 3, 2)) for m in ([0, 0], [3, 0], [0, 3])])
    x = xp.constant(points)

    def loss(flat: Any) -> Any:
        centres = flat.reshape(3, 2)
        squares = xp.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
        return -xp.mean(xp.logsumexp(-2.0 * squares, -1)) / 2.0

    return loss, points[[0, n // 2, -1]].ravel()


def springs(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the distance of a thrown chain of springs from a target, and a start."""
    masses, dt, rest = 5, 0.02, 0.5
    weight = xp.constant(np.tile([0.0, -9.81], (masses, 1)))
    target = xp.constant(np.array([2.5, 0.5]))
    start = np.stack([rest * np.arange(masses), np.zeros(masses)], axis=1)

    def between(a: Any, b: Any) -> Any:
        d = b - a
        length = xp.sqrt(xp.sum(d * d))
        return 40.0 * (length - rest) * d / length

    def with_writes(speed: Any) -> Any:
        places, speeds = xp.copied(start), xp.zeros((masses, 2))
        speeds[-1] = speed
        for _ in range(n):
            force = weight - 0.3 * speeds
            for i in range(masses - 1):
                f = between(places[i], places[i + 1])
                force[i] += f
                force[i + 1] -= f
            speeds += dt * force
            speeds[0] = 0.0
            places += dt * speeds
        return xp.sum((places[-1] - target) ** 2)

    def with_rows(speed: Any) -> Any:
        still = xp.constant(np.zeros(2))

        def step(state: Any, _: Any) -> Any:
            places, speeds = state
            pulls = [between(a, b) for a, b in itertools.pairwise(places)] + [still]
            forces = [
                weight[i] - 0.3 * speeds[i] + pulls[i] - pulls[i - 1] for i in range(1, masses)
            ]
            speeds = [still, *(v + dt * force for v, force in zip(speeds[1:], forces))]
            return [a + dt * v for a, v in zip(places, speeds)], speeds

        places, speeds = [xp.constant(row) for row in start], [still] * (masses - 1) + [speed]
        places, _ = xp.scan(step, (places, speeds), np.arange(n))
        return xp.sum((places[-1] - target) ** 2)

    return (with_writes if xp.writes else with_rows), np.array([1.0, 3.0])


def image_filter(xp: Any, n: int) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Return the loss of a 5 × 5 filter that sharpens an image, and a start."""
    rng = np.random.default_rng(6)
    clean = np.zeros((n, n))
    clean[n // 4 : -n // 4, n // 3 : -n // 3] = 1.0
    blurred = sum(np.roll(clean, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) / 9
    padded = np.pad(blurred + 0.01 * rng.normal(size=(n, n)), 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    views, wanted = xp.constant(np.ascontiguousarray(windows)), xp.constant(clean)

    def loss(flat: Any) -> Any:
        kernel = flat.reshape(5, 5)
        kernel = (kernel + kernel.T) / 2
        image = xp.clip(xp.einsum("ijkl,kl->ij", views, kernel), -0.5, 1.5)
        across, down = image[:, 1:] - image[:, :-1], image[1:] - image[:-1]
        edges = xp.mean(xp.hypot(across[1:], down[:, 1:]))
        return xp.mean((image - wanted) ** 2) + 1e-3 * edges + 1e-3 * xp.sum(xp.abs(flat))

    return loss, np.random.default_rng(7).normal(0.04, 0.02, 25)


PROGRAMS: dict[str, tuple[Program, tuple[int, int, int]]] = {
    "logistic regression": (logistic, (50, 500, 5000)),
    "censored likelihood": (likelihood, (50, 500, 5000)),
    "neural ODE": (ode, (10, 30, 100)),
    "Kalman filter": (kalman, (20, 100, 400)),
    "Gaussian process": (gaussian_process, (20, 60, 180)),
    "soft clustering": (clustering, (60, 600, 6000)),
    "springs, with writes": (springs, (15, 60, 240)),
    "image filter": (image_filter, (12, 24, 96)),
}


def task(xp: Any, name: str, size: int, derive: Callable[..., Any]) -> Callable[[], None]:
    """Return a step that computes value and gradient of a program.

    `derive(f)` returns a function of an array with the value and the gradient of f. The step
    counts its CPU time, and its facts are the value, the gradient, and the time of a first call.
    """
    f, start = PROGRAMS[name][0](xp, size)
    with_gradient = derive(f)
    began = time.process_time()
    value, gradient = with_gradient(start)
    first = time.process_time() - began

    def step() -> None:
        with_gradient(start)

    step.facts = {"value": float(value), "gradient": np.asarray(gradient).tolist(), "first": first}  # type: ignore[attr-defined]
    step.counts = lambda: {"cpu": time.process_time()}  # type: ignore[attr-defined]
    return step


def programs(rounds: int, rivals: Sequence[str]) -> dict[str, Any]:
    """Measure CPU time of value and gradient at three sizes, after checking that all agree."""
    chosen = [name for name in NAMES if name.partition(":")[0] in ("minigrad", *rivals)]
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    result: dict[str, Any] = {}
    titles = "".join(f"{name:>10}" for name in NAMES.values())
    print(f"CPU ms of value and gradient   {titles}   (first call of jit)")
    for name, (_, sizes) in PROGRAMS.items():
        for size in sizes:
            libraries = [name for name in chosen if name != "jax" or size < sizes[2]]  # seconds
            workers = compare(libraries, "program", {"name": name, "size": size}, rounds)
            for worker in workers[1:]:
                for key in ("value", "gradient"):
                    expected = workers[0].facts[key]
                    np.testing.assert_allclose(worker.facts[key], expected, 1e-5, 1e-7)
            times = {w.library: 1e3 * median(c["cpu"] for c in w.counts) for w in workers}
            first = {w.library: 1e3 * w.facts["first"] for w in workers}
            result[f"{name}, {size}"] = {"cpu_ms": times, "first_ms": first}
            row = "".join(f"{times.get(library, np.nan):10.2f}" for library in NAMES)
            print(f"{name:24}{size:7}{row}{first.get('jax:compiled', np.nan):13.0f}", flush=True)
    for library in list(NAMES)[1:]:
        both = [r["cpu_ms"] for r in result.values() if library in r["cpu_ms"]]
        if both:
            ratios = [times["minigrad"] / times[library] for times in both]
            print(
                f"minigrad's time as a multiple of that of {NAMES[library]}: geometric mean "
                f"{geometric_mean(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"
            )
    return result
