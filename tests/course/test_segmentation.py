"""06_segmentation: self-attention finds what no neighbourhood tells."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scripts import load

script = load("06_segmentation")


def test_the_lesson(lesson: Callable[[str], tuple[int, str, Path]]) -> None:
    checked, text, out = lesson("06_segmentation")
    assert checked >= 11
    rows = {name: [float(n) for n in re.findall(r"\d\.\d{3}", line)]
            for name in script.MODELS for line in text.splitlines() if re.match(rf"  {name}  ", line)}  # fmt: skip
    for *classes, mean in rows.values():
        assert np.mean(classes) == pytest.approx(mean, abs=0.001)
    assert rows["all"][-1] > 0.8 and rows["all"][-1] > rows["its neighbours"][-1] + 0.2
    assert rows["itself"][1] < 0.1 and rows["all"][1] > 0.6  # the class "marked"
    image = pytest.importorskip("matplotlib.image").imread(out / "segmentation.png")
    assert image.shape[0] > 800 and image[..., :3].std() > 0.1


def test_the_scenes_are_what_they_say() -> None:
    images, classes, shapes, signs = script.scenes(40, seed=3)
    for image, truth, shape, sign in zip(images, classes, shapes, signs):
        row, column = (2 * int(i) for i in divmod(sign, 6))
        assert {row, column} <= {0, 10}
        sign_colour = image[row : row + 2, column : column + 2].mean((0, 1))
        nearest = lambda colour: int(((script.COLOURS - colour) ** 2).sum(-1).argmin())
        for one in range(1, 4):
            if (shape == one).sum() >= 4:
                alike = nearest(image[shape == one].mean(0)) == nearest(sign_colour)
                assert (truth[shape == one] == (1 if alike else 2)).all()
        assert (truth[shape == 0] == 0).all() and shape[row, column] == 0


def test_tokens_positions_and_masks() -> None:
    picture = np.arange(2 * 12 * 12).reshape(2, 12, 12)
    tokens = script.patches(picture)
    np.testing.assert_array_equal(
        tokens[1, 7], picture[1, 2:4, 2:4].ravel()
    )  # patch 7 is row 1, column 1
    np.testing.assert_array_equal(script.pixels(tokens), picture)
    table = script.positions_2d(6, 32)
    np.testing.assert_allclose(
        table[8], np.r_[script.nn.sinusoidal_table(6, 16)[1], script.nn.sinusoidal_table(6, 16)[2]]
    )
    assert script.sight(0).sum() == 36 and script.sight(6).all()
    assert sorted(np.flatnonzero(script.sight(1)[7])) == [0, 1, 2, 6, 7, 8, 12, 13, 14]


def test_without_attention_no_patch_reaches_another() -> None:
    images = script.scenes(1, seed=4).images
    changed = images.copy()
    changed[0, 0, 0] = 5.0  # in patch 0
    for name, mask in script.MODELS.items():
        model = script.Segmenter(mask, np.random.default_rng(0))
        reached = np.abs(model(changed).data - model(images).data).max((0, 2, 3)) > 1e-7
        assert reached.sum() == {"itself": 1, "its neighbours": 9, "all": 36}[name]


def test_intersection_over_union() -> None:
    predicted, truth = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    np.testing.assert_allclose(script.ious(predicted, truth), [1 / 3, 2 / 3, 1 / 2])
