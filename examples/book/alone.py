"""Import the book alone: `import alone` comes before any import of minigrad or nn.

The book are the files directly in `minigrad/`, `minigrad/ops/` and `nn/`. The `__init__.py` of these
packages would import everything else, such as kernels, which replace the definitions of the book.
"""

import importlib.abc
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        package, _, rest = name.partition(".")
        if package in ("minigrad", "nn") and "." in rest and not rest.startswith("ops."):
            raise ImportError(f"{name} is not in the book")


for package in ("minigrad", "nn"):  # no __init__.py runs
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [str(ROOT / package)]
sys.meta_path.insert(0, Wall())
