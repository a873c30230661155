"""Loading: a directory with config.json and model.safetensors to a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import FileCopies, listed
from minigrad.io.safetensors import SafetensorsFolder
from minigrad.runtime import in_parallel

from ..layers import init
from ..models.base import Model
from ..models.config import check_sizes, flat_settings
from .families import FAMILIES
from .family import HARMLESS, Family, HFConfig, StoredArray, read_generation_config

__all__ = ["load"]

Table = Mapping[str, StoredArray | None]

HOW = (
    "expected a folder with config.json and model.safetensors, such as transformers' "
    "save_pretrained writes, or "
    "`hf download NAME --local-dir FOLDER`"
)


@dataclass
class Origin:
    """The directory that a model was loaded from, as far as saving needs it.

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    settings : dict
        Content of config.json.
    head : str
        A key of the family's `models`.
    arrays : dict
        The parameters that each array of the file holds, by the name of the array.
    kept : dict
        Arrays that the model does not use.
    files : FileCopies
        Other files.
    generation : Settings, optional
        The settings that `read_generation_config` returns.
    """

    family: str
    settings: dict[str, Any]
    head: str
    arrays: dict[str, StoredArray]
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    files: FileCopies = field(default_factory=lambda: FileCopies("."))
    generation: Settings | None = None


def load(
    directory: str | Path,
    head: str = "",
    *,
    num_classes: int | None = None,
    dtype: Any = "float32",
    generator: np.random.Generator | None = None,
) -> Any:
    """Load a model from files as Hugging Face's transformers writes them, in evaluation mode.

    Nothing is downloaded, and nothing is unpickled. `model.origin` keeps what `nn.save` needs.

    Parameters
    ----------
    directory : str or Path
        A directory with config.json and model.safetensors, or its shards.
    head : str, optional
        Another head for an encoder: "none", "mlm" (masked tokens), "classes" (of a sequence) or
        "tokens" (classes of each token). What the directory lacks of it is drawn.
    num_classes : int, optional
        Number of classes of such a head. Default: that of the directory.
    dtype : dtype
        float32, float64 or float16. Weights of this dtype are mapped: they take memory once they
        are used. Replace the file at will, but do not write into it.
    generator : numpy.random.Generator, optional
        Draws the parameters of a new head.

    Returns
    -------
    LanguageModel, Transformer or EncoderModel
        The model that config.json describes.

    Raises
    ------
    ValueError, OSError
        The message begins with the file that is wrong.
    """
    try:
        dtype = np.dtype(dtype).name
    except TypeError:
        raise ValueError(
            f"load: dtype: expected float32, float64 or float16, got {dtype!r}"
        ) from None
    with read_together(directory, "config.json") as source:
        return _Directory(source).load(head, num_classes, dtype, generator)


class _Directory:
    """The files of a directory, read but for the arrays."""

    def __init__(self, directory: Path) -> None:
        self.settings = read_json(directory / "config.json", HOW)
        self.generation = read_if_any(directory / "generation_config.json")
        self.name = self.settings.text("model_type", choices=sorted(FAMILIES))
        if self.settings.get("quantization_config") is not None:
            self.settings.fail(
                "quantization_config",
                "null (quantised weights are not supported; get the original)",
            )
        self.family = FAMILIES[self.name]
        self.weights = SafetensorsFolder(directory, HOW)
        prefix = self.family.prefix
        self.prefix = prefix if any(name.startswith(prefix) for name in self.weights) else ""

    def load(
        self,
        asked_head: str,
        num_classes: int | None,
        dtype: str,
        generator: np.random.Generator | None,
    ) -> Any:
        """Return the model."""
        head, is_native = self.choose_head(asked_head)
        config = read_config(self.settings, self.family, self.weights)
        if head in ("classes", "tokens"):
            present = self.num_classes(head) if is_native else None
            config = self.with_classes(config, head, present, num_classes)
            is_native = config.num_classes == present
        elif num_classes is not None:
            raise ValueError(f"num_classes is for head='classes' or 'tokens', got {head=}")
        elif not head:
            config = self.with_tokens(self.with_output(config))
        try:
            model = self.family.models[head](replace(config, dtype=dtype), init=False)
        except MemoryError as error:
            raise ValueError(
                f"{self.settings.where}: there is no memory for its sizes: {error}"
            ) from None
        origin = self.fill(model, head, is_native, generator)
        if not head:
            origin.generation = read_generation_config(
                self.generation, self.settings, config.vocabulary
            )
        if (path := Path(self.generation.where)).is_file():
            origin.files = FileCopies(path.parent, [path.name])
        model.origin = origin
        return model.eval()

    def choose_head(self, asked: str) -> tuple[str, bool]:
        """Return the head that is asked for, or the directory's, and whether it is the directory's."""
        base, suffixes = self.family.base, self.family.suffixes
        if asked not in ("", *suffixes):
            choices = " or ".join(filter(None, suffixes)) or "nothing"
            raise ValueError(
                f"{self.settings.where}: head: expected {choices} for {base}, got {asked!r}"
            )
        heads = {base + suffix: head for head, suffix in suffixes.items()}
        heads["BertForPreTraining"] = "mlm"
        known = [
            heads[name] for name in self.settings.list("architectures", str, []) if name in heads
        ]
        native = known[0] if known else next(iter(suffixes))
        return asked or native, asked in ("", native)

    def num_classes(self, head: str) -> int | None:
        """Return the number of classes of the directory's head, if it has one."""
        entry = self.weights.get(self.output_name(head))
        return entry.shape[0] if entry and entry.shape else None

    def output_name(self, head: str) -> str:
        """Return the name of the weight of the output projection."""
        names = self.family.head_names.get(head, {})
        return next((f"{name}.weight" for name, ours in names.items() if ours == "output"), "")

    def with_classes(self, config: Any, head: str, present: int | None, asked: int | None) -> Any:
        """Return the configuration with as many classes as are asked for, or are present."""
        count = present if asked is None else asked
        if count is None:
            raise ValueError(
                f"{self.settings.where}: the folder has no such head; head={head!r}: expected "
                "num_classes"
            )
        labels = self.settings.object("id2label", None) if count == present else None
        if labels and len(labels) != count:
            self.settings.fail("id2label", f"as many as the {count} classes of the weights")
        family = self.family
        options = family.classifier if head == "classes" else family.token_classifier
        return replace(config, num_classes=count, **options)

    def with_output(self, config: Any) -> Any:
        """Return the configuration with the output projection of the file.

        It is tied or not, and a bias of zeros, which only costs time, is left out.
        """
        tie, weights, output = config.tie, self.weights, self.output_name("")
        if output not in weights:
            tie = "all" if tie == "embeddings" else tie
        elif tie in (True, "all"):
            names = [
                f"{name}.weight"
                for name, stored in body_table(self.family, config, self.prefix).items()
                if stored is not None and stored.parameters[0].endswith(".tokens")
            ]
            tokens = next((name for name in names if name in weights), output)
            if not np.array_equal(weights.array(output), weights.array(tokens)):
                tie = {True: False, "all": "embeddings"}[tie]
        has_bias = config.output_bias and self.is_used("final_logits_bias")
        return replace(config, tie=tie, output_bias=has_bias)

    def with_tokens(self, config: Any) -> Any:
        """Return the configuration with the tokens of generation_config.json, which count first."""
        keys = {"bos_id": "decoder_start_token_id", "eos_id": "eos_token_id"}
        keys = {ours: key for ours, key in keys.items() if self.generation.get(key) is not None}
        ids = HFConfig(self.generation, self.generation.where).tokens(keys)
        with renamed(keys, self.generation.where):
            return replace(config, **ids)

    def table(self, config: Any, head: str, is_native: bool) -> Table:
        """Return the table by which the file is read.

        For a head that the directory does not have: without the layers of the directory's head.
        """
        family, prefix = self.family, self.prefix
        body, top = body_table(family, config, prefix), head_table(family, head, prefix)
        if is_native:
            return {**body, **top}
        table: dict[str, StoredArray | None] = {}
        for other in family.head_names:
            table |= dict.fromkeys(head_table(family, other, prefix))
        table |= body
        pooler = prefix + family.pooler
        if pooler in top and self.is_used(f"{pooler}.weight"):
            table[pooler] = top[pooler]
        return table

    def is_used(self, name: str) -> bool:
        """Return whether there is such an array, other than zeros: bare models may have them."""
        return name in self.weights and bool(self.weights.array(name).any())

    def fill(
        self, model: Model, head: str, is_native: bool, generator: np.random.Generator | None
    ) -> Origin:
        """Read the weights into the model.

        A missing, unknown or misshaped array is a ValueError, before anything is read. Parameters
        of a new head begin by BERT's rule.
        """
        weights, table = self.weights, self.table(model.config, head, is_native)
        own, names = dict(model.named_parameters()), parameter_names(model)
        arrays, unknown = dict[str, StoredArray](), list[str]()
        for name in weights:
            stored = look_up(name, table, StoredArray(("",)))
            if stored is None:
                continue
            if names.keys() >= set(stored.parameters):
                parameters = tuple(names[parameter] for parameter in stored.parameters)
                arrays[name] = replace(stored, parameters=parameters)
            elif stored.trained:
                unknown.append(name)
        shapes = {
            name: [own[parameter].shape for parameter in stored.parameters]
            for name, stored in arrays.items()
        }
        read = {parameter for stored in arrays.values() for parameter in stored.parameters}
        drawn = [name for name in own if name not in read]
        body = body_table(self.family, model.config, self.prefix)
        whole = {**body, **head_table(self.family, head, self.prefix)}
        faults = {
            "missing": {str(file_name(n, whole)) for n in drawn if is_native or file_name(n, body)},
            "unknown": unknown,
            "misshaped": [
                f"{name} (expected {shape}, got {weights[name].shape})"
                for name, stored in arrays.items()
                if weights[name].shape != (shape := stored.shape(shapes[name]))
            ],
        }
        if any(faults.values()):
            text = "; ".join(f"{kind}: {listed(names)}" for kind, names in faults.items() if names)
            raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
        for name in drawn:
            mean, std = float(name.endswith("norm.weight")), 0.02 if own[name].ndim > 1 else 0.0
            init.normal_(own[name], mean, std, generator)
        dtype = np.dtype(model.config.dtype)
        largest = sorted(arrays, key=lambda name: weights[name].start - weights[name].end)
        read_array = partial(weights.checked, dtype=dtype)
        contents = dict(zip(largest, in_parallel(read_array, largest)))  # by all cores
        for name, stored in arrays.items():
            for parameter, part in zip(
                stored.parameters, stored.split(contents[name], shapes[name])
            ):
                if parameter in read:
                    read.remove(parameter)
                    own[parameter].replace(part)
                    own[parameter].requires_grad = stored.trained
                elif not np.array_equal(part, own[parameter].data):
                    raise ValueError(
                        f"{weights.where}: {name} differs from the array that config.json ties it "
                        "to"
                    )
        if not is_native:
            return new_origin(self.name, model, head, self.settings)
        kept = {name: weights.array(name) for name in weights if name not in arrays}
        return Origin(self.name, dict(self.settings), head, arrays, kept)


def read_config(
    settings: Settings, family: Family, weights: SafetensorsFolder | None = None
) -> Any:
    """Return our configuration for a config.json.

    Raises
    ------
    ValueError
        A key is missing or wrong, or is not read and not known to be harmless; a size is not one of
        the arrays.
    """
    hf = HFConfig(settings, settings.where, family.defaults)
    with renamed({**family.keys, **family.tokens}, hf.where):
        config = family.config(hf)
        hf.expect_harmless(HARMLESS | family.harmless)
        if weights is not None:
            shapes = {name: entry.shape for name, entry in weights.items()}
            check_sizes(flat_settings(config.to_dict()), shapes, weights.where.name)
    return config


@contextmanager
def renamed(keys: Mapping[str, str], where: str) -> Iterator[None]:
    """Raise ValueErrors of a configuration with the file and its keys in place of our names."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(where):
            raise
        text = re.sub(r"\w[\w.]*", lambda word: keys.get(word[0], word[0]), str(error))
        raise ValueError(f"{where}: {text}") from None


def body_table(family: Family, config: Any, prefix: str) -> Table:
    """Return the parameters of the arrays below a head, by their names with `prefix`."""
    return {prefix + name: _stored(ours) for name, ours in family.names_of(config).items()}


def head_table(family: Family, head: str, prefix: str) -> Table:
    """Return the parameters of the arrays of a head, by their names."""
    return {
        name if prefix else name.removeprefix(family.prefix): _stored(ours)
        for name, ours in family.head_names.get(head, {}).items()
    }


def _stored(ours: str | StoredArray | None) -> StoredArray | None:
    return StoredArray((ours,)) if isinstance(ours, str) else ours


def look_up(name: str, table: Table, default: StoredArray) -> StoredArray | None:
    """Return the parameters of an array; None if it is not used, `default` if it is unknown."""
    for key, index, leaf in _keys(name):
        if key in table:
            stored = table[key]
            if stored is None:
                return None
            leaf = _LEAVES[leaf] if leaf else ""
            parameters = tuple(p.replace("{i}", index) + leaf for p in stored.parameters)
            return replace(stored, parameters=parameters)
    return default


def file_name(parameter: str, table: Table) -> str | None:
    """Return the name of the array that holds a parameter; the first if there are several."""
    for key, index, leaf in _keys(parameter):
        for name, stored in table.items():
            if stored is not None and key in stored.parameters:
                return name.replace("{i}", index) + leaf
    return None


_LEAVES = {".weight": ".weight", ".bias": ".bias", ".gamma": ".weight", ".beta": ".bias"}
"""Our names of the parameters of a module by theirs: norms once had gamma and beta."""


def _keys(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the keys by which a table may list a name, the index of a layer, and the rest."""
    stem, dot, leaf = name.rpartition(".")
    layer = re.search(r"\.(\d+)(?=\.)", name)
    for key, rest in ((name, ""), (stem, dot + leaf)):
        if rest in ("", *_LEAVES):
            yield key, "", rest
            if layer is not None:
                yield key[: layer.start()] + ".{i}" + key[layer.end() :], layer[1], rest


def parameter_names(model: Model) -> dict[str, str]:
    """Return the first name of each parameter by all of its names: one that is tied has several."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{path}.{name}": first[id(value)]
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if id(value) in first
    }


def new_origin(name: str, model: Model, head: str, settings: Mapping[str, Any]) -> Origin:
    """Return the origin of a model that no directory holds, as one of a family.

    `settings` is the content of a config.json, without what depends on the head.
    """
    family, config, kept = FAMILIES[name], model.config, dict[str, np.ndarray]()
    settings = {**settings, "architectures": [family.base + family.suffixes[head]]}
    if head in ("classes", "tokens") and len(settings.get("id2label") or {}) != config.num_classes:
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        settings["label2id"] = {f"LABEL_{i}": i for i in range(config.num_classes)}
    prefix = "" if head == "none" else family.prefix
    table = {**body_table(family, config, prefix), **head_table(family, head, prefix)}
    if head == "none" and family.pooler:
        kept[f"{family.pooler}.weight"] = np.zeros((config.d_model, config.d_model), config.dtype)
        kept[f"{family.pooler}.bias"] = np.zeros(config.d_model, config.dtype)
    arrays, names = dict[str, StoredArray](), parameter_names(model)
    for parameter, _ in model.named_parameters():
        if ".lora_" not in parameter:
            if (array := file_name(parameter, table)) is None:
                raise ValueError(f"{parameter}: {family.base} has no such parameter")
            stored = look_up(array, table, StoredArray(()))
            assert stored is not None
            arrays[array] = replace(stored, parameters=tuple(names[p] for p in stored.parameters))
    return Origin(name, settings, head, arrays, kept)
