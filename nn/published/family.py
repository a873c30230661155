"""Families of published models: the base class, and the reader of config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from minigrad.io.json import REQUIRED, Settings
from minigrad.io.reading import listed

from ..models import LanguageModel, Model, Transformer
from ..options.config import DecoderOnlyConfig, EncoderDecoderConfig, ExtendedConfig
from ..options.encoder import EncoderClassifier, EncoderModel, MaskedLanguageModel, TokenClassifier
from .generation_config import GENERATION_KEYS

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
"""Names of activations in `nn` by their names in config.json."""
HF_ACTIVATIONS = {name: key for key, name in reversed(ACTIVATIONS.items())}
"""Names of activations in config.json by their names in `nn`."""

ENCODERS: dict[str, type[Model]] = {
    "none": EncoderModel,
    "mlm": MaskedLanguageModel,
    "classes": EncoderClassifier,
    "tokens": TokenClassifier,
}
"""Models of the encoder families by head."""

HARMLESS = {
    # files and tools
    "_attn_implementation_autoset", "_commit_hash", "_model_name_or_path", "_name_or_path",
    "_num_labels", "architectures", "auto_map", "dtype", "finetuning_task", "language",
    "model_max_length", "model_type", "name", "problem_type", "tokenizer_class", "torch_dtype",
    "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version",
    # labels and other special tokens; `load` reads the labels of a head
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "id2label", "label2id",
    "mask_token_id", "num_labels", "sep_token_id", "unk_token_id",
    # generation; `load` reads what generation needs
    *GENERATION_KEYS, "prefix", "task_specific_params",
    # training
    "embd_pdrop", "encoder_layerdrop", "decoder_layerdrop", "layerdrop",
    "gradient_checkpointing", "init_std", "initializer_factor", "initializer_range",
    "router_aux_loss_coef",
    # other outputs, and other orders of the same computation
    "chunk_size_feed_forward", "output_past", "return_dict", "pretraining_tp", "torchscript",
    "use_bfloat16",
}  # fmt: skip
"""Keys of config.json that do not change the outputs of a model in any family."""


class HFConfig(Settings):
    """Keys of a config.json, which families of models read.

    `defaults` are values of keys that the file does not have.
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

    def options(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """Return options of our configuration, which checks them, from the keys of their names."""
        options: dict[str, Any] = {}
        for option, key in keys.items():
            if key not in self and key not in self.defaults:
                raise ValueError(f"{self.where}: {key} is missing")
            self.taken.add(key)
            options[option] = self.get(key, self.defaults.get(key))
        if "activation" in keys:
            options["activation"] = self.activation(keys["activation"])
        return options

    def activation(self, key: str, default: Any = REQUIRED) -> str:
        """Return our name of an activation."""
        return ACTIVATIONS[self.text(key, default, choices=tuple(ACTIVATIONS))]

    def first_position(self) -> int:
        """Return the row of positions after that of padding, for models that begin there."""
        if self.get("pad_token_id", 0) is None:
            self.fail("pad_token_id", "an id")
        return self.integer("pad_token_id", low=0) + 1

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

        Keys with their default, or without a value, are harmless too.
        """
        unknown = []
        for key in self.keys() - self.taken - harmless:
            value = self[key]
            if key in self.defaults:
                self.expect(key, self.defaults[key])
            elif value is not None and value is not False and value not in ("", [], {}):
                unknown.append(f"{key!r:.60}: {value!r:.60}")
        if unknown:
            raise ValueError(
                f"{self.where}: keys must be known to the family of the model, got "
                f"{listed(unknown)}; they might change its results"
            )


def expect_values(settings: Settings, supported: Mapping[str, Sequence[Any]]) -> None:
    """Raise a ValueError for a key with an unsupported value; the first value is the default."""
    keys = HFConfig(settings, settings.where)
    for key, values in supported.items():
        keys.expect(key, *values)


Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class StoredArray:
    """An array of a file, and the parameters that it contains."""

    parameters: tuple[str, ...]  # several are stored one below the other
    transposed: bool = False  # the weight of a linear layer is stored as (in, out)
    num_heads: int = 1  # several are stored head by head: first the rows of the first head of each
    extra_axis: bool = False  # a first axis of size 1
    trained: bool = True  # a parameter rather than a buffer

    def shape(self, shapes: Shapes) -> tuple[int, ...]:
        """Return the shape of the array, from the shapes of the parameters by name."""
        rows = [shapes[name][0] for name in self.parameters]
        shape = (sum(rows), *shapes[self.parameters[0]][1:])
        shape = shape[::-1] if self.transposed else shape
        return (1, *shape) if self.extra_axis else shape

    def split(self, array: np.ndarray, shapes: Shapes) -> dict[str, np.ndarray]:
        """Return the values of the parameters in an array by name, as views if possible."""
        array = array[0] if self.extra_axis else array.T if self.transposed else array
        heads = array.reshape(self.num_heads, -1, *array.shape[1:])
        ends = np.cumsum([shapes[name][0] for name in self.parameters]) // self.num_heads
        parts = [part.reshape(-1, *array.shape[1:]) for part in np.split(heads, ends[:-1], 1)]
        return dict(zip(self.parameters, parts))

    def join(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the array that contains these values of the parameters."""
        arrays = [values[name] for name in self.parameters]
        array = arrays[0]
        if len(arrays) > 1:
            heads = [x.reshape(self.num_heads, -1, *x.shape[1:]) for x in arrays]
            array = np.concatenate(heads, 1).reshape(-1, *array.shape[1:])
        return array[None] if self.extra_axis else array.T if self.transposed else array


Names = Mapping[str, "str | StoredArray | None"]


QKV = ("self_attention.q_proj", "self_attention.k_proj", "self_attention.v_proj")


def without(names: dict[str, Any], *parts: str) -> dict[str, Any]:
    """Return a table without the names that contain one of these parts."""
    return {name: v for name, v in names.items() if not any(part in name for part in parts)}


def in_layers(path: str, our_path: str, names: Names) -> dict[str, str | StoredArray | None]:
    """Return the names in all layers `{i}` of a stack, from the names inside a layer.

    `path` is that of the stack in the file, and `our_path` that in our model.
    """
    table: dict[str, str | StoredArray | None] = {}
    for name, target in names.items():
        if isinstance(target, StoredArray):
            parameters = tuple(f"{our_path}.{{i}}.{p}" for p in target.parameters)
            target = replace(target, parameters=parameters)
        elif target is not None:
            target = f"{our_path}.{{i}}.{target}"
        table[f"{path}.{{i}}.{name}"] = target
    return table


def projections(stem: str, *names: str, of: str = "self_attention") -> dict[str, str]:
    """Return our projections of an attention by the names of query, key, value and output."""
    parts = ("q_proj", "k_proj", "v_proj", "out_proj")
    return {stem + name: f"{of}.{part}" for name, part in zip(names, parts, strict=True)}


class Family:
    """A family of published models: the models of one `model_type`.

    `names`, `layers` and `head_names` are our modules or parameters by their names in files. None
    stands for arrays that are not used. Entries for parameters that a model lacks do not matter.
    """

    base: ClassVar[str]  # stem of the names of its classes in transformers, such as "Bert"
    models: ClassVar[Mapping[str, type[Model]]]  # by head; the first is the default
    suffixes: ClassVar[Mapping[str, str]]  # ends of the names of their classes, by head
    config_class: ClassVar[type[ExtendedConfig]]
    # beginning of the names of arrays below a head, which files of models without head lack
    prefix: ClassVar[str] = "model."
    # keys of config.json by the options, such as "attention.dropout", that have the same values
    keys: ClassVar[Mapping[str, str]]
    # values of keys that config.json may lack, as their configuration class has them
    defaults: ClassVar[Mapping[str, Any]]
    # keys of this family that do not change results, in addition to `HARMLESS`
    harmless: ClassVar[Set[str]] = frozenset()
    names: ClassVar[Names]  # without `prefix`
    layers: ClassVar[Names] = {}  # inside a layer
    stack: ClassVar[str] = "encoder.layer"  # name of the layers in a file, without `prefix`
    our_stack: ClassVar[str] = "encoder.layers"
    head_names: ClassVar[Mapping[str, Names]] = {"": {"lm_head": "output"}}  # with `prefix`
    classifier: ClassVar[Mapping[str, Any]] = {}  # our options of the head "classes"
    token_classifier: ClassVar[Mapping[str, Any]] = {}  # our options of the head "tokens"
    # parts of the names of modules in transformers by those in files, if they differ
    modules: ClassVar[Mapping[str, str]] = {}
    # a linear layer of d_model inputs and outputs in files without head, which do not use it
    pooler: ClassVar[str] = ""

    def variant(self, settings: Settings) -> Family:
        """Return the family for a config.json: this one, or another of the same `model_type`."""
        return self

    def config(self, hf: HFConfig) -> dict[str, Any]:
        """Return the options of our configuration by names such as "attention.dropout"."""
        raise NotImplementedError

    def names_of(self, config: Any) -> Names:
        """Return `names` of the models of one configuration, with those in layers."""
        return {**self.names, **in_layers(self.stack, self.our_stack, self.layers_of(config))}

    def layers_of(self, config: Any) -> Names:
        """Return `layers` of the models of one configuration."""
        return self.layers

    def body_names(self, config: Any, prefix: str) -> dict[str, Any]:
        """Return `names_of` a configuration in a file with this prefix."""
        return {prefix + name: target for name, target in self.names_of(config).items()}

    def names_of_head(self, head: str, prefix: str) -> dict[str, Any]:
        """Return `head_names` of a head in a file with this prefix, `self.prefix` or ""."""
        names = self.head_names.get(head, {})
        return {n if prefix else n.removeprefix(self.prefix): target for n, target in names.items()}

    def hf_config(self, config: Any) -> dict[str, Any]:
        """Return the keys of config.json that `keys` lacks, for a model that was trained here."""
        return {}


class DecoderOnly(Family):
    """Base of the families of language models."""

    models = {"": LanguageModel}
    suffixes = {"": "ForCausalLM"}
    config_class = DecoderOnlyConfig
    stack = "layers"
    our_stack: ClassVar[str] = "layers.layers"
    keys: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
        "d_ff": "intermediate_size",
        "max_len": "max_position_embeddings",
        "tie": "tie_word_embeddings",
        "pad_id": "pad_token_id",
        "bos_id": "bos_token_id",
        "eos_id": "eos_token_id",
    }


class EncoderDecoder(Family):
    """Base of the families of encoder-decoder models."""

    models = {"": Transformer}
    suffixes = {"": "ForConditionalGeneration"}
    config_class = EncoderDecoderConfig
