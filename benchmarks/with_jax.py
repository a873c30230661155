"""Tasks in JAX with jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from functional import Model, adam, parameters
from jax import scipy
from programs import Functions, task
from sizes import SIZES

VERSION = jax.__version__


def train(size: str, **changes: Any) -> Callable[[], None]:
    """Return a compiled training step: dropout, smoothed loss, backward, clipping, Adam."""
    s = SIZES[size]._replace(**changes)
    source, target = s.data()
    p = {name: jnp.asarray(array) for name, array in parameters(s).items()}
    m, v = ({name: jnp.zeros_like(array) for name, array in p.items()} for _ in range(2))
    state: list[Any] = [p, m, v, 0, jax.random.key(0)]

    def pure(p: Any, m: Any, v: Any, t: Any, key: Any) -> Any:
        keys = iter(jax.random.split(key, 100))
        model = Model(s, jnp, lambda shape: jax.random.uniform(next(keys), shape))
        loss, g = jax.value_and_grad(model.loss)(p, source, target)
        return (*adam(dict(p), g, dict(m), dict(v), t, jnp), loss)

    compiled = jax.jit(pure, donate_argnums=(0, 1, 2))

    def step() -> None:
        p, m, v, t, key = state
        key, own = jax.random.split(key)
        p, m, v, loss = compiled(p, m, v, t + 1.0, own)
        loss.block_until_ready()
        state[:] = [p, m, v, t + 1, key]

    return step


def program(name: str, size: int, compiled: bool = False) -> Callable[[], None]:
    """Return value and gradient of one of the small programs, in float64."""
    jax.config.update("jax_enable_x64", True)
    xp = Functions(
        jnp,
        scipy.special,
        writes=False,
        rereads=False,
        constant=jnp.asarray,
        cho_solve=lambda factor, b: scipy.linalg.cho_solve((factor, True), b),
    )
    if compiled:
        xp.scan = lambda step, state, rows: jax.lax.scan(
            lambda carried, row: (step(carried, row), None), state, rows
        )[0]

    def derive(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        derived = jax.value_and_grad(f)
        called = jax.jit(derived) if compiled else derived
        return lambda x: jax.block_until_ready(called(x))

    return task(xp, name, size, derive)


def program_compiled(name: str, size: int) -> Callable[[], None]:
    """Return value and gradient of one of the small programs, compiled by jit."""
    return program(name, size, compiled=True)
