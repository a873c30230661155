"""Declare operations, and a kernel, as the packages around the book do.

python examples/book/operations.py
"""

import numpy as np

import minigrad as mg
from minigrad.fuse import fuse, fusible
from minigrad.registry import FORMS, either, function, op, ufunc

x = np.array([1.0, 2.0])


# An operation with a rule, which reads the operand x.
@op(x=lambda g, x, power: g * power * x ** (power - 1))
def monomial(x, /, power):
    return x**power


print(monomial.op, monomial.op.source.splitlines()[0])
slope = mg.grad(lambda t: monomial(t, 5).sum())
assert np.allclose(mg.grad(lambda t: slope(t).sum())(x), 20 * x**3)


# Answers to functions of NumPy, and methods. The rule of `softplus_of` calls another operation.
fabs = ufunc(np.fabs, "Compute |x|.", x=lambda g, x: g * np.sign(x))


@op(x=lambda g, y: g * y * (1 - y))
def logistic(x, /):
    return 1 / (1 + np.exp(-x))


@op(methods="soft", x=lambda g, x: g * either(logistic)(x))
def softplus_of(x, /):
    return np.log1p(np.exp(x))


@function(numpy=np.rollaxis)
def axis_first(x, axis):
    """Move an axis of a vector or matrix to the front."""
    return x.swapaxes(0, axis)


slope = mg.grad(lambda t: t.soft().sum())
assert mg.grad(lambda t: slope(t).sum())(np.zeros(2)).tolist() == [0.25] * 2
assert mg.grad(lambda t: (np.fabs(t) * np.rollaxis(t, 0)).sum())(x).tolist() == [2, 4]


# Another form of a call: `axes=` in place of `axis=`.
def by_another_name(function, args, options):
    return (lambda: function(*args, axis=options["axes"])) if "axes" in options else None


FORMS.append(by_another_name)
assert axis_first(mg.Tensor(np.ones((2, 3))), axes=1).shape == (3, 2)


# A kernel runs instead of the definition of a function; higher derivatives use the definition.
@fusible
def cubes_plus(x, b):
    return x * x * x + b


@fuse(cubes_plus, vjp=lambda g, x: (3 * g * x * x, g))
def _cubes_plus(x, b, /):
    return x**3 + b


slope = mg.grad(lambda t: cubes_plus(t, t).sum())
assert mg.grad(lambda t: slope(t).sum())(x).tolist() == [6, 12]
half = np.ones(2, np.float16)
assert cubes_plus(half, half).dtype == np.float16
with mg.use_definitions("cubes_plus"):
    assert cubes_plus(mg.Tensor(x), 0).tolist() == [1, 8]
