"""PyTorch's own sample inputs, given to the functions of the same name here.

`op_db` is PyTorch's list of its ops, with sample inputs of each. A function here takes the same
arguments and returns the same values and gradients in float64 to 1e-8, or it raises an error: no
sample gives another result silently, except those in `UNLIKE`.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from support.torch_databases import (
    as_array,
    as_ours,
    assert_same_with_gradients,
    flat,
    import_database,
    torch,
)

import minigrad as mg
import nn

torch.set_num_threads(1)
Function = Callable[..., Any]


def axis_of(dim: Any) -> Any:
    """Return NumPy's axis for `dim` of PyTorch, where an empty list means all axes."""
    return dim if dim is None or isinstance(dim, int) else tuple(dim) or None


def norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
    """Compute `torch.linalg.norm`, which treats x as a vector without `ord`."""
    if ord is None:
        return mg.vector_norm(x, axis=axis_of(dim), keepdims=keepdim)
    return mg.norm(x, ord, axis_of(dim), keepdims=keepdim)


def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    """Compute `torch.linalg.vector_norm`."""
    return mg.vector_norm(x, ord=ord, axis=axis_of(dim), keepdims=keepdim)


def spread(function: Function) -> Function:
    """Return var or std with the defaults of PyTorch."""
    return lambda x, dim=None, keepdim=False, correction=1: function(
        x, axis_of(dim), correction=1 if correction is None else correction, keepdims=keepdim
    )


def matrix_norm(x: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """Compute `torch.linalg.matrix_norm`."""
    y = mg.matrix_norm(mg.moveaxis(x, tuple(dim), (-2, -1)), ord=ord, keepdims=keepdim)
    return mg.moveaxis(y, (-2, -1), tuple(dim)) if keepdim else y


def index_add(x: Any, dim: int, index: Any, values: Any, alpha: float = 1) -> Any:
    """Compute `torch.index_add`, along one axis."""
    where = (slice(None),) * (dim % x.ndim if x.ndim else 0) + (index,)
    return mg.index_add(x, index=where, values=values * alpha)


RENAMED: dict[str, Function] = {
    "__getitem__": mg.getitem,
    "cov": lambda x, correction=1, **weights: mg.cov(x, ddof=correction, **weights),
    "einsum": lambda operands, equation: mg.einsum(equation, *operands),
    "equal": mg.array_equal,
    "gradient": lambda x, spacing=None, dim=None, edge_order=1: mg.gradient(
        x, *flat(1.0 if spacing is None else spacing), axis=axis_of(dim), edge_order=edge_order
    ),
    "index_add": index_add,
    "linalg.matrix_norm": matrix_norm,
    "linalg.norm": norm,
    "linalg.vector_norm": vector_norm,
    "nn.functional.embedding": mg.embedding,
    "quantile": lambda x, q, dim=None, keepdim=False, interpolation="linear": mg.quantile(
        x, q, dim, method=interpolation, keepdims=keepdim
    ),
    "sort": lambda x, dim=-1, descending=False, stable=False: mg.sort(
        x, dim, descending=descending
    ),
    "std": spread(mg.std),
    "tensordot": lambda a, b, dims=2: mg.tensordot(a, b, dims),
    "transpose": mg.swapaxes,
    "var": spread(mg.var),
    "where": lambda a, condition, b: mg.where(condition, a, b),
}
"""Functions of which name or arguments differ."""

UNLIKE = {
    "rand_like", "randint", "randn", "randn_like", "multinomial", "empty", "empty_like",  # random
    "linspace",  # has no default of float32, and other rounding of integers
    "median",  # is the mean of the two values in the middle
    "norm", "repeat", "select", "split",  # mean what they mean in NumPy
}  # fmt: skip
"""Functions that mean something else in PyTorch."""

REFUSALS = "|".join([
    "no '...' ellipsis",  # einsum that sums over an ellipsis
    "unexpected keyword argument", "positional argument",  # an option that PyTorch alone has
    "for array of dimension 0", "array is 0-dimensional", "have 0 axes as x",  # a scalar has no axis in NumPy
    "must have shape .* got \\(\\)",
    "has another result in PyTorch",  # max and min along an axis return indices, too
    "has no rule",  # a function or option without a derivative
    "which an ndarray cannot have",  # a list where an array is expected
    "classes must be on the last axis",
    "size not equal to one",  # squeeze of a longer axis
    "solve: the shapes do not match",  # a stack of vectors is a matrix in NumPy
    "gather: indices must have",  # empty indices of another number of axes
    "concatenate: axis 1 is out of bounds",  # an empty vector among matrices
    "kind must be str",  # the option by position is another one
    "must have the same lengths",  # contraction of axes of lengths 1 and 2
])  # fmt: skip
"""Messages of errors for samples of PyTorch."""


def is_left_out(name: str, sample: Any) -> bool:
    """Return whether a sample means something else here, or has random results."""
    options, shape = sample.kwargs, tuple(getattr(sample.input, "shape", ()))
    if name in ("cumsum", "cumprod", "argsort", "index_select", "sort"):
        return not shape  # a scalar has no axis in NumPy
    if name == "nn.functional.cross_entropy":  # probabilities of classes on axis 1
        return len(shape) > 2 and shape == tuple(sample.args[0].shape)
    if name == "linalg.solve":  # a stack of empty vectors, or a matrix
        return shape == (0, 0, 0)
    if name == "nn.functional.dropout":
        return bool(options.get("training", True) and options.get("p", 0.5))
    return bool(options.get("dropout_p"))


def determined(name: str, result: Any) -> list[Any]:
    """Return the floating-point results, or what the signs of vectors leave determined, or all."""
    if name == "linalg.eigh":
        values, vectors = result
        return [values, (vectors * values[..., None, :] ** 2) @ vectors.mT]
    if name == "linalg.svd":
        u, s, vh = result
        u, vh = u[..., : s.shape[-1]], vh[..., : s.shape[-1], :]
        return [s, (u * s[..., None, :]) @ vh, (u * s[..., None, :]) @ u.mT]
    results = flat(result)
    return [y for y in results if as_array(y).dtype.kind == "f"] or results


def function_of(name: str) -> Function | None:
    """Return the function of minigrad or nn for an op of PyTorch, or None."""
    name = name.partition(":")[0]
    if name in RENAMED or name in UNLIKE:
        return RENAMED.get(name)
    module, _, last = name.rpartition(".")
    home = {"": mg, "nn.functional": nn.functional, "linalg": mg.linalg}.get(module)
    return vars(home).get(last) if home else None


def samples_of(op: Any) -> Iterator[Any]:
    """Yield the sample inputs of an op in float64, or in int64."""
    dtype = torch.float64 if torch.float64 in op.dtypes else torch.int64
    torch.manual_seed(0)
    requires_grad = dtype.is_floating_point and op.supports_autograd
    yield from op.sample_inputs_func(op, "cpu", dtype, requires_grad=requires_grad)


def compare(name: str, op: Any, sample: Any) -> None:
    """Compare values, and gradients for a random cotangent."""
    leaves: dict[Any, mg.Tensor] = {}
    args = as_ours([sample.input, *sample.args], leaves)
    ours = function_of(name)(*args, **as_ours(sample.kwargs, leaves))
    theirs = op(sample.input, *sample.args, **sample.kwargs)
    symmetric = name in ("linalg.eigh", "linalg.eigvalsh")
    results = determined(name, ours), determined(name, theirs)
    assert_same_with_gradients(*results, leaves, symmetric=symmetric)


def test_functions_agree_with_pytorch_on_its_samples_or_raise() -> None:
    wrong, agreed = [], Counter[str]()
    for op in import_database("common_methods_invocations", "op_db"):
        name = ":".join(filter(None, (op.name, op.variant_test_name)))
        if function_of(name) is None or name.endswith(("complex", "unbiased")):
            continue
        with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
            warnings.simplefilter("ignore")  # PyTorch uses what it deprecates
            for sample in samples_of(op):
                if is_left_out(name, sample):
                    continue
                try:
                    compare(name, op, sample)
                    agreed[name] += 1
                except Exception as error:
                    refused = isinstance(error, (TypeError, ValueError, IndexError))
                    if not refused or not re.search(REFUSALS, str(error)):
                        wrong.append(f"{name}: {sample.summary()}\n{type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} samples differ:\n" + "\n\n".join(wrong)
    assert len(agreed) > 180 and agreed.total() > 2500, (len(agreed), agreed.total())
