"""Where tensors are: on the CPU, for programs that name a device."""

from __future__ import annotations

from typing import Any

__all__ = ["device"]


class device(str):
    """The device "cpu"; a ValueError for any other."""

    __slots__ = ()
    type = "cpu"

    def __new__(cls, name: Any = "cpu") -> device:
        if str(name).partition(":")[0] != "cpu":
            raise ValueError(f"device: no device {str(name)!r}; everything is on the CPU")
        return super().__new__(cls, "cpu")
