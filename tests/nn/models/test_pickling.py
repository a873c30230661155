"""Pickling of models, tokenizers, translators and public functions, for spawned processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import tiny_folders

import minigrad as mg
import nn
from nn.pretrained.sentence_transformers import _ACTIVATIONS
from nn.text import SPECIALS, BPETokenizer, CharTokenizer, Vocabulary, WordTokenizer

IDS = np.array([[4, 5, 6, 7], [7, 6, 5, 4]])


def round_trip(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def encoder(**options: Any) -> nn.EncoderConfig:
    return nn.EncoderConfig(12, 8, 2, 2, 16, **options)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "language model": lambda: nn.LanguageModel(nn.LanguageModelConfig(12, 8, 2, 2, 16)),
    "transformer": lambda: nn.Transformer(nn.TransformerConfig(12, 12, 8, 2, 1, 1, 16)),
    "encoder": lambda: nn.EncoderModel(encoder()),
    "classifier": lambda: nn.EncoderClassifier(encoder(num_classes=3)),
    "masked": lambda: nn.MaskedLanguageModel(encoder()),
    "rotary": lambda: nn.LanguageModel(
        nn.LanguageModelConfig(
            12, 8, 2, 2, 16, positions="rotary", attention=nn.AttentionConfig(num_kv_heads=1)
        )
    ),
}


def outputs(model: nn.Module) -> np.ndarray:
    model.eval()
    arguments = (IDS, IDS[:, :2]) if isinstance(model, nn.Transformer) else (IDS,)
    with mg.no_grad():
        return model(*arguments).data


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("adapted", ["plain", "lora", "inference"])
def test_pickle_of_a_model_computes_the_same(name: str, adapted: str) -> None:
    model = MODELS[name]()
    if adapted == "lora":
        nn.lora(model)
    elif adapted == "inference":
        model = nn.for_inference(model)
    copy = round_trip(model)
    assert type(copy).__name__ == type(model).__name__
    np.testing.assert_array_equal(outputs(copy), outputs(model))


@pytest.mark.parametrize("activation", nn.ACTIVATIONS)
def test_pickle_of_a_model_keeps_its_activation(activation: str) -> None:
    config = nn.LanguageModelConfig(12, 8, 2, 1, 16, activation=activation)
    model = nn.LanguageModel(config)
    np.testing.assert_array_equal(outputs(round_trip(model)), outputs(model))


@pytest.mark.parametrize(
    "make",
    [
        tiny_folders.encoder_folder,
        tiny_folders.language_model_folder,
        tiny_folders.translator_folder,
    ],
)
def test_pickle_of_a_published_model_and_its_tokenizer(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    directory = make(tmp_path)
    model, text = nn.load(directory), nn.text.load(directory)
    copy, text_copy = round_trip((model, text))
    np.testing.assert_array_equal(outputs(copy), outputs(model))
    sentences = ["the cat sat", "a dog ran on grass"]
    assert text_copy.encode(sentences) == text.encode(sentences)
    assert text_copy.encode(sentences, max_len=4) == text.encode(sentences, max_len=4)
    for saved, source in (
        (tmp_path / "copy", (copy, text_copy)),
        (tmp_path / "own", (model, text)),
    ):
        nn.save(saved, *source)
    for path in sorted((tmp_path / "own").iterdir()):
        assert (tmp_path / "copy" / path.name).read_bytes() == path.read_bytes()


def test_pickle_of_a_sentence_encoder(tmp_path: Path) -> None:
    encoder = nn.sentence_encoder(tiny_folders.encoder_folder(tmp_path))
    encoder.maps = [(nn.Linear(16, 16), function) for function in _ACTIVATIONS.values()]
    np.testing.assert_array_equal(
        round_trip(encoder).encode(["the cat"]), encoder.encode(["the cat"])
    )


def test_pickle_of_a_tokenizer_with_a_sentencepiece_step_names_the_reason(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    text = nn.text.load(tiny_folders.encoder_folder(tmp_path))

    class Step:
        def pre_tokenize(self, text: Any) -> None: ...

    text.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.PreTokenizer.custom(Step())
    with pytest.raises(TypeError, match=r"cannot be pickled .*; call nn.text.load in each process"):
        pickle.dumps(text)


@pytest.mark.parametrize("inference", [False, True])
def test_pickle_of_a_translator_translates_the_same(tmp_path: Path, inference: bool) -> None:
    vocab = Vocabulary([*SPECIALS, *"abcde"])
    model = nn.Transformer(nn.TransformerConfig(9, 9, 12, 2, 1, 1, 20, max_len=24))
    nn.Translator(model, vocab, vocab, WordTokenizer(), CharTokenizer()).save(tmp_path)
    nn.save_weights(tmp_path / "best.safetensors", model)
    translator = nn.Translator.load(tmp_path, inference=inference)
    texts = ["a b c", "d"]
    expected = [t.text for t in translator.translate(texts, 2)]
    assert [t.text for t in round_trip(translator).translate(texts, 2)] == expected


def test_pickle_of_a_tokenizer_splits_the_same() -> None:
    tokenizer = BPETokenizer.train(["the cat sat on the mat"] * 3, 270)
    assert round_trip(tokenizer)("the cat") == tokenizer("the cat")


def test_pickle_of_every_public_function_and_class_is_the_same_object() -> None:
    modules: list[ModuleType] = [mg, mg.optim, nn, nn.functional, nn.text, nn.init]
    wrong = []
    for module in modules:
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, (type, FunctionType)):
                continue
            try:
                same = round_trip(value) is value
            except pickle.PicklingError:
                same = False
            wrong += [] if same else [f"{module.__name__}.{name}"]
    assert not wrong
