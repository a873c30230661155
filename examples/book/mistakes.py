"""Make the usual mistakes, and print the errors: what is wrong, and what to write instead.

python examples/book/mistakes.py
"""

import copy
import operator
import pickle

import numpy as np

import minigrad as mg
import nn
from minigrad.registry import op

model = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 16))
heads = np.ones((1, 2, 3, 4))


def leaf(*shape):
    return mg.Tensor(np.ones(shape), requires_grad=True)


def attend(mask=None, **options):
    return mg.scaled_dot_product_attention(heads, heads, heads, mask, **options)


def twice():
    y = leaf(2).sum()
    y.backward()
    y.backward()


def write_after_use():
    x = leaf(2)
    y = np.square(x).sum()
    with mg.no_grad():
        x *= 2
    y.backward()


@op(x=lambda g, x, power: g * power * x ** (power - 1))
def powered(x, /, power):
    return x**power


def hook_of_another_shape():
    x = leaf(2)
    x.register_hook(lambda g: g.sum())
    x.sum().backward()


for mistake, advice in [
    (lambda: (leaf(3) * 2).backward(), "reduce the tensor first"),
    (twice, "retain_graph=True"),
    (write_after_use, "change it after backward()"),
    (lambda: operator.iadd(leaf(2), 1), "change a parameter under no_grad()"),
    (lambda: mg.Tensor([1, 2], requires_grad=True), "the dtype must be floating-point"),
    (lambda: leaf(2) * np.ma.array([1.0, -999.0], mask=[False, True]), "write x.filled(value)"),
    (lambda: mg.grad(lambda x: float(x) ** 2)(1.0), "np.sin(x), not math.sin(x)"),
    (lambda: mg.grad(lambda x: x * 2)(np.ones(3)), "return a sum"),
    (lambda: np.i0(leaf(2)), "has no rule"),
    (lambda: np.asarray(leaf(2)), "x.detach()"),
    (lambda: copy.deepcopy(leaf(2) * 2), "detach() or clone()"),
    (lambda: pickle.dumps(leaf(2) * 2), "detach()"),
    (lambda: mg.matmul(leaf(2, 3), leaf(2, 3)), "(2, 3) float64"),
    (lambda: leaf().mean(axis=0), "out of bounds"),
    (lambda: leaf(2).astype(int).backward(), "does not require gradients"),
    (lambda: powered(leaf(), power=leaf()), "use .detach()"),
    (hook_of_another_shape, "shape (2,) and dtype float64"),
    (lambda: mg.layer_norm(leaf(2, 3), weight=np.ones(2)), "weight must have shape (3,)"),
    (lambda: mg.cross_entropy(leaf(2, 3), [0, 3]), "target must be from 0 to 2"),
    (lambda: attend(np.ones((3, 3))), "must be booleans"),
    (lambda: attend(heads > 0), "must broadcast to"),
    (lambda: attend(scale="big"), "must be a number"),
    (lambda: model([[1, 2], [3]]), "got rows of 1 to 2 ids"),
    (lambda: model([[1, 2]], np.ones((1, 2))), "padding_mask must be booleans"),
    (lambda: nn.Linear(2, 3)(leaf(1, 2)), "convert x by x.astype('float32')"),
    (lambda: nn.Linear(2, 3).load_state_dict({"kernel": heads}), "unexpected: kernel"),
    (lambda: mg.optim.Adam([leaf(2)], betas=0.9), "betas must be two numbers"),
]:
    try:
        mistake()
    except Exception as error:
        assert advice in str(error), error
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError(f"no error: {advice}")
