"""Loading: a folder with config.json and model.safetensors to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_json

from ...layers import init
from ...layers.module import Parameter
from ..base import Model
from ..config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from ..encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from ..language_model import LanguageModel
from ..transformer import Transformer
from .families import FAMILIES, Family
from .folder import HOW, Origin, Weights, listed
from .tables import Place, known, places, rules_of

__all__ = ["load"]

ENCODERS: dict[str, type[EncoderModel]] = {
    "none": EncoderModel, "mlm": MaskedLanguageModel, "classes": EncoderClassifier, "tokens": TokenClassifier,
}  # fmt: skip
"""Encoders by their head."""
SUFFIXES = {
    "none": "Model",
    "mlm": "ForMaskedLM",
    "classes": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
}


def load(
    directory: str | Path, head: str = "", *, num_classes: int | None = None, dtype: Any = "float32",
    generator: np.random.Generator | None = None,
) -> Any:  # fmt: skip
    """The model in a folder of files as Hugging Face's transformers writes them, in evaluation mode.

    It is a `LanguageModel`, a `Transformer`, or an encoder with the head that the folder has. `head` gives an
    encoder another one: "none", "mlm" (the words that were masked), "classes" of a text or "tokens" (classes
    of each token), these with `num_classes`; what the folder does not have of it is drawn from `generator`.
    Weights are read into `dtype`. `model.origin` remembers what `nn.save` needs. Nothing is downloaded, and
    nothing is unpickled. A folder that does not fit is a ValueError that names the file.
    """
    directory = Path(directory)
    settings = read_json(directory / "config.json", HOW)
    name, family = _family(settings)
    weights = Weights(directory)
    native = _native_head(family, settings)
    head = head or native
    if native and head not in family.heads and head != "none":
        raise ValueError(f"head: expected one of none, {', '.join(family.heads)} for {name}, got {head!r}")
    if not native and head:
        raise ValueError(f"{settings.where}: a {name} model takes no other head, got head={head!r}")
    try:
        config = replace(family.config(settings), dtype=np.dtype(dtype).name)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(settings.where) else f"{settings.where}: {text}") from None
    prefix = _prefix(family, config, weights)
    is_native = head == native and (num_classes is None or num_classes == _classes_in(weights, family, head, prefix))
    num_classes = _classes_in(weights, family, head, prefix) if is_native else num_classes
    config = _with_head(config, family, head, num_classes, settings if is_native else None)
    config = _with_generation(config, generation := _generation(directory))
    _check_sizes(config, weights, settings.where)
    config = _with_output(config, family, weights, prefix)
    model = _made(config, head)
    origin = Origin(name, dict(settings), head, prefix, generation=_options(generation, settings, family))
    _fill(model, family, origin, weights, is_native, generator)
    if not is_native:
        origin.native = False
        origin.prefix = family.prefixes[-1 if head == "none" else 0]
    origin.files = {p.name: p.read_bytes() for p in [directory / "generation_config.json"] if p.is_file()}
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


def _native_head(family: Family, settings: Settings) -> str:
    """The head that a folder's encoder has; "" for models that are not encoders."""
    if "classes" not in family.heads:
        return ""
    for architecture in settings.list("architectures", str, []):
        for head, suffix in SUFFIXES.items():
            if architecture == family.base + suffix:
                return head
        if architecture == family.base + "ForPreTraining" and "cls.predictions.bias" in family.heads["mlm"]:
            return "mlm"
    return "none"


def _prefix(family: Family, config: ModelConfig, weights: Weights) -> str:
    """What the names of the file begin with."""
    first = _tokens(family, config, "@")
    for prefix in family.prefixes:
        if first.replace("@", prefix) + ".weight" in weights:
            return prefix
    expected = " or ".join(first.replace("@", prefix) + ".weight" for prefix in family.prefixes)
    raise ValueError(f"{weights.where}: expected {expected}, got {listed(weights, 4)}")


def _classes_in(weights: Weights, family: Family, head: str, prefix: str) -> int | None:
    """How many classes the head in the file has."""
    if head not in ("classes", "tokens"):
        return None
    name = next(r.theirs for r in rules_of(family.heads[head], prefix) if r.ours == ("output",)) + ".weight"
    return weights[name].shape[0] if name in weights and weights[name].shape else None


def _with_head(config: Any, family: Family, head: str, num_classes: int | None, settings: Settings | None) -> Any:
    """The configuration of an encoder with a head of classes; others as they are."""
    if head not in ("classes", "tokens"):
        if num_classes is not None:
            raise ValueError(f"num_classes is for head='classes' or 'tokens', got head={head!r}")
        return config
    if num_classes is None:
        raise ValueError(f"head={head!r}: expected num_classes")
    labels = settings and settings.object("id2label", None)
    if settings and labels and len(labels) != num_classes:
        settings.fail("id2label", f"as many as the {num_classes} classes of the weights")
    return replace(config, num_classes=num_classes, **(family.classes if head == "classes" else {}))


def _generation(directory: Path) -> Settings | None:
    path = directory / "generation_config.json"
    return read_json(path) if path.is_file() else None


def _with_generation(config: Any, generation: Settings | None) -> Any:
    """The end marks of generation_config.json count: for chats it has more than config.json."""
    if generation is None or generation.get("eos_token_id") is None or isinstance(config, EncoderConfig):
        return config
    found = generation.take("eos_token_id", (int, list))
    return replace(config, eos_id=tuple(generation.list("eos_token_id", int)) if isinstance(found, list) else found)


def _options(generation: Settings | None, settings: Settings, family: Family) -> dict[str, Any]:
    """What `generate` is to be told: tokens that come first, and tokens that never come."""
    options: dict[str, Any] = {}
    for source in (settings, generation or Settings({}, "")):
        forced = source.integer("forced_bos_token_id", None, low=0)
        if forced is not None:
            options["first"] = (forced,)
        never = [
            words[0] for words in source.take("bad_words_ids", list, []) if isinstance(words, list) and len(words) == 1
        ]
        never += source.list("suppress_tokens", int, [])
        if never:
            options["suppress"] = tuple(never)
    return options


def _check_sizes(config: Any, weights: Weights, where: str) -> None:
    """No size can be larger than the files allow: so that a lie in config.json takes no memory."""
    held = sum(int(np.prod(entry.shape, dtype=object)) for entry in weights.values())
    width = config.embedding_size or config.d_model
    products = {
        "vocabulary": max(getattr(config, n, 0) for n in ("vocab_size", "source_vocab_size", "target_vocab_size"))
        * width,
        "feed-forward net": config.d_ff * config.d_model,
        "attention": config.num_heads * config.size_of_head * config.d_model,
        "table of positions": config.max_len * width if config.positions == "learned" else 0,
        "types": getattr(config, "num_types", 0) * width,
    }
    for name, needed in products.items():
        if needed > held:
            raise ValueError(f"{where}: the {name} would have {needed:,} numbers, but {weights.where} holds {held:,}")
    layers = [getattr(config, n, 0) for n in ("num_layers", "num_encoder_layers", "num_decoder_layers")]
    if max(layers) > max(len(weights), 1) and not getattr(config, "shared_layers", False):
        raise ValueError(f"{where}: {max(layers):,} layers, but {weights.where} holds {len(weights):,} arrays")
    if max(layers) > 10_000:
        raise ValueError(f"{where}: expected at most 10,000 layers, got {max(layers):,}")


def _with_output(config: Any, family: Family, weights: Weights, prefix: str) -> Any:
    """The output projection as the file has it: tied or not, and without a bias of zeros, which only costs time."""
    tied = getattr(config, "tie", False)
    if tied == "embeddings" and "lm_head.weight" not in weights:
        config = replace(config, tie="all")
    elif tied in (True, "all") and "lm_head.weight" in weights:
        theirs = _tokens(family, config, prefix) + ".weight"
        if not np.array_equal(weights.read("lm_head.weight"), weights.read(theirs)):
            config = replace(config, tie="embeddings" if tied == "all" else False)
    if isinstance(config, TransformerConfig) and config.output_bias:
        used = "final_logits_bias" in weights and weights.read("final_logits_bias").any()
        config = replace(config, output_bias=bool(used))
    return config


def _tokens(family: Family, config: ModelConfig, prefix: str) -> str:
    """Their name of the embedding, which every model has."""
    return next(r.theirs for r in rules_of(_table(family, config), prefix) if r.ours[0].endswith(".tokens"))


def _table(family: Family, config: ModelConfig) -> str:
    return family.table if isinstance(family.table, str) else family.table(config)


def _made(config: ModelConfig, head: str) -> Model:
    """A model whose weights are still to come."""
    if isinstance(config, EncoderConfig):
        return ENCODERS[head](config, init=False)
    return (LanguageModel if isinstance(config, LanguageModelConfig) else Transformer)(config, init=False)


def plan(model: Model, family: Family, head: str, prefix: str) -> dict[str, Place]:
    """Where each parameter of a model is in a file of its family."""
    rules = rules_of(family.heads.get(head, ""), prefix) + rules_of(_table(family, model.config), prefix)
    try:
        return places(rules, (name for name, _ in model.named_parameters()))
    except KeyError as error:
        raise ValueError(f"{family.base} has no name for {error}") from None


def parameter_at(model: Model, name: str) -> Parameter | None:
    """A parameter by any of its names; None where there is no such module."""
    found: Any = model
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _fill(
    model: Model, family: Family, origin: Origin, weights: Weights, native: bool,
    generator: np.random.Generator | None,
) -> None:  # fmt: skip
    """Read the weights into the model, after checking that all fit; what it does not use goes to `origin`."""
    own = dict(model.named_parameters())
    wanted = plan(model, family, origin.head, origin.prefix)
    drawn = set() if native else _new(wanted, family, origin, weights)
    copies = {n.replace("@", origin.prefix): ours for n, ours in family.copies.items()}
    copies = {n: ours for n, ours in copies.items() if n in weights and n not in wanted}
    ignored = [pattern.replace("@", origin.prefix) for pattern in (*family.ignored, "final_logits_bias")]
    if not native:  # other heads are passed over
        ignored += [r.theirs + "*" for h in family.heads.values() for r in rules_of(h, origin.prefix)]
    shapes = {name: place.shape([own[o].shape for o in place.ours]) for name, place in wanted.items()}
    kinds = {
        "missing": [n for n in wanted if n not in weights and n not in drawn],
        "unknown": [n for n in weights if n not in wanted and n not in copies and not known(ignored, n)],
        "misshaped": [
            f"{n} (expected {shape}, got {weights[n].shape})"
            for n, shape in shapes.items()
            if n in weights and n not in drawn and weights[n].shape != shape
        ],
    }
    if any(kinds.values()):
        text = "; ".join(f"{kind}: {listed(names)}" for kind, names in kinds.items() if names)
        raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
    for name, place in wanted.items():
        parameters = [own[o] for o in place.ours]
        if name in drawn:
            _draw(parameters[0], generator)
        else:
            _read(parameters, place, weights, name)
    _check_copies(model, copies, weights)
    if native:
        origin.copies = tuple(copies)
        origin.kept = {n: weights.read(n) for n in weights if n not in wanted and n not in copies}
    origin.spelled = {n: o for n, o in weights.spelled.items() if n != o}


def _new(wanted: Mapping[str, Place], family: Family, origin: Origin, weights: Weights) -> set[str]:
    """Names of a head that the folder does not have; a pooler below it ("@") is taken where there is one."""
    found = set()
    for rule in rules_of(family.heads.get(origin.head, ""), "@"):
        theirs = rule.theirs.replace("@", origin.prefix)
        names = {n for n in wanted if n == theirs or n.startswith(theirs + ".")}
        found |= {n for n in names if not (rule.theirs.startswith("@") and n in weights)}
    return found


def _read(parameters: list[Parameter], place: Place, weights: Weights, name: str) -> None:
    dtype = parameters[0].dtype
    for parameter, array in zip(parameters, place.split(weights.read(name, dtype), [p.shape for p in parameters])):
        parameter.replace(array.astype(dtype, copy=False))
        parameter.requires_grad = place.mark != "row"  # the bias of logits, which its makers did not train


def _check_copies(model: Model, copies: Mapping[str, str], weights: Weights) -> None:
    for name, ours in copies.items():
        parameter = parameter_at(model, ours)
        if parameter is not None and not np.array_equal(weights.read(name, parameter.dtype), parameter.data):
            raise ValueError(f"{weights.where}: {name} differs from the array that config.json ties it to")


def _draw(parameter: Parameter, generator: np.random.Generator | None) -> None:
    """How a new head starts: BERT's rule."""
    if parameter.ndim > 1:
        init.normal_(parameter, 0.0, 0.02, generator)
    else:
        init.zeros_(parameter)
