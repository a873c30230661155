"""Train a character-level GPT on any text, and let it write.

python examples/char_gpt.py                           fables that a grammar generates: two minutes
python examples/char_gpt.py mytext.txt --steps 2000   a UTF-8 file
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from course.fables import tales

import minigrad as mg
import nn
from minigrad.fast.runtime import available_cores
from minigrad.optim import AdamW, cosine_schedule
from nn.commands.console import amount, count, run_script
from nn.text.pairs import read_lines


def main(argv=None):
    args = parse(argv)
    mg.manual_seed(0)
    text = "\n".join(read_lines(args.text)) if args.text else tales()
    if len(text) < 20 * (args.context + 2):
        raise ValueError(
            f"{args.text or 'fables'}: the text must have at least {20 * (args.context + 2)} "
            f"characters for --context {args.context}, got {len(text)}"
        )
    letters = sorted(set(text) | set(args.prompt))
    ids_of = {letter: i for i, letter in enumerate(letters)}
    encode = lambda text: np.array([ids_of[letter] for letter in text], int)
    train, valid = np.split(encode(text), [len(text) * 19 // 20])

    config = nn.DecoderOnlyConfig(
        len(letters),
        d_model=args.d_model,
        num_heads=4,
        num_layers=args.layers,
        d_ff=4 * args.d_model,
        dropout=0.0,
        positions="rotary",
        max_len=args.context,
    )
    model = nn.LanguageModel(config)
    print(f"{len(text):,} letters, {len(letters)} different; {model.num_parameters():,} parameters")
    trainer = nn.Trainer(
        model,
        AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), clip_norm=1.0),
        nn.WindowBatches(train, args.context, batch_size=16),
        valid=nn.WindowBatches(valid, args.context, batch_size=16, shuffle=False),
        schedule=cosine_schedule(args.steps, warmup=min(50, args.steps // 2)),
        max_steps=args.steps,
        validate_every=100,
        parallel=args.processes,
        run_dir=args.out and nn.RunDirectory(args.out, letters=letters),
    )
    trainer.fit(resume=args.out is not None)
    loss = trainer.best
    print(
        f"validation loss {loss:.3f}, {loss / np.log(2):.2f} bits a letter\n\n{args.prompt}", end=""
    )
    sampling = {"do_sample": True, "temperature": args.temperature} if args.temperature else {}
    written = args.prompt
    for i in nn.stream(model, encode(args.prompt or text[0]), max_len=args.length, **sampling):
        print(letters[i], end="", flush=True)
        written += letters[i]
    print()
    return written


def parse(argv):
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    cores = min(4, available_cores())
    add("text", nargs="?", type=Path, help="file to learn from (default: 100 kB of fables)")
    add("--steps", type=count, default=400, help="training steps (%(default)s)")
    add("--context", type=count, default=128, help="letters that the model sees (%(default)s)")
    add("--d-model", type=count, default=128, help="size of all vectors (%(default)s)")
    add("--layers", type=count, default=3, help="layers of the model (%(default)s)")
    add("--length", type=count, default=600, help="letters to write (%(default)s)")
    add("--prompt", default="Once upon a time", help="beginning of the text (%(default)s)")
    add("--temperature", type=amount, default=0.6, help="0: the likeliest letters (%(default)s)")
    add("--processes", type=count, default=cores, help="that share a batch (%(default)s)")
    add("--out", type=Path, help="run directory; the next call continues the run in it")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(run_script(main))
