"""Pickling of models, tokenizers, translators and public functions, for spawned processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from support import tiny_folders
from support.environment import needs

import minigrad as mg
import nn
from nn.published.sentence_transformers import _ACTIVATIONS
from nn.text.tokenize import BPETokenizer, CharTokenizer, WordTokenizer
from nn.text.vocabulary import SPECIALS, Vocabulary

IDS = np.array([[4, 5, 6, 7], [7, 6, 5, 4]])


def round_trip(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def outputs(model: nn.Module) -> np.ndarray:
    """Return what the model computes for fixed ids."""
    model.eval()
    arguments = (IDS, IDS[:, :2]) if isinstance(model, nn.Transformer) else (IDS,)
    with mg.no_grad():
        return model(*arguments).data


def language_model(**options: Any) -> nn.LanguageModel:
    return nn.LanguageModel(nn.DecoderOnlyConfig(12, 8, 2, 2, 16, **options))


ENCODER = nn.EncoderConfig(12, 8, 2, 2, 16, num_classes=3)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "language model": language_model,
    "rotary": lambda: language_model(
        positions="rotary", attention=nn.AttentionConfig(num_kv_heads=1)
    ),
    "transformer": lambda: nn.Transformer(nn.TransformerConfig(12, 12, 8, 2, 1, 1, 16)),
    "classifier": lambda: nn.EncoderClassifier(ENCODER),
    "masked": lambda: nn.MaskedLanguageModel(ENCODER),
}


@pytest.mark.parametrize("adapt", [lambda m: m, nn.lora, nn.for_inference])
@pytest.mark.parametrize("name", MODELS)
def test_pickle_of_a_model_computes_the_same(name: str, adapt: Callable[[Any], Any]) -> None:
    model = adapt(MODELS[name]())
    copy = round_trip(model)
    assert type(copy).__name__ == type(model).__name__
    np.testing.assert_array_equal(outputs(copy), outputs(model))


@pytest.mark.parametrize("activation", nn.ACTIVATIONS)
def test_pickle_of_a_model_keeps_its_activation(activation: str) -> None:
    model = language_model(activation=activation)
    np.testing.assert_array_equal(outputs(round_trip(model)), outputs(model))


@pytest.mark.parametrize(
    "make",
    [
        tiny_folders.encoder_folder,
        tiny_folders.language_model_folder,
        tiny_folders.translator_folder,
    ],
)
def test_pickle_of_a_published_model_and_its_tokenizer_saves_the_same_files(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    directory = make(tmp_path)
    pair = nn.load(directory), nn.text.load(directory)
    nn.save(tmp_path / "own", *pair)
    nn.save(tmp_path / "copy", *round_trip(pair))
    for path in (tmp_path / "own").iterdir():
        assert (tmp_path / "copy" / path.name).read_bytes() == path.read_bytes()


def translator() -> nn.Translator:
    vocab = Vocabulary([*SPECIALS, *"abcde"])
    model = nn.Transformer(nn.TransformerConfig(9, 9, 12, 2, 1, 1, 20, max_len=24))
    return nn.Translator(model, vocab, vocab, WordTokenizer(), CharTokenizer())


def sentence_encoder(path: Path) -> nn.SentenceEncoder:
    """Return a sentence encoder with a layer for each activation."""
    encoder = nn.sentence_encoder(tiny_folders.encoder_folder(path))
    encoder.maps = [(nn.Linear(16, 16), function) for function in _ACTIVATIONS.values()]
    return encoder


def bpe_tokenizer(path: Path) -> BPETokenizer:
    needs("tokenizers")
    return BPETokenizer.train(["the cat sat on the mat"] * 3, 270)


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (sentence_encoder, lambda encoder: encoder.encode(["the cat"]).tolist()),
        (lambda path: translator(), lambda t: [x.text for x in t.translate(["a b c", "d"], 2)]),
        (bpe_tokenizer, lambda t: t("the cat")),
    ],
    ids=["sentence encoder", "translator", "tokenizer"],
)
def test_pickle_of_an_object_does_the_same(tmp_path: Path, make: Any, use: Any) -> None:
    made = make(tmp_path)
    assert use(round_trip(made)) == use(made)


def test_pickle_of_a_tokenizer_with_a_sentencepiece_step_names_the_reason(tmp_path: Path) -> None:
    tokenizers = needs("tokenizers")
    text = nn.text.load(tiny_folders.encoder_folder(tmp_path))

    class Step:
        def pre_tokenize(self, text: Any) -> None: ...

    text.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Step())
    with pytest.raises(TypeError, match=r"cannot be pickled .*; call nn.text.load in each process"):
        pickle.dumps(text)


def test_pickle_of_every_public_function_and_class_is_the_same_object() -> None:
    wrong = []
    for module in (mg, mg.optim, nn, nn.functional, nn.text, nn.init):
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (type, FunctionType)):
                try:
                    assert round_trip(value) is value
                except (pickle.PicklingError, AssertionError):
                    wrong.append(f"{module.__name__}.{name}")
    assert not wrong
