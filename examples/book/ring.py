"""Extend the book from outside, through each of its doors, as the packages around it do.

python examples/book/ring.py
"""

import numpy as np

import minigrad as mg
from minigrad.fuse import fuse, fusible
from minigrad.modes import MODE, Mode, leave
from minigrad.op import either
from minigrad.optimizer import Stepper
from minigrad.registry import FORMS, function, op, ufunc

x = np.array([1.0, 2.0])

# 1. A kernel runs instead of the definition of a function; higher derivatives use the definition.


@fusible
def cubes_plus(x, b):
    return x * x * x + b


@fuse(cubes_plus, vjp=lambda g, x: (3 * g * x * x, g))
def _cubes_plus(x, b, /):
    return x**3 + b


cubes = lambda t: cubes_plus(t, t).sum()
assert mg.grad(lambda t: mg.grad(cubes)(t).sum())(x).tolist() == [6, 12]
half = np.ones(2, np.float16)
assert cubes_plus(half, half).dtype == np.float16

# 2. Answers to functions of NumPy, and methods. The rule of `softplus` calls another operation.

fabs = ufunc(np.fabs, "Compute |x|.", x=lambda g, x: g * np.sign(x))


@op(x=lambda g, y: g * y * (1 - y))
def logistic(x, /):
    return 1 / (1 + np.exp(-x))


@op(methods="soft", x=lambda g, x: g * either(logistic)(x))
def softplus_of(x, /):
    return np.log1p(np.exp(x))


@function(numpy=np.i0)
def halves(x, axis=0):
    return x.sum(axis) / 2


assert (
    mg.grad(lambda t: mg.grad(lambda s: s.soft().sum())(t).sum())(np.zeros(2)).tolist()
    == [0.25] * 2
)
assert mg.grad(lambda t: np.fabs(t).sum() + np.i0(t))(x).tolist() == [1.5, 1.5]

# 3. A tool sees each operation, its gradient, and the nodes of the graph.


class Names:
    """The names of operations, and with a prime those of their derivatives."""

    def __enter__(self):
        mode, self.seen = MODE.get(), []
        MODE.set(Mode(mode.record, self, mode.traced, mode, self))
        return self.seen

    def __exit__(self, *error):
        leave(self)

    def forward(self, op, function, args, options):
        self.seen.append(op.name)
        return function(*args, **options)

    def backward(self, node, rule, g, args):
        self.seen.append(f"{node.op.name}'")
        return rule(g, *args)

    def recorded(self, node):
        assert repr(node).endswith(f": {node.op.name} {node.shape} {node.dtype}>")


with Names() as seen:
    mg.multiply(mg.Tensor(x, requires_grad=True), 2).sum().backward()
print("seen:", *seen)
assert seen == ["multiply", "sum", "sum'", "multiply'"]

# 4. A stepper, and an optimizer: the sign of the gradient gives the direction.


class Printing(Stepper):
    def take(self):
        norm = super().take()
        print(f"norm of the gradients: {norm:.3f}")
        return norm


class SignDescent(mg.optim.Optimizer):
    stepper_type = Printing

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def _update(self, p, g, state, settings):
        p -= settings["lr"] * np.sign(g)


weights = mg.Tensor(x.copy(), requires_grad=True)
optimizer = SignDescent([weights], lr=0.5)
(weights * weights).sum().backward()
optimizer.step()
assert weights.data.tolist() == [0.5, 1.5]

# 5. Another form of a call: `axes=` in place of `axis=`.


def by_another_name(function, args, options):
    return (lambda: function(*args, axis=options["axes"])) if "axes" in options else None


FORMS.append(by_another_name)
assert halves(mg.Tensor(np.ones((2, 3))), axes=1).tolist() == [1.5, 1.5]

# The definition instead of the kernel.
with mg.use_definitions("cubes_plus"):
    assert cubes_plus(weights, 0).tolist() == [0.125, 3.375]
