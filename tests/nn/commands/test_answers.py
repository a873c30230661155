"""`minigrad fine-tune` with a language model: prompts and answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import call, error_of
from support.tiny_folders import WORDS, language_model_folder, text_files

import nn
from nn.commands import fine_tune
from nn.text.chats import encode_chat, read_chats

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}on {{ m.content }} [SEP] {% else %}{{ m.content }} {% endif %}"
    "{% endfor %}{% if add_generation_prompt %}on {% endif %}"
)
NOUNS = ["cat", "dog", "mat", "grass"]
STARTS = ["where is", "who is", "why does", "the", "a", "it is", "does the", "is it"]
PAIRS = [
    (f"{start} {noun}", "the mat sat" if start[0] == "w" else "the dog ran")
    for start in STARTS
    for noun in NOUNS
]


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    folder = language_model_folder(tmp_path / "gpt")
    text_files(folder, False, chat_template=TEMPLATE)
    return folder


def messages(prompt: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    return file


@pytest.mark.slow
def test_fine_tune_of_a_language_model_learns_answers(
    gpt: Path, pairs: Path, tmp_path: Path
) -> None:
    line = f"{gpt} {pairs} --out {tmp_path}/out --train all --epochs 40 --lr 0.01 --batch-size 8 --patience 0"
    done = call(fine_tune.main, line)
    assert done.out[0].startswith("loss of a token in 3 test answers: ") and done.result < 0.1
    wrote, expected = (
        [x.partition(":")[2].strip() for x in done.out if x.startswith(f"  {mark}:")]
        for mark in ("wrote", "expected")
    )
    assert wrote == expected and len(wrote) == 3
    model, text = nn.load(tmp_path / "out"), nn.text.load(tmp_path / "out")
    prompts = [messages(a, b)[:1] for a, b in PAIRS]
    answers = nn.generate_text(model, text, prompts, max_len=5)
    assert np.mean([found == b for found, (_, b) in zip(answers, PAIRS)]) > 0.9


def test_read_chats_of_every_form_are_equal(tmp_path: Path) -> None:
    rows = PAIRS[:5]
    for name, content in {
        "a.tsv": "".join(f"{a}\t{b}\n" for a, b in rows),
        "a.csv": "".join(f"{a},{b}\n" for a, b in rows),
        "a.jsonl": "".join(json.dumps({"ask": a, "say": b}) + "\n" for a, b in rows),
        "b.jsonl": "".join(json.dumps({"messages": messages(a, b)}) + "\n\n" for a, b in rows),
    }.items():
        (tmp_path / name).write_text(content)
        assert read_chats(tmp_path / name) == [messages(a, b) for a, b in rows]


def test_fine_tune_of_a_language_model_trains_adapters_by_default(
    gpt: Path, pairs: Path, tmp_path: Path
) -> None:
    before = nn.load(gpt).state_dict()
    line = f"{gpt} {pairs} --out {tmp_path}/out --save-adapter {tmp_path}/adapter --lr 0.03"
    done = call(fine_tune.main, line)
    assert done.result < float(done.out[0].split()[8])
    model, text = nn.load(tmp_path / "out"), nn.text.load(tmp_path / "out")
    changed = {
        name for name, x in model.state_dict().items() if not np.array_equal(x, before[name])
    }
    assert changed and all(name.split(".")[-2] in ("q_proj", "v_proj") for name in changed)
    adapted = nn.merge_lora(nn.load_adapter(tmp_path / "adapter", nn.load(gpt)))
    ids = np.array([text.encode("the cat", special=False)])
    np.testing.assert_allclose(adapted(ids).data, model(ids).data, rtol=1e-4, atol=1e-5)


words = st.lists(st.sampled_from(WORDS[4:]), min_size=1, max_size=4).map(" ".join)


@given(chat=st.lists(st.tuples(words, words), min_size=1, max_size=3), system=st.none() | words)
def test_encode_chat_marks_what_the_assistant_writes(
    tmp_path_factory: pytest.TempPathFactory, chat: list[tuple[str, str]], system: str | None
) -> None:
    """Of each of its messages, and the token that ends it: what it has to generate after a prompt."""
    folder = tmp_path_factory.mktemp("text")
    text_files(folder, False, chat_template=TEMPLATE)
    text = nn.text.load(folder)
    expected: list[tuple[str, bool]] = (
        [] if system is None else [(w, False) for w in system.split()]
    )
    all_messages = [] if system is None else [{"role": "system", "content": system}]
    for prompt, answer in chat:
        all_messages += messages(prompt, answer)
        expected += [(word, False) for word in (*prompt.split(), "on")]
        expected += [(word, True) for word in (*answer.split(), "[SEP]")]
    ids, mask = encode_chat(text, all_messages)
    assert [*zip(text.tokens(ids), mask)] == expected
    prompt_ids = text.encode(text.chat(all_messages[:-1]), special=False)
    assert ids[: len(prompt_ids)] == prompt_ids and mask[len(prompt_ids)]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"messages": []},
        {"messages": "the cat"},
        {"messages": [{"role": "assistant", "content": "a"}]},
        {"messages": messages("the", "cat")[:1]},
        {"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]},
        {"messages": [{"role": "user", "content": None}, {"role": "assistant", "content": "a"}]},
    ],
    ids=str,
)
def test_read_chats_names_the_line_of_a_wrong_chat(tmp_path: Path, row: dict[str, Any]) -> None:
    file = tmp_path / "chats.jsonl"
    rows = [{"messages": messages("the", "cat")}, row]
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=f"^{file}, line 2 must .*messages"):
        read_chats(file)


def test_encode_chat_refuses_a_template_that_does_not_write_message_by_message(
    tmp_path: Path,
) -> None:
    text_files(tmp_path, False, chat_template="{{ messages | length }} {{ messages[-1].content }}")
    with pytest.raises(ValueError, match="chat_template must write a chat message by message"):
        encode_chat(nn.text.load(tmp_path), [*messages("the", "cat"), *messages("a", "dog")])


def test_fine_tune_of_a_language_model_refuses_what_does_not_fit(
    gpt: Path, pairs: Path, tmp_path: Path
) -> None:
    line = f"{gpt} {pairs} --out {tmp_path}/out"
    error = error_of(fine_tune.main, f"{line} --train head")
    assert error.endswith("--train must be lora or all for a language model, got head")
    error = error_of(fine_tune.main, f"{line} --max-len 2")
    assert "must have an answer before token 2, got none; pass a larger --max-len" in error
    text_files(gpt, False)
    assert "no chat_template: not a model for chats" in error_of(fine_tune.main, line)


def test_fine_tune_reports_the_loss_of_a_held_out_token_and_answers_within_the_limit(
    gpt: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of unequal lengths, and a prompt that leaves room for one token of nine."""
    rows = [("the cat sat on the mat the", "dog"), ("a dog", "the dog ran on the mat")]
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    lengths: list[int] = []
    generate = nn.generate_text

    def record(*args: Any, **options: Any) -> Any:
        lengths.append(options["max_len"])
        return generate(*args, **options)

    monkeypatch.setattr(nn, "generate_text", record)
    model, text, losses = nn.load(gpt).eval(), nn.text.load(gpt), []
    for a, b in rows:
        ids, mask = (part[:9] for part in encode_chat(text, messages(a, b)))
        x = model([ids]).data[0].astype(float)
        log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
        losses += [-log_p[i - 1, ids[i]] for i in range(1, len(ids)) if mask[i]]
    line = f"{gpt} {pairs} --test {tmp_path}/test.tsv --out {tmp_path}/out --epochs 1 --max-len 9"
    done = call(fine_tune.main, line)
    assert float(done.out[0].split()[8]) == pytest.approx(np.mean(losses), abs=6e-4)
    assert lengths == [1, 4]  # four tokens are the longest answer to learn
