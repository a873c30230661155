"""Damaged run directories, states, data files and settings: one clear line each, or no harm."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import (
    INTENSE,
    Damage,
    Judge,
    array_damage,
    digit_damage,
    file_damage,
    json_damage,
    write_state,
)
from runs import timeless, trainer, weights
from scripts import load

import minigrad as mg
import nn
from minigrad import optim
from minigrad.io import load_arrays
from nn.text import SPECIALS, IndexedPairs, PairBatches, Vocabulary, WordTokenizer, read_pairs

RDrop = load("rdrop").RDrop
Tell = Callable[[str], None]
MOST = 10_000 if INTENSE else 160  # cases of a file of many entries
TEXTS = ["a b c", "d", "b a d c b"]


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    mg.manual_seed(0)
    vocab = Vocabulary([*SPECIALS, *"abcde"])
    c = nn.TransformerConfig(9, 9, 12, 2, 1, 1, 20, max_len=24, norm_first=True)
    translator = nn.Translator(nn.Transformer(c), vocab, vocab, WordTokenizer(), WordTokenizer())
    translator.save(directory, settings={"lr": 1.0})
    nn.save_weights(directory / "best.safetensors", translator.model, step=3, valid_loss=1.5)
    return directory


def each(tmp_path: Path, whole: Path, cases: list[Damage]) -> Any:
    """A copy of the directory for each case, damaged."""
    for number, (what, damage) in enumerate(cases):
        directory = shutil.copytree(whole, tmp_path / str(number))
        damage(directory)
        yield what, directory
        shutil.rmtree(directory)


def header_of(path: Path) -> tuple[int, int]:
    """Where the entries of the arrays stand, behind the metadata: digits of that are as good as others."""
    data = path.read_bytes()
    return data.index(b"}", 20), 8 + int.from_bytes(data[:8], "little")


def test_damaged_run_directories(run_directory: Path, tmp_path: Path, tell: Tell) -> None:
    rng, judge = np.random.default_rng(0), Judge()
    expected = [t.text for t in nn.Translator.load(run_directory).translate(TEXTS)]
    cases = json_damage("config.json", rng, most=MOST)(run_directory)
    cases += json_damage("vocab.json", rng, depth=2, most=MOST)(run_directory)
    cases += [case for name in ("config.json", "vocab.json") for case in file_damage(name, rng)]
    cases += [
        case for name in ("config.json", "vocab.json") for case in digit_damage(name, rng, 60)
    ]
    cases += digit_damage("best.safetensors", rng, 60)
    cases += file_damage(
        "best.safetensors", rng, header=header_of(run_directory / "best.safetensors")
    ) + array_damage("best.safetensors", rng)
    for what, directory in each(tmp_path, run_directory, cases):
        judge.case(
            what,
            lambda d=directory: [t.text for t in nn.Translator.load(d).translate(TEXTS)],
            lambda found: found == expected,
            str(directory),
        )
    judge.report("damaged run directories", 300, tell)


@pytest.fixture(scope="module")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("state")
    trainer(directory, max_epochs=1, save_every=2, decay=0.5).fit()
    return directory


def state_damage(whole: Path, rng: np.random.Generator) -> list[Damage]:
    """Cases for the numbers of a state, each replaced or removed."""
    state = load_arrays(whole / "last.safetensors")[1]["trainer"]
    (whole / "state.json").write_text(json.dumps(state))
    found = json_damage("state.json", rng, most=MOST)(whole)
    (whole / "state.json").unlink()

    def through_file(damage: Any) -> Any:
        def apply(directory: Path) -> None:
            arrays, metadata = load_arrays(directory / "last.safetensors")
            (directory / "state.json").write_text(json.dumps(metadata["trainer"]))
            damage(directory)
            changed = json.loads((directory / "state.json").read_text())
            write_state(directory, arrays, changed)

        return apply

    return [(what, through_file(damage)) for what, damage in found]


def test_damaged_training_states(state_directory: Path, tmp_path: Path, tell: Tell) -> None:
    rng, judge = np.random.default_rng(0), Judge((ValueError, OSError, UserWarning))

    def resumed(directory: Path) -> nn.Trainer:
        t = trainer(directory, max_epochs=2, save_every=2, decay=0.5)
        try:
            t.fit(resume=True)
        except FloatingPointError as error:  # a rate of 10^12 is one that somebody may have set
            raise ValueError(f"{directory}: {error}") from None
        return t

    whole = resumed(shutil.copytree(state_directory, tmp_path / "whole"))
    cases = state_damage(state_directory, rng) + file_damage(
        "last.safetensors", rng, header=header_of(state_directory / "last.safetensors")
    )
    cases += digit_damage("last.safetensors", rng, 60)
    cases += array_damage("last.safetensors", rng, "model.")
    for part in ("optimizer.", "average."):
        cases += array_damage("last.safetensors", rng, part)[:24]
    cases += file_damage("metrics.jsonl", rng) + file_damage(".lock", rng)
    if not INTENSE:
        cases = [cases[i] for i in sorted(rng.permutation(len(cases))[:170].tolist())]
    # what the trainer was told to change, or only tells of the past
    free = ("'best'", "'best_step'", "'worse'", "'skipped'", "'entries'", "'loss_sum'", "'loss_count'", "'validated'", "'has_uint32'", "'uinteger'", "'state', 0) = 1000000000000", "'state', 3) = 1000000000000", "last.safetensors missing", "last.safetensors in capitals", "'lr'", "metrics.jsonl")  # fmt: skip

    def right(t: nn.Trainer, what: str) -> bool:
        same = all(np.array_equal(a, weights(t)[name]) for name, a in weights(whole).items())
        return (same and timeless(t.history) == timeless(whole.history)) or any(
            name in what for name in free
        )

    for what, directory in each(tmp_path, state_directory, cases):
        judge.case(
            what, lambda d=directory: resumed(d), lambda t, w=what: right(t, w), str(directory)
        )
    judge.report("damaged training states", 150, tell)


# -- data files ----------------------------------------------------------------------------------------

PAIRS = [(f"a {i} é", f"{i} b ñ") for i in range(40)]


def test_damaged_data_files(tmp_path: Path, tell: Tell) -> None:
    whole, rng, judge = tmp_path / "whole", np.random.default_rng(0), Judge()
    whole.mkdir()
    sides = {
        "a.txt": [a for a, _ in PAIRS],
        "b.txt": [b for _, b in PAIRS],
        "p.tsv": ["\t".join(pair) for pair in PAIRS],
    }
    for name, lines in sides.items():
        data = ("\n".join(lines) + "\n").encode()
        (whole / name).write_bytes(data)
        (whole / f"{name}.gz").write_bytes(gzip.compress(data, mtime=0))
    IndexedPairs.write(whole / "pairs", [([i, i + 1], [7] * (i % 5 + 1)) for i in range(40)], 99)
    readers = {
        "p.tsv": lambda d: read_pairs(d / "p.tsv"), "p.tsv.gz": lambda d: read_pairs(d / "p.tsv.gz"),
        "a.txt": lambda d: read_pairs(d / "a.txt", d / "b.txt"), "b.txt.gz": lambda d: read_pairs(d / "a.txt", d / "b.txt.gz"),
    }  # fmt: skip
    for name, read in readers.items():
        header = (0, (whole / name).stat().st_size) if name.endswith(".gz") else None
        for what, directory in each(tmp_path / name, whole, file_damage(name, rng, header)):
            # text that was cut is text as well, and flags of a .gz do not change what is in it
            judge.case(
                what,
                lambda d=directory, read=read: read(d),
                lambda found: set(found[:-1]) <= set(PAIRS),
                str(directory),
            )
    read = lambda d: [(a.tolist(), b.tolist()) for a, b in IndexedPairs(d / "pairs")]
    expected, data = read(whole), (whole / "pairs").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")  # the ids follow 41 starts and 40 lengths
    index = (start, start + 8 * 41 + 4 * 40)
    bits = file_damage("pairs", rng, (0, start)) + file_damage("pairs", rng, index)[-40:]
    for what, directory in each(tmp_path / "pairs", whole, bits):
        judge.case(
            what,
            lambda d=directory: read(d),
            lambda found: found == expected,
            str(directory),
            "a zero" in what,
        )
    judge.report("damaged data files", 60, tell)


def test_damaged_weights_to_be_averaged(tmp_path: Path, tell: Tell) -> None:
    whole, rng, judge = tmp_path / "whole", np.random.default_rng(0), Judge()
    whole.mkdir()
    model = nn.Linear(3, 2)
    for name in ("a", "b"):
        nn.save_weights(whole / name, model)
    for what, directory in each(tmp_path, whole, file_damage("b", rng) + array_damage("b", rng)):
        judge.case(
            what,
            lambda d=directory: nn.average_weights([d / "a", d / "b"]),
            lambda found: all(np.array_equal(found[n], a) for n, a in model.state_dict().items()),
            str(directory),
        )
    judge.report("damaged weights to be averaged", 60, tell)


# -- settings ------------------------------------------------------------------------------------------


def test_settings_that_cannot_be(tell: Tell) -> None:
    odd = [float("nan"), float("inf"), -1, 2.5, "x", [], {}, 10.0, -(10**12), (1, 2, 3)]
    model = nn.Linear(2, 1)
    data, ids = [(np.ones((2, 2), np.float32),)], np.arange(50)
    lm = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=20))
    write = lambda **settings: nn.generate(lm, [1, 2], **{"max_len": 3, **settings})
    draw = lambda **settings: nn.sample(lm, prompt=[1, 2], **{"max_len": 3, **settings})
    adam = lambda **settings: optim.Adam(nn.Linear(2, 1).parameters(), **settings)
    fit = lambda **settings: nn.Trainer(
        model,
        adam_of_model,
        data,
        objective=lambda m, b: m(b[0]).sum(),
        **{"max_steps": 1, **settings},
    )
    adam_of_model = optim.Adam(model.parameters())
    makers: dict[str, Any] = {
        **{name: lambda v, n=name: fit(**{n: v}) for name in (
            "max_epochs", "max_steps", "accumulate", "validate_every", "patience", "keep_last", "save_every", "log_every",
            "skip_nonfinite",
        )},
        "batch_size": lambda v: nn.ArrayBatches(ids, batch_size=v), "length": lambda v: nn.WindowBatches(ids, v, 2),
        "batch_size of windows": lambda v: nn.WindowBatches(ids, 4, v), "seed": lambda v: nn.ArrayBatches(ids, batch_size=2, seed=v),
        "label_smoothing": lambda v: nn.ModelLoss(label_smoothing=v),
        "schedule": lambda v: fit(schedule=v), "parallel": lambda v: fit(parallel=v),
        **{name: lambda v, n=name: adam(**{n: v}) for name in ("lr", "eps", "weight_decay", "clip_norm", "betas")},
        **{name: lambda v, n=name: nn.TransformerConfig(9, 9, **{n: v}) for name in (
            "d_model", "num_heads", "num_encoder_layers", "d_ff", "max_len", "dropout", "norm_eps", "activation", "norm",
        )},
        **{f"{name} of generate": lambda v, n=name: write(**{n: v}) for name in (
            "max_len", "min_len", "repetition_penalty", "no_repeat_ngram_size", "suppress", "first", "eos",
        )},
        **{name: lambda v, n=name: draw(**{n: v}) for name in ("temperature", "top_k", "top_p")},
        "beam_size": lambda v: write(num_beams=v), "length_penalty": lambda v: write(num_beams=2, length_penalty=v),
        "max_tokens": lambda v: PairBatches([([1], [1])], v), "decay": lambda v: nn.MovingAverage(model, v),
        "alpha": lambda v: RDrop(v),
    }  # fmt: skip
    numbers = dict.fromkeys(
        ("lr", "eps", "weight_decay", "clip_norm", "repetition_penalty", "temperature", "alpha"),
        (2.5, 10.0),
    )
    legal: dict[str, Any] = {
        **numbers, "suppress": ([], (1, 2, 3), {}), "first": ([], (1, 2, 3), {}), "eos": ([], (1, 2, 3), {}, -1),
        "length_penalty": (2.5, 10.0, -1),
    }  # fmt: skip
    judge = Judge((ValueError, TypeError))
    for name, make in makers.items():
        own = name.split(" ")[0]
        for value in odd:
            judge.case(
                f"{name} = {value!r}",
                lambda m=make, v=value: m(v),
                lambda _, n=own, v=value: v in legal.get(n, ()),
                "process" if name == "parallel" else own,
            )
    judge.report("settings", 100, tell)


EXTREMES = (1e-320, 1e-45, 1e-30, 1e20, 1e38, 1e300, 1e308)


@pytest.mark.parametrize("parallel", [1, 2])
def test_extreme_settings_of_a_run(parallel: int, tell: Tell) -> None:
    """Finite weights, or one error: no warning of NumPy's before it, which is an error here."""
    kinds: dict[str, tuple[Any, tuple[str, ...]]] = {
        "Adam": (optim.Adam, ("lr", "eps", "weight_decay", "clip_norm")), "AdamW": (optim.AdamW, ("lr", "weight_decay")),
        "SGD": (lambda ps, **o: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.9, **o}), ("lr", "momentum", "weight_decay")),
        "RDrop": (RDrop, ("alpha",)),
    }  # fmt: skip
    judge = Judge((ValueError, FloatingPointError, OverflowError))

    def run(kind: str, name: str, value: float) -> nn.Trainer:
        t = trainer(max_steps=3, parallel=parallel)
        make = kinds[kind][0]
        rdrop = kind == "RDrop"
        optimizer = t.optimizer if rdrop else make(t.model.parameters(), **{name: value})
        t = nn.Trainer(
            t.model,
            optimizer,
            t.train,
            valid=t.valid,
            max_steps=3,
            progress=False,
            parallel=parallel,
            objective=make(**{name: value}) if rdrop else None,
        )
        t.fit()
        return t

    def finite(t: nn.Trainer) -> bool:
        return all(np.isfinite(array).all() for array in weights(t).values())

    for kind, (_, names) in kinds.items():
        for name in names:
            for value in EXTREMES if INTENSE else EXTREMES[::2] if parallel == 1 else EXTREMES[-1:]:
                judge.case(
                    f"{kind} {name}={value}",
                    lambda k=kind, n=name, v=value: run(k, n, v),
                    finite,
                    None,
                )
    tell(f"{judge.counts.total()} runs with extreme settings: {dict(judge.counts)}")
    assert not judge.wrong, "\n".join(judge.wrong)
    assert judge.counts["refused"] > 5


def test_extreme_settings_of_what_writes() -> None:
    lm = nn.LanguageModel(
        nn.LanguageModelConfig(9, 8, 2, 1, 16, max_len=20), generator=np.random.default_rng(0)
    )
    greedy = nn.generate(lm, [1, 2], max_len=6)
    for value in EXTREMES:
        drawn = nn.sample(lm, prompt=[1, 2], max_len=6, temperature=value)[0].tokens
        assert drawn == greedy if value < 1 else all(0 <= token < 9 for token in drawn)
        for options in (
            {"repetition_penalty": value},
            {"repetition_penalty": value, "num_beams": 3},
        ):
            assert len(nn.generate(lm, [1, 2], max_len=6, **options)) == 6
    assert (
        nn.generate(lm, [1, 2], max_len=10**15, eos=greedy[2])[-1] == greedy[2]
    )  # no room is taken ahead
    with pytest.raises(ValueError, match="the rules .* leave no token that may come next"):
        nn.generate(lm, [1, 2], suppress=range(9))
    with pytest.raises(ValueError, match="the rules .* leave no token that may come next"):
        nn.generate(lm, [1, 2], suppress=range(9), num_beams=2)
