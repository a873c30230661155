"""Autodiff from nothing: how a program can know its own derivative.

A network learns by asking of every number in it: if this were a little larger, would the error be larger or smaller?
That question is a derivative, and there may be millions of them. This lesson goes from the slope of a curve to a
program that finds all of them in one walk, first by hand, then in forty lines of our own, then with the library.

    python examples/course/00_autodiff.py          a few seconds; pictures in runs/autodiff
"""

from __future__ import annotations

from lesson import Lesson  # first: Ctrl-C is one line from here on

# isort: split
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.extras import require

# -- a slope ---------------------------------------------------------------------------------------


def a_slope(lesson: Lesson) -> None:
    lesson.section("A derivative is a slope")
    lesson.say("""Take one number, $x$, and something that depends on it, $f(x)$. The derivative $f'(x)$ says how much
    $f$ changes for each unit that $x$ changes, as long as the change is small:""")
    lesson.formula(r"f'(x) = \frac{f(x + h) - f(x)}{h} \quad \text{as } h \to 0")
    lesson.say("""So one can measure it: move $x$ a little, and look. Let us do that for $f(x) = \\sin x$ at $x = 1$,
    whose derivative is known to be $\\cos 1$.""")
    lesson.predict(
        "The smaller $h$ is, the closer the quotient should come. Which $h$ is best on a computer: 0.1, 0.00000001, or as small as it goes?",
        "Neither end. A large $h$ is not small; a tiny one loses digits, since $f(x + h)$ and $f(x)$ agree in all but the last few of their sixteen.",
    )
    truth, steps = math.cos(1), 10.0 ** -np.arange(1, 16)
    forward = np.array([abs((math.sin(1 + h) - math.sin(1)) / h - truth) for h in steps])
    central = np.array([abs((math.sin(1 + h) - math.sin(1 - h)) / (2 * h) - truth) for h in steps])
    rows = [
        [f"1e-{i}", f"{f:.1e}", f"{c:.1e}"] for i, (f, c) in enumerate(zip(forward, central), 1)
    ]
    lesson.table(
        ["$h$", "error of $(f(x+h) - f(x)) / h$", "error of $(f(x+h) - f(x-h)) / 2h$"], rows[::2]
    )
    lesson.picture(
        "slope.png", lambda path: draw_errors(path, steps, forward, central),
        "The error of a measured derivative falls with h, until rounding takes over.",
        "Two curves of error against h on logarithmic axes, each with a minimum: one-sided differences near 1e-8, two-sided ones near 1e-5.",
    )  # fmt: skip
    best, best_central = steps[forward.argmin()], steps[central.argmin()]
    lesson.fact(
        "measuring one side is best near the root of the machine's precision", 1e-9 <= best <= 1e-7,
        f"$h$ = {best:.0e} leaves an error of {forward.min():.0e}",
    )  # fmt: skip
    lesson.fact(
        "measuring both sides is better: the error falls with $h^2$, not $h$",
        central.min() < forward.min() / 10 and 1e-7 < best_central < 1e-4,
        f"$h$ = {best_central:.0e} leaves {central.min():.0e}",
    )
    lesson.say("""Measuring is a good check, and we shall use it as one. It is no way to train a network: a million
    parameters would need a million measurements for a single step.""")


def draw_errors(path: Path, steps: np.ndarray, forward: np.ndarray, central: np.ndarray) -> None:
    figure = require("matplotlib.figure", "plotting").Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(steps, forward, "o-", label="one side")
    axes.loglog(steps, central, "s-", label="both sides")
    axes.invert_xaxis()
    axes.set_xlabel("h")
    axes.set_ylabel("error of the derivative of sin at 1")
    axes.grid()
    axes.legend()
    figure.savefig(path, dpi=150)


# -- the chain rule --------------------------------------------------------------------------------


def the_chain(lesson: Lesson) -> None:
    lesson.section("The chain rule")
    lesson.say("""A program is a chain of small steps, and we know the derivative of each small step. If $u$ depends on
    $x$, and $L$ on $u$, then a change of $x$ is passed on twice, and the factors multiply:""")
    lesson.formula(
        r"\frac{\partial L}{\partial x} = \frac{\partial L}{\partial u} \cdot \frac{\partial u}{\partial x}"
    )
    lesson.say(
        """Let us do it by hand, once. Two numbers, $x = 2$ and $w = 0.5$, and three steps: $u = x w$, $y = \\tanh
        u$, $L = y^2$. The last number is called $L$ because it is the *loss* later on: the one number that says how
        wrong a network is."""
    )
    x, w = 2.0, 0.5
    u = x * w
    y = math.tanh(u)
    L = y**2
    lesson.diagram(
        "graph", "The three steps as a graph: values go to the right, derivatives come back."
    )
    lesson.say("""Forward we compute the values. Then we go back from the end. The derivative of $L$ by itself is 1, and
    at each step we multiply by the derivative of that step: of a square, $2y$; of tanh, $1 - y^2$; of a product, the
    other factor.""")
    g_y = 2 * y  # of a square
    g_u = g_y * (1 - y**2)  # of tanh
    g_x, g_w = g_u * w, g_u * x  # of a product: the other factor
    lesson.table(
        ["", "forward", "backward", "because"],
        [
            ["$L$", f"{L:.4f}", "1", "$L$ depends on itself one to one"],
            ["$y$", f"{y:.4f}", f"{g_y:.4f}", r"$1 \cdot 2y$"],
            ["$u$", f"{u:.4f}", f"{g_u:.4f}", r"that $\cdot\, (1 - y^2)$"],
            ["$x$", f"{x:.4f}", f"{g_x:.4f}", r"that $\cdot\, w$"],
            ["$w$", f"{w:.4f}", f"{g_w:.4f}", r"that of $u$ $\cdot\, x$"],
        ],
    )
    h = 1e-5
    whole = lambda x, w: math.tanh(x * w) ** 2
    measured = [
        (whole(x + h, w) - whole(x - h, w)) / (2 * h),
        (whole(x, w + h) - whole(x, w - h)) / (2 * h),
    ]
    lesson.fact(
        "the derivatives by hand are those that one measures", np.allclose([g_x, g_w], measured, rtol=1e-8),
        f"measured: {measured[0]:.8f} and {measured[1]:.8f}; by hand: {g_x:.8f} and {g_w:.8f}",
    )  # fmt: skip
    lesson.say(
        """Look at what the walk back needed: the values $y$, $w$ and $x$ from the way forward, and one product for
        each step. It gave both derivatives, and would have given a million: **one** walk, whatever the number of
        inputs. That is why it goes backwards. All the derivatives of one number, taken together, are called its
        *gradient*; the walk is called *backward*, or backpropagation.""".replace("**", "*")
    )
    lesson.exercise(
        "Going forward instead, one could carry $\\partial u/\\partial x$, then $\\partial y/\\partial x$ and so on. For which programs is that the better direction?",
        "For those with one input and many outputs: each forward walk serves one input, each backward walk one output. A loss is one output of many inputs, so networks go backwards (`mg.jvp` goes forwards).",
    )


# -- forty lines -----------------------------------------------------------------------------------


class Value:
    """A number that remembers which numbers it was made of, and the slope by each."""

    def __init__(self, data: float, parents: Sequence[tuple[Value, float]] = ()) -> None:
        self.data, self.parents, self.grad = data, parents, 0.0

    def __add__(self, other: Value) -> Value:
        return Value(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other: Value) -> Value:
        return Value(self.data * other.data, [(self, other.data), (other, self.data)])

    def tanh(self) -> Value:
        y = math.tanh(self.data)
        return Value(y, [(self, 1 - y * y)])

    def backward(self) -> None:
        self.grad = 1.0
        for value in reversed(in_order(self)):
            for parent, slope in value.parents:
                parent.grad += value.grad * slope


def in_order(last: Value) -> list[Value]:
    """All values that `last` was made of, each after its parents."""
    found: list[Value] = []
    seen: set[int] = set()

    def visit(value: Value) -> None:
        if id(value) not in seen:
            seen.add(id(value))
            for parent, _ in value.parents:
                visit(parent)
            found.append(value)

    visit(last)
    return found


def our_own(lesson: Lesson) -> None:
    lesson.section("Our own, in forty lines")
    lesson.say("""A program can do this by itself, if every number remembers what it was made of. That is the whole idea
    of automatic differentiation: the arithmetic is overloaded, and writes down a graph as a by-product.""")
    lesson.code(Value, in_order)
    x, w = Value(2.0), Value(0.5)
    y = (x * w).tanh()
    (y * y).backward()
    exact = math.tanh(1), 1 - math.tanh(1) ** 2
    lesson.fact(
        "it finds what we found by hand", math.isclose(x.grad, 2 * exact[0] * exact[1] * 0.5) and math.isclose(w.grad, 4 * exact[0] * exact[1]),
        f"x.grad = {x.grad:.4f}, w.grad = {w.grad:.4f}",
    )  # fmt: skip
    lesson.say("""Two lines of it deserve a look. In `y * y` the number $y$ is used *twice*, so there are two ways from
    it to the result, and what comes back along them adds up: `+=`. And a value may pass its gradient on only when all
    of it has arrived: hence the order.""")
    lesson.formula(
        r"\frac{\partial L}{\partial y} = \sum_{k} \frac{\partial L}{\partial z_k} \cdot \frac{\partial z_k}{\partial y}",
        "over all $z_k$ that $y$ goes into",
    )
    a = Value(3.0)
    b = a + a
    (b * a).backward()  # 2a²
    lesson.fact(
        "what is used in several places gets the sum",
        a.grad == 12.0,
        "the derivative of $2a^2$ is $4a = 12$ at $a = 3$",
    )
    lesson.exercise(
        "What would `backward` give for $y \\cdot y$ with `=` in place of `+=`?",
        "Only the last of the two ways, so half of the derivative: $y$ in place of $2y$.",
    )


# -- arrays ----------------------------------------------------------------------------------------


def arrays(lesson: Lesson) -> None:
    lesson.section("The same for arrays")
    lesson.say("""Numbers one by one are slow. So a node of the graph holds a whole array, and each operation has
    one rule for the array. The most important is the matrix product. For $Y = XW$, and $G$ the derivative of the
    loss by each element of $Y$:""")
    lesson.formula(
        r"\frac{\partial L}{\partial X} = G W^\top \qquad \frac{\partial L}{\partial W} = X^\top G"
    )
    lesson.say("""One can read it off the shapes: $X$ is (n, k), $W$ (k, m) and $G$ (n, m), and there is only one
    way to make an (n, k) of $G$ and $W$. The proof is the sum over the places where an element of $X$ goes:
    $x_{ij}$ meets $w_{jc}$ in every column $c$ of row $i$.""")
    rng = np.random.default_rng(0)
    X, W, G = rng.standard_normal((3, 4)), rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    by_rule = G @ W.T, X.T @ G
    measured = measure(lambda X, W: float((G * (X @ W)).sum()), X, W)
    lesson.fact(
        "the rule of the matrix product", all(np.allclose(a, b, atol=1e-8) for a, b in zip(by_rule, measured)),
        f"each of {X.size + W.size} elements moved by itself: the largest gap is {max(np.abs(a - b).max() for a, b in zip(by_rule, measured)):.0e}",
    )  # fmt: skip
    lesson.say("""Broadcasting is the other thing that arrays add. In $Y = X + b$ a row $b$ is used once for each
    row of $X$; so, as always, what comes back adds up: the gradient of $b$ is the sum over the rows of $G$.""")
    b = rng.standard_normal(4)
    (by_measure,) = measure(lambda b: float(((X + b) ** 2).sum()), b)
    lesson.fact(
        "what was broadcast is summed", np.allclose((2 * (X + b)).sum(0), by_measure, atol=1e-6)
    )


def measure(f: Callable[..., float], *arrays: np.ndarray, h: float = 1e-6) -> list[np.ndarray]:
    """The derivative of f by each element of each array, by moving it to both sides."""
    found = []
    for array in arrays:
        slopes = np.empty_like(array)
        for at in np.ndindex(array.shape):
            original = array[at]
            ends = []
            for moved in (original + h, original - h):
                array[at] = moved
                ends.append(f(*arrays))
            array[at], slopes[at] = original, (ends[0] - ends[1]) / (2 * h)
        found.append(slopes)
    return found


# -- the library -----------------------------------------------------------------------------------


def the_library(lesson: Lesson) -> None:
    lesson.section("With the library")
    lesson.say(
        """`minigrad` is this idea, complete: hundreds of operations on arrays, each with its rule. Its arrays that
        remember are called *tensors*. They work inside NumPy code, so that the program above is written as one
        would write it anyway; `requires_grad=True` says by which of them to differentiate."""
    )
    program = """
        x = mg.Tensor(2.0, requires_grad=True)
        w = mg.Tensor(0.5, requires_grad=True)
        L = np.tanh(x * w) ** 2
        L.backward()
    """
    lesson.code(program)
    names: dict[str, Any] = {"mg": mg, "np": np}
    exec("\n".join(line.strip() for line in program.strip().splitlines()), names)
    x, w = names["x"], names["w"]
    y = math.tanh(1)
    lesson.show("x.grad", x.grad, 6)
    lesson.show("w.grad", w.grad, 6)
    lesson.fact(
        "the same numbers once more",
        math.isclose(x.grad.item(), y * (1 - y * y))
        and math.isclose(w.grad.item(), 4 * y * (1 - y * y)),
    )
    rng = np.random.default_rng(1)
    X, W, G = (
        mg.Tensor(rng.standard_normal((3, 4)), requires_grad=True),
        rng.standard_normal((4, 2)),
        rng.standard_normal((3, 2)),
    )
    (X @ W).backward(G)
    lesson.fact("and the rule of the matrix product", np.allclose(X.grad.data, G @ W.T))


def higher(lesson: Lesson) -> None:
    lesson.section("Derivatives of derivatives")
    lesson.say("""The walk back is itself arithmetic: products and sums. If it is done on numbers that remember, it
    has a derivative too, and so on. `mg.grad(f)` is the derivative of $f$ as a function, and can be applied again.
    For $f(x) = e^x \\sin x$ one knows what must come out: with every derivative the angle turns by $45°$ and the
    size grows by $\\sqrt{2}$.""")
    lesson.formula(r"f^{(n)}(x) = 2^{n/2} e^x \sin\left(x + n\frac{\pi}{4}\right)")
    f: Callable[..., Any] = lambda t: np.exp(t) * np.sin(t)
    at, rows, right = 0.3, [], True
    for n in range(6):
        found = float(np.asarray(getattr(f(at), "data", f(at))))
        exact = 2 ** (n / 2) * math.exp(at) * math.sin(at + n * math.pi / 4)
        right &= math.isclose(found, exact, rel_tol=1e-12)
        rows.append([n, f"{found:.12f}", f"{exact:.12f}"])
        f = mg.grad(f)
    lesson.table(
        ["$n$", "`mg.grad`, $n$ times", "by the formula"],
        rows,
        "The function and its first five derivatives at $x = 0.3$",
    )
    lesson.fact("five derivatives, to twelve digits", right)
    g = lambda t: t**4 - 3 * t**3 + 2
    x, steps = 3.0, 0
    while abs(x - 2.25) > 1e-10:
        x -= mg.grad(g)(x).item() / mg.grad(mg.grad(g))(x).item()
        steps += 1
    lesson.predict(
        "Newton's method finds where $f$ is smallest by steps of $-f'/f''$. From $x = 3$, how many steps does $f(x) = x^4 - 3x^3 + 2$ need for ten digits?",
        f"It takes {steps}: near the goal each step doubles the number of right digits.",
    )
    lesson.fact(
        "Newton's method by two derivatives",
        steps <= 6,
        f"{steps} steps to {x:.10f}, where $4x^3 = 9x^2$",
    )


def trust(lesson: Lesson) -> None:
    lesson.section("Trust, but measure")
    lesson.say("""A wrong rule does not crash. It trains, only worse. So every rule of the library is measured against
    differences, at random places and in random directions, and so can be yours. Here is a rule with a mistake that
    is easily made: the derivative of tanh in terms of $x$ where it should be in terms of $y$.""")
    right = mg.custom_op(x=lambda g, y: g * (1 - y * y))(lambda x, /: np.tanh(x))
    wrong = mg.custom_op(x=lambda g, x: g * (1 - x * x))(lambda x, /: np.tanh(x))
    at = np.linspace(-1, 1, 5)
    lesson.code(
        "right = mg.custom_op(x=lambda g, y: g * (1 - y * y))(lambda x, /: np.tanh(x))\nwrong = mg.custom_op(x=lambda g, x: g * (1 - x * x))(lambda x, /: np.tanh(x))"
    )
    lesson.fact(
        "`mg.gradcheck` accepts the right rule",
        mg.gradcheck(right, at) and mg.gradgradcheck(right, at),
    )
    try:
        mg.gradcheck(wrong, at)
        message = ""
    except AssertionError as error:
        message = str(error)
    lesson.fact("and refuses the wrong one", message)
    lesson.listing(message, note="It says where, and what it expected:")


def fitted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """A curve through points, as the code of the lesson has it: first, at last, and the losses between."""
    rng = np.random.default_rng(1)
    drawn = (
        rng.standard_normal((1, 12)),
        rng.standard_normal(12),
        0.1 * rng.standard_normal((12, 1)),
        np.zeros(1),
    )
    W1, b1, W2, b2 = (mg.Tensor(value, requires_grad=True) for value in drawn)
    curve = lambda: np.tanh(x[:, None] @ W1 + b1) @ W2 + b2  # (60, 1)
    start, losses = curve().data[:, 0], []
    for _ in range(2000):
        loss = ((curve() - y[:, None]) ** 2).mean()
        loss.backward()
        for p in (W1, b1, W2, b2):
            p.data -= 0.05 * p.grad.data
            p.grad = None
        losses.append(loss.item())
    return start, curve().data[:, 0], losses


def learning(lesson: Lesson) -> None:
    lesson.section("What it is for: learning")
    lesson.say("""Now the loop that every lesson from here on uses. Some points, a curve with a few unknown numbers,
    and an error. Ask for the derivative of the error by each unknown; take a small step against it; again.""")
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 60)
    y = np.sin(x) + 0.1 * rng.standard_normal(60)
    lesson.code(
        """
        curve = lambda: np.tanh(x[:, None] @ W1 + b1) @ W2 + b2
        for step in range(2000):
            loss = ((curve() - y[:, None]) ** 2).mean()
            loss.backward()
            for p in (W1, b1, W2, b2):
                p.data -= 0.05 * p.grad.data
                p.grad = None
        """
    )
    start, found, losses = fitted(x, y)
    lesson.picture(
        "fit.png", lambda path: draw_fit(path, x, y, start, found, losses),
        "Sixty points of a noisy sine, the curve before and after 2,000 steps, and the error along the way.",
        f"Left: noisy points of a sine wave, a flat first curve, and a last curve that follows the sine. Right: the error falls from {losses[0]:.1f} to {losses[-1]:.2f}.",
    )  # fmt: skip
    noise = float(np.mean((np.sin(x) - y) ** 2))
    lesson.fact(
        "the error falls to the noise", losses[-1] < 2 * noise < losses[0] / 10,
        f"from {losses[0]:.3f} to {losses[-1]:.4f}; the noise itself is {noise:.4f}",
    )  # fmt: skip
    lesson.say("""A Transformer is a larger `curve`, and nothing else about this loop changes. What its curve is,
    the next lessons tell; in lesson 9 you will have written all of it.""")
    lesson.exercise(
        "Why does the loop set `p.grad` to `None`?",
        "Because gradients add up: without it, each step would go along the sum of all gradients so far.",
    )


def draw_fit(
    path: Path, x: np.ndarray, y: np.ndarray, start: Any, found: Any, losses: list[float]
) -> None:
    figure = require("matplotlib.figure", "plotting").Figure(
        figsize=(9.5, 3.4), layout="constrained"
    )
    left, right = figure.subplots(1, 2)
    left.plot(x, y, ".", label="points", color="#6B6B6B")
    left.plot(x, start, "--", label="at first")
    left.plot(x, found, label="after 2,000 steps")
    left.legend()
    left.set_title("the curve")
    right.semilogy(losses)
    right.set_xlabel("step")
    right.set_title("mean squared error")
    right.grid()
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str] | None = None) -> int:
    lesson = Lesson("autodiff", __doc__ or "", argv)
    a_slope(lesson)
    the_chain(lesson)
    our_own(lesson)
    arrays(lesson)
    the_library(lesson)
    higher(lesson)
    trust(lesson)
    learning(lesson)
    return lesson.end()


if __name__ == "__main__":
    raise SystemExit(main())
