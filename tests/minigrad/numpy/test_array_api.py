"""The namespace of the array API standard: names, signatures, and the results of NumPy.

`SIGNATURES` lists the functions of the standard, version 2024.12. Values and dtypes are compared with those of NumPy on
drawn arrays. The standard's test suite, which is not a package, runs with
ARRAY_API_TESTS_MODULE=minigrad.numpy.array_api ARRAY_API_TESTS_VERSION=2024.12 pytest array_api_tests.
With NumPy 2.4, 34 of its 1,380 tests fail; NumPy itself fails in these and 13 others.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.forms import BEFORE_2_1, BEFORE_2_4

import minigrad as mg
from minigrad import GradientError, Tensor

xp = Tensor(0.0).__array_namespace__()

SIGNATURES: dict[Callable[..., Any], str] = {
    # creation
    lambda start, /, stop=None, step=1, *, dtype=None, device=None: ...: "arange",
    lambda obj, /, *, dtype=None, device=None, copy=None: ...: "asarray",
    lambda shape, *, dtype=None, device=None: ...: "empty ones zeros",
    lambda x, /, *, dtype=None, device=None: ...: "empty_like ones_like zeros_like",
    lambda n_rows, n_cols=None, /, *, k=0, dtype=None, device=None: ...: "eye",
    lambda x, /, *, device=None, copy=None: ...: "from_dlpack",
    lambda shape, fill_value, *, dtype=None, device=None: ...: "full",
    lambda x, /, fill_value, *, dtype=None, device=None: ...: "full_like",
    lambda start, stop, /, num, *, dtype=None, device=None, endpoint=True: ...: "linspace",
    lambda *arrays, indexing="xy": ...: "meshgrid",
    lambda x, /, *, k=0: ...: "tril triu",
    # dtypes
    lambda x, dtype, /, *, copy=True, device=None: ...: "astype",
    lambda from_, to, /: ...: "can_cast",
    lambda type, /: ...: "finfo iinfo",
    lambda dtype, kind: ...: "isdtype",
    lambda *arrays_and_dtypes: ...: "result_type",
    # for each element
    lambda x, /: ...: (
        "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf "
        "isnan log log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square "
        "sqrt tan tanh trunc matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values "
        "linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_transpose linalg.slogdet linalg.svdvals"
    ),
    lambda x1, x2, /: ...: (
        "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
        "floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor "
        "maximum minimum multiply nextafter not_equal pow remainder subtract matmul "
        "linalg.matmul linalg.outer linalg.solve"
    ),
    lambda x, /, min=None, max=None: ...: "clip",
    # indices, search, sets, order
    lambda x, indices, /, *, axis=None: ...: "take",
    lambda x, indices, /, *, axis=-1: ...: "take_along_axis",
    lambda x, /, *, axis=None, keepdims=False: ...: "argmax argmin count_nonzero all any max mean min",
    lambda x1, x2, /, *, side="left", sorter=None: ...: "searchsorted",
    lambda condition, x1, x2, /: ...: "where",
    lambda x, /, *, axis=-1, descending=False, stable=True: ...: "argsort sort",
    # sums and products
    lambda x, /, *, axis=None, dtype=None, include_initial=False: ...: "cumulative_prod cumulative_sum",
    lambda x, /, *, axis=None, dtype=None, keepdims=False: ...: "prod sum",
    lambda x, /, *, axis=None, correction=0.0, keepdims=False: ...: "std var",
    lambda x, /, *, axis=-1, n=1, prepend=None, append=None: ...: "diff",
    # shapes
    lambda *arrays: ...: "broadcast_arrays",
    lambda x, /, shape: ...: "broadcast_to",
    lambda arrays, /, *, axis=0: ...: "concat stack",
    lambda x, /, axis: ...: "expand_dims squeeze",
    lambda x, /, *, axis=None: ...: "flip",
    lambda x, source, destination, /: ...: "moveaxis",
    lambda x, /, axes: ...: "permute_dims",
    lambda x, repeats, /, *, axis=None: ...: "repeat",
    lambda x, /, shape, *, copy=None: ...: "reshape",
    lambda x, /, shift, *, axis=None: ...: "roll",
    lambda x, repetitions, /: ...: "tile",
    lambda x, /, *, axis=0: ...: "unstack",
    # matrices
    lambda x1, x2, /, *, axes=2: ...: "tensordot linalg.tensordot",
    lambda x1, x2, /, *, axis=-1: ...: "vecdot linalg.cross linalg.vecdot",
    lambda x, /, *, upper=False: ...: "linalg.cholesky",
    lambda x, /, *, offset=0: ...: "linalg.diagonal",
    lambda x, /, *, keepdims=False, ord="fro": ...: "linalg.matrix_norm",
    lambda x, n, /: ...: "linalg.matrix_power",
    lambda x, /, *, rtol=None: ...: "linalg.matrix_rank linalg.pinv",
    lambda x, /, *, mode="reduced": ...: "linalg.qr",
    lambda x, /, *, full_matrices=True: ...: "linalg.svd",
    lambda x, /, *, offset=0, dtype=None: ...: "linalg.trace",
    lambda x, /, *, axis=None, keepdims=False, ord=2: ...: "linalg.vector_norm",
    # Fourier transforms
    lambda x, /, *, n=None, axis=-1, norm="backward": ...: "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft",
    lambda x, /, *, s=None, axes=None, norm="backward": ...: "fft.fftn fft.ifftn fft.rfftn fft.irfftn",
    lambda n, /, *, d=1.0, dtype=None, device=None: ...: "fft.fftfreq fft.rfftfreq",
    lambda x, /, *, axes=None: ...: "fft.fftshift fft.ifftshift",
}  # fmt: skip
"""Functions of the standard by their signatures."""

STANDARD = {name: f for f, names in SIGNATURES.items() for name in names.split()}
LACKING = {"fft.fftfreq": {"dtype"}, "fft.rfftfreq": {"dtype"}}
"""Parameters that NumPy's functions do not have."""


def named(namespace: Any, name: str) -> Any:
    """Return a function by its name, such as "linalg.det"."""
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


@pytest.mark.skipif(BEFORE_2_4, reason="needs a function of a newer NumPy, or its signature")
@pytest.mark.parametrize("name", STANDARD)
def test_function_accepts_the_arguments_of_the_standard(name: str) -> None:
    signature = inspect.signature(named(xp, name))
    parameters = inspect.signature(STANDARD[name]).parameters.values()
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    options = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    for missing in LACKING.get(name, ()):
        options.pop(missing)
    signature.bind(*by_position, **options)
    for option, p in options.items():
        default = signature.parameters[option].default if option in signature.parameters else None
        assert default in (p.default, np._NoValue, None, float) or option in ("ord", "stable")


CONSTANTS = """
    e inf nan newaxis pi
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128
"""


@pytest.mark.parametrize("name", [*CONSTANTS.split(), "__array_namespace_info__"])
def test_constant_is_that_of_numpy(name: str) -> None:
    assert getattr(xp, name, None) is getattr(np, name, None)  # NumPy 2.0 lacks the info


UNARY = ["abs", "invert", "neg", "pos"]
ARITHMETIC = [
    "add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "matmul", "and", "or", "xor", "lshift", "rshift",
]  # fmt: skip
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
IN_PLACE = [f"i{name}" for name in ARITHMETIC]
OTHER_METHODS = [
    "array_namespace", "bool", "complex", "dlpack", "dlpack_device", "float", "getitem", "index", "int", "setitem",
]  # fmt: skip


def test_tensor_returns_the_namespace_of_known_versions_only() -> None:
    x = Tensor(1.0)
    assert (
        xp.__array_api_version__ == "2024.12" and x.__array_namespace__(api_version="2023.12") is xp
    )
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    with pytest.raises(ValueError, match='api_version must be "2021.12", .* got .2030.12.'):
        x.__array_namespace__(api_version="2030.12")


def test_tensor_has_the_attributes_of_the_standard() -> None:
    reflected = [f"r{name}" for name in ARITHMETIC]
    names = [*UNARY, *ARITHMETIC, *COMPARISONS, *IN_PLACE, *reflected, *OTHER_METHODS]
    x = Tensor(np.ones((2, 2)))
    assert not [name for name in names if not callable(getattr(x, f"__{name}__"))]
    for name in ("dtype", "device", "mT", "ndim", "shape", "size", "T", "to_device"):
        getattr(x, name)
    assert x.to_device(x.device) is x
    with pytest.raises(ValueError, match="to_device: stream must be None, got 0"):
        x.to_device("cpu", stream=0)
    with pytest.raises(ValueError, match="device"):
        x.to_device("cuda")


# -- values

DTYPES = [
    np.bool, np.int8, np.int64, np.uint8, np.uint64, np.float32, np.float64, np.complex128,
]  # fmt: skip
SHAPES = st.sampled_from([(), (1,), (3,), (0,), (2, 3), (3, 1), (3, 3), (2, 3, 3), (2, 1, 3)])


@cache
@st.composite
def operands(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array of small values, some of them equal."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.integers(0 if dtype.kind in ("b", "u") else -3, 4, shape) * (
        0.75 if dtype.kind in ("f", "c") else 1
    )
    return np.asarray(x + 0.5j * x**2 if dtype.kind == "c" else x).astype(dtype)


OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "axis": st.sampled_from([None, 0, -1, 1, (0, 1), ()]),
    "axes": st.sampled_from([None, 0, 1, 2, (0, 1), (1, 0), ((0,), (1,))]),
    "keepdims descending stable include_initial full_matrices upper endpoint": st.booleans(),
    "dtype": st.sampled_from([None, *DTYPES]),
    "device": st.sampled_from([None, "cpu"]),
    "copy": st.sampled_from([None, True]),
    "correction": st.sampled_from([0, 1, 0.5]),
    "k offset shift": st.integers(-2, 2),
    "n repeats num n_rows n_cols": st.integers(1, 3),
    "start step": st.sampled_from([1, 2, 0.5]),
    "stop": st.sampled_from([5, 2.5]),
    "d": st.sampled_from([1.0, 0.5]),
    "fill_value": st.sampled_from([0, 1.5, True]),
    "min max": st.sampled_from([None, 0, 1]),
    "side": st.sampled_from(["left", "right"]),
    "indexing": st.sampled_from(["xy", "ij"]),
    "mode": st.sampled_from(["reduced", "complete"]),
    "norm": st.sampled_from(["backward", "ortho", "forward"]),
    "ord": st.sampled_from([1, 2, np.inf]),
    "indices": st.sampled_from([np.array([0, 0, 1]), np.array([[1, 0, 2]])]),
    "source destination": st.sampled_from([0, -1, (0, 1), (1, 0)]),
    "shape": st.sampled_from([(3,), (2, 3), (1, 2, 3), (-1,), (3, 2), (9,)]),
    "repetitions": st.sampled_from([(2,), (1, 2), (2, 1, 1)]),
    "dtype_of_kind": st.sampled_from(DTYPES),
    "kind": st.sampled_from(["integral", "real floating", "bool", ("numeric", "bool")]),
    "to from_ type": st.sampled_from(DTYPES),
}
BY_NAME = {name: strategy for names, strategy in OPTIONS.items() for name in names.split()}


def _sorted(x: np.ndarray, *, axis: int = -1, **options: Any) -> np.ndarray:
    return np.take_along_axis(x, _order(x, axis=axis, **options), axis)


def _order(x: np.ndarray, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    if not descending or not x.ndim:
        return np.argsort(x, axis, stable=True)
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, stable=True), axis)


REFERENCES: dict[str, Callable[..., Any]] = {
    "asarray": lambda obj, **options: np.array(obj, dtype=options.get("dtype")),
    "from_dlpack": lambda x, **options: np.array(x),
    "argsort": _order,
    "sort": _sorted,
}
"""Results of the functions whose form in NumPy is another one."""

UNSET = {"empty", "empty_like"}

ERRORS = (ValueError, TypeError, IndexError, AttributeError, OverflowError, ZeroDivisionError)


def outcome(function: Any, args: list[Any], options: dict[str, Any]) -> Any:
    """Return the result of a call, or the exception."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **options)
        except ERRORS as error:
            return error


def assert_same(result: Any, expected: Any, is_unset: bool = False) -> None:
    """Compare values, dtypes and shapes at any depth; errors need not be the same."""
    if isinstance(expected, Exception):
        assert isinstance(result, Exception), f"NumPy raises {expected!r}, not {result!r}"
        return
    assert not isinstance(result, Exception), f"NumPy returns {expected!r}, not {result!r}"
    if isinstance(expected, (tuple, list)):
        assert len(result) == len(expected)
        for y, e in zip(result, expected):
            assert_same(y, e, is_unset)
    elif isinstance(expected, (np.ndarray, np.generic)) or isinstance(result, Tensor):
        expected = np.asarray(expected)
        assert isinstance(result, Tensor)
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if not is_unset:
            single = BEFORE_2_1 and expected.dtype == np.float32  # x **= 0.5 is no square root
            np.testing.assert_allclose(result.data, expected, rtol=1e-6 if single else 1e-12)
    else:
        assert type(result) is type(expected)
        assert str(result) == str(expected)


@pytest.mark.parametrize("name", [n for n in STANDARD if n in REFERENCES or not BEFORE_2_4])
@max_examples(4)
@given(data=st.data())
def test_function_of_tensors_has_the_values_and_dtypes_of_numpy(
    name: str, data: st.DataObject
) -> None:
    shape = data.draw(SHAPES)
    args: list[Any] = []
    options: dict[str, Any] = {}
    for p in inspect.signature(STANDARD[name]).parameters.values():
        if p.name in LACKING.get(name, ()):
            continue
        if p.name in ("x", "x1", "x2", "obj", "condition"):
            args.append(data.draw(operands(data.draw(st.sampled_from([shape, shape, shape[1:]])))))
        elif p.kind is p.VAR_POSITIONAL:
            args += [data.draw(operands(shape)), data.draw(operands(shape[1:]))]
        elif p.name == "arrays":
            args.append([data.draw(operands(shape)), data.draw(operands(shape))])
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            args.append(data.draw(BY_NAME[p.name]))
        elif p.name in BY_NAME and data.draw(st.booleans()):
            value = data.draw(BY_NAME[p.name])
            if value is not None or p.default is None:
                options[p.name] = value

    def tensors(value: Any) -> Any:
        if isinstance(value, list):
            return [tensors(v) for v in value]
        return Tensor(value.copy()) if isinstance(value, np.ndarray) else value

    reference = REFERENCES.get(name) or named(np, name)
    expected = outcome(reference, args, options)
    result = outcome(named(xp, name), tensors(args), options)
    # NumPy's transforms of no values return memory that nothing has written
    is_unset = name in UNSET or (name.startswith("fft.") and 0 in np.shape(args[0]))
    assert_same(result, expected, is_unset)


@pytest.mark.parametrize("name", [*UNARY, *ARITHMETIC, *COMPARISONS, *IN_PLACE])
@max_examples(15)
@given(data=st.data())
def test_operator_has_the_values_and_dtypes_of_numpy(name: str, data: st.DataObject) -> None:
    """The other operand is a tensor, an array, a number of NumPy or of Python, or a list."""
    shape = data.draw(SHAPES)
    f = getattr(operator, name.strip("_") if name not in ("and", "or") else f"{name}_")
    x = data.draw(operands(shape))
    if name in UNARY:
        assert_same(outcome(f, [Tensor(x)], {}), outcome(f, [x], {}))
        return
    other = data.draw(
        st.one_of(
            operands(shape),
            operands(shape[1:]),
            st.sampled_from([2, 0.5, True, -1, np.float32(3), [1.0]]),
        )
    )
    as_tensor = isinstance(other, np.ndarray) and data.draw(st.booleans())
    is_left = name in IN_PLACE or as_tensor or data.draw(st.booleans())
    own = [x.copy(), other] if is_left else [other, x.copy()]
    tensors = [Tensor(v.copy()) if v is own[1 - is_left] or as_tensor else v for v in own]
    expected, result = outcome(f, own, {}), outcome(f, tensors, {})
    if name == "pow" and is_left and x.dtype == bool and type(other) in (int, float):
        return  # NumPy's dtype of the square of booleans is not that of their other powers
    if name == "pow" and BEFORE_2_4 and not is_left and x.dtype.kind in "iu" and x.ndim == 0:
        return  # ndarray.__pow__ takes the tensor for an integer, by its __index__
    assert_same(result, expected)
    if name in IN_PLACE and not isinstance(expected, Exception):
        assert result is tensors[0]


def test_logarithm_of_zero_raises_if_a_gradient_is_needed() -> None:
    zeros = np.array([0.0, 1.0])
    with np.errstate(divide="ignore"):
        assert xp.log(Tensor(zeros)).tolist() == [-np.inf, 0]
    with np.errstate(invalid="ignore"):
        assert np.isnan(xp.log(Tensor([-1.0], requires_grad=True)).item())
    with pytest.raises(GradientError, match=r'x must not contain 0, .* kernel="cubic"'):
        xp.log(Tensor(zeros, requires_grad=True))
    assert mg.grad(xp.log)(1.0).item() == 1


@pytest.mark.parametrize("copies", [None, True, False])
def test_from_dlpack_shares_memory_unless_copies_are_asked_for(copies: bool | None) -> None:
    if copies is False and not hasattr(np, "cumulative_sum"):
        pytest.skip("needs a function of a newer NumPy")
    x = np.arange(3.0)
    y = xp.from_dlpack(x, copy=copies)
    assert np.shares_memory(y.data, x) is not bool(copies) and y.tolist() == [0, 1, 2]


def test_asarray_without_a_copy_returns_a_tensor_of_this_dtype_itself() -> None:
    x, z = (
        Tensor([1.0, 2.0], requires_grad=True),
        np.fft.fft(Tensor([1.0, 2.0], requires_grad=True)),
    )
    for copies in (None, False):
        assert xp.asarray(x, copy=copies) is x and xp.asarray(x, dtype=float, copy=copies) is x
        assert np.shares_memory(xp.asarray(x.data, copy=copies).data, x.data)
    for y in (xp.asarray(x, copy=True), xp.asarray(x, dtype=np.float32)):
        assert y.requires_grad and not np.shares_memory(y.data, x.data)
    assert xp.asarray([1.0]).tolist() == [1]
    for other in ([1.0], Tensor([1.0])):
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(other, dtype=np.float32, copy=False)
    assert xp.asarray(z) is z and xp.asarray(z, dtype=np.complex64).dtype == np.complex64
    assert xp.astype(z, np.complex64).dtype == np.complex64 and xp.astype(x, float, copy=False) is x


def test_other_device_is_refused_by_every_function_that_takes_one() -> None:
    x = Tensor([1.0])
    for call in (
        lambda device: xp.asarray(x, device=device),
        lambda device: xp.asarray(1j * Tensor(1.0, requires_grad=True), device=device),
        lambda device: xp.astype(x, float, device=device),
        lambda device: xp.from_dlpack(np.ones(1), device=device),
        lambda device: xp.zeros(1, device=device),
        lambda device: x.to_device(device),
    ):
        assert isinstance(call("cpu"), Tensor)
        with pytest.raises(ValueError, match="cuda"):
            call("cuda")


def test_functions_of_ndarrays_return_tensors() -> None:
    for f in (xp.log, xp.exp, xp.sum, xp.linalg.norm if hasattr(xp.linalg, "norm") else xp.max):
        assert type(f(np.ones(2))) is Tensor


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_order_of_equal_elements_is_kept(descending: bool, stable: bool) -> None:
    x = np.arange(300) % 3
    expected = np.argsort(-x if descending else x, kind="stable")
    options = {"descending": descending, "stable": stable}
    assert xp.argsort(Tensor(x), **options).tolist() == expected.tolist()
    assert xp.sort(Tensor(x), **options).tolist() == x[expected].tolist()


@pytest.mark.parametrize("unit", [1.0, 1j])
@pytest.mark.parametrize("copy", [None, False, True])
def test_asarray_copies_where_it_is_asked_to(copy: bool | None, unit: Any) -> None:
    x = Tensor(np.arange(3.0), requires_grad=True) * unit
    array = lambda t: t.real.data if unit == 1j else t.data
    single = np.complex64 if unit == 1j else np.float32

    y = xp.asarray(x, copy=copy)

    assert np.shares_memory(array(x), array(y)) == (not copy)
    assert y.requires_grad and np.array_equal(array(y), array(x))
    assert np.shares_memory(array(x), array(xp.astype(x, x.dtype, copy=False)))
    assert not np.shares_memory(array(x), array(xp.astype(x, x.dtype)))
    if copy is not False:
        assert xp.asarray(x, dtype=single, copy=copy).dtype == single
    else:
        with pytest.raises(ValueError, match="copy"):
            xp.asarray(x, dtype=single, copy=copy)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: mg.meshgrid(x, x),
        lambda x: mg.gradient(x),
        lambda x: mg.broadcast_arrays(x, x),
        lambda x: x.split(1),
        lambda x: x.split([1, 1]),
        lambda x: x.unbind(),
    ],
)
def test_results_that_are_tuples_in_numpy_or_pytorch_are_tuples(call: Any) -> None:
    assert type(call(Tensor(np.eye(2)))) is tuple
