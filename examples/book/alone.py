"""Run a program of this directory with the book alone: no kernels, so every definition runs.

    python examples/book/alone.py PROGRAM [ARGUMENT ...]

The packages `minigrad` and `nn` get the public names of the files directly in `minigrad/`,
`minigrad/ops/` and `nn/`. Their `__init__.py`, which imports everything else, does not run, and the
other packages cannot be imported. `import alone` does the same, before an import of either.
"""

import importlib
import importlib.abc
import runpy
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        package, _, rest = name.partition(".")
        if package in ("minigrad", "nn") and "." in rest and not rest.startswith("ops."):
            raise ImportError(f"{name} is not in the book")


for package in ("minigrad", "nn"):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [str(ROOT / package)]
sys.meta_path.insert(0, Wall())

for directory in ("minigrad", "minigrad/ops", "nn"):
    for path in sorted((ROOT / directory).glob("*.py")):
        if not path.stem.startswith("__"):
            module = importlib.import_module(f"{directory.replace('/', '.')}.{path.stem}")
            names = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
            vars(sys.modules[directory.partition("/")[0]]).update(names)

# names of packages of the library, for modules of the book
sys.modules["minigrad.optim"] = sys.modules["minigrad"].optim = sys.modules["minigrad.optimizer"]
sys.modules["nn.init"] = sys.modules["nn"].init = sys.modules["nn.initial"]

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.argv = [str(Path(__file__).with_name(Path(sys.argv[1]).name)), *sys.argv[2:]]
    runpy.run_path(sys.argv[0], run_name="__main__")
