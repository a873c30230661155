"""Images and model of lesson 6."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from scripts import EXAMPLES

import nn

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(EXAMPLES / "course"))
    script = importlib.import_module("scenes")
    exercises = importlib.import_module("exercises.segmentation")


def test_scenes_have_classes_by_shape_and_sign() -> None:
    images, classes, shapes, signs = script.make_scenes(40, seed=3)
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
    tokens = script.by_patch(picture)
    np.testing.assert_array_equal(
        tokens[1, 7], picture[1, 2:4, 2:4].ravel()
    )  # patch 7 is row 1, column 1
    np.testing.assert_array_equal(script.by_pixel(tokens), picture)
    table = script.positions_2d(6, 32)
    np.testing.assert_allclose(
        table[8], np.r_[nn.sinusoidal_table(6, 16)[1], nn.sinusoidal_table(6, 16)[2]]
    )
    assert exercises.window(6, 0).sum() == 36 and exercises.window(6, 6).all()
    assert sorted(np.flatnonzero(exercises.window(6, 1)[7])) == [0, 1, 2, 6, 7, 8, 12, 13, 14]


@pytest.mark.parametrize(("reach", "layers"), [(0, 2), (1, 2), (6, 1), (1, 3)])
def test_segmenter_reaches_its_receptive_field_and_no_further(reach: int, layers: int) -> None:
    images = script.make_scenes(1, seed=4).images
    changed = images.copy()
    changed[0, 0, 0] = 5.0  # in patch 0
    mask = exercises.window(6, reach)
    model = script.Segmenter(mask, np.random.default_rng(0), layers)
    reached = np.abs(model(changed).data - model(images).data).max((0, 2, 3)) > 1e-7
    np.testing.assert_array_equal(reached, exercises.receptive_field(mask, layers)[:, 0])
    assert reached.sum() == (36 if reach == 6 else (reach * layers + 1) ** 2)


def test_intersection_over_union() -> None:
    predicted, truth = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    found = [exercises.iou(predicted, truth, c) for c in range(3)]
    np.testing.assert_allclose(found, [1 / 3, 2 / 3, 1 / 2])
    assert script.mean_iou(predicted, truth) == pytest.approx(0.5)
