# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 · What decides may be far away
#
# Each image below shows three shapes, and in one corner a small sign. The shape that has the colour of the sign is the
# *marked* one. Find it. Your eye goes to the corner, and back to the shapes: two glances, however far apart they are.
# **How can a network give a pixel its class, if what decides is at the other end of the image?**
#
# To give each pixel a class is called *semantic segmentation*. The blog's entry that lesson 1 follows,
# *Thoughts on self-attention*, ends with a heading about self-attention for it and the words "to be added". This lesson
# adds it.

# %% tags=["hide-input"] jupyter={"source_hidden": true}

import numpy as np
from exercises.segmentation import grade, solution
from grading import check
from labels import label, wrapped
from pictures import COLOUR, colour_map, figure, ramp
from scenes import CLASSES, PATCH, SIDE, SIZE, by_patch, make_scenes, mean_iou, paint, train

# %%
test = make_scenes(300, seed=999)
inside = [
    (by_patch(test.classes) == c).all(-1) for c in range(3)
]  # patches of one class, (300, 36)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
of_classes = colour_map("#d9d9d9", COLOUR["output"], COLOUR["x"])
visible = np.min([(test.shapes == shape).sum((1, 2)) for shape in (1, 2, 3)], 0)
SHOWN = visible.argsort()[-2:]  # the images whose smallest shape is the largest


def draw(drawn, columns):
    """Draw two rows of images: (title, images, colour map), and rings around the patches `at`."""
    panels = drawn.subplots(2, len(columns), squeeze=False)
    for row, (axes, n) in enumerate(zip(panels, SHOWN)):
        for panel, (title, images, colours, *at) in zip(axes, columns):
            largest = 2 if colours is of_classes else 1
            panel.imshow(np.clip(images[n], 0, largest), cmap=colours, vmin=0, vmax=largest)
            panel.set_title(wrapped(title, 16) if row == 0 else "")
            panel.set_xticks([])
            panel.set_yticks([])
            for where in at:
                y, x = np.multiply(divmod(int(where[n]), SIDE), PATCH) + (PATCH - 1) / 2
                panel.plot(x, y, "o", ms=11, mfc="none", mec="black", mew=2)


steps = [("image", test.images, None), ("truth", test.classes, of_classes)]
with figure(4.4, 4.4, "Two images, and beside them the class of each pixel.") as drawn:
    draw(drawn, steps)

# %% [markdown]
# The pictures in grey and yellow give the class of each pixel: background, **marked** or other. The sign is
# background. Is it really the sign that decides? Paint it in the colour of another shape, change nothing else, and
# count the pixels whose class changes.

# %%
turned = make_scenes(300, seed=999, turn=1)
changed = by_patch((turned.images != test.images).any(-1)).any(-1)  # (300, 36)
moved = (turned.classes != test.classes)[test.shapes > 0].mean()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    (changed == (np.arange(SIDE**2) == test.signs[:, None])).all() and moved > 0.5,
    "repainting one patch of 36 changes the class of {:.0%} of the pixels of shapes",
    moved,
)

# %% [markdown]
# ## Pixels become tokens
#
# An encoder reads a sequence of vectors, its *tokens*. With each pixel as a token, an image of 12 × 12 has 144
# tokens, and a head 144² = 20,736 weights. With patches of 2 × 2 pixels it has 36 tokens and 36² = 1,296 weights.
#
# ### Exercise: patches
#
# Cut images into square patches and make one vector of each. The patches follow each other row by row, the pixels of a
# patch too. `reshape` can split an axis of 12 into (6, 2); `swapaxes` brings the two axes of a patch together.


# %%
def patches(images, size):
    """Return images (N, height, width, colours) as patches (N, patches, size * size * colours)."""
    ...


patches = grade(patches, "patches")
print(test.images.shape, "->", patches(test.images, PATCH).shape)

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("patches")

# %% [markdown]
# ## The score to beat
#
# Most pixels are background, so that a network that finds no shape at all is right on most pixels. A better measure is
# *intersection over union*, for each class $c$. Of the pixels that are $c$ or are called $c$, it is the share for which
# both is true:
#
# $$
# \mathrm{IoU}_c = \frac{|\,\text{is } c \;\cap\; \text{called } c\,|}{|\,\text{is } c \;\cup\; \text{called } c\,|}
# $$
#
# ### Exercise: intersection over union


# %%
def iou(predicted, truth, c):
    """Return intersection over union of class c, over all pixels."""
    ...


iou = grade(iou, "iou")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("iou")

# %% [markdown]
# **Before you go on:** somebody sees all shapes exactly, but never the sign. What should she call them? Two of three shapes
# are "other".

# %%
nothing = (test.classes == 0).mean()
guess = {c: np.where(test.shapes > 0, c, 0) for c in (1, 2)}
floor = mean_iou(guess[2], test.classes)
for c in range(3):
    print(f"{CLASSES[c]:10} {iou(guess[2], test.classes, c):.3f}")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    nothing > 0.5 and floor > mean_iou(guess[1], test.classes),
    'every shape called "other": mean IoU {:.3f}',
    floor,
)

# %% [markdown]
# A network that does not beat this number has learned to see shapes, but not what the sign means.
#
# ## A first attempt: look around
#
# Networks for images usually look at the neighbours of each pixel, in windows of 3 × 3. Attention can do the same with a
# mask as in lesson 1: a patch may attend to itself and to the eight patches around it.
#
# ### Exercise: a window
#
# Make this mask for a square of `side` × `side` patches, counted row by row. Patch $i$ is in row `i // side` and column
# `i % side`. Two patches may attend to each other if they are at most `reach` rows *and* at most `reach` columns apart.


# %%
def window(side, reach):
    """Return a mask (side * side, side * side): True for patches at most `reach` rows and columns apart."""
    ...


window = grade(window, "window")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("window")

# %% [markdown]
# The network is an encoder of two layers with two heads, and a linear layer that gives each pixel of a patch three scores.
# To each patch a position is added: half of its values are for the row, half for the column. Train three of them, from
# different first weights and on different images.

# %%
around = [train(window(SIDE, 1), seed) for seed in range(3)]
found = [mean_iou(model.predict(test.images), test.classes) for model in around]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(max(found) < floor + 0.01, "mean IoU of windows: {:.3f}, {:.3f}, {:.3f}", *found)

steps.append(("window", around[0].predict(test.images), of_classes))
with figure(6.4, 4.4, "Image, truth, and a prediction that calls all shapes other.") as drawn:
    draw(drawn, steps)

# %% [markdown]
# The outlines are perfect, and all shapes are "other": the blind guess. Is the sign out of sight?
#
# ## How far a window sees
#
# In one layer a patch sees its neighbours. In the next it sees them again, and by now they have seen *their* neighbours.
# The patches from which something can arrive are its **receptive field**.
#
# ### Exercise: receptive field
#
# `mask[i, j]` is True if patch $i$ may attend to patch $j$. From which patches can something arrive at patch $i$ after some
# layers? Start with what each patch knows before the first layer: itself. For Boolean matrices, `a @ b` is True at $(i, j)$
# if for some $m$ both `a[i, m]` and `b[m, j]` are True.


# %%
def receptive_field(mask, layers):
    """Return for each patch (row) from which patches (columns) something arrives after some layers."""
    ...


receptive_field = grade(receptive_field, "receptive_field")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("receptive_field")

# %%
images = test.images[:1].copy()
images[0, 0, 0] += 5  # a pixel of patch 0
before, after = (around[0](i).data for i in (test.images[:1], images))
touched = (abs(after - before) > 1e-6).any((0, 2, 3))  # (36,)
shapes = inside[1] | inside[2]
sees = [
    receptive_field(window(SIDE, 1), layers)[:, test.signs].T[shapes].mean()
    for layers in range(1, 6)
]
print("layers  shape patches that the sign can reach")
for layers, share in enumerate(sees, 1):
    print(f"{layers:6}  {share:.0%}")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    (touched == receptive_field(window(SIDE, 1), 2)[:, 0]).all() and sees[1] < 0.5,
    "after two layers the sign can reach {:.0%} of the patches of shapes",
    sees[1],
)

# %% [markdown]
# ## A second attempt: more layers
#
# Every patch on the way can hand on what has arrived at it. With five layers of windows the sign
# can reach all patches of shapes. **Before you go on:** will five layers be enough?

# %%
deep = mean_iou(train(window(SIDE, 1), layers=5).predict(test.images), test.classes)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(sees[4] == 1 and deep < floor + 0.01, "mean IoU of five layers of windows: {:.3f}", deep)

# %% [markdown]
# No. That something *can* arrive does not mean that training finds out how to pass it on, at least
# not in these 500 steps.
#
# ## The fix: one step to everywhere
#
# Self-attention needs no relay. Take the window away: each patch may attend to all patches. That is
# as many parameters as before, the same first weights, the same images in the same order. Only the
# mask differs. One network gets five layers, to see whether the depth was what hurt.

# %%
everywhere = window(SIDE, SIDE)
models = [train(everywhere, seed) for seed in range(3)]
found = [mean_iou(m.predict(test.images), test.classes) for m in (*models, train(everywhere, 0, 5))]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    min(found) > floor + 0.25,
    "mean IoU of attention to all patches: {:.3f}, {:.3f}, {:.3f}; with five layers {:.3f}",
    *found,
)

steps.append(("all patches", models[0].predict(test.images), of_classes))
with figure(
    8.4, 4.4, "Beside them a prediction with attention to all, close to the truth."
) as drawn:
    draw(drawn, steps)

# %% [markdown]
# With attention to all, five layers learn it as well: the window was in the way, not the depth. The
# entry says that the similarity of a pixel to the pixels *around* it helps to find its class. Here
# that is too narrow: windows found the outlines, but the class comes from afar.
#
# ## What a patch attends to
#
# How much of its attention does a patch of a shape give to the sign? Spread evenly, each of 36 patches would get 2.8 %.


# %%
def weight_of_sign(model):
    """Return the mean weight of the sign (3, layers, heads), for patches of each class."""
    weights = model.attention(test.images)  # (layers, 300, heads, 36, 36)
    of_sign = weights[:, np.arange(300), :, :, test.signs]  # (300, layers, heads, 36)
    return np.stack([of_sign.transpose(0, 3, 1, 2)[patch].mean(0) for patch in inside])


print("seed  layer  head   marked   other")
largest = []
for seed, model in enumerate(models):
    _, marked, other = weight_of_sign(model)
    layer, head = np.unravel_index(abs(marked - other).argmax(), marked.shape)
    largest.append((layer, head, marked[layer, head], other[layer, head]))
    print(
        f"{seed:4} {layer + 1:6} {head + 1:5} {marked[layer, head]:8.0%} {other[layer, head]:7.0%}"
    )

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    all(max(m, o) > 10 / SIDE**2 and abs(m - o) > 0.2 for *_, m, o in largest),
    "in one head the sign gets {:.0%} from marked patches, {:.0%} from others",
    largest[0][2],
    largest[0][3],
)

# %%
layer, head = largest[0][:2]
chosen = [inside[c].argmax(1) for c in (1, 2)]  # a patch of each class, (300,)
weights = models[0].attention(test.images)[layer][:, head]  # (300, 36, 36)
maps = [weights[np.arange(300), at].reshape(300, SIDE, SIDE) for at in chosen]
maps = [np.kron(m, np.ones((PATCH, PATCH))) for m in maps]  # (300, 12, 12)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
steps += [
    (title, m, ramp("weight"), at)
    for title, m, at in zip(("a marked patch attends", "another patch attends"), maps, chosen)
]
with figure(
    12.4, 4.4, "Beside them what a marked and another patch attend to, which is the sign."
) as drawn:
    draw(drawn, steps)

# %% [markdown]
# The ring is the patch that attends. In the head of this picture a patch attends to a sign of its
# *own* colour, and so does one in the third network. In the second, a patch attends to a sign that
# does *not* have its colour. Both separate marked patches from others. The entry speaks of
# similarity; what training makes of queries and keys may be its opposite.
#
# ## Is the sign the reason?
#
# Lesson 1 warned: weights suggest a mechanism, only an intervention tests it. So change the sign. If it is painted in the
# colour of the next shape, the predictions should follow. If it is painted over, the networks should be blind again.

# %%
followed = [
    [mean_iou(m.predict(turned.images), truth) for truth in (turned.classes, test.classes)]
    for m in models
]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    all(new > floor + 0.25 and old < floor for new, old in followed),
    "mean IoU by the new sign: {:.3f}, {:.3f}, {:.3f}; by the old: {:.3f}, {:.3f}, {:.3f}",
    *(new for new, _ in followed),
    *(old for _, old in followed),
)

# %%
hidden = test.images.copy()
for image, sign in zip(hidden, test.signs):
    paint(image, sign, 0.1)
blind = [mean_iou(model.predict(hidden), test.classes) for model in models]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    max(blind) < floor + 0.05,
    "without the sign: {:.3f}, {:.3f}, {:.3f}",
    *blind,
)

# %% [markdown]
# The predictions follow the sign, and without it nothing is left of what attention gained.
#
# ## What you have now
#
# An image as a sequence of patches, a measure that is not fooled by background, and the reason to let every patch attend
# to every other: what decides may be far away, and a path that exists is not yet a path that training finds. The price is
# a weight for each pair of patches. That windows fail here says nothing about images in which the neighbours decide; we
# made these images so that they do not.
#
# The [appendix](statements_segmentation.md) computes what would belong below the heading of the entry, for example
# [*Is the sign the reason? Change it*](statements_segmentation.md#is-the-sign-the-reason-change-it).
