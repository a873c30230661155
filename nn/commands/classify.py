"""Classify texts with a classifier that minigrad fine-tune or transformers wrote.

    minigrad classify DIR "is it late?" "it is late"    texts as arguments
    minigrad classify DIR < texts.txt                   one on each line
    minigrad classify DIR                               at a prompt
    minigrad classify DIR --labels test.tsv             scores on texts with labels

Each line of the output is a label, its probability and the text, with tabs in between, or empty
if the text is. With --top, several labels and probabilities stand before the text. With --labels
it is a table of precision, recall, F1 and count of each label.
DIR contains config.json, model.safetensors and the files of the tokenizer. Needs tokenizers:
pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nn
from minigrad.io.reading import printable

from ..text.labels import label_report
from .console import escaped, note
from .inputs import (
    add_json,
    add_model_options,
    add_number,
    add_table_options,
    command_parser,
    print_json,
    read_batches,
    read_labelled,
    refuse_run,
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("classify", __doc__, "directory of the classifier")
    parser.add_argument(
        "text", nargs="*", help="texts (default: lines of standard input, or a prompt)"
    )
    labelled = "score these texts: a text, a tab, and its label on each line; or .csv, .jsonl"
    parser.add_argument("--labels", type=Path, metavar="FILE", help=labelled)
    add_table_options(parser, "--labels")
    add_number(parser, "--batch", 32, "texts that are computed at once")
    add_number(parser, "--top", 1, "labels to print, the most probable first")
    add_json(parser)
    add_model_options(parser)
    args = parser.parse_intermixed_args(argv)
    if args.labels and (args.text or args.json or args.top > 1):
        parser.error("--labels prints a table of scores: leave out texts, --top and --json")
    if not args.labels and (args.columns or args.skip_bad):
        parser.error("--columns and --skip-bad need --labels")
    return args


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Print a line for each text, and return the labels."""
    args = parse(argv)
    refuse_run(args.model)
    weights = "int8" if args.int8 else "float"
    classify = nn.classifier(args.model, adapter=args.adapter, weights=weights)
    if args.labels is not None:
        return score(classify, args)
    found: list[str] = []
    for texts in read_batches(args.text):
        labels, probabilities = classify([text for text in texts if text], args.batch)
        rows = iter(probabilities)
        for text in texts:  # an empty line has no label, but a line
            row = next(rows) if text else np.array([])
            best = np.argsort(-row, kind="stable")[: args.top]
            ranked = [(classify.labels[i], row[i]) for i in best]
            if args.json:
                scores = [{"label": name, "probability": round(p, 6)} for name, p in ranked]
                print_json(text=text, labels=scores)
                continue
            columns = [f"{printable(label, 200)}\t{p:.3f}" for label, p in ranked]
            print("\t".join([*columns, escaped(text)]), flush=True)
        found += labels
    return found


def score(classify: Any, args: argparse.Namespace) -> list[str]:
    """Print a table of scores for the texts of a file, and return their chosen labels."""
    pairs = read_labelled(args.labels, args, keep_repeated=True)
    found, _ = classify([text for text, _ in pairs], args.batch)
    expected = [label for _, label in pairs]
    others = sorted(set(expected).difference(classify.labels))
    if others:
        shown = ", ".join(repr(printable(label, 40)) for label in others[:5])
        note(f"{args.labels}: labels that the model does not have: {shown}")
    print(label_report(expected, found, [*classify.labels, *others]))
    return list(found)
