"""The code in each advice for a missing name runs on a tensor that requires gradients."""

from __future__ import annotations

import ast
import builtins
import itertools
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.fast import runtime
from minigrad.torch.advice import tables

try:
    import scipy
    import scipy.linalg
    import scipy.optimize
    import scipy.signal
    import scipy.special
    import scipy.stats
except ImportError:
    scipy = None

SENTENCES = [
    pytest.param(name, sentence, id=f"{table}-{name:.20}")
    for table, content in tables().items()
    for name, sentence in {**content.get("names", {}), **content.get("patterns", {})}.items()
]

X = np.random.default_rng(0).uniform(0.1, 0.9, (4, 4)) + np.eye(4)
MODULES = {"itertools": itertools, "minigrad": mg, "nn": nn, "np": np, "pathlib": pathlib}


def variables() -> dict[str, Any]:
    """Return values for the names in advice."""
    rng = np.random.default_rng(1)
    x = Tensor(X.copy(), requires_grad=True)
    model = nn.Linear(4, 4)
    return {
        **MODULES, "x": x, "y": Tensor(X.T.copy(), requires_grad=True), "z": Tensor(X), "a": X, "b": X.T,
        "xs": [x, x], "x1": x, "x2": X.T, "v": Tensor(X), "w": X[0], "r": 2, "f": lambda a, *others: np.tanh(a), "angle": x, "t": np.ones(4),
        "data": X, "array": X, "name": "scale", "module": model, "model": model, "distance": lambda a, b: abs(a - b).sum(),
        "index": [0, 2], "values": X[0], "mask": X > 0.5, "condition": X > 0.5, "conditions": [X > 0.5, X <= 0.5],
        "functions": [np.sin, np.cos], "keep": [0, 2], "rows": [0, 1, 2, 3], "others": [1, 2], "indices": X.argsort(1),
        "weights": np.arange(1, 5), "boundaries": X[0], "order": np.arange(4), "target": np.arange(4), "widths": 1,
        "axis": 1, "n": 4, "k": 2, "p": 1, "q": 0.5, "i": 1, "j": 2, "size": 16, "step": 1, "start": 1, "stop": 3,
        "length": 2, "shape": (4, 4), "sizes": [1, 3], "bins": 3, "kth": 2, "low": 1, "high": 3, "groups": 2, "value": 1.0,
        "weight": X, "threshold": 0.3, "maxnorm": 1.0, "margin": 1.0, "tau": 2.0, "slope": 0.2, "std": 2.0, "mean": 1.0,
        "var": X, "beta": 2.0, "seed": 0, "dtype": "float32", "hook": print, "generator": rng, "rng": rng, "s": x,
        "in_features": 4, "out_features": 4, "buffer": X.tobytes(), "loss": lambda w: (w * w).sum(), "in_memory": X,
        "optimizer": optim.SGD(model.parameters(), 0.1), "state": optim.SGD(model.parameters(), 0.1).state_dict(),
    }  # fmt: skip


SPECIAL: dict[str, dict[str, Any]] = {
    "acosh": {"x": Tensor(X + 1, requires_grad=True)},
    "acos|asin|atanh|erfinv|logit": {"x": Tensor(X / 2, requires_grad=True)},
    "addr": {"a": X[0], "b": X[1]},
    "Bilinear|bilinear": {"weight": np.ones((2, 4, 4))},
    "bitwise_left_shift|bitwise_right_shift|gcd|lcm": {"x": Tensor([4, 6]), "y": [2, 4]},
    "bincount": {"x": Tensor([0, 2, 2, 1]), "weights": Tensor(X[0], requires_grad=True)},
    "cumulative_trapezoid": {"x": Tensor(X[0], True), "y": Tensor(X[1], True)},
    "as_strided|unfold": {"size": 2},
    "autograd": {"y": Tensor(X, requires_grad=True).sum(), "xs": []},
    "batch_norm": {"x": Tensor(X.astype(np.float32), requires_grad=True)},
    "compress": {"mask": [True, False, True, True]},
    "cross": {"x": Tensor(X[:3, :3], requires_grad=True), "y": X[1:, :3]},
    "ChainedScheduler": {"step": lambda: None},
    "dsplit": {"x": Tensor(np.ones((2, 2, 4)), requires_grad=True)},
    "from_dlpack": {"x": X},
    "is_nonzero": {"x": Tensor(1.0, requires_grad=True)},
    "jac.*|make_.*|hessian_vector_product|multigrad_dict": {"f": lambda x: (x * x * x).sum()},
    "MultiLabelMarginLoss|multilabel_margin_loss": {"y": [0, 3]},
    "MultiMarginLoss|multi_margin_loss": {"y": [0, 1, 2, 3]},
    "norm_except_dim": {"v": Tensor(X, requires_grad=True)},
    "pdist": {"i": np.array([0, 0, 1]), "j": np.array([1, 2, 2])},
    "split_with_sizes": {"sizes": [1, 3]},
    "unique_consecutive": {"x": Tensor([1.0, 1.0, 2.0], requires_grad=True)},
    "GroupNorm|group_norm": {"n": 4},
}
"""Values for single names, by a regular expression of the names."""
FILLED = {
    "x.clip(max=...)": "x.clip(max=0.5)",
    "x.clip(min=...)": "x.clip(min=0.5)",
    "x.repeat(n, axis=...)": "x.repeat(n, axis=0)",
    "x.reshape(...)": "x.reshape(2, 8)",
    "axis=...": "axis=-1",
    "index=..., shape=...": "index=index, shape=(4, 4)",
    "batch_size=...": "batch_size=2",
    "seed=...": "seed=0",
    "nn.Decoder(...)": "nn.Decoder(nn.TransformerConfig(5, 5, d_model=4, num_heads=2), 1)",
    "nn.Encoder(...)": "nn.Encoder(nn.TransformerConfig(5, 5, d_model=4, num_heads=2), 1)",
    "np.lib.stride_tricks.as_strided(x.data, ...)": "np.lib.stride_tricks.as_strided(x.data, (2, 2))",
    "minigrad.embedding(weight, indices)": "minigrad.embedding(x, indices)",
}  # fmt: skip
"""Arguments in place of `...`, and of names that are scalars elsewhere."""
NOT_RUN = re.compile(
    r"minigrad\.start_parallel.*|nn\.(load|save)\w*\(.*|np\.memmap.*|minigrad\.Tensor\(np\.memmap.*"
    r"|torch\..*|pathlib.*"
)
"""Code that needs files, processes or PyTorch, and has tests of its own."""
WITHOUT_GRADIENT = {
    "bernoulli", "detach_", "fix", "from_dlpack", "lobpcg", "new_empty", "new_empty_strided", "new_full", "new_ones",
    "new_zeros", "randint_like", "normal", "bincount", "searchsorted", "bucketize",
}  # fmt: skip
"""Names whose replacement is constant in x, as in PyTorch."""
PROSE = 75
"""Largest number of sentences that contain no code to run."""


def code_in(sentence: str, names: set[str]) -> Iterator[str]:
    """Yield the longest expressions and statements in a sentence whose names have values."""
    sentence = sentence.removeprefix("write ")
    parts = re.split(r"[,;:]? (?:or|and|with|see|of|works on|beside|for|write) |; ", sentence)
    for part in parts:
        for end in sorted((m.start() for m in re.finditer(r"[,;: ]|$", part)), reverse=True):
            code = re.sub(r"(\w+)=\.\.\.", lambda m: FILLED.get(m[0], m[0]), part[:end])
            for text, filled in FILLED.items():
                code = code.replace(text, filled)
            try:
                tree = ast.parse(code)
            except SyntaxError:
                continue
            found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
            names = names | {node.id for node in found if isinstance(node.ctx, ast.Store)}
            bound = {c.target.id for c in ast.walk(tree) if isinstance(c, ast.comprehension)}
            if re.search(r"[-.(\[=+*/<>@]", code) and {n.id for n in found} <= names | bound:
                yield code
                break


def run(name: str, sentence: str) -> list[tuple[str, Any]]:
    """Return the code in an advice, and the value of each expression."""
    space = variables()
    for pattern, values in SPECIAL.items():
        if re.fullmatch(pattern, name):
            space |= values
    if scipy is not None:
        space["scipy"] = scipy
    snippets = [*code_in(sentence, {*space, *dir(builtins)})]
    assignments = [code for code in snippets if not isinstance(ast.parse(code).body[-1], ast.Expr)]
    results = []
    for code in [*assignments, *[code for code in snippets if code not in assignments]]:
        if NOT_RUN.fullmatch(code):
            continue
        if code in assignments or "fill_diagonal" in code:
            with mg.set_grad_enabled(re.match(r"x[.\[]|np.fill_diagonal", code) is None):
                exec(code, space)
            results.append((code, None))
        else:
            results.append((code, eval(code, space)))
    return results


@pytest.fixture(autouse=True)
def blas_threads() -> Iterator[None]:
    """Restore the number of threads, which one advice sets."""
    with runtime.threads(runtime.get_num_threads()):
        yield


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(("name", "sentence"), SENTENCES)
def test_advice_runs_on_a_tensor_that_requires_gradients(name: str, sentence: str) -> None:
    if scipy is None and "scipy" in sentence:
        pytest.skip("needs scipy")
    if "set_num_threads" in sentence and not runtime.openblas_core():
        pytest.skip("needs OpenBLAS")
    for code, result in run(name, sentence):
        is_of_x = re.search(r"\bx\b(?!\.(data|shape|dtype))", code)
        says_so = "gradient" in sentence or "derivative" in sentence
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                assert not is_of_x or says_so, f"{code} returns an ndarray without a gradient"
            elif isinstance(part, Tensor) and part.dtype.kind == "f" and is_of_x:
                assert part.requires_grad or name in WITHOUT_GRADIENT, f"{code} has no gradient"


def test_most_advice_contains_code_that_runs() -> None:
    if scipy is None:
        pytest.skip("needs scipy")
    with np.errstate(all="ignore"):
        prose = [p.values[0] for p in SENTENCES if not run(*p.values)]
    assert len(prose) <= PROSE, prose
