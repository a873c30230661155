"""Inputs of commands: arguments, lines of standard input, or answers at a prompt."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import nn
from minigrad.io import read_json
from minigrad.io.reading import printable, require_file
from nn import text
from nn.commands.console import CONTROLS, Parser, count, note, piped
from nn.published.load import refuse_gguf
from nn.text.hub import find_model
from nn.text.labels import without_heading
from nn.text.pairs import Pair, read_pairs

BLEU_TOKENIZERS = ("13a", "zh", "none", "char", "intl")
"""Tokenizers of sacrebleu that need no other package."""
LARGE_FILE = 5_000_000  # bytes
LINES_AT_ONCE = 256  # of standard input, before their results are printed


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keep the lines of the description, and append each default to the help of its option."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, argparse.SUPPRESS) or action.default is False:
            return action.help
        return f"{action.help} (default: %(default)s)"


def command_parser(
    name: str, description: str | None, model: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser of the arguments of `minigrad NAME`; `model` describes the first one."""
    parser = Parser(
        f"minigrad {name}",
        description=description,
        formatter_class=partial(_HelpFormatter, max_help_position=32),
    )
    if model is not None:
        parser.add_argument("model", metavar="DIR", help=f"{model}, or its name on the Hub")
    return parser


def add_number(
    group: Any,
    name: str,
    default: float | None,
    help: str,
    kind: Callable[[str], Any] = count,
    metavar: str = "N",
) -> None:
    """Add an option with a number to a parser or a group of options."""
    group.add_argument(name, default=default, help=help, type=kind, metavar=metavar)


def columns_of(text: str) -> list[str]:
    """Return the names of two columns, as in a row of a .csv file."""
    names: list[str] = []
    with suppress(csv.Error):
        names = next(csv.reader([text], strict=True))
    if len(names) != 2:
        raise argparse.ArgumentTypeError(f"expected two names with a comma between, got {text!r}")
    return names


def add_table_options(parser: Any, content: str) -> None:
    """Add the options of `read_pairs` that choose columns and lines."""
    text = f"names of the columns of {content}"
    parser.add_argument("--columns", type=columns_of, metavar="A,B", help=text)
    parser.add_argument("--skip-bad", action="store_true", help="leave out bad lines")


def resumed_options(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    args: argparse.Namespace,
    file: Path,
    part: str,
    names: Collection[str],
    may_change: Collection[str],
) -> argparse.Namespace:
    """Return the options of a run that is resumed, whose defaults are the settings of the run.

    The settings are a part of `file`, or all of it. Without this file, `args` is returned. Each of
    the `names` must be a setting that is a value of its option. Errors of the parser begin with the
    file.
    """
    if not file.exists():
        note(f"nothing in {args.out} to continue: beginning")
        return args
    settings = read_json(file).object(part) if part else read_json(file)
    for action in [action for action in parser._actions if action.dest in names]:
        if action.dest not in settings:
            raise ValueError(
                f"{file} must have the setting {action.dest}; another version wrote it"
            )
        if not _is_value(action, settings[action.dest]):
            settings.fail(action.dest, f"a value of {action.option_strings[0]}")
    if unknown := sorted(settings.keys() - names):
        raise ValueError(f"{settings.where} must have settings only, got {printable(unknown[0])}")
    parser.set_defaults(**settings)
    error = parser.error
    parser.error = lambda message: error(f"{file}: {message}")  # type: ignore[method-assign]
    args = parser.parse_args(argv)
    for name in settings.keys() - may_change:
        value = getattr(args, name)
        if (str(value) if isinstance(value, Path) else value) != settings[name]:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} must be {settings[name]}, as the run began; leave it out")
    return args


def _is_value(action: argparse.Action, value: Any) -> bool:
    """Return whether an option has a value, by the command line or by default."""
    if action.nargs == 0:
        return isinstance(value, bool)
    if value is None or value == action.default:
        return type(value) is type(action.default)
    if action.nargs == "+":
        return isinstance(value, list) and all(isinstance(x, str) for x in value) and bool(value)
    kind: Any = action.type
    try:
        text = str(value)
        if isinstance(value, list):  # as a row of a .csv file
            text = ",".join('"' + str.replace(x, '"', '""') + '"' for x in value)
        is_typed = isinstance(value, str) if kind in (None, Path) else kind(text) == value
    except (TypeError, ValueError, argparse.ArgumentTypeError):
        return False
    return is_typed and not isinstance(value, bool) and value in (action.choices or [value])


@contextmanager
def naming_settings(file: Path, resume: bool) -> Iterator[None]:
    """Begin errors of a run that is resumed with the file of its settings, or another file."""
    is_used = resume and file.exists()
    try:
        yield
    except (ValueError, MemoryError, FileNotFoundError) as error:
        named = str(error).partition(":")[0].partition(" must ")[0]
        if not is_used or os.path.lexists(named):
            raise
        raise type(error)(f"{file}: {error}") from None


def add_model_options(parser: Any, adapter: bool = True) -> None:
    """Add the options of a published model that is used: `--int8` and `--adapter`."""
    parser.add_argument(
        "--int8",
        action="store_true",
        help="store the weights in 8 bits, in a quarter of the memory",
    )
    if adapter:
        parser.add_argument(
            "--adapter", type=Path, metavar="DIR", help="add an adapter, as PEFT writes it"
        )


def add_json(parser: Any) -> None:
    """Add the option `--json`."""
    parser.add_argument("--json", action="store_true", help="print a JSON object for each text")


def print_json(**values: Any) -> None:
    """Print a line with a JSON object."""
    text = json.dumps(values, ensure_ascii=False)
    print(CONTROLS.sub(lambda c: f"\\u{ord(c[0]):04x}", text), flush=True)


def load_model(args: argparse.Namespace) -> Any:
    """Load a published model for inference, with the options of `add_model_options`."""
    weights = "int8" if args.int8 else "float"
    if args.adapter is not None:
        model = nn.load_adapter(args.adapter, nn.load(args.model))
        return nn.for_inference(nn.merge_lora(model), weights)
    model = nn.load(args.model, weights=weights)
    return model if args.int8 else nn.for_inference(model)


def is_run(model: str) -> bool:
    """Return True for a run directory, and False for a published model."""
    directory = find_model(model)
    if directory.suffix == ".gguf" and not directory.is_dir():
        require_file(directory)
        return False
    refuse_gguf(directory)
    return "tokenizers" in read_json(directory / "config.json")


def refuse_run(model: str) -> None:
    """Raise an error for a run directory, if the command is for published models."""
    if is_run(model):
        raise ValueError(f"{model} must be a published model, got a run of minigrad train")


def load_text(model: str) -> text.ModelText:
    """Load the tokenizer of a published model, before its weights, which take longer."""
    refuse_run(model)
    return text.load(model)


def read_batches(texts: Sequence[str], prompt: str = "> ") -> Iterator[list[str]]:
    """Yield lists of texts: of the command line, of standard input, or one text at a time."""
    if texts:
        if len(texts) == 1 and Path(texts[0][:255]).is_file():
            note(
                f"{texts[0]} is a text here, although there is such a file; the lines of a file "
                f"are read from standard input: ... < {texts[0]}"
            )
        yield list(texts)
    elif not sys.stdin.isatty():
        lines = piped()
        yield from iter(lambda: list(islice(lines, LINES_AT_ONCE)), [])
    else:
        note("One text a line; an empty line ends.")
        while line := _ask(prompt):
            yield [line]


def read_texts(texts: Sequence[str], prompt: str = "> ") -> Iterator[str]:
    """Yield the texts of `read_batches` that are not empty, one by one."""
    return (text for batch in read_batches(texts, prompt) for text in batch if text)


def announce(*files: Path | str | None) -> None:
    """Print the names of large files, which take seconds to read, on standard error."""
    for path in [Path(file) for file in files if file is not None]:
        if path.is_file() and (size := path.stat().st_size) > LARGE_FILE:
            note(f"reading {path}, {size / 1e6:,.0f} MB")


def held_out_sizes(args: Any, count: int) -> tuple[int, int]:
    """Return how many of `count` texts test a model and choose its weights, if no file does."""
    size = max(1, min(count // 10, 1000))
    return 0 if args.test or count < 20 else size, 0 if args.valid else size


def read_table(path: Path, args: Any, read: Any = read_pairs, **options: Any) -> list[Any]:
    """Return the rows of a file by `read_pairs` or `read_chats`, and print what is left out."""
    announce(path)
    left_out = Counter[str]()
    options |= {"skip_bad": args.skip_bad, "columns": args.columns}
    rows = read(path, left_out=left_out, **options)
    for reason, n in left_out.items():
        if n:
            note(f"{path}: left out {n:,} {'row' if n == 1 else 'rows'}: {reason}")
    return list(rows)


def read_labelled(path: Path, args: Any, **options: Any) -> list[Pair]:
    """Return the labelled texts of a file without its heading, and print what is left out."""
    pairs, heading = read_table(path, args, **options), None
    if args.columns is None:
        pairs, heading = without_heading(pairs)
    if heading:
        names = f"{heading[0]!r:.40} and {heading[1]!r:.40}"
        note(f"{path}: left out 1 row: a row of headings, {names}")
    return pairs


def _ask(prompt: str) -> str:
    """Return a line of the terminal, or "" at the end of the input."""
    try:
        return input(prompt).strip()
    except EOFError:
        print(file=sys.stderr)  # the shell continues on a new line
        return ""
