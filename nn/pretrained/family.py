"""What families of published models read (HFConfig), and what they declare (Family)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minigrad.io.json import REQUIRED, Settings

from ..models.base import Model
from ..models.encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier

__all__ = [
    "ACTIVATIONS",
    "ENCODERS",
    "HF_ACTIVATIONS",
    "Family",
    "HFConfig",
    "StoredArray",
    "expect_values",
    "read_generation_config",
]

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""Names of activations in nn by their names in config.json."""
HF_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}

ENCODERS: dict[str, type[Model]] = {
    "none": EncoderModel,
    "mlm": MaskedLanguageModel,
    "classes": EncoderClassifier,
    "tokens": TokenClassifier,
}
"""Models of the encoder families by head."""

GENERATION_KEYS = {
    "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
    "assistant_lookbehind", "bad_words_ids", "begin_suppress_tokens", "cache_config",
    "cache_implementation", "compile_config", "constraints", "continuous_batching_config",
    "disable_compile", "diversity_penalty", "do_sample", "dola_layers", "early_stopping",
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff",
    "eta_cutoff", "exponential_decay_length_penalty", "force_bos_token_to_be_generated",
    "force_words_ids", "forced_bos_token_id", "forced_eos_token_id", "guidance_scale",
    "is_assistant", "length_penalty", "low_memory", "max_cache_len", "max_length",
    "max_matching_ngram_size", "max_new_tokens", "max_time", "min_length", "min_new_tokens",
    "min_p", "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "penalty_alpha",
    "prefill_chunk_size", "prompt_lookup_num_tokens", "remove_invalid_values",
    "renormalize_logits", "repetition_penalty", "return_dict_in_generate", "sequence_bias",
    "speculation_type", "stop_strings", "suppress_tokens", "target_lookbehind", "temperature",
    "token_healing", "top_h", "top_k", "top_p", "typical_p", "use_cache", "use_mtp",
    "watermarking_config",
}  # fmt: skip
"""Settings of generation, of which older config.json contain copies."""

_COUNTS = (
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "top_k",
)
_TOKEN_IDS = (
    "eos_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "suppress_tokens",
    "begin_suppress_tokens",
)

HARMLESS = {
    # files and tools
    "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "_num_labels",
    "architectures", "auto_map", "dtype", "finetuning_task", "language", "model_max_length",
    "model_type", "name", "problem_type", "tokenizer_class", "torch_dtype",
    "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version",
    # labels and other special tokens; `load` reads the labels of a head
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "id2label", "label2id",
    "mask_token_id", "num_labels", "sep_token_id", "unk_token_id",
    # generation; `load` reads what generation needs
    *GENERATION_KEYS, "prefix", "task_specific_params",
    # training
    "embd_pdrop", "encoder_layerdrop", "decoder_layerdrop", "layerdrop",
    "gradient_checkpointing", "init_std", "initializer_factor", "initializer_range",
    "resid_pdrop", "router_aux_loss_coef",
    # other outputs, and other orders of the same computation
    "chunk_size_feed_forward", "output_past", "return_dict", "pretraining_tp", "torchscript",
    "use_bfloat16",
}  # fmt: skip
"""Keys of config.json that do not change the outputs of a model in any family."""


class HFConfig(Settings):
    """The keys of a config.json, each read by a method that checks its value.

    Parameters
    ----------
    data : mapping
        The content of config.json.
    where : str
        The file, which begins each message.
    defaults : mapping
        Values of keys that the file does not have.
    """

    def __init__(
        self, data: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(data, where)
        self.defaults = defaults or {}

    def take(
        self,
        name: str | Sequence[str],
        hint: Any,
        default: Any = REQUIRED,
        *bounds: Any,
        **checks: Any,
    ) -> Any:
        """Return the value of a key, or its default if the file has none or null."""
        if default is REQUIRED and isinstance(name, str):
            default = self.defaults.get(name, REQUIRED)
        return super().take(name, hint, default, *bounds, **checks)

    def integers(self, keys: Mapping[str, str], **defaults: int) -> dict[str, Any]:
        """Return integers by our names, from keys by our names."""
        return {
            ours: self.integer(key, defaults.get(ours, REQUIRED), low=0)
            for ours, key in keys.items()
        }

    def activation(self, key: str) -> str:
        """Return our name of an activation."""
        return ACTIVATIONS[self.text(key, choices=tuple(ACTIVATIONS))]

    def optional(self, key: str, low: int = 1) -> int | None:
        """Return an integer, or None if the file says null."""
        self.taken.add(key)
        return None if key in self and self[key] is None else self.integer(key, low=low)

    def tokens(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """Return token ids by our names. Null in the file is None; "eos_id" can be several."""
        ids: dict[str, Any] = {}
        for ours, key in keys.items():
            if ours == "eos_id" and isinstance(self.get(key), list):
                ids[ours] = tuple(self.list(key, int))
            else:
                ids[ours] = self.optional(key, low=0)
        return ids

    def expect(self, key: str, *values: Any) -> None:
        """Raise a ValueError unless a key has one of these values; the first is the default."""
        self.taken.add(key)
        if self.get(key, values[0]) not in values:
            words = " or ".join(v if isinstance(v, str) else json.dumps(v) for v in values)
            self.fail(key, f"{words} (others are not supported)")

    def expect_equal(self, key: str, other: str) -> None:
        """Raise a ValueError unless two keys have the same integer."""
        if self.integer(other) != self.integer(key):
            self.fail(other, f"{self[key]}, as {key} (others are not supported)")

    def expect_causal(self) -> None:
        """Raise a ValueError for a decoder-only model that was made into an encoder."""
        self.expect("is_causal", True, None)
        self.expect("use_bidirectional_attention", False, None)

    def expect_harmless(self, harmless: Set[str]) -> None:
        """Raise a ValueError for keys that were not read and might change results.

        Harmless are, beside the keys listed: those with their default, and others without a value.
        """
        unknown = {}
        for key, value in self.items():
            if key in self.taken or key in harmless:
                continue
            if key in self.defaults:
                self.expect(key, self.defaults[key])
            elif not any(value is empty for empty in (None, False)) and value not in ("", [], {}):
                unknown[key] = value
        if unknown:
            text = ", ".join(f"{key!r:.60}: {value!r:.60}" for key, value in unknown.items())
            raise ValueError(
                f"{self.where}: keys must be known to the family of the model, got {text}; they "
                "might change its results"
            )


def expect_values(settings: Settings, supported: Mapping[str, Sequence[Any]]) -> None:
    """Raise a ValueError for a key with another value than those listed; the first is the default."""
    keys = HFConfig(settings, settings.where)
    for key, values in supported.items():
        keys.expect(key, *values)


def read_generation_config(
    generation_config: Settings, config: Settings, vocab_size: int
) -> Settings:
    """Read the settings that `generate` of transformers uses when it gets no arguments.

    `config.json` holds older copies of them, which are used only if `generation_config.json` is
    missing.

    Parameters
    ----------
    generation_config, config : Settings
        Contents of `generation_config.json` and `config.json`.
    vocab_size : int
        Number of tokens; all token ids must be less.

    Returns
    -------
    Settings
        The entries that are not null, by their names in transformers. Token ids are tuples.
    """
    exists = Path(generation_config.where).is_file()
    source = generation_config if exists else config
    settings = Settings({k: v for k, v in source.items() if v is not None}, source.where)
    if not exists and settings.flag("force_bos_token_to_be_generated", False):
        settings["forced_bos_token_id"] = settings.get("bos_token_id")
    for name in _COUNTS:
        settings.integer(name, None, low=0)
    settings.integer("num_beams", None, high=1000)
    settings.number("top_p", None, low=0, high=1)
    settings.number("temperature", None, low=0)
    settings.number("repetition_penalty", None, low=0)
    settings.number("length_penalty", None, low=-20, high=20)
    settings.flag("do_sample", None)
    settings.take("early_stopping", bool | str, None, choices=(False, True, "never"))
    for name in _TOKEN_IDS:
        if (ids := settings.take(name, int | list, None)) is not None:
            ids = [ids] if isinstance(ids, int) else ids
            settings[name] = _checked_ids(settings, name, ids, vocab_size)
    if (words := settings.list("bad_words_ids", list, None)) is not None:
        name = "bad_words_ids"
        if [] in words:
            settings.fail(name, "lists of at least one token id")
        settings[name] = tuple(_checked_ids(settings, name, ids, vocab_size) for ids in words)
    return settings


def _checked_ids(settings: Settings, name: str, ids: list[Any], vocab_size: int) -> tuple[int, ...]:
    """Return token ids as a tuple, or raise an error that names the file and the entry."""
    for i in ids:
        if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab_size:
            raise ValueError(
                f"{settings.where}: {name} must hold token ids from 0 to {vocab_size - 1}, got "
                f"{i!r:.30}"
            )
    return tuple(ids)


@dataclass(frozen=True)
class StoredArray:
    """How one array of a file holds parameters of ours.

    Parameters
    ----------
    parameters : tuple of str
        Their names. Several parameters are stored one below the other.
    transposed : bool
        A linear layer is stored as (in, out).
    num_heads : int
        For several parameters: the rows of the first head of each, then of the second, and so on.
    extra_axis : bool
        The array has one more axis, the first, of size 1.
    trained : bool
        The array is a parameter rather than a buffer.
    """

    parameters: tuple[str, ...]
    transposed: bool = False
    num_heads: int = 1
    extra_axis: bool = False
    trained: bool = True

    @property
    def is_plain(self) -> bool:
        """Return whether the array is one parameter as it is."""
        return self == StoredArray(self.parameters[:1])

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape of the array for parameters of these shapes."""
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        shape = shape[::-1] if self.transposed else shape
        return (1, *shape) if self.extra_axis else shape

    def split(self, array: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Return the parameters in an array: views, unless they are stored head by head."""
        array = array[0] if self.extra_axis else array.T if self.transposed else array
        if len(shapes) == 1:
            return [array]
        heads = array.reshape(self.num_heads, -1, *array.shape[1:])
        ends = np.cumsum([shape[0] for shape in shapes]) // self.num_heads
        return [part.reshape(shape) for part, shape in zip(np.split(heads, ends[:-1], 1), shapes)]

    def join(self, parameters: Sequence[np.ndarray]) -> np.ndarray:
        """Return the array that holds these parameters."""
        array = parameters[0]
        if len(parameters) > 1:
            heads = [x.reshape(self.num_heads, -1, *x.shape[1:]) for x in parameters]
            array = np.concatenate(heads, 1).reshape(-1, *array.shape[1:])
        return array[None] if self.extra_axis else array.T if self.transposed else array


Names = Mapping[str, "str | StoredArray | None"]


QKV = ("self_attention.q_proj", "self_attention.k_proj", "self_attention.v_proj")


def in_layers(theirs: str, ours: str, names: Names) -> dict[str, str | StoredArray | None]:
    """Return the names of all layers {i} from those inside a layer of their and our stack."""
    table: dict[str, str | StoredArray | None] = {}
    for name, inside in names.items():
        if isinstance(inside, StoredArray):
            inside = replace(
                inside, parameters=tuple(f"{ours}.{{i}}.{p}" for p in inside.parameters)
            )
        elif inside is not None:
            inside = f"{ours}.{{i}}.{inside}"
        table[f"{theirs}.{{i}}.{name}"] = inside
    return table


def projections(stem: str, *names: str, of: str = "self_attention") -> dict[str, str]:
    """Return our projections of an attention by the names of query, key, value and output."""
    ours = ("q_proj", "k_proj", "v_proj", "out_proj")
    return {stem + name: f"{of}.{part}" for name, part in zip(names, ours, strict=True)}


class Family:
    """A family of published models: the models of one `model_type`.

    Attributes
    ----------
    base : str
        Stem of the names of its classes in transformers, such as "Bert".
    models : dict
        Our class for each head. The first is the default.
    suffixes : dict
        End of the name of their class for each head.
    prefix : str
        Begin of the names of arrays below a head. Files of models without head lack it.
    keys : dict
        Keys of sizes in config.json by our names.
    tokens : dict
        Keys of special tokens in config.json by our names.
    defaults : dict
        Values of keys that config.json may lack, as their configuration class has them.
    harmless : set of str
        Keys of this family that do not change results, beside those of all families.
    names : dict
        Our modules or parameters by their names without `prefix`, "{i}" for the index of a layer.
        None stands for arrays that are not used.
    head_names : dict
        The same for each head, with `prefix`.
    classifier : dict
        Our options of the head "classes".
    token_classifier : dict
        Our options of the head "tokens".
    pooler : str
        A linear layer of d_model inputs and outputs in files without head, which do not use it.
    """

    base: ClassVar[str]
    models: ClassVar[Mapping[str, type[Model]]]
    suffixes: ClassVar[Mapping[str, str]]
    prefix: ClassVar[str]
    keys: ClassVar[Mapping[str, str]]
    tokens: ClassVar[Mapping[str, str]] = {
        "pad_id": "pad_token_id",
        "bos_id": "bos_token_id",
        "eos_id": "eos_token_id",
    }
    defaults: ClassVar[Mapping[str, Any]]
    harmless: ClassVar[Set[str]] = frozenset()
    names: ClassVar[Names]
    head_names: ClassVar[Mapping[str, Names]]
    classifier: ClassVar[Mapping[str, Any]] = {}
    token_classifier: ClassVar[Mapping[str, Any]] = {}
    pooler: ClassVar[str] = ""

    def config(self, hf: HFConfig) -> Any:
        """Return our configuration."""
        raise NotImplementedError

    def names_of(self, config: Any) -> Names:
        """Return `names` of the models of one configuration."""
        return self.names

    def hf_config(self, config: Any) -> dict[str, Any]:
        """Return a config.json for a model that was trained here."""
        raise ValueError(f"save: models trained here are not saved as {self.base}")
