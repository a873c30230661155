"""Search the lines of a file by meaning, with a published sentence encoder (MiniLM, BGE, E5 ...).

    minigrad search DIR notes.txt "how do I get my money back?"
    minigrad search DIR notes.txt --index notes.index              asks for questions
    minigrad search DIR notes.txt "who paid?" --rerank DIR2        orders them by a cross-encoder

DIR contains config.json, model.safetensors and the files of the tokenizer. Needs tokenizers:
pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nn
from minigrad.io import load_arrays, save_arrays

from ..runs.progress import ProgressLine
from ..text.hub import find_model
from ..text.pairs import read_lines
from .console import escaped, note
from .inputs import (
    add_json,
    add_model_options,
    add_number,
    announce,
    command_parser,
    print_json,
    read_texts,
    refuse_run,
)

ENCODER_FILES = (".json", ".model", ".safetensors", ".txt")
LINES_AT_ONCE = 256  # after which the progress is shown
CANDIDATES = 50  # most similar lines, which a cross-encoder scores


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
    rerank = f"order the {CANDIDATES} most similar lines by the scores of this cross-encoder"
    parser.add_argument("--rerank", metavar="DIR", help=rerank)
    add_json(parser)
    add_model_options(parser, adapter=False)
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> list[list[str]]:
    """Print the lines that are most similar to each question, and return them."""
    args = parse(argv)
    announce(args.file)
    lines = [line for line in dict.fromkeys(map(str.strip, read_lines(args.file))) if line]
    if not lines:
        raise ValueError(f"{args.file} must have at least one line of text, got none")
    refuse_run(args.model)
    if not (find_model(args.model, ["modules.json"]) / "modules.json").exists():
        note(
            f"warning: {args.model} has no modules.json, so the model was not trained to compare "
            "texts, and similarities may be meaningless; take a sentence encoder"
        )
    encoder = nn.sentence_encoder(args.model)
    if args.int8:
        encoder.model = nn.for_inference(encoder.model, "int8")
    weights = "int8" if args.int8 else "float"
    rerank = None if args.rerank is None else nn.reranker(args.rerank, weights=weights)
    vectors = encode_lines(encoder, lines, args)
    results = []
    for question in read_texts(args.question, "? "):
        scores = encoder.similarity(vectors, encoder.encode(question))[:, 0]
        best = np.argsort(-scores, kind="stable")
        if rerank is not None:
            best = best[: max(CANDIDATES, args.top)]
            scores[best] = rerank(question, [lines[i] for i in best])
            best = best[np.argsort(-scores[best], kind="stable")]
        best = best[: args.top]
        if args.json:
            name = "similarity" if rerank is None else "score"
            found = [{"line": lines[i], name: round(float(scores[i]), 6)} for i in best]
            print_json(question=question, lines=found)
        else:
            print(f"\n{escaped(question)}")
            for i in best:
                print(f"  {scores[i]:.2f}  {escaped(lines[i])}")
        results.append([lines[i] for i in best])
    return results


def encode_lines(
    encoder: nn.SentenceEncoder, lines: list[str], args: argparse.Namespace
) -> np.ndarray:
    """Return the vectors (n, d) of lines, from the index if it has those of the same encoder."""
    index = args.index
    key = {"lines": zlib.crc32("\n".join(lines).encode()), "int8": args.int8}
    if index is not None:
        key["encoder"] = checksum(find_model(args.model), index)
    if index is not None and index.exists():
        arrays, metadata = load_arrays(index)
        if "lines" not in metadata or set(arrays) != {"vectors"}:
            raise ValueError(f"{index}: not an index of minigrad search; choose another file")
        if metadata == key and len(arrays["vectors"]) == len(lines):
            note(f"{len(lines):,} lines in {index}")
            return arrays["vectors"]
        note(f"{index}: made with another encoder or other lines; encoding them again")
    began = time.perf_counter()
    parts = []
    with ProgressLine(len(lines), unit="line") as progress:
        for start in range(0, len(lines), LINES_AT_ONCE):
            parts.append(encoder.encode(lines[start : start + LINES_AT_ONCE]))
            progress.update(min(start + LINES_AT_ONCE, len(lines)))
    vectors = np.concatenate(parts)
    note(f"{len(lines):,} lines in {time.perf_counter() - began:.1f} s")
    if index is not None:
        try:
            save_arrays(index, {"vectors": vectors}, key)
        except OSError as error:  # the vectors are there to search, and took long
            note(f"warning: {index} is not kept: {error.strerror}")
    return vectors


def checksum(directory: Path, index: Path) -> int:
    """Return the CRC-32 of the names and contents of the files of an encoder."""
    checksum = 0
    for path in sorted(directory.rglob("*")):
        if path.suffix in ENCODER_FILES and path.is_file() and path.resolve() != index.resolve():
            name = path.relative_to(directory).as_posix().encode()
            checksum = zlib.crc32(name, checksum)
            if path.stat().st_size:
                checksum = zlib.crc32(np.memmap(path, np.uint8, "r").data, checksum)
    return checksum
