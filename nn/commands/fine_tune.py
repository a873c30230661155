"""Train a published encoder (BERT, MiniLM, XLM-R ...) to classify text.

    minigrad fine-tune DIR pairs.tsv --out mine                    trains all weights
    minigrad fine-tune DIR pairs.tsv --out mine --train head       trains the new head only
    minigrad fine-tune DIR pairs.tsv --out mine --train lora --save-adapter adapter
    minigrad fine-tune DIR pairs.tsv --out mine --resume           continues an interrupted run

DIR contains config.json, model.safetensors and the files of the tokenizer. Each line of pairs.tsv
is a text, a tab, and its label. A .csv or .jsonl file has these in its first two columns, or in
those of --columns. A tenth of the texts chooses the weights, and another tenth tests them.
transformers loads the result, and PEFT the adapter. Needs tokenizers: pip install
"minigrad-nn[models]".
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
from ..text.labels import label_report, label_warnings, split_by_label, without_heading
from ..text.pairs import Pair, read_pairs
from .inputs import (
    add_number,
    announce,
    columns_of,
    command_parser,
    load_text,
    naming_settings,
    resumed_options,
)

__all__ = ["main"]

SETTINGS = "settings.json"
"""File of the settings in the directory of a run."""
CALL_OPTIONS = {"model", "data", "out", "resume"}
"""Options that are not settings of a run."""
MAY_CHANGE = {"epochs", "patience"}
"""Settings that may change when a run is resumed, such as one that ended early."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("fine-tune", __doc__, "directory of the encoder")
    parser.usage = "%(prog)s DIR FILE --out DIR [options]"
    add, number = parser.add_argument, partial(add_number, parser)
    add("data", type=Path, metavar="FILE", help="UTF-8: a text, a tab, and its label on each line")
    columns = "columns of the text and the label, such as review,sentiment"
    add("--columns", type=columns_of, metavar="A,B", help=columns)
    add("--valid", type=Path, metavar="FILE", help="texts that choose the weights")
    add("--test", type=Path, metavar="FILE", help="texts that test the result")
    add("--skip-bad", action="store_true", help="leave out lines of one column or not in UTF-8")
    add("--out", type=Path, required=True, metavar="DIR", help="directory of the new model")
    add("--train", choices=["all", "lora", "head"], default="all", help="weights to train")
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
        note(f"nothing in {args.out} to continue: beginning")
        return args
    return resumed_options(parser, argv, read_json(path), settings_of(args).keys(), MAY_CHANGE)


def settings_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a run as plain data."""
    values = {name: value for name, value in vars(args).items() if name not in CALL_OPTIONS}
    return {name: str(x) if isinstance(x, Path) else x for name, x in values.items()}


def main(argv: Sequence[str] | None = None) -> float:
    """Train, save the model, print its scores, and return its accuracy."""
    args = parse(argv)
    with naming_settings(args.out / "run" / SETTINGS, args.resume):
        return fine_tune(args)


def fine_tune(args: argparse.Namespace) -> float:
    """Train, save the model, and return its accuracy, as the options say."""
    check_directories(args)
    mg.manual_seed(args.seed)
    pairs = read(args.data, args)
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise ValueError(
            f"{args.data} must have texts of at least 2 labels, got {len(labels)}: "
            f"{printable(labels[0], 40)!r}"
        )
    size = max(1, min(len(pairs) // 10, 1000))
    sizes = [0 if args.test or len(pairs) < 20 else size, 0 if args.valid else size]
    test, valid, train = split_by_label(pairs, *sizes, generator=np.random.default_rng(args.seed))
    test = read(args.test, args, labels) if args.test else test
    valid = read(args.valid, args, labels) if args.valid else valid
    text = load_text(args.model)
    model = make_model(args, len(labels))
    limit = min(text.max_len or model.config.max_len, model.config.max_len)
    max_len = min(args.max_len or limit, limit)
    print_facts(pairs, text, max_len)

    def collate(samples: list[Pair]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids, mask, _ = text.batch([sample for sample, _ in samples], max_len=max_len)
        return ids, np.array([labels.index(label) for _, label in samples]), mask

    def in_order(pairs: list[Pair]) -> nn.Batches:
        return nn.Batches(pairs, batch_size=64, shuffle=False, collate=collate)

    def found(pairs: list[Pair]) -> list[str]:
        with mg.no_grad():
            logits = [
                with_maximum(model(ids, mask).data) for ids, _, mask in in_order(pairs).epoch()
            ]
        return [labels[i] for i in np.concatenate(logits).argmax(-1)]

    def score(model: Any) -> float:
        """Return the accuracy; the loss, as a very small number, decides between equal ones."""
        logits, classes = [], []
        for ids, right, mask in in_order(valid).epoch():
            logits.append(model(ids, mask).data)
            classes.append(right)
        rows, targets = with_maximum(np.concatenate(logits)), np.concatenate(classes)
        loss = float(mg.cross_entropy(rows, targets).data)
        return float((rows.argmax(-1) == targets).mean()) - 1e-9 * loss

    batches = nn.Batches(train, batch_size=args.batch_size, seed=args.seed, collate=collate)
    steps = args.epochs * len(batches)
    warmup = min(steps - 1, max(1, steps // 10))
    rate = args.lr if args.lr is not None else 5e-5 if args.train == "all" else 1e-3
    trained = [p for p in model.parameters() if p.requires_grad]
    run = nn.RunDirectory(args.out / "run", labels=labels)
    trainer = nn.Trainer(
        model,
        AdamW(trained, lr=rate, clip_norm=1.0),
        batches,
        valid=in_order(valid),
        schedule=linear_schedule(steps, warmup),
        max_epochs=args.epochs,
        validate_every=max(1, len(batches) // 2),
        patience=args.patience or None,
        patience_from=warmup,
        score=score,
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
        if trainer.step < steps:
            note(
                f"ended at step {trainer.step:,} of {steps:,}: {args.patience} validations were "
                "not better than the best; --resume --patience 0 trains to the end"
            )
        kind, held_out = ("test", test) if test else ("held-out", valid)
        expected = [label for _, label in held_out]
        if trainer.parallel.rank == 0:
            nn.load_weights(run.best, model)
            chosen = found(held_out)
            if args.max_len:
                model.origin.settings["model_max_length"] = max_len
            save(args, model, text, labels)
            print(label_report(expected, chosen, labels))
            print(f"{len(held_out):,} {kind} texts; saved in {args.out}")
            return float(np.mean([a == b for a, b in zip(expected, chosen)]))
    return float(trainer.best or 0.0)


def read(path: Path, args: argparse.Namespace, labels: Sequence[str] = ()) -> list[Pair]:
    """Return the labelled texts of a file, and print what is left out, or may be wrong."""
    announce(path)
    left_out = Counter[str]()
    pairs = read_pairs(path, left_out=left_out, skip_bad=args.skip_bad, columns=args.columns)
    heading = None
    if args.columns is None:
        pairs, heading = without_heading(pairs)
    if heading:
        left_out[f"a row of headings, {heading[0]!r:.40} and {heading[1]!r:.40}"] += 1
    for reason, n in left_out.items():
        if n:
            rows = "row" if n == 1 else "rows"
            note(f"{path}: left out {n:,} {rows}: {reason}")
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


def make_model(args: argparse.Namespace, num_classes: int) -> Any:
    """Return the model with a new head; the part to train requires gradients."""
    name = read_json(find_model(args.model) / "config.json").text("model_type", "")
    if name in FAMILIES and "classes" not in FAMILIES[name].suffixes:
        raise ValueError(
            f"{args.model} must be an encoder, such as BERT, to classify text, got {name!r}"
        )
    model: Any = nn.load(args.model, head="classes", num_classes=num_classes)
    if args.train == "lora":
        nn.lora(model, rank=8, alpha=16)
    elif args.train == "head":
        model.requires_grad_(False)
        for part in filter(None, (model.output, model.dense, model.norm)):
            part.requires_grad_(True)
    return model


def save(args: argparse.Namespace, model: Any, text: Any, labels: Sequence[str]) -> None:
    """Write the model with its labels and tokenizer, and the adapter if it was asked for."""
    model.origin.settings |= {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if args.save_adapter:
        nn.save_adapter(args.save_adapter, model, base=args.model)
    if args.train == "lora":
        nn.merge_lora(model)
    nn.save(args.out, model, text)
