"""Continue a text, or chat, with a published language model (GPT-2, SmolLM2, Qwen ...).

    minigrad generate DIR "Once upon a time"               prints each token at once
    minigrad generate DIR --chat "Why is the sky blue?"
    minigrad generate DIR --chat                           a conversation at a prompt
    minigrad generate model.gguf "Once upon a time" --int8

DIR contains config.json, model.safetensors and the files of the tokenizer, or is a GGUF file, which
needs gguf. An answer of --chat ends where the model ends it, or at the end of its context. Ctrl-C
at a prompt of --chat ends it, too. Needs tokenizers, and jinja2 for --chat: pip install
"minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import minigrad as mg
import nn
from minigrad.check.extras import require
from nn.commands.console import amount, escaped, note, seed

from ..decoding.text_generation import until_stop
from .inputs import (
    add_json,
    add_model_options,
    add_number,
    command_parser,
    load_model,
    load_text,
    print_json,
    read_texts,
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("generate", __doc__, "directory of the model")
    parser.usage = "%(prog)s DIR [text ...] [options]"
    parser.add_argument(
        "text", nargs="*", help="texts to continue (default: lines of standard input, or a prompt)"
    )
    parser.add_argument("--chat", action="store_true", help="use the model's chat template")
    parser.add_argument("--system", metavar="TEXT", help="instructions before a --chat")
    add_number(parser, "--top", 1, "texts to print for each prompt, the likeliest of a beam search")
    add_json(parser)
    add_model_options(parser)
    add_number(parser, "--seed", 0, "seed of the random numbers", seed)
    parser.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="end at this text, which is not printed; may be given several times",
    )
    where = "Defaults are the settings of the model's directory."
    add = partial(add_number, parser.add_argument_group("sampling", where))
    length = "number of new tokens (or 20, if there is no such setting; to the end with --chat)"
    add("--max-len", None, length)
    add(
        "--temperature",
        None,
        "divide the logits by T before drawing; 0 takes the likeliest token",
        amount,
        "T",
    )
    add("--top-k", None, "draw from the K likeliest tokens", metavar="K")
    add("--top-p", None, "draw from the likeliest tokens, of this total probability", float, "P")
    add("--min-p", None, "draw from tokens at least P times as likely as the likeliest", float, "P")
    add("--repetition-penalty", None, "above 1: repeat fewer tokens", float, "X")
    args = parser.parse_intermixed_args(argv)
    if "" in (args.stop or ()):
        parser.error("--stop must not be empty")
    if args.system is not None and not args.chat:
        parser.error("--system needs --chat")
    if args.top > 1 and (args.temperature is not None or drawing_options(args)):
        parser.error("--top above 1 takes the likeliest texts: leave out what draws tokens")
    if args.temperature == 0 and (options := drawing_options(args)):
        parser.error(f"--{options[0].replace('_', '-')} needs a --temperature above 0")
    return args


def drawing_options(args: argparse.Namespace) -> list[str]:
    """Return the names of the options that limit the tokens from which one is drawn."""
    return [name for name in ("top_k", "top_p", "min_p") if getattr(args, name) is not None]


def main(argv: Sequence[str] | None = None) -> list[str]:
    """Print what the model generates after each text, and return it."""
    args = parse(argv)
    if args.chat:
        require("jinja2", "minigrad generate --chat")
    text = load_text(args.model)
    model = load_model(args)
    if not isinstance(model, nn.LanguageModel):
        fix = "minigrad translate" if isinstance(model, nn.Transformer) else "minigrad search"
        raise ValueError(
            f"{args.model} must be a language model, got {type(model).__name__}; use {fix}"
        )
    mg.manual_seed(args.seed)
    names = ("max_len", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop")
    options = {name: value for name in names if (value := getattr(args, name)) is not None}
    is_talk = args.chat and not args.text and sys.stdin.isatty()
    messages: list[dict[str, str]] = []
    if args.system is not None:
        messages.append({"role": "system", "content": args.system})
    ends = set(model.config.end_ids)
    replies = []
    for prompt in read_texts(args.text):
        messages.append({"role": "user", "content": prompt})
        start = messages if args.chat else prompt
        tokens: list[int] = []
        best = [""]
        if args.chat and args.max_len is None:
            options["max_len"] = room_of(model, text, messages)
        try:
            if args.top > 1:
                best = best_texts(model, text, start, args.top, **options)
            else:
                for piece in nn.stream_text(model, text, start, tokens=tokens, **options):
                    if not args.json:
                        print(escaped(piece, "\n\t"), end="", flush=True)
                    best[0] += piece
        except KeyboardInterrupt:
            if not is_talk:
                raise
        if args.json:
            several = {"continuations": best} if args.top > 1 else {}
            print_json(text=prompt, continuation=best[0], **several)
        elif args.top > 1:
            print(*(escaped(reply, "\n\t") for reply in best), sep="\n", flush=True)
        else:
            print()
        if tokens and len(tokens) == options.get("max_len") and tokens[-1] not in ends:
            limit = "--max-len" if args.max_len else "the context of the model"
            note(f"(cut after {len(tokens):,} tokens by {limit})")
        replies.append(best[0])
        messages.append({"role": "assistant", "content": best[0]})
    return replies


def best_texts(
    model: nn.LanguageModel,
    text: Any,
    start: Any,
    top: int,
    stop: Sequence[str] = (),
    **options: Any,
) -> list[str]:
    """Return the likeliest texts after a prompt or chat, by a beam search."""
    options |= {"num_beams": top, "n_best": top, "do_sample": False}
    found = nn.generate_text(model, text, start, **options)
    return ["".join(until_stop([reply], stop)) for reply in found]


def room_of(model: nn.LanguageModel, text: Any, messages: Sequence[dict[str, str]]) -> int:
    """Return the number of tokens that fit into the context of a model after a chat."""
    length = len(text.encode(text.chat(messages), special=False))
    if (room := model.config.max_len - length) < 1:
        raise ValueError(
            f"the chat must have fewer tokens than the context of the model "
            f"({model.config.max_len:,}), got {length:,}; begin a new one"
        )
    return room
