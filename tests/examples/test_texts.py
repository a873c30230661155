"""Character-level GPT and text classifier: data, output and errors."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import call, error_of
from scripts import load

texts, char_gpt, classify = (load(name) for name in ("texts", "char_gpt", "classify"))

GPT = "--steps 6 --context 16 --d-model 16 --layers 1 --length 30 --processes 1"


def test_tales_have_a_hundred_thousand_letters() -> None:
    text = texts.tales()
    assert 95_000 < len(text) < 110_000 and text == texts.tales() != texts.tales(seed=1)
    assert text.count("Once upon a time") == 170 and "{" not in text and "  " not in text


def test_opinions_have_the_class_of_the_main_clause() -> None:
    """Expect the class from the main clause. No word predicts it."""
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


def test_char_gpt_writes_and_resumes(tmp_path: Path) -> None:
    prompt, line = "Once upon a time", f"{GPT} --out {tmp_path}/run"
    done = call(char_gpt.main, line)
    assert done.result.startswith(prompt) and len(done.result) == len(prompt) + 30
    assert re.fullmatch(r"104,\d+ letters, 46 different; [\d,]+ parameters", done.out[0])
    out = "\n".join(done.out)
    assert re.search(r"validation loss \d\.\d+, \d\.\d+ bits a letter", out)
    assert out.rstrip().endswith(done.result.rstrip())
    again = [call(char_gpt.main, f"{line} --temperature 0").result for _ in range(2)]
    assert again[0] == again[1]  # the run is done: it only writes


def test_char_gpt_learns_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("äöü " * 300, encoding="utf-8")
    written = call(char_gpt.main, f"{tmp_path}/a.txt {GPT} --prompt ä --steps 150").result
    assert set(written) <= set("äöü ") and written.count("äöü ") >= 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"\xff\xfe", "not UTF-8"),
        (b"short", "must have at least 360 characters for --context 16, got 5"),
    ],
)
def test_char_gpt_invalid_text_is_one_line(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    error = error_of(char_gpt.main, f"{path} {GPT}")
    assert error.startswith(f"error: {path}") and message in error


def test_classify_learns(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {
        f"{'x ' * rng.integers(1, 4)}{word} {'y ' * rng.integers(1, 4)}\t{label}"
        for _ in range(200)
        for word, label in [("a", "one"), ("b", "two"), ("c", "three")]
    }
    (tmp_path / "a.tsv").write_text("\n".join(sorted(rows) * 12), encoding="utf-8")
    options = f"--data {tmp_path}/a.tsv --d-model 16 --layers 1 --epochs 60"
    done = call(classify.main, f"{options} 'x a y' 'x b y'")
    assert done.result > 0.9
    assert re.match(r"accuracy on \d+ held-out texts: (9\d|100)", done.out[-3])
    assert re.fullmatch(r"x a y: one \(\d+%\)", done.out[-2])
    assert done.out[-1].startswith("x b y: two")
