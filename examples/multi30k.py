"""Train the small Transformer of Wu et al. (2021), arXiv:2105.14462, on Multi30k: English to German, 41.02 BLEU there.

    python examples/multi30k.py --data DIR                      train, average, evaluate on the validation pairs
    python examples/multi30k.py --data DIR --resume             go on with a run that was cut off
    python examples/multi30k.py --data DIR --evaluate           average and evaluate the checkpoints of a run so far
    python examples/multi30k.py --data DIR --evaluate --translate DIR/test.lc.norm.tok.en    ... and translate files
    python examples/multi30k.py --data DIR --begin-with RUN_DIR --r-drop 5 --out OTHER_DIR   from what a run has learnt

DIR holds train.lc.norm.tok.en, train.lc.norm.tok.de and the same of val, plain or .gz: text that is tokenized and in
lower case. Without further options the settings are the published ones. `--bpe-dropout`, `--r-drop` and `--ema` are
what the field has learnt since.
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rdrop import RDrop

import minigrad as mg
from minigrad.console import count, run_script, seed
from minigrad.io import read_json, save_arrays, write_atomically, write_json
from minigrad.io.reading import found_file
from minigrad.optim import Adam, inverse_sqrt_schedule
from minigrad.runtime import available_cores, get_num_threads
from nn import (
    AttentionConfig,
    ModelLoss,
    MovingAverage,
    RunDirectory,
    Trainer,
    Transformer,
    TransformerConfig,
    Translator,
    average_weights,
)
from nn.generation.beam import check_beam
from nn.text import (
    SPECIALS,
    BPEDropout,
    BPETokenizer,
    PairBatches,
    Vocabulary,
    read_lines,
    read_pairs,
    translation_scores,
)

Pair = tuple[str, str]


COUNT: dict[str, Any] = {"type": count, "metavar": "N"}
SHARE: dict[str, Any] = {"type": float, "metavar": "P"}
OF_THE_CALL = {
    "data", "out", "steps", "patience", "resume", "evaluate", "translate", "processes", "quiet", "average", "beam",
    "length_penalty", "begin_with",
}  # fmt: skip
"""Options that are not settings of the training: they may differ when a run goes on."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("data").add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="where train.* and val.* are")
    add("--source", default="en", metavar="LANG", help="(default: %(default)s)")
    add("--target", default="de", metavar="LANG", help="(default: %(default)s)")
    add(
        "--kind",
        default=".lc.norm.tok",
        metavar="X",
        help="files are train, then this, .LANG (default: %(default)s)",
    )
    add(
        "--merges",
        **COUNT,
        default=10_000,
        help="of the joint byte-level BPE (default: %(default)s)",
    )
    add(
        "--bpe-dropout",
        **SHARE,
        default=0.0,
        help="share of merges left out, anew in each epoch (default: none)",
    )
    add = parser.add_argument_group("model").add_argument
    add(
        "--layers",
        **COUNT,
        default=4,
        help="encoder layers, and decoder layers (default: %(default)s)",
    )
    add("--d-model", **COUNT, default=128, help="(default: %(default)s)")
    add("--d-ff", **COUNT, default=256, help="(default: %(default)s)")
    add("--num-heads", **COUNT, default=4, help="(default: %(default)s)")
    add("--dropout", **SHARE, default=0.3, help="(default: %(default)s)")
    add("--attention-dropout", **SHARE, default=0.0, help="of attention weights (default: none)")
    add(
        "--activation-dropout",
        **SHARE,
        default=0.0,
        help="inside feed-forward nets (default: none)",
    )
    add("--norm-first", action="store_true", help="norm before each sublayer instead of after it")


def add_training_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("training").add_argument
    add("--steps", **COUNT, default=8000, help="updates (default: %(default)s)")
    add(
        "--batch-tokens",
        **COUNT,
        default=8192,
        help="padded tokens a side in an update (default: %(default)s)",
    )
    add(
        "--accumulate",
        **COUNT,
        default=1,
        help="batches that share an update, each so much smaller (default: 1)",
    )
    add(
        "--lr",
        type=float,
        default=0.005,
        metavar="X",
        help="largest learning rate (default: %(default)s)",
    )
    add("--warmup", **COUNT, default=2000, help="updates until then (default: %(default)s)")
    add(
        "--clip",
        type=float,
        default=1.0,
        metavar="X",
        help="largest norm of the gradients (default: %(default)s)",
    )
    add("--label-smoothing", **SHARE, default=0.1, help="(default: %(default)s)")
    add(
        "--r-drop",
        type=float,
        default=0.0,
        metavar="ALPHA",
        help="weight of R-Drop's divergence (default: none)",
    )
    add(
        "--ema",
        type=float,
        metavar="D",
        help="decay of a moving average of weights, which is validated and saved",
    )
    add(
        "--validate-every",
        **COUNT,
        default=100,
        help="updates between checkpoints (default: %(default)s)",
    )
    add(
        "--save-every",
        **COUNT,
        default=50,
        help="updates between saved states (default: %(default)s)",
    )
    add("--patience", **COUNT, help="stop after N validations without a better one")
    add(
        "--by-loss",
        action="store_true",
        help="judge by validation loss; else by BLEU of greedy translations",
    )
    add("--seed", type=seed, default=1, metavar="N", help="(default: %(default)s)")
    add = parser.add_argument_group("the run").add_argument
    add(
        "--out",
        type=Path,
        default=Path("runs/multi30k"),
        metavar="DIR",
        help="run directory (default: %(default)s)",
    )
    add(
        "--resume",
        action="store_true",
        help="go on where the run was cut off, with the settings it began with",
    )
    add(
        "--begin-with",
        type=Path,
        metavar="DIR",
        help="the last state of another run, to go on from in a new one",
    )
    add("--evaluate", action="store_true", help="do not train")
    add(
        "--average",
        **COUNT,
        default=10,
        help="checkpoints to average (default: the last %(default)s)",
    )
    add("--beam", **COUNT, default=5, help="(default: %(default)s)")
    add("--length-penalty", type=float, default=1.0, metavar="A", help="(default: %(default)s)")
    add(
        "--translate",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files to translate at the end, into --out",
    )
    add("--processes", **COUNT, default=1, help="that share each batch (default: %(default)s)")
    add("--quiet", action="store_true", help="no progress: the scores only")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    add_training_options(parser)
    args = parser.parse_args(argv)
    check_beam(args.beam, args.length_penalty)
    for file in args.translate:
        found_file(file)
    path = args.out / "config.json"
    if args.evaluate and not path.exists():
        parser.error(f"{args.out} holds no run")
    if args.resume and path.exists():
        config = read_json(path)
        config.expect_unchanged("settings")
        saved = config.object("settings", {})
        args = argparse.Namespace(
            **{**vars(args), **{k: v for k, v in saved.items() if k not in OF_THE_CALL}}
        )
    return args


# -- data and model --------------------------------------------------------------------------------


def pairs_of(args: argparse.Namespace, part: str) -> list[Pair]:
    """The sentence pairs of train or val."""
    paths = [args.data / f"{part}{args.kind}.{language}" for language in (args.source, args.target)]
    return read_pairs(
        *[path if path.exists() else path.with_name(path.name + ".gz") for path in paths],
        keep_repeated=True,
    )


def untrained(args: argparse.Namespace, train: list[Pair]) -> Translator:
    """A translator with one vocabulary for both sides: all pieces of the BPE, so that no token is unknown."""
    texts = (text for pair in train for text in pair)
    tokenizer = BPETokenizer.train(texts, 256 + args.merges, whole_words=True)
    vocab = Vocabulary([*SPECIALS, *tokenizer.pieces])
    config = TransformerConfig(
        len(vocab),
        len(vocab),
        args.d_model,
        args.num_heads,
        args.layers,
        args.layers,
        args.d_ff,
        dropout=args.dropout,
        attention=AttentionConfig(dropout=args.attention_dropout),
        activation_dropout=args.activation_dropout,
        norm_first=args.norm_first,
        tie="all",
        output_bias=False,
        max_len=256,
    )
    return Translator(Transformer(config), vocab, vocab, tokenizer, tokenizer, source_eos=True)


def batches_of(
    args: argparse.Namespace, translator: Translator, train: list[Pair], valid: list[Pair]
) -> Any:
    """Batches to learn from, and to validate with."""
    vocab, split = translator.source_vocab, translator.source_tokenizer
    ends = ({"eos": True}, {"bos": True, "eos": True})

    def plain(pair: Pair) -> tuple[list[int], ...]:
        return tuple(vocab.encode(split(text), **end) for text, end in zip(pair, ends))

    size = args.batch_tokens // args.accumulate
    held = PairBatches([plain(pair) for pair in valid], args.batch_tokens, shuffle=False)
    if not args.bpe_dropout:
        return PairBatches([plain(pair) for pair in train], size, seed=args.seed), held
    dropout = BPEDropout(split, args.bpe_dropout)  # type: ignore[arg-type]

    def drawn(pair: Pair, generator: np.random.Generator) -> tuple[list[int], ...]:
        return tuple(vocab.encode(dropout(text, generator), **end) for text, end in zip(pair, ends))

    return PairBatches(train, size, seed=args.seed, encode=drawn), held


# -- training --------------------------------------------------------------------------------------


def greedy_bleu(translator: Translator, valid: list[Pair]) -> float:
    """BLEU of greedy translations of the validation sources."""
    texts = [t.text for t in translator.translate([a for a, _ in valid])]
    return translation_scores(texts, [b for _, b in valid], tokenize="none", lowercase=True).bleu


def train(args: argparse.Namespace, pairs: list[Pair], valid: list[Pair]) -> int:
    """Train to the end; a checkpoint is saved at each validation. The rank of this process, 0 if it is alone."""
    mg.manual_seed(args.seed)
    translator = untrained(args, pairs)
    model = translator.model
    batches, held = batches_of(args, translator, pairs, valid)
    objective = RDrop if args.r_drop else ModelLoss
    options = {"alpha": args.r_drop} if args.r_drop else {}
    trainer = Trainer(
        model,
        Adam(model.parameters(), args.lr, betas=(0.9, 0.98), eps=1e-8, clip_norm=args.clip),
        batches,
        objective=objective(label_smoothing=args.label_smoothing, **options),
        valid=held,
        schedule=inverse_sqrt_schedule(args.warmup),
        parallel=args.processes,
        max_steps=args.steps,
        accumulate=args.accumulate,
        validate_every=args.validate_every,
        patience=args.patience,
        score=None if args.by_loss else lambda _: greedy_bleu(translator, valid),
        average=None if args.ema is None else MovingAverage(model, args.ema),
        keep_last=args.average,
        save_every=args.save_every,
        log_every=50,
        run_dir=args.out,
        progress=not args.quiet,
    )
    with trainer.run:
        if trainer.parallel.rank:  # of the ranks that mpiexec starts, the first alone writes
            pass
        elif not (args.out / "config.json").exists():
            if args.begin_with:
                expect_same_vocabulary(translator, args.begin_with)
                hand_over(RunDirectory(args.begin_with), trainer.run, args.ema)
                args.resume = True
            settings = {k: v for k, v in vars(args).items() if k not in OF_THE_CALL}
            translator.save(args.out, settings=settings)
        else:
            expect_same_vocabulary(translator, args.out)
        trainer.fit(resume=args.resume)
    return trainer.parallel.rank


def expect_same_vocabulary(translator: Translator, run_dir: Path) -> None:
    if not translator.has_vocabularies_of(run_dir):
        raise ValueError(
            f"{run_dir}: its vocabulary is not that of this data; has the data changed since it began?"
        )


def hand_over(before: RunDirectory, run: RunDirectory, ema: float | None) -> None:
    """Begin a run with the weights, the optimizer and the step of another, at the start of an epoch."""
    parts, state = before.load_state()
    state.pop("data", None)  # the batches may differ
    parts["average"] = {**parts["model"], "updates": np.array([state["step"]])} if ema else {}
    arrays = {
        f"{part}.{name}": array for part, found in parts.items() for name, array in found.items()
    }
    fresh = {
        "batch": 0,
        "best": None,
        "best_step": 0,
        "worse": 0,
        "loss_sum": 0.0,
        "loss_count": 0.0,
        "entries": 0,
    }
    run.save_state(arrays, {**state, "epoch": state["epoch"] + 1, **fresh})


# -- evaluation ------------------------------------------------------------------------------------


def average(args: argparse.Namespace) -> Path:
    """The mean of the last checkpoints, in a file of its own."""
    checkpoints = RunDirectory(args.out).checkpoints()[-args.average :]
    if not checkpoints:
        raise ValueError(
            f"{args.out}: there is no checkpoint yet; the first is after {args.validate_every} updates"
        )
    path = args.out / "averaged.safetensors"
    save_arrays(path, average_weights(checkpoints), {"of": [file.name for file in checkpoints]})
    return path


def evaluate(args: argparse.Namespace, valid: list[Pair]) -> tuple[Translator, dict[str, Any]]:
    """The translator with averaged weights, and the scores of its translations of the validation sources."""
    averaged = average(args)
    found: dict[str, Any] = {}
    for name, file, beam in [
        ("last, greedy", RunDirectory(args.out).checkpoints()[-1], 1),
        ("averaged, greedy", averaged, 1),
        ("averaged, beam", averaged, args.beam),
    ]:
        translator = Translator.load(args.out, file.name)
        texts = [
            t.text for t in translator.translate([a for a, _ in valid], beam, args.length_penalty)
        ]
        scores = translation_scores(texts, [b for _, b in valid], tokenize="none", lowercase=True)
        found[name] = asdict(scores)
        print(
            f"{name}: BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f} on {len(valid):,} validation pairs",
            flush=True,
        )
    print(f"{scores.bleu_signature}; {scores.chrf_signature}")
    return translator, found


def translate(args: argparse.Namespace, translator: Translator, file: Path) -> None:
    """Translate a file, a line for each line, into the run directory."""
    lines = [line.strip() for line in read_lines(file)]
    try:
        found = iter(
            translator.translate([line for line in lines if line], args.beam, args.length_penalty)
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    text = "".join((next(found).text if line else "") + "\n" for line in lines)
    path = args.out / f"{file.name.split('.')[0]}.{args.target}"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
    print(f"{len(lines):,} lines: {path}")


def machine() -> dict[str, Any]:
    """Where this runs."""
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in _lines("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "",
    )
    versions = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "minigrad": mg.__version__,
    }
    return {
        "cpu": cpu or platform.processor(),
        "cores": available_cores(),
        "blas_threads": get_num_threads(),
        **versions,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    args = parse(argv)
    valid = pairs_of(args, "val")
    if not args.evaluate and train(args, pairs_of(args, "train"), valid):
        return {}
    translator, scores = evaluate(args, valid)
    for file in args.translate:
        translate(args, translator, file)
    metrics = RunDirectory(args.out).read_metrics()
    last = metrics[-1] if metrics else {}
    speeds = [entry["targets_per_second"] for entry in metrics if "targets_per_second" in entry]
    summary = {
        "scores": scores, "steps": last.get("step"), "training_seconds": last.get("seconds"),
        "target_tokens_per_second": round(float(np.mean(speeds))) if speeds else None, "machine": machine(),
        "beam": args.beam, "length_penalty": args.length_penalty, "averaged": args.average,
    }  # fmt: skip
    write_json(args.out / "summary.json", summary)
    return summary


if __name__ == "__main__":
    sys.exit(run_script(main))
