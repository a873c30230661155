"""Damaged run directories, states, data files and settings: one clear line each, or no harm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import Damage, Judge, array_damage, file_damage, json_damage
from runs import timeless, trainer, weights

import minigrad as mg
import nn
from minigrad.serialization import load_arrays, save_arrays
from nn.text import SPECIALS, Vocabulary, WordTokenizer

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


def test_damaged_run_directories(run_directory: Path, tmp_path: Path) -> None:
    rng, judge = np.random.default_rng(0), Judge()
    expected = [t.text for t in nn.Translator.load(run_directory).translate(TEXTS)]
    cases = json_damage("config.json", rng)(run_directory)
    cases += json_damage("vocab.json", rng, depth=2)(run_directory)
    cases += [case for name in ("config.json", "vocab.json") for case in file_damage(name, rng)]
    cases += file_damage("best.safetensors", rng, header=header_of(run_directory / "best.safetensors")) + array_damage(
        "best.safetensors", rng
    )
    allowed = {  # other settings than the run's own, and none that a reader could know to be wrong
        "dropout", "attention_dropout", "activation_dropout", "settings", "lr", "relative_buckets", "rotary_base",
        "relative_max_distance", "max_len", "lowercase", "norm_eps", "output_scale", "scale_embedding",
        "attention_scale", "window", "window_layers", "qk_norm", "source_eos", "num_heads",
    }  # fmt: skip
    for what, directory in each(tmp_path, run_directory, cases):
        legal = any(f"'{name}'" in what for name in allowed)
        judge.case(
            what, lambda d=directory: [t.text for t in nn.Translator.load(d).translate(TEXTS)],
            lambda found, legal=legal: legal or found == expected, str(directory),
        )  # fmt: skip
    judge.report("damaged run directories", 300)


@pytest.fixture(scope="module")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("state")
    trainer(directory, max_epochs=1, save_every=2).fit()
    return directory


def state_damage(whole: Path, rng: np.random.Generator) -> list[Damage]:
    """Cases for the numbers of a state, each replaced or removed."""
    state = load_arrays(whole / "last.safetensors")[1]["trainer"]
    (whole / "state.json").write_text(json.dumps(state))
    found = json_damage("state.json", rng)(whole)
    (whole / "state.json").unlink()

    def through_file(damage: Any) -> Any:
        def apply(directory: Path) -> None:
            arrays, metadata = load_arrays(directory / "last.safetensors")
            (directory / "state.json").write_text(json.dumps(metadata["trainer"]))
            damage(directory)
            changed = json.loads((directory / "state.json").read_text())
            save_arrays(directory / "last.safetensors", arrays, {"trainer": changed})

        return apply

    return [(what, through_file(damage)) for what, damage in found]


def test_damaged_training_states(state_directory: Path, tmp_path: Path) -> None:
    rng, judge = np.random.default_rng(0), Judge()

    def resumed(directory: Path) -> nn.Trainer:
        t = trainer(directory, max_epochs=2, save_every=2)
        t.fit(resume=True)
        return t

    whole = resumed(shutil.copytree(state_directory, tmp_path / "whole"))
    cases = state_damage(state_directory, rng) + file_damage(
        "last.safetensors", rng, header=header_of(state_directory / "last.safetensors")
    )
    cases += array_damage("last.safetensors", rng, "model.") + array_damage("last.safetensors", rng, "optimizer.")[:24]
    # what the trainer was told to change, or only tells of the past
    free = ("'best'", "'best_step'", "'worse'", "'skipped'", "'entries'", "'loss_sum'", "'loss_count'", "'validated'", "'has_uint32'", "'uinteger'", "'state', 0) = 1000000000000", "'state', 3) = 1000000000000", "last.safetensors missing", "'lr'")  # fmt: skip

    def right(t: nn.Trainer, what: str) -> bool:
        same = all(np.array_equal(a, weights(t)[name]) for name, a in weights(whole).items())
        return (same and timeless(t.history) == timeless(whole.history)) or any(name in what for name in free)

    for what, directory in each(tmp_path, state_directory, cases):
        judge.case(what, lambda d=directory: resumed(d), lambda t, w=what: right(t, w), str(directory))
    judge.report("damaged training states", 150)
