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
# # 0 · Autodiff from nothing
#
# A neural network is a function with many numbers in it that can be adjusted, its *parameters*. It
# learns by asking of each of them: if you were a little larger, would the error be larger or
# smaller? That question is a derivative, and there may be millions of them. **How can a program
# know its own derivative?**
#
# In this lesson you write a program that finds all derivatives in one walk, first by hand, then in a few lines, then
# with the library. At the end it learns a curve.
#
# Each exercise is a function with a hole, `...`. Write your code instead of the dots, and run the
# cell. A grader tries your function on values that you do not see, and says what is wrong. If you
# leave the hole open, the notebook goes on with our solution. A line with ✓ was checked when the
# cell ran.

# %% tags=["hide-input"] jupyter={"source_hidden": true}
import math

import numpy as np
from exercises.autodiff import grade, solution
from grading import check
from graph_pictures import graph_picture
from labels import label
from pictures import figure, show_one_of

import minigrad as mg

# %% [markdown]
# ## A first attempt: measure it
#
# The derivative $f'(x)$ says how much $f$ changes for each unit that $x$ changes, if the change is small. So move $x$ a
# little to both sides, and measure.
#
# ### Exercise: measure a derivative
#
# Return $(f(x + h) - f(x - h)) / 2h$.


# %%
def measured(f, x, h):
    """Return the slope of f between x - h and x + h."""
    ...


measured = grade(measured, "measured")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("measured")

# %% [markdown]
# For $\sin$ at 1 the derivative is $\cos 1$. **Before you go on:** which $h$ is best on a computer, 0.1, or as small as it
# goes?

# %%
steps = 10.0 ** -np.arange(1, 16)
errors = np.array([abs(measured(math.sin, 1.0, h) - math.cos(1)) for h in steps])
best = steps[errors.argmin()]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(1e-7 < best < 1e-4, "the best h is {:.0e}, with an error of {:.0e}", best, errors.min())

with figure(
    7, 3, "The error of a measured derivative against h, with its least value between."
) as drawn:
    axes = drawn.add_subplot()
    axes.loglog(steps, errors, "o-")
    axes.invert_xaxis()
    axes.set_xlabel("h")
    axes.set_ylabel(label("error"))

# %% [markdown]
# Neither end. A large $h$ is not small, and with a tiny $h$ the two values agree in all but their last digits, which are
# rounded. Measuring is good enough to check with. But it fails as a way to learn: each parameter needs two runs of the
# whole program, for a single step.

# %%
runs = []


def program(values):
    """Return a number that depends on a thousand parameters, and count the run."""
    runs.append(1)
    return float(np.sin(values).sum())


parameters = np.linspace(-1, 1, 1000)
slopes = []
for i in range(1000):
    move_one = lambda value, i=i: program(np.where(np.arange(1000) == i, value, parameters))
    slopes.append(measured(move_one, parameters[i], 1e-5))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(len(runs) == 2000, "runs of the program for {} derivatives: {}", len(slopes), len(runs))

# %% [markdown]
# ## The chain rule
#
# A program is a chain of small steps, and we know the derivative of each. If $u$ depends on $x$ and $L$ on $u$, a change
# is passed on twice, and the factors multiply:
#
# $$
# \frac{\partial L}{\partial x} = \frac{\partial L}{\partial u} \cdot \frac{\partial u}{\partial x}
# $$
#
# Take three steps: $u = x w$, $y = \tanh u$, $L = y^2$. Compute the values forward. Then go back from the end and multiply
# by the derivative of each step: of a square $2y$, of tanh $1 - y^2$, of a product the other factor.
#
# ### Exercise: by hand
#
# `x` and `w` are numbers. Return the pair $\partial L / \partial x$, $\partial L / \partial w$.


# %%
def by_hand(x, w):
    """Return the derivatives of tanh(x w)² with respect to x and w."""
    ...


by_hand = grade(by_hand, "by_hand")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("by_hand")

# %%
found = by_hand(2.0, 0.5)
expected = (
    measured(lambda x: math.tanh(x * 0.5) ** 2, 2.0, 1e-5),
    measured(lambda w: math.tanh(2 * w) ** 2, 0.5, 1e-5),
)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.allclose(found, expected),
    "by hand {:.4f} and {:.4f}; measured {:.4f} and {:.4f}",
    *found,
    *expected,
)

# %% [markdown]
# One walk back gave both derivatives, with one product for each step. Below, one walk gives all
# thousand: this is what measuring could not do. All derivatives of one number are its *gradient*,
# and the walk is called *backward*.
#
# ![The graph of L = tanh(x w) squared at x = 2, w = 0.5, with the value of each node forward, and the gradient of L at each node backward.](../pictures/graph.svg)
#
# The picture shows the walk with its numbers: black goes forward, orange comes back. The last line has the rule of each
# step, where $g$ is what has arrived.
#
# ## A program that does it
#
# Let every number remember what it was made of: its parents, and the slope with respect to each. Python lets a class
# say what `*` and `+` do, so the record is written while the program computes.


# %%
class Value:
    """Number that remembers the numbers it was made of, and the slope with respect to each."""

    def __init__(self, data, parents=()):
        self.data, self.parents = data, parents

    def __add__(self, other):
        return Value(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return Value(self.data * other.data, [(self, other.data), (other, self.data)])

    def tanh(self):
        y = math.tanh(self.data)
        return Value(y, [(self, 1 - y * y)])


def graph_of(last):
    """Return all values that `last` was made of, parents first, and for each its (index of parent, slope)."""
    values = []

    def visit(value):
        if value not in values:
            for parent, _ in value.parents:
                visit(parent)
            values.append(value)

    visit(last)
    return values, [[(values.index(parent), slope) for parent, slope in v.parents] for v in values]


x, w = Value(2.0), Value(0.5)
y = (x * w).tanh()
values, graph = graph_of(y * y)
print([round(value.data, 4) for value in values])
print(graph)

# %% [markdown]
# ### Exercise: backward
#
# `graph[i]` lists the parents of value `i` as pairs (index, slope), and parents come before children. Return the
# derivative of the *last* value with respect to each value. The derivative of the last with respect to itself is 1.
# Go from the end to the start, and give each parent its slope times what has arrived at the child. In `y * y` the
# same parent is there *twice*: what comes back adds up.


# %%
def backward(graph):
    """Return the derivative of the last value with respect to each value."""
    ...


backward = grade(backward, "backward")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("backward")

# %%
gradient = dict(zip(values, backward(graph)))

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.allclose([gradient[x], gradient[w]], found),
    "the program finds {:.4f} and {:.4f} as well",
    gradient[x],
    gradient[w],
)

# %% [markdown]
# Every number of the graph can be the output: the list up to this number is a graph of its own. The pictures below
# show what your `backward` returns. **Choose an output.** Each box contains a value, and below it the derivative of
# the output with respect to this value. Beside each arrow is the slope. To check a derivative by hand, multiply the
# slopes along each way to the output, and add up the ways.

# %%
names = ["x", "w", "u", "y", "L"]  # u = x w, y = tanh u, L = y y
numbers = [value.data for value in values]
by_output = {names[i]: backward(graph[: i + 1]) for i in (4, 3, 2)}

# %% tags=["hide-input"] jupyter={"source_hidden": true}
show_one_of(
    label("output"),
    {name: graph_picture(names, numbers, graph, slopes) for name, slopes in by_output.items()},
)

# %% [markdown]
# ## The same for arrays
#
# Real programs compute with arrays, and each operation has one rule for whole arrays. The most important is the
# matrix product $Y = XW$. Let $G$ hold the derivative of the last value $L$ with respect to each element of $Y$. The
# element $X_{ij}$ takes part in row $i$ of $Y$ only: it is multiplied by $W_{jk}$ and added to $Y_{ik}$. What comes
# back to it is $\partial L / \partial X_{ij} = \sum_k G_{ik} W_{jk}$. In the same way, $\partial L / \partial W_{jk}
# = \sum_i X_{ij} G_{ik}$.
#
# ### Exercise: the rule of the matrix product
#
# Write both sums as matrix products. The derivative with respect to a matrix has the shape of this matrix.


# %%
def matmul_gradients(G, X, W):
    """Return the derivatives with respect to X (n, k) and W (k, m), for G (n, m)."""
    ...


matmul_gradients = grade(matmul_gradients, "matmul_gradients")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("matmul_gradients")

# %% [markdown]
# ## With the library
#
# `minigrad` is this idea, complete: its arrays that remember are called *tensors*, they work inside NumPy code, and
# every operation has its rule. `requires_grad=True` marks what to differentiate with respect to. After `L.backward()`
# the derivative of `L` is in `x.grad`. From an array, `backward(G)` starts with the derivatives `G` of its elements.
# The array inside a tensor is its `data`.
#
# The loop that you wrote is `Backward._walk` in `minigrad/graph.py`. [Read the code in an
# evening](../reading.md#the-loss-becomes-gradients) leads to it, and through all that lies around it.

# %%
x, w = (mg.Tensor(value, requires_grad=True) for value in (2.0, 0.5))
L = np.tanh(x * w) ** 2
L.backward()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    np.allclose([x.grad.item(), w.grad.item()], found),
    "the library: {:.4f} and {:.4f}",
    x.grad.item(),
    w.grad.item(),
)

# %%
thousand = mg.Tensor(parameters, requires_grad=True)
np.sin(thousand).sum().backward()
gap = abs(thousand.grad.data - slopes).max()

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    gap < 1e-6,
    "{} derivatives in one walk; from the measured ones they differ by {:.0e}",
    len(slopes),
    gap,
)

# %%
rng = np.random.default_rng(0)
X, W, G = (rng.standard_normal(shape) for shape in ((3, 4), (4, 2), (3, 2)))
tensors = [mg.Tensor(array, requires_grad=True) for array in (X, W)]
(tensors[0] @ tensors[1]).backward(G)
gaps = [abs(t.grad.data - mine).max() for t, mine in zip(tensors, matmul_gradients(G, X, W))]

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(max(gaps) < 1e-12, "largest difference to your rule of the matrix product: {:.0e}", max(gaps))

# %% [markdown]
# The walk back consists of products and sums, so it can be differentiated again. `mg.grad(f)` is the derivative of `f`
# as a function. For $f(x) = e^x \sin x$ the $n$-th derivative is known: $2^{n/2} e^x \sin(x + n \pi / 4)$.

# %%
f, right = lambda t: np.exp(t) * np.sin(t), True
for n in range(5):
    f = mg.grad(f)
    known = 2 ** ((n + 1) / 2) * math.exp(0.3) * math.sin(0.3 + (n + 1) * math.pi / 4)
    right &= math.isclose(f(0.3).item(), known, rel_tol=1e-12)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(right, "the fifth derivative at 0.3: {:.10f}", f(0.3).item())

# %% [markdown]
# ## Trust, but measure
#
# A wrong rule does not crash: it gives numbers, and they are wrong. So every rule of the library is compared with
# measured slopes, by `mg.gradcheck`. Here is an operation with a mistake. `custom_op` takes its rule, where `g` is
# the derivative with respect to its result: tanh has the slope $1 - y^2$, and this rule puts $x$ in the place of $y$.


# %%
@mg.custom_op(x=lambda g, x: g * (1 - x * x))
def tanh(x, /):
    return np.tanh(x)


try:
    mg.gradcheck(tanh, np.linspace(-1, 1, 5))
    refused = False
except AssertionError as error:
    refused = True
    print(*str(error).splitlines()[:2], sep="\n")

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(refused, "gradcheck refuses the wrong rule")

# %% [markdown]
# ## What it is for
#
# Some points, a curve with a few unknown numbers, and an error. Here the curve is the sum of twelve tanh curves;
# parameters shift, stretch and weigh each of them. Ask for the derivative of the error with respect to each
# parameter, take a small step against it, and do it again.
#
# ### Exercise: one step
#
# `parameters` and `gradients` are lists of arrays; a gradient has the shape of its parameter.
# Return a list of new arrays and leave the old ones as they are.


# %%
def step(parameters, gradients, rate):
    """Return new arrays: each parameter moved by `rate` times its gradient, so that the error falls."""
    ...


step = grade(step, "step")

# %% tags=["hide-output"] jupyter={"outputs_hidden": true}
# Run this cell to see a solution. A script prints it if it runs with --solutions.
solution("step")

# %% [markdown]
# First with the graph of five numbers. `x` is given, `w` is the only parameter, and `L` is the error.
# **Choose a step** and watch `w` move against its gradient, while the error falls.

# %%
parameter, pictures_of_steps = [np.array(0.5)], {}
for i in range(11):
    x, w = Value(2.0), Value(float(parameter[0]))
    y = (x * w).tanh()
    values, graph = graph_of(y * y)
    slopes_of_L = backward(graph)
    numbers = [value.data for value in values]
    pictures_of_steps[str(i)] = graph_picture(names, numbers, graph, slopes_of_L)
    parameter = step(parameter, [np.array(slopes_of_L[1])], 0.03)

# %% tags=["hide-input"] jupyter={"source_hidden": true}
show_one_of(label("step"), pictures_of_steps)

# %% [markdown]
# Now the curve, with 37 parameters and 3,000 steps. Its points are a sine moved up and down at random, which is
# called *noise*. So the sine itself has an error, too, and no curve should do much better.

# %%
points = np.linspace(-3, 3, 60)
noisy = np.sin(points) + 0.1 * rng.standard_normal(60)
shapes = ((1, 12), (12,), (12, 1), (1,))
arrays = [0.5 * rng.standard_normal(shape) for shape in shapes]
curves, losses = {}, []
for i in range(3001):
    W1, b1, W2, b2 = tensors = [mg.Tensor(array, requires_grad=True) for array in arrays]
    curve = (np.tanh(points[:, None] @ W1 + b1) @ W2 + b2)[:, 0]
    loss = ((curve - noisy) ** 2).mean()
    loss.backward()
    arrays = step(arrays, [t.grad.data for t in tensors], 0.05)
    losses.append(loss.item())
    if i in (0, 30, 300, 3000):
        curves[i] = curve.data
noise = float(((np.sin(points) - noisy) ** 2).mean())

# %% tags=["hide-input"] jupyter={"source_hidden": true}
check(
    losses[-1] < 2 * noise < losses[0] / 10,
    "error {:.2f}, at the end {:.4f}; the noise {:.4f}",
    losses[0],
    losses[-1],
    noise,
)

with figure(
    8,
    3.4,
    "Noisy points of a sine, and the curve after 0, 30, 300 and 3,000 steps, closer each time.",
) as drawn:
    axes = drawn.add_subplot()
    axes.plot(points, noisy, ".", color="#6B6B6B")
    for i, values in curves.items():
        axes.plot(points, values, label=label("after {steps} steps", steps=i))
    axes.legend()

# %% [markdown]
# With one rate for all parameters, those with small gradients hardly move. **Adam** keeps for each parameter a running mean of its
# gradient and one of the gradient's square, and divides the first by the root of the second. So each parameter moves by about the rate
# in a step, however small its gradient is. From here on the lessons train with `minigrad.optim.Adam`. In lesson 7 you write it
# yourself.
#
# ## What you have now
#
# A program that records what it computes knows its derivative: one walk back, however many parameters there are. A
# Transformer is a larger curve with the same loop. The next lessons build this curve; in lesson 7 you will have written
# all of it.
