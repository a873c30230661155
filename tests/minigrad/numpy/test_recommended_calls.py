"""The calls that error messages recommend work on tensors that require gradients."""

from __future__ import annotations

import ast
import copy as copy  # the calls in CASES use these modules
import math as math
import operator as operator
import pickle as pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor, protocols

try:
    import scipy.sparse
    import scipy.special
except ImportError:
    scipy = None

CASES: list[tuple[str, str, list[str]]] = [
    # what the message contains; the call that raises it; the calls that it recommends
    ("write minigrad.tensor([...]) instead of np.array([...]) or a list", "np.array([[p[0], 1.0], [2.0, p[1]]])",
     ["mg.tensor([p[0] * p[1], p[2]])", "mg.tensor([[p[0], 1.0], [2.0, p[1]]])"]),
    ("A @ x instead of A.dot(x)", "np.eye(3).dot(p)", ["np.eye(3) @ p"]),
    ("np.full converts it; to keep them, write np.broadcast_to(fill_value, shape)", "np.full((2, 2), p[0])",
     ["np.broadcast_to(p[0], (2, 2))"]),
    ("np.c_ converts it; to keep them, write np.column_stack([...]);", "np.c_[np.ones(2), x]",
     ["np.column_stack([np.ones(2), x])"]),
    ("np.r_ converts it; to keep them, write np.hstack([...]), or np.concatenate([...]) for matrices;", "np.r_[0.0, p]",
     ["np.hstack([0.0, p])", "np.concatenate([x, x])"]),
    ("np.r_ converts it, and no formula for these arguments is known", "np.r_['-1', x, x]", []),
    ("write np.stack([...]) of the elements", "written(mg.zeros(2), p[0] * 1j)", ["np.abs(np.stack([p[0] * 1j, p[1]]))"]),
    ("the argument must be given by position, as in grad(f)(x)", "mg.grad(lambda x: x * x)(x=2.0)",
     ["mg.grad(lambda x: x * x)(2.0) -> Tensor"]),
    ("scipy.special.voigt_profile has no rule for Tensors; use .detach()", "scipy.special.voigt_profile(p, 1.0, 1.0)",
     ["scipy.special.voigt_profile(p.detach(), 1.0, 1.0) -> ndarray"]),
    ("np.linalg.lstsq has no batching rule; write the batch axis",
     "mg.vmap(lambda v: np.linalg.lstsq(np.eye(3), v)[0])(x.detach())", []),
    ("minigrad.tensor([...])", "np.exp([p[0], p[1]])", ["np.exp(mg.tensor([p[0], p[1]]))"]),
    ("a tensor such as minigrad.zeros(3) instead of an ndarray that is written into",
     "zeros.__setitem__(slice(0, 3), p)", ["written(mg.zeros(3), p[0])"]),
    ("scipy.sparse converts it; to keep them, write minigrad.matmul(A, x)", "sparse @ x", ["mg.matmul(sparse, x)"]),
    ("scipy.sparse.dot converts it; to keep them, write minigrad.matmul(A, x)", "sparse.dot(x)", ["mg.matmul(sparse, x)"]),
    ("scipy.sparse converts it; to keep them, write minigrad.matmul(A, x)", "scipy.sparse.csr_matrix(sparse) * x",
     ["mg.matmul(scipy.sparse.csr_matrix(sparse), x)"]),
    ("no formula for these arguments is known", "sparse * x", []),
    ("scipy.integrate.quad converts it, and no formula is known", "mg.grad(lambda p: integral(p[0]))(p)", []),
    ("without them, write x.detach()", "x.numpy()", ["x.detach().numpy() -> ndarray"]),
    ("write NumPy's functions instead of those of math (np.sin(x), not math.sin(x))",
     "mg.grad(lambda p: math.sin(p[0]))(p)", ["np.sin(p[0])", "mg.grad(lambda p: np.sin(p[0]))(p) -> Tensor"]),
    ("np.stack([...]) or a tensor such as minigrad.zeros(3) instead of an ndarray that values are written into",
     "mg.grad(write)(p)", ["np.stack([p[0], p[1]])", "written(mg.zeros(3), p[0])"]),
    ("write x.detach().item()", "warned(lambda: float(p[0]))", ["p[0].detach().item() -> float"]),
    ("write jacobian(f)", "mg.grad(lambda p: p * p)(p)",
     ["mg.jacobian(lambda p: p * p)(p) -> Tensor", "mg.grad(lambda p: (p * p).sum())(p) -> Tensor"]),
    ("choose with np.where, or call the function in a loop: np.stack([f(x) for x in xs])",
     "mg.vmap(lambda v: v if v[0] > 0 else -v)(x)",
     ["mg.vmap(lambda v: np.where(v[0] > 0, v, -v))(x)", "np.stack([f(v) for v in x])"]),
    ("cannot write different results for the examples", "mg.vmap(lambda v: np.add(v, 1, out=np.zeros(3)))(x.detach())", []),
    ("write the batch axis", "mg.vmap(lambda v: np.packbits(v > 0))(x.detach())", []),
    ("write vmap(f)(np.repeat(xs, m, axis=0), np.concatenate([ys] * n))", "mg.vmap(mg.vmap(f))(x)",
     ["mg.vmap(np.dot)(np.repeat(x, 2, axis=0), np.concatenate([x] * 2))"]),
    ("random values must not be drawn inside vmap", "mg.vmap(lambda v: v * mg.randn(3))(x)",
     ["mg.vmap(lambda v, noise: v * noise)(x, mg.randn(2, 3))"]),
    ("compute with x.real and x.imag, or use .detach() if no gradient is needed", "np.sort(p * 1j)",
     ["np.sort((p * 1j).imag)", "np.sort((p * 1j).detach()) -> Tensor"]),
    ("write np.concatenate([2 * x[:1] - x[n:0:-1], x])", "np.pad(p, 2, 'reflect', reflect_type='odd')",
     ["np.concatenate([2 * p[:1] - p[2:0:-1], p])"]),
    ("write x.filled(value) instead of the masked array x", "np.ma.array([1.0, 2.0, 3.0]) * p",
     ["np.ma.array([1.0, 2.0, 3.0]).filled(0) * p"]),
    ("write z = np.where(mask, value, z), or z = np.concatenate([...])", "(p * 1j).__setitem__(0, 1)",
     ["np.abs(np.where(mask[0], 1.0, p * 1j))", "np.abs(np.concatenate([p * 1j, p]))"]),
    ("write z = z * w instead of z *= w", "operator.imul(p * 1j, 2)", ["np.abs((p * 1j) * 2)"]),
    ("compute with x.real and x.imag, or use .detach()", "mg.multiply(p * 1j, p)", ["mg.multiply((p * 1j).imag, p)"]),
    ("the result is complex, and <lambda> has no derivative", "mg.custom_op(p=lambda g: g)(lambda p, /: p * 1j)(p)", []),
    ("astype: dtype must be complex, got <class 'float'>; write x.real, or np.abs(x)", "(p * 1j).astype(float)",
     ["(p * 1j).real", "np.abs(p * 1j)"]),
    ("change it after backward(), or use a clone() of it", "changed()", ["changed(clone=True) -> Tensor"]),
    ("change them after backward(), or use a copy", "changed(view=True)", ["changed(view=True, clone=True) -> Tensor"]),
    ("write data.detach() for a new leaf, or leave out requires_grad", "mg.tensor(f(p), requires_grad=True)",
     ["mg.tensor(f(p).detach(), requires_grad=True)", "mg.tensor(f(p))"]),
    ("write data.clone() for a copy with a gradient, or data.detach()", "Tensor(f(p))",
     ["f(p).clone()", "Tensor(f(p).detach()) -> Tensor"]),
    ("pass dtype=float, or call randint for integers", "mg.randn(3, dtype=int)",
     ["mg.randn(3, dtype=float) -> Tensor", "mg.randint(0, 3, (3,)) -> Tensor"]),
    ("write randint(0, high, size)", "mg.randint(5, (2,))", ["mg.randint(0, 5, (2,)) -> Tensor"]),
    ("use detach() or clone()", "copy.deepcopy(f(p))", ["copy.deepcopy(f(p).detach()) -> Tensor", "f(p).clone()"]),
    ("use detach()", "pickle.dumps(f(p))", ["pickle.dumps(f(p).detach()) -> bytes"]),
    ("write np.where(mask, np.log(np.where(mask, x, 1)), other)", "np.log(x, where=mask)",
     ["np.where(mask, np.log(np.where(mask, x, 1)), other)"]),
    ("write x.astype for the operands", "np.exp(x, dtype=np.float32)", ["np.exp(x.astype(np.float32))"]),
    ("pass retain_graph=True to the first backward pass", "twice()", ["twice(retain_graph=True) -> Tensor"]),
    ("decorate the generator with @no_grad", "list(generator())", ["list(decorated()) -> list"]),
    ("use the returned tensor", "np.sum(p, out=np.zeros(()))", ["np.sum(p)"]),
    ("use .detach() if no gradient is needed", "np.sum(p, initial=5.0)", ["np.sum(p.detach(), initial=5.0) -> Tensor"]),
    ("use the result instead", "np.clip(Tensor(zeros), 0, 1, Tensor(zeros))", ["np.clip(p, 0, 1)"]),
    ("use .detach() or .data if no gradient is needed, or add a rule with custom_op", "np.unique(p)",
     ["np.unique(p.detach()) -> ndarray", "np.unique(p.data) -> ndarray",
      "mg.custom_op(p=lambda g: g)(lambda p, /: np.unique(p))(p)"]),
    ("write y = a + x instead of a += x, make a a tensor by minigrad.tensor(a), or write x.detach()",
     "operator.iadd(np.ones(3), p)",
     ["np.ones(3) + p", "operator.iadd(mg.tensor(np.ones(3)), p)", "operator.iadd(np.ones(3), p.detach()) -> ndarray"]),
    ("write t = t + u instead of t += u", "operator.iadd(f(p)[:1], p)", ["f(p)[:1] + p"]),
    ("convert it first, as in t = t.astype(float)", "written(mg.tensor([1, 2]), p[0])",
     ["written(mg.tensor([1, 2]).astype(float), p[0])"]),
    ("write t = t.clone() first", "mg.Tensor(np.frombuffer(bytearray(24))).__setitem__(0, p[0])",
     ["written(mg.Tensor(np.frombuffer(bytearray(24))).clone(), p[0])"]),
    ("write t = t.copy() first", "repeating_view(f(x))", ["written(np.broadcast_to(f(x), (2, 2, 3)).copy(), 1.0)"]),
    ("write t = t + u instead of t += u, or change a clone() of it",
     "operator.setitem(mg.Tensor(np.lib.stride_tricks.as_strided(zeros, (2, 3), (0, 8))), ..., p)",
     ["mg.Tensor(np.lib.stride_tricks.as_strided(zeros, (2, 3), (0, 8))) + p",
      "written(mg.Tensor(np.lib.stride_tricks.as_strided(zeros, (2, 3), (0, 8))).clone(), p)"]),
    ("write through the tensor itself while operations are recorded, or into a clone() of it", "written_beside(f(p))",
     ["written(f(p), 1.0)", "written(f(p).clone(), 1.0)"]),
    ("write through the tensor that it was made of, or into a clone() of it", "written(f(p).detach(), p[0])",
     ["written(f(p), p[0])", "written(f(p).detach().clone(), p[0])"]),
    ("make it of an argument x, as in np.zeros_like(x), or write minigrad.zeros(3) + 0 * x[0] for another shape",
     "mg.vmap(lambda v: written(mg.zeros(3), v[0]))(x)",
     ["mg.vmap(lambda v: written(np.zeros_like(v), v[0]))(x)", "mg.vmap(lambda v: written(mg.zeros(2) + 0 * v[0], v[0]))(x)"]),
    ("write t = np.where(mask, values, t) for another mask",
     "mg.vmap(lambda v: np.putmask(v * 0, v > 0.5, v))(x)", ["mg.vmap(lambda v: np.where(v > 0.5, v, v * 0))(x)"]),
    ("write nn.Parameter(data, dtype='float32')", "scaled(np.ones(3))", ["scaled(np.ones(3), dtype='float32')"]),
    ("use a clone() of one of them", "written_real_part(lambda z: z)", ["written_real_part(lambda z: z.clone())"]),
    ("write t[index] = np.maximum(t[index], values) for an index without repetitions",
     "np.maximum.at(f(p), [0, 2], p[:2])", ["written(f(p), np.maximum(f(p)[0], p[1]))"]),
    ("write t = t + u instead of t += u, and np.where(mask, u, t) instead of t[mask] = u",
     "write_in_the_book(f(p), 0, 1.0, '+=')", ["f(p) + 1.0", "np.where(mask[0], 1.0, f(p))"]),
    ("write x = x.copy() before, or change a parameter under no_grad()", "p.__setitem__(0, 1.0)",
     ["written(p.copy(), 1.0)", "under_no_grad() -> Tensor"]),
    ("custom_op: x= must be a function, got a int; write a def or lambda that calls it", "mg.custom_op(x=3)(np.sin)",
     ["mg.custom_op(x=lambda g, x: g * np.cos(x))(lambda x, /: np.sin(x))(p)"]),
    ("use detach() on a computed tensor", "setattr(f(p), 'requires_grad', False)", ["f(p).detach() -> Tensor"]),
    ("pass gradient= of this shape, or reduce the tensor first, as in .sum()", "f(p).backward()",
     ["f(p).backward(gradient=np.ones(3)) -> None", "f(p).sum().backward() -> None"]),
    ("convert the data first, as in Tensor(data, dtype=float, requires_grad=True)",
     "Tensor([1, 2], requires_grad=True)", ["Tensor([1, 2], dtype=float, requires_grad=True)"]),
    ("pass elementwise=True", "mg.gradcheck(f, p, directions=0, elementwise=False)",
     ["mg.gradcheck(f, p, directions=0, elementwise=True) -> bool"]),
    ("pass allow_unused=True to get None", "mg.gradients(f(p).sum(), x)",
     ["mg.gradients(f(p).sum(), x, allow_unused=True) -> tuple"]),
    ("differentiate once and use the result twice", "mg.grad(f, (0, 0))(p[0])", ["mg.grad(f)(p[0]) -> Tensor"]),
    ("use .detach()", "scipy.special.gammainc(p, p)", ["scipy.special.gammainc(p.detach(), p)"]),
    ("make it a tensor, or write np.where(mask, source, target), or np.broadcast_to(value, shape) instead of np.full",
     "np.copyto(zeros, p[0])", ["np.where(mask[0], p, zeros)", "np.broadcast_to(p[0], (2, 3))"]),
    ("to repeat x as a whole along each axis, write x.tile((2, 1))", "x.repeat(2, 1)",
     ["x.repeat(2, axis=1)", "x.tile((2, 1))"]),
    ("write x.astype(float)", "np.insert([1, 2], 0, p)", ["np.insert(np.array([1, 2]).astype(float), 0, p)"]),
    ("for logits write binary_cross_entropy_with_logits", "mg.binary_cross_entropy(p + 3, [0.0, 1.0, 1.0])",
     ["mg.binary_cross_entropy_with_logits(p + 3, [0.0, 1.0, 1.0])"]),
    ("write moveaxis(logits, 1, -1) and moveaxis(target, 1, -1)", "mg.cross_entropy(images, classes)",
     ["mg.cross_entropy(mg.moveaxis(images, 1, -1), mg.moveaxis(classes, 1, -1))"]),
    ("write moveaxis(logits, 1, -1)", "mg.cross_entropy(images, np.zeros((2, 4), int))",
     ["mg.cross_entropy(mg.moveaxis(images, 1, -1), np.zeros((2, 4), int))"]),
    ("weight and label_smoothing must not require gradients; use .detach()",
     "mg.cross_entropy(x, [0, 1], weight=p)", ["mg.cross_entropy(x, [0, 1], weight=p.detach())"]),
    ("write np.sum(np.abs(x) ** ord, axis) ** (1 / ord)", "np.linalg.norm(x, p[2])",
     ["np.sum(np.abs(x) ** p[2], 1) ** (1 / p[2])"]),
    ("write x.detach()", "np.from_dlpack(p)", ["np.from_dlpack(p.detach()) -> ndarray"]),
    ("pass dtype=complex", "mg.full_like(p, 1j)", ["mg.full_like(p, 1j, dtype=complex) -> Tensor"]),
    ("convert to a dtype with astype, or reinterpret the memory with x.data.view(dtype)", "x.view(np.float32)",
     ["x.astype(np.float32)", "x.data.view(np.float32) -> ndarray"]),
    ("write x.max(axis=...), and x.argmax(axis=...) for the positions", "x.max(dim=1)",
     ["x.max(axis=1)", "x.argmax(axis=1) -> Tensor"]),
    ("write median(x, axis=...)", "mg.median(x, dim=1)", ["mg.median(x, axis=1)"]),
    ("write np.sort(x, axis), and np.argsort(x, axis)", "mg.sort(x, dim=1)",
     ["np.sort(x, 1)", "np.argsort(x, 1) -> Tensor"]),
    ("write x.split(length, dim=...), or split(x, indices, axis=...)", "mg.split(x, 1, dim=1)",
     ["x.split(1, dim=1)[0]", "mg.split(x, [1], axis=1)[0]"]),
    ("write x.std(axis=..., correction=1)", "x.std(dim=1)", ["x.std(axis=1, correction=1)"]),
    # layers
    ("write attn_mask.astype(bool)", "nn.functional.scaled_dot_product_attention(x, x, x, np.ones((2, 2), int))",
     ["nn.functional.scaled_dot_product_attention(x, x, x, np.ones((2, 2), int).astype(bool))"]),
    ("write x.swapaxes(1, 2)", "nn.BatchNorm1d(3)(single)", ["nn.BatchNorm1d(3)(single.swapaxes(1, 2))"]),
    ("convert x by x.astype('float32') or the layer by .astype('float64')", "nn.Linear(3, 2)(x)",
     ["nn.Linear(3, 2)(x.astype('float32'))", "nn.Linear(3, 2).astype('float64')(x)"]),
    ("unpack a list of modules", "nn.Sequential([nn.ReLU()])", ["nn.Sequential(*[nn.ReLU()])(x)"]),
    ("call the modules in it", "nn.ModuleList([nn.ReLU()])(x)", ["nn.ModuleList([nn.ReLU()])[0](x)"]),
    ("use the model that it was made of", "nn.for_inference(nn.Linear(3, 2))(x.astype('float32'))",
     ["nn.Linear(3, 2)(x.astype('float32'))"]),
]  # fmt: skip


def changed(clone: bool = False, view: bool = False) -> Tensor:
    """Change a value that a gradient needs, or a copy of it, before the backward pass."""
    a, p = Tensor(np.ones(3)), Tensor(np.ones(3), requires_grad=True)
    with mg.detect_anomaly():
        y = (p * (a.clone() if clone else a)).sum()
        if view:
            a.data[0] = 2.0
        else:
            a += 1
        y.backward()
    return p.grad


def twice(**options: Any) -> Tensor:
    p = Tensor(np.ones(3), requires_grad=True)
    y = (p * p).sum()
    y.backward(**options)
    y.backward()
    return p.grad


def under_no_grad() -> Tensor:
    p = Tensor(np.ones(3), requires_grad=True)
    with mg.no_grad():
        p[0] = 2.0
    return p.detach()


def integral(p: Any) -> Any:
    from scipy.integrate import quad

    return quad(lambda t: t * p, 0, 1)[0]


def write(p: Any) -> Any:
    array = np.zeros(2)
    array[0] = p[0]
    return array


def written(t: Tensor, value: Any) -> Tensor:
    t[0] = value
    return t


def scaled(*data: Any, **options: Any) -> Tensor:
    """Return a parameter beside those of a layer."""
    layer = nn.Linear(2, 2)
    layer.scale = nn.Parameter(*data, **options)  # type: ignore[attr-defined]
    return layer.scale


def written_beside(t: Tensor) -> Tensor:
    """Write into a tensor through its values without a graph."""
    t.detach()[0] = 1.0
    return t + 1


def written_real_part(copy: Any) -> Tensor:
    """Read a complex tensor after a write with a gradient into its real part, or that of a copy."""
    z = mg.zeros(3, dtype=complex)
    real = copy(z).real
    real[0] = Tensor(1.0, requires_grad=True)
    return (real * np.abs(z)).sum()


def repeating_view(t: Tensor) -> None:
    view = np.broadcast_to(t, (2, *t.shape))
    view += 1


def warned(call: Any) -> None:
    """Raise the warning of a call as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


def generator() -> Any:
    with mg.no_grad():
        yield 1


@mg.no_grad
def decorated() -> Any:
    yield 1


def space() -> dict[str, Any]:
    """Return the names in the calls of CASES."""
    rng = np.random.default_rng(0)
    tracked = lambda *shape: Tensor(rng.uniform(0.2, 0.8, shape), requires_grad=True)
    classes = np.moveaxis(np.eye(3)[rng.integers(0, 3, (2, 4))], -1, 1)
    images = np.zeros((2, 3, 4))
    return {
        **globals(), "p": tracked(3), "x": tracked(2, 3), "images": Tensor(images, requires_grad=True),
        "single": Tensor(rng.random((2, 3, 4)).astype(np.float32), requires_grad=True), "classes": classes,
        "f": lambda v: v * v, "zeros": np.zeros(3), "mask": np.array([[True, False, True]] * 2), "other": 0.0,
        "write_in_the_book": protocols._write,
        "sparse": None if scipy is None else scipy.sparse.csr_array(np.eye(2)),
    }  # fmt: skip


def message_of(trigger: str) -> str:
    """Return the message that a call raises."""
    with pytest.raises(Exception) as raised:
        eval(trigger, space())
    return str(raised.value)


def needs_scipy(*calls: str) -> bool:
    return scipy is None and re.search("scipy|sparse|integral", " ".join(calls)) is not None


@pytest.mark.parametrize(("excerpt", "trigger", "fixes"), CASES, ids=[c[1][:50] for c in CASES])
def test_error_recommends_calls_that_work(excerpt: str, trigger: str, fixes: list[str]) -> None:
    if needs_scipy(trigger, *fixes):
        pytest.skip("needs scipy")
    assert excerpt in message_of(trigger)
    for fix in fixes:
        call, _, kind = fix.partition(" -> ")
        result = eval(call, space())
        if kind:
            assert type(result).__name__ in (kind, f"{kind}Type"), call
        else:
            assert result.requires_grad, f"{call} must keep the gradient"


NN = Path(nn.__file__).parent
LAYERS = ["attention", "block", "initial", "layers", "module"]
PATHS = [
    *Path(mg.__file__).parent.rglob("*.py"),
    *[NN / f"{name}.py" for name in LAYERS],
    *[p for p in (NN / "options").glob("*.py") if p.stem != "encoder"],
]
OF_NO_TENSOR = re.compile(
    r".*/(optim|optimizer|adam|sgd|flat|schedules|parallel|io|launcher|runtime)\b.*"
)
"""Files whose errors are about processes, files and settings."""
RECOMMENDS = re.compile(
    r"\b(write|use|pass|call|convert|choose|build)\b[^;]*?(\w\(|\.\w+\(|\w=|\bx\.)"
)


def templates() -> dict[str, str]:
    """Return regular expressions of the messages that recommend a call, with their places."""
    found = {}
    for path in PATHS:
        if OF_NO_TENSOR.fullmatch(str(path)):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = [n.value for n in ast.walk(tree) if isinstance(n, ast.Expr)]
        parts = [v for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values]
        for node in ast.walk(tree):
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            if not isinstance(node, (ast.JoinedStr, ast.Constant)) or node in [*docs, *parts]:
                continue
            texts = [v.value if isinstance(v, ast.Constant) else None for v in values]
            shown = "".join(["{}" if t is None else str(t) for t in texts])
            if RECOMMENDS.search(shown) and len(shown) < 500:
                pattern = "".join([".*" if t is None else re.escape(str(t)) for t in texts])
                found[pattern] = f"{path.name}:{node.lineno}: {shown}"
    return found


@pytest.mark.skipif(scipy is None, reason="needs scipy")
def test_every_recommended_call_is_run() -> None:
    messages = [message_of(trigger) for _, trigger, _ in CASES if not needs_scipy(trigger)]
    missing = [
        place
        for pattern, place in templates().items()
        if not any(re.search(pattern, message, re.DOTALL) for message in messages)
    ]
    assert not missing, "\n".join(missing)
