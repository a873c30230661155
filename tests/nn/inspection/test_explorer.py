"""Content of the attention explorer's page."""

from __future__ import annotations

import copy
import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.explorer_pages import (
    HOSTILE,
    MAPS,
    SOURCE,
    TARGET,
    data_of,
    model_and_arguments,
    stored_gradients,
    stored_vectors,
    stored_weights,
)

import minigrad as mg
import nn
from nn import explore
from nn.decoding.search import attention_kind
from nn.inspection.backward import _most_changed_head
from nn.inspection.explorer import attention_page
from nn.options.probes import attentions_of


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
    labels = {e["name"]: (e["queries"]["label"], e["keys"]["label"]) for e in data["maps"]}
    assert labels == {
        **dict.fromkeys(("encoder", "other"), ("source", "source")),
        "decoder": ("target", "target so far"),
        "cross": ("target", "source"),
    }
    alone = data_of(attention_page({"self": MAPS["encoder"]}, SOURCE))["maps"][0]
    assert alone["queries"]["label"] == alone["keys"]["label"] == "sequence"
    for entry in data["maps"]:
        expected = np.array(maps[entry["name"]])
        stored = [stored_weights(layer, *expected.shape[1:]) for layer in entry["layers"]]
        gap = np.abs(np.array(stored) - expected)
        assert (gap <= np.sqrt(expected) / 255 + 1 / 510**2).all()


def test_attention_page_stores_unusual_scales_and_whole_biases() -> None:
    """A scale of 1 / sqrt(d_k) is left out; d_k is not the number of heads, queries or keys."""
    weights, size = MAPS["cross"][0], 7
    heads, queries, keys = weights.shape
    rng = np.random.default_rng(0)
    q, k = rng.random((heads, queries, size)), rng.random((heads, keys, size))
    for scale in (None, size**-0.5, keys**-0.5, queries**-0.5, heads**-0.5):
        for shape in (None, (keys,), (queries, 1), (heads, 1, 1), (heads, queries, keys)):
            bias = None if shape is None else rng.random(shape)
            vectors = {"cross": [(q, k, scale, bias)]}
            page = attention_page({"cross": [weights]}, SOURCE, TARGET, vectors=vectors)
            entry = data_of(page)["maps"][0]
            assert entry["size"] == size
            (stored,) = entry["vectors"]
            assert stored.get("scale", size**-0.5) == (scale or size**-0.5)
            assert ("scale" in stored) == (scale not in (None, size**-0.5))
            if bias is not None:
                expected = np.broadcast_to(bias, weights.shape)
                found = stored_vectors(stored["bias"], heads, queries, keys)
                np.testing.assert_allclose(found, expected, rtol=1e-6)
            assert ("bias" in stored) == (bias is not None)


def test_attention_page_leaves_out_names_without_tokens_and_escapes_itself() -> None:
    empty = attention_page({"a": [np.zeros((2, 0, 0))], "b": []}, [], title="\"'<&")
    assert data_of(empty)["maps"] == []
    inside = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" title="Attention" .*></iframe>', empty._repr_html_()
    )
    assert inside and html.unescape(inside[1]) == empty


def test_attention_page_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    page = attention_page(MAPS, SOURCE, TARGET, path)
    assert path.read_text(encoding="utf-8") == page and "default-src 'none'" in page
    assert not re.search(r"://|@import|url\(|<link|\ssrc=|fetch\(|XMLHttp|import\b", page)


def test_attention_page_with_markup_in_tokens_keeps_it_in_data() -> None:
    page = attention_page(MAPS, HOSTILE, TARGET, title=HOSTILE[1])
    assert len(re.findall(r"<script", page)) == len(re.findall(r"</script>", page)) == 2
    assert data_of(page)["maps"][0]["queries"]["tokens"] == HOSTILE


WEIGHTS = MAPS["cross"][0]


@pytest.mark.parametrize(
    "maps, options, message",
    [
        ({"cross": [WEIGHTS, WEIGHTS * np.nan]}, {}, "weights must be from 0 to 1 in layer 2 of 'cross'"),
        ({"cross": [WEIGHTS - 0.1]}, {}, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS / WEIGHTS.max() * 1.002]}, {}, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS + 1]}, {}, "weights must be from 0 to 1 in layer 1 of 'cross'"),
        ({"cross": [WEIGHTS, WEIGHTS[:3]]}, {}, r"\(heads, target, source\) must have shape \(4, 5, 4\) in layer 2"),
        ({"encoder": [WEIGHTS]}, {}, r"\(heads, source, source\) must have shape \(4, 4, 4\) in layer 1"),
        (MAPS, {"beams": [("x", -1.0), ("y", -np.inf)]}, "beams must have finite scores, got -inf for 'y'"),
        (MAPS, {"language": "fr"}, "language must be 'en' or 'zh', got 'fr'"),
        (MAPS, {"language": ""}, "language must be 'en' or 'zh', got ''"),
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


@pytest.mark.parametrize("backward", [False, True])
def test_explore_without_a_token_for_each_id_or_without_attention_raises(backward: bool) -> None:
    model, arguments = model_and_arguments("transformer")
    for name in ("tokens", "target_tokens"):
        for texts in (arguments[name][1:], [*arguments[name], "x"]):
            message = f"{name} must have a string for each of {len(arguments[name])} ids, got"
            with pytest.raises(ValueError, match=message):
                explore(model, **arguments | {name: texts}, backward=backward)
    model = nn.LanguageModel(nn.LanguageModelConfig(9, 8, 2, 0, 16))
    with pytest.raises(ValueError, match="model must have at least one attention, got none"):
        explore(model, [1, 2], ["a", "b"], backward=backward)


KINDS = ["transformer", "language model", "masked language model"]
"""Kinds of models that return logits of tokens."""


def inputs_of(kind: str, arguments: dict[str, Any]) -> list[np.ndarray]:
    """Return the arguments of a model for those of `explore`."""
    ids = np.array([arguments["ids"]])
    return [ids, np.array([[1, *arguments["target"][:-1]]])] if kind == "transformer" else [ids]


@pytest.mark.parametrize("kind", KINDS)
def test_explore_backward_chooses_each_token_and_its_best_alternative(kind: str) -> None:
    model, arguments = model_and_arguments(kind)
    p = mg.softmax(model.eval()(*inputs_of(kind, arguments))[0]).data
    first = int(kind == "language model")
    ids = arguments["target"] if kind == "transformer" else arguments["ids"][first:]
    expected = []
    for row, best in enumerate(np.argsort(-p)[:, :2].tolist()):
        said = ids[row : row + 1]
        chosen = [*said, *(i for i in best if i not in said)][:2]
        expected += [(row + 1 + first, f"w{i}", pytest.approx(p[row, i])) for i in chosen]
    arguments["target_tokens"] = ["w8", "w9", "w2"]
    outputs = data_of(explore(model, **arguments, backward=True))["backward"]
    assert [(o["place"], o["token"], o["p"]) for o in outputs] == expected
    assert len(outputs) == 2 * len(p)
    del arguments["vocabulary"]
    outputs = data_of(explore(model, **arguments, backward=True))["backward"]
    assert [o["place"] for o in outputs] == [row + 1 + first for row in range(len(ids))]


@pytest.mark.parametrize("kind", KINDS)
def test_explore_backward_stores_gradients_by_all_weights(kind: str) -> None:
    model, arguments = model_and_arguments(kind)
    data = data_of(explore(model, **arguments, backward=True))
    with nn.record_attention(model.eval(), retain_grad=True) as recorded:
        log_p = mg.log_softmax(model(*inputs_of(kind, arguments))[0])
    ids = {"<eos>": 2} | {f"w{i}": i for i in range(12)}
    first = 1 + (kind == "language model")
    for output in data["backward"]:
        y = log_p[output["place"] - first, ids[output["token"]]]
        for entry, stored in zip(data["maps"], output["maps"], strict=True):
            names = [n for n in recorded if entry["name"] in ("self", attention_kind(n))]
            shape = entry["heads"], *(len(entry[side]["tokens"]) for side in ("queries", "keys"))
            largest = 0.0
            for layer, name in enumerate(names):
                (w,) = recorded[name]
                (g,) = mg.gradients(y, [w], retain_graph=True, allow_unused=True)
                expected = np.zeros(shape) if g is None else np.where(w.data[0], g.data[0], 0)
                found = stored_gradients(stored, layer, *shape)
                largest = max(largest, np.abs(expected).max())
                atol = np.sqrt(np.abs(expected) * stored["scale"]) / 127 + stored["scale"] / 127**2
                assert (np.abs(found - expected) <= atol).all()
            assert stored["scale"] == pytest.approx(largest, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_explore_backward_increases_probability_and_keeps_the_model(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nn.inspection.backward.ASCENT_RATE", 0.001)  # shorter than any bend
    model, arguments = model_and_arguments(kind)
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    data = data_of(explore(model, **arguments, backward=True))
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(p.data, before[name])
        assert p.grad is None
    assert not any(module.has_hooks for module in model.modules())
    for output in data["backward"]:
        ascent = output["ascent"]
        if kind == "language model" and output["place"] == 2:  # its query has a single key
            assert ascent is None
            continue
        p = ascent["p"]
        assert len(p) == 11 and p[0] == pytest.approx(output["p"])
        assert (np.diff(p) > 0).all()
        entry = data["maps"][ascent["map"]]
        q_len, k_len = (len(entry[side]["tokens"]) for side in ("queries", "keys"))
        frames = stored_weights(ascent["weights"], 11, q_len, k_len)
        layer = stored_weights(entry["layers"][ascent["layer"]], entry["heads"], q_len, k_len)
        np.testing.assert_allclose(frames[0], layer[ascent["head"]], atol=0.008)
        assert (frames[-1] != frames[0]).any()
        np.testing.assert_allclose(frames.sum(-1), 1, atol=0.02)


@pytest.mark.parametrize("kind", ["transformer", "language model"])
def test_explore_backward_takes_the_steps_of_its_definition(kind: str) -> None:
    """A step is a hundredth of the weights at most, and shorter where the gradient is smaller."""
    model, arguments = model_and_arguments(kind)
    del arguments["vocabulary"]
    arguments = {name: x[:3] for name, x in arguments.items()}
    attentions = attentions_of(model.astype(float).eval())
    weights = [p.weight for a in attentions.values() for p in (a.q_proj, a.k_proj)]
    for w in weights:
        w.data[...] *= 3  # gradients of such weights grow and shrink
    longest = 0.01 * np.sqrt(sum((w.data**2).sum() for w in weights))
    before, first = copy.deepcopy(model.state_dict()), 1 + (kind == "language model")
    data = data_of(explore(model, **arguments, backward=True))
    maps = [entry["name"] for entry in data["maps"]]
    for output in data["backward"][-1:]:
        model.load_state_dict(before)
        steepest, p, frames = 0.0, [], []
        for _ in range(11):
            with nn.record_attention(model) as recorded:
                logits = model(*inputs_of(kind, arguments))[0]
            token = int(output["token"].strip("<eos>w") or 2)
            log_p = mg.log_softmax(logits)[output["place"] - first, token]
            p.append(np.exp(log_p.item()))
            frames.append({name: calls[0][0] for name, calls in recorded.items()})
            gradients = mg.gradients(log_p, weights, allow_unused=True)
            pairs = [(w, g.data) for w, g in zip(weights, gradients) if g is not None]
            steepest = max(steepest, np.sqrt(sum((g**2).sum() for _, g in pairs)))
            for w, g in pairs:
                w.data[...] += g * (longest / steepest)
        assert output["ascent"]["p"] == pytest.approx(p, rel=1e-6)
        changes = {name: np.abs(frames[-1][name] - w).sum((1, 2)) for name, w in frames[0].items()}
        name = max(changes, key=lambda name: changes[name].max())
        in_map = [
            n for n in changes if maps == ["self"] or attention_kind(n) == attention_kind(name)
        ]
        expected = in_map.index(name), changes[name].argmax()
        assert (output["ascent"]["layer"], output["ascent"]["head"]) == expected
        assert maps[output["ascent"]["map"]] in ("self", attention_kind(name))


def test_explore_backward_in_small_batches_gives_the_same_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, arguments = model_and_arguments("transformer")
    pages = []
    for tokens, changes in ((1024, 2**25), (30, 2**25), (1024, 1)):
        monkeypatch.setattr("nn.inspection.backward.MAX_TOKENS", tokens)
        monkeypatch.setattr("nn.inspection.backward.MAX_CHANGES", changes)
        pages.append(data_of(explore(model, **arguments, backward=True))["backward"])
    for outputs in zip(*pages, strict=True):
        first = outputs[0]
        for other in outputs[1:]:
            assert other["token"] == first["token"]
            assert other["ascent"]["p"] == pytest.approx(first["ascent"]["p"], rel=1e-4)
            for one, another in zip(first["maps"], other["maps"], strict=True):
                shape = (4, 3 if one is not first["maps"][0] else 4)
                keys = 3 if one is first["maps"][1] else 4
                gradients = [stored_gradients(m, 1, *shape, keys) for m in (one, another)]
                np.testing.assert_allclose(*gradients, atol=0.02 * one["scale"])


def test_explore_backward_of_unsuitable_model_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    model, arguments = model_and_arguments("encoder")
    with pytest.raises(ValueError, match="backward must be False for a model without logits"):
        explore(model, **arguments, backward=True)
    model, arguments = model_and_arguments("transformer")
    with pytest.raises(RuntimeError, match="a copy for inference has no gradients"):
        explore(nn.for_inference(model), **arguments, backward=True)
    monkeypatch.setattr("nn.inspection.backward.MAX_GRADIENTS", 1000)
    with pytest.raises(ValueError, match=r"at most 1,000 gradients, got 1,776\. Use a shorter"):
        explore(model, **arguments, backward=True)
    monkeypatch.setattr("nn.inspection.backward.MAX_GRADIENTS", 1776)
    explore(model, **arguments, backward=True)


def test_explore_backward_inside_gates_has_no_gradient_by_silent_heads() -> None:
    model, arguments = model_and_arguments("language model")
    gates = {name: np.zeros(4) for name in attentions_of(model)}
    with nn.gate_heads(model, gates):
        outputs = data_of(explore(model, **arguments, backward=True))["backward"]
    assert [output["maps"][0]["scale"] for output in outputs] == [0.0] * 8
    assert [output["ascent"] for output in outputs] == [None] * 8


def test_explore_backward_does_not_depend_on_the_mode_or_on_parts_that_are_not_called() -> None:
    model, arguments = model_and_arguments("language model")
    arguments["ids"], arguments["tokens"] = arguments["ids"][:3], arguments["tokens"][:3]
    expected = data_of(explore(model, **arguments, backward=True))["backward"]
    model.train().spare = nn.MultiHeadAttention(24, 4)
    with mg.no_grad():
        found = data_of(explore(model, **arguments, backward=True))["backward"]
    assert [output["maps"] for output in found] == [output["maps"] for output in expected]
    assert [output["p"] for output in found] == [output["p"] for output in expected]
    assert found[-1]["ascent"].keys() == expected[-1]["ascent"].keys() and model.training


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


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.5])
def test_most_changed_head_is_none_only_without_any_change(size: float) -> None:
    first, last = np.zeros((2, 2, 3, 2, 2))  # two rows of a batch, three heads
    last[1, 2, 0, 1] = last[0, 0, 0, 0] = size
    frames = [{"self": [x, y]} for x, y in ((first, first), (first, last))]
    found = _most_changed_head(frames, np.array([[0.1, 0.2], [0.3, 0.4]]), 1)
    if size == 0:
        assert found is None
        return
    assert found is not None and (found["map"], found["layer"], found["head"]) == ("self", 1, 2)
    assert found["p"] == [0.2, 0.4]
    np.testing.assert_array_equal(found["weights"], [first[1, 2], last[1, 2]])
