"""Character-level GPT and text classifier: data, output and errors."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scripts import load

from minigrad.console import run_script

texts, char_gpt, classify = (load(name) for name in ("texts", "char_gpt", "classify"))

GPT = shlex.split("--steps 6 --context 16 --d-model 16 --layers 1 --length 30 --processes 1")


def test_tales_have_a_hundred_thousand_letters() -> None:
    text = texts.tales()
    assert 95_000 < len(text) < 110_000 and text == texts.tales() != texts.tales(seed=1)
    assert text.count("Once upon a time") == 170 and "{" not in text and "  " not in text


def test_opinions_have_the_class_of_the_main_clause() -> None:
    """The class follows from the main clause, and no word predicts it."""
    pairs = texts.opinions(2000)
    good = set(texts._GOOD)
    words: dict[str, Counter[str]] = {"good": Counter(), "bad": Counter()}
    for text, label in pairs:
        clauses = re.split(r" , (?:but|even if|although) | , ", text)
        first = not (text.startswith("although") or " , but " in text)
        clause = clauses[0 if first else 1]
        negated = bool(re.search("not|hardly|never|anything but", clause))
        assert label == ("good" if (clause.split()[-1] in good) != negated else "bad"), text
        words[label].update(set(text.split()))
    counts = Counter(label for _, label in pairs)
    assert abs(counts["good"] - counts["bad"]) < 200
    for word in words["good"]:
        share = words["good"][word] / (words["good"][word] + words["bad"][word])
        assert 0.35 < share < 0.65, word


def test_char_gpt_writes_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "Once upon a time"
    written = char_gpt.main([*GPT, "--out", str(tmp_path / "run")])
    assert written.startswith(prompt) and len(written) == len(prompt) + 30
    out = capsys.readouterr().out
    assert re.match(r"104,\d+ letters, 46 different; [\d,]+ parameters\n", out)
    assert re.search(
        r"validation loss \d\.\d+, \d\.\d+ bits a letter", out
    ) and out.rstrip().endswith(written.rstrip())
    again = char_gpt.main(
        [*GPT, "--out", str(tmp_path / "run"), "--temperature", "0"]
    )  # done: it only writes
    assert again == char_gpt.main([*GPT, "--out", str(tmp_path / "run"), "--temperature", "0"])


def test_char_gpt_learns_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("äöü " * 300, encoding="utf-8")
    written = char_gpt.main([str(tmp_path / "a.txt"), *GPT, "--prompt", "ä", "--steps", "150"])
    assert set(written) <= set("äöü ") and written.count("äöü ") >= 4


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "no such file"),
        (b"\xff\xfe", "not UTF-8"),
        (b"short", "must have at least 360 characters for --context 16, got 5"),
    ],
)
def test_char_gpt_invalid_text_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    assert run_script(lambda: char_gpt.main([str(tmp_path / "a.txt"), *GPT])) == 1
    err = capsys.readouterr().err
    assert (
        err.startswith(f"error: {tmp_path / 'a.txt'}") and message in err and err.count("\n") == 1
    )


def test_classify_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = {f"{'x ' * rng.integers(1, 4)}{word} {'y ' * rng.integers(1, 4)}\t{label}" for _ in range(200) for word, label in [("a", "one"), ("b", "two"), ("c", "three")]}  # fmt: skip
    (tmp_path / "a.tsv").write_text("\n".join(sorted(rows) * 12), encoding="utf-8")
    options = [
        "--data",
        str(tmp_path / "a.tsv"),
        "--d-model",
        "16",
        "--layers",
        "1",
        "--epochs",
        "60",
    ]
    assert classify.main([*options, "x a y", "x b y"]) > 0.9
    out = capsys.readouterr().out
    assert re.search(r"accuracy on \d+ held-out texts: 9\d|100", out)
    assert re.search(r"^x a y: one \(\d+%\)$", out, re.MULTILINE) and "x b y: two" in out
