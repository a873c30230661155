"""Test the default values of options of the commands, and the training that options plan."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import shlex
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.commands import call
from support.tiny_folders import WORDS, encoder_folder, language_model_folder, text_files

import minigrad
import minigrad as mg
import nn
from minigrad import optim
from minigrad.optim import cosine_schedule, linear_schedule
from nn.commands import fine_tune, inputs, main, train
from nn.commands.answers import AnswerTask
from nn.text.tokenize import WordTokenizer
from nn.text.vocabulary import SPECIALS, Vocabulary

OF_MODELS = {"adapter": None, "int8": False}
OF_TABLES = {"columns": None, "skip_bad": False}
DEFAULTS: dict[str, dict[str, Any]] = {
    "classify": {"text": [], "labels": None, "batch": 32, "top": 1, "json": False, **OF_MODELS, **OF_TABLES},
    "explore": {"text": "x", "out": None, "backward": False},
    "fine_tune": {
        "data": Path("x"), "out": Path("out"), "valid": None, "test": None, "train": None, "save_adapter": None,
        "epochs": 3, "lr": None, "batch_size": 16, "max_len": None, "patience": 4, "seed": 0, "resume": False, **OF_TABLES,
    },
    "generate": {
        "text": [], "chat": False, "system": None, "top": 1, "json": False, "seed": 0, "stop": None, "max_len": None,
        "temperature": None, "top_k": None, "top_p": None, "min_p": None, "repetition_penalty": None, **OF_MODELS,
    },
    "search": {"file": Path("x"), "question": [], "top": 3, "index": None, "rerank": None, "json": False, "int8": False},
    "train": {
        "pair": "zh-en", "sentences": 8000, "data": None, "valid": None, "test": None, "valid_size": 200, "test_size": 600,
        "reverse": False, "source_tokenizer": None, "target_tokenizer": None, "joint": False, "vocab_size": 8000,
        "d_model": 128, "num_heads": 4, "layers": 2, "d_ff": 256, "dropout": 0.05, "epochs": 7, "steps": None,
        "batch_tokens": 1024, "lr": 2e-3, "schedule": "cosine", "warmup": 100, "label_smoothing": 0.05, "average": 0,
        "seed": 0, "out": Path("runs/zh-en"), "resume": False, "quiet": False, **OF_TABLES,
    },
    "translate": {
        "text": [], "beam": None, "top": 1, "max_len": None, "references": None, "bleu_tokenize": None, "json": False,
        "length_penalty": 1.0, "scores": False, "weights": "best.safetensors", "average": None, "language": None,
        "to": None, **OF_MODELS,
    },
}  # fmt: skip
"""Values of the options of each command that are not given."""
ARGUMENTS = {"explore": ["x"], "fine_tune": ["x", "--out", "out"], "search": ["x"]}


@pytest.mark.parametrize("name", DEFAULTS)
def test_options_that_are_not_given_have_these_values(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = [] if name == "train" else ["DIR"]
    parse = importlib.import_module(f"nn.commands.{name}").parse
    args = vars(parse([*model, *ARGUMENTS.get(name, [])]))
    args.pop("processes", None)  # by the cores
    assert args == DEFAULTS[name] | ({"model": "DIR"} if model else {})


def test_options_of_files_that_are_not_given_have_these_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parse = importlib.import_module("nn.commands.train").parse
    args = vars(parse(["--data", "a/b.c.tsv", "--seed", "3"]))
    args.pop("processes")
    assert args == DEFAULTS["train"] | {
        "data": ["a/b.c.tsv"], "seed": 3, "out": Path("runs/b"), "d_model": 256, "layers": 3, "d_ff": 1024, "dropout": 0.3,
        "epochs": 24, "batch_tokens": 2048, "lr": 1e-3, "warmup": 1000, "label_smoothing": 0.1, "valid_size": 500,
        "test_size": 1000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "out"), [("", "zh-en"), ("--pair en-es", "en-es"), ("--reverse", "en-zh"), ("--data a.b/c.d --reverse", "c")]
)  # fmt: skip
def test_directory_of_a_run_is_named_by_its_languages_or_file(
    options: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a run of this name may be here
    parse = importlib.import_module("nn.commands.train").parse
    assert parse(options.split()).out == Path("runs", out)


NAMES = "expected two names with a comma between"
REFUSED = [
    *(("classify", f"DIR --labels a.tsv {more}", "--labels prints a table of scores: leave out texts, --top and --json")
      for more in ("text", "--top 2", "--json")),
    *(("classify", f"DIR text {more}", "--columns and --skip-bad need --labels") for more in ("--columns a,b", "--skip-bad")),
    *(("train", ["--data", "a.csv", "--columns", names], NAMES) for names in ("a", "a,b,c", "", "a\rb,c", '"a"b,c', "a," + "b" * 10**6)),
    ("train", "--columns a,b", "--columns needs one file of --data"), ("train", "--data a b --columns a,b", "--columns needs one file"),
    ("train", "--test a", "--valid and --test need --data"), ("train", "--data a --test a b c", "--test must be one file, or source and target"),
    *(("generate", f"DIR text {more} --stop ''", "--stop must not be empty") for more in ("", "--top 2", "--stop x")),
    *(("generate", f"DIR text --top 2 {more}", "--top above 1 takes the likeliest texts")
      for more in ("--temperature 0", "--temperature 2", "--top-k 2", "--top-p 0.5", "--min-p 0")),
    *(("generate", f"DIR text --temperature 0 {more}", f"{more.split()[0]} needs a --temperature above 0")
      for more in ("--top-k 2", "--top-p 0.5", "--min-p 0")),
    ("translate", "DIR text --beam 2 --top 3", r"--beam must be at least --top \(3\), got 2"),
]  # fmt: skip
"""Options that no run has together, and what is said about them before a file is read."""


@pytest.mark.parametrize(("name", "line", "message"), REFUSED)
def test_options_that_do_not_fit_together_are_refused(
    name: str, line: Any, message: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    parse = importlib.import_module(f"nn.commands.{name}").parse
    with pytest.raises(SystemExit) as ended:
        parse(shlex.split(line) if isinstance(line, str) else line)
    assert ended.value.code == 2 and re.search(message, capsys.readouterr().err)


def test_version_is_printed_and_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"minigrad {minigrad.__version__}\n"


def test_options_of_training_reach_the_model_and_its_trainer(tmp_path: Path) -> None:
    """Give each option a value of its own."""
    train: Any = importlib.import_module("nn.commands.train")
    line = (
        "--pair en-es --sentences 300 --valid-size 21 --test-size 22 --vocab-size 40 --d-model 12 --num-heads 3"
        " --layers 1 --d-ff 10 --dropout 0.25 --epochs 3 --steps 7 --batch-tokens 90 --lr 0.5 --schedule linear"
        f" --warmup 2 --label-smoothing 0.2 --average 4 --seed 6 --processes 2 --quiet --out {tmp_path}/run"
    )
    args = train.parse(line.split())
    translator, trainer, held_out, test = train.build(args)
    config = translator.model.config
    assert (config.d_model, config.num_heads, config.d_ff, config.dropout) == (12, 3, 10, 0.25)
    assert config.num_encoder_layers == config.num_decoder_layers == 1
    assert (config.activation_dropout, config.attention.dropout) == (0, 0)
    assert (config.tie, config.output_bias, config.max_len) == ("target", True, 256)
    assert len(translator.source_vocab) == len(translator.target_vocab) == 40
    (group,) = trainer.optimizer.param_groups
    assert (group["initial_lr"], *group["betas"], group["eps"]) == (0.5, 0.9, 0.98, 1e-9)
    assert trainer.optimizer.clip_norm == 1.0 and type(trainer.optimizer) is optim.Adam
    rates = [trainer.schedule.rates(step)[0] / 0.5 for step in range(1, 8)]
    assert rates == pytest.approx([optim.linear_schedule(7, 2)(step) for step in range(1, 8)])
    longer = train.build(train.parse([*line.split(), "--steps", "9999"]))[1]
    total = 3 * len(longer.train)
    for step in (3, total - 1, total):  # which ends with the epochs
        expected = 0.5 * optim.linear_schedule(total, 2)(step)
        assert longer.schedule.rates(step) == pytest.approx([expected])
    assert trainer.objective.options == {"label_smoothing": 0.2}
    assert (trainer.max_epochs, trainer.max_steps, trainer.keep_last) == (3, 7, 4)
    assert trainer.parallel.parts == 2 and trainer.run.path == tmp_path / "run"
    assert trainer.progress is False and trainer.save_every == 200
    for batches, shuffle in ((trainer.train, True), (trainer.valid, False), (held_out, False)):
        assert (batches.max_tokens, batches.seed, batches.shuffle) == (90, 6, shuffle)
    assert (len(trainer.valid.pairs), len(held_out.pairs), len(test)) == (21, 22, 22)


@pytest.mark.parametrize("joint", ["", "--joint"])
def test_vocabularies_of_files_have_what_occurs_twice_or_all_pieces(
    joint: str, tmp_path: Path
) -> None:
    train: Any = importlib.import_module("nn.commands.train")
    rows = [("a a b", "x y y"), ("b c", "z")]
    args = train.parse([*f"--data a --d-model 8 --num-heads 2 {joint}".split(), "--vocab-size", "258"])  # fmt: skip
    translator = train.make_translator(args, rows)
    sides, config = (translator.source_vocab, translator.target_vocab), translator.model.config
    assert (config.tie, config.output_bias) == (("all", False) if joint else ("target", True))
    if joint:
        assert sides[0] == sides[1] and len(sides[0]) == 258 + len(SPECIALS)
        assert [*sides[0]][4:] == translator.source_tokenizer.pieces
    else:
        assert [[*side][4:] for side in sides] == [["a", "b"], ["y"]]


TABLE = """--columns '"a, ""b"" ",c d' --skip-bad"""
RESUMED = [
    ("train", ""), ("train", "--pair en-es --sentences 9 --seed 3 --lr 0.5 --processes 2 --average 3 --warmup 1 --dropout 0"),
    ("train", f"--data x.csv {TABLE} --steps 3 --valid-size 500 --test-size 7 --vocab-size 9 --joint --reverse"),
    ("train", "--data x y --valid v --test t u --source-tokenizer char --target-tokenizer space --schedule noam"),
    ("fine_tune", ""), ("fine_tune", f"--valid v.tsv --test t.tsv --train head {TABLE} --lr 1e-05 --max-len 7 --patience 0"),
    ("fine_tune", "--train lora --save-adapter x/y --epochs 5 --batch-size 3 --seed 8"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "line"), RESUMED)
def test_resumed_run_has_the_options_that_it_began_with(
    name: str, line: str, tmp_path: Path
) -> None:
    module: Any = importlib.import_module(f"nn.commands.{name}")
    arguments = [*(["x", "y"] if name == "fine_tune" else []), "--out", str(tmp_path)]
    began = module.parse([*arguments, *shlex.split(line)])
    settings = {key: x for key, x in vars(began).items() if key not in module.CALL_OPTIONS}
    file, data = tmp_path / "config.json", {"settings": settings}
    if name == "fine_tune":
        file, data = tmp_path / "run/settings.json", module.settings_of(began)
        file.parent.mkdir()
    file.write_text(json.dumps(data))
    again = module.parse([*arguments, "--resume"])
    assert vars(again) == vars(began) | {"resume": True}
    assert module.parse([*arguments, "--resume", *shlex.split(line)]) == again


@pytest.mark.parametrize("error", [ValueError, MemoryError, FileNotFoundError])
def test_errors_of_a_resumed_run_name_its_settings_or_another_file(
    error: type[Exception], tmp_path: Path
) -> None:
    file, data = tmp_path / "settings.json", tmp_path / "data"
    data.write_text("")
    for is_there, resume, text in itertools.product(
        (False, True), (False, True), ("lr must be 1", f"{data}: empty", f"{data} must be a", f"{data}x: no")
    ):  # fmt: skip
        if is_there:
            file.write_text("{}")
        named = is_there and resume and text in ("lr must be 1", f"{data}x: no")
        with pytest.raises(error) as caught, inputs.naming_settings(file, resume):
            raise error(text)
        assert str(caught.value) == (f"{file}: {text}" if named else text)


# -- fine-tuning -----------------------------------------------------------------------------------

TEMPLATE = "{% for m in messages %}{{ m.content }} {% if m.role == 'assistant' %}[SEP] {% endif %}{% endfor %}"
LEARNED = [(f"the {a} {b}", "fact" if i % 2 else "dog") for i, (a, b) in enumerate(zip(WORDS[4:19] * 4, WORDS[5:19] * 4))][:40]  # fmt: skip


def folder_of(kind: str, path: Path) -> Path:
    if kind == "encoder":
        return encoder_folder(path)
    folder = language_model_folder(path)
    text_files(folder, False, chat_template=TEMPLATE)
    return folder


def planned(line: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the arguments of the trainer of a run that ends before its first step."""
    given: list[Any] = []

    class Planned(Exception):
        pass

    def trainer(*args: Any, **options: Any) -> Any:
        given.append(SimpleNamespace(model=args[0], optimizer=args[1], batches=args[2], **options))
        raise Planned

    monkeypatch.setattr(nn, "Trainer", trainer)
    with pytest.raises(Planned):
        call(fine_tune.main, line)
    return given[0]


@pytest.mark.parametrize(
    ("kind", "options", "rate", "trained"),
    [
        ("encoder", "", 5e-5, "all"),
        ("encoder", "--train lora", 1e-3, "lora"),
        ("encoder", "--save-adapter {}/adapter", 1e-3, "lora"),
        ("encoder", "--train head --lr 0.5", 0.5, "head"),
        ("encoder", "--train head", 1e-3, "head"),
        ("encoder", "--lr 0", 0.0, "all"),
        ("gpt", "", 1e-3, "lora"),
        ("gpt", "--train all", 5e-5, "all"),
    ],
)
def test_fine_tune_trains_these_weights_at_this_rate(
    kind: str, options: str, rate: float, trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in LEARNED))
    folder = folder_of(kind, tmp_path / kind)
    line = f"{folder} {tmp_path}/p.tsv --out {tmp_path}/out --seed 0 {options.format(tmp_path)}"
    plan = planned(line, monkeypatch)
    (group,) = plan.optimizer.param_groups
    assert group["lr"] == rate and plan.optimizer.clip_norm == 1.0
    assert (plan.score is None) == (kind == "gpt")
    names = {n for n, p in plan.model.named_parameters() if any(p is q for q in group["params"])}
    every = dict(plan.model.named_parameters())
    head = {n for n in every if n.split(".")[0] in ("output", "dense", "norm") and kind != "gpt"}
    lora = {n for n in every if "lora" in n.lower()}
    expected = {"all": {*every}, "head": head, "lora": lora | head}[trained]
    assert names == expected and names


@pytest.mark.parametrize(
    ("size", "epochs", "patience", "batches"), [(2, 3, 4, 16), (16, 2, 0, 2), (40, 1, 1, 1), (5, 4, 2, 7)]
)  # fmt: skip
def test_fine_tune_validates_twice_an_epoch_and_warms_up_a_tenth(
    size: int, epochs: int, patience: int, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Of 40 texts 32 are trained on."""
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in LEARNED))
    folder = encoder_folder(tmp_path / "encoder")
    line = f"{folder} {tmp_path}/p.tsv --out {tmp_path}/out --batch-size {size} --epochs {epochs} --patience {patience} --seed"
    plan, other = (planned(f"{line} {seed}", monkeypatch) for seed in (size, 99))
    assert (plan.batches.seed, plan.batches.shuffle, plan.valid.shuffle) == (size, True, False)
    assert plan.valid.dataset != other.valid.dataset
    steps = batches * epochs
    warmup = 0 if steps == 1 else max(1, steps // 10)
    assert len(plan.batches) == batches and plan.max_epochs == epochs
    assert plan.validate_every == max(1, batches // 2)
    assert plan.patience == (patience or None) and plan.patience_from == warmup
    for step in range(1, steps + 1):
        rest = (steps + 1 - step) / (steps - warmup)
        assert plan.schedule(step) == pytest.approx(step / warmup if step <= warmup else rest)


def test_train_recommends_bpe_for_a_script_without_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = WordTokenizer()
    vocabulary = Vocabulary([*SPECIALS, *words("hello สวัสดี")])
    train.warn_of_words("target", ["hello"], words, vocabulary)
    assert capsys.readouterr().err == ""
    train.warn_of_words("target", ["สวัสดี"], words, vocabulary)
    said = capsys.readouterr().err
    assert said.startswith("the target has no spaces between words")
    assert said.endswith("pass --target-tokenizer bpe\n")


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (2, 1), (3, 1), (4, 2), (9, 3)])
@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_train_warms_up_at_most_half_of_the_steps(name: str, steps: int, warmup: int) -> None:
    """A schedule of one step has no warmup."""
    found = train.make_schedule(Namespace(schedule=name, warmup=3), steps)
    expected = {"cosine": cosine_schedule, "linear": linear_schedule}[name](steps, warmup)
    assert [*map(found, range(1, steps + 1))] == [*map(expected, range(1, steps + 1))]


@pytest.mark.parametrize("given", [None, 4, 5, 6, 25])
@pytest.mark.parametrize("of_text", [None, 6, 30])
def test_texts_of_a_classifier_are_cut_at_the_least_of_three_limits(
    given: int | None, of_text: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Take the least of the option, of the tokenizer and of the 20 positions of the model."""
    folder = encoder_folder(tmp_path / "encoder")
    text_files(folder, unk_token="[UNK]", **({} if of_text is None else {"model_max_length": of_text}))  # fmt: skip
    texts = [*(" ".join(["cat"] * n) for n in range(1, 23)), "zebra"]
    (tmp_path / "p.tsv").write_text("".join(f"{t}\t{'ab'[i % 2]}\n" for i, t in enumerate(texts)))
    line = [str(folder), f"{tmp_path}/p.tsv", "--out", f"{tmp_path}/out", "--train", "all"]
    args = fine_tune.parse([*line, *([] if given is None else ["--max-len", str(given)])])
    task = fine_tune.LabelTask(args)
    limit = min(x for x in (given, of_text, 20) if x is not None)
    assert task.max_len == limit
    kept = task.model.origin.settings.get("model_max_length")
    assert kept == (None if given is None else limit)
    ids, classes, mask = task.collate([(t, "b") for t in texts])
    assert mask.sum(1).tolist() == [min(len(t.split()) + 2, limit) for t in texts]
    assert classes.tolist() == [1] * len(texts)
    said = capsys.readouterr().err
    lengths = [len(t.split()) + 2 for t in texts]
    cut = sum(n > limit for n in lengths)
    assert f"23 texts, 2 labels: a 12, b 11\nfor example: cat  →  a\n{int(np.median(lengths))} tokens in the middle, 24 at most; texts that are cut at {limit} tokens: {cut}\n" in said  # fmt: skip
    assert said.endswith(f"{1 / sum(lengths):.1%} of the tokens are unknown to the model\n")


def test_score_of_a_classifier_is_its_accuracy_and_then_its_loss(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in LEARNED))
    line = [str(encoder_folder(tmp_path / "encoder")), f"{tmp_path}/p.tsv", "--out", "out", "--train", "all"]  # fmt: skip
    task = fine_tune.LabelTask(fine_tune.parse(line))
    model = task.model.eval()
    ids, classes, mask = task.collate(task.valid)
    with mg.no_grad():
        logits = model(ids, mask).data.astype(float)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -log_p[np.arange(len(classes)), classes].mean()
    accuracy = (logits.argmax(-1) == classes).mean()
    assert (accuracy - task.score(model)) * 1e9 == pytest.approx(loss, rel=1e-4)


def test_facts_name_ten_labels_and_the_number_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("the cat", f"label {i:02}") for i in range(12) for _ in range(2)]
    text = nn.text.load(encoder_folder(tmp_path))
    for count, more in ((10, ""), (11, " and 1 more"), (12, " and 2 more")):
        fine_tune.print_facts(rows[: 2 * count], text, 20)
        shown = ", ".join(f"label {i:02} 2" for i in range(10))
        first = capsys.readouterr().err.splitlines()[0]
        assert first == f"{2 * count} texts, {count} labels: {shown}{more}"


Chats = list[tuple[str, str]]


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., AnswerTask]:
    """Return a function of the options that makes the task of a language model."""
    folder = folder_of("gpt", tmp_path / "gpt")
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in LEARNED))
    rows = [("why", "the cat"), ("who is it", "dog"), ("where", "a mat"), ("is it", "grass"), ("the " * 6, "cat")]  # fmt: skip
    (tmp_path / "other.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))

    def make(*options: str) -> AnswerTask:
        line = [str(folder), f"{tmp_path}/p.tsv", "--out", f"{tmp_path}/out", "--train", "all", *options]  # fmt: skip
        return AnswerTask(fine_tune.parse([x.format(tmp_path) for x in line]))

    return make


def test_answers_are_held_out_of_the_texts_or_read_from_files(answers: Any) -> None:
    for options, sizes, kind in (
        ([], (32, 4, 4), "test"),
        (["--test", "{}/other.tsv"], (36, 4, 5), "test"),
        (["--valid", "{}/other.tsv"], (36, 5, 4), "test"),
        (["--valid", "{}/other.tsv", "--test", "{}/other.tsv"], (40, 5, 5), "test"),
    ):
        task = answers(*options)
        assert (len(task.train), len(task.valid), len(task.held_out)) == sizes
        assert task.kind == kind and len(task.samples) == 3


@pytest.mark.parametrize("limit", [6, 7, 8, 40, 50])
def test_answers_that_begin_after_the_limit_are_left_out(
    answers: Any, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One answer is behind six tokens; the model has 40 positions."""
    task = answers("--test", "{}/other.tsv", "--max-len", str(limit))
    assert task.max_len == min(limit, 40)
    left = limit < 7
    assert len(task.held_out) == 5 - left
    said = capsys.readouterr().err
    assert (f"left out 1, whose answers begin after {limit} tokens\n" in said) == left
    lengths = [len(ids) for ids, _ in task.train]
    targets = sum(sum(mask) for _, mask in task.train)
    assert f"40 chats; for example: the the cat  →  dog\n{int(np.median(lengths))} tokens in the middle, {max(lengths)} at most; {targets} of {sum(lengths)} tokens are of answers\n" in said  # fmt: skip


def test_answers_to_one_prompt_are_in_one_part(
    answers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"the cat {i}", f"{answer} {i}") for i in range(30) for answer in ("a", "b", "c")]
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    for name, method in (("_examples", lambda self, chats: chats), ("_print_facts", lambda *_: None), ("_loss", lambda *_: 0.0)):  # fmt: skip
        monkeypatch.setattr(AnswerTask, name, method)
    task = answers()
    parts = [{chat[0]["content"] for chat in part} for part in (task.train, task.valid, task.held_out)]  # fmt: skip
    assert all(parts) and sum(map(len, parts)) == len(set.union(*parts)) == 30


def test_answers_of_a_first_token_alone_are_left_out(
    answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave out an answer whose only token no other token predicts."""
    for mask, is_kept in (([True, False], False), ([True, True], True), ([False, True], True)):
        monkeypatch.setattr("nn.commands.answers.encode_chat", lambda *_, m=mask: ([4, 5], m))
        if is_kept:
            assert len(answers().train) == 32
            continue
        with pytest.raises(ValueError, match="must have an answer before token 40, got none"):
            answers()


def test_report_prints_three_prompts_with_what_is_written_and_expected(
    answers: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ignore settings of the model that draw tokens."""
    (tmp_path / "gpt/generation_config.json").write_text('{"do_sample": true, "temperature": 9.0}')
    task = answers("--test", "{}/other.tsv")
    capsys.readouterr()
    loss = task.report()
    first, *others = capsys.readouterr().out.splitlines()
    assert (
        first == f"loss of a token in 5 test answers: {loss:.3f} before, {loss:.3f} after"
    )  # nothing is trained
    expected = []
    for prompt, answer in (("why", "the cat"), ("who is it", "dog"), ("where", "a mat")):
        chat = [{"role": "user", "content": prompt}]
        longest = max(sum(mask) for _, mask in task.train)
        wrote = nn.generate_text(task.model, task.text, chat, max_len=longest, do_sample=False)
        expected += [prompt, f"  wrote:    {wrote}", f"  expected: {answer}"]
    assert others == expected


def test_prompt_that_fills_the_limit_has_no_answer(
    answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = answers("--max-len", "5")
    lengths: list[int] = []
    generate = nn.generate_text
    monkeypatch.setattr(nn, "generate_text", lambda *a, **k: lengths.append(k["max_len"]) or generate(*a, **k))  # fmt: skip
    for words, room in ((3, 2), (4, 1), (5, 0), (6, 0)):
        prompt = " ".join(["cat"] * words)
        task.samples = [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": "dog"}]
        ]
        lengths.clear()
        task.report()
        assert lengths == ([room] if room else [])


@pytest.mark.parametrize("pad", ["[PAD]", "[UNK]", None])
def test_batches_of_answers_are_padded_with_the_padding_token(
    answers: Any, tmp_path: Path, pad: str | None
) -> None:
    file = tmp_path / "gpt" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": pad}))
    rows = [([4, 5, 6], [False, True, True]), ([7], [True]), ([8, 9], [False, True])]
    ids, mask, targets = answers().collate(rows)
    p = 3 if pad == "[UNK]" else 0
    assert ids.tolist() == [[4, 5, 6], [7, p, p], [8, 9, p]]
    assert mask.tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    assert targets.tolist() == [[False, True, True], [True, False, False], [False, True, False]]


def test_adapters_of_a_fine_tuned_model_have_rank_8_and_alpha_16(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in LEARNED))
    for kind in ("encoder", "gpt"):
        folder = folder_of(kind, tmp_path / kind)
        line = f"{folder} {tmp_path}/p.tsv --out {tmp_path}/{kind}-out --save-adapter {tmp_path}/{kind}-adapter --epochs 1 --batch-size 40"
        call(fine_tune.main, line)
        config = json.loads((tmp_path / f"{kind}-adapter/adapter_config.json").read_text())
        assert (config["r"], config["lora_alpha"]) == (8, 16)
        assert Path(config["base_model_name_or_path"]) == folder


@pytest.mark.parametrize(("count", "sizes"), [(9, (0, 1)), (19, (0, 1)), (20, (2, 2)), (39, (3, 3)), (20_000, (1000, 1000))])  # fmt: skip
def test_a_tenth_is_held_out_of_twenty_texts_or_more(count: int, sizes: tuple[int, int]) -> None:
    args = Namespace(test=None, valid=None)
    assert fine_tune.held_out_sizes(args, count) == sizes
    args = Namespace(test="a", valid="b")
    assert fine_tune.held_out_sizes(args, count) == (0, 0)
