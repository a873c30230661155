"""Train a published encoder (BERT, MiniLM ...) to classify, or a language model to answer.

    minigrad fine-tune DIR pairs.tsv --out mine                    trains all weights, or adapters
    minigrad fine-tune DIR pairs.tsv --out mine --train head       trains the new head only
    minigrad fine-tune DIR pairs.tsv --out mine --save-adapter adapter
    minigrad fine-tune DIR pairs.tsv --out mine --resume           continues an interrupted run

DIR contains config.json, model.safetensors and the files of the tokenizer. Each line of pairs.tsv
is a text, a tab, and its label, or a prompt and its answer for a language model with a chat
template. In a .csv or .jsonl file these are its two columns, or those of --columns. A line of a
.jsonl file may have a chat: "messages", each with a "role" and "content". The loss is that of the
answers alone. A tenth of the texts chooses the weights, and another tenth tests them.
transformers loads the result, and PEFT the adapter. Needs tokenizers, and jinja2 for chats: pip
install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.io import read_json, write_json
from minigrad.io.reading import printable
from minigrad.optim import AdamW, linear_schedule
from nn.commands.console import amount, note, seed
from nn.generation import with_maximum
from nn.published.load import FAMILIES

from ..text.hub import find_model
from ..text.labels import label_report, label_warnings, split_by_label
from ..text.pairs import Pair
from .answers import AnswerTask
from .inputs import (
    add_number,
    add_table_options,
    command_parser,
    held_out_sizes,
    load_text,
    naming_settings,
    read_labelled,
    resumed_options,
)

SETTINGS = "settings.json"
"""File of the settings in the directory of a run."""
CALL_OPTIONS = {"model", "data", "out", "resume"}
"""Options that are not settings of a run."""
MAY_CHANGE = {"epochs", "patience"}
"""Settings that may change when a run is resumed, such as one that ended early."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("fine-tune", __doc__, "directory of the model")
    parser.usage = "%(prog)s DIR FILE --out DIR [options]"
    add, number = parser.add_argument, partial(add_number, parser)
    add("data", type=Path, metavar="FILE", help="UTF-8: a text, a tab, and its label or answer")
    add_table_options(parser, "the text and its label or answer")
    add("--valid", type=Path, metavar="FILE", help="texts that choose the weights")
    add("--test", type=Path, metavar="FILE", help="texts that test the result")
    add("--out", type=Path, required=True, metavar="DIR", help="directory of the new model")
    train = "weights to train (default: lora for a language model or --save-adapter, or else all)"
    add("--train", choices=["all", "lora", "head"], help=train)
    adapter = "also save the adapter of --train lora, as PEFT reads it"
    add("--save-adapter", type=Path, metavar="DIR", help=adapter)
    number("--epochs", 3, "passes over the training texts")
    number("--lr", None, "learning rate (default: 5e-5; 1e-3 for head and lora)", amount, "X")
    number("--batch-size", 16, "texts in a batch")
    number("--max-len", None, "cut texts at N tokens (default: as many as the model can read)")
    stop = "end after N validations without a better one, two an epoch; 0: never"
    number("--patience", 4, stop, seed)
    number("--seed", 0, "seed of the random numbers", seed)
    add("--resume", action="store_true", help="continue the run in --out, with its settings")
    args = parser.parse_args(argv)
    if args.resume:
        file, names = args.out / "run" / SETTINGS, settings_of(args).keys()
        args = resumed_options(parser, argv, args, file, "", names, MAY_CHANGE)
    if args.save_adapter and args.train not in (None, "lora"):
        parser.error("--save-adapter needs --train lora")
    if args.save_adapter == args.out:
        parser.error("--save-adapter must be another directory than --out")
    return args


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a run as plain data."""
    values = {name: value for name, value in vars(args).items() if name not in CALL_OPTIONS}
    return {name: str(x) if isinstance(x, Path) else x for name, x in values.items()}


def main(argv: Sequence[str] | None = None) -> float:
    """Train, save the model, print its scores, and return its accuracy or loss."""
    args = parse(argv)
    with naming_settings(args.out / "run" / SETTINGS, args.resume):
        return fine_tune(args)


def fine_tune(args: argparse.Namespace) -> float:
    """Train, save the model, and return its accuracy or its loss, as the options say."""
    check_directories(args)
    mg.manual_seed(args.seed)
    name = read_json(find_model(args.model) / "config.json").text("model_type", "")
    models = FAMILIES[name].models if name in FAMILIES else {"classes": None}  # loading refuses it
    is_language_model = nn.LanguageModel in models.values()
    if not is_language_model and "classes" not in models:
        raise ValueError(
            f"{args.model} must be an encoder, such as BERT, to classify text, or a language model "
            f"to answer, got {name!r}"
        )
    args.train = args.train or ("lora" if is_language_model or args.save_adapter else "all")
    task = AnswerTask(args) if is_language_model else LabelTask(args)
    valid = nn.Batches(task.valid, batch_size=64, shuffle=False, collate=task.collate)
    batches = nn.Batches(
        task.train, batch_size=args.batch_size, seed=args.seed, collate=task.collate
    )
    steps = args.epochs * len(batches)
    warmup = min(steps - 1, max(1, steps // 10))
    rate = args.lr if args.lr is not None else 5e-5 if args.train == "all" else 1e-3
    trained = [p for p in task.model.parameters() if p.requires_grad]
    run = nn.RunDirectory(args.out / "run", labels=task.labels)
    trainer = nn.Trainer(
        task.model,
        AdamW(trained, lr=rate, clip_norm=1.0),
        batches,
        valid=valid,
        schedule=linear_schedule(steps, warmup),
        max_epochs=args.epochs,
        validate_every=max(1, len(batches) // 2),
        patience=args.patience or None,
        patience_from=warmup,
        score=task.score,
        run_dir=run,
    )
    with run:  # keeps other runs out until this one has ended
        if trainer.parallel.rank == 0:  # of the processes of mpiexec, the first writes
            write_json(run.path / SETTINGS, settings_of(args))
        try:
            trainer.fit(resume=args.resume)
        except KeyboardInterrupt:
            text = f"stopped at step {trainer.step}; continue with the same arguments and --resume"
            raise KeyboardInterrupt(text) from None
        if trainer.step < steps:
            note(
                f"ended at step {trainer.step:,} of {steps:,}: {args.patience} validations were "
                "not better than the best; --resume --patience 0 trains to the end"
            )
        if trainer.parallel.rank == 0:
            nn.load_weights(run.best, task.model)
            result = task.report()
            if args.save_adapter:
                nn.save_adapter(args.save_adapter, task.model, base=args.model)
            nn.save(args.out, nn.merge_lora(task.model), task.text)
            print(f"{len(task.held_out):,} {task.kind} texts; saved in {args.out}")
            return result
    return trainer.best or 0.0


class LabelTask:
    """Labelled texts of a file, and an encoder that learns to classify them."""

    def __init__(self, args: argparse.Namespace) -> None:
        pairs = read(args.data, args)
        self.labels = sorted({label for _, label in pairs})
        if len(self.labels) < 2:
            raise ValueError(
                f"{args.data} must have texts of at least 2 labels, got {len(self.labels)}: "
                f"{printable(self.labels[0], 40)!r}"
            )
        if len(self.labels) > max(20, len(pairs) // 2):
            raise ValueError(
                f"{args.data} must have several texts of each label, got {len(pairs):,} texts of "
                f"{len(self.labels):,} labels; choose the columns with --columns TEXT,LABEL"
            )
        sizes = held_out_sizes(args, len(pairs))
        test, valid, self.train = split_by_label(pairs, *sizes, seed=args.seed)
        test = read(args.test, args, self.labels) if args.test else test
        self.valid = read(args.valid, args, self.labels) if args.valid else valid
        self.kind, self.held_out = ("test", test) if test else ("held-out", self.valid)
        self.text = load_text(args.model)
        model: Any = nn.load(args.model, head="classes", num_classes=len(self.labels))
        self.model = model
        if args.train == "lora":
            nn.lora(self.model)
        elif args.train == "head":
            self.model.requires_grad_(False)
            for part in filter(None, (self.model.output, self.model.dense, self.model.norm)):
                part.requires_grad_(True)
        limit = min(self.text.max_len or self.model.config.max_len, self.model.config.max_len)
        self.max_len = min(args.max_len or limit, limit)
        print_facts(pairs, self.text, self.max_len)
        self.model.origin.settings |= {
            "id2label": {str(i): label for i, label in enumerate(self.labels)},
            "label2id": {label: i for i, label in enumerate(self.labels)},
        }
        if args.max_len:
            self.model.origin.settings["model_max_length"] = self.max_len

    def collate(self, samples: list[Pair]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return token ids, classes and mask of labelled texts."""
        ids, mask, _ = self.text.batch([sample for sample, _ in samples], max_len=self.max_len)
        return ids, np.array([self.labels.index(label) for _, label in samples]), mask

    def _logits(self, pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits of texts, and their classes."""
        batches = nn.Batches(pairs, batch_size=64, shuffle=False, collate=self.collate)
        with mg.no_grad():
            parts = [(self.model(ids, mask).data, right) for ids, right, mask in batches.epoch()]
        logits, classes = map(np.concatenate, zip(*parts))
        return with_maximum(logits), classes

    def score(self, model: Any) -> float:
        """Return the accuracy; the loss, as a very small number, decides between equal ones."""
        logits, classes = self._logits(self.valid)
        loss = float(mg.cross_entropy(logits, classes).data)
        return float((logits.argmax(-1) == classes).mean()) - 1e-9 * loss

    def report(self) -> float:
        """Print a table of scores, and return the accuracy."""
        logits, classes = self._logits(self.held_out)
        chosen = logits.argmax(-1)
        expected, found = ([self.labels[i] for i in row] for row in (classes, chosen))
        print(label_report(expected, found, self.labels))
        return float((chosen == classes).mean())


def read(path: Path, args: argparse.Namespace, labels: Sequence[str] = ()) -> list[Pair]:
    """Return the labelled texts of a file, and print what is left out, or may be wrong."""
    pairs = read_labelled(path, args)
    for warning in label_warnings(pairs) if not labels else ():
        note(f"{path}: {warning}")
    if labels and (others := {label for _, label in pairs}.difference(labels)):
        raise ValueError(
            f"{path} must have labels of the training texts, got {printable(min(others), 40)!r}"
        )
    return pairs


def print_facts(pairs: Sequence[Pair], text: Any, max_len: int) -> None:
    """Print the numbers of texts, labels, tokens, cut texts and unknown tokens."""
    counts = Counter(label for _, label in pairs).most_common()
    shown = ", ".join(f"{printable(label, 40)} {n:,}" for label, n in counts[:10])
    more = f" and {len(counts) - 10:,} more" if len(counts) > 10 else ""
    note(f"{len(pairs):,} texts, {len(counts):,} labels: {shown}{more}")
    example, label = (printable(part) for part in pairs[0])
    note(f"for example: {example}  →  {label}")
    rows = text.encode([sample for sample, _ in pairs])
    lengths = np.array([len(row) for row in rows])
    cut = int((lengths > max_len).sum())
    note(
        f"{int(np.median(lengths))} tokens in the middle, {lengths.max():,} at most; texts that "
        f"are cut at {max_len:,} tokens: {cut:,}"
    )
    unknown = text.id(text.settings.text("unk_token", None))
    if share := np.mean([i == unknown for row in rows for i in row]):
        note(f"{share:.1%} of the tokens are unknown to the model")


def check_directories(args: argparse.Namespace) -> None:
    """Raise an error if the model or the adapter would be written beside another one."""
    for option, directory in (("--out", args.out), ("--save-adapter", args.save_adapter)):
        if directory is None:
            continue
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"{option} must be a directory, got the file {directory}")
        is_continued = args.resume and (args.out / "run" / "last.safetensors").exists()
        if (directory / "config.json").exists() and not is_continued:
            raise ValueError(f"{option} must be a directory without a model, got {directory}")
    if (args.out / "run" / "last.safetensors").exists() and not args.resume:
        raise ValueError(
            f"--out must be a directory without a run, got {args.out}; pass --resume to continue "
            "the run, or choose another directory"
        )
