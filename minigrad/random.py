"""Default generator of random numbers, made on first use.

Functions that draw numbers take `generator=`. Look at `default_generator`, which replaces None, and
`random_words`, which draws the bits of dropout masks.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .modes import MODE

__all__ = ["default_generator", "manual_seed"]


@cache
def shared_generator() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64())  # the fastest of NumPy's bit generators


def manual_seed(seed: int) -> np.random.Generator:
    """Return the default generator, reset to `seed`.

    Parameters
    ----------
    seed : int
        Seed of the random numbers.
    """
    shared_generator().bit_generator.state = np.random.SFC64(seed).state
    return shared_generator()


def default_generator(generator: np.random.Generator | None = None) -> np.random.Generator:
    """Return `generator`, or the default generator if it is None.

    Parameters
    ----------
    generator : numpy.random.Generator, optional
    """
    watch = MODE.get().watch
    if watch is not None:
        watch.drawn()
    if generator is None:
        return shared_generator()
    if not isinstance(generator, np.random.Generator):
        raise TypeError(
            f"generator must be a numpy.random.Generator, got a {type(generator).__name__}"
        )
    return generator


def random_words(n: int, generator: np.random.Generator | None = None) -> np.ndarray:
    """Return `n` random numbers of 64 bits, uint64."""
    generator = default_generator(generator)
    if isinstance(generator.bit_generator, np.random.SFC64):  # faster than integers()
        return generator.bit_generator.random_raw(n)
    return generator.integers(0, 2**64, n, np.uint64)
