"""Train the small Transformer of Wu et al. (2021), arXiv:2105.14462, on Multi30k.

    python examples/multi30k.py --data DIR                English to German: 41.02 BLEU there
    python examples/multi30k.py --data DIR --resume       continue after an interruption
    python examples/multi30k.py --data DIR --r-drop 5     with R-Drop
    python examples/multi30k.py --data DIR --bpe-dropout 0.1   with BPE dropout
    minigrad translate runs/multi30k --average 10 --beam 8 < test.en > test.de

DIR contains train.lc.norm.tok.en, train.lc.norm.tok.de and the same of val: tokenized text in
lower case. The settings are those of the paper. All options of `minigrad train` change them.
"""

import argparse
import sys
from pathlib import Path

from bpe_dropout import BPEDropout
from rdrop import RDrop

from nn.commands import train
from nn.commands.console import amount, run_script

SETTINGS = {
    # tokens: 10,000 joint byte-level merges, and the 256 bytes
    "joint": True,
    "whole_words": True,
    "vocab_size": 10_256,
    "source_eos": True,
    # model: one table for source, target and output
    "tie": "all",
    "layers": 4,
    "d_model": 128,
    "num_heads": 4,
    "d_ff": 256,
    "dropout": 0.3,  # after sublayers and embeddings
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    # training
    "steps": 8000,
    "epochs": 10_000,
    "batch_tokens": 8192,
    "lr": 0.005,
    "schedule": "inverse-sqrt",
    "warmup": 2000,
    "label_smoothing": 0.1,
    "seed": 1,
    # validation: BLEU of greedy translations; at the end the mean of the last 10 weights
    "validate_every": 100,
    "save_every": 50,
    "select": "bleu",
    "average": 10,
    "beam": 5,
    "bleu_tokenize": "none",
    "processes": 1,
    "out": Path("runs/multi30k"),
}


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of the files")
    parser.add_argument("--r-drop", type=amount, default=0.0, help="weight of its divergence")
    parser.add_argument("--bpe-dropout", type=amount, default=0.0, help="share of left-out merges")
    args, rest = parser.parse_known_args(argv)
    learn, valid = (
        [f"{args.data}/{part}.lc.norm.tok.{language}" for language in ("en", "de")]
        for part in ("train", "val")
    )
    files = ["--data", *learn, "--valid", *valid, "--test", *valid]
    objective = RDrop(args.r_drop, SETTINGS["label_smoothing"]) if args.r_drop else None
    drawn = (lambda bpe: BPEDropout(bpe, args.bpe_dropout)) if args.bpe_dropout else None
    return train.main([*rest, *files], SETTINGS, objective, drawn)


if __name__ == "__main__":
    sys.exit(run_script(main))
