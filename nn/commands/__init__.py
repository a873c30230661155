"""Commands of the package: `minigrad COMMAND ...`, or `python -m nn COMMAND ...`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

import minigrad
from nn.commands.console import Parser, run_script

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "train": "train a Transformer that translates",
    "translate": "translate with a trained run or a published model",
    "generate": "continue a text, or chat, with a published language model",
    "classify": "classify texts with a published or fine-tuned classifier",
    "search": "search the lines of a file by meaning",
    "fine-tune": "train a published model to classify, or to answer",
    "explore": "write a page that shows what each token attended to",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code of the process."""
    parser = Parser(
        prog="minigrad",
        description="Train and use Transformers, in NumPy alone.",
        epilog="commands:\n" + "\n".join(f"  {name:12}{about}" for name, about in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"minigrad {minigrad.__version__}")
    command = "one of those below"
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help=command)
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="its arguments: minigrad COMMAND --help lists them",
    )
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    name = f".{args.command.replace('-', '_')}"
    return run_script(lambda: import_module(name, __name__).main(args.arguments))


def __dir__() -> list[str]:
    return __all__
