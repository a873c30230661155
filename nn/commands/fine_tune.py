"""Train a published encoder (BERT, MiniLM, XLM-R ...) to classify text.

    minigrad fine-tune DIR pairs.tsv --out mine                    trains all weights
    minigrad fine-tune DIR pairs.tsv --out mine --train head       trains the new head only
    minigrad fine-tune DIR pairs.tsv --out mine --train lora --save-adapter adapter
    minigrad fine-tune DIR pairs.tsv --out mine --resume           continues an interrupted run

DIR contains config.json, model.safetensors and the files of the tokenizer. Each line of pairs.tsv
is a text, a tab, and its label. transformers loads the result, and PEFT the adapter. Needs
tokenizers: pip install "minigrad-nn[models]".
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.io import read_json, write_json
from minigrad.io.console import amount, seed
from minigrad.optim import AdamW, linear_schedule
from nn.generation import with_maximum
from nn.published.load import FAMILIES

from ..text.pairs import read_pairs
from .inputs import add_number, command_parser, load_text

__all__ = ["main"]

SETTINGS = "settings.json"
"""File of the settings in the directory of a run."""
CALL_OPTIONS = {"model", "data", "out", "resume"}
"""Options that are not settings of a run."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("fine-tune", __doc__, "directory of the encoder")
    parser.usage = "%(prog)s DIR FILE --out DIR [options]"
    add, number = parser.add_argument, partial(add_number, parser)
    add("data", type=Path, metavar="FILE", help="UTF-8: a text, a tab, and its label on each line")
    add("--skip-bad", action="store_true", help="leave out lines of one column or not in UTF-8")
    add("--out", type=Path, required=True, metavar="DIR", help="directory of the new model")
    add("--train", choices=["all", "lora", "head"], default="all", help="weights to train")
    adapter = "also save the adapter of --train lora, as PEFT reads it"
    add("--save-adapter", type=Path, metavar="DIR", help=adapter)
    number("--epochs", 3, "passes over the training texts")
    number("--lr", None, "learning rate (default: 5e-5; 1e-3 for head and lora)", amount, "X")
    number("--batch-size", 16, "texts in a batch")
    number("--max-len", 64, "the most tokens of a text, at most the positions of the model")
    number("--seed", 0, "seed of the random numbers", seed)
    add("--resume", action="store_true", help="continue the run in --out, with its settings")
    args = parser.parse_args(argv)
    if args.resume:
        args = with_settings_of_run(args, parser, argv)
    if args.save_adapter and args.train != "lora":
        parser.error("--save-adapter needs --train lora")
    if args.save_adapter == args.out:
        parser.error("--save-adapter must be another directory than --out")
    return args


def with_settings_of_run(
    args: argparse.Namespace, parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options with the settings of the run in `args.out` as defaults."""
    path = args.out / "run" / SETTINGS
    if not path.exists():
        print(f"nothing in {args.out} to continue: beginning", file=sys.stderr)
        return args
    saved = dict(read_json(path))
    parser.set_defaults(**saved)
    args = parser.parse_args(argv)
    for name, value in settings_of(args).items():
        if value != saved.get(name):
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} must be {saved.get(name)}, as the run began; leave it out")
    return args


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a run as plain data."""
    values = {name: value for name, value in vars(args).items() if name not in CALL_OPTIONS}
    return {name: str(x) if isinstance(x, Path) else x for name, x in values.items()}


def main(argv: Sequence[str] | None = None) -> float:
    """Train, save the model, and return its accuracy on held-out texts.

    Parameters
    ----------
    argv : list of str, optional
        Arguments of the command; those of the process by default.

    Returns
    -------
    float
        Accuracy on the held-out texts.
    """
    args = parse(argv)
    check_directories(args)
    mg.manual_seed(args.seed)
    left_out = Counter[str]()
    pairs = read_pairs(args.data, left_out=left_out, skip_bad=args.skip_bad)
    for reason, n in left_out.items():
        if n:
            print(f"{args.data}: left out {n:,} {'row' if n == 1 else 'rows'}: {reason}")
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise ValueError(f"{args.data} must have texts of at least 2 labels, got {len(labels)}")
    text = load_text(args.model)
    model = make_model(args, len(labels))
    positions = model.config.position_limit or math.inf
    max_len = min(args.max_len, positions)

    def collate(samples: list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, mask, _ = text.batch([sample for sample, _ in samples], max_len=max_len)
        return ids, np.array([labels.index(label) for _, label in samples]), mask

    def accuracy(model: Any) -> float:
        right = [
            with_maximum(model(ids, mask).data).argmax(-1) == c for ids, c, mask in valid.epoch()
        ]
        return float(np.concatenate(right).mean())

    order = np.random.default_rng(args.seed).permutation(len(pairs))
    pairs = [pairs[i] for i in order]
    held_out = max(1, min(len(pairs) // 10, 1000))
    valid = nn.Batches(pairs[:held_out], batch_size=64, shuffle=False, collate=collate)
    train = nn.Batches(
        pairs[held_out:], batch_size=args.batch_size, seed=args.seed, collate=collate
    )
    steps = args.epochs * len(train)
    rate = args.lr if args.lr is not None else 5e-5 if args.train == "all" else 1e-3
    trained = [p for p in model.parameters() if p.requires_grad]
    run = nn.RunDirectory(args.out / "run", labels=labels)
    trainer = nn.Trainer(
        model,
        AdamW(trained, lr=rate, clip_norm=1.0),
        train,
        valid=valid,
        schedule=linear_schedule(steps, min(steps - 1, max(1, steps // 10))),
        max_epochs=args.epochs,
        validate_every=max(1, len(train) // 2),
        patience=4,
        score=accuracy,
        run_dir=run,
    )
    with run:  # keeps other runs out until this one has ended
        if trainer.parallel.rank == 0:  # of the processes of mpiexec, the first writes
            write_json(run.path / SETTINGS, settings_of(args))
        try:
            trainer.fit(resume=args.resume)
        except KeyboardInterrupt:
            ending = (
                f"stopped at step {trainer.step}; continue with the same arguments and --resume"
            )
            raise KeyboardInterrupt(ending) from None
        best = float(trainer.best or 0.0)
        if trainer.parallel.rank == 0:
            nn.load_weights(run.best, model)
            save(args, model, text, labels)
            print(f"accuracy {best:.3f} on {held_out} held-out texts; saved in {args.out}")
    return best


def check_directories(args: argparse.Namespace) -> None:
    """Raise an error if the model or the adapter would be written beside another one."""
    for option, directory in (("--out", args.out), ("--save-adapter", args.save_adapter)):
        if directory is None:
            continue
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"{option} must be a directory, got the file {directory}")
        if (directory / "config.json").exists():
            raise ValueError(f"{option} must be a directory without a model, got {directory}")
    if (args.out / "run" / "last.safetensors").exists() and not args.resume:
        raise ValueError(
            f"--out must be a directory without a run, got {args.out}; pass --resume to continue "
            "the run, or choose another directory"
        )


def make_model(args: argparse.Namespace, num_classes: int) -> Any:
    """Return the model with a new head; the part to train requires gradients."""
    name = read_json(args.model / "config.json").text("model_type", "")
    if name in FAMILIES and "classes" not in FAMILIES[name].suffixes:
        raise ValueError(
            f"{args.model} must be an encoder, such as BERT, to classify text, got {name!r}"
        )
    model = nn.load(args.model, head="classes", num_classes=num_classes)
    if args.train == "lora":
        nn.lora(model, rank=8, alpha=16)
    elif args.train == "head":
        model.requires_grad_(False)
        for part in filter(None, (model.output, model.dense)):
            part.requires_grad_(True)
    return model


def save(args: argparse.Namespace, model: Any, text: Any, labels: Sequence[str]) -> None:
    """Write the model with its labels and tokenizer, and the adapter if it was asked for."""
    model.origin.settings |= {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if args.save_adapter:
        nn.save_adapter(args.save_adapter, model, base=str(args.model))
    if args.train == "lora":
        nn.merge_lora(model)
    nn.save(args.out, model, text)
