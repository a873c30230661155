"""Generated tokens against transformers: random tiny models, batches, beams and rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from published import VOCAB, make

import nn

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 1},
    "llama": {"num_hidden_layers": 1},
    "bart": {"encoder_layers": 1, "decoder_layers": 1},
    "marian": {"encoder_layers": 1, "decoder_layers": 1},
}
ROWS = 6


@cache
def pair(name: str) -> tuple[Any, Any]:
    """Return a random model of transformers and the same model loaded here."""
    theirs = make(transformers, torch, name, **SMALL[name])
    theirs.generation_config = transformers.GenerationConfig(
        eos_token_id=theirs.config.eos_token_id,
        pad_token_id=theirs.config.pad_token_id,
        decoder_start_token_id=getattr(theirs.config, "decoder_start_token_id", None),
    )
    with TemporaryDirectory() as directory:
        theirs.save_pretrained(directory)
        ours = nn.load(Path(directory))
    return theirs, nn.for_inference(ours)


def draw_settings(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Return random arguments of `model.generate`, about half of them left out."""

    def maybe(chance: float) -> bool:
        return bool(rng.random() < chance)

    theirs, _ = pair(name)
    eos = theirs.config.eos_token_id
    words = [int(i) for i in rng.choice(np.arange(3, VOCAB - 1), 8, replace=False)]
    ends = [eos, *words[:2]] if maybe(0.6) else [eos]
    settings: dict[str, Any] = {
        "num_beams": int(rng.integers(1, 5)),
        "max_new_tokens": int(rng.integers(2, 9)),
        "eos_token_id": ends,
        "suppress_tokens": [padding(name), *(words[2:4] if maybe(0.4) else [])],
    }
    if settings["num_beams"] > 1:
        settings["length_penalty"] = float(rng.choice([-1.0, 0.0, 0.6, 1.0, 2.0]))
        settings["early_stopping"] = [False, True, "never"][rng.integers(3)]
        settings["num_return_sequences"] = int(rng.integers(1, settings["num_beams"] + 1))
    if maybe(0.3):
        settings["no_repeat_ngram_size"] = int(rng.integers(1, 4))
    if maybe(0.3):
        settings["repetition_penalty"] = float(rng.choice([0.7, 1.3, 2.0]))
    if maybe(0.3):
        settings["min_new_tokens"] = int(rng.integers(1, settings["max_new_tokens"] + 1))
    if theirs.config.is_encoder_decoder and maybe(0.5):
        settings["forced_bos_token_id"] = words[4]
    return settings


def padding(name: str) -> int:
    """Return the token that pads batches for this model; it is never generated."""
    pad = pair(name)[0].config.pad_token_id
    return 0 if pad is None else int(pad)


def as_our_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `beam_search` or `greedy_search` that correspond to `settings`."""
    names = {
        "max_new_tokens": "max_len", "min_new_tokens": "min_len", "eos_token_id": "eos",
        "num_beams": "beam_size", "num_return_sequences": "n_best", "suppress_tokens": "suppress",
    }  # fmt: skip
    options = {names.get(name, name): value for name, value in settings.items()}
    if (forced := options.pop("forced_bos_token_id", None)) is not None:
        options["first"] = [forced]
    return options


def until_end(tokens: list[int], ends: list[int]) -> list[int]:
    """Return the tokens up to the first of `ends`, which is included."""
    last = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: last + 1]


def generate_both(
    name: str, settings: dict[str, Any], rng: np.random.Generator
) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """Return the results for each row of a padded batch by transformers, and by this library."""
    theirs, ours = pair(name)
    lengths = rng.integers(1, 8, ROWS)
    rows = [rng.integers(3, VOCAB - 1, n).tolist() for n in lengths]
    pad, width = padding(name), int(lengths.max())
    left = not theirs.config.is_encoder_decoder
    ids = np.array(
        [[pad] * (width - len(r)) + r if left else r + [pad] * (width - len(r)) for r in rows]
    )
    real = np.array([[i < len(r) for i in range(width)][:: -1 if left else 1] for r in rows])
    tensors = {"attention_mask": torch.tensor(real).long(), "pad_token_id": pad}
    made = theirs.generate(torch.tensor(ids), do_sample=False, **tensors, **settings)
    start = width if left else 1
    n_best = settings.get("num_return_sequences", 1)
    flat = [until_end(row[start:], settings["eos_token_id"]) for row in made.tolist()]
    expected = [flat[i : i + n_best] for i in range(0, len(flat), n_best)]

    options = as_our_options(settings)
    inputs = {"prompt": rows} if left else {"source": ids}
    if options["beam_size"] == 1:
        del options["beam_size"]
        found = [[h.tokens] for h in nn.greedy_search(ours, **inputs, **options)]
    else:
        found = [[h.tokens for h in best] for best in nn.beam_search(ours, **inputs, **options)]
    return expected, found


def compare(name: str, seeds: range) -> tuple[int, list[str]]:
    """Return the number of compared sequences and a line for each that differs."""
    count, wrong = 0, []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        settings = draw_settings(rng, name)
        for expected, found in zip(*generate_both(name, settings, rng), strict=True):
            count += len(expected)
            if expected != found:
                wrong.append(f"{name} {seed}: expected {expected}, got {found} by {settings}")
    return count, wrong


@pytest.mark.parametrize("name", SMALL)
def test_generated_tokens_equal_transformers(name: str) -> None:
    count, wrong = compare(name, range(40))
    assert count >= 240 and not wrong, "\n".join(wrong[:3])


if __name__ == "__main__":  # the long form: thousands of cases
    import sys

    for family in SMALL:
        total, lines = compare(family, range(1000, 1000 + int(sys.argv[1])))
        print(f"{family}: {total - len(lines)} of {total} equal", *lines[:3], sep="\n")
