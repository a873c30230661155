"""Largest differences of the results of lessons to PyTorch's: computed, or recorded where PyTorch is missing.

`python examples/course/torch_gaps.py` needs PyTorch, runs the lessons and records them in `torch_gaps.json`.
"""

from __future__ import annotations

import importlib
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from labels import label

__all__ = ["compare_with_torch"]

RECORD = Path(__file__).with_suffix(".json")
computed: dict[str, float] = {}  # by the number of the lesson, in this process


def compare_with_torch(lesson: int, ours: np.ndarray, theirs: Callable[[Any], Any]) -> None:
    """Print the largest difference between a result and what `theirs` returns, given PyTorch."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        record = json.loads(RECORD.read_text("utf-8"))
        phrase = "largest difference to PyTorch {}, recorded: {:.0e}"
        print(label(phrase, record["version"], record["gaps"][str(lesson)]))
        return
    with torch.no_grad():
        computed[str(lesson)] = gap = float(np.abs(theirs(torch).numpy() - ours).max())
    print(label("largest difference to PyTorch {}: {:.0e}", torch.__version__, gap))


def main() -> None:
    """Run the lessons that compare with PyTorch, and record the differences."""
    from torch import __version__
    from torch_gaps import computed  # that of the lessons

    for script in sorted(Path(__file__).parent.glob("[0-9]*.py")):
        if "compare_with_torch(" in script.read_text("utf-8"):
            runpy.run_path(str(script), run_name="__main__")
    record = {"version": str(__version__), "gaps": computed}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
