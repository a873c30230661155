"""`minigrad translate` and `minigrad explore` with the directory of a run."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.commands import call, error_of, hide_packages, type_lines

import nn
from minigrad.check.extras import require
from nn.commands import explore, translate
from nn.commands.console import run_script
from nn.text.scores import Scores


@pytest.mark.parametrize("beam", [1, 3])
def test_translate_with_beam_and_scores(run: SimpleNamespace, beam: int) -> None:
    texts = [a for a, _ in run.test[:20]]
    options = f"--beam {beam} --scores --max-len 6 --length-penalty 0.5".split()
    expected = run.translator.translate(texts, beam, 0.5, max_len=6)
    done = call(translate.main, [str(run.directory), *texts, *options])
    assert done.result == 0 and done.err == []
    assert done.out == [f"{t.text}\t{t.score:.3f}" for t in expected]


def test_translate_with_top_prints_the_best_of_a_beam(run: SimpleNamespace) -> None:
    expected = run.translator.translate(["hello world"], beam_size=5, n_best=5)[0]
    done = call(translate.main, [str(run.directory), "hello world", "--top", "5", "--scores"])
    assert done.out == [f"{t.text}\t{t.score:.3f}" for t in expected]
    (best,) = run.translator.translate(["hello world"], beam_size=5)
    assert best == expected[0] and len({t.text for t in expected}) > 1
    done = call(translate.main, [str(run.directory), "", "hello world", "--top", "2"])
    assert done.out[:2] == ["", ""] and len(done.out) == 4


@pytest.mark.parametrize(
    ("options", "beam"), [("", 4), ("--top 2", 4), ("--top 5", 5), ("--top 2 --beam 3", 3)]
)
def test_translate_searches_with_a_beam_of_four_or_of_top(
    options: str, beam: int, run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    beams: list[int] = []
    search = nn.Translator.translate

    def record(translator: Any, texts: list[str], beam: int, *args: Any, **options: Any) -> Any:
        beams.append(beam)
        return search(translator, texts, beam, *args, **options)

    monkeypatch.setattr(nn.Translator, "translate", record)
    call(translate.main, [str(run.directory), "hello world", *options.split()])
    assert beams == [beam]


LONG = "hello " * 300


@pytest.mark.parametrize(
    ("lines", "wrong", "error"),
    [
        (["hello world", "", "she has a cat"], "", ""),
        (["hello world", LONG, "the world"], LONG, "error: texts must have at most 256 tokens each, got 300"),
        (["", "helloworld", "the world"], "helloworld", "must have spaces between words"),
    ],
)  # fmt: skip
def test_translate_standard_input_prints_a_line_for_each(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, lines: list[str], wrong: str, error: str
) -> None:
    """An empty line, or one with an error, gives an empty line."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    done = call(translate.main, [str(run.directory)])
    good = [line for line in lines if line not in ("", wrong)]
    texts = {t.source: t.text for t in run.translator.translate(good, beam_size=4)}
    assert done.out == [texts.get(line, "") for line in lines]
    assert done.result == len(done.err) == bool(wrong) and error in "".join(done.err)


def test_translate_empty_standard_input_prints_nothing(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert call(translate.main, [str(run.directory)]).out == []


def test_translate_in_int8_uses_a_rounded_model(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    copy = translate.nn.for_inference
    monkeypatch.setattr(translate.nn, "for_inference", lambda *a: asked.append(a[1:]) or copy(*a))
    line = [str(run.directory), "hello world"]
    assert call(translate.main, [*line, "--int8"]).out == call(translate.main, line).out
    assert asked == [("int8",)]


@pytest.mark.parametrize("end", [["", "never"], [EOFError], [KeyboardInterrupt]])
def test_translate_at_a_prompt_answers_until_it_ends(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, end: list
) -> None:
    type_lines(monkeypatch, "hello world", "hello xylophone", *end)
    done = call(lambda argv: run_script(lambda: translate.main(argv)), [str(run.directory)])
    assert done.result == (130 if end == [KeyboardInterrupt] else 0)
    assert len(done.out) == 2 and done.out[0] == "hola mundo"
    assert any("not in the vocabulary: xylophone" in line for line in done.err)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([" "], "texts must have at least one token each, got ' '"),
        (["hello", "--max-len", "0"], "at least 1"),
        (["hello", "--adapter", "a"], "--adapter is for published models, got "),
        (["hello", "--from", "eng"], "--from and --to are for published models, got "),
        (["hello", "--to", "fra"], "--from and --to are for published models, got "),
        (["hello", "--bleu-tokenize", "zh"], "--bleu-tokenize needs --references"),
        (["hello", "--weights", "a", "--average", "2"], "--average: not allowed with argument --weights"),
    ],
)  # fmt: skip
def test_translate_bad_argument_is_one_line(
    run: SimpleNamespace, arguments: list[str], message: str
) -> None:
    assert message in error_of(translate.main, [str(run.directory), *arguments])


@pytest.mark.parametrize(
    ("sentence", "is_refused"),
    [("x", False), ("x y", False), ("xy", True), ("x yz", True), ("xy cat", False), ("cat", False)],
)
def test_sentences_of_several_letters_without_a_known_word_are_refused(
    run: SimpleNamespace, sentence: str, is_refused: bool
) -> None:
    done = call(translate.main, [str(run.directory), sentence])
    assert done.result == is_refused
    assert ("must have spaces between words, as in" in "".join(done.err)) == is_refused


@pytest.mark.parametrize(
    ("options", "reference", "tokenize"),
    [("", "hola mundo", "13a"), ("", "你好世界", "zh"), ("--bleu-tokenize intl --scores", "hola", "intl")],
)  # fmt: skip
def test_translate_compares_the_translations_with_references(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    options: str, reference: str, tokenize: str,
) -> None:  # fmt: skip
    """Write translations alone, and an empty line for each sentence without one."""
    (tmp_path / "b").write_text(f"{reference}\n\n{reference}\n", encoding="utf-8")
    compared: list[Any] = []

    def scores(*args: Any, **named: Any) -> Scores:
        compared.append((*args, named))
        return Scores(12.345, "sig", 67.891, "other")

    monkeypatch.setattr(translate, "translation_scores", scores)
    monkeypatch.setattr(translate, "require", lambda *_: None)
    line = [str(run.directory), "hello world", "", "the world", "--references", f"{tmp_path}/b"]
    done = call(translate.main, [*line, *options.split()])
    assert done.err == ["BLEU 12.35, chrF 67.89; sig"] and done.result == 0
    found, references = ["hola mundo", "", "el mundo"], [reference, "", reference]
    assert compared == [(found, references, {"tokenize": tokenize})]


def test_explore_without_spaces_between_words_is_refused(run: SimpleNamespace) -> None:
    error = error_of(explore.main, [str(run.directory), "helloworld"])
    assert "'helloworld' must have spaces between words, as in " in error


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the arguments of pictures, which are files of one word here."""
    found: list[Any] = []

    def draw(*args: Any) -> None:
        found.append(args[:-1])
        args[-1].parent.mkdir(exist_ok=True)
        args[-1].write_text("drawn")

    monkeypatch.setattr(explore.plots, "attention_grid", draw)
    monkeypatch.setattr(explore, "require", lambda *_: None)
    return found


def test_explore_draws_the_cross_attention_of_a_translation(
    run: SimpleNamespace, tmp_path: Path, drawn: list[Any]
) -> None:
    for suffix in (".png", ".svg", ".pdf"):
        out = tmp_path / f"new/a{suffix}"
        assert call(explore.main, [str(run.directory), "hello world", "--out", str(out)]).out == [str(out)]  # fmt: skip
        assert out.read_text() == "drawn"
    (translation,) = run.translator.translate(["hello world"], beam_size=4)
    maps, source, target = run.translator.attention(translation)
    for layers, *others in drawn:
        assert others == [target, source, "hello world → hola mundo"]
        np.testing.assert_equal(layers, maps["cross"])


@pytest.mark.parametrize("backward", [False, True])
def test_explore_writes_a_page_of_a_translation_and_its_beam(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backward: bool
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(nn, "explore", lambda *args, **options: made.append((args, options)))
    monkeypatch.chdir(tmp_path)
    line = [str(run.directory), "hello world", *["--backward"] * backward]
    assert call(explore.main, line).out == ["runs/en-es.html"]
    [((model, ids, *others), options)] = made
    t = run.translator
    assert ids.tolist() == [t.source_vocab.encode(["hello", "world"])]
    tokens = t.target_vocab.encode(["hola", "mundo"], eos=True)
    out, title = Path("runs/en-es.html"), "hello world → hola mundo"
    assert others == [["hello", "world"], tokens, ["hola", "mundo", "<eos>"], out, title]
    best = t.translate(["hello world"], beam_size=4, n_best=4)[0]
    assert options["beams"] == [(b.text, pytest.approx(b.score)) for b in best]
    assert (options["vocabulary"], options["backward"]) == (t.target_vocab.tokens, backward)
    assert any(p.requires_grad for p in model.parameters()) == backward


def test_explore_refuses_what_it_cannot_write(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    line = [str(run.directory), "hello world"]
    assert error_of(explore.main, [*line, "--out", "file/a.html"]).startswith("error: ")
    error = "error: --out must end in .html, .png, .svg, .pdf, got new/a.htm"
    assert error_of(explore.main, [*line, "--out", "new/a.htm"]) == error
    assert "got a.PNG" in error_of(explore.main, [*line, "--out", "a.PNG"])
    for name in ("a.png", "a.svg", "a.pdf"):
        error = f"error: --out must end in .html with --backward, got {name}"
        assert error_of(explore.main, [*line, "--backward", "--out", name]) == error
    hide_packages(monkeypatch, "matplotlib")
    monkeypatch.setattr(explore, "require", require)
    error = "error: minigrad explore --out b.png needs matplotlib: pip install matplotlib"
    assert error_of(explore.main, [*line, "--out", "b.png"]) == error
