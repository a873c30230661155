"""Print the effective configuration of a directory: `python -m nn.published DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from minigrad.io.reading import printable

from .family import HFConfig
from .load import load


def describe(directory: str) -> str:
    """Return a description of the model that `nn.load` makes of a directory.

    The text lists the class, each option with the value that takes effect, the keys of config.json
    that were read, those that change nothing, and the arrays that are not used.
    """
    model: Any = load(directory)
    origin = model.origin
    family = origin.family
    hf = HFConfig(origin.settings, "config.json", family.defaults)
    family.config(hf)
    options = model.config.flatten(model.config.effective.to_dict())
    width = max(map(len, options))
    return "\n".join([
        f"{type(model).__name__} ({family.base}{family.suffixes[origin.head]}), "
        f"{model.num_parameters():,} parameters",
        "",
        *(f"{name:{width}} = {options[name]!r}" for name in sorted(options)),
        "",
        _line("keys that were read", hf.taken & hf.keys()),
        _line("keys without effect on the outputs", hf.keys() - hf.taken),
        _line("arrays that are not used", origin.unused),
    ])  # fmt: skip


def _line(title: str, names: Iterable[str]) -> str:
    return f"{title}: {', '.join(printable(name) for name in sorted(names)) or 'none'}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print `describe` of the directory on the command line."""
    parser = argparse.ArgumentParser(prog="python -m nn.published", description=__doc__)
    parser.add_argument("directory", help="a directory with config.json and model.safetensors")
    directory = parser.parse_args(arguments).directory
    try:
        print(describe(directory))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
