"""Classify texts with a classifier that minigrad fine-tune or transformers wrote.

    minigrad classify DIR "is it late?" "it is late"    texts as arguments
    minigrad classify DIR < texts.txt                   one on each line
    minigrad classify DIR                               at a prompt

Each line of the output is a label, its probability and the text, with tabs in between.
DIR contains config.json, model.safetensors and the files of the tokenizer. Needs tokenizers:
pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import nn

from .inputs import add_model_options, add_number, command_parser, read_batches, refuse_run

__all__ = ["main"]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("classify", __doc__, "directory of the classifier")
    parser.add_argument(
        "text", nargs="*", help="texts (default: lines of standard input, or a prompt)"
    )
    add_number(parser, "--batch", 32, "texts that are computed at once")
    add_model_options(parser)
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Print a line for each text, and return the labels.

    Parameters
    ----------
    argv : list of str, optional
        Arguments of the command; those of the process by default.

    Returns
    -------
    list of str
        Label of each text.
    """
    args = parse(argv)
    refuse_run(args.model)
    weights = "int8" if args.int8 else "float"
    classify = nn.classifier(args.model, adapter=args.adapter, weights=weights)
    found = []
    for texts in read_batches(args.text):
        texts = [text for text in texts if text]
        labels, probabilities = classify(texts, args.batch)
        for text, label, row in zip(texts, labels, probabilities):
            print(f"{label}\t{row.max():.3f}\t{text}", flush=True)
        found += labels
    return found
