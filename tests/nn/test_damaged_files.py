"""Damaged directories: every reader raises one line that names the directory, or returns the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import INTENSE, Hang, damages_of, limits
from runs import timeless, trainer, weights
from tiny_folders import encoder_folder, language_model_folder, translator_folder

import minigrad as mg
import nn
from minigrad.io.safetensors import write_safetensors
from nn.text import SPECIALS, Vocabulary, WordTokenizer

pytestmark = pytest.mark.slow
pytest.importorskip("tokenizers", reason="the tokenizers of published models need it")

TEXTS = ["the cat sat", "a", "why is it the cat on the mat"]
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3), np.uint8)


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data))


def make_run(path: Path) -> None:
    mg.manual_seed(0)
    vocab = Vocabulary([*SPECIALS, *"abcde"])
    config = nn.TransformerConfig(9, 9, 12, 2, 1, 1, 20, max_len=24, norm_first=True)
    translator = nn.Translator(
        nn.Transformer(config), vocab, vocab, WordTokenizer(), WordTokenizer()
    )
    translator.save(path, settings={"lr": 1.0})
    nn.save_weights(path / "best.safetensors", translator.model, step=3, valid_loss=1.5)


def read_run(path: Path) -> Any:
    return [t.text for t in nn.Translator.load(path).translate(["a b c", "d", "b a d c b"])]


def make_state(path: Path) -> None:
    trainer(path, max_epochs=1, save_every=2, decay=0.5).fit()


def read_state(path: Path) -> Any:
    resumed = trainer(path, max_epochs=2, save_every=2, decay=0.5)
    resumed.fit(resume=True)
    arrays = {name: array.tolist() for name, array in weights(resumed).items()}
    return arrays, timeless(resumed.history)


def read_translator(path: Path) -> Any:
    return nn.generate_text(nn.load(path), nn.text.load(path), TEXTS, max_len=5)


def make_llama(path: Path) -> None:
    """Save a Llama in several files, with the tokenizer and chat template of a GPT-2."""
    language_model_folder(path)
    config = nn.LanguageModelConfig(
        19, 16, 4, 2, 32, max_len=40, norm="rms", gated=True, activation="silu", bias=False, positions="rotary",
        attention=nn.AttentionConfig(num_kv_heads=2), tie=False, eos_id=2,
    )  # fmt: skip
    nn.save(path, nn.LanguageModel(config, np.random.default_rng(0)), max_shard_size="8KB")
    write_json(path / "generation_config.json", {"eos_token_id": [2, 3], "bad_words_ids": [[5]]})


def read_language_model(path: Path) -> Any:
    text, model = nn.text.load(path), nn.load(path)
    logits = model(text.batch(TEXTS)[0]).data.tolist()
    return logits, text.chat([{"role": "user", "content": "the cat"}]), read_translator(path)


def make_sentence_encoder(path: Path) -> None:
    """Save a BERT with the modules of sentence-transformers."""
    encoder_folder(path)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_N": "Normalize"}
    types = {path: f"sentence_transformers.models.{kind}" for path, kind in kinds.items()}
    write_json(path / "modules.json", [{"path": p, "type": kind} for p, kind in types.items()])
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    write_json(path / "1_Pooling/config.json", pooling)
    dense = {"in_features": 16, "out_features": 4, "bias": False}
    write_json(path / "2_Dense/config.json", dense)
    weight = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    write_safetensors(path / "2_Dense/model.safetensors", {"linear.weight": weight})
    write_json(path / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": False})
    prompts = {"prompts": {"query": "the "}, "default_prompt_name": "query"}
    write_json(path / "config_sentence_transformers.json", prompts)


def read_sentence_encoder(path: Path) -> Any:
    return nn.sentence_encoder(path).encode(TEXTS).tolist()


def base_model() -> nn.LanguageModel:
    config = nn.LanguageModelConfig(12, 8, 2, 1, 16, max_len=20)
    return nn.LanguageModel(config, np.random.default_rng(0))


def make_adapter(path: Path) -> None:
    model = nn.lora(base_model(), 2, 4, ("q_proj", "v_proj", "linear1"))
    for p in model.parameters():
        p.data[...] += np.random.default_rng(1).standard_normal(p.shape) * p.requires_grad
    nn.save_adapter(path, model)


def read_adapter(path: Path) -> Any:
    ids = np.arange(12).reshape(2, 6)
    return nn.load_adapter(path, base_model().eval())(ids).data.tolist()


def make_image_settings(path: Path) -> None:
    scale = {"do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    channels = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7]}
    write_json(path / "preprocessor_config.json", scale | channels)


def read_images(path: Path) -> Any:
    return nn.pixels(path, IMAGES).tolist()


DIRECTORIES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "run": (make_run, read_run),
    "training state": (make_state, read_state),
    "translator": (translator_folder, read_translator),
    "language model": (make_llama, read_language_model),
    "sentence encoder": (make_sentence_encoder, read_sentence_encoder),
    "adapter": (make_adapter, read_adapter),
    "image settings": (make_image_settings, read_images),
}


def may_change(name: str, file: str) -> bool:
    """Return True if a change of the file can give another valid directory.

    Checksums protect the files of a run; nothing protects the settings and tokenizers of others.
    The history of a run is not needed to resume it, and a run without a state begins.
    """
    if name == "run":
        return False
    return not file.endswith(".safetensors") or (name, file) == (
        "training state",
        "last.safetensors",
    )


def fault(read: Callable[[Path], Any], directory: Path, expected: Any) -> str:
    """Return "refused", "equal", "changed", or what is wrong with the error."""
    try:
        with limits():
            result = read(directory)
    except Hang:
        return "it hangs"
    except (ValueError, OSError, UserWarning) as error:
        message = str(error)
        is_line = message.isprintable() and len(message) < 2000 and str(directory) in message
        return "refused" if is_line else f"not one line with the directory: {message!r:.300}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "equal" if result == expected else "changed"


@pytest.mark.parametrize("name", DIRECTORIES)
def test_read_of_damaged_directory_raises_one_line_or_returns_the_same(
    name: str, tmp_path: Path
) -> None:
    make, read = DIRECTORIES[name]
    whole, directory = tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    make(whole)
    expected = read(shutil.copytree(whole, tmp_path / "expected"))
    rng = np.random.default_rng(0)
    cases = damages_of(whole, rng)
    count = len(cases) if INTENSE else 80
    refused, wrong = 0, []
    for i in sorted(rng.permutation(len(cases))[:count].tolist()):
        file, what, damage = cases[i]
        damage(shutil.copytree(whole, directory) / file)
        found = fault(read, directory, expected)
        shutil.rmtree(directory)
        refused += found == "refused"
        if found not in ("refused", "equal") and not (
            found == "changed" and may_change(name, file)
        ):
            wrong.append(f"{file}: {what}: {found}")
    assert not wrong, "\n".join(wrong)
    assert refused > count / 3
