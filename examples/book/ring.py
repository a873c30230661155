"""Extend the book from outside, through each of its doors, as the packages around it do.

python examples/book/ring.py
"""

import alone  # noqa: F401
import numpy as np

from minigrad.fuse import fuse, fusible, use_definitions
from minigrad.grad import grad
from minigrad.ops.arithmetic import multiply
from minigrad.optimizer import Optimizer, Stepper
from minigrad.registry import function, op
from minigrad.tensor import Tensor
from minigrad.watch import Watch

x = np.array([1.0, 2.0])

# 1. A kernel runs instead of the definition of a function; higher derivatives use the definition.


@fusible
def cube(x):
    return x * x * x


@fuse(cube, vjp=lambda g, x: (3 * g * x * x,))
def _cube(x, /):
    return x**3


assert grad(lambda t: grad(lambda s: cube(s).sum())(t).sum())(x).tolist() == [6, 12]
assert cube(Tensor(np.ones(2, np.float16))).dtype == np.float16

# 2. An answer to a function of NumPy, and a method: an operation, and a composition of operations.


@op(numpy=np.log1p, methods="log_from_one", x=lambda g, x: g / (1 + x))
def log_from_one(x, /):
    return np.log1p(x)


@function(numpy=np.sinc)
def cardinal_sine(x):
    return np.sin(np.pi * x) / (np.pi * x)


assert grad(lambda t: np.log1p(t).sum() + (2 * t).log_from_one().sum())(x)[0] == 1 / 2 + 2 / 3
np.testing.assert_allclose(grad(lambda t: np.sinc(t / 4).sum())(x)[1], -1 / np.pi)

# 3. A tool sees each operation, its gradient, and the nodes of the graph.


class Names(Watch):
    def __init__(self):
        self.seen = []

    def forward(self, op, function, args, options):
        self.seen.append(op.name)
        return super().forward(op, function, args, options)

    def backward(self, node, rule, g, args):
        self.seen.append(f"{node.op.name}'")
        return super().backward(node, rule, g, args)


with Names() as names, Names():
    multiply(Tensor(x, requires_grad=True), 2).sum().backward()
print("seen:", *names.seen)
assert names.seen == ["multiply", "sum", "sum'", "multiply'"]

# 4. A stepper, and an optimizer: the sign of the gradient gives the direction.


class Printing(Stepper):
    def take(self):
        norm = super().take()
        print(f"norm of the gradients: {norm:.3f}")
        return norm


class SignDescent(Optimizer):
    stepper_type = Printing

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def _update(self, p, g, state, settings):
        p -= settings["lr"] * np.sign(g)


weights = Tensor(x.copy(), requires_grad=True)
optimizer = SignDescent([weights], lr=0.5)
(weights * weights).sum().backward()
optimizer.step()
assert weights.data.tolist() == [0.5, 1.5]

# The definition instead of the kernel.
with use_definitions("cube"):
    assert cube(weights).tolist() == [0.125, 3.375]
