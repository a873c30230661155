"""Continue a text, or chat, with a published language model (GPT-2, SmolLM2, Qwen ...).

    minigrad generate DIR "Once upon a time"               prints each token at once
    minigrad generate DIR --chat "Why is the sky blue?"
    minigrad generate DIR --chat                           a conversation at a prompt

DIR contains config.json, model.safetensors and the files of the tokenizer. Needs tokenizers, and
jinja2 for --chat: pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import minigrad as mg
import nn
from minigrad.console import amount, count, seed
from minigrad.extras import require

from .inputs import command_parser, load_text, read_texts

__all__ = ["main"]


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("generate", __doc__)
    parser.add_argument("model", type=Path, metavar="DIR", help="directory of the model")
    parser.add_argument(
        "text", nargs="*", help="texts to continue (default: lines of standard input, or a prompt)"
    )
    parser.add_argument("--chat", action="store_true", help="use the model's chat template")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="end at this text, which is not printed; may be given several times",
    )
    add = parser.add_argument_group(
        "sampling", "Defaults are the settings of the model's directory."
    ).add_argument
    add("--max-len", type=count, metavar="N", help="number of new tokens (or 20)")
    add("--temperature", type=amount, metavar="T", help="0: always the likeliest token")
    add("--top-k", type=count, metavar="K", help="draw from the K likeliest tokens")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest tokens of this share")
    add("--min-p", type=float, metavar="P", help="draw from tokens P times as likely as the first")
    add("--repetition-penalty", type=float, metavar="X", help="above 1: repeat fewer tokens")
    return parser.parse_intermixed_args(argv)


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Print what the model generates after each text, and return it.

    Parameters
    ----------
    argv : list of str, optional
        Arguments of the command; those of the process by default.

    Returns
    -------
    list of str
        Generated text for each prompt.
    """
    args = parse(argv)
    if args.chat:
        require("jinja2", "minigrad generate --chat")
    text = load_text(args.model)
    model = nn.for_inference(nn.load(args.model))
    mg.manual_seed(args.seed)
    names = ("max_len", "top_k", "top_p", "min_p", "repetition_penalty", "stop")
    options = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.temperature is not None:
        options["do_sample"] = args.temperature > 0
        options |= {"temperature": args.temperature} if args.temperature else {}
    messages: list[dict[str, str]] = []
    replies = []
    for prompt in read_texts(args.text):
        messages.append({"role": "user", "content": prompt})
        pieces = []
        for piece in nn.stream_text(model, text, messages if args.chat else prompt, **options):
            print(piece, end="", flush=True)
            pieces.append(piece)
        print()
        replies.append("".join(pieces))
        messages.append({"role": "assistant", "content": replies[-1]})
    return replies
