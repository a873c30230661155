"""Files: written atomically, read within bounds. Arrays as safetensors, plain data as JSON."""

from .arrays import load, load_arrays, save, save_arrays
from .atomic import write_atomically as write_atomically
from .json import read_json as read_json
from .json import write_json as write_json
from .safetensors import SafetensorsFile as SafetensorsFile
from .safetensors import write_safetensors as write_safetensors

__all__ = [
    "SafetensorsFile", "load", "load_arrays", "read_json", "save", "save_arrays",
    "write_atomically", "write_json", "write_safetensors",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
