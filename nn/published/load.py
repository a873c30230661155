"""Loading of published models: config.json and model.safetensors to a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.arguments import check_choice
from minigrad.fast.runtime import in_parallel
from minigrad.io.atomic import read_together
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.reading import FileCopies, listed, printable
from minigrad.io.safetensors import Entry, SafetensorsFolder

from .. import init
from ..inference.copies import frozen_copy, roundable
from ..inference.int8 import Int8Matrix
from ..models import Model
from ..module import Module
from ..options.config import check_sizes, extended
from ..options.modules import replace_array
from ..text.hub import find_model
from .bart import M2M100, Bart, Marian, MBart
from .bert import Albert, Bert, DistilBert, Electra, ModernBert, MPNet, Roberta, ViT, XLMRoberta
from .family import HARMLESS, Family, HFConfig, Names, StoredArray
from .generation_config import LIMITS, TOKEN_IDS
from .gguf import GGUFFile
from .gpt import GPT2, OPT, GPTNeoX
from .llama import Gemma, Gemma2, Gemma3, Llama, Mistral, Phi3, Qwen2, Qwen3, SmolLM3
from .t5 import T5

__all__ = ["load"]

FAMILIES: dict[str, Family] = {
    "albert": Albert(),
    "bart": Bart(),
    "bert": Bert(),
    "distilbert": DistilBert(),
    "electra": Electra(),
    "gemma": Gemma(),
    "gemma2": Gemma2(),
    "gemma3_text": Gemma3(),
    "gpt2": GPT2(),
    "gpt_neox": GPTNeoX(),
    "llama": Llama(),
    "m2m_100": M2M100(),
    "marian": Marian(),
    "mbart": MBart(),
    "mistral": Mistral(),
    "modernbert": ModernBert(),
    "mpnet": MPNet(),
    "opt": OPT(),
    "phi3": Phi3(),
    "qwen2": Qwen2(),
    "qwen3": Qwen3(),
    "roberta": Roberta(),
    "smollm3": SmolLM3(),
    "t5": T5(),
    "vit": ViT(),
    "xlm-roberta": XLMRoberta(),
}
"""Families of published models by the `model_type` of their config.json."""


def family_of(settings: Settings) -> Family:
    """Return the family of a config.json, or raise a ValueError if it is not supported."""
    if "model_type" not in settings and "tokenizers" in settings:
        raise ValueError(
            f"{settings.where} must be of a published model, got a run of minigrad train; call "
            "nn.Translator.load with the run"
        )
    family = FAMILIES[settings.text("model_type", choices=sorted(FAMILIES))]
    return family.variant(settings)


EXPECTED_FILES = (
    "expected a directory with config.json and model.safetensors, such as transformers' "
    "save_pretrained writes, or `hf download NAME --local-dir DIRECTORY`"
)


@dataclass
class Origin:
    """Source of a loaded model, for `nn.save`: its files, and the arrays that its parameters fill.

    `unused` are arrays that the model does not use, `generation` are settings of `generate` in
    transformers, by `_Directory.generation_settings`.
    """

    family: Family
    settings: dict[str, Any]
    head: str
    arrays: dict[str, StoredArray]
    unused: dict[str, np.ndarray] = field(default_factory=dict)
    files: FileCopies = field(default_factory=lambda: FileCopies("."))
    generation: Settings | None = None


def load(
    directory: str | Path,
    head: str = "",
    *,
    num_classes: int | None = None,
    dtype: Any = "float32",
    weights: str = "float",
    generator: np.random.Generator | None = None,
) -> Model:
    """Load a published model, as Hugging Face's transformers writes it.

    Nothing is unpickled.

    Parameters
    ----------
    directory : str or Path
        A directory with config.json and model.safetensors, or its shards. Or a .gguf file,
        which needs the package `gguf`. Or the name of a model on the Hugging Face
        Hub, such as "gpt2", "organization/name" or "organization/name:file.gguf": if there is no
        such path, the cache of the package `huggingface_hub` is read, and missing files are
        downloaded.
    head : str, optional
        Another head for an encoder: "none", "mlm" (masked tokens), "classes" (of a sequence) or
        "tokens" (classes of each token). Its parameters that the directory lacks are drawn. By
        default the head of the directory.
    num_classes : int, optional
        Number of classes of the heads "classes" and "tokens". By default that of the directory.
    dtype : dtype
        float32, float64 or float16. Weights that have this dtype in the file are mapped: they take
        memory when they are used. The file may be replaced, but do not write into it, as
        `cp NEW FILE` does: this changes the model, and a shorter file may end the process.
    weights : {"float", "int8"}
        "int8" returns the result of `nn.for_inference(model, weights="int8")`. The arrays of the
        file are rounded one by one, so the model is never in memory as floats.
    generator : numpy.random.Generator, optional
        Draws the parameters of a new head.

    Returns
    -------
    Model
        LanguageModel, Transformer or EncoderModel, in evaluation mode; for type checkers, write
        `assert isinstance(model, nn.LanguageModel)`. Its attribute `origin` is read by `nn.save`.

    Raises
    ------
    ValueError, OSError
        A file is missing or wrong, or has a setting that is not supported. The message begins with
        the file.
    """
    try:
        dtype = np.dtype(dtype).name
    except TypeError:
        raise ValueError(f"dtype must be float32, float64 or float16, got {dtype!r}") from None
    check_choice("load", "weights", weights, "float", "int8")
    directory = find_model(directory, ["generation_config.json"], weights=True)
    if directory.suffix == ".gguf":
        return _Directory(directory).load(head, num_classes, dtype, generator, weights=weights)
    refuse_gguf(directory)
    with read_together(directory, "config.json") as source:
        return _Directory(source).load(head, num_classes, dtype, generator, weights=weights)


def load_for_hidden(directory: Path) -> Any:
    """Load an encoder without head, or a language model whose output projection may be missing."""
    with read_together(directory, "config.json") as source:
        files = _Directory(source)
        head = "none" if "none" in files.family.models else ""
        return files.load(head, None, "float32", None, needs_output=False)


def _refuse_logits(output: Module, args: tuple[Any, ...]) -> None:
    raise ValueError(
        "model must have an output projection to compute logits, but its directory has none; call "
        "model.hidden"
    )


def refuse_gguf(path: Path) -> None:
    """Raise a ValueError for a .gguf file, or a directory that has no other model."""
    files = [path] if path.suffix == ".gguf" else sorted(path.glob("*.gguf"))
    if files and not (path / "config.json").exists():
        raise ValueError(
            f"{printable(path, 500)} must be a directory with config.json; a GGUF file is read by "
            f"nn.load({str(files[0])!r:.500}) and nn.text.load alone"
        )


class _Directory:
    """Files of a published model, or its GGUF file; the arrays are read last."""

    weights: SafetensorsFolder | GGUFFile

    def __init__(self, directory: Path) -> None:
        if directory.suffix == ".gguf":
            self.weights = GGUFFile(directory)
            self.settings = self.weights.settings
            self.generation = Settings({}, self.settings.where)
        else:
            self.settings = read_json(directory / "config.json", EXPECTED_FILES)
            self.generation = read_if_any(directory / "generation_config.json")
        self.family = family_of(self.settings)
        if self.settings.get("quantization_config") is not None:
            self.settings.fail(
                "quantization_config",
                "null (quantised weights are not supported; get the original)",
            )
        if directory.suffix != ".gguf":
            self.weights = SafetensorsFolder(directory, EXPECTED_FILES)
        prefix = self.family.prefix
        self.prefix = prefix if any(name.startswith(prefix) for name in self.weights) else ""

    def load(
        self,
        head: str,
        num_classes: int | None,
        dtype: str,
        generator: np.random.Generator | None,
        needs_output: bool = True,
        weights: str = "float",
    ) -> Any:
        """Return the model; without `needs_output`, a language model may lack its projection."""
        lacks_output = False
        head, is_native = self.choose_head(head)
        config = read_config(self.settings, self.family, self.weights)
        if head in ("classes", "tokens"):
            entry = self.weights.get(self.output_name(head)) if is_native else None
            file_classes = entry.shape[0] if entry and entry.shape else None
            config = self.with_classes(config, head, file_classes, num_classes)
            is_native = config.num_classes == file_classes
        elif num_classes is not None:
            raise ValueError(
                f"num_classes must be None without head='classes' or 'tokens', got {head=}"
            )
        elif not head:
            config = self.with_tokens(self.with_output(config))
            lacks_output = not (needs_output or config.tie or self.output_name("") in self.weights)
            if lacks_output:
                config = replace(config, tie=True)
        try:
            with init.skipped(), name_keys_of_file(self.family.keys, self.settings.where):
                model: Any = self.family.models[head](replace(config, dtype=dtype))
        except MemoryError as error:
            raise ValueError(
                f"{self.settings.where}: there is no memory for its sizes: {error}"
            ) from None
        matrices: dict[int, Int8Matrix] | None = {} if weights == "int8" else None
        origin = self.fill(model, head, is_native, generator, matrices)
        if not head:
            origin.generation = self.generation_settings(config.vocabulary)
        if (path := Path(self.generation.where)).is_file():
            origin.files = FileCopies(path.parent, [path.name])
        model.origin = origin
        if lacks_output:
            model.output.register_forward_pre_hook(_refuse_logits)
        return model.eval() if matrices is None else frozen_copy(model, matrices)

    def choose_head(self, head: str) -> tuple[str, bool]:
        """Return a head, by default that of the directory, and whether it is that one."""
        base = self.family.base
        suffixes = self.family.suffixes
        if head not in ("", *suffixes):
            choices = " or ".join(filter(None, suffixes)) or "nothing"
            raise ValueError(
                f"{self.settings.where}: head must be {choices} for {base}, got {head!r}"
            )
        heads = {base + suffix: name for name, suffix in suffixes.items()}
        heads["BertForPreTraining"] = "mlm"
        classes = self.settings.list("architectures", str, [])
        native = next((heads[name] for name in classes if name in heads), next(iter(suffixes)))
        return head or native, head in ("", native)

    def output_name(self, head: str) -> str:
        """Return the name of the weight of the output projection."""
        names = self.family.head_names.get(head, {})
        return next((f"{name}.weight" for name, target in names.items() if target == "output"), "")

    def generation_settings(self, vocab_size: int) -> Settings:
        """Return the settings that `generate` of transformers uses when it gets no arguments.

        They are those of generation_config.json, or the older copies in config.json if there is no
        such file. Entries that are null are left out, and token ids are tuples.
        """
        has_file = Path(self.generation.where).is_file()
        source = self.generation if has_file else self.settings
        settings = Settings({k: v for k, v in source.items() if v is not None}, source.where)
        if settings.flag("force_bos_token_to_be_generated", False):
            settings["forced_bos_token_id"] = settings.get("bos_token_id")
        for name, (hint, *limits) in LIMITS.items():
            settings.take(name, hint, None, *limits)
        for name in TOKEN_IDS:
            if (ids := settings.take(name, int | list[int], None)) is not None:
                row = [ids] if isinstance(ids, int) else ids
                settings[name] = checked_ids(settings, name, row, vocab_size)
        if (words := settings.list("bad_words_ids", list[int], None)) is not None:
            name = "bad_words_ids"
            if [] in words:
                settings.fail(name, "lists of at least one token id")
            settings[name] = tuple(checked_ids(settings, name, ids, vocab_size) for ids in words)
        return settings

    def with_classes(
        self, config: Any, head: str, file_classes: int | None, num_classes: int | None
    ) -> Any:
        """Return the configuration with a number of classes; by default that of the file."""
        count = file_classes if num_classes is None else num_classes
        if count is None:
            raise ValueError(
                f"{self.settings.where}: num_classes must be given for head={head!r}, which the "
                "directory does not have"
            )
        labels = self.settings.object("id2label", None) if count == file_classes else None
        if labels and len(labels) != count:
            self.settings.fail("id2label", f"as many as the {count} classes of the weights")
        is_sequence = head == "classes"
        options = self.family.classifier if is_sequence else self.family.token_classifier
        return replace(config, num_classes=count, **options)

    def with_output(self, config: Any) -> Any:
        """Return the configuration with the output projection of the file.

        It is tied or not, and a bias of zeros, which only costs time, is left out.
        """
        tie, weights, output = config.tie, self.weights, self.output_name("")
        if output not in weights:
            tie = "all" if tie == "embeddings" else tie
        elif tie in (True, "all"):
            embeddings = [
                f"{name}.weight"
                for name, target in self.family.body_names(config, self.prefix).items()
                if target in ("embedding.tokens", "source_embedding.tokens")
            ]
            tokens = next((name for name in embeddings if name in weights), output)
            if not np.array_equal(weights.array(output), weights.array(tokens)):
                tie = "embeddings" if tie == "all" else False
        has_bias = config.output_bias and self.is_used("final_logits_bias")
        return replace(config, tie=tie, output_bias=has_bias)

    def with_tokens(self, config: Any) -> Any:
        """Return the configuration with the tokens of generation_config.json, which count first."""
        keys = {"bos_id": "decoder_start_token_id", "eos_id": "eos_token_id"}
        values = {option: self.generation.get(key) for option, key in keys.items()}
        with name_keys_of_file(keys, self.generation.where):
            return replace(config, **{k: v for k, v in values.items() if v is not None})

    def names(self, config: Any, head: str, is_native: bool) -> Names:
        """Return all names that the file may contain.

        For another head than the directory's, the layers of the directory's head are not used.
        """
        family = self.family
        prefix = self.prefix
        body = family.body_names(config, prefix)
        top = family.names_of_head(head, prefix)
        if is_native:
            return body | top
        names: dict[str, Any] = {}
        for other in family.head_names:
            names |= dict.fromkeys(family.names_of_head(other, prefix))
        pooler = prefix + family.pooler
        if pooler in top and self.is_used(f"{pooler}.weight"):
            body[pooler] = top[pooler]
        return names | body

    def is_used(self, name: str) -> bool:
        """Return whether there is such an array, other than zeros: bare models may have them."""
        return name in self.weights and bool(self.weights.array(name).any())

    def fill(
        self,
        model: Model,
        head: str,
        is_native: bool,
        generator: np.random.Generator | None,
        matrices: dict[int, Int8Matrix] | None,
    ) -> Origin:
        """Read the weights into the model.

        A missing, unknown or misshaped array is a ValueError, before anything is read. Parameters
        of a new head are drawn as in BERT. If `matrices` is a dict, matrices are rounded to 8 bits
        and stored there by the id of the parameter, which keeps its zeros.
        """
        weights = self.weights
        table = arrays_of(model, self.names(model.config, head, is_native))
        parameters = dict(model.named_parameters())
        shapes = {name: parameter.shape for name, parameter in parameters.items()}
        arrays = {name: stored for name in weights if (stored := table.get(name)) is not None}
        unread = set(parameters).difference(*(stored.parameters for stored in arrays.values()))
        missing, new = first_names(table, unread)
        check_arrays(
            f"{weights.where}: the weights do not fit config.json",
            weights,
            {name: stored.shape(shapes) for name, stored in arrays.items()},
            missing=[*missing, *new] if is_native else missing,
            unknown=weights.keys() - table.keys(),
        )
        for name, weight in parameters.items():
            if name in new:
                std = 0.02 if weight.ndim > 1 else 0.0
                init.normal_(weight, float(name.endswith("norm.weight")), std, generator)
        ids = {id(p) for p in roundable(model)} if matrices is not None else set()
        rounded = {name for name, parameter in parameters.items() if id(parameter) in ids}

        def read_parts(name: str) -> dict[str, Any]:
            """Return the values of the parameters in an array."""
            if isinstance(weights, GGUFFile) and rounded.issuperset(arrays[name].parameters):
                matrix, ends = weights.matrix(name), [0]
                for p in arrays[name].parameters:
                    ends.append(ends[-1] + shapes[p][0])
                rows = map(slice, ends, ends[1:])
                return {p: matrix[part] for p, part in zip(arrays[name].parameters, rows)}
            array = weights.checked(name, dtype=np.dtype(model.config.dtype))
            parts = arrays[name].split(array, shapes)
            return {p: Int8Matrix.rounded(x) if p in rounded else x for p, x in parts.items()}

        largest = sorted(arrays, key=lambda name: weights[name].start - weights[name].end)
        contents = dict(zip(largest, in_parallel(read_parts, largest)))  # by all cores
        filled: dict[str, Any] = {}
        for name, stored in arrays.items():
            for parameter, part in contents.pop(name).items():
                if parameter in filled and not np.array_equal(part, filled[parameter]):
                    raise ValueError(
                        f"{weights.where}: {name} differs from the array that config.json ties it "
                        "to"
                    )
                filled[parameter] = part
                if isinstance(part, Int8Matrix) and matrices is not None:
                    matrices[id(parameters[parameter])] = part
                    continue
                replace_array(parameters[parameter], part)
                parameters[parameter].requires_grad = stored.trained
        if not is_native:
            return new_origin(self.family, model, head, self.settings)
        unused = {name: weights.array(name) for name in weights if name not in arrays}
        return Origin(self.family, dict(self.settings), head, arrays, unused)


def checked_ids(settings: Settings, name: str, ids: list[int], vocab_size: int) -> tuple[int, ...]:
    """Return token ids as a tuple, or raise a ValueError if one is not in the vocabulary."""
    if wrong := [i for i in ids if not 0 <= i < vocab_size]:
        raise ValueError(
            f"{settings.where}: {name} must hold token ids from 0 to {vocab_size - 1}, got "
            f"{wrong[0]}"
        )
    return tuple(ids)


def check_arrays(
    where: str,
    entries: Mapping[str, Entry],
    shapes: Mapping[str, tuple[int, ...]],
    **names: Collection[str],
) -> None:
    """Raise a ValueError if there are names of missing or unknown arrays, or wrong shapes."""
    misshaped = [
        f"{name} (expected {shape}, got {entries[name].shape})"
        for name, shape in shapes.items()
        if name in entries and entries[name].shape != shape
    ]
    faults = {**names, "misshaped": misshaped}
    if any(faults.values()):
        text = "; ".join(f"{fault}: {listed(names)}" for fault, names in faults.items() if names)
        raise ValueError(f"{where}: {text}")


def read_config(
    settings: Settings, family: Family, weights: SafetensorsFolder | GGUFFile | None = None
) -> Any:
    """Return our configuration for a config.json."""
    hf = HFConfig(settings, settings.where, family.defaults)
    options = family.config(hf)
    hf.expect_harmless(HARMLESS | family.harmless)
    with name_keys_of_file(family.keys, hf.where):
        config = family.config_class.from_dict(options, hf.where)
        if weights is not None:
            shapes = {name: entry.shape for name, entry in weights.items()}
            check_sizes(config, shapes, weights.where.name)
    return config


@contextmanager
def name_keys_of_file(keys: Mapping[str, str], where: str) -> Iterator[None]:
    """Raise ValueErrors of a configuration with the file and its keys in place of our names.

    A message is "`names` must `condition`, got `value`". Strings in the value are not changed.
    """
    keys = {option.rpartition(".")[2]: key for option, key in keys.items()} | {**keys}
    translate = partial(re.sub, r"\w[\w.]*", lambda word: keys.get(word[0], word[0]))
    try:
        yield
    except ValueError as error:
        text, got, value = str(error).removeprefix(f"{where}: ").partition(", got ")
        has_strings = "'" in value or '"' in value
        value = value if has_strings else translate(value)  # such as d_model=6 and num_heads=4
        raise ValueError(f"{where}: {translate(text)}{got}{value}") from None


_LEAVES = {"": "", ".weight": ".weight", ".bias": ".bias", ".gamma": ".weight", ".beta": ".bias"}
"""Ends of names of arrays, and of our parameters: norms once had gamma and beta."""


def arrays_of(model: Model, names: Names) -> dict[str, StoredArray | None]:
    """Return all arrays that a file of the model may have, by name.

    None stands for arrays that are not used.
    """
    arrays: dict[str, StoredArray | None] = {}
    canonical = parameter_names(model)
    for name, target in names.items():
        stored = StoredArray((target,)) if isinstance(target, str) else target
        for i in range(extended(model.config).depth if "{i}" in name else 1):
            for end, our_end in _LEAVES.items():
                array = name.replace("{i}", str(i)) + end
                if stored is None:
                    arrays[array] = None
                    continue
                paths = [p.replace("{i}", str(i)) + our_end for p in stored.parameters]
                parameters = [canonical[path] for path in paths if path in canonical]
                if len(parameters) == len(paths):
                    arrays[array] = replace(stored, parameters=tuple(parameters))
                elif not stored.trained:
                    arrays[array] = None
    return arrays


def first_names(
    arrays: Mapping[str, StoredArray | None], parameters: Iterable[str]
) -> tuple[dict[str, StoredArray], set[str]]:
    """Return the first arrays that hold these parameters, and the parameters that none holds."""
    first: dict[str, StoredArray] = {}
    left = set(parameters)
    for name, stored in arrays.items():
        if stored is not None and left.intersection(stored.parameters):
            first[name] = stored
            left.difference_update(stored.parameters)
    return first, left


def parameter_names(model: Model) -> dict[str, str]:
    """Return the first name of each parameter by all of its names: one that is tied has several."""
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{path}.{name}": first[id(value)]
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if id(value) in first
    }


def new_origin(family: Family, model: Model, head: str, settings: Mapping[str, Any]) -> Origin:
    """Return the origin of a model that no directory holds, as one of a family.

    `settings` is the content of a config.json, without what depends on the head.
    """
    config = extended(model.config)
    unused: dict[str, np.ndarray] = {}
    settings = {**settings, "architectures": [family.base + family.suffixes[head]]}
    if head in ("classes", "tokens") and len(settings.get("id2label") or {}) != config.num_classes:
        settings["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.num_classes)}
        settings["label2id"] = {f"LABEL_{i}": i for i in range(config.num_classes)}
    prefix = "" if head == "none" else family.prefix
    names = family.body_names(config, prefix) | family.names_of_head(head, prefix)
    table = arrays_of(model, names)
    if head == "none" and family.pooler:
        unused[f"{family.pooler}.weight"] = np.zeros((config.d_model, config.d_model), config.dtype)
        unused[f"{family.pooler}.bias"] = np.zeros(config.d_model, config.dtype)
    parameters = {name for name, _ in model.named_parameters() if ".lora_" not in name}
    arrays, unstored = first_names(table, parameters)
    if unstored:
        raise ValueError(
            f"model must have the parameters of {family.base}, got also {listed(unstored)}; "
            "nn.save_weights keeps any model"
        )
    return Origin(family, settings, head, arrays, unused)
