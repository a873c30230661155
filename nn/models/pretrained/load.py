"""Loading: a folder with config.json and model.safetensors to a model."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.files.json import Settings, read_if_any, read_json
from minigrad.files.safetensors import listed
from minigrad.files.shards import SafetensorsFolder
from minigrad.runtime import in_parallel

from ...layers import init
from ..base import Model
from ..config import EncoderConfig, LanguageModelConfig, ModelConfig, TransformerConfig
from ..language_model import LanguageModel
from ..transformer import Transformer
from ..weights import misfit
from .families import FAMILIES, HEADS, Family
from .origin import Origin, new_origin
from .tables import Place, Rule, places, read_table, renamed, rules_of, translated

__all__ = ["load"]

HOW = (
    "expected a folder with config.json and model.safetensors, such as transformers' save_pretrained writes, or "
    "`hf download NAME --local-dir FOLDER`"
)
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
    try:
        dtype = np.dtype(dtype).name
    except TypeError:
        raise ValueError(f"load: dtype: expected float32, float64 or float16, got {dtype!r}") from None
    directory = Path(directory)
    settings = read_json(directory / "config.json", HOW)
    name, family = _family(settings)
    weights = SafetensorsFolder(directory, HOW)
    head, native = _heads(name, family, settings, head)
    config = replace(family.config(settings, weights), dtype=dtype)
    names = _Names(family, family.table(config), weights, head, native)
    if head in ("classes", "tokens"):
        config = _with_classes(config, names, num_classes, settings)
    elif num_classes is not None:
        raise ValueError(f"num_classes is for head='classes' or 'tokens', got head={head!r}")
    generation = read_if_any(directory / "generation_config.json")
    config = _with_output(_with_ends(config, generation), names.rules, weights)
    options = _options(settings, generation, words=config.vocabulary)
    try:
        model = (HEADS[head] if head else MODELS[family.kind])(config, init=False)
    except MemoryError as error:
        raise ValueError(f"{settings.where}: there is no memory for its sizes: {error}") from None
    origin = Origin(name, dict(settings), head, *_fill(model, names, generator))
    if not names.native:
        origin = new_origin(name, model, head, settings)
    origin.generation = options
    if (path := Path(generation.where)).is_file():
        origin.files = {path.name: path.read_bytes()}
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
    if asked and asked not in family.suffixes:
        raise ValueError(f"head: expected one of {', '.join(family.suffixes)} for {name}, got {asked!r}")
    heads = {family.base + suffix: head for head, suffix in family.suffixes.items()} | {"BertForPreTraining": "mlm"}
    native = next((heads[n] for n in settings.list("architectures", str, []) if n in heads), "none")
    return asked or native, native


def _with_classes(config: Any, names: _Names, num_classes: int | None, settings: Settings) -> Any:
    """The configuration with so many classes, or with those of the weights; `names` is told if the head is another."""
    entry = names.weights.get(next(r.theirs for r in names.head_rules if r.ours == "output") + ".weight")
    found = entry.shape[0] if entry and entry.shape else None
    names.native = names.native and num_classes in (None, found)
    count = found if names.native else num_classes
    if count is None:
        told = f"{settings.where}: architectures: the weights have no such head; " if names.native else ""
        raise ValueError(f"{told}head={names.head!r}: expected num_classes")
    labels = settings.object("id2label", None) if names.native else None
    if labels and len(labels) != count:
        settings.fail("id2label", f"as many as the {count} classes of the weights")
    return replace(config, num_classes=count, **(names.family.classes if names.head == "classes" else {}))


def _with_ends(config: Any, generation: Settings) -> Any:
    """The EOS tokens of generation_config.json count: for chats it has more than config.json."""
    if generation.get("eos_token_id") is None or isinstance(config, EncoderConfig):
        return config
    try:
        return replace(config, **read_table(type(config), "eos_id=eos_token_id", generation))
    except ValueError as error:
        raise renamed(error, "eos_id=eos_token_id", generation.where) from None


def _options(*sources: Settings, words: int) -> dict[str, Any]:
    """What `generate` is to be told, by the last source that says it: the tokens that come first, or never."""
    options: dict[str, Any] = {}
    for source in sources:
        if (forced := source.integer("forced_bos_token_id", None, low=0)) is not None:
            options["first"] = (forced,)
        bad = source.list("bad_words_ids", list, None) or []
        if not all(isinstance(i, int) for ids in bad for i in ids):
            source.fail("bad_words_ids", "lists of token ids")
        never = [ids[0] for ids in bad if len(ids) == 1] + (source.list("suppress_tokens", int, None) or [])
        if never:
            options["suppress"] = tuple(never)
        if outside := [i for ids in options.values() for i in ids if not 0 <= i < words]:
            raise ValueError(f"{source.where}: expected token ids from 0 to {words - 1}, got {outside[0]!s:.30}")
    return options


def _with_output(config: Any, rules: list[Rule], weights: SafetensorsFolder) -> Any:
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


class _Names:
    """The names of a folder's arrays, by `rules`, and of a model with a head; `native`: the folder has that head."""

    def __init__(self, family: Family, table: str, weights: SafetensorsFolder, head: str, native: str) -> None:
        self.family, self.weights, self.head, self.native = family, weights, head, head == native
        tables = [r.theirs for r in rules_of(table, "@") if "embedding." in r.ours]
        begin = {p: tuple(t.replace("@", p) for t in tables) for p in family.prefixes}
        found = [p for p in family.prefixes if any(name.startswith(begin[p]) for name in weights)]
        if not found:
            expected = " or ".join(names[0] for names in begin.values())
            raise ValueError(f"{weights.where}: expected {expected}, got {listed(weights, 4)}")
        self.prefix = found[0]
        self.head_rules = rules_of(family.heads.get(head, ""), self.prefix)
        self.rules = rules_of(table, self.prefix)

    def is_unused(self, name: str) -> bool:
        """Whether an array of the file is known, and not used: of other heads, or of what we do not have."""
        others = "" if self.native else "\n".join(self.family.heads.values())
        patterns = [*self.family.ignored, *(rule.theirs + "*" for rule in rules_of(others, self.prefix))]
        return any(re.fullmatch(re.escape(p.replace("@", self.prefix)).replace(r"\*", ".*"), name) for p in patterns)

    def places(self, model: Model) -> dict[str, Place]:
        """Which parameters of the model each array of the file holds; of another head, those inside the model below."""
        rules = [rule for rule in self.head_rules if self.native or rule.inside] + self.rules
        own = {id(parameter): name for name, parameter in model.named_parameters()}

        def at(path: str) -> str:
            found: object = model
            for part in path.split("."):
                found = getattr(found, part, None)
            return own.get(id(found), "")

        found = {}
        for name in self.weights:
            if ours := {at(path): mark for path, mark in translated(name, rules, back=True) if at(path)}:
                found[name] = Place(tuple(ours), next(iter(ours.values())))
        return found


def _fill(
    model: Model, names: _Names, generator: np.random.Generator | None
) -> tuple[dict[str, Place], dict[str, np.ndarray]]:
    """Read the weights into the model; where each array went, and those that it does not use.

    An array that is missing, unknown or misshaped is a ValueError, before anything is read. A new head starts
    by BERT's rule.
    """
    weights, found, own = names.weights, names.places(model), dict(model.named_parameters())
    left = [name for name in own if not any(name in place.ours for place in found.values())]
    missing = [n for n in left if names.native or not any(translated(n, names.head_rules))]  # but for a new head
    shapes = {name: place.shape([own[o].shape for o in place.ours]) for name, place in found.items()}
    unused = [name for name in weights if name not in found]
    kinds = {
        "missing": places(names.head_rules + names.rules, missing),
        "unknown": [name for name in unused if not names.is_unused(name)],
        "misshaped": [f"{name} (expected {shape}, got {weights[name].shape})"
                      for name, shape in shapes.items() if weights[name].shape != shape],
    }  # fmt: skip
    if any(kinds.values()):
        text = "; ".join(f"{kind}: {listed(wrong)}" for kind, wrong in kinds.items() if wrong)
        raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
    for name in left:
        mean, std = float(name.endswith("norm.weight")), 0.02 if own[name].ndim > 1 else 0.0
        init.normal_(own[name], mean, std, generator)
    largest = sorted(found, key=lambda name: weights[name].start - weights[name].end)  # first, for even shares
    dtype = np.dtype(model.config.dtype)
    arrays = dict(zip(largest, in_parallel(lambda name: _checked(weights, name, dtype), largest)))  # by all cores
    done: set[str] = set()
    for name, place in found.items():
        for ours, part in zip(place.ours, place.split(arrays[name], [own[o].shape for o in place.ours])):
            if ours not in done:
                own[ours].replace(part)
                own[ours].requires_grad = place.mark != "buffer"
            elif not np.array_equal(part, own[ours].data):
                raise ValueError(f"{weights.where}: {name} differs from the array that config.json ties it to")
        done.update(place.ours)
    return found, {name: weights.array(name) for name in unused}


def _checked(weights: SafetensorsFolder, name: str, dtype: np.dtype) -> np.ndarray:
    """An array as a parameter of this dtype: a ValueError unless its numbers are finite."""
    array, file = weights.array(name, dtype), weights.files[name]
    looked_at = weights.is_mapped(name, dtype) and file.is_finite(name)  # without its pages being mapped
    if not looked_at and (wrong := misfit(name, array, dtype)):
        raise ValueError(f"{file.path}: {wrong}")
    return array.astype(dtype, copy=False)
