"""A Transformer that classifies texts: learn from pairs of a text and its class, and judge new ones.

python examples/classify.py                          learns to tell good opinions from bad ones: half a minute
python examples/classify.py --data mine.tsv          learns from a UTF-8 file: a text, a tab, its class
python examples/classify.py "the food is not good"   and then judges this
"""

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from texts import opinions

import minigrad as mg
from minigrad.console import count, run_script
from minigrad.optim import AdamW, cosine_schedule
from nn import ArrayBatches, EncoderClassifier, EncoderConfig, ModelLoss, RunDirectory, Trainer
from nn.text import Vocabulary, WordTokenizer, padded, read_pairs


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", nargs="*", help="texts to judge in the end")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="texts, classes (default: a grammar's opinions)"
    )
    parser.add_argument(
        "--epochs",
        type=count,
        default=12,
        metavar="N",
        help="passes over them (default: %(default)s)",
    )
    parser.add_argument(
        "--d-model", type=count, default=64, metavar="N", help="width (default: %(default)s)"
    )
    parser.add_argument(
        "--layers", type=count, default=2, metavar="N", help="layers (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the run there; a second call goes on with it"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> float:
    args = parse(argv)
    mg.manual_seed(0)
    pairs = read_pairs(args.data) if args.data else opinions()
    split, labels = WordTokenizer(lowercase=True), sorted({label for _, label in pairs})
    order = np.random.default_rng(0).permutation(len(pairs))
    tokens = [split(pairs[i][0]) for i in order]
    classes = np.array([labels.index(pairs[i][1]) for i in order])
    held_out = max(1, len(pairs) // 10)
    if len(labels) < 2:
        raise ValueError(f"{args.data}: expected texts of at least 2 classes, got {len(labels)}")
    if empty := [text for text in [*args.text, *(text for text, _ in pairs)] if not split(text)]:
        raise ValueError(f"{empty[0]!r} has no words")
    vocabulary = Vocabulary.build(tokens[held_out:])
    as_ids = lambda texts: padded([vocabulary.encode(text)[:128] for text in texts])
    ids = as_ids(tokens)

    sizes = args.d_model, 4, args.layers, 4 * args.d_model  # width, heads, layers, inner width
    model = EncoderClassifier(
        EncoderConfig(
            len(vocabulary), *sizes, num_classes=len(labels), norm_first=True, max_len=128
        )
    )
    print(
        f"{len(pairs):,} texts of {len(labels)} classes; a model of {model.num_parameters():,} parameters"
    )
    batches = ArrayBatches(ids[held_out:], classes[held_out:], batch_size=64)
    steps = len(batches) * args.epochs
    accuracy = lambda model: float(
        (model(ids[:held_out]).data.argmax(-1) == classes[:held_out]).mean()
    )
    trainer = Trainer(
        model,
        AdamW(model.parameters(), lr=3e-3, clip_norm=1.0),
        batches,
        objective=ModelLoss(label_smoothing=0.1),
        valid=[(ids[:held_out], classes[:held_out])],
        schedule=cosine_schedule(steps, warmup=min(50, steps // 4)),
        score=accuracy,
        max_epochs=args.epochs,
        run_dir=args.out and RunDirectory(args.out, words=vocabulary.tokens, classes=labels),
    )
    trainer.fit(resume=args.out is not None)
    if trainer.parallel.rank:  # the first of mpiexec's ranks tells the rest
        return accuracy(model)
    print(f"accuracy on {held_out} held-out texts: {accuracy(model):.1%}")
    for text in args.text:
        probabilities = mg.softmax(model(as_ids([split(text)]))).data[0]
        print(f"{text}: {labels[probabilities.argmax()]} ({probabilities.max():.0%})")
    return accuracy(model)


if __name__ == "__main__":
    sys.exit(run_script(main))
