"""Inputs of commands: arguments, lines of standard input, or answers at a prompt."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from minigrad.console import piped
from nn import text
from nn.pretrained.load import refuse_gguf

__all__ = ["command_parser", "load_text", "read_batches", "read_texts"]


def command_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments of `minigrad NAME`; `description` keeps its lines."""
    plain = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"minigrad {name}", None, description, formatter_class=plain)


def load_text(directory: Path) -> text.ModelText:
    """Load the tokenizer of a published model, before its weights, which take longer."""
    refuse_gguf(directory)
    return text.load(directory)


def read_batches(texts: Sequence[str], prompt: str = "> ") -> Iterator[list[str]]:
    """Yield lists of texts: the given ones, all lines of standard input, or one at a time.

    Parameters
    ----------
    texts : list of str
        Texts of the command line. Without them, standard input is read.
    prompt : str
        Written before each text if standard input is a terminal. An empty line ends.
    """
    if texts:
        yield list(texts)
    elif not sys.stdin.isatty():
        yield list(piped())
    else:
        print("One text a line; an empty line ends.", file=sys.stderr)
        while line := _ask(prompt):
            yield [line]


def read_texts(texts: Sequence[str], prompt: str = "> ") -> Iterator[str]:
    """Yield the texts of `read_batches` that are not empty, one by one."""
    return (text for batch in read_batches(texts, prompt) for text in batch if text)


def _ask(prompt: str) -> str:
    """Return a line of the terminal, or "" at the end of the input."""
    try:
        return input(prompt).strip()
    except EOFError:
        print(file=sys.stderr)  # what follows starts on a new line
        return ""
