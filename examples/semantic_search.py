"""Search the lines of a file by meaning, with a sentence encoder in a folder (such as all-MiniLM-L6-v2).

python examples/semantic_search.py DIR notes.txt "how do I get my money back?"    prints the likeliest lines
python examples/semantic_search.py DIR notes.txt                                  asks for questions
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from prompt import asked

import nn
from minigrad.console import count, run_script
from nn.text import read_lines


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", type=Path, metavar="DIR", help="config.json, model.safetensors, tokenizer.json ..."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="UTF-8 text, searched line by line")
    parser.add_argument("question", nargs="*", help="what to search for (default: ask)")
    parser.add_argument(
        "--top", type=count, default=3, metavar="N", help="lines to print (default: %(default)s)"
    )
    return parser.parse_intermixed_args(argv)  # texts can follow options


def main(argv: Sequence[str] | None = None) -> list[list[str]]:
    """The lines that were found for each question."""
    args = parse(argv)
    lines = [line for line in dict.fromkeys(map(str.strip, read_lines(args.file))) if line]
    if not lines:
        raise ValueError(f"{args.file}: no text")
    encoder = nn.sentence_encoder(args.model)
    began = time.perf_counter()
    index = encoder.encode(lines)  # (lines, d)
    print(f"{len(lines):,} lines in {time.perf_counter() - began:.1f} s")
    found = []
    for question in args.question or asked("? "):
        similarity = encoder.similarity(index, encoder.encode(question))[:, 0]
        best = np.argsort(-similarity, kind="stable")[: args.top]
        print(f"\n{question}")
        for i in best:
            print(f"  {similarity[i]:.2f}  {lines[i]}")
        found.append([lines[i] for i in best])
    return found


if __name__ == "__main__":
    sys.exit(run_script(main))
