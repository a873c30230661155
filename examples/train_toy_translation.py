"""Train a Transformer to translate, on a toy corpus or on your own sentence pairs.

    python examples/train_toy_translation.py                      Chinese to English, made by a grammar: a minute
    python examples/train_toy_translation.py --pair en-es         English to Spanish, likewise
    python examples/train_toy_translation.py --data pairs.tsv     sentence pairs from a file (source TAB target)
    python examples/train_toy_translation.py --source a.txt --target b.txt.gz
    python examples/train_toy_translation.py --out runs/x --resume    go on with a run that was cut off
    mpiexec -n 4 python examples/train_toy_translation.py         on four ranks, on as many machines (docs/scale.md)

A run leaves in its directory: config.json, vocab.json, the best and the last weights, metrics.jsonl, summary.json, and
pictures of loss and attention. Then `python examples/translate.py RUN_DIR "some text"` translates with it.
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import math
import os
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from corpora import ALWAYS, chinese_english, english_spanish
from rdrop import RDrop

import minigrad as mg
from minigrad import MissingExtraError
from minigrad.console import count, run_script, seed
from minigrad.io import read_json, write_json
from minigrad.optim import (
    Adam,
    cosine_schedule,
    inverse_sqrt_schedule,
    linear_schedule,
    noam_schedule,
)
from minigrad.runtime import available_cores
from nn import (
    ModelLoss,
    ProgressLine,
    Trainer,
    Transformer,
    TransformerConfig,
    Translation,
    Translator,
    average_weights,
    load_weights,
    plots,
    save_weights,
)
from nn.generation.beam import check_beam
from nn.text import (
    SPECIALS,
    BPEDropout,
    BPETokenizer,
    PairBatches,
    Tokenizer,
    Vocabulary,
    filter_pairs,
    read_pairs,
    split_pairs,
    tokenizer_named,
    translation_scores,
)

Pair = tuple[str, str]
Say = Callable[..., Any]

# What --data, or else the toy corpora, take where nothing is said.
TOY = {
    "d_model": 128, "num_heads": 4, "layers": 2, "d_ff": 256, "dropout": 0.05, "epochs": 7, "batch_tokens": 1024,
    "lr": 2e-3, "warmup": 100, "label_smoothing": 0.05, "valid_size": 200, "test_size": 600, "max_len": 64,
}  # fmt: skip
REAL = {
    "d_model": 256, "num_heads": 4, "layers": 3, "d_ff": 1024, "dropout": 0.3, "epochs": 24, "batch_tokens": 2048,
    "lr": 1e-3, "warmup": 1000, "label_smoothing": 0.1, "valid_size": 500, "test_size": 1000, "max_len": 128,
}  # fmt: skip


COUNT: dict[str, Any] = {"type": count, "metavar": "N"}


def add_data_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to learn from").add_argument
    add(
        "--pair",
        choices=["zh-en", "en-es"],
        default="zh-en",
        help="which toy corpus (default: %(default)s)",
    )
    add(
        "--sentences",
        **COUNT,
        default=8000,
        help="how many toy pairs to make (default: %(default)s)",
    )
    add(
        "--data",
        metavar="FILE",
        help="pairs to learn instead: UTF-8, two columns with a tab between, plain or .gz",
    )
    add(
        "--source",
        metavar="FILE",
        help="or two parallel files, a sentence a line, plain or .gz: this one ...",
    )
    add("--target", metavar="FILE", help="... and its translations")
    add("--reverse", action="store_true", help="exchange source and target")
    tokenizers = {"choices": ["word", "char", "space", "bpe"]}
    add(
        "--source-tokenizer",
        **tokenizers,
        help="(default: space toy; char for Chinese files, else word)",
    )
    add("--target-tokenizer", **tokenizers, help="likewise for the target")
    add(
        "--joint",
        action="store_true",
        help="one vocabulary of bpe pieces for both sides; see --tie all",
    )
    add(
        "--bpe-dropout",
        type=float,
        default=0.0,
        metavar="P",
        help="share of merges left out, anew in each epoch",
    )
    add("--lowercase", action="store_true", help="fold all text to lower case")
    add(
        "--simplified",
        action="store_true",
        help="turn traditional Chinese characters into simplified ones",
    )
    add("--min-count", **COUNT, help="rarer tokens become <unk> (default: 1 toy, 2 files)")
    add(
        "--vocab-size",
        **COUNT,
        default=8000,
        help="most tokens a side; pieces that bpe learns (default: %(default)s)",
    )
    add(
        "--max-len",
        **COUNT,
        help="leave out longer sentences, in tokens (default: 64 toy, 128 files)",
    )
    add(
        "--valid-size",
        **COUNT,
        help="pairs that decide which weights are best (default: 200 toy, 500 files)",
    )
    add("--test-size", **COUNT, help="pairs held out to the end (default: 600 toy, 1000 files)")
    add(
        "--valid",
        nargs="+",
        metavar="FILE",
        help="validate with these pairs instead: one file, or source and target",
    )
    add("--test", nargs="+", metavar="FILE", help="hold out these pairs instead, likewise")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("the model").add_argument
    add("--d-model", **COUNT, help="width of all vectors (default: 128 toy, 256 files)")
    add("--num-heads", **COUNT, help="attention heads, which share the width (default: 4)")
    add("--layers", **COUNT, help="encoder layers, and decoder layers (default: 2 toy, 3 files)")
    add("--d-ff", **COUNT, help="width of the feed-forward nets (default: 256 toy, 1024 files)")
    add(
        "--dropout",
        type=float,
        metavar="P",
        help="share of values left out in training (default: 0.05 toy, 0.3 files)",
    )
    add(
        "--activation",
        default="relu",
        metavar="NAME",
        help="relu, gelu, silu ... (default: %(default)s)",
    )
    add("--norm-first", action="store_true", help="norm before each sublayer instead of after it")
    tied = "the output layer shares the target embedding; all: the source too, with --joint (default: %(default)s)"
    add("--tie", choices=["none", "target", "all"], default="target", help=tied)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("training").add_argument
    add("--epochs", **COUNT, help="passes over the training pairs (default: 7 toy, 24 files)")
    add("--steps", **COUNT, help="stop after this many steps, whatever the epoch")
    add("--batch-tokens", **COUNT, help="tokens a side in a batch (default: 1024 toy, 2048 files)")
    add(
        "--accumulate",
        **COUNT,
        default=1,
        help="batches to average for one step (default: %(default)s)",
    )
    schedules = {"choices": ["noam", "inverse-sqrt", "cosine", "linear"], "default": "cosine"}
    add(
        "--schedule",
        **schedules,
        help="how the learning rate falls after its rise (default: %(default)s)",
    )
    add(
        "--lr",
        type=float,
        metavar="X",
        help="largest learning rate; noam: a factor (default: 2e-3 toy, 1e-3 files)",
    )
    add(
        "--warmup",
        **COUNT,
        help="steps of rising learning rate, at most half of all (default: 100 toy, 1000 files)",
    )
    smoothed = "share of the target's probability that goes to all tokens alike (default: 0.05 toy, 0.1 files)"
    add("--label-smoothing", type=float, metavar="P", help=smoothed)
    add(
        "--r-drop",
        type=float,
        default=0.0,
        metavar="ALPHA",
        help="weight of R-Drop's divergence (default: none)",
    )
    add(
        "--average",
        **COUNT,
        help="use the mean of the weights of the last N epochs, not the best ones",
    )
    add(
        "--clip",
        type=float,
        default=1.0,
        metavar="X",
        help="largest norm of the gradients (default: %(default)s)",
    )
    add("--patience", **COUNT, help="stop after N epochs without a better validation loss")
    add(
        "--save-every",
        **COUNT,
        default=200,
        help="steps between saved states (default: %(default)s)",
    )
    add(
        "--seed",
        type=seed,
        default=0,
        metavar="N",
        help="of corpus, split, weights and batches (default: %(default)s)",
    )
    add = parser.add_argument_group("the run").add_argument
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="run directory (default: runs/PAIR, or runs/NAME of the file)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on where the run in --out was cut off, with the settings it began with",
    )
    add(
        "--beam",
        **COUNT,
        default=4,
        help="beam for the held-out sentences; 1 is greedy (default: %(default)s)",
    )
    add("--length-penalty", type=float, default=1.0, metavar="A", help="(default: %(default)s)")
    tokens = "of sacrebleu: 13a, zh, or none for text that is tokenized (default: by the script of the target)"
    add("--bleu-tokenize", choices=["13a", "zh", "none", "char", "intl"], help=tokens)
    add(
        "--processes",
        **COUNT,
        help="share each batch, one core each (default: the cores there are, at most 4)",
    )
    add("--quiet", action="store_true", help="no progress bar, no samples: the last line only")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options]",
    )
    add_data_options(parser)
    add_model_options(parser)
    add_training_options(parser)
    args = parser.parse_args(argv)
    if bool(args.source) != bool(args.target):
        parser.error("--source and --target go together")
    if args.data and args.source:
        parser.error("--data and --source exclude each other")
    if args.tie == "all" and not args.joint:
        parser.error("--tie all needs the one vocabulary of --joint")
    if (args.valid or args.test) and not (args.data or args.source):
        parser.error("--valid and --test go with --data, or with --source and --target")
    if max(len(args.valid or []), len(args.test or [])) > 2:
        parser.error("--valid and --test: expected one file, or source and target")
    from_file = args.data or args.source
    for name, value in (REAL if from_file else TOY).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    check_beam(args.beam, args.length_penalty)
    if args.min_count is None:
        args.min_count = 2 if from_file else 1
    if args.processes is None:
        args.processes = min(4, available_cores()) if hasattr(os, "fork") else 1
    if args.out is None:
        pair = "-".join(reversed(args.pair.split("-"))) if args.reverse else args.pair
        args.out = Path("runs") / (Path(from_file).name.split(".")[0] if from_file else pair)
    if args.resume:
        args = resumed(args, parser, sys.argv[1:] if argv is None else argv)
    elif (args.out / "last.safetensors").exists():
        parser.error(
            f"{args.out} holds a run already: pass --resume to go on with it, or another --out"
        )
    return args


def resumed(
    args: argparse.Namespace, parser: argparse.ArgumentParser, argv: Sequence[str]
) -> argparse.Namespace:
    """The settings that the run was begun with; a note says where options differ from them."""
    path = args.out / "config.json"
    if not path.exists():  # it was cut off before it had begun, or this is another directory
        if args.out.exists() and any(not file.name.startswith(".") for file in args.out.iterdir()):
            parser.error(
                f"--resume: {args.out} holds no run: it has other files, but no config.json"
            )
        print(f"nothing in {args.out} to go on with: beginning", file=sys.stderr)
        return args
    config = read_json(path)
    saved = config.object("settings")
    config.expect_unchanged("settings")
    typed = {word.partition("=")[0] for word in argv if word.startswith("--")}
    for action in parser._actions:
        name, given = action.dest, getattr(args, action.dest, None)
        if typed & {*action.option_strings} and name in saved and saved[name] != given:
            was = f"{action.option_strings[-1]} {saved[name]}"
            print(
                f"{args.out} goes on with {was}, as it was begun, not with {given}", file=sys.stderr
            )
    return argparse.Namespace(
        **{**vars(args), **saved, "out": args.out, "resume": True, "quiet": args.quiet}
    )


# -- data ------------------------------------------------------------------------------------------


def load_pairs(
    args: argparse.Namespace, left_out: Counter[str] | None = None
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Training, validation and test pairs; no source sentence is in two of them. What is left out is counted."""
    if args.data or args.source:
        pairs = read_pairs(args.data or args.source, args.target, args.reverse, left_out)
        fixed: list[Pair] = []
        if len(pairs) < 3 - bool(args.valid) - bool(args.test):
            raise ValueError(
                f"{args.data or args.source}: {len(pairs)} pairs are too few to learn, validate and test"
            )
        args.test_size = min(
            args.test_size, max(1, len(pairs) // 6)
        )  # a small file is mostly to learn from
        args.valid_size = min(args.valid_size, max(1, len(pairs) // 6))
    else:
        made = (chinese_english if args.pair == "zh-en" else english_spanish)(
            args.sentences, args.seed
        )
        made = [(b, a) for a, b in made] if args.reverse else made
        known = len(ALWAYS[args.pair])
        fixed, pairs = (
            made[:known],
            made[known:],
        )  # what everyone tries first is always learnt, and well
    given = {
        name: read_pairs(*files, reverse=args.reverse, keep_repeated=True)
        for name, files in (("test", args.test), ("valid", args.valid))
        if files
    }
    sizes = [
        0 if name in given else size
        for name, size in (("test", args.test_size), ("valid", args.valid_size))
    ]
    test, valid, train = split_pairs(pairs, *sizes, seed=args.seed)
    return fixed + train + 7 * fixed, given.get("valid", valid), given.get("test", test)


def choose_tokenizer(name: str | None, texts: Sequence[str], args: argparse.Namespace) -> Tokenizer:
    """The tokenizer of this name, or the one that suits the script of the texts."""
    if name == "bpe":
        return BPETokenizer.train(
            texts, args.vocab_size, args.lowercase, simplified=args.simplified
        )
    if name is None:
        sample = "".join(texts[:1000])
        wide = sum(unicodedata.east_asian_width(c) in "WF" for c in sample)
        spaced = not (args.data or args.source)  # the toy corpora come in words
        name = "space" if spaced else "char" if wide > 0.2 * len(sample) else "word"
    return tokenizer_named(name, lowercase=args.lowercase, simplified=args.simplified)


def vocabulary(split: Tokenizer, texts: Sequence[str], args: argparse.Namespace) -> Vocabulary:
    """All pieces of a BPE, so that none is unknown; else the tokens of the texts."""
    if isinstance(split, BPETokenizer):
        return Vocabulary([*SPECIALS, *split.pieces])
    return Vocabulary.build(map(split, texts), args.min_count, args.vocab_size)


def prepare(args: argparse.Namespace, train: list[Pair]) -> Translator:
    """An untrained translator for these pairs."""
    sides = [a for a, _ in train], [b for _, b in train]
    if args.joint:
        split = choose_tokenizer("bpe", [*sides[0], *sides[1]], args)
        splits, vocabs = (split, split), (vocabulary(split, [], args),) * 2
    else:
        names = (args.source_tokenizer, args.target_tokenizer)
        splits = tuple(choose_tokenizer(name, texts, args) for name, texts in zip(names, sides))
        vocabs = tuple(vocabulary(split, texts, args) for split, texts in zip(splits, sides))
    config = TransformerConfig(
        len(vocabs[0]),
        len(vocabs[1]),
        args.d_model,
        args.num_heads,
        args.layers,
        args.layers,
        args.d_ff,
        dropout=args.dropout,
        activation=args.activation,
        norm_first=args.norm_first,
        tie=args.tie,
        max_len=max(256, 2 * args.max_len),
    )
    return Translator(Transformer(config), *vocabs, *splits)


def make_batches(
    translator: Translator,
    pairs: list[Pair],
    args: argparse.Namespace,
    left_out: Counter[str],
    learn: bool,
) -> PairBatches:
    """Batches of ids; to learn from, shuffled, and with BPE dropout if asked for. Longer pairs are left out."""
    splits = (translator.source_tokenizer, translator.target_tokenizer)
    vocabs = (translator.source_vocab, translator.target_vocab)
    encode = lambda tokens: (
        vocabs[0].encode(tokens[0]),
        vocabs[1].encode(tokens[1], bos=True, eos=True),
    )
    if not (learn and args.bpe_dropout):
        tokens = filter_pairs([(splits[0](a), splits[1](b)) for a, b in pairs], args.max_len)
        left_out[f"of more than {args.max_len} tokens"] += len(pairs) - len(tokens)
        return PairBatches(
            [encode(pair) for pair in tokens], args.batch_tokens, shuffle=learn, seed=args.seed
        )
    if not any(isinstance(split, BPETokenizer) for split in splits):
        raise ValueError(
            "--bpe-dropout: neither side is split by bpe; see --joint and --source-tokenizer"
        )
    drop = [
        BPEDropout(s, args.bpe_dropout)
        if isinstance(s, BPETokenizer)
        else lambda text, _, s=s: s(text)
        for s in splits
    ]
    fitting = [
        pair
        for pair in pairs
        if all(0 < len(s(text)) <= args.max_len for s, text in zip(splits, pair))
    ]
    left_out[f"of more than {args.max_len} tokens"] += len(pairs) - len(fitting)
    drawn = lambda pair, generator: encode([d(text, generator) for d, text in zip(drop, pair)])
    return PairBatches(fitting, args.batch_tokens, seed=args.seed, encode=drawn)


# -- evaluation ------------------------------------------------------------------------------------


Judged = tuple[
    Translation, str, bool
]  # a translation, the reference to show beside it, whether it matches one


def evaluate(
    translator: Translator, test: list[Pair], args: argparse.Namespace
) -> tuple[dict[str, Any], list[Judged]]:
    """Exact matches and BLEU of the held-out sentences. Each of several references of a source counts."""
    normal = lambda text: translator.target_tokenizer.join(translator.target_tokenizer(text))
    references: dict[str, list[str]] = {}
    for a, b in test:
        references.setdefault(a, []).append(b)
    limit = translator.model.config.max_len
    sources = [a for a in references if 0 < len(translator.source_tokenizer(a)) <= limit]
    began = time.perf_counter()
    with ProgressLine(len(sources), not args.quiet, "held-out sentence") as line:
        line.update(0)
        translations = translator.translate(
            sources, args.beam, args.length_penalty, done=line.update
        )
    seconds = time.perf_counter() - began
    judged = []
    for t in translations:
        matching = [r for r in references[t.source] if normal(r) == t.text]
        judged.append((t, [*matching, references[t.source][0]][0], bool(matching)))
    chinese = any(
        unicodedata.east_asian_width(c) in "WF" for c in "".join(b for _, b in test[:100])
    )
    result = {
        "sentences": len(judged), "exact_match": sum(match for *_, match in judged) / len(judged), "bleu": None,
        "bleu_signature": None,
        "translation_seconds": round(seconds, 2),
    }  # fmt: skip
    with suppress(MissingExtraError):  # the last line of the run says so
        scores = translation_scores(
            [t.text for t in translations],
            [references[t.source] for t in translations],
            tokenize=args.bleu_tokenize or ("zh" if chinese else "13a"),
            lowercase=args.lowercase,
        )
        result |= asdict(scores)
    return result, judged


def draw(
    translator: Translator,
    shown: Translation,
    history: list[dict[str, Any]],
    args: argparse.Namespace,
) -> str:
    """Draw the pictures of a run; without matplotlib, say so and give the attention as text."""
    maps, source, target = translator.attention(shown)
    title = f"loss by step; training with dropout {args.dropout:g} and label smoothing {args.label_smoothing:g}"
    try:
        plots.loss_curve(
            history,
            title,
            args.out / "loss.png",
            vocabulary=len(translator.target_vocab),
            label_smoothing=args.label_smoothing,
        )
        title = f"cross-attention: {shown.source}  →  {shown.text}"
        plots.attention_grid(maps["cross"], target, source, title, args.out / "attention.png")
    except MissingExtraError as error:
        text = plots.text_heatmap(maps["cross"][-1].mean(0), target, source)
        return (
            f"no pictures: {error}\ncross-attention of the last layer, mean of its heads:\n{text}"
        )
    return f"pictures: {args.out / 'loss.png'}, {args.out / 'attention.png'}"


# -- the run ---------------------------------------------------------------------------------------


def make_schedule(args: argparse.Namespace, steps: int) -> Callable[[int], float]:
    warmup = min(args.warmup, max(1, steps // 2))  # a run of few steps has a short rise
    if args.schedule == "noam":
        return noam_schedule(args.d_model, args.warmup)
    if args.schedule == "inverse-sqrt":
        return inverse_sqrt_schedule(args.warmup)
    return (cosine_schedule if args.schedule == "cosine" else linear_schedule)(
        steps, warmup if steps > 1 else 0
    )


def build(
    args: argparse.Namespace, say: Say
) -> tuple[Translator, Trainer, PairBatches, list[Pair]]:
    """All that a run needs, and the held-out pairs, as batches and as text; nothing is written yet."""
    mg.manual_seed(args.seed)
    left_out: Counter[str] = Counter()
    train, valid, test = load_pairs(args, left_out)
    rows = sum(map(len, (train, valid, test))) + left_out.total()
    translator = prepare(args, train)
    say(
        f"{len(train):,} pairs to learn, {len(valid):,} to validate, {len(test):,} held out; for example"
    )
    for a, b in train[:2]:
        say(f"    {a}  →  {b}")
    sizes = f"{len(translator.source_vocab):,} and {len(translator.target_vocab):,}"
    say(
        f"vocabularies of {sizes} tokens; a model of {translator.model.num_parameters():,} parameters"
    )
    batches = make_batches(translator, train, args, left_out, learn=True)
    held = [make_batches(translator, part, args, left_out, learn=False) for part in (valid, test)]
    if reasons := ", ".join(f"{n:,} {why}" for why, n in left_out.items() if n):
        print(f"left out of {rows:,} rows: {reasons}", file=sys.stderr)
    smoothing = {"label_smoothing": args.label_smoothing}
    steps = math.ceil(len(batches) / args.accumulate) * args.epochs
    optimizer = Adam(
        translator.model.parameters(), args.lr, betas=(0.9, 0.98), eps=1e-9, clip_norm=args.clip
    )
    trainer = Trainer(
        translator.model,
        optimizer,
        batches,
        valid=held[0],
        objective=RDrop(args.r_drop, **smoothing) if args.r_drop else ModelLoss(**smoothing),
        schedule=make_schedule(args, min(steps, args.steps or steps)),
        max_epochs=args.epochs,
        max_steps=args.steps,
        accumulate=args.accumulate,
        patience=args.patience,
        save_every=args.save_every,
        parallel=args.processes,
        keep_last=args.average or 0,
        run_dir=args.out,
        progress=not args.quiet,
    )
    return translator, trainer, held[1], test


def begin(translator: Translator, trainer: Trainer, args: argparse.Namespace, say: Say) -> None:
    """Write what `Translator.load` needs, or go on with the run that did."""
    if trainer.parallel.rank:  # of the ranks that mpiexec starts, the first alone writes
        pass
    elif not (args.out / "config.json").exists():
        settings = {k: v for k, v in vars(args).items() if k not in ("out", "resume", "quiet")}
        translator.save(args.out, settings=settings)
    elif not translator.has_vocabularies_of(args.out):
        raise ValueError(
            f"{args.out}: its vocabulary is not that of this data; has the data changed since it began?"
        )
    if args.resume and trainer.resume():
        say(f"going on from step {trainer.step:,}")


def report(
    translator: Translator, trainer: Trainer, test: list[Pair], args: argparse.Namespace, say: Say
) -> dict[str, Any]:
    """Translate the held-out sentences; show some, and draw what is known of the run."""
    result, judged = evaluate(translator, test, args)
    samples = [judged[i] for i in np.random.default_rng(args.seed).permutation(len(judged))[:10]]
    for t, reference, match in samples:
        say(f"  {t.source}\n    → {t.text}\n    {'=' if match else '≠'} {reference}")
    shown = next((t for t, *_ in samples if len(t.tokens) <= 20), samples[0][0])
    say(draw(translator, shown, trainer.history, args))
    if result["bleu"] is not None:
        say(f"chrF {result['chrf']:.2f}; signature of BLEU: {result['bleu_signature']}")
    say(f'try it: python examples/translate.py {args.out} "{samples[0][0].source}"')
    return result | {
        "samples": [
            {"source": t.source, "translation": t.text, "reference": r} for t, r, _ in samples
        ]
    }


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    began = time.perf_counter()
    args = parse(argv)
    say = (lambda *_: None) if args.quiet else print
    translator, trainer, held_out, test = build(args, say)
    with trainer.run:  # no other run may come into it before this one has ended
        begin(translator, trainer, args, say)
        try:
            trainer.fit()
        except KeyboardInterrupt:
            at = f"stopped at step {trainer.step}; go on with --out {args.out} --resume"
            raise KeyboardInterrupt(at) from None
        if trainer.parallel.rank:
            return {}
        if args.average:
            translator.model.load_state_dict(average_weights(trainer.run.checkpoints()))
            save_weights(
                args.out / "best.safetensors",
                translator.model,
                averaged=len(trainer.run.checkpoints()),
            )
        load_weights(args.out / "best.safetensors", translator.model)
        summary = {
            "steps": trainer.step, "training_seconds": round(trainer.seconds, 1), "valid_loss": trainer.best,
            "held_out_loss": trainer.evaluate(held_out), **report(translator, trainer, test, args, say),
            "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip
        write_json(args.out / "summary.json", summary)
    score = (
        "no BLEU, which needs sacrebleu"
        if summary["bleu"] is None
        else f"BLEU {summary['bleu']:.1f}"
    )
    print(
        f"{summary['sentences']} held-out sentences: loss {summary['held_out_loss']:.3f}, exact match "
        f"{summary['exact_match']:.1%}, {score}; {summary['steps']} steps in {summary['training_seconds']:.0f} s, "
        f"{summary['seconds']:.0f} s in all; run directory {args.out}"
    )
    return summary


if __name__ == "__main__":
    sys.exit(run_script(main))
