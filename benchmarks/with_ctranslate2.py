"""Tasks in CTranslate2 (inference only)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from sizes import prompt_of

VERSION = ctranslate2.__version__


def convert(path: str) -> Callable[[], Any]:
    """Convert a model that transformers wrote, to float32 and to 8 bits, with made-up tokens."""
    import transformers
    from ctranslate2.converters.transformers import GPT2Loader, LlamaLoader, MarianMTLoader

    loader, kind = {
        "gpt2": (GPT2Loader, "GPT2LMHeadModel"),
        "llama": (LlamaLoader, "LlamaForCausalLM"),
        "marian": (MarianMTLoader, "MarianMTModel"),
    }[transformers.AutoConfig.from_pretrained(path).model_type]
    for name in ("float32", "int8"):
        model = getattr(transformers, kind).from_pretrained(path)  # the loader takes it apart
        spec = loader().get_model_spec(model)
        words = [f"t{i}" for i in range(model.config.vocab_size)]
        if kind == "MarianMTModel":
            words.pop()  # the padding is not among them
            spec.register_source_vocabulary(words)
            spec.register_target_vocabulary(words)
            spec.config.decoder_start_token = words[0]
        else:
            spec.register_vocabulary(words)
        spec.config.bos_token = spec.config.eos_token = words[0]
        spec.config.unk_token = words[1]
        spec.validate()
        spec.optimize(quantization=None if name == "float32" else name)
        (Path(path) / name).mkdir()
        spec.save(str(Path(path) / name))
    return lambda: None


def decode(
    path: str, batch: int, beams: int, length: int, steps: int, weights: str = "float32"
) -> Callable[[], Any]:
    """Return a call that decodes exactly `steps` tokens for `batch` sources."""
    translator = ctranslate2.Translator(
        str(Path(path) / weights), device="cpu", compute_type=weights, intra_threads=2
    )
    source = np.random.default_rng(0).integers(1, 1000, (batch, length))
    tokens = [[f"t{i}" for i in row] for row in source]
    return lambda: translator.translate_batch(
        tokens,
        beam_size=beams,
        min_decoding_length=steps,
        max_decoding_length=steps,
        max_batch_size=batch,
    )


def write_on(
    path: str, context: int, steps: int, batch: int = 1, weights: str = "float32"
) -> Callable[[], Any]:
    """Return a call that generates exactly `steps` tokens greedily, with the cache."""
    generator = ctranslate2.Generator(
        str(Path(path) / weights), device="cpu", compute_type=weights, intra_threads=2
    )
    prompt = [f"t{i}" for i in prompt_of(context)]
    return lambda: generator.generate_batch(
        [prompt] * batch,
        min_length=steps,
        max_length=steps,
        sampling_topk=1,
        include_prompt_in_result=False,
    )


decode_int8 = partial(decode, weights="int8")
write_on_int8 = partial(write_on, weights="int8")
