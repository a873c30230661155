"""Images and model of lesson 10."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from support.scripts import EXAMPLES

import nn

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(EXAMPLES / "course"))
    script = importlib.import_module("scenes")
    exercises = importlib.import_module("exercises.segmentation")


def test_scenes_have_classes_by_shape_and_sign() -> None:
    for image, classes, shapes, sign in zip(*script.make_scenes(40, seed=3)):
        row, column = 2 * (sign // 6), 2 * (sign % 6)
        assert {int(row), int(column)} <= {0, 10} and shapes[row, column] == 0
        assert not classes[shapes == 0].any()
        nearest = lambda colour: int(((script.COLOURS - colour) ** 2).sum(-1).argmin())
        marked = nearest(image[row : row + 2, column : column + 2].mean((0, 1)))
        for shape in range(1, 4):
            if (shapes == shape).sum() >= 4:
                is_marked = nearest(image[shapes == shape].mean(0)) == marked
                assert (classes[shapes == shape] == (1 if is_marked else 2)).all()


def test_by_patch_cuts_squares_row_by_row() -> None:
    picture = np.arange(2 * 12 * 12).reshape(2, 12, 12)
    np.testing.assert_array_equal(script.by_patch(picture)[1, 7], picture[1, 2:4, 2:4].ravel())


def test_positions_2d_join_row_and_column() -> None:
    table = nn.sinusoidal_table(6, 16)
    np.testing.assert_allclose(script.positions_2d(6, 32)[8], np.r_[table[1], table[2]])


@pytest.mark.parametrize(("reach", "layers"), [(6, 1), (1, 3)])
def test_segmenter_reaches_its_receptive_field_and_no_further(reach: int, layers: int) -> None:
    images = script.make_scenes(1, seed=4).images
    changed = images.copy()
    changed[0, 0, 0] = 5.0  # in patch 0
    mask = exercises.window(6, reach)
    model = script.Segmenter(mask, np.random.default_rng(0), layers)
    reached = np.abs(model(changed).data - model(images).data).max((0, 2, 3)) > 1e-7
    assert reached.sum() == (36 if reach == 6 else (reach * layers + 1) ** 2)


def test_mean_iou_is_the_mean_over_classes() -> None:
    predicted, truth = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 1, 2, 0])
    assert script.mean_iou(predicted, truth) == pytest.approx((1 / 3 + 2 / 3 + 1 / 2) / 3)
