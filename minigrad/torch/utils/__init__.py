"""`torch.utils`: data sets and batches."""

from . import data as data

__all__ = ["data"]
