"""Content of the attention explorer's page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from explorer_pages import (
    HOSTILE,
    MAPS,
    SOURCE,
    TARGET,
    data_of,
    model_and_arguments,
    stored_vectors,
    stored_weights,
)

from minigrad.io import save_arrays
from nn import Transformer, TransformerConfig, Translator, attention_page, explore
from nn.commands import main as minigrad_command
from nn.text import SPECIALS, SpaceTokenizer, Vocabulary


def test_attention_page_stores_weights_in_a_byte() -> None:
    for entry in data_of(attention_page(MAPS, SOURCE, TARGET))["maps"]:
        expected = np.array(MAPS[entry["name"]])
        stored = [stored_weights(layer, *expected.shape[1:]) for layer in entry["layers"]]
        gap = np.abs(np.array(stored) - expected)
        assert (gap <= np.sqrt(expected) / 255 + 1 / 510**2).all()


def test_attention_page_names_rows_and_columns() -> None:
    maps = {**MAPS, "empty": [], "other": MAPS["encoder"]}
    data = data_of(attention_page(maps, SOURCE, TARGET, title="a title"))
    tokens = {e["name"]: (e["queries"]["tokens"], e["keys"]["tokens"]) for e in data["maps"]}
    assert data["title"] == "a title"
    assert tokens == {
        "encoder": (SOURCE, SOURCE),
        "decoder": (TARGET, ["<bos>", "I", "have", "a", "cat"]),
        "cross": (TARGET, SOURCE),
        "other": (SOURCE, SOURCE),
    }


def test_attention_page_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    page = attention_page(MAPS, SOURCE, TARGET, path)
    assert path.read_text(encoding="utf-8") == page
    assert "default-src 'none'" in page
    assert not re.search(r"://|@import|url\(|<link|\ssrc=|fetch\(|XMLHttp|import\b", page)


def test_attention_page_with_markup_in_tokens_keeps_it_in_the_data() -> None:
    page = attention_page(MAPS, HOSTILE, TARGET, title=HOSTILE[1])
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == 2
    assert data_of(page)["maps"][0]["queries"]["tokens"] == HOSTILE
    assert data_of(page)["title"] == HOSTILE[1]


WEIGHTS = MAPS["cross"][0]
VECTORS = np.zeros((4, 5, 3))


@pytest.mark.parametrize(
    "maps, vectors, message",
    [
        ({"cross": [WEIGHTS, WEIGHTS * np.nan]}, None, "weights must be from 0 to 1 in layer 2 of 'cross'"),
        ({"cross": [WEIGHTS, WEIGHTS - 0.1]}, None, "weights must be from 0 to 1 in layer 2 of 'cross'"),
        ({"cross": [WEIGHTS + 1]}, None, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS, WEIGHTS[:3]]}, None, r"\(heads, target, source\) must have shape \(4, 5, 4\) in layer 2 of 'cross', got \(3, 5, 4\)"),
        ({"encoder": [WEIGHTS]}, None, r"\(heads, source, source\) must have shape \(4, 4, 4\) in layer 1 of 'encoder', got"),
        ({"encoder": []}, None, "at least one layer"),
        (MAPS, {"cross": [(VECTORS, VECTORS)]}, r"vectors of 'cross' must be .*, got \(4, 5, 3\) and \(4, 5, 3\)"),
    ],
)  # fmt: skip
def test_attention_page_of_arrays_that_do_not_fit_raises(maps, vectors, message) -> None:
    with pytest.raises(ValueError, match=message):
        attention_page(maps, SOURCE, TARGET, vectors=vectors)


def test_explore_command_writes_the_page_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocab = Vocabulary([*SPECIALS, *SOURCE])
    config = TransformerConfig(len(vocab), len(vocab), d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1,
                               num_decoder_layers=3)  # fmt: skip
    translator = Translator(Transformer(config), vocab, vocab, SpaceTokenizer(), SpaceTokenizer())
    translator.save(tmp_path)
    save_arrays(tmp_path / "best.safetensors", translator.model.state_dict())
    path = tmp_path / "page.html"
    assert minigrad_command(["explore", str(tmp_path), "我 有 一只 猫", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    data = data_of(path.read_text(encoding="utf-8"))
    assert data["title"].startswith("我 有 一只 猫 → ")
    encoder, decoder, cross = data["maps"]
    assert [entry["name"] for entry in data["maps"]] == ["encoder", "decoder", "cross"]
    assert [len(entry["layers"]) for entry in data["maps"]] == [1, 3, 3]
    assert encoder["keys"]["tokens"] == cross["keys"]["tokens"] == SOURCE
    assert decoder["keys"]["tokens"] == ["<bos>", *cross["queries"]["tokens"][:-1]]
    assert len(data["beams"]) == 4 and len(data["steps"]) == len(cross["queries"]["tokens"])


@pytest.mark.parametrize(
    "kind, names, label, steps",
    [
        ("transformer", ["encoder", "decoder", "cross"], "source", 3),
        ("language model", ["self"], "sequence", 3),
        ("encoder", ["self"], "sequence", 0),
    ],
)
def test_explore_weights_are_the_softmax_of_the_products_of_its_vectors(
    kind: str, names: list[str], label: str, steps: int
) -> None:
    model, arguments = model_and_arguments(kind)
    page = explore(model, **arguments)
    data = data_of(page)
    assert [entry["name"] for entry in data["maps"]] == names
    assert data["maps"][0]["queries"]["label"] == label
    for entry in data["maps"]:
        q_len, k_len = (len(entry[side]["tokens"]) for side in ("queries", "keys"))
        heads, size = entry["heads"], entry["size"]
        for weights, pair in zip(entry["layers"], entry["vectors"]):
            q = stored_vectors(pair["q"], heads, q_len, size)
            k = stored_vectors(pair["k"], heads, k_len, size)
            scores = q @ k.swapaxes(1, 2) * pair.get("scale", size**-0.5)
            if kind == "encoder":
                scores = scores + stored_vectors(pair["bias"], heads, q_len, k_len)
            if kind == "language model" or entry["name"] == "decoder":
                scores[:, ~np.tri(q_len, dtype=bool)] = -np.inf
            e = np.exp(scores - scores.max(-1, keepdims=True))
            expected = e / e.sum(-1, keepdims=True)
            stored = stored_weights(weights, heads, q_len, k_len)
            np.testing.assert_allclose(stored, expected, atol=0.006)
    assert len(data["steps"]) == steps
    for step in data["steps"]:
        p = [p for _, p in step["likeliest"]]
        assert len(p) == 5 and p == sorted(p, reverse=True) and 0 < sum(p) <= 1 + 1e-6
    html = page._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "<script" not in html


def test_every_phrase_of_the_page_has_a_translation() -> None:
    page = attention_page(MAPS, SOURCE, TARGET)
    words = data_of(attention_page(MAPS, SOURCE, TARGET, language="zh"))["words"]
    phrases = re.findall(r"say\('([^']+)'", page)
    assert len(phrases) > 30
    assert [phrase for phrase in phrases if phrase not in words] == []
    slots = re.compile(r"\{\w+\}")
    for english, chinese in words.items():
        assert sorted(slots.findall(english)) == sorted(slots.findall(chinese))
    assert "words" not in data_of(page)


def test_attention_page_refuses_an_unknown_language() -> None:
    with pytest.raises(ValueError, match="language must be 'en' or 'zh', got 'fr'"):
        attention_page(MAPS, SOURCE, TARGET, language="fr")
