"""`multinomial` draws with the probabilities of its weights."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import minigrad as mg

WEIGHTS = np.array([0.0, 3.0, 1.0, 0.0, 4.0])
MANY = 20_000


def test_multinomial_with_replacement_has_the_frequencies_of_the_weights() -> None:
    rows = np.stack([WEIGHTS, WEIGHTS[::-1] * 4e307])
    draws = mg.multinomial(rows, MANY, True, generator=np.random.default_rng(0))
    assert draws.shape == (2, MANY) and draws.dtype == np.int64
    frequencies = [np.bincount(row, minlength=5) / MANY for row in draws.data.astype(np.intp)]
    np.testing.assert_allclose(frequencies, [WEIGHTS / 8, WEIGHTS[::-1] / 8], atol=0.02)
    assert frequencies[0][0] == frequencies[1][1] == 0
    draws = mg.multinomial(WEIGHTS, MANY, True, generator=np.random.default_rng(1))
    assert draws.shape == (MANY,)
    np.testing.assert_allclose(np.bincount(draws.data) / MANY, WEIGHTS / 8, atol=0.02)


def test_multinomial_without_replacement_has_the_frequencies_of_ordered_draws() -> None:
    mg.manual_seed(1)
    draws = mg.multinomial(np.tile(WEIGHTS, (MANY, 1)), 2).data
    for first, second in permutations((1, 2, 4), 2):
        p = WEIGHTS[first] / 8 * WEIGHTS[second] / (8 - WEIGHTS[first])
        assert (draws == (first, second)).all(-1).mean() == pytest.approx(p, abs=0.02)


@pytest.mark.parametrize(
    "weights, count, replacement, message",
    [
        (np.ones((1, 2, 3)), 1, True, r"input must have 1 or 2 axes, got shape \(1, 2, 3\)"),
        *[
            ([1.0, weight], 1, True, "input must be finite and not negative")
            for weight in (-1.0, np.inf, np.nan)
        ],
        ([1.0, 1.0], 0, True, "num_samples must be at least 1, got 0"),
        (
            [[1.0, 0.0], [1.0, 1.0]],
            2,
            False,
            "without replacement num_samples must be .*, 1, got 2",
        ),
        ([[1.0, 1.0], [0.0, 0.0]], 1, True, "input must have a weight that is not 0 in each row"),
        ([1.0, 0.0, 2.0], 3, False, "without replacement num_samples must be .*, 2, got 3"),
    ],
)
def test_multinomial_refuses_argument(
    weights: Any, count: int, replacement: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=f"multinomial: {message}"):
        mg.multinomial(weights, count, replacement)


def test_scale_of_each_row_has_no_effect() -> None:
    draw = lambda rows: mg.multinomial(rows, 9, True, generator=np.random.default_rng(0)).tolist()
    assert draw([WEIGHTS * 1e-300, WEIGHTS * 1e300]) == draw([WEIGHTS, WEIGHTS])


def test_each_row_draws_by_its_own_sum() -> None:
    rows = np.array([[5.0, 0, 0], [1, 1, 1], [0, 0, 9]])
    draws = mg.multinomial(rows, 50, True, generator=np.random.default_rng(0)).data
    assert [{*row.tolist()} for row in draws] == [{0}, {0, 1, 2}, {2}]


class Constant(np.random.Generator):
    """Generator whose numbers from [0, 1) have one value."""

    value = 0.0

    def random(self, size: Any) -> Any:  # type: ignore[override]
        return np.full(size, self.value)


@pytest.mark.parametrize("value, index", [(0.0, 1), (0.375, 2), (0.5, 4), (1 - 2**-53, 4)])
def test_number_at_a_limit_draws_the_weight_above_it(value: float, index: int) -> None:
    generator = Constant(np.random.PCG64(0))
    generator.value = value
    assert mg.multinomial(WEIGHTS, 2, True, generator=generator).tolist() == [index, index]
