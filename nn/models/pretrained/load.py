"""Loading: a folder with config.json and model.safetensors to a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_if_any, read_json

from ..base import Model
from ..config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from ..encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from ..language_model import LanguageModel
from ..transformer import Transformer
from .families import FAMILIES, Family
from .fill import Names, fill
from .folder import HOW, Origin, Weights
from .tables import Rule

__all__ = ["load"]

HEADS: dict[str, tuple[type[EncoderModel], str]] = {
    "none": (EncoderModel, "Model"), "mlm": (MaskedLanguageModel, "ForMaskedLM"),
    "classes": (EncoderClassifier, "ForSequenceClassification"), "tokens": (TokenClassifier, "ForTokenClassification"),
}  # fmt: skip
"""The heads of encoders: our class, and what theirs ends in."""
MODELS: dict[type[ModelConfig], type[Model]] = {LanguageModelConfig: LanguageModel, TransformerConfig: Transformer}


def load(
    directory: str | Path, head: str = "", *, num_classes: int | None = None, dtype: Any = "float32",
    generator: np.random.Generator | None = None,
) -> Any:  # fmt: skip
    """The model in a folder of files as Hugging Face's transformers writes them, in evaluation mode.

    It is a `LanguageModel`, a `Transformer`, or an encoder with the head that the folder has. `head` gives an
    encoder another one: "none", "mlm" (the words that were masked), "classes" of a text or "tokens" (classes
    of each token), these with `num_classes`; what the folder does not have of it is drawn from `generator`.
    Weights are read into `dtype`; those that are of it in the file are mapped, and take memory only once they
    are used: replace the file at will, but do not write into it. `model.origin` remembers what `nn.save` needs.
    Nothing is downloaded, and nothing is unpickled. A folder that does not fit is a ValueError that names the file.
    """
    directory = Path(directory)
    settings = read_json(directory / "config.json", HOW)
    name, family = _family(settings)
    weights = Weights(directory)
    head, native = _heads(name, family, settings, head)
    config = replace(family.config(settings), dtype=np.dtype(dtype).name)
    names = Names(family, family.table(config), weights, head, native)
    if head in ("classes", "tokens"):
        config = _with_classes(config, names, num_classes, settings)
    elif num_classes is not None:
        raise ValueError(f"num_classes is for head='classes' or 'tokens', got head={head!r}")
    path = directory / "generation_config.json"
    generation = read_if_any(path)
    config = _with_ends(config, generation)
    _check_ids(config, settings, generation)
    _check_sizes(config, weights, settings.where)
    kind = HEADS[head][0] if head else MODELS[family.kind]
    model = kind(_with_output(config, names.rules, weights), init=False)
    places, kept = fill(model, names, generator)
    origin = Origin(name, dict(settings), head, places, kept)
    if not names.native:
        origin.places, origin.kept = family.places(model, head), {}
        describe_head(origin.settings, family, head, model.config)
    origin.generation = _options(settings, generation)
    origin.files = {path.name: path.read_bytes()} if path.is_file() else {}
    model.origin = origin
    return model.eval()


def _family(settings: Settings) -> tuple[str, Family]:
    name = settings.text("model_type", "")
    if name not in FAMILIES:
        raise ValueError(f"{settings.where}: model_type: expected one of {', '.join(sorted(FAMILIES))}, got {name!r}")
    if settings.get("quantization_config") is not None:
        raise ValueError(
            f"{settings.where}: quantization_config: quantised weights are not supported; get the original"
        )
    return name, FAMILIES[name]


def _heads(name: str, family: Family, settings: Settings, asked: str) -> tuple[str, str]:
    """The head of an encoder that is asked for, and that of the folder; "" for models that are not encoders."""
    if family.kind is not EncoderConfig:
        if asked:
            raise ValueError(f"{settings.where}: a {name} model takes no other head, got head={asked!r}")
        return "", ""
    if asked and asked not in (*family.heads, "none"):
        raise ValueError(f"head: expected one of none, {', '.join(family.heads)} for {name}, got {asked!r}")
    heads = {family.base + suffix: head for head, (_, suffix) in HEADS.items()} | {"BertForPreTraining": "mlm"}
    native = next((heads[n] for n in settings.list("architectures", str, []) if n in heads), "none")
    return asked or native, native


def _with_classes(config: Any, names: Names, num_classes: int | None, settings: Settings) -> Any:
    """The configuration with so many classes, or with those of the weights; `names` is told if the head is another."""
    found = names.classes()
    names.native = names.native and num_classes in (None, found)
    count = found if names.native else num_classes
    if count is None:
        told = f"{settings.where}: architectures: the weights have no such head; " if names.native else ""
        raise ValueError(f"{told}head={names.head!r}: expected num_classes")
    labels = settings.object("id2label", None) if names.native else None
    if labels and len(labels) != count:
        settings.fail("id2label", f"as many as the {count} classes of the weights")
    return replace(config, num_classes=count, **(names.family.classes if names.head == "classes" else {}))


def describe_head(settings: dict[str, Any], family: Family, head: str, config: Any) -> None:
    """Settings of theirs for an encoder with a head of ours."""
    settings["architectures"] = [family.base + HEADS[head][1]]
    if head in ("classes", "tokens") and len(settings.get("id2label") or {}) != config.num_classes:
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        settings["label2id"] = {f"LABEL_{i}": i for i in range(config.num_classes)}


def _with_ends(config: Any, generation: Settings) -> Any:
    """The EOS tokens of generation_config.json count: for chats it has more than config.json."""
    if generation.get("eos_token_id") is None or isinstance(config, EncoderConfig):
        return config
    found = generation.take("eos_token_id", (int, list))
    return replace(config, eos_id=tuple(generation.list("eos_token_id", int)) if isinstance(found, list) else found)


def _options(*sources: Settings) -> dict[str, Any]:
    """What `generate` is to be told, by the last source that says it: the tokens that come first, or never."""
    options: dict[str, Any] = {}
    for source in sources:
        if (forced := source.integer("forced_bos_token_id", None, low=0)) is not None:
            options["first"] = (forced,)
        words = source.list("bad_words_ids", list, None) or []
        if not all(isinstance(i, int) for ids in words for i in ids):
            source.fail("bad_words_ids", "lists of token ids")
        never = [ids[0] for ids in words if len(ids) == 1] + (source.list("suppress_tokens", int, None) or [])
        if never:
            options["suppress"] = tuple(never)
    return options


def _check_ids(config: Any, settings: Settings, generation: Settings) -> None:
    """No token can be outside the vocabulary: those of config.json, and those that generation is told of."""
    words = getattr(config, "target_vocab_size", 0) or getattr(config, "vocab_size", 0)
    for name, ids in (("pad_token_id", [config.pad_id]), ("the first token", [config.bos_id]),
                      ("eos_token_id", config.end_ids)):  # fmt: skip
        if outside := [i for i in ids if i is not None and not 0 <= i < words]:
            source = generation if name == "eos_token_id" and generation.get(name) is not None else settings
            raise ValueError(f"{source.where}: {name}: expected less than the {words:,} tokens, got {outside[0]}")
    for source in (settings, generation):
        options = _options(source)
        if outside := [i for i in (*options.get("first", ()), *options.get("suppress", ())) if not 0 <= i < words]:
            raise ValueError(f"{source.where}: expected token ids from 0 to {words - 1}, got {outside[0]}")


def _check_sizes(config: Any, weights: Weights, where: str) -> None:
    """No size can be larger than the files allow: so that a lie in config.json takes no memory."""
    held = sum(int(np.prod(entry.shape, dtype=object)) for entry in weights.values())
    width = config.embedding_size or config.d_model
    words = max(getattr(config, n, 0) for n in ("vocab_size", "source_vocab_size", "target_vocab_size"))
    products = {
        "vocabulary": words * width, "feed-forward net": config.d_ff * config.d_model,
        "attention": config.num_heads * config.size_of_head * config.d_model,
        "table of positions": config.max_len * width if config.positions == "learned" else 0,
        "table of distances": config.relative_buckets if config.positions == "relative" else 0,
        "types": getattr(config, "num_types", 0) * width,
    }  # fmt: skip
    for name, needed in products.items():
        if needed > held:
            raise ValueError(f"{where}: the {name} would have {needed:,} numbers, but {weights.where} holds {held:,}")
    layers = max(getattr(config, n, 0) for n in ("num_layers", "num_encoder_layers", "num_decoder_layers"))
    if layers > max(len(weights), 1) and not getattr(config, "shared_layers", False):
        raise ValueError(f"{where}: {layers:,} layers, but {weights.where} holds {len(weights):,} arrays")
    for name, size, most in (("layers", layers, 10_000), ("positions", config.max_len, 1 << 20)):
        if size > most and (name == "layers" or config.positions.startswith("sinusoidal")):
            raise ValueError(f"{where}: expected at most {most:,} {name}, got {size:,}")


def _with_output(config: Any, rules: list[Rule], weights: Weights) -> Any:
    """The output projection as the file has it: tied or not, and without a bias of zeros, which only costs time."""
    tied = getattr(config, "tie", False)
    if tied == "embeddings" and "lm_head.weight" not in weights:
        config = replace(config, tie="all")
    elif tied in (True, "all") and "lm_head.weight" in weights:
        names = (r.theirs + ".weight" for r in rules if r.ours.endswith(".tokens"))
        tokens = next(name for name in names if name in weights)
        if not np.array_equal(weights.array("lm_head.weight"), weights.array(tokens)):
            config = replace(config, tie="embeddings" if tied == "all" else False)
    if isinstance(config, TransformerConfig) and config.output_bias:
        used = "final_logits_bias" in weights and weights.array("final_logits_bias").any()
        config = replace(config, output_bias=bool(used))
    return config
