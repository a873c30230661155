"""Statements of "Thoughts on self-attention" about segmentation."""

from __future__ import annotations

import numpy as np
from exercises.segmentation import window
from scenes import (
    CLASSES,
    D_MODEL,
    SIDE,
    Scenes,
    Segmenter,
    by_patch,
    by_pixel,
    make_scenes,
    mean_iou,
    paint,
    positions_2d,
    train,
)
from support.statements import Statements, same

TEST_SEED = 999
MASKS = [
    window(SIDE, reach) for reach in (0, 1, SIDE)
]  # a patch sees itself, its neighbours, or all


def the_task(text: Statements, test: Scenes) -> float:
    """Return the mean IoU of the best guess without the sign."""
    text.section("An image in which the surroundings of a pixel are not enough")
    text.fact(
        "tokens are the image, cut into patches",
        (by_pixel(by_patch(test.classes)) == test.classes).all(),
    )
    turned = make_scenes(len(test.images), TEST_SEED, turn=1)
    apart = by_patch((turned.images != test.images).any(-1))  # (N, 36, 4)
    only_sign = (apart.all(-1) == (np.arange(SIDE * SIDE) == test.signs[:, None])).all() and (
        apart.any(-1) == apart.all(-1)
    ).all()
    moved = float((turned.classes != test.classes)[test.shapes > 0].mean())
    text.fact(
        "one patch decides: repainting the sign alone changes the class of far pixels",
        only_sign and moved > 0.5,
        f"{moved:.0%} of the pixels of shapes change class when the sign gets the colour of the next shape",
    )
    return mean_iou(np.where(test.shapes > 0, 2, 0), test.classes)


def the_positions(text: Statements) -> None:
    text.section("Two-dimensional positions")
    table = positions_2d(SIDE, D_MODEL)  # (36, d)
    similarity = (table @ table.T).reshape(SIDE, SIDE, SIDE, SIDE)  # [row, column, row', column']
    same_offset = same(similarity[:-1, :-1, :-1, :-1], similarity[1:, 1:, 1:, 1:])
    text.fact(
        "the product of two positions depends only on how far apart they are, down and across",
        same_offset,
    )
    nearest = similarity.reshape(SIDE * SIDE, -1).argmax(1)
    text.fact("and is largest for a position and itself", (nearest == np.arange(SIDE * SIDE)).all())


def the_comparison(text: Statements, test: Scenes, floor: float) -> Segmenter:
    text.section("With and without attention")
    firsts = [Segmenter(mask, np.random.default_rng(0)).state_dict().values() for mask in MASKS]
    equal = all((p == q).all() for first in firsts for p, q in zip(first, firsts[0], strict=True))
    text.fact("the models are of the same size and begin with the same weights", equal)
    *_, model = models = [train(mask) for mask in MASKS]
    alone, near, whole = (mean_iou(m.predict(test.images), test.classes) for m in models)
    local = max(alone, near)
    text.fact(
        "without far attention no model does better than the blind guess",
        local < floor + 0.02,
        f"mean IoU {alone:.3f} and {near:.3f}, the guess {floor:.3f}",
    )
    text.fact(
        "self-attention helps to find the class of a pixel",
        whole > local + 0.2,
        f"mean IoU {whole:.3f} with attention to all patches, {local:.3f} without",
    )
    return model


def what_it_attends_to(text: Statements, test: Scenes, model: Segmenter) -> None:
    text.section("What a pixel attends to")
    weights = model.attention(test.images)  # (layers, N, h, 36, 36)
    to_sign = weights[
        :, np.arange(len(test.images)), :, :, test.signs
    ]  # (N, layers, h, 36): weight of the sign
    shares = {}
    for c, name in enumerate(CLASSES):
        inside = (by_patch(test.classes) == c).all(
            -1
        )  # (N, 36), patches that are wholly of this class
        shares[name] = (to_sign * inside[:, None, None]).sum(
            (0, 3)
        ) / inside.sum()  # (layers, heads)
    even = 1 / SIDE**2
    text.fact(
        "the weights show how pixels depend on each other: patches of shapes attend to the sign, wherever it is",
        max(shares["marked"].max(), shares["other"].max()) > 10 * even,
        f"spread evenly, it would get {even:.1%} of the weight",
    )
    apart = shares["marked"] - shares["other"]
    alike, unlike = (np.unravel_index(pick(apart), apart.shape) for pick in (np.argmax, np.argmin))
    lines = [
        f"layer {at[0] + 1}, head {at[1] + 1} gives the sign {shares['marked'][at]:.0%} for marked patches and "
        f"{shares['other'][at]:.0%} for others"
        for at in (alike, unlike)
    ]
    text.fact(
        "the weight compares: how much a patch attends to the sign depends on whether their colours are alike",
        abs(apart).max() > 0.2,
        "; ".join(lines),
    )


def the_sign_changed(text: Statements, test: Scenes, model: Segmenter, floor: float) -> None:
    text.section("Is the sign the reason? Change it")
    plain = mean_iou(model.predict(test.images), test.classes)
    turned = make_scenes(len(test.images), TEST_SEED, turn=1)
    new, old = (
        mean_iou(model.predict(turned.images), truth) for truth in (turned.classes, test.classes)
    )
    text.fact(
        "with the sign in the colour of the next shape, that shape is the marked one",
        abs(new - plain) < 0.05 and old < floor,
        f"mean IoU {new:.3f} with the new truth, {old:.3f} with the old",
    )
    hidden = test.images.copy()
    for image, patch in zip(hidden, test.signs):
        paint(image, patch, 0.1)
    without = mean_iou(model.predict(hidden), test.classes)
    text.fact(
        "without the sign the model is as lost as the others",
        without < floor + 0.05,
        f"mean IoU {without:.3f}, the blind guess {floor:.3f}",
    )


def state(text: Statements) -> None:
    text.about(
        "Thoughts on self-attention",
        "a blog's entry, in Chinese",
        "003_8f2a173a50e2ad60.txt",
        note="It was written after reading [The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/).",
    )
    test = make_scenes(300, TEST_SEED)
    floor = the_task(text, test)
    the_positions(text)
    model = the_comparison(text, test, floor)
    what_it_attends_to(text, test, model)
    the_sign_changed(text, test, model, floor)
