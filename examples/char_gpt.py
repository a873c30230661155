"""A character GPT: learn to write from any text, letter by letter, and write some.

python examples/char_gpt.py                          learns from fables that a grammar makes: two minutes at most
python examples/char_gpt.py mytext.txt --steps 2000  learns from a UTF-8 file
"""

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from texts import tales

import minigrad as mg
import nn
from minigrad.console import amount, count, run_script
from minigrad.optim import AdamW, cosine_schedule
from minigrad.runtime import available_cores
from nn.text import read_lines


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "text", nargs="?", type=Path, help="what to learn from (default: 100 kB of fables)"
    )
    numbers = {"steps": 400, "context": 128, "d-model": 128, "layers": 3, "length": 600}
    for name, default in {**numbers, "processes": min(4, available_cores())}.items():
        parser.add_argument(
            f"--{name}", type=count, default=default, metavar="N", help="(default: %(default)s)"
        )
    parser.add_argument(
        "--prompt", default="Once upon a time", help="how the sample begins (default: %(default)r)"
    )
    parser.add_argument(
        "--temperature", type=amount, default=0.6, metavar="T", help="0: no chance (%(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="keep the run there; a second call goes on with it"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> str:
    args = parse(argv)
    mg.manual_seed(0)
    text = "\n".join(read_lines(args.text)) if args.text else tales()
    if len(text) < 20 * (args.context + 2):
        raise ValueError(
            f"{args.text or 'fables'}: {len(text)} letters are too few for a context of {args.context}"
        )
    letters = sorted(set(text) | set(args.prompt))
    number = {letter: i for i, letter in enumerate(letters)}
    ids = lambda some: np.array([number[letter] for letter in some], int)
    train, valid = np.split(ids(text), [len(text) * 19 // 20])

    sizes = args.d_model, 4, args.layers, 4 * args.d_model  # width, heads, layers, inner width
    config = nn.LanguageModelConfig(
        len(letters), *sizes, dropout=0.0, positions="rotary", max_len=args.context
    )
    model = nn.LanguageModel(config)
    print(
        f"{len(text):,} letters, {len(letters)} different; a model of {model.num_parameters():,} parameters"
    )
    trainer = nn.Trainer(
        model,
        AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), clip_norm=1.0),
        nn.WindowBatches(train, args.context, batch_size=16),
        max_steps=args.steps,
        validate_every=100,
        valid=nn.WindowBatches(valid, args.context, batch_size=16, shuffle=False),
        parallel=args.processes,
        schedule=cosine_schedule(args.steps, warmup=min(50, args.steps // 2)),
        run_dir=args.out and nn.RunDirectory(args.out, letters=letters),
    )
    trainer.fit(resume=args.out is not None)
    if trainer.parallel.rank:  # the first of mpiexec's ranks writes
        return ""
    print(
        f"validation loss {trainer.best:.3f}, {trainer.best / np.log(2):.2f} bits a letter\n\n{args.prompt}",
        end="",
    )
    settings = {
        "max_len": args.length,
        "do_sample": args.temperature > 0,
        "temperature": args.temperature or 1.0,
    }
    written = args.prompt
    for token in nn.stream(model, ids(args.prompt or text[0]), **settings):
        print(letters[token], end="", flush=True)
        written += letters[token]
    print()
    return written


if __name__ == "__main__":
    sys.exit(run_script(main))
