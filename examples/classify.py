"""Train a Transformer that classifies text.

python examples/classify.py                          good and bad opinions: half a minute
python examples/classify.py --data mine.tsv          a UTF-8 file: text, tab, class
python examples/classify.py "the food is not good"   and classify this
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from texts import opinions

import minigrad as mg
import nn
from minigrad.optim import AdamW, cosine_schedule
from nn.commands.console import count, run_script
from nn.text.batches import padded
from nn.text.pairs import read_pairs
from nn.text.tokenize import WordTokenizer
from nn.text.vocabulary import Vocabulary


def main(argv=None):
    args = parse(argv)
    mg.manual_seed(0)
    pairs = read_pairs(args.data) if args.data else opinions()
    pairs = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]
    labels = sorted({label for _, label in pairs})
    if len(labels) < 2:
        raise ValueError(f"{args.data}: the texts must have at least 2 classes, got {len(labels)}")

    # Words to ids. A tenth of the texts is held out, and words that occur only there are unknown.
    split = WordTokenizer(lowercase=True)
    if empty := [text for text in [*args.text, *(text for text, _ in pairs)] if not split(text)]:
        raise ValueError(f"{empty[0]!r} has no words")
    held_out = max(1, len(pairs) // 10)
    vocabulary = Vocabulary.build(split(text) for text, _ in pairs[held_out:])
    encode = lambda texts: padded([vocabulary.encode(split(text))[:128] for text in texts])
    ids = encode([text for text, _ in pairs])
    classes = np.array([labels.index(label) for _, label in pairs])

    config = nn.EncoderConfig(
        len(vocabulary),
        d_model=args.d_model,
        num_heads=4,
        num_layers=args.layers,
        d_ff=4 * args.d_model,
        num_classes=len(labels),
        norm_first=True,
        max_len=128,
    )
    model = nn.EncoderClassifier(config)
    print(f"{len(pairs):,} texts, {len(labels)} classes, {model.num_parameters():,} parameters")
    batches = nn.Batches(ids[held_out:], classes[held_out:], batch_size=64)
    steps = len(batches) * args.epochs

    def accuracy(model):
        return float((model(ids[:held_out]).data.argmax(-1) == classes[:held_out]).mean())

    trainer = nn.Trainer(
        model,
        AdamW(model.parameters(), lr=3e-3, clip_norm=1.0),
        batches,
        valid=[(ids[:held_out], classes[:held_out])],
        objective=nn.ModelLoss(label_smoothing=0.1),
        schedule=cosine_schedule(steps, warmup=min(50, steps // 4)),
        score=accuracy,
        max_epochs=args.epochs,
        run_dir=args.out and nn.RunDirectory(args.out, words=vocabulary.tokens, classes=labels),
    )
    trainer.fit(resume=args.out is not None)
    result = accuracy(model)
    print(f"accuracy on {held_out} held-out texts: {result:.1%}")
    for text in args.text:
        probabilities = mg.softmax(model(encode([text]))).data[0]
        print(f"{text}: {labels[probabilities.argmax()]} ({probabilities.max():.0%})")
    return result


def parse(argv):
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("text", nargs="*", help="texts to classify at the end")
    add("--data", type=Path, help="texts and classes (default: opinions from a grammar)")
    add("--epochs", type=count, default=12, help="passes over the texts (%(default)s)")
    add("--d-model", type=count, default=64, help="size of all vectors (%(default)s)")
    add("--layers", type=count, default=2, help="layers of the model (%(default)s)")
    add("--out", type=Path, help="run directory; the next call continues the run in it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(run_script(main))
