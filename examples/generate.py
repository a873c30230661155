"""Go on from a prompt, or chat, with a language model in a folder (GPT-2, SmolLM2, Qwen ...).

python examples/generate.py DIR "Once upon a time"        writes on, word by word
python examples/generate.py DIR --chat "Why is the sky blue?"
python examples/generate.py DIR --chat                    a conversation
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prompt import asked

import minigrad as mg
import nn
from minigrad.console import amount, count, run_script, seed


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", type=Path, metavar="DIR", help="config.json, model.safetensors, tokenizer.json ..."
    )
    parser.add_argument("prompt", nargs="*", help="texts to go on from (default: ask)")
    parser.add_argument(
        "--chat", action="store_true", help="the model's own form of a conversation"
    )
    directory = "(default: what the model's directory sets"
    parser.add_argument(
        "--max-len", type=count, metavar="N", help=f"new tokens {directory}, or 20)"
    )
    parser.add_argument(
        "--temperature",
        type=amount,
        metavar="T",
        help=f"of the tokens that are drawn; 0: the likeliest {directory})",
    )
    parser.add_argument(
        "--top-p",
        type=float,
        metavar="P",
        help=f"share of the likeliest tokens to draw from {directory})",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="(default: %(default)s)")
    return parser.parse_intermixed_args(argv)  # texts can follow options


def main(argv: Sequence[str] | None = None) -> list[str]:
    """What the model wrote after each prompt."""
    args = parse(argv)
    mg.manual_seed(args.seed)
    model, text = nn.for_inference(nn.load(args.model)), nn.text.load(args.model)
    given = {"max_len": args.max_len, "top_p": args.top_p, "temperature": args.temperature or None}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if args.temperature is not None:
        options["do_sample"] = args.temperature > 0
    messages: list[dict[str, str]] = []
    written = []
    for prompt in args.prompt or asked("> "):
        messages.append({"role": "user", "content": prompt})
        pieces = []
        for piece in nn.stream_text(model, text, messages if args.chat else prompt, **options):
            print(piece, end="", flush=True)
            pieces.append(piece)
        print()
        written.append("".join(pieces))
        messages.append({"role": "assistant", "content": written[-1]})
    return written


if __name__ == "__main__":
    sys.exit(run_script(main))
