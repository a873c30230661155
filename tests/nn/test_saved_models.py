"""Models of drawn settings: saved weights and directories give the same model again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edges import beside, encodable
from support.environment import max_examples

import nn
from minigrad.io import save_arrays
from nn.text.tokenize import SpaceTokenizer
from nn.text.vocabulary import SPECIALS, Vocabulary


@st.composite
def configs(draw: Any) -> Any:
    """Draw the settings of a tiny model."""
    flag = st.booleans()
    options: dict[str, Any] = {
        "norm": draw(st.sampled_from(["layer", "rms"])),
        "norm_first": draw(flag),
        "gated": draw(flag),
        "bias": draw(flag),
        "activation": draw(st.sampled_from(["relu", "gelu", "silu"])),
        "positions": draw(st.sampled_from(["sinusoidal", "learned", "rotary"])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "dropout": draw(st.sampled_from([0.0, 0.1])),
        "max_len": 8,
        "attention": nn.AttentionConfig(
            num_kv_heads=draw(st.sampled_from([1, 2])),
            window=draw(st.sampled_from([None, 2])),
            qk_norm=draw(flag),
        ),
        "embeddings": nn.EmbeddingConfig(scale=draw(flag)),
    }
    if draw(flag):
        tie = draw(st.sampled_from(["none", "target", "embeddings", "all"]))
        return nn.EncoderDecoderConfig(9, 9, 8, 2, 1, 2, 4, tie=tie, **options)
    eos = draw(st.sampled_from([None, 2, [3, 4]]))
    return nn.DecoderOnlyConfig(9, 8, 2, 2, 4, tie=draw(flag), eos_id=eos, **options)


def model_of(config: Any, seed: int) -> Any:
    kind = nn.Transformer if isinstance(config, nn.TransformerConfig) else nn.LanguageModel
    return kind(config, np.random.default_rng(seed))


def outputs(model: Any) -> Any:
    ids = np.arange(1, 7).reshape(2, 3)
    inputs = (ids, ids) if isinstance(model, nn.Transformer) else (ids,)
    return model.eval()(*inputs).data


seeds = st.integers(0, 2**32 - 1)


@max_examples(12)
@given(
    configs(),
    seeds,
    st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(encodable, max_size=3)),
)
def test_model_loaded_from_saved_weights_equals_it(
    config: Any, seed: int, metadata: dict[str, Any]
) -> None:
    model = model_of(config, seed)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "best.safetensors"
        nn.save_weights(path, model, **metadata)
        again = nn.load_run(path)
        assert not any(module.training for module in again.modules())
        other = type(model)(model.config)
        found = nn.load_weights(path, other)
    assert found == metadata
    for loaded in (again, other):
        assert type(loaded) is type(model) and loaded.config == model.config
        assert list(loaded.state_dict()) == list(model.state_dict())
        for name, array in model.state_dict().items():
            np.testing.assert_array_equal(loaded.state_dict()[name], array, strict=True)
        np.testing.assert_array_equal(outputs(loaded), outputs(model), strict=True)


@max_examples(12)
@given(
    configs().filter(lambda config: isinstance(config, nn.TransformerConfig)),
    seeds,
    st.lists(st.sampled_from("abcdeüé"), min_size=5, max_size=5, unique=True),
    st.booleans(),
)
def test_translator_loaded_from_its_directory_translates_alike(
    config: Any, seed: int, words: list[str], lowercase: bool
) -> None:
    model = model_of(config, seed)
    vocab = Vocabulary([*SPECIALS, *words])
    tokenizer = SpaceTokenizer(lowercase)
    translator = nn.Translator(model, vocab, vocab, tokenizer, tokenizer)
    sentences = [" ".join(words), words[0].upper(), f"{words[1]} unseen"]
    with TemporaryDirectory() as directory:
        translator.save(directory)
        nn.save_weights(Path(directory) / "best.safetensors", model)
        again = nn.Translator.load(directory)
        translations = [t.text for t in again.translate(sentences, max_len=5)]
    assert translations == [t.text for t in translator.translate(sentences, max_len=5)]


MODEL = nn.EncoderConfig(9, 8, 2, 1, 8, max_len=5, num_classes=2, positions="learned")
MAY_DIFFER: list[tuple[dict[str, Any], str]] = [
    *(({name: 0.3}, "") for name in ("dropout", "activation_dropout", "head_dropout")),
    ({"attention": nn.AttentionConfig(dropout=0.3)}, ""), ({"dtype": "float64"}, ""), ({}, ""),
    ({"positions": "sinusoidal", "max_len": 6}, "positions.kind='sinusoidal' (expected 'learned')"),
    ({"activation": "tanh"}, "activation='tanh' (expected 'relu')"), ({"pad_id": 3}, "pad_id=3 (expected 0)"),
    ({"norm_eps": 1e-3}, "norm_eps=0.001 (expected 1e-05)"), ({"max_len": 4}, "max_len=4 (expected 5)"),
    ({"num_heads": 4}, "num_heads=4 (expected 2)"), ({"d_ff": 7}, "d_ff=7 (expected 8)"),
    ({"attention": nn.AttentionConfig(scale=1.0)}, "attention.scale=1.0 (expected None)"),
]  # fmt: skip
"""Changes of a configuration, and the differences that `load_weights` names."""


def test_load_weights_names_options_that_differ_but_dropout_and_dtype(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    nn.save_weights(path, nn.EncoderClassifier(MODEL), note=1)
    for changes, message in MAY_DIFFER:
        model = nn.EncoderClassifier(replace(MODEL, **changes))
        if message:
            whole = f"{path}: the weights of another model: this one has {message}"
            with pytest.raises(ValueError, match=f"^{re.escape(whole)}$"):
                nn.load_weights(path, model)
        else:
            assert nn.load_weights(path, model) == {"note": 1}, changes


@pytest.mark.parametrize("array", [np.ones(3, "f"), np.full(2, np.nan, "f")], ids=["shape", "NaN"])
@given(count=beside(5, low=1))
def test_load_weights_names_the_first_arrays_that_do_not_fit(array: Any, count: int) -> None:
    model = nn.Sequential(*[nn.LayerNorm(2, bias=False) for _ in range(8)])
    wrong = dict.fromkeys([*model.state_dict()][:count], array)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "w.safetensors"
        save_arrays(path, model.state_dict() | wrong)
        with pytest.raises(ValueError, match="0.weight") as caught:
            nn.load_weights(path, model)
    more = re.findall(r"and (\d+) more$", str(caught.value))
    assert more == ([str(count - 5)] if count > 5 else [])
    assert len(re.findall(r"\d\.weight", str(caught.value))) == min(count, 5)
