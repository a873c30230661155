"""Options of layers and models that came after the paper: positions, biases, probes, encoders."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
