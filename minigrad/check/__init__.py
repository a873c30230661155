"""Tools that check and observe: gradients, anomalies, time, memory, optional packages."""

__all__: list[str] = []


def __dir__() -> list[str]:
    return __all__
