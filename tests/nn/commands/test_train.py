"""`minigrad train`: what it learns from, prints, writes and refuses."""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import math
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import call, error_of, hide_packages, read_json
from support.environment import needs

import nn
from minigrad.io import load_arrays, save_arrays
from minigrad.optim import cosine_schedule
from nn import commands
from nn.commands import COMMANDS, main, train, translate
from nn.commands.console import run_script
from nn.text import toy_corpora as corpora
from nn.text.scores import Scores

TINY = (
    "--sentences 120 --valid-size 15 --test-size 15 --layers 1 --d-model 8 --num-heads 2 --d-ff 8 --epochs 3"
    " --batch-tokens 256 --warmup 3 --quiet --processes 1"
)


def weights(path: Path) -> dict[str, np.ndarray]:
    return load_arrays(path)[0]


# -- the generated corpora -------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "--pair en-es --reverse"])
def test_load_pairs_holds_out_new_sentences(options: str, tmp_path: Path) -> None:
    args = train.parse([*options.split(), "--out", str(tmp_path)])
    learned, valid, test = train.load_pairs(args)
    always = [pair[::-1] if args.reverse else pair for pair in corpora.ALWAYS[args.pair]]
    assert learned[: len(always)] == always and learned.count(always[0]) == 8
    sources = [a for part in (learned[: -7 * len(always)], valid, test) for a, _ in part]
    assert len(sources) == len({*sources}) == 8000 and len(test) == 600


@given(st.integers(3, 40), st.integers(1, 9), st.integers(1, 9))
def test_load_pairs_of_a_file_holds_out_at_most_a_sixth(n: int, test: int, valid: int) -> None:
    """At least one pair is held out for validation, and one for the test."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "a.tsv"
        file.write_text("".join(f"a {i}\tb {i}\n" for i in range(n)))
        sizes = ["--test-size", str(test), "--valid-size", str(valid)]
        args = train.parse(["--data", str(file), *sizes, "--out", str(Path(directory) / "run")])
        parts = train.load_pairs(args)
    most = max(1, n // 6)
    assert [*map(len, parts)] == [
        n - min(test, most) - min(valid, most),
        min(valid, most),
        min(test, most),
    ]
    assert {pair for part in parts for pair in part} == {(f"a {i}", f"b {i}") for i in range(n)}


@pytest.mark.parametrize(("options", "sizes"), [("--valid", (27, 2, 3)), ("--test", (26, 4, 2))])
def test_load_pairs_holds_out_what_no_file_has(
    tmp_path: Path, options: str, sizes: tuple[int, ...]
) -> None:
    for name, n in (("a.tsv", 30), ("b.tsv", 2)):
        (tmp_path / name).write_text("".join(f"{name} {i}\tb {i}\n" for i in range(n)))
    line = f"--data {tmp_path}/a.tsv {options} {tmp_path}/b.tsv --out {tmp_path}/run"
    size = "--test-size 3" if options == "--valid" else "--valid-size 4"
    parts = train.load_pairs(train.parse([*line.split(), *size.split()]))
    assert tuple(map(len, parts)) == sizes
    of_file = [{source.split()[0] for source, _ in part} == {"b.tsv"} for part in parts]
    assert of_file == [False, options == "--valid", options == "--test"]


def test_choose_tokenizer_without_a_name_depends_on_the_script() -> None:
    args = train.parse(["--data", "pairs.tsv"])
    texts = {"我有一只猫": "char", "ねこがいる": "char", "고양이가 있다": "word", "a cat": "word"}
    for text, name in texts.items():
        assert train.choose_tokenizer(None, [text], args).name == name


def test_resume_with_other_vocabularies_is_refused(tmp_path: Path) -> None:
    (tmp_path / "last.safetensors").touch()
    translator: Any = SimpleNamespace(has_vocabularies_of=lambda directory: False)
    trainer: Any = SimpleNamespace(parallel=SimpleNamespace(rank=0))
    with pytest.raises(ValueError, match=f"^{tmp_path}: its vocabulary is not that of this data"):
        train.start_run(translator, trainer, argparse.Namespace(out=tmp_path, resume=True))


# -- a whole run -----------------------------------------------------------------------------------


def test_train_writes_all_files_of_a_run(run: SimpleNamespace) -> None:
    files = "config.json vocab.json best.safetensors last.safetensors metrics.jsonl summary.json"
    pictures = {"loss.png", "attention.png"} if find_spec("matplotlib") else {}
    assert {path.name for path in run.directory.iterdir()} == {*files.split(), *pictures}
    summary = read_json(run.directory / "summary.json")
    assert summary == run.result
    entries = [*map(json.loads, (run.directory / "metrics.jsonl").read_text().splitlines())]
    losses = [entry["valid_loss"] for entry in entries if "valid_loss" in entry]
    assert len(losses) == 9 and summary["valid_loss"] == min(losses) < 0.5 * losses[0]
    assert summary["steps"] == entries[-1]["step"]


def test_train_summary_equals_definitions(run: SimpleNamespace) -> None:
    summary, translator, pairs = run.result, run.translator, dict(run.test)
    losses: list[float] = []
    for a, b in run.test:
        source, target = translator.source_vocab.encode(a.split()), b.split()
        ids = translator.target_vocab.encode(target, bos=True, eos=True)
        losses += [*translator.model.loss([source], [ids], reduction="none").data.ravel()]
    assert summary["held_out_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    texts = [t.text for t in translator.translate([*pairs], beam_size=4)]
    matches = np.mean([text == pair for text, pair in zip(texts, pairs.values())])
    assert summary["exact_match"] == pytest.approx(matches) and matches > 0.4
    if not find_spec("sacrebleu"):
        assert summary["bleu"] is None
        return
    scores = nn.text.translation_scores(texts, [*pairs.values()])
    assert summary["bleu"] == pytest.approx(scores.bleu) and scores.bleu > 60


def test_train_prints_samples_and_summary(run: SimpleNamespace) -> None:
    lines, s = run.out, run.result
    assert "1,121 pairs to learn, 40 to validate, 60 held out" in run.err
    for source, translation, reference in map(dict.values, s["samples"]):
        mark, at = "=" if translation == reference else "≠", lines.index(f"  {source}")
        assert lines[at + 1 : at + 3] == [f"    → {translation}", f"    {mark} {reference}"]
    bleu = "no BLEU, which needs sacrebleu" if s["bleu"] is None else f"BLEU {s['bleu']:.1f}"
    figures = f"loss {s['held_out_loss']:.3f}, exact match {s['exact_match']:.1%}, {bleu}"
    assert lines[-1].startswith(f"60 held-out sentences: {figures}; {s['steps']} steps in ")
    assert len(s["samples"]) == 10 and len(lines) == 3 * 10 + 1 + (s["bleu"] is not None)
    order = np.random.default_rng(0).permutation(60)[:10]
    assert [row["source"] for row in s["samples"]] == [run.test[i][0] for i in order]
    validations = [line for line in run.err if "valid_loss" in line]
    others = [line for line in run.err if not line.startswith("step ")]
    assert len(validations) == 9 and len(others) == 5 + (s["bleu"] is None), run.err


@pytest.mark.parametrize(
    "options", ["", "--quiet", "--seed 7 --dropout 0.25 --label-smoothing 0.125"]
)
def test_report_prints_ten_sentences_with_their_scores_and_draws_one(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    """Draw the first one with at most 20 tokens."""
    drawn: list[Any] = []
    compared: list[Any] = []

    def scores(*args: Any, **named: Any) -> Scores:
        compared.append((*args, named))
        return Scores(12.5, "sig", 67.5, "other")

    monkeypatch.setattr(train, "find_spec", lambda name: True)
    monkeypatch.setattr(train, "translation_scores", scores)
    monkeypatch.setattr(train.plots, "attention_grid", lambda *args: drawn.append(args[1:]))
    monkeypatch.setattr(train.plots, "loss_curve", lambda *args, **named: drawn.append((*args, named)))  # fmt: skip
    args, translator = train.parse([*options.split(), "--out", str(tmp_path)]), run.translator
    history: list[Any] = [{"step": 1}]
    test = run.test[:12]
    done = call(
        lambda _: train.report(translator, SimpleNamespace(history=history), test, args), ""
    )
    translations = translator.translate([a for a, _ in test], 4)
    rows = [{"source": t.source, "translation": t.text, "reference": b} for t, (_, b) in zip(translations, test)]  # fmt: skip
    order = np.random.default_rng(args.seed).permutation(12)[:10]
    assert done.result["samples"] == [rows[i] for i in order]
    texts = [row["translation"] for row in rows]
    assert compared == [(texts, [[b] for _, b in test], {"tokenize": "13a"})]
    assert (done.result["bleu"], done.result["chrf"], done.result["sentences"]) == (12.5, 67.5, 12)
    _, source, target = translator.attention(translations[order[0]])
    title = f"cross-attention: {rows[order[0]]['source']}  →  {rows[order[0]]['translation']}"
    losses = f"loss; training with dropout {args.dropout}, label smoothing {args.label_smoothing}"
    settings = {"vocabulary": len(translator.target_vocab), "label_smoothing": args.label_smoothing}
    assert drawn == [
        (target, source, title, tmp_path / "attention.png"),
        (history, losses, tmp_path / "loss.png", settings),
    ]
    shown = [f"pictures: {tmp_path}/loss.png, {tmp_path}/attention.png"]
    assert done.out[30:] == ([] if args.quiet else ["chrF 67.50; signature of BLEU: sig"])
    assert done.err[-1:] == ([] if args.quiet else shown)


# -- runs that are cut off -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an uninterrupted tiny run."""
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "draw", lambda *_: None)
        patch.setattr(train, "name_missing_extras", lambda: None)
        done = call(train.main, f"{TINY} --out {directory}")
    assert not done.err and len(done.out) == 1  # --quiet
    return directory


@pytest.mark.parametrize(
    ("at", "error", "code", "message"),
    [
        (5, KeyboardInterrupt, 130, "stopped at step 5; continue with --out {} --resume"),
        (1, MemoryError, 1, "error: MemoryError"),
    ],
)
def test_train_resumed_equals_an_uninterrupted_run(
    whole: Path, undrawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    at: int, error: type[BaseException], code: int, message: str,
) -> None:  # fmt: skip
    """Ctrl-C saves the state; another error before the first saved state leaves none."""
    step = nn.Trainer._step

    def stopped(self: nn.Trainer, batches: list[Any]) -> Any:
        if self.step == at:
            raise error
        return step(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(nn.Trainer, "_step", stopped)
        done = call(lambda argv: run_script(lambda: train.main(argv)), f"{TINY} --out {tmp_path}")
    assert done.result == code and done.err == [message.format(tmp_path)]
    again = call(train.main, f"--resume --quiet --out {tmp_path}").result  # with its settings
    resumed, expected = weights(tmp_path / "last.safetensors"), weights(whole / "last.safetensors")
    assert all(np.array_equal(resumed[name], array) for name, array in expected.items())
    summary = read_json(whole / "summary.json")
    assert {k for k in summary if summary[k] != again[k]} <= {"seconds", "training_seconds"}
    assert again["training_seconds"] <= again["seconds"]


def test_train_into_a_directory_of_a_run_or_of_other_files_is_refused(
    whole: Path, tmp_path: Path
) -> None:
    message = f"{whole} holds a run already: pass --resume, or another --out"
    assert message in error_of(train.main, f"{TINY} --out {whole}")
    (tmp_path / "notes.txt").write_text("no run", encoding="utf-8")
    line = error_of(train.main, f"--resume --out {tmp_path}")
    assert f"--resume: {tmp_path} holds no run: it has files" in line
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    message = f"--out must be a directory without a model, got {tmp_path}"
    assert message in error_of(train.main, f"{TINY} --out {tmp_path}")
    assert (tmp_path / "config.json").read_text(encoding="utf-8") == "{}"


def test_train_over_a_run_that_failed_writes_its_own_settings(
    undrawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails before its first saved state leaves config.json and vocab.json."""

    def fail(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(nn.Trainer, "_step", fail)
        error_of(train.main, f"{TINY} --out {tmp_path}")
    call(train.main, f"{TINY} --pair en-es --d-model 16 --epochs 1 --out {tmp_path}")
    translator = nn.Translator.load(tmp_path)
    assert translator.model.config.d_model == 16
    assert "house" in translator.source_vocab


def test_resume_of_a_missing_run_begins_it(undrawn: None, tmp_path: Path) -> None:
    done = call(train.main, f"{TINY} --epochs 1 --batch-tokens 9999 --resume --out {tmp_path}")
    assert done.err == [f"nothing in {tmp_path} to continue: beginning"]
    assert done.result["steps"] == 1


def test_resume_with_another_setting_is_refused(run: SimpleNamespace) -> None:
    resume = f"--out {run.directory} --resume --quiet"
    message = error_of(train.main, f"{resume} --lr 0.125")
    assert "--lr must be 0.01, as the run began; leave it out" in message
    args = train.parse(f"{resume} --epochs 10 --lr 0.01".split())  # it may be longer
    assert (args.lr, args.epochs, args.d_model, args.quiet) == (0.01, 10, 32, True)


def test_ctrl_c_while_a_command_is_imported_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nn.commands.import_module", interrupted)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


class Reached(Exception):
    """The run would go on."""


BAD: list[Any] = [0, -1, 1.5, math.nan, None, True, "x", [], {}]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_resume_with_a_damaged_setting_names_the_file(
    undrawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: Any
) -> None:
    """Damage each setting in turn."""
    needs("tokenizers")  # which a setting asks for
    calls = 0
    file, line = tmp_path / "config.json", f"--resume --quiet --out {tmp_path}"
    args = vars(train.parse([*shlex.split(TINY), "--out", str(tmp_path)]))
    settings = {name: x for name, x in args.items() if name not in train.CALL_OPTIONS}

    def reached(*_: Any) -> None:
        raise Reached

    monkeypatch.setattr(train, "start_run", reached)
    monkeypatch.setattr(train.BPETokenizer, "train", reached)  # which takes longer than all else
    for name in settings:
        file.write_text(json.dumps({"settings": settings | {name: bad}}))
        with suppress(Reached):
            text = error_of(train.main, line)
            assert text.removeprefix("minigrad train: ").startswith(f"error: {file}"), (name, text)
            calls += 1
    assert calls > 15
    file.write_text(json.dumps({"settings": {k: v for k, v in settings.items() if k != "layers"}}))
    assert f"{file} must have the setting layers; another" in error_of(train.main, line)
    for other in ({"out": "x"}, {"colour": 1}):
        file.write_text(json.dumps({"settings": settings | other}))
        assert f"error: {file}" in error_of(train.main, line)


def test_resume_of_a_finished_run_with_more_epochs_stretches_the_schedule(
    undrawn: None, tmp_path: Path
) -> None:
    rates = lambda: {
        entry["step"]: entry["lr"]
        for entry in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
        if "lr" in entry
    }
    call(train.main, f"{TINY} --out {tmp_path}")
    steps, before = max(rates()), rates()
    assert before[steps] == 0
    with pytest.warns(UserWarning, match="learning rates differ from those the run began with"):
        call(train.main, f"--resume --epochs 4 --out {tmp_path} --quiet")
    total = 4 * steps // 3
    schedule = cosine_schedule(total, min(100, total // 2))
    assert max(rates()) == total
    for step, rate in rates().items():
        if step > steps and step < total:
            assert rate == pytest.approx(2e-3 * schedule(step + 1), rel=1e-6)


def test_train_stops_after_steps_and_resumes(undrawn: None, tmp_path: Path) -> None:
    line = f"{TINY} --batch-tokens 99 --out {tmp_path}"
    call(train.main, f"{line} --steps 3")
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 3
    with pytest.warns(UserWarning, match="the rates of the new schedule"):
        call(train.main, f"{line} --steps 5 --resume")
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == 5


def test_resume_restores_the_number_of_processes(undrawn: None, tmp_path: Path) -> None:
    call(train.main, f"{TINY} --processes 3 --epochs 1 --out {tmp_path}")
    resume = f"--resume --out {tmp_path}".split()
    assert train.parse(resume).processes == 3
    assert train.parse([*resume, "--processes", "2"]).processes == 2


def test_train_evaluates_the_best_weights(whole: Path, undrawn: None, tmp_path: Path) -> None:
    """With weights of zero, all tokens are equally likely. The seconds are those of all calls."""
    best = shutil.copytree(whole, tmp_path / "copy") / "best.safetensors"
    metrics = best.parent / "metrics.jsonl"
    metrics.write_text(re.sub(r'"seconds": [\d.]+', '"seconds": 1000', metrics.read_text()))
    save_arrays(best, {name: 0 * array for name, array in weights(best).items()})
    summary = call(train.main, f"--resume --quiet --out {best.parent}").result
    size = len(read_json(best.parent / "vocab.json")["target"])
    assert summary["held_out_loss"] == pytest.approx(math.log(size))
    assert 1100 > summary["seconds"] >= summary["training_seconds"] >= 1000


def test_train_with_average_keeps_the_mean_of_the_last_weights(
    undrawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep two of three validations. `minigrad translate --average` takes the last of them."""
    call(train.main, f"{TINY} --average 2 --out {tmp_path}")
    kept = [weights(path) for path in sorted(tmp_path.glob("weights-*"))]
    mean = {name: (a.astype(float) + kept[1][name]) / 2 for name, a in kept[0].items()}
    assert len(kept) == 2 and not all(
        np.array_equal(a, kept[1][name]) for name, a in kept[0].items()
    )
    monkeypatch.setattr(nn, "for_inference", lambda model: model)
    for options, expected in (
        ("", mean),
        ("--average 1", kept[1]),
        ("--average 2", mean),
        ("--average 3", mean),
    ):
        translator = translate.load_run(translate.parse([str(tmp_path), *options.split()]))
        for name, array in translator.model.state_dict().items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-6, atol=1e-7)
    for path in tmp_path.glob("weights-*"):
        path.unlink()
    error = error_of(translate.main, f"{tmp_path} hello --average 2")
    assert error == f"error: {tmp_path}: no weights were kept; train with --average"


# -- data of one's own -----------------------------------------------------------------------------

PAIRS = [
    (f"Take {n} {noun}, please.", f"请给我{z}个{name}。")
    for n, z in [("two", "两"), ("three", "三"), ("six", "六"), ("ten", "十")]
    for noun, name in [("cups", "杯子"), ("boxes", "盒子"), ("apples", "苹果")]
]
SMALL = "--valid-size 2 --test-size 2 --layers 1 --d-model 8 --num-heads 2 --d-ff 8 --epochs 1"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the options for the same pairs in each form of file."""
    text = "".join(f"{a}\t{b}\tsomething else\n" for a, b in PAIRS).encode()
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress(text))
    for name, side in zip(("a.en", "b.zh"), zip(*PAIRS)):
        (tmp_path / name).write_text("\n".join(side), encoding="utf-8")
    return {"gz": f"{tmp_path}/pairs.tsv.gz", "two": f"{tmp_path}/a.en {tmp_path}/b.zh"}


def test_load_pairs_reads_every_form_of_file(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other.tsv").write_text("A cat.\t一只猫。\n" * 2)
    line = f"--data {files['two']} --valid {files['gz']} --test {tmp_path}/other.tsv --reverse"
    args = train.parse(line.split())
    learned, valid, test = train.load_pairs(args)
    assert sorted(learned) == sorted(valid) == sorted((b, a) for a, b in PAIRS)
    assert test == [("一只猫。", "A cat.")] * 2
    assert (args.d_model, args.dropout) == (256, 0.3)  # files have other defaults
    train_pairs, *held_out = train.load_pairs(train.parse(["--data", files["gz"]]))
    assert [len(part) for part in (train_pairs, *held_out)] == [8, 2, 2]


def test_train_prints_left_out_rows_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "MAX_LEN", 8)
    rows = ["Source\tTarget", *(f"a {i} b\tx {i} y" for i in range(30)), "\tz", "l " * 9 + "\tm"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    line = f"--data {tmp_path}/pairs.tsv --out {tmp_path}/run --d-model 8 --num-heads 2"
    expected = (
        "left out of 33 rows: 1 a row of headings, 1 with an empty side, 1 of more than 8 tokens"
    )
    assert expected in call(lambda argv: train.build(train.parse(argv)), line).err
    monkeypatch.setattr(train, "MAX_LEN", 1)
    error = error_of(train.main, line)
    assert error == "error: PairBatches: pairs must contain at least one pair, got none"


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129])
def test_sentences_of_1_to_128_tokens_fit(length: int) -> None:
    splits, text = [nn.text.SpaceTokenizer()] * 2, " ".join("a" * length)
    for pair in ((text, "b"), ("b", text)):
        assert train.fits(splits, pair) == (1 <= length <= 128)


@pytest.mark.parametrize("options", ["", "--joint --vocab-size 400"], ids=["words", "bpe"])
def test_vocabulary_has_no_words_of_rows_that_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.setattr(train, "MAX_LEN", 8)
    if options:
        needs("tokenizers")
    rows = [f"a {i} b\tx {i} y" for i in range(30)]
    long = ["zebra " * 9 + "\tm", "m\t" + "quagga " * 9]
    line = f"--out {tmp_path}/run --d-model 8 --num-heads 2 {options}"
    tokens = []
    for name, content in {"with": long + rows, "without": rows}.items():
        (tmp_path / name).write_text("\n".join(content))
        args = train.parse([*line.split(), "--data", f"{tmp_path}/{name}"])
        translator = train.make_translator(args, train.read_files(args.data, args))
        tokens.append((translator.source_vocab.tokens, translator.target_vocab.tokens))
    assert tokens[0] == tokens[1]


def test_train_with_bad_rows_names_them_or_skips_them(tmp_path: Path) -> None:
    rows = [f"a {i} b\tx {i} y" for i in range(30)]
    rows[3] = rows[7] = "one column"
    (tmp_path / "pairs.tsv").write_text("\n".join(rows), encoding="utf-8")
    line = f"--data {tmp_path}/pairs.tsv --out {tmp_path}/run --d-model 8 --num-heads 2"
    error = error_of(train.main, line)
    assert "pairs.tsv, lines 4, 8 must have 2 columns" in error and "(--skip-bad)" in error
    done = call(lambda argv: train.build(train.parse(argv)), f"{line} --skip-bad")
    assert "left out of 30 rows: 2 that are bad" in done.err
    assert "% of the source tokens in the validation pairs are unknown; a larger" in done.err[4]


def test_train_on_a_file_chooses_tokenizers_and_resumes(
    files: dict[str, str], undrawn: None, tmp_path: Path
) -> None:
    line = f"--data {files['gz']} {SMALL} --quiet --out {tmp_path}/run"
    summary = call(train.main, line).result
    vocab = read_json(tmp_path / "run/vocab.json")
    assert {"Take", ",", "please", "."} <= set(vocab["source"])
    assert {"请", "给", "我", "个", "。"} <= set(vocab["target"])  # characters
    assert summary["sentences"] == 2
    if find_spec("sacrebleu"):
        assert "tok:zh" in summary["bleu_signature"]
    translator = nn.Translator.load(tmp_path / "run")
    assert (translator.source_tokenizer.name, translator.target_tokenizer.name) == ("word", "char")
    assert call(train.main, f"{line} --resume").result["steps"] > 0  # a job that is queued again


def test_train_prints_a_command_that_a_shell_can_read(undrawn: None, tmp_path: Path) -> None:
    rows = "".join(f'say "{i}" for $1\tdi {i}\n' for i in range(20))
    (tmp_path / "pairs.tsv").write_text(rows, encoding="utf-8")
    line = f"--data {tmp_path}/pairs.tsv {SMALL} --processes 1 --out '{tmp_path}/a b'"
    done = call(train.main, line)
    (command,) = (line for line in done.err if line.startswith("try it: "))
    source = done.result["samples"][0]["source"]
    expected = ["minigrad", "translate", f"{tmp_path}/a b", source]
    assert shlex.split(command.removeprefix("try it: ")) == expected


def test_tokenizer_of_bleu_is_that_of_all_references(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def scores(*_: Any, tokenize: str) -> Scores:
        asked.append(tokenize)
        return Scores(1.0, "", 1.0, "")

    monkeypatch.setattr(train, "find_spec", lambda name: True)
    monkeypatch.setattr(train, "translation_scores", scores)
    args = train.parse(["--quiet", "--out", str(tmp_path / "run")])
    (a, _), (b, _) = run.test[:2]
    for texts in (("x", "你好世界"), ("你好", "x" * 20), ("你好世界", "x")):
        train.evaluate(run.translator, [*zip((a, b), texts)], args)
    assert asked == ["zh", "13a", "zh"]


def test_evaluate_counts_each_of_several_references(run: SimpleNamespace, tmp_path: Path) -> None:
    """A translation is compared with all references, and the matching one is shown."""
    (a, _), (b, _) = run.test[:2]
    spaced = run.translator.translate([a], 4)[0].text.replace(" ", "   ")
    test = [(a, "x"), (a, spaced), (b, "w")]
    args = train.parse(["--quiet", "--out", str(tmp_path / "run")])
    result, judged = train.evaluate(run.translator, test, args)
    assert result["sentences"] == 2 and result["exact_match"] == 0.5
    assert [x[1:] for x in judged] == [(spaced, True), ("w", False)]


@pytest.mark.parametrize("schedule", ["noam", "inverse-sqrt", "cosine", "linear"])
def test_make_schedule_rises_then_falls(schedule: str, tmp_path: Path) -> None:
    args = train.parse(["--schedule", schedule, "--warmup", "10", "--out", str(tmp_path)])
    first, middle, last = map(train.make_schedule(args, 100), (1, 10, 100))
    assert 0 < 3 * first < middle > 2 * last


# -- what is missing or wrong ----------------------------------------------------------------------


def test_train_with_numpy_alone_names_missing_extras_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_packages(monkeypatch, "matplotlib", "sacrebleu", "tqdm", "safetensors", "tokenizers")
    done = call(train.main, f"{TINY} --out {tmp_path}")
    assert done.err == [
        "no pictures at the end without matplotlib: pip install matplotlib",
        "no BLEU at the end without sacrebleu: pip install sacrebleu",
    ]
    assert "no BLEU, which needs sacrebleu" in done.out[-1] and done.result["bleu"] is None
    assert not list(tmp_path.glob("*.png")) and (tmp_path / "summary.json").exists()


FEW = "--sentences 200 --valid-size 20 --test-size 20"


@pytest.mark.parametrize(
    "options, message",
    [
        (f"{FEW} --d-model 10 --num-heads 4", "d_model must be divisible by num_heads"),
        ("--data a b c", "--data must be one file, or source and target"),
        ("--valid a", "--valid and --test need --data"),
        ("--data pairs.tsv --pair en-es", "--pair has no effect with --data"),
        ("--data pairs.tsv --sentences 9", "--sentences has no effect with --data"),
        ("--data pairs.tsv --valid a --valid-size 9", "--valid-size has no effect with --valid"),
        ("--data pairs.tsv --test a --test-size 9", "--test-size has no effect with --test"),
        ("--joint --source-tokenizer char", "--joint needs bpe for both sides"),
        ("--sentences 100", "pairs must be more than the 800 to hold out, got 9[79]"),
        (f"{FEW} --batch-tokens 5", "PairBatches: max_tokens must be at least"),
    ],
)  # fmt: skip
def test_train_bad_setting_is_one_line(
    options: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"a {i}\tb {i}\n" for i in range(2000))
    (tmp_path / "pairs.tsv").write_text(rows, encoding="utf-8")
    assert re.search(message, error_of(train.main, f"{options} --out run"))
    assert not (tmp_path / "run").exists()


def test_package_that_is_run_with_a_missing_file_prints_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nn", "train", "--data", "no.tsv"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nn", run_name="__main__")
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "error: no.tsv: no such file\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^0$"):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: minigrad {name} ")
    options = re.findall(r"^  (?:-h, )?(--[\w-]+)[^\n]*?(?:  +|\n {8,})(\S.*)$", text, re.MULTILINE)
    assert len(options) == len(re.findall(r"^  -", text, re.MULTILINE)) > 1


def test_commands_are_all_modules_with_a_main_function() -> None:
    names = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    has_main = lambda name: hasattr(importlib.import_module(f"nn.commands.{name}"), "main")
    assert {name.replace("-", "_") for name in COMMANDS} == {*filter(has_main, names)}


def test_help_of_the_package_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert main([]) == 0 and capsys.readouterr().out == text
    assert all(f"  {name:12}{about}\n" in text for name, about in COMMANDS.items())
    assert "invalid choice: 'practise'" in error_of(main, "practise")


def test_columns_are_those_of_one_file(tmp_path: Path) -> None:
    for name, text in (("table.csv", "b,a,c\ny,x,z\n"), ("x.txt", "x\n"), ("y.txt", "y\n")):
        (tmp_path / name).write_text(text)
    args = argparse.Namespace(columns=["a", "b"], skip_bad=False, reverse=False)
    for names in (["table.csv"], ["x.txt", "y.txt"]):
        assert train.read_files([str(tmp_path / name) for name in names], args) == [("x", "y")]
