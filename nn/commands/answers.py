"""Training of a language model on prompts and answers, for `minigrad fine-tune`."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.io.reading import printable
from nn.commands.console import note
from nn.module import evaluating

from ..text.batches import padded
from ..text.chats import Chat, encode_chat, read_chats
from ..text.pairs import split_pairs
from .inputs import held_out_sizes, load_text, read_table

Example = tuple[list[int], list[bool]]
SIZE = 8
"""Number of examples in a batch without gradients."""
SAMPLES = 3
"""Number of held-out prompts whose answers are printed."""


class AnswerTask:
    """Examples of a file, and a language model that learns to write their answers."""

    labels: tuple[str, ...] = ()
    score = None  # by which weights are chosen: the loss

    def __init__(self, args: argparse.Namespace) -> None:
        if args.train == "head":
            raise ValueError("--train must be lora or all for a language model, got head")
        chats = read_table(args.data, args, read_chats)
        keyed: list[Any] = [(repr(chat[:-1]), chat) for chat in chats]
        parts: list[Any] = split_pairs(keyed, *held_out_sizes(args, len(chats)), seed=args.seed)
        test, valid, train = ([chat for _, chat in part] for part in parts)
        test = read_table(args.test, args, read_chats) if args.test else test
        valid = read_table(args.valid, args, read_chats) if args.valid else valid
        self.text = load_text(args.model)
        self.model: Any = nn.load(args.model)
        limit = self.model.config.max_len
        self.max_len = min(args.max_len or limit, limit)
        self.train, self.valid = self._examples(train), self._examples(valid)
        self.held_out = self._examples(test) if test else self.valid
        self.samples = (test or valid)[:SAMPLES]
        self.kind = "test" if test else "held-out"
        if args.train == "lora":
            nn.lora(self.model)
        self._print_facts(chats)
        self.before = self._loss()

    def _examples(self, chats: list[Chat]) -> list[Example]:
        """Return ids and targets of chats, without those whose answer begins after the limit."""
        examples = [encode_chat(self.text, chat) for chat in chats]
        cut = [(ids[: self.max_len], mask[: self.max_len]) for ids, mask in examples]
        kept = [example for example in cut if any(example[1][1:])]
        if not kept:
            raise ValueError(
                f"texts must have an answer before token {self.max_len:,}, got none; pass a larger "
                "--max-len"
            )
        if len(kept) < len(cut):
            n = len(cut) - len(kept)
            note(f"left out {n:,}, whose answers begin after {self.max_len:,} tokens")
        return kept

    def _print_facts(self, chats: list[Chat]) -> None:
        """Print the numbers of texts and tokens, and an example."""
        lengths = np.array([len(ids) for ids, _ in self.train])
        counted = sum(sum(mask) for _, mask in self.train)
        prompt, answer = (printable(message["content"]) for message in chats[0][-2:])
        note(f"{len(chats):,} chats; for example: {prompt}  →  {answer}")
        note(
            f"{int(np.median(lengths))} tokens in the middle, {lengths.max():,} at most; "
            f"{counted:,} of {lengths.sum():,} tokens are of answers"
        )

    def collate(self, examples: list[Example]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of `LanguageModel.loss`."""
        rows, targets = zip(*examples)
        mask = padded([[True] * len(row) for row in rows], 0) > 0
        return padded(rows, self.text.pad_id or 0), mask, padded(targets, 0) > 0

    def _loss(self) -> float:
        """Return the loss of a token of the answers that are held out."""
        batches = [
            self.collate(self.held_out[i : i + SIZE]) for i in range(0, len(self.held_out), SIZE)
        ]
        with mg.no_grad(), evaluating():
            total = sum(self.model.loss(*batch, reduction="sum").item() for batch in batches)
        return total / sum(self.model.num_targets(*batch) for batch in batches)

    def report(self) -> float:
        """Print the loss before and after, and answers to some prompts, and return the loss."""
        after, count = self._loss(), len(self.held_out)
        print(
            f"loss of a token in {count:,} {self.kind} answers: {self.before:.3f} before, "
            f"{after:.3f} after"
        )
        longest = max(sum(mask) for _, mask in self.train)
        for *chat, answer in self.samples:
            room = self.max_len - len(self.text.encode(self.text.chat(chat), special=False))
            options = {"max_len": min(longest, room), "do_sample": False}
            found = nn.generate_text(self.model, self.text, chat, **options) if room > 0 else ""
            lines = (
                chat[-1]["content"],
                f"  wrote:    {found}",
                f"  expected: {answer['content']}",
            )
            print(*(printable(line, 1000) for line in lines), sep="\n")
        return after
