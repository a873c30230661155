"""Self-attention for semantic segmentation: the section that the text leaves open.

"Thoughts on self-attention" (the text, 003_8f2a173a50e2ad60.txt) ends with a heading, "Self-attention for SSEG",
and the words "待补充" (to be added). This lesson adds it. To segment an
image is to give each of its pixels a class; semantic segmentation does so by what the pixel shows. The images here are
made so that a pixel's colour and its surroundings are not enough: which of the shapes is the marked one is told by a
small sign in a corner, far away. Three models of the same size, from the same first weights, see the same images in
the same order; all that differs is who may attend to whom.

    python examples/course/06_segmentation.py
"""

from __future__ import annotations

from lesson import Lesson  # first: Ctrl-C is one line from here on

# isort: split
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import minigrad as mg
import nn
from minigrad import optim
from minigrad.extras import require

SIZE, PATCH = 12, 2  # an image has 12 x 12 pixels; a token is a patch of 2 x 2
SIDE = SIZE // PATCH  # 6 x 6 tokens
CLASSES = ("background", "marked", "other")
COLOURS = np.array(
    [[0.9, 0.2, 0.2], [0.2, 0.8, 0.3], [0.25, 0.35, 0.95], [0.9, 0.8, 0.2]]
)  # red, green, blue, yellow
D_MODEL, HEADS, LAYERS = 32, 2, 2
STEPS, BATCH, PASSES = 600, 16, 4
TEST_SEED = 999


# -- the images ------------------------------------------------------------------------------------------


def shape_mask(rng: np.random.Generator) -> np.ndarray:
    """A disk, a rectangle or a triangle somewhere in the image, away from its border: (12, 12) booleans."""
    radius = SIZE * rng.uniform(0.16, 0.28)
    cy, cx = rng.uniform(1.5 + radius, SIZE - 2.5 - radius, 2)
    y, x = np.mgrid[:SIZE, :SIZE]
    kind = rng.integers(3)
    if kind == 0:
        return (y - cy) ** 2 + (x - cx) ** 2 <= radius**2
    if kind == 1:
        return (abs(y - cy) <= radius) & (abs(x - cx) <= 0.7 * radius)
    return (y - cy <= radius) & (abs(x - cx) <= (y - cy + radius) / 2)


class Scenes(NamedTuple):
    images: np.ndarray  # (n, 12, 12, 3)
    classes: np.ndarray  # (n, 12, 12), of each pixel
    shapes: np.ndarray  # (n, 12, 12), which shape a pixel shows: 1, 2, 3, or 0 for the background
    signs: np.ndarray  # (n,), which patch is the sign


def scenes(n: int, seed: int, turn: int = 0) -> Scenes:
    """`n` images: three shapes of different colours, which overlap, and a sign of one patch in some corner.

    The sign has the colour of one of the shapes: that one is "marked", the others are "other". The sign itself
    is background. `turn` gives the sign the colour of the next shape, or the one after, and changes nothing else.
    """
    rng = np.random.default_rng(seed)
    made = Scenes(
        np.full((n, SIZE, SIZE, 3), 0.1),
        *(np.zeros((n, SIZE, SIZE), int) for _ in range(2)),
        np.zeros(n, int),
    )
    for i, (image, classes, shapes) in enumerate(zip(*made[:3])):
        colours = COLOURS[rng.permutation(len(COLOURS))[:3]]
        marked = (rng.integers(3) + turn) % 3
        for shape, colour in enumerate(colours):
            inside = shape_mask(rng)
            image[inside], shapes[inside] = colour, shape + 1
            classes[inside] = 1 if shape == marked else 2
        row, column = rng.integers(2, size=2) * (SIDE - 1)
        made.signs[i] = row * SIDE + column
        paint(image, made.signs[i], colours[marked])
    return made._replace(
        images=(made.images + rng.normal(0, 0.1, made.images.shape)).astype(np.float32)
    )


def paint(image: np.ndarray, patch: int, colour: Any) -> None:
    """Give all pixels of a patch this colour."""
    row, column = PATCH * (patch // SIDE), PATCH * (patch % SIDE)
    image[row : row + PATCH, column : column + PATCH] = colour


def patches(pixels: np.ndarray) -> np.ndarray:
    """(N, 12, 12, ...) as tokens: (N, 36, 4 · ...), row by row."""
    n, rest = len(pixels), pixels.shape[3:]
    tiles = pixels.reshape(n, SIDE, PATCH, SIDE, PATCH, -1).swapaxes(2, 3)  # (N, 6, 6, 2, 2, ...)
    return tiles.reshape(n, SIDE * SIDE, PATCH * PATCH * int(np.prod(rest, dtype=int)))


def pixels(tokens: np.ndarray) -> np.ndarray:
    """(N, 36, 4) back to (N, 12, 12)."""
    return tokens.reshape(-1, SIDE, SIDE, PATCH, PATCH).swapaxes(2, 3).reshape(-1, SIZE, SIZE)


# -- the model -------------------------------------------------------------------------------------------


def positions_2d(side: int, d_model: int) -> np.ndarray:
    """Where each patch stands, (side², d_model): half the dimensions tell its row, half its column."""
    table = nn.sinusoidal_table(side, d_model // 2)  # (6, d/2)
    rows, columns = np.repeat(table, side, 0), np.tile(table, (side, 1))  # (36, d/2) each
    return np.concatenate([rows, columns], 1)  # (36, d)


def sight(reach: int) -> np.ndarray:
    """Who may attend to whom, (36, 36): patches no more than `reach` rows and columns apart."""
    y, x = np.divmod(np.arange(SIDE * SIDE), SIDE)
    return (abs(y[:, None] - y) <= reach) & (abs(x[:, None] - x) <= reach)


MODELS = {"itself": sight(0), "its neighbours": sight(1), "all": sight(SIDE)}
"""What the patches of each model may attend to. Weights, images and steps are the same."""


class Segmenter(nn.Module):
    """Patches as tokens, an encoder, and the scores of each class for each pixel of a patch."""

    def __init__(self, mask: np.ndarray, generator: np.random.Generator) -> None:
        config = nn.EncoderConfig(
            0, D_MODEL, HEADS, LAYERS, 2 * D_MODEL, dropout=0.0, norm_first=True
        )
        self.mask = mask  # (36, 36)
        self.register_buffer("positions", positions_2d(SIDE, D_MODEL).astype(np.float32))
        self.embedding = nn.Linear(PATCH * PATCH * 3, D_MODEL)
        self.encoder = nn.Encoder(config, LAYERS)
        self.output = nn.Linear(D_MODEL, PATCH * PATCH * len(CLASSES))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight, generator=generator)
                nn.init.zeros_(module.bias)

    def forward(self, images: np.ndarray) -> mg.Tensor:
        """Scores (N, 36, 4, 3) of images (N, 12, 12, 3)."""
        colours = (patches(images) - 0.3) * 3  # (N, 36, 12), roughly from -1 to 2
        x = self.embedding(colours) + self.positions  # (N, 36, d)
        scores = self.output(self.encoder(x, self.mask))  # (N, 36, 4 · 3)
        return scores.reshape(*scores.shape[:2], PATCH * PATCH, len(CLASSES))

    def predict(self, images: np.ndarray) -> np.ndarray:
        """The likeliest class of each pixel, (N, 12, 12)."""
        with mg.no_grad():
            return pixels(self(images).data.argmax(-1))

    def attention(self, images: np.ndarray) -> np.ndarray:
        """The weights of all heads of all layers, (layers, N, h, 36, 36)."""
        with mg.no_grad(), nn.record_attention(self) as recorded:
            self(images)
        return np.stack([calls[0] for calls in recorded.values()])


def train(mask: np.ndarray, seed: int = 0) -> Segmenter:
    """A model after `STEPS` steps; neither its first weights nor its images depend on `mask`."""
    model = Segmenter(mask, np.random.default_rng(seed))
    optimizer = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    schedule = optim.Schedule(optimizer, optim.cosine_schedule(STEPS, warmup=20))
    images, classes, _, _ = scenes(STEPS * BATCH // PASSES, seed + 1)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(images)) for _ in range(PASSES)])
    for batch in order.reshape(STEPS, BATCH):
        loss = mg.cross_entropy(model(images[batch]), patches(classes[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def ious(predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Intersection over union of each class, over all pixels of all images: (3,)."""
    pairs = [(predicted == c, truth == c) for c in range(len(CLASSES))]
    return np.array([(p & t).sum() / (p | t).sum() for p, t in pairs])


def mean_iou(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(ious(predicted, truth).mean())


# -- the lesson --------------------------------------------------------------------------------------------


def the_task(lesson: Lesson, test: Scenes) -> float:
    """What the images are; the mean IoU of the best guess without the sign."""
    lesson.section("An image in which the surroundings of a pixel are not enough")
    lesson.say(
        """The text says of an image that the weights of attention show how its pixels depend on each other, and of
        semantic segmentation that the similarity of a pixel to the pixels around it helps to find its class. We
        make images in which that similarity finds the shapes, but not their classes: three shapes, and in one
        corner a sign of 2 × 2 pixels in the colour of one of them. That shape is the marked one."""
    )
    tokens = patches(test.images)
    lesson.show("images (N, height, width, colours)", test.images.shape)
    lesson.show("tokens (N, patches, numbers of a patch)", tokens.shape)
    lesson.fact(
        "tokens are the image, cut into patches",
        (pixels(patches(test.classes)) == test.classes).all(),
    )
    turned = scenes(len(test.images), TEST_SEED, turn=1)
    apart = patches((turned.images != test.images).any(-1))  # (N, 36, 4)
    only_sign = (apart.all(-1) == (np.arange(SIDE * SIDE) == test.signs[:, None])).all() and (
        apart.any(-1) == apart.all(-1)
    ).all()
    moved = float((turned.classes != test.classes)[test.shapes > 0].mean())
    lesson.fact(
        "one patch decides: repainting the sign alone changes the class of far pixels",
        only_sign and moved > 0.5,
        f"{moved:.0%} of the pixels of shapes change class when the sign gets the colour of the next shape",
    )
    blind = np.where(test.shapes > 0, 2, 0)
    floor = mean_iou(blind, test.classes)
    lesson.say(
        """How well a model does is told by the intersection over union of each class: of all pixels that are of the
        class or are called so, the share for which both is true. The mean over the classes is the mean IoU."""
    )
    lesson.formula(
        r"\mathrm{IoU}_c = \frac{\text{pixels that are and are called } c}{\text{pixels that are or are called } c}"
    )
    lesson.say(
        f"""Who sees each shape exactly, but never the sign, does best to call every shape "other", as two of three
        are: a mean IoU of {floor:.3f}. That is the score to beat."""
    )
    return floor


def the_positions(lesson: Lesson) -> None:
    lesson.section("Two-dimensional positions")
    lesson.code(positions_2d)
    lesson.say(
        """Attention does not know where a token stands. Half the dimensions of a position tell its row and half its
        column, each by the sines and cosines of the paper."""
    )
    table = positions_2d(SIDE, D_MODEL)  # (36, d)
    similarity = (table @ table.T).reshape(SIDE, SIDE, SIDE, SIDE)  # [row, column, row', column']
    same_offset = np.allclose(similarity[:-1, :-1, :-1, :-1], similarity[1:, 1:, 1:, 1:])
    lesson.fact(
        "the product of two positions depends only on how far apart they are, down and across",
        same_offset,
    )
    nearest = similarity.reshape(SIDE * SIDE, -1).argmax(1)
    lesson.fact(
        "and is largest for a position and itself", (nearest == np.arange(SIDE * SIDE)).all()
    )


def the_comparison(lesson: Lesson, test: Scenes, floor: float) -> dict[str, Segmenter]:
    lesson.section("With and without attention")
    lesson.code(sight, Segmenter)
    lesson.predict(
        "Three shapes, one of which is marked by a sign far away. A model that sees each pixel's surroundings only: what does it call the shapes?",
        "Other, all of them: two of three are, and it has no way to know which one is not.",
    )
    lesson.say(
        f"""Three models of the same {Segmenter(sight(0), np.random.default_rng(0)).num_parameters():,}
        parameters: {LAYERS} encoder layers, {HEADS} heads, vectors of {D_MODEL} numbers. Only the mask of
        attention differs: a patch may attend to itself alone (then attention is a linear map of each patch: no
        attention), to the patches around it (a window of 3 × 3, as in the convolutions that images are usually
        given to), or to all. First weights, images and their order, and the {STEPS} steps of Adam are the same."""
    )
    firsts = [Segmenter(mask, np.random.default_rng(0)).state_dict() for mask in MODELS.values()]
    same = all((first[name] == firsts[0][name]).all() for first in firsts for name in firsts[0])
    lesson.fact("the models are of the same size and begin with the same weights", same)
    models, means = {}, {}
    rows = []
    for name, mask in MODELS.items():
        models[name] = train(mask)
        found = ious(models[name].predict(test.images), test.classes)
        means[name] = float(found.mean())
        rows.append([name, *(f"{iou:.3f}" for iou in found), f"{means[name]:.3f}"])
    lesson.table(
        ["a patch attends to", *CLASSES, "mean IoU"],
        rows,
        "Intersection over union on 300 new images",
    )
    local = max(means["itself"], means["its neighbours"])
    lesson.fact(
        "without far attention no model does better than the blind guess",
        local < floor + 0.02,
        f"mean IoU {means['itself']:.3f} and {means['its neighbours']:.3f}, the guess {floor:.3f}",
    )
    lesson.fact(
        "self-attention helps to find the class of a pixel",
        means["all"] > local + 0.2,
        f"mean IoU {means['all']:.3f} with attention to all patches, {local:.3f} without",
    )
    lesson.say(
        """So the text is right that similarity to other pixels helps, and "the pixels around" is too narrow: what
        counts is here that attention reaches any pixel in one step, where a stack of 3 × 3 windows would need as
        many layers as there are patches between."""
    )
    return models


def what_it_looks_at(lesson: Lesson, test: Scenes, model: Segmenter) -> tuple[int, int]:
    """The layer and the head that look at a sign of the own colour, or at one of another colour if none does."""
    lesson.section("What a pixel attends to")
    weights = model.attention(test.images)  # (layers, N, h, 36, 36)
    to_sign = weights[
        :, np.arange(len(test.images)), :, :, test.signs
    ]  # (N, layers, h, 36): weight of the sign
    shares = {}
    for c, name in enumerate(CLASSES):
        inside = (patches(test.classes) == c).all(
            -1
        )  # (N, 36), patches that are wholly of this class
        shares[name] = (to_sign * inside[:, None, None]).sum(
            (0, 3)
        ) / inside.sum()  # (layers, heads)
        lesson.show(f"mean weight of the sign for {name} patches (layers, heads)", shares[name], 3)
    even = 1 / SIDE**2
    lesson.fact(
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
    lesson.fact(
        "the weight compares: how much a patch attends to the sign depends on whether their colours are alike",
        abs(apart).max() > 0.2,
        "; ".join(lines),
    )
    lesson.say(
        """The text speaks of similarity. Queries and keys are learned, so that either sign of the comparison serves: a
        head can look for what is alike, or for what is not."""
    )
    layer, head = alike if apart[alike] > 0.2 else unlike
    return int(layer), int(head)


def what_changes_its_mind(lesson: Lesson, test: Scenes, model: Segmenter, floor: float) -> None:
    lesson.section("Is the sign the reason? Change it")
    lesson.say(
        "Weights alone prove little. We change the sign, and nothing else, and ask the model again."
    )
    plain = mean_iou(model.predict(test.images), test.classes)
    turned = scenes(len(test.images), TEST_SEED, turn=1)
    new, old = (
        mean_iou(model.predict(turned.images), truth) for truth in (turned.classes, test.classes)
    )
    lesson.fact(
        "with the sign in the colour of the next shape, that shape is the marked one",
        abs(new - plain) < 0.05 and old < floor,
        f"mean IoU {new:.3f} with the new truth, {old:.3f} with the old",
    )
    hidden = test.images.copy()
    for image, patch in zip(hidden, test.signs):
        paint(image, patch, 0.1)
    without = mean_iou(model.predict(hidden), test.classes)
    lesson.fact(
        "without the sign the model is as lost as the others",
        without < floor + 0.05,
        f"mean IoU {without:.3f}, the blind guess {floor:.3f}",
    )


def far_patch(test: Scenes, n: int, c: int) -> int:
    """The patch of image `n` that is wholly of class `c`, and the farthest from the sign; -1 if there is none."""
    inside = (patches(test.classes[n : n + 1])[0] == c).all(-1).nonzero()[0]
    apart = np.hypot(
        *np.subtract(np.divmod(inside, SIDE), np.array(divmod(test.signs[n], SIDE))[:, None])
    )
    return int(inside[apart.argmax()]) if len(inside) else -1


def draw(
    path: Path,
    test: Scenes,
    models: dict[str, Segmenter],
    layer: int,
    head: int,
    rows: Sequence[int],
) -> None:
    """Image, truth, two predictions, and what two pixels attend to, for some of the images."""
    figure = require("matplotlib.figure", "plotting").Figure(
        figsize=(12.4, 2.1 * len(rows) + 0.5), layout="constrained"
    )
    colours = require("matplotlib.colors", "plotting").ListedColormap(
        ["#20242c", "#f2a03d", "#5b8fc7"]
    )
    patch_of = require("matplotlib.patches", "plotting").Patch
    cells = figure.subplots(len(rows), 6, squeeze=False)
    weights = models["all"].attention(test.images[list(rows)])[layer][:, head]  # (rows, 36, 36)
    for i, (axes, n) in enumerate(zip(cells, rows)):
        axes[0].imshow(np.clip(test.images[n], 0, 1))
        maps = [
            test.classes[n],
            *(models[name].predict(test.images[n][None])[0] for name in ("its neighbours", "all")),
        ]
        for cell, classes in zip(axes[1:4], maps):
            cell.imshow(classes, cmap=colours, vmin=0, vmax=2)
        for cell, c, marker in zip(axes[4:], (1, 2), "os"):
            chosen = far_patch(test, n, c)
            y, x = (PATCH * at + (PATCH - 1) / 2 for at in divmod(chosen, SIDE))
            heat = weights[i, chosen].reshape(SIDE, SIDE)
            shown = cell.imshow(
                heat, cmap="magma", vmin=0, vmax=1, extent=(-0.5, SIZE - 0.5, SIZE - 0.5, -0.5)
            )
            cell.contour(
                test.shapes[n] > 0,
                levels=[0.5],
                colors="white",
                linewidths=0.6,
                linestyles="dotted",
            )
            for where in (axes[0], cell):
                where.plot(x, y, marker=marker, ms=8, mfc="none", mec="white", mew=1.8)
        for cell in axes:
            cell.set_xticks([])
            cell.set_yticks([])
    titles = (
        "image, two pixels",
        "truth",
        "sees its neighbours",
        "sees all",
        "marked pixel (○)",
        "other pixel (□)",
    )
    for cell, title in zip(cells[0], titles):
        cell.set_title(title, fontsize=10)
    figure.colorbar(
        shown, ax=cells[:, 5], label=f"attention (layer {layer + 1}, head {head + 1})", shrink=0.8
    )
    keys = [patch_of(color=colours(c), label=name) for c, name in enumerate(CLASSES)]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("06_segmentation", __doc__ or "", argv)
    lesson.source(
        "Thoughts on self-attention",
        "a blog's entry, in Chinese",
        "003_8f2a173a50e2ad60.txt",
        note="It was written after reading [The Illustrated Transformer](https://jalammar.github.io/illustrated-transformer/).",
    )
    lesson.quote(
        "应用于语义分割场景的Self-attention (待补充...)",
        "Self-attention applied to semantic segmentation (to be added…)",
    )
    test = scenes(300, TEST_SEED)
    floor = the_task(lesson, test)
    the_positions(lesson)
    models = the_comparison(lesson, test, floor)
    layer, head = what_it_looks_at(lesson, test, models["all"])
    what_changes_its_mind(lesson, test, models["all"], floor)
    rows = [
        n for n in range(len(test.images)) if min(far_patch(test, n, 1), far_patch(test, n, 2)) >= 0
    ][:4]
    lesson.picture(
        "segmentation.png",
        lambda path: draw(path, test, models, layer, head, rows),
        caption="Four images: what is true, what a model says that sees its neighbours, what one says that sees all, and where two pixels look.",
        alt="Four rows of six small pictures: an image, three maps of classes, two maps of attention with their peak on the sign in the corner.",
    )
    lesson.exercise(
        "The tokens are patches of 2 × 2 pixels. How many weights has a head for one image, and how many would it have if each pixel were a token?",
        "36 tokens have 36² = 1,296 weights, 144 pixels 144² = 20,736: sixteen times as many. That is why images are cut into patches.",
    )
    lesson.exercise(
        "How many layers would windows of 3 × 3 patches need to reach the sign from any patch?",
        "Five: two patches are five apart at most in each direction, and each layer reaches one further.",
    )
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
