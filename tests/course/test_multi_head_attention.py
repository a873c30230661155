"""07_multi_head_attention: what the discussion asks, checked against the definition."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import load

import nn

script = load("07_multi_head_attention")


def test_the_lesson(lesson: Callable[[str], tuple[int, str, Path]]) -> None:
    checked, text, out = lesson("07_multi_head_attention")
    assert checked >= 35 and "(4 with a correction" in text
    left = {kind: float(share) for kind, share in re.findall(r"^  (split|summed|joined) .* ([\d.]+)%$", text, re.MULTILINE)}  # fmt: skip
    assert left["split"] < 10 and left["joined"] < 10 and 73 < left["summed"] < 80
    imread = pytest.importorskip("matplotlib.image").imread
    for name in ("additive_and_dot_product", "heads_of_ones", "heads_of_random"):
        image = imread(out / f"{name}.png")
        assert image.shape[1] > 800 and image[..., :3].std() > 0.05, name


def test_one_map_of_weights_explains_a_quarter_of_the_task() -> None:
    rng = np.random.default_rng(0)
    for w in rng.dirichlet(np.ones(4), 5):
        x = rng.standard_normal(
            (20_000, 4)
        )  # the value at each of the four places, which one part comes from each
        explained = [np.corrcoef(x @ w, x[:, i])[0, 1] ** 2 for i in range(4)]
        assert np.mean(explained) == pytest.approx(0.25, abs=0.01)
    x, y = script.shifted(3, rng)
    np.testing.assert_array_equal(
        y[:, 1:, :4], x[:, :-1, :4]
    )  # the first quarter from one place before
    np.testing.assert_array_equal(y[:, 4:, 12:], x[:, :-4, 12:16])  # the last from four


def test_the_highest_scores() -> None:
    scores = np.array([[[0.1, 3.0, 2.0, -1.0]], [[5.0, 4.0, 6.0, 7.0]]])
    np.testing.assert_array_equal(
        script.highest_mask(scores, np.array([2, 1])), [[[0, 1, 1, 0]], [[0, 0, 0, 1]]]
    )


def test_one_head_is_the_layer_with_one_head() -> None:
    rng = np.random.default_rng(0)
    attention = script.made(3)
    q, k = rng.standard_normal((2, 4, 100)), rng.standard_normal((2, 6, 100))
    with nn.gate_heads(attention, {"": np.arange(5) == 3}):
        y = attention(q, k, k).data
    expected = script.one_head(attention, 3, q, k, k) @ attention.out_proj.weight.data[:, 60:80].T
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)
