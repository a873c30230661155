"""Saving of models in the format of Hugging Face's transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minigrad.arguments import check_choice
from minigrad.io.atomic import replace_together
from minigrad.io.json import Settings, write_json
from minigrad.io.reading import listed
from minigrad.io.safetensors import WEIGHT_FILES, write_shards

from ..models import Model
from ..options.config import DecoderOnlyConfig, EncoderDecoderConfig, extended
from ..text.loading import TOKENIZER_FILES
from .family import ENCODERS, HF_ACTIVATIONS
from .load import FAMILIES, Origin, new_origin, read_config
from .weights import MAY_DIFFER, differing, model_to_dict

__all__ = ["save"]


def save(
    directory: str | Path,
    model: Any,
    text: Any = None,
    *,
    dtype: str | None = None,
    max_shard_size: int | str = "50GB",
) -> None:
    """Write a model to a directory in the format of Hugging Face's transformers.

    A model of `nn.load` is saved with the names and the config.json of its directory. Another one
    is saved as GPT-2, Llama, Marian or BERT, if one of them has all of its options.

    All files are replaced together: after an error or a kill, `nn.load` reads the old model or the
    new one. A kill can leave a directory `.RANDOM.part`, which may be deleted.

    Parameters
    ----------
    directory : str or Path
        A directory, which is made if it does not exist.
    model : Model
        A model of `nn`.
    text : ModelText, optional
        A tokenizer of `nn.text.load`, whose files are written too.
    dtype : str, optional
        Type of the weights in the file: "float16", "bfloat16", "float32" or "float64". By default
        that of the model.
    max_shard_size : int or str
        Bytes of a file, such as "200MB". More weights are written to several files with an index.

    Raises
    ------
    TypeError
        `model` is not a model of `nn`.
    ValueError
        No family has the options of the model, or it has adapters or pruned heads.
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"save: model must be a model of nn, got {type(model).__name__}; nn.save_weights keeps "
            "any module"
        )
    if dtype is not None:
        check_choice("save", "dtype", dtype, "float16", "bfloat16", "float32", "float64")
    if extended(model.config).pruned_heads:
        raise ValueError(
            "model must have all heads, since other libraries read no pruned ones; nn.save_weights "
            "keeps them"
        )
    if any(name.endswith(".lora_a") for name, _ in model.named_parameters()):
        raise ValueError(
            "save: model must have no adapters; make them part of it by merge_lora, or keep them "
            "by save_adapter"
        )
    origin = getattr(model, "origin", None) or origin_of_trained(model)
    kept = {name for stored in origin.arrays.values() for name in stored.parameters}
    if lost := [name for name, _ in model.named_parameters() if name not in kept]:
        raise ValueError(
            f"save: model must have the parameters of its family, got also {listed(lost)}; "
            "nn.save_weights keeps any model"
        )
    stored = str(dtype or model.config.dtype)  # a dtype equals its name
    names = {"dtype", "torch_dtype"} & set(origin.settings) or {"torch_dtype"}
    settings = {**origin.settings, **dict.fromkeys(names, stored)}
    with replace_together(directory, "config.json", (WEIGHT_FILES, TOKENIZER_FILES)) as part:
        values = {name: p.data for name, p in model.named_parameters()}
        arrays = {name: stored.join(values) for name, stored in origin.arrays.items()}
        write_shards(part, arrays | origin.unused, dtype, max_shard_size)
        write_json(part / "config.json", settings, 2)
        origin.files.write(part)
        if text is not None:
            text.save(part)


def origin_of_trained(model: Model) -> Origin:
    """Return the origin of a model that was not loaded, as GPT-2, Llama, Marian or BERT.

    A ValueError lists the options that the family does not have.
    """
    config: Any = extended(model.config)
    head = ""
    if isinstance(config, DecoderOnlyConfig):
        name = "llama" if config.norm == "rms" else "gpt2"
    elif isinstance(config, EncoderDecoderConfig):
        name = "marian"
    else:
        name = "bert"
        head = next(h for h, kind in reversed(ENCODERS.items()) if isinstance(model, kind))
    family = FAMILIES[name]
    config = config.effective
    options = config.flatten(config.to_dict())
    options["activation"] = HF_ACTIVATIONS.get(config.activation)
    settings = {
        "model_type": name,
        **{key: options[option] for option, key in family.keys.items()},
        **family.hf_config(config),
    }
    loaded = read_config(Settings(settings, f"save: {family.base}"), family).effective
    # config.json lacks these, or has other keys
    free: tuple[str, ...] = (*MAY_DIFFER, "pruned_heads", "num_classes")
    expected = loaded.to_dict()
    if head == "classes":
        expected |= family.classifier
    else:
        free += tuple(family.classifier)
    kind = model_to_dict(model)["model"]
    if text := differing({"model": kind, **config.to_dict()}, expected, free):
        raise ValueError(
            f"save: model must have the options of {family.base}, got {text}; nn.save_weights "
            "keeps any model"
        )
    return new_origin(family, model, head, settings)
