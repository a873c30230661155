"""Loading: a folder with config.json and model.safetensors to a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_if_any, read_json

from ...layers import init
from ...layers.module import Parameter
from ..base import Model
from ..config import EncoderConfig, LanguageModelConfig, TransformerConfig
from ..encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from ..language_model import LanguageModel
from ..transformer import Transformer
from .families import FAMILIES, Family
from .folder import HOW, Origin, Weights, listed
from .tables import Place, Rule, known, places, rules_of, translated

__all__ = ["load"]

HEADS: dict[str, tuple[type[EncoderModel], str]] = {
    "none": (EncoderModel, "Model"), "mlm": (MaskedLanguageModel, "ForMaskedLM"),
    "classes": (EncoderClassifier, "ForSequenceClassification"), "tokens": (TokenClassifier, "ForTokenClassification"),
}  # fmt: skip
"""The heads of encoders: our class, and what theirs ends in."""


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
    native = _native_head(family, settings)
    head = _chosen_head(name, family, settings, head or native, native)
    config = replace(family.config(settings), dtype=np.dtype(dtype).name)
    rules = rules_of(family.table(config), "@")
    prefix = _prefix(family, rules, weights)
    names = Names(family, _with_prefix(rules_of(family.heads.get(head, ""), "@") + rules, prefix), prefix, head)
    found = _classes_in(weights, names.rules) if head in ("classes", "tokens") else None
    names.native = head == native and num_classes in (None, found)
    num_classes = found if names.native else num_classes
    config = _with_head(config, family, head, num_classes, settings if names.native else None)
    path = directory / "generation_config.json"
    generation = read_if_any(path)
    config = _with_ends(config, generation)
    _check_ids(config, settings, generation)
    _check_sizes(config, weights, settings.where)
    model = _made(_with_output(config, names.rules, weights), head)
    origin = Origin(name, dict(settings), head, names.places_in(weights, model))
    _fill(model, origin, names, weights, generator)
    if not names.native:
        origin.places = forward_places(model, family, head)
        describe_head(origin.settings, family, head, model.config)
    origin.generation = _options(settings, generation)
    origin.files = {path.name: path.read_bytes()} if path.is_file() else {}
    model.origin = origin
    return model.eval()


def forward_places(model: Model, family: Family, head: str) -> dict[str, Place]:
    """Where each parameter of a model that was not loaded is in a file; those of adapters are nowhere."""
    table = family.heads.get(head, "") + "\n" + family.table(model.config)
    rules = rules_of(table, family.prefixes[-1 if head == "none" else 0])
    return places(rules, (name for name, _ in model.named_parameters() if ".lora_" not in name))


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
    if family.kind is not EncoderConfig:
        return ""
    named = settings.list("architectures", str, [])
    heads = {family.base + suffix: head for head, (_, suffix) in HEADS.items()} | {"BertForPreTraining": "mlm"}
    return next((heads[name] for name in named if name in heads), "none")


def _chosen_head(name: str, family: Family, settings: Settings, head: str, native: str) -> str:
    if native and head not in family.heads and head != "none":
        raise ValueError(f"head: expected one of none, {', '.join(family.heads)} for {name}, got {head!r}")
    if not native and head:
        raise ValueError(f"{settings.where}: a {name} model takes no other head, got head={head!r}")
    return head


def _with_prefix(rules: Iterable[Rule], prefix: str) -> list[Rule]:
    return [rule._replace(theirs=rule.theirs.replace("@", prefix)) for rule in rules]


def _prefix(family: Family, table: list[Rule], weights: Weights) -> str:
    """What the names of the file begin with."""
    tokens = [rule.theirs + ".weight" for rule in table if rule.ours.endswith(".tokens")]
    for prefix in family.prefixes:
        if any(name.replace("@", prefix) in weights for name in tokens):
            return prefix
    expected = " or ".join(tokens[0].replace("@", prefix) for prefix in family.prefixes)
    raise ValueError(f"{weights.where}: expected {expected}, got {listed(weights, 4)}")


def _classes_in(weights: Weights, rules: list[Rule]) -> int | None:
    """How many classes the head in the file has."""
    name = next(r.theirs for r in rules if r.ours == "output") + ".weight"
    return weights[name].shape[0] if name in weights and weights[name].shape else None


def _with_head(config: Any, family: Family, head: str, num_classes: int | None, settings: Settings | None) -> Any:
    """The configuration of an encoder with a head of classes; others as they are."""
    if head not in ("classes", "tokens"):
        if num_classes is not None:
            raise ValueError(f"num_classes is for head='classes' or 'tokens', got head={head!r}")
        return config
    if num_classes is None:
        told = f"{settings.where}: architectures: the weights have no such head; " if settings else ""
        raise ValueError(f"{told}head={head!r}: expected num_classes")
    labels = settings and settings.object("id2label", None)
    if settings and labels and len(labels) != num_classes:
        settings.fail("id2label", f"as many as the {num_classes} classes of the weights")
    return replace(config, num_classes=num_classes, **(family.classes if head == "classes" else {}))


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


def _made(config: Any, head: str) -> Model:
    """A model whose weights are still to come."""
    if isinstance(config, EncoderConfig):
        return HEADS[head][0](config, init=False)
    return (LanguageModel if isinstance(config, LanguageModelConfig) else Transformer)(config, init=False)


def _at(model: Model, name: str) -> Any:
    """A parameter by any of its names; None where there is none."""
    found: Any = model
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@dataclass
class Names:
    """The names of a folder's arrays, for a model with a head; `native`: the head is that of the folder."""

    family: Family
    rules: list[Rule]
    prefix: str
    head: str
    native: bool = True

    def head_rules(self, *heads: str) -> list[Rule]:
        """The rules of heads."""
        return [r for head in heads for r in rules_of(self.family.heads.get(head, ""), self.prefix)]

    def is_new(self, name: str) -> bool:
        """Whether a parameter of ours belongs to a head that the folder does not have."""
        return not self.native and any(True for _ in translated(name, self.head_rules(self.head)))

    def is_unused(self, name: str) -> bool:
        """Whether an array of the file is known, and not used: of other heads, or of what we do not have."""
        others = [] if self.native else [r.theirs + "*" for r in self.head_rules(*self.family.heads)]
        return known([p.replace("@", self.prefix) for p in self.family.ignored] + others, name)

    def places_in(self, weights: Weights, model: Model) -> dict[str, Place]:
        """Which parameters of the model each array of the file holds."""
        rules, found = self.rules, dict[str, Place]()
        if not self.native:  # of the head, what is within the model below it (a pooler) is taken
            inside = [r for r in rules_of(self.family.heads.get(self.head, ""), "@") if r.theirs.startswith("@")]
            rules = rules[len(self.head_rules(self.head)) :] + _with_prefix(inside, self.prefix)
        own = {id(parameter): name for name, parameter in model.named_parameters()}
        for name in weights:
            ours = {own[id(p)]: mark for path, mark in translated(name, rules, back=True)
                    if (p := _at(model, path)) is not None}  # fmt: skip
            if ours:
                found[name] = Place(tuple(ours), next(iter(ours.values())))
        return found


def _fill(model: Model, origin: Origin, names: Names, weights: Weights, generator: np.random.Generator | None) -> None:
    """Read the weights into the model, after checking that all fit; what it does not use goes to `origin`."""
    own = dict(model.named_parameters())
    covered = {ours for place in origin.places.values() for ours in place.ours}
    left = [name for name in own if name not in covered]
    shapes = {name: place.shape([own[o].shape for o in place.ours]) for name, place in origin.places.items()}
    unused = [name for name in weights if name not in origin.places]
    kinds = {
        "missing": places(names.rules, (name for name in left if not names.is_new(name))),
        "unknown": [name for name in unused if not names.is_unused(name)],
        "misshaped": [f"{name} (expected {shape}, got {weights[name].shape})"
                      for name, shape in shapes.items() if weights[name].shape != shape],
    }  # fmt: skip
    if any(kinds.values()):
        text = "; ".join(f"{kind}: {listed(found)}" for kind, found in kinds.items() if found)
        raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
    for name in left:
        _draw(own[name], generator)
    read: set[str] = set()
    for name, place in origin.places.items():
        parameters = [own[o] for o in place.ours]
        array = weights.array(name, parameters[0].dtype)
        if wrong := weights.misfit(name, array, parameters[0].dtype):
            raise ValueError(f"{weights.files[name].path}: {wrong}")
        parts = place.split(array, [p.shape for p in parameters])
        for ours, parameter, array in zip(place.ours, parameters, parts):
            if ours not in read:
                parameter.replace(array.astype(parameter.dtype, copy=False))
                parameter.requires_grad = place.mark != "row"  # the bias of logits, which its makers did not train
            elif not np.array_equal(array, parameter.data):
                raise ValueError(f"{weights.where}: {name} differs from the array that config.json ties it to")
        read.update(place.ours)
    if names.native:
        origin.kept = {name: weights.array(name) for name in unused}


def _draw(parameter: Parameter, generator: np.random.Generator | None) -> None:
    """How a new head starts: BERT's rule."""
    if parameter.ndim > 1:
        init.normal_(parameter, 0.0, 0.02, generator)
    else:
        init.zeros_(parameter)
