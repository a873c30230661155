"""Differentiate NumPy code: to any order, through indices and joined arrays.

    python examples/book/derivatives.py

Each line prints what calculus gives, and the program checks it.
"""

import numpy as np

import minigrad as mg


def check(formula, value, expected):
    print(f"{formula:40}", np.round(np.asarray(value), 4))
    np.testing.assert_allclose(value, expected, rtol=1e-9)


x = np.array([0.5, 1.5])

# Functions of NumPy have derivatives, and derivatives have derivatives.
check("sin'''", mg.grad(mg.grad(mg.grad(np.sin)))(0.5), -np.cos(0.5))
check("√'''", mg.grad(mg.grad(mg.grad(np.sqrt)))(0.25), 12)
y = np.tanh(0.5)
check(
    "(tanh²)''", mg.grad(mg.grad(lambda t: np.tanh(t) ** 2))(0.5), 2 * (1 - y**2) * (1 - 3 * y**2)
)
for formula, f, expected in [
    ("(eˣ + log x)'", lambda t: (np.exp(t) + np.log(t)).sum(), np.exp(x) + 1 / x),
    ("(√x - 2ˣ)'", lambda t: (np.sqrt(t) - 2**t).sum(), 0.5 / np.sqrt(x) - np.log(2) * 2**x),
    ("(x³ / cos x)'", lambda t: (t**3 / np.cos(t)).sum(), None),
    ("(|x - 1| sign(x))'", lambda t: (abs(t - 1) * np.sign(t)).sum(), [-1, 1]),
    (
        "(1 / (1 + e⁻ˣ))'",
        lambda t: mg.sigmoid(t).sum(),
        mg.sigmoid(x).data * (1 - mg.sigmoid(x).data),
    ),
    ("max' + min'", lambda t: 2 * t.max() + t.min(), [1, 2]),
    ("variance'", lambda t: t.var(), x - x.mean()),
    ("mean", lambda t: (+t).mean(), [0.5, 0.5]),
    ("x₀² by indices that repeat", lambda t: np.square(t[[0, 0]]).sum() / 2, [2 * x[0], 0]),
]:
    if expected is None:
        expected = (3 * x**2 * np.cos(x) + x**3 * np.sin(x)) / np.cos(x) ** 2
    check(formula, mg.grad(f)(x), expected)
    second = mg.grad(lambda t, f=f: mg.grad(f)(t).sum())
    step = 1e-6 * np.eye(2)
    differences = [(mg.grad(f)(x + h).sum() - mg.grad(f)(x - h).sum()).item() / 2e-6 for h in step]
    np.testing.assert_allclose(second(x), differences, atol=1e-7)

# Shapes: each rule undoes what its function does.
rows = mg.Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
joined = np.concatenate([np.stack([rows[0], rows[1]]), np.expand_dims(rows.sum(0), 0)])
part = np.squeeze(np.where(joined > 2, joined, 0)[:, :1]).astype(np.float32)
mg.matmul(part, np.ones(3, np.float32)).backward(retain_graph=True)
check("joined, chosen, and cut", rows.grad, [[1, 0, 0], [2, 0, 0]])
total = np.broadcast_to(mg.masked_fill(rows, rows.data > 4, 0.0).T, (2, 3, 2)).transpose(1, 0, 2)
check("repeated", mg.gradients(total.sum(), rows)[0], [[2, 2, 2], [2, 2, 0]])

queries, keys = (np.random.default_rng(0).standard_normal((1, 2, 3, 4)) for _ in range(2))
attended = mg.scaled_dot_product_attention(queries, keys, keys, np.tri(3, dtype=bool))
check("the first position, with a causal mask", attended[:, :, 0], keys[:, :, 0])

check("layer norm", mg.layer_norm(x, eps=0.0), [-1, 1])
check("RMS norm", mg.rms_norm(x), x / np.sqrt(np.square(x).mean()))

logits, target = np.array([[0.1, 0.7, 0.2]]), [2]
probabilities = np.exp(logits) / np.exp(logits).sum()
one_hot = np.array([[0.0, 0.0, 1.0]])
slope = mg.grad(mg.cross_entropy)(logits, target)
check("cross-entropy", slope, probabilities - one_hot)

# A function of parameters in a dict, with another result beside its value.
line = lambda p, t: (np.square(p["slope"] * t + p["shift"]).sum(), {"at 0": +p["shift"]})
(loss, values), slopes = mg.value_and_grad(line, has_aux=True)({"slope": 2.0, "shift": 1.0}, x)
check("the loss of a line", loss, np.square(2 * x + 1).sum())
check("another result", values["at 0"], 1)
check("its derivative by the slope", slopes["slope"], 2 * ((2 * x + 1) * x).sum())
