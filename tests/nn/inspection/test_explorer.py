"""Content of the attention explorer's page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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

import minigrad as mg
import nn
from nn import explore
from nn.inspection.explorer import attention_page


def test_attention_page_stores_weights_as_bytes_and_tokens() -> None:
    maps = {**MAPS, "empty": [], "other": MAPS["encoder"]}
    data = data_of(attention_page(maps, SOURCE, TARGET, title="a title"))
    assert data["title"] == "a title"
    tokens = {e["name"]: (e["queries"]["tokens"], e["keys"]["tokens"]) for e in data["maps"]}
    assert tokens == {
        "encoder": (SOURCE, SOURCE),
        "decoder": (TARGET, ["<bos>", *TARGET[:-1]]),
        "cross": (TARGET, SOURCE),
        "other": (SOURCE, SOURCE),
    }
    for entry in data["maps"]:
        expected = np.array(maps[entry["name"]])
        stored = [stored_weights(layer, *expected.shape[1:]) for layer in entry["layers"]]
        gap = np.abs(np.array(stored) - expected)
        assert (gap <= np.sqrt(expected) / 255 + 1 / 510**2).all()


def test_attention_page_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    page = attention_page(MAPS, SOURCE, TARGET, path)
    assert path.read_text(encoding="utf-8") == page and "default-src 'none'" in page
    assert not re.search(r"://|@import|url\(|<link|\ssrc=|fetch\(|XMLHttp|import\b", page)


def test_attention_page_with_markup_in_tokens_keeps_it_in_data() -> None:
    page = attention_page(MAPS, HOSTILE, TARGET, title=HOSTILE[1])
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == 2
    assert data_of(page)["maps"][0]["queries"]["tokens"] == HOSTILE


WEIGHTS, VECTORS = MAPS["cross"][0], np.zeros((4, 5, 3))


@pytest.mark.parametrize(
    "maps, options, message",
    [
        ({"cross": [WEIGHTS, WEIGHTS * np.nan]}, {}, "weights must be from 0 to 1 in layer 2 of 'cross'"),
        ({"cross": [WEIGHTS - 0.1]}, {}, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS + 1]}, {}, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS, WEIGHTS[:3]]}, {}, r"\(heads, target, source\) must have shape \(4, 5, 4\) in layer 2"),
        ({"encoder": [WEIGHTS]}, {}, r"\(heads, source, source\) must have shape \(4, 4, 4\) in layer 1"),
        ({"encoder": []}, {}, "at least one layer"),
        (MAPS, {"vectors": {"cross": [(VECTORS, VECTORS)]}}, r"vectors of 'cross' must be .*, got \(4, 5, 3\)"),
        (MAPS, {"beams": [("x", -1.0), ("y", -np.inf)]}, "beams must have finite scores, got -inf for 'y'"),
        (MAPS, {"language": "fr"}, "language must be 'en' or 'zh', got 'fr'"),
    ],
)  # fmt: skip
def test_attention_page_of_invalid_arguments_raises(
    maps: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attention_page(maps, SOURCE, TARGET, **options)


@pytest.mark.parametrize("kind", ["transformer", "language model", "encoder"])
def test_explore_stores_vectors_whose_products_give_weights(kind: str) -> None:
    model, arguments = model_and_arguments(kind)
    data = data_of(explore(model, **arguments))
    is_pair = kind == "transformer"
    names = ["encoder", "decoder", "cross"] if is_pair else ["self"]
    assert [entry["name"] for entry in data["maps"]] == names
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
            stored = stored_weights(weights, heads, q_len, k_len)
            np.testing.assert_allclose(stored, mg.softmax(scores).data, atol=0.006)


@pytest.mark.parametrize("kind, count", [("transformer", 3), ("language model", 3), ("encoder", 0)])
def test_explore_stores_likeliest_tokens_of_each_step(kind: str, count: int) -> None:
    model, arguments = model_and_arguments(kind)
    steps = data_of(explore(model, **arguments))["steps"]
    assert len(steps) == count
    for step in steps:
        p = [p for _, p in step["likeliest"]]
        assert len(p) == 5 and p == sorted(p, reverse=True) and 0 < sum(p) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (nn.MaskedLanguageModel, ["a", "b", "c"]), (nn.EncoderModel, []), (nn.TokenClassifier, []),
    ],
)  # fmt: skip
def test_explore_of_encoder_stores_likeliest_tokens_if_it_has_their_logits(
    kind: type[nn.EncoderModel], said: list[str]
) -> None:
    model = kind(nn.EncoderConfig(9, 8, 2, 1, 16, num_classes=6), np.random.default_rng(0))
    page = explore(model, [4, 5, 6], ["a", "b", "c"], vocabulary="012345678")
    steps = data_of(page)["steps"]
    assert [step["said"] for step in steps] == said
    likeliest = model.eval()(np.array([[4, 5, 6]])).data.argmax(-1)[0]
    assert [step["likeliest"][0][0] for step in steps] == [str(i) for i in likeliest][: len(said)]


def test_explore_of_transformer_takes_arrays_and_requires_a_target() -> None:
    model, arguments = model_and_arguments("transformer")
    expected = explore(model, **arguments)
    names = ("ids", "tokens", "target", "target_tokens")
    assert explore(model, **arguments | {n: np.array(arguments[n]) for n in names}) == expected
    with pytest.raises(ValueError, match="explore: target must be given for a Transformer, got"):
        explore(model, arguments["ids"], arguments["tokens"])


def test_explorer_page_in_notebook_is_frame_without_script() -> None:
    html = attention_page(MAPS, SOURCE, TARGET)._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "<script" not in html


def test_every_phrase_of_page_has_translation() -> None:
    page = attention_page(MAPS, SOURCE, TARGET)
    words = data_of(attention_page(MAPS, SOURCE, TARGET, language="zh"))["words"]
    phrases = re.findall(r"say\('([^']+)'", page)
    assert len(phrases) > 30
    assert [phrase for phrase in phrases if phrase not in words] == []
    slots = re.compile(r"\{\w+\}")
    for english, chinese in words.items():
        assert sorted(slots.findall(english)) == sorted(slots.findall(chinese))
    assert "words" not in data_of(page)
