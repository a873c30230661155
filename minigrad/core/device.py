"""Where tensors are: on the CPU, for programs that name a device or ask for others."""

from __future__ import annotations

from typing import Any

__all__ = ["cuda", "device"]


class device(str):
    """The device "cpu"; a ValueError for any other."""

    __slots__ = ()
    type = "cpu"

    def __new__(cls, name: Any = "cpu") -> device:
        if str(name).partition(":")[0] != "cpu":
            raise ValueError(f"device: no device {str(name)!r}; everything is on the CPU")
        return super().__new__(cls, "cpu")


class NoDevices:
    """Says that there are none of a kind."""

    @staticmethod
    def is_available() -> bool:
        """False."""
        return False

    @staticmethod
    def device_count() -> int:
        """0."""
        return 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no `{name}`: everything is in the memory of the CPU, on one device")


cuda = NoDevices()
