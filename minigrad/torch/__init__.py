"""PyTorch's names, for scripts that are written for PyTorch.

    import minigrad.torch as torch
    import minigrad.torch.nn as nn
    import minigrad.torch.nn.functional as F
    from minigrad.torch.utils.data import DataLoader

Functions have PyTorch's arguments and results where these differ from NumPy's. Tensors are those of
minigrad, and their methods mean what NumPy means if an ndarray has them. `docs/torch.md` lists the
names and the differences.
"""

import importlib as _importlib
import typing as _typing

from ..check.namespace import namespace as _namespace

_PACKAGES = ("amp", "nn", "optim", "utils")

_SAME = (
    "Tensor", "abs", "absolute", "add", "all", "allclose", "amax", "amin", "any", "arccos",
    "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "bmm",
    "broadcast_to", "cat", "ceil", "chunk", "clamp", "clip", "clone", "concatenate", "copysign",
    "cos", "cosh", "cumprod", "cumsum", "deg2rad", "det", "diag", "divide", "dot", "empty_like",
    "enable_grad", "erf", "exp", "exp2", "expm1", "flatten", "flip", "floor", "fmod", "from_numpy",
    "full_like", "gather", "hypot", "index_select", "inner", "inverse", "is_grad_enabled",
    "isclose", "isfinite", "isinf", "isnan", "kron", "log", "log10", "log1p", "log2", "log_softmax",
    "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp",
    "manual_seed", "masked_fill", "masked_select", "matmul", "maximum", "mean", "minimum", "mm",
    "movedim", "multiply", "nan_to_num", "negative", "no_grad", "ones_like", "outer", "permute",
    "pow", "prod", "rad2deg", "rand_like", "randn_like", "reciprocal", "relu", "remainder",
    "reshape", "roll", "rsqrt", "save", "set_grad_enabled", "sigmoid", "sign", "sin", "sinh",
    "softmax", "sqrt", "square", "squeeze", "stack", "subtract", "sum", "tan", "tanh", "tile",
    "tril", "triu", "trunc", "unsqueeze", "where", "zeros_like",
)  # fmt: skip
"""Functions and classes of minigrad, which accept `dim=` and `keepdim=`."""

if _typing.TYPE_CHECKING:
    from .. import *
    from . import amp as amp
    from . import nn as nn
    from . import optim as optim  # type: ignore[no-redef]
    from . import utils as utils
    from .dtypes import *
    from .functions import *  # type: ignore[assignment]

else:  # loaded on first use, since minigrad itself imports parts of this package

    def __getattr__(name):
        if name in _PACKAGES:
            return _importlib.import_module(f"{__name__}.{name}")
        if name in _SAME:
            place = _importlib.import_module("minigrad")
        else:
            parts = () if name.startswith("_") else ("functions", "dtypes")
            modules = [_importlib.import_module(f"{__name__}.{part}") for part in parts]
            place = next((module for module in modules if name in module.__all__), None)
        if place is None:
            return _namespace(__name__)[1](name, 2)
        value = getattr(place, name)
        if not isinstance(value, type) and callable(value):
            value = _importlib.import_module(f"{__name__}.names").by_keyword(value)
        return globals().setdefault(name, value)

    def __dir__():
        parts = [_importlib.import_module(f"{__name__}.{part}") for part in ("functions", "dtypes")]
        return [*_PACKAGES, *_SAME, *parts[0].__all__, *parts[1].__all__]
