"""Random arguments for any NumPy function, by the names of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minigrad.core.forms import signature

BEFORE_2_4 = np.lib.NumpyVersion(np.__version__) < "2.4.0"
"""Whether NumPy does not tell the parameters of its functions in C, and takes some forms that it refuses since."""

DTYPES = [np.float64] * 6 + [np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, bool]


@dataclass
class Call:
    """One call of a NumPy function."""

    function: Any
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [_shown(a) for a in self.args] + [
            f"{k}={_shown(v)}" for k, v in self.kwargs.items()
        ]
        return f"{self.function.__name__}({', '.join(shown)})"

    @property
    def has_arrays(self) -> bool:
        """Whether an array stands where NumPy looks for one; it does not look at options such as where=."""
        if isinstance(self.function, np.ufunc):
            return True
        given, spread = self.given, set(_parameters(self.function)) & _MANY
        kinds = (Chooser.array, Chooser.partner, Chooser.arrays)
        looked = [v for k, v in given.items() if spread or ARGUMENTS.get(k) in kinds]
        parts = [
            v for value in looked for v in (value if isinstance(value, (list, tuple)) else [value])
        ]
        return any(isinstance(v, np.ndarray) for v in parts)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments by the names of NumPy's parameters."""
        names = (
            ["x"] * len(self.args)
            if isinstance(self.function, np.ufunc)
            else _parameters(self.function)
        )
        return {**dict(zip(names, self.args)), **self.kwargs}

    def of(self, change: Callable[[Any], Any]) -> Any:
        """What the call returns, or of a function that writes, the array that it wrote into."""
        args, kwargs = (
            [change(v) for v in self.args],
            {k: v if k == "out" else change(v) for k, v in self.kwargs.items()},
        )
        result = self.function(*args, **kwargs)
        return [*args, *kwargs.values()][0] if self.function in WRITING else result


def _parameters(function: Any) -> list[str]:
    return list(signature(function).parameters)


WRITING = {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}
"""Functions that return nothing, and write into their first argument."""


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return (
            f"array({np.array2string(value, separator=',', precision=3)}, {value.dtype})".replace(
                "\n", ""
            )
        )
    return repr(value)


class Chooser:
    """Draws the arguments of one call, which share a shape."""

    def __init__(self, rng: np.random.Generator, least: int = 0) -> None:
        self.rng = rng
        ndim = self.one(0, 1, 2, 2, 3)
        self.shape = tuple(max(int(n), least) for n in rng.choice([0, 1, 2, 3, 3], ndim))
        if self.often(0.2) and ndim >= 2:  # matrices that are square
            self.shape = (*self.shape[:-1], self.shape[-2])
        self.dtype = DTYPES[rng.integers(len(DTYPES))]

    def one(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def often(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def values(self, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
        dtype = np.dtype(dtype or self.dtype)
        if dtype.kind == "f":
            steps = self.rng.permutation(int(np.prod(shape))) * 0.37
            return (steps - 0.7 + self.rng.random()).reshape(shape).astype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if self.often(0.2) else (0, 5)
        return self.rng.integers(low, high, shape, endpoint=True, dtype=dtype)

    def array(self) -> Any:
        x = self.values(self.shape)
        return x.tolist() if x.size and self.often(0.08) else x

    def partner(self) -> Any:
        """Something that fits the shape, most of the time."""
        kind = self.rng.integers(8)
        shape = self.shape
        if kind == 0:
            shape = self.shape[1:]
        elif kind == 1:
            shape = tuple(self.one(1, n) for n in self.shape)
        elif kind == 2:
            shape = (*self.shape[::-1],)
        elif kind == 3:
            return self.one(0, 1, 2, 0.5, -1.5, True)
        elif kind == 4:
            shape = (3,)
        x = self.values(shape, None if self.often(0.7) else DTYPES[self.rng.integers(len(DTYPES))])
        return x.tolist() if x.size and self.often(0.15) else x

    def axis(self) -> Any:
        ndim = len(self.shape)
        one = lambda: int(self.rng.integers(-ndim - 1, ndim + 1))
        inside = lambda: int(self.rng.integers(-ndim, ndim)) if ndim else self.one(0, -1)
        kind = self.rng.integers(9)
        several = tuple(inside() for _ in range(self.one(0, 1, 2, 2)))
        return (
            None,
            one(),
            inside(),
            inside(),
            inside(),
            several,
            list(several),
            np.array(several, int),
            np.int64(inside()),
        )[kind]

    def number(self, *choices: Any) -> Any:
        """One of the choices, now and then as an array without axes."""
        value = self.one(*choices)
        return value if value is None or self.often(0.7) else np.array(value, float)

    def whole(self) -> int:
        return int(self.rng.integers(-2, 5))

    def arrays(self) -> Any:
        parts = [self.values(self.shape) for _ in range(self.one(1, 2, 3))]
        if self.often(0.15):
            parts[-1] = self.values(
                self.one(self.shape[:-1], (*self.shape, 2), (2, *self.shape[1:]))
            )
        return self.one(parts, parts, tuple(parts))

    def shape_like(self) -> Any:
        n = int(np.prod(self.shape))
        shapes = [
            self.shape,
            self.shape[::-1],
            (n,),
            (-1,),
            -1,
            n,
            (1, *self.shape),
            (2, *self.shape),
            (n + 1,),
            (2, -1),
        ]
        shape = self.one(*shapes)
        return self.one(
            shape, shape, list(shape) if isinstance(shape, tuple) else shape, np.array(shape)
        )

    def places(self) -> Any:
        n = max(self.shape[0] if self.shape else 1, 1)
        kind = self.rng.integers(8)
        lists = [
            self.whole(),
            [],
            [0],
            [0, n - 1],
            [-1, 0, 0],
            [[0, n - 1], [-n, 0]],
            np.array([0, n - 1], np.int8),
            [n],
        ]
        return lists[kind]

    def mask(self) -> Any:
        return self.rng.random(self.one(self.shape, self.shape, self.shape[-1:])) < 0.6

    def widths(self) -> Any:
        return self.one(
            0,
            1,
            2,
            (1, 2),
            [0, 1],
            ((1, 0),),
            [(1, 2)] * len(self.shape),
            np.array([[0, 1]] * len(self.shape)),
            -1,
            (1, 2, 3),
            1.5,
        )

    def cuts(self) -> Any:
        return self.one(1, 2, 3, 0, -1, [1], [3, 1], (1, 2), np.array([1, 2]), [-1], [], [7])


_ABSENT = object()
ARGUMENTS: dict[str, Callable[[Chooser], Any]] = {
    **dict.fromkeys(
        ["a", "x", "m", "ary", "arr", "array", "A", "v", "prototype", "ar", "a1", "y1", "T", "dst"],
        Chooser.array,
    ),
    **dict.fromkeys(
        [
            "b",
            "x1",
            "x2",
            "a2",
            "v2",
            "values",
            "y",
            "a_min",
            "a_max",
            "min",
            "max",
            "from_",
            "prepend",
            "append",
            "src",
            "fp",
            "val",
            "vals",
        ],
        Chooser.partner,
    ),
    **dict.fromkeys(["arrays", "tup"], Chooser.arrays),
    **dict.fromkeys(["axis", "source", "destination", "axes"], Chooser.axis),
    **dict.fromkeys(
        ["axis1", "axis2", "k", "offset", "n", "shift", "decimals", "rowvar", "deg"], Chooser.whole
    ),
    **dict.fromkeys(
        [
            "keepdims",
            "returned",
            "upper",
            "sparse",
            "bias",
            "hermitian",
            "increasing",
            "wrap",
            "subok",
            "overwrite_input",
            "writeable",
        ],
        lambda d: d.often(0.5),
    ),
    **dict.fromkeys(
        ["left", "right", "nan", "fill_value", "dx", "default"], lambda d: d.number(0.0, 1.5, 2)
    ),
    "fweights": lambda d: d.one(None, d.values(d.shape[-1:], np.uint8) % 4 + 1, d.values(d.shape)),
    "aweights": lambda d: d.one(None, d.values(d.shape[-1:], np.float64) + 1, d.values(d.shape)),
    "mean": lambda d: d.values([1] * len(d.shape), float),
    "device": lambda d: d.one(None, "cpu"),
    "bins": lambda d: np.arange(4.0),
    "tol": lambda d: d.number(None, 0.1),
    **dict.fromkeys(["ddof", "correction"], lambda d: d.one(0, 1)),
    **dict.fromkeys(["shape", "new_shape"], Chooser.shape_like),
    **dict.fromkeys(["indices", "obj", "ind"], Chooser.places),
    **dict.fromkeys(["dtype"], lambda d: d.one(np.float64, np.float32, None, int)),
    "casting": lambda d: d.one("same_kind", "safe", "unsafe"),
    "where": Chooser.mask,
    **dict.fromkeys(["condition", "mask"], Chooser.mask),
    "initial": lambda d: d.number(0, 1.5, -2, 100),
    "order": lambda d: d.one("C", "F", "A", "K", "X"),
    "out": lambda d: None,
    "indices_or_sections": Chooser.cuts,
    "weights": lambda d: d.one(d.values(d.shape), d.values(d.shape[-1:]), None),
    "q": lambda d: d.one(0, 0.5, 1.0, [0.2, 0.7], [[0.1], [0.9]], 1.5, -0.1, 50),
    "method": lambda d: d.one("linear", "lower", "higher", "midpoint", "nearest", "no such"),
    "mode": lambda d: d.one(
        "raise", "wrap", "clip", "edge", "reflect", "symmetric", "constant", "mean", "same", "full"
    ),
    "kind": lambda d: d.one("stable", "quicksort", None),
    "stable": lambda d: d.one(True, None),
    "descending": lambda d: d.one(True, False),
    "decimals": Chooser.whole,
    "side": lambda d: d.one("left", "right"),
    "sorter": lambda d: None,
    "indexing": lambda d: d.one("xy", "ij", "yx"),
    "ord": lambda d: d.one(None, 0, 1, 2, 3, -1, -2, np.inf, -np.inf, "fro", "nuc", "no such"),
    "kth": lambda d: d.one(0, 1, -1, 5, [0, 1]),
    "repeats": lambda d: d.one(0, 1, 2, [1, 2, 0], [2], -1, np.array([1, 2])),
    "reps": lambda d: d.one(0, 2, (2, 1), [1, 3], np.array([2, 2]), (1, 2, 1), -1),
    "window_shape": lambda d: d.one(1, 2, (2,), (1, 2), [1], 5, -1),
    "pad_width": Chooser.widths,
    "period": lambda d: 3.0,
    "posinf": lambda d: d.number(None, 9.0),
    "neginf": lambda d: d.number(None, -9.0),
    "copy": lambda d: d.often(0.7),
    "discont": lambda d: d.one(None, 4.0),
    "include_initial": lambda d: d.often(0.5),
    "start": lambda d: d.one(0, 1, -1),
    "equal_nan": lambda d: d.often(0.5),
    "rtol": lambda d: 0.1,
    "atol": lambda d: 0.1,
    "minlength": lambda d: 3,
    "UPLO": lambda d: d.one("L", "U", "X"),
    **dict.fromkeys(["full_matrices", "compute_uv"], lambda d: d.often(0.5)),
    **dict.fromkeys(["axisa", "axisb", "axisc"], Chooser.whole),
    **dict.fromkeys(["f", "xp", "p"], Chooser.array),
    **dict.fromkeys(["rcond", "rtol"], lambda d: 1e-10),
    "edge_order": lambda d: d.one(1, 2),
    "condlist": lambda d: [d.mask()],
    "choicelist": lambda d: [d.values(d.shape)],
    "funclist": lambda d: [1.0, lambda x, *_: x],
    "i": lambda d: d.values(d.shape[-1:], np.int8) % 5,
    **dict.fromkeys(
        ["filt", "element", "test_elements", "seq_of_zeros", "u", "keys", "y2"], Chooser.array
    ),
    **dict.fromkeys(["ar1", "ar2", "stop", "to_end", "to_begin"], Chooser.partner),
    "z": Chooser.array,
    "w": lambda d: d.one(None, d.values(d.shape)),
    "cov": lambda d: d.one(False, True, "unscaled"),
    "choices": Chooser.arrays,
    "trim": lambda d: d.one("fb", "f", "b", "x"),
    **dict.fromkeys(
        ["assume_unique", "return_indices", "retstep", "endpoint", "full", "invert", "deg_"],
        lambda d: d.often(0.5),
    ),
    "num": lambda d: d.one(0, 1, 2, 5),
    "base": lambda d: d.one(2.0, 10.0),
    "N": lambda d: d.one(None, 2, 0),
    "density": lambda d: d.one(None, True, False),
    "range": lambda d: d.one(None, (0.0, 2.0)),
    **dict.fromkeys(["return_index", "return_inverse", "return_counts", "sorted"], lambda d: True),
}
"""How to draw an argument, by the name of its parameter in NumPy's signature."""

KEYWORDS: dict[Any, dict[str, Callable[[Chooser], Any]]] = {
    np.pad: {
        "constant_values": lambda d: d.one(d.number(0, 1.5), (1, 2), [[1.0, 2]]),
        "end_values": lambda d: d.one(d.number(0, 1.5), (1, 2)),
        "stat_length": lambda d: d.one(1, 2, (1, 2), None),
        "reflect_type": lambda d: d.one("even", "odd"),
    },
    np.clip: {"dtype": lambda d: d.one(np.float32, np.float64), "casting": lambda d: "unsafe"},
}
"""What stands behind `**kwargs` of NumPy's functions."""

NOT_EMPTY = {
    np.cov, np.corrcoef, np.median, np.quantile, np.percentile, np.interp
}  # fmt: skip
"""Functions of which NumPy's own answer for no elements depends on the form of the call, or on NumPy's version.

So it does over no axes."""

_MANY = {"arys", "xi", "args", "operands", "arrays_and_dtypes"}


_DEPRECATED = {"interpolation", "newshape"}
"""Second names of parameters, gone in NumPy 2.4."""


def draw_call(function: Any, rng: np.random.Generator) -> Call:
    """A call with some of the parameters, some of them by name; now and then a wrong number of them."""
    d = Chooser(rng, least=1 if function in NOT_EMPTY else 0)
    call = Call(function)
    by_name = d.often(0.3)
    for p in signature(function).parameters.values():
        if p.name in _DEPRECATED:
            continue
        if p.kind is p.VAR_POSITIONAL or p.name in _MANY:
            call.args += [d.array() for _ in range(d.one(1, 2))]
            continue
        if p.kind is p.VAR_KEYWORD:
            chosen = KEYWORDS.get(function, {})
            call.kwargs.update(
                {name: draw(d) for name, draw in chosen.items() if d.often(0.5 / len(chosen))}
            )
            continue
        if p.default is not p.empty and not d.often(0.35):
            by_name = True  # those after it cannot be given by position
            continue
        if p.name not in ARGUMENTS:
            raise KeyError(
                f"say in ARGUMENTS how to draw {p.name!r}, a parameter of {function.__name__}"
            )
        value = ARGUMENTS[p.name](d)
        if function in NOT_EMPTY and p.name == "axis" and np.size(value) == 0:
            value = None
        if (by_name and p.kind is not p.POSITIONAL_ONLY) or p.kind is p.KEYWORD_ONLY:
            by_name = True
            call.kwargs[p.name] = value
        elif not by_name or p.kind is p.POSITIONAL_ONLY:
            call.args.append(value)
    return call


def draw_ufunc_call(ufunc: np.ufunc, rng: np.random.Generator) -> Call:
    """A call of a ufunc, with options now and then."""
    d = Chooser(rng)
    call = Call(ufunc, [d.array(), *[d.partner() for _ in range(ufunc.nin - 1)]])
    if ufunc.nin > 1 and d.often(0.5):
        call.args.reverse()
    for name, value, p in (
        ("dtype", d.one(np.float64, np.float32, np.int64), 0.1),
        ("where", d.one(True, d.mask()), 0.1),
        ("casting", d.one("same_kind", "unsafe"), 0.05),
        ("order", "K", 0.05),
    ):
        if d.often(p):
            call.kwargs[name] = value
    if d.often(0.5 if call.kwargs.get("where", True) is not True else 0.05):
        outs = tuple(np.zeros(d.shape, d.dtype) for _ in range(ufunc.nout))
        call.kwargs["out"] = outs if ufunc.nout > 1 else outs[0]
    return call
