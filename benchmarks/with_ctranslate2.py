"""Tasks in CTranslate2 (inference only)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.converters.transformers import MarianMTLoader

VERSION = ctranslate2.__version__


def decode(path: str, batch: int, beams: int, length: int, steps: int) -> Callable[[], Any]:
    """Return a call that decodes exactly `steps` tokens for `batch` sources, in float32."""
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(path)
    loader = MarianMTLoader()
    spec = loader.get_model_spec(model)
    words = [f"t{i}" for i in range(model.config.vocab_size - 1)]  # the padding is not among them
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = words[0]
    spec.config.bos_token = spec.config.eos_token = words[0]
    spec.config.unk_token = words[1]
    spec.validate()
    spec.optimize(quantization=None)
    directory = tempfile.TemporaryDirectory()
    spec.save(directory.name)
    translator = ctranslate2.Translator(
        directory.name, device="cpu", compute_type="float32", intra_threads=2
    )
    source = np.random.default_rng(0).integers(1, 1000, (batch, length))
    tokens = [[words[i] for i in row] for row in source]

    def step() -> Any:
        return translator.translate_batch(
            tokens,
            beam_size=beams,
            min_decoding_length=steps,
            max_decoding_length=steps,
            max_batch_size=batch,
        )

    step.directory = directory  # type: ignore[attr-defined]  # lives as long as the task
    return step
