"""Search the lines of a file by meaning, with a published sentence encoder (MiniLM, BGE, E5 ...).

    minigrad search DIR notes.txt "how do I get my money back?"
    minigrad search DIR notes.txt --index notes.index              asks for questions

DIR contains config.json, model.safetensors and the files of the tokenizer. Needs tokenizers:
pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.io.json import checksum
from nn.text import read_lines

from .inputs import add_number, command_parser, read_texts, refuse_run

__all__ = ["main"]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("search", __doc__, "directory of the encoder")
    parser.add_argument("file", type=Path, metavar="FILE", help="UTF-8 text, plain or .gz")
    parser.add_argument(
        "question", nargs="*", help="questions (default: lines of standard input, or a prompt)"
    )
    add_number(parser, "--top", 3, "lines to print")
    parser.add_argument(
        "--index",
        type=Path,
        metavar="FILE",
        help="keep the vectors of the lines in this file, and use them in the next search",
    )
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> list[list[str]]:
    """Print the lines that are most similar to each question, and return them.

    Parameters
    ----------
    argv : list of str, optional
        Arguments of the command; those of the process by default.

    Returns
    -------
    list of lists of str
        Lines for each question, the most similar one first.
    """
    args = parse(argv)
    lines = [line for line in dict.fromkeys(map(str.strip, read_lines(args.file))) if line]
    if not lines:
        raise ValueError(f"{args.file} must have at least one line of text, got none")
    refuse_run(args.model)
    encoder = nn.sentence_encoder(args.model)
    vectors = encode_lines(encoder, lines, args.index)
    results = []
    for question in read_texts(args.question, "? "):
        similarity = encoder.similarity(vectors, encoder.encode(question))[:, 0]
        best = np.argsort(-similarity, kind="stable")[: args.top]
        print(f"\n{question}")
        for i in best:
            print(f"  {similarity[i]:.2f}  {lines[i]}")
        results.append([lines[i] for i in best])
    return results


def encode_lines(encoder: nn.SentenceEncoder, lines: list[str], index: Path | None) -> np.ndarray:
    """Return the vectors (n, d) of lines, from `index` if it has those of the same encoder."""
    key = {"lines": checksum(lines)}
    if index is not None and index.exists():
        arrays, metadata = load_arrays(index)
        if "lines" not in metadata or set(arrays) != {"vectors"}:
            raise ValueError(f"{index}: not an index of minigrad search; choose another file")
        vectors = arrays["vectors"]
        first = encoder.encode(lines[:1])
        fits = metadata == key and vectors.shape == (len(lines), first.shape[1])
        if fits and np.allclose(vectors[:1], first, atol=1e-4):
            print(f"{len(lines):,} lines in {index}")
            return vectors
        print(f"{index}: made with another encoder or other lines; encoding them again")
    began = time.perf_counter()
    vectors = encoder.encode(lines)
    print(f"{len(lines):,} lines in {time.perf_counter() - began:.1f} s")
    if index is not None:
        save_arrays(index, {"vectors": vectors}, key)
    return vectors
