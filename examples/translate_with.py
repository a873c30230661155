"""Translate with a published model in a folder (OPUS-MT, NLLB, mBART, M2M ...).

python examples/translate_with.py DIR "The house is small."
python examples/translate_with.py DIR --from eng_Latn --to fra_Latn "The house is small."     for many languages
python examples/translate_with.py DIR < text.txt                                              a sentence a line
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import nn
from minigrad.console import count, piped, run_script


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", type=Path, metavar="DIR", help="config.json, model.safetensors, tokenizer.json ..."
    )
    parser.add_argument("text", nargs="*", help="sentences (default: the lines of standard input)")
    parser.add_argument(
        "--from",
        dest="language",
        metavar="CODE",
        help="the language of the text, as the model names it",
    )
    parser.add_argument("--to", metavar="CODE", help="the language to translate to")
    parser.add_argument(
        "--beams",
        type=count,
        metavar="N",
        help="size of the beam (default: what the model's directory sets, or 1)",
    )
    parser.add_argument(
        "--max-len",
        type=count,
        metavar="N",
        help="tokens at most (default: what the model's directory sets, or 20)",
    )
    return parser.parse_intermixed_args(argv)  # texts can follow options


def main(argv: Sequence[str] | None = None) -> list[str]:
    """The translations."""
    args = parse(argv)
    model, text = nn.for_inference(nn.load(args.model)), nn.text.load(args.model)
    if not hasattr(model.config, "source_vocab_size"):
        raise ValueError(f"{args.model}: not a model that translates: {type(model).__name__}")
    sentences = args.text or [line for line in piped() if line]
    given = {"language": args.language, "to": args.to, "num_beams": args.beams}
    given["max_len"] = args.max_len
    options = {name: value for name, value in given.items() if value is not None}
    results = []
    for start in range(0, len(sentences), 16):
        part = sentences[start : start + 16]
        results += nn.generate_text(model, text, part, **options)
        print("\n".join(results[start:]), flush=True)
    return results


if __name__ == "__main__":
    sys.exit(run_script(main))
