"""PyTorch's names of dtypes, which are those of NumPy."""

import numpy as np
from numpy import e, float16, float32, float64, inf, int8, int16, int32, int64, nan, pi, uint8

__all__ = [
    "bool", "double", "e", "float", "float16", "float32", "float64", "half", "inf", "int", "int8",
    "int16", "int32", "int64", "long", "nan", "pi", "uint8",
]  # fmt: skip

bool, double, float, half, int, long = np.bool_, float64, float32, float16, int32, int64
