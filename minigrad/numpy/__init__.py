"""NumPy's vocabulary: forms of arguments, further functions, arrays of examples for vmap."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
