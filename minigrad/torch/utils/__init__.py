"""`torch.utils`: data sets and batches."""

from . import data as data

__all__ = ["data"]


def __dir__() -> list[str]:
    return __all__
