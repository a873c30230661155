"""Make the usual mistakes, and print the errors: what is wrong, and what to write instead.

python examples/book/mistakes.py
"""

import copy
import pickle

import alone  # noqa: F401
import numpy as np

from minigrad.grad import grad, gradients
from minigrad.modes import no_grad
from minigrad.ops.attention import scaled_dot_product_attention
from minigrad.ops.loss import cross_entropy
from minigrad.ops.network import linear, matmul, rms_norm, softmax
from minigrad.optimizer import Adam, clip_grad_norm_
from minigrad.registry import op
from minigrad.tensor import Tensor
from nn.config import LanguageModelConfig
from nn.layers import Linear
from nn.models import LanguageModel

model = LanguageModel(LanguageModelConfig(9, 8, 2, 1, 16))


def leaf(*shape):
    return Tensor(np.ones(shape), requires_grad=True)


def twice():
    y = leaf(2).sum()
    y.backward()
    y.backward()


def write_after_use():
    x = leaf(2)
    y = np.square(x).sum()
    with no_grad():
        x *= 2
    y.backward()


def write_into_a_leaf():
    x = leaf(2)
    x += 1


@op(x=lambda g, x, power: g * power * x ** (power - 1))
def powered(x, /, power):
    return x**power


def three_results_of_one_rule():
    @op(vjp=lambda g: (g, g, g))
    def pair(a, b, /):
        return a + b

    pair(leaf(), leaf()).backward()


def hook_of_another_shape():
    x = leaf(2)
    x.register_hook(lambda g: g.sum())
    x.sum().backward()


def yield_inside_a_block():
    def steps():
        with no_grad():
            yield 1

    list(steps())


heads = np.ones((1, 2, 3, 4))
for mistake, advice in [
    (lambda: (leaf(3) * 2).backward(), "reduce the tensor first"),
    (lambda: leaf(2) * np.ma.array([1.0, -999.0], mask=[False, True]), "write x.filled(value)"),
    (twice, "retain_graph=True"),
    (write_after_use, "change it after backward()"),
    (write_into_a_leaf, "change it under no_grad()"),
    (lambda: Tensor([1, 2], requires_grad=True), "the dtype must be floating-point"),
    (lambda: grad(lambda x: float(x) ** 2)(1.0), "np.sin(x), not math.sin(x)"),
    (lambda: grad(lambda x: x * 2)(np.ones(3)), "return a sum"),
    (lambda: gradients(leaf(2).sum(), leaf(2)), "allow_unused=True"),
    (lambda: np.i0(leaf(2)), "has no rule"),
    (lambda: np.asarray(leaf(2)), "x.detach()"),
    (lambda: copy.deepcopy(leaf(2) * 2), "detach() or clone()"),
    (lambda: pickle.dumps(leaf(2) * 2), "detach()"),
    (lambda: matmul(leaf(2, 3), leaf(2, 3)), "(2, 3) float64"),
    (lambda: linear(leaf(2, 3), leaf(4, 2)), "(out, in)"),
    (lambda: leaf(2, 3).sum(axis=2), "out of bounds"),
    (lambda: leaf().mean(axis=0), "out of bounds"),
    (lambda: leaf(2).astype(int).backward(), "does not require gradients"),
    (lambda: powered(leaf(), power=leaf()), "use .detach()"),
    (lambda: rms_norm(leaf(2, 3), weight=np.ones(2)), "the shape of a row"),
    (lambda: softmax(leaf(2), where=np.ones(2)), "True = the element counts"),
    (lambda: cross_entropy(leaf(2, 3), [0, 3]), "target must be from 0 to 2"),
    (
        lambda: scaled_dot_product_attention(heads, heads, heads, np.ones((3, 3))),
        "must be booleans",
    ),
    (lambda: scaled_dot_product_attention(heads, heads, heads, scale="big"), "must be a number"),
    (lambda: scaled_dot_product_attention(heads, heads, heads, heads > 0), "must broadcast to"),
    (lambda: model([[1, 2], [3]]), "got rows of 1 to 2 ids"),
    (lambda: model([[1, 2]], np.ones((1, 2))), "padding_mask must be booleans"),
    (lambda: Linear(2, 3).load_state_dict({"kernel": heads}), "unexpected: kernel"),
    (lambda: Adam([leaf(2)], betas=0.9), "betas must be two numbers"),
    (lambda: clip_grad_norm_([leaf(2)], -1), "max_norm must be"),
    (three_results_of_one_rule, "must return 2 gradients"),
    (yield_inside_a_block, "decorate the generator"),
    (hook_of_another_shape, "shape (2,) and dtype float64"),
]:
    try:
        mistake()
    except Exception as error:
        assert advice in str(error), error
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError(f"no error: {advice}")
