"""Teach a published encoder in a folder (BERT, MiniLM, XLM-R ...) to tell texts apart; the result is for all to load.

python examples/fine_tune.py DIR pairs.tsv --out mine              a text, a tab, its label in each line
python examples/fine_tune.py DIR pairs.tsv --out mine --train head     only the new head (or: lora)
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
import nn
from minigrad.console import amount, count, run_script, seed
from minigrad.optim import AdamW, linear_schedule
from nn.text import read_pairs


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", type=Path, metavar="DIR", help="config.json, model.safetensors, tokenizer.json ..."
    )
    parser.add_argument("data", type=Path, metavar="FILE", help="UTF-8: a text, a tab, its label")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the model is saved"
    )
    parser.add_argument(
        "--train", choices=("all", "lora", "head"), default="all", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", type=count, default=3, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--lr", type=amount, metavar="RATE", help="(default: 5e-5; 1e-3 for head and lora)"
    )
    parser.add_argument(
        "--batch-size", type=count, default=16, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--max-len", type=count, default=64, metavar="N", help="tokens of a text (%(default)s)"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="(default: %(default)s)")
    return parser.parse_args(argv)


def prepared(args: argparse.Namespace, labels: Sequence[str]) -> Any:
    """The model with a head for these labels, of which the part to be trained requires gradients."""
    model = nn.load(args.model, head="classes", num_classes=len(labels))
    if args.train == "lora":
        nn.lora(model, rank=8, alpha=16)
    elif args.train == "head":
        model.requires_grad_(False)
        model.output.requires_grad_(True)
        if model.dense is not None:
            model.dense.requires_grad_(True)
    return model


def trimmed(
    ids: np.ndarray, classes: np.ndarray, real: np.ndarray, size: int, seed: int | None = None
) -> Any:
    """A function from the number of an epoch to its batches, no wider than their longest text."""
    plan = nn.ArrayBatches(
        ids, classes, real, batch_size=size, shuffle=seed is not None, seed=seed or 0
    )

    def batches(epoch: int) -> Iterator[tuple[np.ndarray, ...]]:
        for some, labels, mask in plan.epoch(epoch):
            width = mask.any(0).sum()
            yield some[:, :width], labels, mask[:, :width]

    return batches


def main(argv: Sequence[str] | None = None) -> float:
    """The accuracy on texts that were held out."""
    args = parse(argv)
    mg.manual_seed(args.seed)
    pairs = read_pairs(args.data)
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise ValueError(f"{args.data}: expected texts of at least 2 labels, got {len(labels)}")
    model, text = prepared(args, labels), nn.text.load(args.model)
    order = np.random.default_rng(args.seed).permutation(len(pairs))
    ids, real, _ = text.batch([pairs[i][0] for i in order], max_len=args.max_len)
    classes = np.array([labels.index(pairs[i][1]) for i in order])
    held = max(1, min(len(pairs) // 10, 1000))
    valid = trimmed(ids[:held], classes[:held], real[:held], 64)
    train = trimmed(ids[held:], classes[held:], real[held:], args.batch_size, args.seed)
    per_epoch = -(-(len(ids) - held) // args.batch_size)
    steps = args.epochs * per_epoch
    rate = args.lr if args.lr is not None else 5e-5 if args.train == "all" else 1e-3
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, clip_norm=1.0)

    def accuracy(model: Any) -> float:
        right = [model(i, m).data.argmax(-1) == c for i, c, m in valid(0)]
        return float(np.concatenate(right).mean())

    trainer = nn.Trainer(
        model,
        optimizer,
        train,
        valid=valid,
        schedule=linear_schedule(steps, min(steps - 1, max(1, steps // 10))),
        max_epochs=args.epochs,
        validate_every=max(1, per_epoch // 2),
        patience=4,
        score=accuracy,
        run_dir=args.out / "run",
    )
    trainer.fit()
    if trainer.parallel.rank:  # the first of mpiexec's ranks does the rest
        return trainer.best
    nn.load_weights(args.out / "run" / "best.safetensors", model)
    model.eval()
    with nn.evaluating(), mg.no_grad():
        result = accuracy(model)
    if args.train == "lora":
        nn.merge_lora(model)
    model.origin.settings |= {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    nn.save(args.out, model, text)
    print(f"accuracy {result:.3f} on {held} texts held out; saved in {args.out}")
    return result


if __name__ == "__main__":
    sys.exit(run_script(main))
