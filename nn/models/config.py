"""Configurations of models: frozen dataclasses, which are saved with the weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from minigrad.io.json import mistyped_fields
from minigrad.io.reading import listed

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


_POSITIVE = (
    "d_model", "num_heads", "d_ff", "max_len", "num_channels", "num_kv_heads", "head_dim", "window",
    "rotary_dim", "rotary_base", "size", "relative_buckets", "relative_max_distance",
)  # fmt: skip
_RANGES = {
    **dict.fromkeys(_POSITIVE, (1, math.inf)),
    **dict.fromkeys(("dropout", "activation_dropout", "head_dropout"), (0, 1)),
    "norm_eps": (1e-30, 1),  # less vanishes beside 0 in float32
    **dict.fromkeys(("scale", "output_scale"), (1e-30, 1e30)),
}
"""Least value, and the first that is too large, of the numbers that may not be any from 0."""

_CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "tie": ("none", "target", "embeddings", "all"),
    "pool": ("mean", "first"),
    "head_activation": ("none", *ACTIVATIONS),
}
"""Allowed strings of options."""


def _check_options(config: Any, prefix: str = "", **choices: Collection[str]) -> None:
    """Raise a ValueError unless all fields have their annotated types, ranges and choices.

    Lists, as JSON has them, are replaced by tuples, which can be hashed.
    """
    mistyped, choices = mistyped_fields(config), _CHOICES | choices
    for item in fields(config):
        name, value = item.name, getattr(config, item.name)
        if isinstance(value, (list, range)):
            value = tuple(value)
            object.__setattr__(config, name, value)
        low, high = _RANGES.get(name, (0, math.inf))
        values = value if isinstance(value, tuple) else (value,)
        numbers = [x for x in values if isinstance(x, (int, float)) and not isinstance(x, bool)]
        if name in mistyped:
            expected = mistyped[name]
        elif isinstance(value, str) and value not in choices.get(name, (value,)):
            expected = f"one of {', '.join(choices[name])}"
        elif not all(low <= number < high for number in numbers):
            expected = f"at least {low:g}" + (f" and less than {high:g}" if high < math.inf else "")
        else:
            continue
        raise ValueError(f"{prefix}{name} must be {expected}, got {value!r:.60}")


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
        _check_options(self, "attention.")
        if isinstance(self.bias, str) and not set(self.bias) <= set("qkvo"):
            raise ValueError(
                f"attention.bias must be a bool or some of the letters qkvo, got {self.bias!r:.60}"
            )
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
        _check_options(self, "positions.", kind=(*POSITIONS, *POSITION_BIASES))
        for item in fields(self):
            value = getattr(self, item.name)
            if not _has_option(self.kind, item.name) and value != item.default:
                raise ValueError(
                    f"positions.{item.name} must be {item.default!r} for positions of kind "
                    f"{self.kind!r}, got {value!r:.60}"
                )

    @property
    def is_unlimited(self) -> bool:
        """True if `max_len` does not limit the context: no positions, or only a bias."""
        has_table = self.kind == "learned_relative"
        return self.kind == "none" or (self.kind in POSITION_BIASES and not has_table)


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
        _check_options(self, "embeddings.")


GROUPS: dict[str, Any] = {
    "attention": AttentionConfig,
    "positions": PositionConfig,
    "embeddings": EmbeddingConfig,
}
FLAT_NAMES = {
    "num_kv_heads": "attention.num_kv_heads",
    "head_dim": "attention.head_dim",
    "attention_scale": "attention.scale",
    "attention_bias": "attention.bias",
    "qk_norm": "attention.qk_norm",
    "window": "attention.window",
    "window_layers": "attention.window_layers",
    "attention_dropout": "attention.dropout",
    "position_offset": "positions.offset",
    "rotary_base": "positions.rotary_base",
    "rotary_scaling": "positions.rotary_scaling",
    "rotary_dim": "positions.rotary_dim",
    "no_rotary_layers": "positions.no_rotary_layers",
    "relative_buckets": "positions.relative_buckets",
    "relative_max_distance": "positions.relative_max_distance",
    "scale_embedding": "embeddings.scale",
    "embedding_norm": "embeddings.norm",
    "embedding_size": "embeddings.size",
}
"""Names of options by those of version 0.2, which had no groups."""


_REMOVED = {"has_final_norm": "final_norm", "embedding_factor": "embeddings.scale"}
"""Options of `effective()` by the names of removed properties."""


class _OlderNames:
    """Errors that name the replacements of options of version 0.2."""

    if not TYPE_CHECKING:  # type checkers see the fields only

        def __new__(cls, *args: Any, **settings: Any) -> Any:
            for name in settings:
                if name in FLAT_NAMES:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; {_advice(name)}")
            return super().__new__(cls)

        def __getattr__(self, name: str) -> Any:
            advice = f"; {_advice(name)}" if name in FLAT_NAMES else ""
            if name in _REMOVED:
                advice = f"; use config.effective().{_REMOVED[name]}"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{advice}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(_OlderNames):
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

    # Each kind of model has these, at different positions among its arguments.
    d_model = num_heads = d_ff = property(lambda self: 0, doc="Size, a field of each subclass.")

    def __init_subclass__(cls) -> None:
        if cls.__doc__ and ModelConfig.__doc__:  # not with python -OO
            shared = ModelConfig.__doc__.partition("----------\n")[2]
            cls.__doc__ = cls.__doc__.rstrip() + "\n" + shared

    def __post_init__(self) -> None:
        if isinstance(self.positions, str):
            object.__setattr__(self, "positions", PositionConfig(kind=self.positions))
        _check_options(self)
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype must be a floating dtype, got {self.dtype!r}")
        ids = {"pad_id": (self.pad_id,), "bos_id": (self.bos_id,), "eos_id": self.end_ids}
        for name, values in ids.items():
            for i in values:
                if i is not None and i >= (self.vocabulary or math.inf):
                    raise ValueError(
                        f"{name} must be less than the {self.vocabulary:,} tokens, got {i}"
                    )
        self._check_groups()

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
        return max(getattr(self, name, 0) for name in _DEPTHS)

    @property
    def size_of_head(self) -> int:
        """Return `attention.head_dim`, or d_model / num_heads."""
        return self.attention.head_dim or cast(int, self.d_model) // self.num_heads

    def rotary(self) -> RotaryPositions:
        """Return the rotation of queries and keys, for positions of kind "rotary".

        Returns
        -------
        RotaryPositions
            A new object, without tables yet.
        """
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

    def effective(self: C) -> C:
        """Return the configuration with the value that takes effect in place of each None.

        Returns
        -------
        ModelConfig
            Of the same class.
        """
        positions, attention = cast(PositionConfig, self.positions), self.attention
        scale, bias = self.embeddings.scale, _or(attention.bias, self.bias)
        if isinstance(scale, bool):
            scale = math.sqrt(self.d_model) if scale else 1.0
        if isinstance(bias, str):
            letters = "".join(letter for letter in "qkvo" if letter in bias)
            bias = {"": False, "qkvo": True}.get(letters, letters)
        if positions.kind == "rotary":
            rotary_dim = positions.rotary_dim or self.size_of_head
            positions = replace(positions, rotary_dim=rotary_dim)
        return replace(
            self,
            activation_dropout=_or(self.activation_dropout, self.dropout),
            final_norm=_or(self.final_norm, self.norm_first),
            attention=replace(
                attention,
                num_kv_heads=attention.num_kv_heads or self.num_heads,
                head_dim=self.size_of_head,
                scale=attention.scale or self.size_of_head**-0.5,
                bias=bias,
                dropout=_or(attention.dropout, self.dropout),
            ),
            positions=positions,
            embeddings=replace(
                self.embeddings, scale=scale, size=self.embeddings.size or self.d_model
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for JSON.

        Returns
        -------
        dict
            The groups are dicts, too.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], data: Mapping[str, Any], where: str = "") -> C:
        """Return the configuration that plain data describes.

        Parameters
        ----------
        data : mapping
            Options by name: the result of `to_dict` of this version or of version 0.2, or that of
            `flatten`. Missing options have the defaults of the class.
        where : str
            Beginning of the message of each error; the name of the class by default.

        Returns
        -------
        ModelConfig
            Of this class.

        Raises
        ------
        ValueError
            A name is unknown, or an option has a wrong type or value.
        """
        where, values, groups = where or cls.__name__, {}, dict[str, dict[str, Any]]()
        for name, value in cls.flatten(data).items():
            group, _, option = name.rpartition(".")
            if group in GROUPS:
                groups.setdefault(group, {})[option] = value
            else:
                values[name] = value
        try:
            for group, options in groups.items():
                default: Any = cls.__dataclass_fields__[group].default
                _check_names(GROUPS[group], options)
                values[group] = replace(default, **options)
            _check_names(cls, values)
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    @classmethod
    def flatten(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain data with names such as "attention.window" for the options of groups.

        Parameters
        ----------
        data : mapping
            The result of `to_dict` of this version or of version 0.2. Version 0.2 ignored options
            of another kind of positions, and `window_layers` without a window. They are left out.

        Returns
        -------
        dict
            Options by name, without nested dicts.
        """
        is_older = FLAT_NAMES.keys() & data.keys() and not any(
            isinstance(data.get(group), Mapping) for group in GROUPS
        )
        names = {"positions": "positions.kind"} | (FLAT_NAMES if is_older else {})
        flat: dict[str, Any] = {}
        for name, value in data.items():
            if name in GROUPS and isinstance(value, Mapping):
                flat |= {f"{name}.{option}": x for option, x in value.items()}
            else:
                flat[names.get(name, name)] = value
        if is_older:
            default: Any = cls.__dataclass_fields__["positions"].default
            kind = str(flat.get("positions.kind", default.kind))
            for name in list(flat):
                group, _, option = name.rpartition(".")
                if group == "positions" and not _has_option(kind, option):
                    del flat[name]
            if flat.get("attention.window") is None:
                flat.pop("attention.window_layers", None)
        return flat


def _check_names(cls: Any, values: Mapping[str, Any]) -> None:
    names = {item.name for item in fields(cls)}
    if unknown := values.keys() - names:
        raise ValueError(
            f"unknown settings: {listed(unknown)}; expected some of {listed(names, 100)}"
        )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _advice(name: str) -> str:
    """Return how the option that version 0.2 called `name` is written now."""
    group, _, option = FLAT_NAMES[name].partition(".")
    return f"use {group}=nn.{GROUPS[group].__name__}({option}=...), config.{group}.{option}"


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Configuration of a `Transformer`; the defaults are the paper's base model.

    Parameters
    ----------
    source_vocab_size : int
        Number of source tokens.
    target_vocab_size : int
        Number of target tokens.
    d_model : int
        Width of the model.
    num_heads : int
        Number of heads of queries.
    num_encoder_layers : int
        Number of layers of the encoder.
    num_decoder_layers : int
        Number of layers of the decoder.
    d_ff : int
        Width of the feed-forward networks.
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
    _: KW_ONLY
    tie: str = "none"
    pad_id: int | None = 0
    bos_id: int | None = 1
    eos_id: int | Sequence[int] | None = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie in ("embeddings", "all") and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"target_vocab_size must be equal to source_vocab_size with tie={self.tie!r}, got "
                f"{self.target_vocab_size} and {self.source_vocab_size}"
            )


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """Configuration of a `LanguageModel`; the defaults are GPT-2's, but smaller.

    Parameters
    ----------
    vocab_size : int
        Number of tokens.
    d_model : int
        Width of the model.
    num_heads : int
        Number of heads of queries.
    num_layers : int
        Number of layers.
    d_ff : int
        Width of the feed-forward networks.
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
    _: KW_ONLY
    tie: bool = True
    parallel: bool = False
    activation: str = "gelu_tanh"
    norm_first: bool = True
    positions: PositionConfig | str = PositionConfig(kind="learned")
    embeddings: EmbeddingConfig = EmbeddingConfig(scale=False)
    output_bias: bool = False


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """Configuration of an `EncoderModel` and of its heads.

    Parameters
    ----------
    vocab_size : int
        Number of tokens.
    d_model : int
        Width of the model.
    num_heads : int
        Number of heads of queries.
    num_layers : int
        Number of layers.
    d_ff : int
        Width of the feed-forward networks.
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
    _: KW_ONLY
    num_types: int = 0
    shared_layers: bool = False
    num_classes: int = 0
    pool: str = "mean"
    head_activation: str = "none"
    head_dropout: float | None = None
    image_size: int = 0
    patch_size: int = 0
    num_channels: int = 3
    pad_id: int | None = 0

    def effective(self) -> EncoderConfig:
        """Return the configuration with the value that takes effect in place of each None.

        Returns
        -------
        EncoderConfig
            Of the same class.
        """
        return replace(super().effective(), head_dropout=_or(self.head_dropout, self.dropout))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch_size:
            if self.image_size < 1 or self.image_size % self.patch_size:
                raise ValueError(
                    f"image_size must be a multiple of patch_size ({self.patch_size}), got "
                    f"{self.image_size}"
                )
            object.__setattr__(self, "max_len", (self.image_size // self.patch_size) ** 2 + 1)


def check_sizes(config: ModelConfig, shapes: Mapping[str, Sequence[int]], name: str) -> None:
    """Raise a ValueError for a model that needs larger arrays than a file has.

    It is called before the model takes memory: with a size of 10¹², that would be all there is.

    Parameters
    ----------
    config : ModelConfig
        Configuration of the model.
    shapes : mapping of tuple
        Shapes of the arrays by name.
    name : str
        Name of the file.
    """
    kind, is_image = cast(PositionConfig, config.positions).kind, getattr(config, "patch_size", 0)
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    largest_size = (largest, f"the largest size of an array in {name}")
    limits = dict.fromkeys(_SIZES, largest_size)
    most = 10_000 if getattr(config, "shared_layers", False) else len(shapes)
    limits |= dict.fromkeys(_DEPTHS, (most, f"the number of arrays in {name}"))
    if "relative" in kind:
        limits["positions.relative_buckets"] = largest_size
    if kind.startswith("learned"):
        limits["image_size" if is_image else "max_len"] = largest_size
    if is_image:
        limits |= dict.fromkeys(("num_channels", "patch_size"), largest_size)
    if kind.startswith("sinusoidal"):
        limits["max_len"] = ((1 << 27) // config.d_model, "the limit of a table of positions")
    values = config.flatten(config.to_dict())
    for option, (most, reason) in limits.items():
        value = values.get(option) or 0  # other kinds of models have no such option
        if (config.max_len if option == "image_size" else value) > most:
            raise ValueError(f"{option} must be at most {most} ({reason}), got {value}")


_DEPTHS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
_SIZES = (
    "vocab_size", "source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff",
    "num_types", "num_classes", "positions.offset", "embeddings.size", "attention.num_kv_heads",
    "attention.head_dim",
)  # fmt: skip
"""Options that are a size of an array, or smaller."""
