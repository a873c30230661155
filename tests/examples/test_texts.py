"""Character-level GPT and text classifier: data, output and errors."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from support.commands import call, error_of
from support.scripts import load

texts, fables, char_gpt, classify = (
    load(name) for name in ("texts", "fables", "char_gpt", "classify")
)

GPT = "--steps 6 --context 16 --d-model 16 --layers 1 --length 30 --processes 1"


def test_tales_have_a_hundred_thousand_letters() -> None:
    text = fables.tales()
    assert 95_000 < len(text) < 110_000 and text == fables.tales() != fables.tales(seed=1)
    assert text.count("Once upon a time") == 170 and "{" not in text and "  " not in text


def test_opinions_have_the_class_of_the_main_clause() -> None:
    """No word predicts the class."""
    opinions = dict(texts.opinions(2000))
    for text, label in {
        "the plot is not wonderful , although the ending is really bad": "bad",
        "although the plot is not dreadful , the ending is good": "good",
        "the view is never awful , even if the ending is anything but superb": "good",
        "the music turned out to be excellent , but the room is never superb": "bad",
    }.items():
        assert opinions[text] == label
    words = Counter((word, label) for text, label in opinions.items() for word in {*text.split()})
    for word in {word for word, _ in words}:
        assert 0.35 < words[word, "good"] / (words[word, "good"] + words[word, "bad"]) < 0.65, word


def test_char_gpt_writes_and_resumes(tmp_path: Path) -> None:
    prompt, line = "Once upon a time", f"{GPT} --out {tmp_path}/run"
    done = call(char_gpt.main, line)
    assert done.result.startswith(prompt) and len(done.result) == len(prompt) + 30
    assert re.fullmatch(r"104,\d+ letters, 46 different; [\d,]+ parameters", done.out[0])
    assert re.fullmatch(r"validation loss \d\.\d+, \d\.\d+ bits a letter", done.out[1])
    assert "\n".join(done.out).endswith(done.result)
    again = [call(char_gpt.main, f"{line} --temperature 0").result for _ in range(2)]
    assert again[0] == again[1]  # the run is done: it only writes


def test_char_gpt_learns_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("äöü " * 300, encoding="utf-8")
    written = call(char_gpt.main, f"{tmp_path}/a.txt {GPT} --prompt ä --steps 150").result
    assert written.count("äöü ") >= 4


def test_char_gpt_short_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("short")
    message = (
        f"error: {tmp_path}/a.txt: the text must have at least 360 characters for --context 16"
    )
    assert error_of(char_gpt.main, f"{tmp_path}/a.txt {GPT}") == f"{message}, got 5"


def test_classify_learns(tmp_path: Path) -> None:
    rows = [
        f"{'x ' * (i % 8)}{word} {'y ' * (i // 8)}\t{label}\n"
        for i in range(40)
        for word, label in [("a", "one"), ("b", "two"), ("c", "three")]
    ]
    (tmp_path / "a.tsv").write_text("".join(rows))
    options = f"--data {tmp_path}/a.tsv --d-model 16 --layers 1 --epochs 60"
    done = call(classify.main, f"{options} 'x a y' 'x b y'")
    assert done.result > 0.9
    assert re.match(r"accuracy on 12 held-out texts: (9\d|100)", done.out[-3])
    assert re.fullmatch(r"x a y: one \(\d+%\)", done.out[-2])
    assert done.out[-1].startswith("x b y: two")
