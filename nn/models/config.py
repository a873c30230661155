"""Configurations of models: frozen dataclasses that are saved beside the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from minigrad.io.json import dataclass_from

from ..layers.attention import check_heads
from ..layers.block import NORMS
from ..layers.linear import ACTIVATIONS
from ..layers.position_bias import POSITION_BIASES
from ..layers.rotary import RotaryPositions

__all__ = [
    "AttentionConfig",
    "EmbeddingConfig",
    "EncoderConfig",
    "LanguageModelConfig",
    "ModelConfig",
    "PositionConfig",
    "TransformerConfig",
]

C = TypeVar("C", bound="ModelConfig")
POSITIONS = (
    "none",
    "sinusoidal",
    "sinusoidal_halves",
    "sinusoidal_last",
    "learned",
    "rotary",
)
"""Kinds of positions beside those of `POSITION_BIASES`."""


def _freeze_lists(config: Any) -> None:
    """Replace lists, as JSON has them, by tuples, which can be hashed."""
    for item in fields(config):
        if isinstance(value := getattr(config, item.name), list):
            object.__setattr__(config, item.name, tuple(value))


def _check_count(name: str, value: Any, low: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r:.60}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < high:
        raise ValueError(
            f"{name} must be a number of at least {low:g} and less than {high:g}, got {value!r:.30}"
        )


def _check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r:.60}")


def _check_flags(config: Any, prefix: str = "") -> None:
    for item in fields(config):
        value = getattr(config, item.name)
        if item.type == "bool" and not isinstance(value, bool):
            raise ValueError(f"{prefix}{item.name} must be True or False, got {value!r:.60}")


def _check_layers(name: str, layers: Any) -> None:
    for i in layers or ():
        if isinstance(i, bool) or not isinstance(i, int) or i < 0:
            raise ValueError(f"{name} must be indices of layers, got {layers!r:.60}")


def _has_option(kind: str, option: str) -> bool:
    """Return whether an option of `PositionConfig` changes positions of this kind."""
    if "rotary" in option:
        return kind == "rotary"
    if "relative" in option:
        return kind in ("relative", "learned_relative")
    return option == "kind" or kind.startswith(("learned", "sinusoidal"))


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Options of the attentions of a model; the defaults are the paper's.

    Parameters
    ----------
    num_kv_heads : int, optional
        Number of heads of keys and values, which groups of query heads share. None: `num_heads`.
    head_dim : int, optional
        Width of a head. None: d_model / num_heads.
    scale : float, optional
        Factor of the scores. None: 1 / sqrt(head_dim).
    bias : bool or str, optional
        Biases of the projections. A string lists those that have one, of the letters q, k, v, o.
        None: `bias` of the model.
    qk_norm : bool
        Normalize queries and keys by an RMS norm over each head.
    window : int, optional
        Number of positions that causal attention sees, including the current one. None: all.
    window_layers : sequence of int, optional
        Layers that `window` limits. None: all.
    dropout : float, optional
        Dropout of the attention probabilities. None: `dropout` of the model.
    """

    num_kv_heads: int | None = None
    head_dim: int | None = None
    scale: float | None = None
    bias: bool | str | None = None
    qk_norm: bool = False
    window: int | None = None
    window_layers: Sequence[int] | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        _freeze_lists(self)
        for name in ("num_kv_heads", "head_dim", "window"):
            _check_count(f"attention.{name}", getattr(self, name), 1)
        _check_number("attention.scale", self.scale, 1e-30, 1e30)
        _check_number("attention.dropout", self.dropout, 0, 1)
        _check_flags(self, "attention.")
        if isinstance(self.bias, str):
            if not set(self.bias) <= set("qkvo"):
                raise ValueError(
                    "attention.bias must be a bool or some of the letters qkvo, got "
                    f"{self.bias!r:.60}"
                )
        elif not isinstance(self.bias, (bool, type(None))):
            raise ValueError(f"attention.bias must be a bool or a str, got {self.bias!r:.60}")
        _check_layers("attention.window_layers", self.window_layers)
        if self.window is None and self.window_layers is not None:
            raise ValueError(
                f"attention.window_layers must be None without a window, got {self.window_layers}"
            )


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """How a model represents positions. Options of another kind of positions are refused.

    Parameters
    ----------
    kind : str
        "sinusoidal": the paper's, sines and cosines interleaved.
        "sinusoidal_halves": all sines, then all cosines.
        "sinusoidal_last": halves with exponents up to and including 1.
        "learned": a table of `max_len` rows.
        "rotary": rotate queries and keys, see `RotaryPositions`.
        "relative": add a bias to the scores, see `RelativePositionBias`.
        "learned_relative": both a table and a bias.
        "alibi": lower the scores linearly with the distance.
        "none": no positions.
    offset : int
        Row of the table for the first real token. For tables only.
    rotary_base : float
        Base of the rotation frequencies.
    rotary_scaling : mapping, optional
        Scaling for longer sequences, in the words of published configurations.
    rotary_dim : int, optional
        Number of leading components of each head that rotate. None: `head_dim`.
    no_rotary_layers : sequence of int
        Layers without rotation.
    relative_buckets : int
        Number of buckets of distances.
    relative_max_distance : int
        Distance from which on all share one bucket.
    """

    kind: str
    offset: int = 0
    rotary_base: float = 10000.0
    rotary_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    rotary_dim: int | None = None
    no_rotary_layers: Sequence[int] = ()
    relative_buckets: int = 32
    relative_max_distance: int = 128

    def __post_init__(self) -> None:
        _freeze_lists(self)
        _check_choice("positions.kind", self.kind, (*POSITIONS, *POSITION_BIASES))
        _check_count("positions.offset", self.offset, 0)
        _check_number("positions.rotary_base", self.rotary_base, 1, math.inf)
        for name in ("rotary_dim", "relative_buckets", "relative_max_distance"):
            _check_count(f"positions.{name}", getattr(self, name), 1)
        _check_layers("positions.no_rotary_layers", self.no_rotary_layers)
        for item in fields(self):
            value = getattr(self, item.name)
            if not _has_option(self.kind, item.name) and value != item.default:
                raise ValueError(
                    f"positions.{item.name} must be {item.default!r} for positions of kind "
                    f"{self.kind!r}, got {value!r:.60}"
                )


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """Options of the token embeddings.

    Parameters
    ----------
    scale : bool or float
        Factor of the embeddings. True: sqrt(d_model), as in section 3.4 of the paper. False: 1.
    norm : bool
        Normalize the sum of embeddings and positions.
    size : int, optional
        Width of the embeddings, which a linear layer projects to d_model. None: d_model.
    """

    scale: bool | float
    norm: bool = False
    size: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scale, bool):
            _check_number("embeddings.scale", self.scale, 1e-30, 1e30)
        _check_flags(self, "embeddings.")
        _check_count("embeddings.size", self.size, 1)


GROUPS: dict[str, Any] = {
    "attention": AttentionConfig,
    "positions": PositionConfig,
    "embeddings": EmbeddingConfig,
}
FLAT_NAMES = {
    "num_kv_heads": ("attention", "num_kv_heads"),
    "head_dim": ("attention", "head_dim"),
    "attention_scale": ("attention", "scale"),
    "attention_bias": ("attention", "bias"),
    "qk_norm": ("attention", "qk_norm"),
    "window": ("attention", "window"),
    "window_layers": ("attention", "window_layers"),
    "attention_dropout": ("attention", "dropout"),
    "position_offset": ("positions", "offset"),
    "rotary_base": ("positions", "rotary_base"),
    "rotary_scaling": ("positions", "rotary_scaling"),
    "rotary_dim": ("positions", "rotary_dim"),
    "no_rotary_layers": ("positions", "no_rotary_layers"),
    "relative_buckets": ("positions", "relative_buckets"),
    "relative_max_distance": ("positions", "relative_max_distance"),
    "scale_embedding": ("embeddings", "scale"),
    "embedding_norm": ("embeddings", "norm"),
    "embedding_size": ("embeddings", "size"),
}
"""Group and field of each option that version 0.2 had among the fields of `ModelConfig`."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of the configurations; the defaults are the paper's.

    Parameters
    ----------
    dropout : float
        Dropout of embeddings and sublayers.
    activation_dropout : float, optional
        Dropout inside the feed-forward network. None: `dropout`.
    activation : str
        Activation of the feed-forward network, a key of `ACTIVATIONS`.
    gated : bool
        Multiply the activation by a second projection of the input.
    norm : str
        "layer", "rms" or "rms_zero_centred", which multiplies by 1 + weight as Gemma does.
    norm_eps : float
        Added to the variance.
    norm_first : bool
        Normalize the input of each sublayer rather than its sum with the residual.
    final_norm : bool, optional
        Add a norm after each stack. None: `norm_first`.
    bias : bool
        Biases of the linear layers.
    attention : AttentionConfig
        Options of the attentions.
    positions : PositionConfig or str
        Representation of positions. A string is `PositionConfig(kind=string)`.
    max_len : int
        Number of positions.
    embeddings : EmbeddingConfig
        Options of the token embeddings.
    output_bias : bool
        Bias of the output projection.
    output_scale : float
        Factor of the input of the output projection.
    pad_id : int, optional
        Token that is padding. None: no token is padding.
    bos_id : int, optional
        Token that begins a sequence.
    eos_id : int or sequence of int, optional
        Tokens that end a sequence.
    dtype : str
        Type of the parameters.
    pruned_heads : mapping
        Removed heads by the name of an attention, as `prune_heads` of a model records them.
    """

    dropout: float = 0.1
    activation_dropout: float | None = None
    activation: str = "relu"
    gated: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_first: bool = False
    final_norm: bool | None = None
    bias: bool = True
    attention: AttentionConfig = AttentionConfig()
    positions: PositionConfig | str = PositionConfig(kind="sinusoidal")
    max_len: int = 512
    embeddings: EmbeddingConfig = EmbeddingConfig(scale=True)
    output_bias: bool = True
    output_scale: float = 1.0
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | Sequence[int] | None = None
    dtype: str = "float32"
    pruned_heads: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    # Each kind of model has these, at places of their own among its arguments.
    d_model = num_heads = d_ff = property(lambda self: 0)

    if not TYPE_CHECKING:  # type checkers see the fields only

        def __new__(cls, *args: Any, **settings: Any) -> Any:
            for name in settings:
                if name in FLAT_NAMES:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; {_advice(name)}")
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            advice = f"; {_advice(name)}" if name in FLAT_NAMES else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{advice}")

    def __post_init__(self) -> None:
        _freeze_lists(self)
        if isinstance(self.positions, str):
            object.__setattr__(self, "positions", PositionConfig(kind=self.positions))
        for name, group in GROUPS.items():
            if not isinstance(getattr(self, name), group):
                raise ValueError(
                    f"{name} must be of class {group.__name__}, got {getattr(self, name)!r:.60}"
                )
        self._check_sizes()
        self._check_choices()
        self._check_groups()

    def _check_sizes(self) -> None:
        for name, low in _COUNTS.items():
            _check_count(name, getattr(self, name, None), low)
        for name, ids in (
            ("pad_id", (self.pad_id,)),
            ("bos_id", (self.bos_id,)),
            ("eos_id", self.end_ids),
        ):
            for i in ids:
                if i is not None and not 0 <= i < (self.vocabulary or math.inf):
                    raise ValueError(
                        f"{name} must be less than the {self.vocabulary:,} tokens, got {i}"
                    )
        for name in ("dropout", "activation_dropout", "head_dropout"):
            _check_number(name, getattr(self, name, None), 0, 1)
        _check_number("norm_eps", self.norm_eps, 1e-30, 1)  # less vanishes beside 0 in float32
        _check_number("output_scale", self.output_scale, 1e-30, 1e30)
        _check_flags(self)

    def _check_choices(self) -> None:
        for name, allowed in self._choices().items():
            _check_choice(name, getattr(self, name), allowed)
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype must be a floating dtype, got {self.dtype!r}")

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"activation": tuple(ACTIVATIONS), "norm": NORMS}

    def _check_groups(self) -> None:
        positions = cast(PositionConfig, self.positions)
        check_heads(
            self.d_model, self.num_heads, self.attention.num_kv_heads, self.attention.head_dim
        )
        for name, layers in (
            ("attention.window_layers", self.attention.window_layers),
            ("positions.no_rotary_layers", positions.no_rotary_layers),
        ):
            if layers and getattr(self, "shared_layers", False):
                raise ValueError(
                    f"{name} must be empty with shared_layers=True, which uses one layer at every "
                    f"depth, got {layers!r:.60}; choose the setting for all layers"
                )
            if outside := [i for i in layers or () if i >= self.depth]:
                raise ValueError(
                    f"{name} must be less than the {self.depth} layers, got {outside[0]}"
                )
        if positions.kind == "rotary":
            if self.size_of_head > 1 << 16:
                raise ValueError(
                    f"attention.head_dim must be at most {1 << 16} with rotary positions, got "
                    f"{self.size_of_head}"
                )
            self.rotary()  # refuses what is wrong

    @property
    def depth(self) -> int:
        """Return the number of layers of the deepest stack."""
        return max(
            getattr(self, name, 0)
            for name in ("num_layers", "num_encoder_layers", "num_decoder_layers")
        )

    @property
    def has_final_norm(self) -> bool:
        """Return whether each stack ends in a norm."""
        return self.norm_first if self.final_norm is None else self.final_norm

    @property
    def size_of_head(self) -> int:
        """Return `attention.head_dim`, or d_model / num_heads."""
        head_dim = self.attention.head_dim
        return self.d_model // self.num_heads if head_dim is None else head_dim

    def rotary(self) -> RotaryPositions:
        """Return the rotation of queries and keys, for positions of kind "rotary"."""
        positions = cast(PositionConfig, self.positions)
        return RotaryPositions(
            self.size_of_head,
            base=positions.rotary_base,
            scaling=positions.rotary_scaling,
            rotary_dim=positions.rotary_dim,
        )

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Return the tokens that end a sequence."""
        if self.eos_id is None:
            return ()
        return (self.eos_id,) if isinstance(self.eos_id, int) else tuple(self.eos_id)

    @property
    def vocabulary(self) -> int:
        """Return the number of output tokens, or 0 if it is not set yet."""
        return getattr(self, "target_vocab_size", 0) or getattr(self, "vocab_size", 0)

    @cached_property
    def hidden_id(self) -> int | None:
        """Return `pad_id`, or None if that token also ends sequences and must be learned."""
        return None if self.pad_id in self.end_ids else self.pad_id

    @property
    def embedding_factor(self) -> float:
        """Return the factor of the embeddings."""
        scale = self.embeddings.scale
        return (math.sqrt(self.d_model) if scale else 1.0) if isinstance(scale, bool) else scale

    def effective(self: C) -> C:
        """Return the configuration with the value that takes effect in place of each None."""
        positions, attention = cast(PositionConfig, self.positions), self.attention
        bias = self.bias if attention.bias is None else attention.bias
        if isinstance(bias, str):
            letters = "".join(letter for letter in "qkvo" if letter in bias)
            bias = {"": False, "qkvo": True}.get(letters, letters)
        changes: dict[str, Any] = {}
        if getattr(self, "head_dropout", 0) is None:
            changes["head_dropout"] = self.dropout
        if positions.kind == "rotary":
            rotary_dim = positions.rotary_dim or self.size_of_head
            changes["positions"] = replace(positions, rotary_dim=rotary_dim)
        dropout = self.dropout if self.activation_dropout is None else self.activation_dropout
        return replace(
            self,
            activation_dropout=dropout,
            final_norm=self.has_final_norm,
            attention=replace(
                attention,
                num_kv_heads=attention.num_kv_heads or self.num_heads,
                head_dim=self.size_of_head,
                scale=attention.scale or self.size_of_head**-0.5,
                bias=bias,
                dropout=self.dropout if attention.dropout is None else attention.dropout,
            ),
            embeddings=replace(
                self.embeddings,
                scale=self.embedding_factor,
                size=self.embeddings.size or self.d_model,
            ),
            **changes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], data: Mapping[str, Any], where: str = "") -> C:
        """Return the configuration that `to_dict` of this version or of version 0.2 described.

        Unknown names and values of another type are a ValueError that begins with `where`.
        """
        where = where or cls.__name__
        values = cls.grouped(data)
        for name, group in GROUPS.items():
            if isinstance(values.get(name), Mapping):
                values[name] = dataclass_from(group, values[name], where)
            elif name in values and not (name == "positions" and isinstance(values[name], str)):
                raise ValueError(f"{where}: {name} must be an object, got {values[name]!r:.60}")
        return dataclass_from(cls, values, where)

    @classmethod
    def grouped(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain data with the groups of options that version 0.2 did not have.

        Version 0.2 ignored options of another kind of positions, and `window_layers` without a
        window. They are left out.
        """
        values = dict(data)
        if not FLAT_NAMES.keys() & data.keys() or any(
            isinstance(data.get(name), Mapping) for name in GROUPS
        ):
            return values
        defaults: dict[str, Any] = {item.name: item.default for item in fields(cls)}
        groups = {name: asdict(defaults[name]) for name in GROUPS}
        kind = groups["positions"]["kind"] = values.pop("positions", groups["positions"]["kind"])
        for name, (group, option) in FLAT_NAMES.items():
            if name in values:
                groups[group][option] = values.pop(name)
        groups["positions"] = {
            option: value
            for option, value in groups["positions"].items()
            if _has_option(str(kind), option)
        }
        if groups["attention"]["window"] is None:
            groups["attention"]["window_layers"] = None
        return {**values, **groups}


_COUNTS = {
    **dict.fromkeys(("d_model", "num_heads", "d_ff", "max_len"), 1),
    **dict.fromkeys(("source_vocab_size", "target_vocab_size", "vocab_size"), 0),
    **dict.fromkeys(("num_layers", "num_encoder_layers", "num_decoder_layers"), 0),
    **dict.fromkeys(("num_classes", "num_types", "pad_id", "bos_id"), 0),
    **dict.fromkeys(("image_size", "patch_size"), 0),
    "num_channels": 1,
}
"""Integer options of the models, and the least value of each."""


def _advice(name: str) -> str:
    """Return how the option that version 0.2 called `name` is written now."""
    group, option = FLAT_NAMES[name]
    return f"use {group}=nn.{GROUPS[group].__name__}({option}=...), config.{group}.{option}"


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Configuration of a `Transformer`; the defaults are the paper's base model.

    Parameters
    ----------
    tie : str
        "none": no weights are shared.
        "target": the output projection shares its weight with the target embedding.
        "embeddings": the source and target embeddings share their weight (one vocabulary).
        "all": all three share one weight.
    """

    source_vocab_size: int = 0
    target_vocab_size: int = 0
    d_model: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_ff: int = 2048
    tie: str = field(default="none", kw_only=True)
    pad_id: int | None = field(default=0, kw_only=True)
    bos_id: int | None = field(default=1, kw_only=True)
    eos_id: int | Sequence[int] | None = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie in ("embeddings", "all") and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"target_vocab_size must be equal to source_vocab_size with tie={self.tie!r}, got "
                f"{self.target_vocab_size} and {self.source_vocab_size}"
            )

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "tie": ("none", "target", "embeddings", "all")}


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """Configuration of a `LanguageModel`; the defaults are GPT-2's, but smaller.

    Parameters
    ----------
    tie : bool
        Share the weight of the output projection with the embedding.
    parallel : bool
        Add attention and feed-forward network of the same input, see `TransformerEncoderLayer`.
    """

    vocab_size: int = 0
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 4
    d_ff: int = 1024
    tie: bool = field(default=True, kw_only=True)
    parallel: bool = field(default=False, kw_only=True)
    activation: str = field(default="gelu_tanh", kw_only=True)
    norm_first: bool = field(default=True, kw_only=True)
    positions: PositionConfig | str = field(default=PositionConfig(kind="learned"), kw_only=True)
    embeddings: EmbeddingConfig = field(default=EmbeddingConfig(scale=False), kw_only=True)
    output_bias: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """Configuration of an `EncoderModel` and of its heads.

    Parameters
    ----------
    num_types : int
        Number of segment types with an embedding. 0: no such embedding.
    shared_layers : bool
        Use one layer `num_layers` times.
    num_classes : int
        Number of classes of a classifier.
    pool : str
        Input of a classifier: "mean" over the real tokens, or the "first" token.
    head_activation : str
        Activation of a linear layer before the output of a classifier. "none": no such layer.
    head_dropout : float, optional
        Dropout before the output of a classifier. None: `dropout`.
    image_size : int
        Height and width of images.
    patch_size : int
        Height and width of the patches of an image. If it is not 0 the model reads images instead
        of token ids, and `max_len` is the number of patches + 1.
    num_channels : int
        Number of color channels of images.
    """

    vocab_size: int = 0
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 4
    d_ff: int = 1024
    num_types: int = field(default=0, kw_only=True)
    shared_layers: bool = field(default=False, kw_only=True)
    num_classes: int = field(default=0, kw_only=True)
    pool: str = field(default="mean", kw_only=True)
    head_activation: str = field(default="none", kw_only=True)
    head_dropout: float | None = field(default=None, kw_only=True)
    image_size: int = field(default=0, kw_only=True)
    patch_size: int = field(default=0, kw_only=True)
    num_channels: int = field(default=3, kw_only=True)
    pad_id: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch_size:
            if self.image_size < 1 or self.image_size % self.patch_size:
                raise ValueError(
                    f"image_size must be a multiple of patch_size ({self.patch_size}), got "
                    f"{self.image_size}"
                )
            object.__setattr__(self, "max_len", (self.image_size // self.patch_size) ** 2 + 1)

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {
            **super()._choices(),
            "pool": ("mean", "first"),
            "head_activation": ("none", *ACTIVATIONS),
        }


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with names such as "attention.window" for those of groups."""
    flat = dict(settings)
    for group in GROUPS:
        if isinstance(options := flat.get(group), dict):
            flat |= {f"{group}.{name}": value for name, value in options.items()}
            del flat[group]
    return flat


def check_sizes(
    settings: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], name: str
) -> None:
    """Raise a ValueError for `flat_settings` of a model that cannot have arrays of these shapes.

    The arrays are those of the file `name`. Nothing is made meanwhile: a size of 10¹² takes no
    memory.
    """
    sizes = {size for shape in shapes.values() for size in shape}
    positions = str(settings.get("positions.kind", "sinusoidal"))
    width, patch = settings.get("d_model"), settings.get("patch_size", 0)
    width = width if isinstance(width, int) and width in sizes else 0  # else it is at fault itself
    for setting, value in settings.items():
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or value <= 0
            or (setting == "max_len" and patch)
        ):
            continue
        rows = value + settings.get("positions.offset", 0) if setting == "max_len" else value
        rows = (value // patch) ** 2 + 1 if setting == "image_size" else rows
        option = setting.rpartition(".")[2]
        if setting.endswith("layers"):
            if value > (10_000 if settings.get("shared_layers") else len(shapes)):
                raise ValueError(
                    f"{setting} must be at most {len(shapes)}, the number of arrays in {name}, got "
                    f"{value!r:.30}"
                )
        elif (
            setting.endswith("vocab_size")
            or setting in _SIZES
            or _TABLES.get(setting, "-") in positions
        ):
            if rows not in sizes:
                raise ValueError(
                    f"{setting} must be a size of an array in {name}, got {value!r:.30}"
                )
        elif option.startswith(("num_", "head_")) and value > max(sizes, default=0):
            raise ValueError(
                f"{setting} must be at most the largest size of an array in {name}, got "
                f"{value!r:.30}"
            )
        elif setting == "max_len" and "sinusoidal" in positions and rows * width > 1 << 27:
            raise ValueError(
                f"{setting} must be small enough for a table of positions, got {value!r:.30}"
            )


_SIZES = ("d_model", "d_ff", "embeddings.size", "image_size", "patch_size")
_TABLES = {"max_len": "learned", "positions.relative_buckets": "relative"}
"""Settings that are a size of an array: always, and if the kind of positions has this word."""
