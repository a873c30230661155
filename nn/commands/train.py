"""Train a Transformer that translates. Its run directory is for `minigrad translate`.

    minigrad train                            Chinese to English, from a grammar: one minute
    minigrad train --data pairs.tsv           your own sentences: source TAB target
    minigrad train --data train.de train.en   two parallel files
    mpiexec -n 4 minigrad train               four processes, on one or several machines

In Python, `nn.Trainer` has more settings, such as early stopping and validation by BLEU.
"""

from __future__ import annotations

import argparse
import shlex
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import minigrad as mg
from minigrad.fast.runtime import available_cores
from minigrad.io import write_json
from minigrad.optim import (
    Adam,
    cosine_schedule,
    inverse_sqrt_schedule,
    linear_schedule,
    noam_schedule,
)
from nn.commands.console import escaped, note, seed
from nn.inspection import plots
from nn.models import Transformer
from nn.options.config import AttentionConfig, EncoderDecoderConfig
from nn.published.weights import load_weights, save_weights
from nn.text.toy_corpora import ALWAYS, chinese_english, english_spanish

from ..decoding.translator import Translation, Translator
from ..runs.averaging import average_weights
from ..runs.objectives import ModelLoss
from ..runs.progress import ProgressLine
from ..runs.trainer import Trainer
from ..text.batches import PairBatches
from ..text.pairs import Pair, read_pairs, split_pairs
from ..text.scores import bleu_tokenizer, has_no_spaces, is_wide, translation_scores
from ..text.tokenize import BPETokenizer, Tokenizer, tokenizer_named
from ..text.vocabulary import SPECIALS, UNK, Vocabulary
from .inputs import (
    add_number,
    add_table_options,
    announce,
    command_parser,
    is_run,
    naming_settings,
    resumed_options,
)

FILE_DEFAULTS = {
    "d_model": 256, "layers": 3, "d_ff": 1024, "dropout": 0.3, "epochs": 24, "batch_tokens": 2048,
    "lr": 1e-3, "warmup": 1000, "label_smoothing": 0.1, "valid_size": 500, "test_size": 1000,
}  # fmt: skip
"""Defaults with --data, if they differ from those of the generated sentences."""
MAX_LEN = 128
"""Largest number of tokens of a sentence; longer pairs are left out."""
CALL_OPTIONS = {"out", "resume", "quiet"}
"""Options that are not settings of a run."""
MAY_CHANGE = {"epochs", "steps", "data", "valid", "test", "processes"}
"""Settings that may change when a run is resumed. Changed sentences are noticed by checksums."""
TOKENIZERS = ("word", "char", "space", "bpe")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    defaults = ", ".join(f"--{k.replace('_', '-')} {v}" for k, v in FILE_DEFAULTS.items())
    parser = command_parser("train", __doc__)
    parser.usage = "%(prog)s [options]"
    parser.epilog = textwrap.fill(f"With --data other defaults are used: {defaults}.", 80)
    add, number, kinds = parser.add_argument, partial(add_number, parser), TOKENIZERS
    add("--pair", choices=["zh-en", "en-es"], default="zh-en", help="generated languages")
    number("--sentences", 8000, "generated pairs")
    add("--data", nargs="+", metavar="FILE", help="pairs: .tsv, .csv, .jsonl, or two texts")
    add("--valid", nargs="+", metavar="FILE", help="pairs to validate with")
    add("--test", nargs="+", metavar="FILE", help="pairs to translate at the end")
    number("--valid-size", 200, "pairs held out to validate")
    number("--test-size", 600, "pairs held out to translate")
    add_table_options(parser, "--data")
    add("--reverse", action="store_true", help="exchange source and target")
    add("--source-tokenizer", choices=kinds, metavar="KIND", help=", ".join(kinds))
    add("--target-tokenizer", choices=kinds, metavar="KIND", help="likewise")
    add("--joint", action="store_true", help="one vocabulary of bpe for both sides")
    number("--vocab-size", 8000, "largest number of tokens")
    number("--d-model", 128, "size of all vectors")
    number("--num-heads", 4, "attention heads")
    number("--layers", 2, "encoder layers, and decoder layers")
    number("--d-ff", 256, "size of the feed-forward networks")
    number("--dropout", 0.05, "share of values set to zero", float, "P")
    number("--epochs", 7, "passes over the training pairs")
    number("--steps", None, "stop after this number of steps")
    number("--batch-tokens", 1024, "the most tokens of a side")
    number("--lr", 2e-3, "largest rate, or factor of noam", float, "X")
    schedules = ["noam", "inverse-sqrt", "cosine", "linear"]
    add(
        "--schedule", choices=schedules, default="cosine", metavar="NAME", help=", ".join(schedules)
    )
    number("--warmup", 100, "steps of a rising rate")
    number("--label-smoothing", 0.05, "probability of all tokens", float, "P")
    number("--average", 0, "use the mean of the last N weights")
    number("--seed", 0, "seed of all random numbers", seed)
    number("--processes", None, "that share a batch (default: at most 4)")
    add("--out", type=Path, metavar="DIR", help="run directory (default: runs/NAME)")
    add("--resume", action="store_true", help="continue the run in --out")
    add("--quiet", action="store_true", help="print the last line only")
    return parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.data:
        parser.set_defaults(**FILE_DEFAULTS)
        args = parser.parse_args(argv)
    if args.out is None:
        pair = "-".join(reversed(args.pair.split("-"))) if args.reverse else args.pair
        args.out = Path("runs") / (Path(args.data[0]).name.split(".")[0] if args.data else pair)
    if args.resume:
        file, names = args.out / "config.json", vars(args).keys() - CALL_OPTIONS
        if not file.exists() and any(args.out.glob("[!.]*")):
            parser.error(f"--resume: {args.out} holds no run: it has files, but no config.json")
        parser.set_defaults(out=args.out)
        args = resumed_options(parser, argv, args, file, "settings", names, MAY_CHANGE)
    elif (args.out / "last.safetensors").exists():
        parser.error(f"{args.out} holds a run already: pass --resume, or another --out")
    elif (args.out / "config.json").exists() and not is_run(args.out):
        parser.error(f"--out must be a directory without a model, got {args.out}")
    unused = {"pair": "data", "sentences": "data", "valid_size": "valid", "test_size": "test"}
    for name, other in unused.items():
        if getattr(args, other) and getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} has no effect with --{other}; leave it out")
    if args.joint and {args.source_tokenizer, args.target_tokenizer} - {None, "bpe"}:
        parser.error(
            "--joint needs bpe for both sides: leave out --source-tokenizer and --target-tokenizer"
        )
    if (args.valid or args.test) and not args.data:
        parser.error("--valid and --test need --data")
    for name in ("data", "valid", "test"):
        if len(getattr(args, name) or []) > 2:
            parser.error(f"--{name} must be one file, or source and target")
    if args.columns and len(args.data or []) != 1:
        parser.error("--columns needs one file of --data")
    if args.processes is None:
        args.processes = min(4, available_cores())  # one if the system cannot fork
    return args


# -- sentences -------------------------------------------------------------------------------------


def load_pairs(
    args: argparse.Namespace, left_out: Counter[str] | None = None
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Return training, validation and test pairs, of different source sentences.

    Pairs that are left out are counted in `left_out`, by reason.
    """
    always: list[Pair] = []
    if args.data:
        pairs = read_files(args.data, args, left_out=left_out)
    else:
        generate = chinese_english if args.pair == "zh-en" else english_spanish
        pairs = [(b, a) if args.reverse else (a, b) for a, b in generate(args.sentences, args.seed)]
        first = len(ALWAYS[args.pair])
        always, pairs = pairs[:first], pairs[first:]
    sizes = [0 if args.test else args.test_size, 0 if args.valid else args.valid_size]
    if args.data:  # a small file is mostly for training
        sizes = [min(size, max(1, len(pairs) // 6)) for size in sizes]
    test, valid, train = split_pairs(pairs, *sizes, seed=args.seed)
    if args.test:
        test = read_files(args.test, args, keep_repeated=True)
    if args.valid:
        valid = read_files(args.valid, args, keep_repeated=True)
    return always + train + 7 * always, valid, test  # users try these first


def read_files(files: Sequence[str], args: argparse.Namespace, **options: Any) -> list[Pair]:
    """Return the pairs of one file with two columns, or of two files."""
    announce(*files)
    target = files[1] if len(files) == 2 else None
    options |= {"skip_bad": args.skip_bad, "columns": None if target else args.columns}
    return read_pairs(files[0], target, args.reverse, **options)


def choose_tokenizer(name: str | None, texts: Sequence[str], args: argparse.Namespace) -> Tokenizer:
    """Return the tokenizer of this name, or one for the script of the texts."""
    if name == "bpe":
        return BPETokenizer.train(texts, args.vocab_size)
    generated = "char" if is_wide(texts) else "word"
    return tokenizer_named(name or (generated if args.data else "space"))


def choose_tokenizers(
    args: argparse.Namespace, train: list[Pair]
) -> tuple[list[Tokenizer], list[Pair]]:
    """Return the tokenizers of both sides, and the pairs that are not too long for the options.

    The longer pairs are left out, so their words are in no tokenizer and no vocabulary.
    """
    while True:
        sides = list(zip(*train))
        if args.joint:
            splits = [choose_tokenizer("bpe", [*sides[0], *sides[1]], args)] * 2
        else:
            names = (args.source_tokenizer, args.target_tokenizer)
            splits = [choose_tokenizer(name, texts, args) for name, texts in zip(names, sides)]
        fitting = [pair for pair in train if fits(splits, pair)]
        if len(fitting) in (0, len(train)):
            return splits, train
        train = fitting


def fits(splits: Sequence[Tokenizer], pair: Pair) -> bool:
    """Return whether both sides of a pair have at least one token, and at most `MAX_LEN`."""
    return all(0 < len(split(text)) <= MAX_LEN for split, text in zip(splits, pair))


def make_translator(args: argparse.Namespace, train: list[Pair]) -> Translator:
    """Return an untrained translator with the vocabularies of these pairs."""

    def vocabulary(split: Tokenizer, texts: Sequence[str]) -> Vocabulary:
        if isinstance(split, BPETokenizer):  # with all pieces, no token is unknown
            return Vocabulary([*SPECIALS, *split.pieces])
        return Vocabulary.build(map(split, texts), 2 if args.data else 1, args.vocab_size)

    splits, train = choose_tokenizers(args, train)
    vocabs = [vocabulary(split, texts) for split, texts in zip(splits, zip(*train))]
    if args.joint:
        vocabs[1] = vocabs[0]
    config = EncoderDecoderConfig(
        source_vocab_size=len(vocabs[0]),
        target_vocab_size=len(vocabs[1]),
        d_model=args.d_model,
        num_heads=args.num_heads,
        num_encoder_layers=args.layers,
        num_decoder_layers=args.layers,
        d_ff=args.d_ff,
        dropout=args.dropout,  # after sublayers and of embeddings, as in the paper
        activation_dropout=0.0,
        attention=AttentionConfig(dropout=0.0),
        tie="all" if args.joint else "target",
        output_bias=not args.joint,
        max_len=2 * MAX_LEN,
    )
    return Translator(Transformer(config), vocabs[0], vocabs[1], splits[0], splits[1])


def make_batches(
    translator: Translator, pairs: list[Pair], args: argparse.Namespace, learn: bool
) -> PairBatches:
    """Return batches of ids; to learn from, they are shuffled."""
    ids = [
        (
            translator.source_vocab.encode(translator.source_tokenizer(a)),
            translator.target_vocab.encode(translator.target_tokenizer(b), bos=True, eos=True),
        )
        for a, b in pairs
    ]
    return PairBatches(ids, args.batch_tokens, shuffle=learn, seed=args.seed)


# -- the end of a run ------------------------------------------------------------------------------


Judged = tuple[Translation, str, bool]  # a translation, its nearest reference, True if they match


def evaluate(
    translator: Translator, test: list[Pair], args: argparse.Namespace
) -> tuple[dict[str, Any], list[Judged]]:
    """Translate the test sentences; a source may have several references."""
    references: dict[str, list[str]] = {}
    for source, target in test:
        references.setdefault(source, []).append(target)
    with ProgressLine(len(references), not args.quiet, "held-out sentence") as line:
        translations = translator.translate([*references], 4, done=line.update)
    judged, split = [], translator.target_tokenizer
    for t in translations:
        same = [r for r in references[t.source] if split.join(split(r)) == t.text]
        judged.append((t, (same or references[t.source])[0], bool(same)))
    result = {
        "sentences": len(judged),
        "exact_match": sum(match for *_, match in judged) / len(judged),
        "bleu": None,
    }
    if find_spec("sacrebleu"):
        several = [references[t.source] for t in translations]
        tokenize = bleu_tokenizer([r[0] for r in several])
        texts = [t.text for t in translations]
        result |= asdict(translation_scores(texts, several, tokenize=tokenize))
    return result, judged


def draw(
    translator: Translator,
    translation: Translation,
    history: list[dict[str, Any]],
    args: argparse.Namespace,
) -> None:
    """Draw the loss and the attention of a translation."""
    maps, source, target = translator.attention(translation)
    title = f"cross-attention: {translation.source}  →  {translation.text}"
    plots.attention_grid(maps["cross"], target, source, title, args.out / "attention.png")
    plots.loss_curve(
        history,
        f"loss; training with dropout {args.dropout:g}, label smoothing {args.label_smoothing:g}",
        args.out / "loss.png",
        vocabulary=len(translator.target_vocab),
        label_smoothing=args.label_smoothing,
    )
    say(args, f"pictures: {args.out / 'loss.png'}, {args.out / 'attention.png'}")


def report(
    translator: Translator, trainer: Trainer, test: list[Pair], args: argparse.Namespace
) -> dict[str, Any]:
    """Translate the test sentences, print some of them, and draw the pictures."""
    result, judged = evaluate(translator, test, args)
    samples = [judged[i] for i in np.random.default_rng(args.seed).permutation(len(judged))[:10]]
    if not args.quiet:
        for t, reference, match in samples:
            mark = "=" if match else "≠"
            print(
                "  {}\n    → {}\n    {} {}".format(
                    *map(escaped, (t.source, t.text, mark, reference))
                )
            )
        if result["bleu"] is not None:
            print(f"chrF {result['chrf']:.2f}; signature of BLEU: {result['bleu_signature']}")
        command = ["minigrad", "translate", str(args.out), samples[0][0].source]
        say(args, f"try it: {shlex.join(command)}")
    if find_spec("matplotlib"):
        shown = next((t for t, *_ in samples if len(t.tokens) <= 20), samples[0][0])
        draw(translator, shown, trainer.history, args)
    rows = [{"source": t.source, "translation": t.text, "reference": r} for t, r, _ in samples]
    return result | {"samples": rows}


# -- the run ---------------------------------------------------------------------------------------


def make_schedule(args: argparse.Namespace, steps: int) -> Callable[[int], float]:
    """Return the factor of the learning rate, as a function of the step."""
    if args.schedule == "noam":
        return noam_schedule(args.d_model, args.warmup)
    if args.schedule == "inverse-sqrt":
        return inverse_sqrt_schedule(args.warmup)
    warmup = min(args.warmup, max(1, steps // 2)) if steps > 1 else 0
    return (cosine_schedule if args.schedule == "cosine" else linear_schedule)(steps, warmup)


def build(args: argparse.Namespace) -> tuple[Translator, Trainer, PairBatches, list[Pair]]:
    """Return the translator, its trainer, and the test pairs as batches and as text."""
    mg.manual_seed(args.seed)
    left_out: Counter[str] = Counter()
    parts = load_pairs(args, left_out)
    translator = make_translator(args, parts[0])
    model = translator.model
    splits = (translator.source_tokenizer, translator.target_tokenizer)
    train, valid, test = ([pair for pair in part if fits(splits, pair)] for part in parts)
    kept = len(train) + len(valid) + len(test)
    left_out[f"of more than {MAX_LEN} tokens"] += sum(map(len, parts)) - kept
    vocabs = (translator.source_vocab, translator.target_vocab)
    say(args, f"{len(train):,} pairs to learn, {len(valid):,} to validate, {len(test):,} held out")
    say(args, "for example: {}  →  {}".format(*map(escaped, parts[0][0])))
    say(
        args,
        f"{len(vocabs[0]):,} and {len(vocabs[1]):,} tokens, {model.num_parameters():,} parameters",
    )
    if reasons := ", ".join(f"{n:,} {why}" for why, n in left_out.items() if n):
        note(f"left out of {kept + left_out.total():,} rows: {reasons}")
    for side, name in enumerate(("source", "target")):
        warn_of_words(name, [pair[side] for pair in valid], splits[side], vocabs[side])
    batches = make_batches(translator, train, args, learn=True)
    valid_batches, test_batches = (
        make_batches(translator, part, args, learn=False) for part in (valid, test)
    )
    steps = len(batches) * args.epochs
    trainer = Trainer(
        model,
        Adam(model.parameters(), args.lr, betas=(0.9, 0.98), eps=1e-9, clip_norm=1.0),
        batches,
        valid=valid_batches,
        objective=ModelLoss(label_smoothing=args.label_smoothing),
        schedule=make_schedule(args, min(steps, args.steps or steps)),
        max_epochs=args.epochs,
        max_steps=args.steps,
        save_every=200,
        parallel=args.processes,
        keep_last=args.average,
        run_dir=args.out,
        progress=not args.quiet,
    )
    return translator, trainer, test_batches, test


def warn_of_words(name: str, texts: Sequence[str], split: Tokenizer, vocab: Vocabulary) -> None:
    """Print the share of unknown validation tokens above 5%, and scripts without spaces."""
    if not isinstance(split, BPETokenizer) and has_no_spaces(texts):
        note(
            f"the {name} has no spaces between words: a sentence becomes a few long tokens; pass "
            f"--{name}-tokenizer bpe"
        )
    ids = [i for text in texts for i in vocab.encode(split(text))]
    if ids and (share := ids.count(UNK) / len(ids)) > 0.05:
        note(
            f"{share:.0%} of the {name} tokens in the validation pairs are unknown; a larger "
            f"--vocab-size or --{name}-tokenizer bpe leaves fewer"
        )


def say(args: argparse.Namespace, text: str) -> None:
    """Print a line about the run, which is no result, on standard error."""
    if not args.quiet:
        note(text)


def name_missing_extras() -> None:
    """Print what the end of the run lacks without optional packages."""
    for name, result in (("matplotlib", "pictures"), ("sacrebleu", "BLEU")):
        if not find_spec(name):
            note(f"no {result} at the end without {name}: pip install {name}")


def start_run(translator: Translator, trainer: Trainer, args: argparse.Namespace) -> None:
    """Write what `Translator.load` needs, or resume the run that wrote it."""
    if trainer.parallel.rank == 0:  # of the processes of mpiexec, the first writes
        if not (args.out / "last.safetensors").exists():  # config.json may be of a failed run
            settings = {k: v for k, v in vars(args).items() if k not in CALL_OPTIONS}
            translator.save(args.out, settings=settings)
        elif not translator.has_vocabularies_of(args.out):
            raise ValueError(
                f"{args.out}: its vocabulary is not that of this data; has the data changed?"
            )
    if args.resume and trainer.resume():
        say(args, f"continuing from step {trainer.step:,}")


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Train, translate the test sentences, and return the summary of the run.

    It is empty for other processes of mpiexec than the first.
    """
    began = time.perf_counter()
    args = parse(argv)
    with naming_settings(args.out / "config.json", args.resume):
        translator, trainer, held_out, test = build(args)
    name_missing_extras()
    assert trainer.run is not None
    with trainer.run:  # keeps other runs out until this one has ended
        start_run(translator, trainer, args)
        began -= trainer.seconds  # of earlier calls
        try:
            trainer.fit()
        except KeyboardInterrupt:
            text = f"stopped at step {trainer.step}; continue with --out {args.out} --resume"
            raise KeyboardInterrupt(text) from None
        if trainer.parallel.rank:
            return {}
        best = args.out / "best.safetensors"
        if args.average:
            checkpoints = trainer.run.checkpoints()
            translator.model.load_state_dict(average_weights(checkpoints))
            save_weights(best, translator.model, averaged=len(checkpoints))
        load_weights(best, translator.model)
        summary = {
            "steps": trainer.step,
            "training_seconds": round(trainer.seconds, 1),
            "valid_loss": trainer.best,
            "held_out_loss": trainer.evaluate(held_out),
            **report(translator, trainer, test, args),
            "seconds": round(time.perf_counter() - began, 1),
        }
        write_json(args.out / "summary.json", summary)
    bleu = summary["bleu"]
    print(
        f"{summary['sentences']} held-out sentences: loss {summary['held_out_loss']:.3f}, "
        f"exact match {summary['exact_match']:.1%}, "
        f"{'no BLEU, which needs sacrebleu' if bleu is None else f'BLEU {bleu:.1f}'}; "
        f"{summary['steps']} steps in {summary['training_seconds']:.0f} s, "
        f"{summary['seconds']:.0f} s in all; run directory {args.out}"
    )
    return summary
