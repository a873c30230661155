"""Configurations of models with all options, as models are saved.

They extend the configurations of `nn.config` by groups of options: attention, positions,
embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar, cast

from minigrad.io.json import mistyped_fields
from minigrad.io.reading import listed

from .. import config as book
from ..layers import ACTIVATIONS, Linear
from . import activations as activations  # adds names of activations
from .extended_layers import CappedLinear, check_shared_heads
from .norms import NORMS
from .parts import PARTS
from .position_bias import POSITION_BIASES
from .rotary import RotaryPositions

__all__ = [
    "AttentionConfig",
    "DecoderOnlyConfig",
    "EmbeddingConfig",
    "EncoderConfig",
    "EncoderDecoderConfig",
    "ExtendedConfig",
    "PositionConfig",
]

C = TypeVar("C", bound="ExtendedConfig")
DEPTHS = ("num_layers", "num_encoder_layers", "num_decoder_layers")
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
    "rotary_dim", "rotary_base", "rotary_window_base", "size", "relative_buckets",
    "relative_max_distance",
)  # fmt: skip
_RANGES = {
    **dict.fromkeys(_POSITIVE, (1, math.inf)),
    **dict.fromkeys(("dropout", "activation_dropout", "head_dropout"), (0, 1)),
    "norm_eps": (1e-30, 1),  # less vanishes beside 0 in float32
    **dict.fromkeys(("scale", "output_scale", "softcap", "logit_softcap"), (1e-30, 1e30)),
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

    Lists, as JSON has them, are replaced by tuples, which can be hashed. Mappings are copied.
    """
    for name, value in vars(config).items():
        if isinstance(value, (list, range, dict)):
            value = deepcopy(value) if isinstance(value, dict) else tuple(value)
            object.__setattr__(config, name, value)
    mistyped, choices = mistyped_fields(config), _CHOICES | choices
    for item in fields(config):
        name, value = item.name, getattr(config, item.name)
        low, high = _RANGES.get(name, (0, math.inf))
        expected = mistyped.get(name, "")
        if not expected and isinstance(value, str) and value not in choices.get(name, (value,)):
            expected = f"one of {', '.join(choices[name])}"
        for x in value if isinstance(value, tuple) else (value,):
            is_number = isinstance(x, (int, float)) and not isinstance(x, bool)
            if not expected and is_number and not low <= x < high:
                expected = f"at least {low:g}"
                expected += f" and less than {high:g}" if high < math.inf else ""
        if expected:
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

    Other parameters: as `ExtendedAttention`.

    Parameters
    ----------
    bias : bool or str, optional
        Biases of the projections. A string lists those that have one, of the letters q, k, v, o.
        None: `bias` of the model.
    qk_norm : bool
        Normalize queries and keys by an RMS norm over each head.
    window : int, optional
        Number of positions that causal attention sees, including the current one; that of an
        encoder sees as many in the other direction. None: all.
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
    softcap: float | None = None
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
    rotary_window_base : float, optional
        Base in the layers with `attention.window`, without scaling. None: as the other layers.
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
    rotary_window_base: float | None = None
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


@dataclass(frozen=True, kw_only=True)
class ExtendedConfig(book.ModelConfig):
    """Base of the configurations with all options; the defaults are the paper's.

    Other parameters: as `ModelConfig`.

    Parameters
    ----------
    activation_dropout : float, optional
        Dropout inside the feed-forward network. None: `dropout`.
    bias : bool
        Biases of the linear layers.
    gated : bool
        Multiply the activation by a second projection of the input.
    norm : str
        "layer", "layer_no_bias", "rms" or "rms_zero_centred", which multiplies by 1 + weight.
    norm_eps : float
        Added to the variance or mean square.
    norm_after : bool
        Normalize the output of each sublayer, too, as Gemma 2 does. Requires `norm_first`.
    first_norm : bool
        Normalize the input of the first attention. False: with `norm_first`, it is not normalized.
    final_norm : bool, optional
        Add a norm after each stack. None: `norm_first`.
    attention : AttentionConfig
        Options of the attentions.
    positions : PositionConfig or str
        Kind and options of the positions.
    embeddings : EmbeddingConfig
        Options of the token embeddings.
    output_scale : float
        Factor of the input of the output projection.
    pruned_heads : mapping
        Removed heads by the name of an attention, as `prune_heads` of a model records them.
    """

    activation_dropout: float | None = None
    bias: bool = True
    gated: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_after: bool = False
    first_norm: bool = True
    final_norm: bool | None = None
    attention: AttentionConfig = AttentionConfig()
    positions: PositionConfig | str = PositionConfig(kind="sinusoidal")
    embeddings: EmbeddingConfig = EmbeddingConfig(scale=True)
    output_scale: float = 1.0
    pruned_heads: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    parts: ClassVar[Mapping[type, type]] = PARTS

    def _check_sizes(self) -> None:
        if isinstance(self.positions, str):
            object.__setattr__(self, "positions", PositionConfig(kind=self.positions))
        _check_options(self)
        positions = self._positions
        check_shared_heads(*self._sizes, self.attention.num_kv_heads, self.attention.head_dim)
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
        if positions.rotary_window_base and not self.attention.window:
            raise ValueError(
                "positions.rotary_window_base must be None without attention.window, got "
                f"{positions.rotary_window_base}"
            )
        if not self.first_norm and (not self.norm_first or getattr(self, "shared_layers", False)):
            raise ValueError(
                "first_norm must be True, except with norm_first=True and shared_layers=False, got "
                "False"
            )
        if positions.kind == "rotary":
            if self.size_of_head > 1 << 16:
                raise ValueError(
                    f"attention.head_dim must be at most {1 << 16} with rotary positions, got "
                    f"{self.size_of_head}"
                )
            self.rotary()  # refuses what is wrong

    @property
    def _sizes(self) -> tuple[int, int]:
        """Return d_model and num_heads, fields of each kind of configuration."""
        config: Any = self
        return config.d_model, config.num_heads

    @property
    def size_of_head(self) -> int:
        """Return `attention.head_dim`, or d_model / num_heads."""
        d_model, num_heads = self._sizes
        return self.attention.head_dim or d_model // num_heads

    def rotary(self, window_base: float | None = None) -> RotaryPositions:
        """Return the rotation of queries and keys, for positions of kind "rotary".

        Parameters
        ----------
        window_base : float, optional
            Base of a layer with a window, which has no scaling.
        """
        positions = self._positions
        return RotaryPositions(
            self.size_of_head,
            base=window_base or positions.rotary_base,
            scaling=None if window_base else positions.rotary_scaling,
            rotary_dim=positions.rotary_dim,
        )

    @property
    def _positions(self) -> PositionConfig:
        return cast(PositionConfig, self.positions)

    @property
    def depth(self) -> int:
        """Return the number of layers of the deepest stack."""
        return max(getattr(self, name, 0) for name in DEPTHS)

    @property
    def position_limit(self) -> int | None:
        """Return the largest number of positions, or None without a limit."""
        has_table = self._positions.kind.startswith(("learned", "sinusoidal"))
        return self.max_len if has_table else None

    # -- values that take effect

    @cached_property
    def effective(self) -> Any:
        """Return the configuration with the value that takes effect in place of each None."""
        positions, attention = self._positions, self.attention
        d_model, num_heads = self._sizes
        scale, bias = self.embeddings.scale, _or(attention.bias, self.bias)
        if isinstance(scale, bool):
            scale = math.sqrt(d_model) if scale else 1.0
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
                num_kv_heads=attention.num_kv_heads or num_heads,
                head_dim=self.size_of_head,
                scale=attention.scale or self.size_of_head**-0.5,
                bias=bias,
                dropout=_or(attention.dropout, self.dropout),
            ),
            positions=positions,
            embeddings=replace(self.embeddings, scale=scale, size=self.embeddings.size or d_model),
        )

    # -- plain data

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[C], data: Mapping[str, Any], where: str = "") -> C:
        """Return the configuration that plain data describes.

        Parameters
        ----------
        data : mapping
            Options by name: the result of `to_dict` or `flatten`. Missing options have the
            defaults of the class.
        where : str
            Beginning of the message of each error; the name of the class by default.
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
            The result of `to_dict`.
        """
        flat: dict[str, Any] = {}
        for name, value in data.items():
            if name in GROUPS and isinstance(value, Mapping):
                flat |= {f"{name}.{option}": x for option, x in value.items()}
            else:
                flat["positions.kind" if name == "positions" else name] = value
        return flat


def _check_names(cls: Any, values: Mapping[str, Any]) -> None:
    names = {item.name for item in fields(cls)}
    if unknown := values.keys() - names:
        raise ValueError(
            f"unknown settings: {listed(unknown)}; expected some of {listed(names, 100)}"
        )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _check_tie(config: Any, tied: bool) -> None:
    if tied and (config.embeddings.size or config.d_model) != config.d_model:
        raise ValueError(
            f"embeddings.size must be d_model ({config.d_model}) with tie={config.tie!r}, got "
            f"{config.embeddings.size}"
        )


@dataclass(frozen=True)
class EncoderDecoderConfig(book.TransformerConfig, ExtendedConfig):
    """Configuration of a `Transformer` with all options; the defaults are the paper's base model.

    Parameters: as `TransformerConfig` and `ExtendedConfig`.
    """

    _: KW_ONLY
    positions: PositionConfig | str = PositionConfig(kind="sinusoidal")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tie(self, self.tie in ("target", "all"))


@dataclass(frozen=True)
class DecoderOnlyConfig(book.LanguageModelConfig, ExtendedConfig):
    """Configuration of a `LanguageModel` with all options; the defaults are GPT-2's, but smaller.

    Other parameters: as `LanguageModelConfig` and `ExtendedConfig`.

    Parameters
    ----------
    parallel : bool
        Add attention and feed-forward network of the same input, see `ExtendedEncoderLayer`.
    logit_softcap : float, optional
        Replace each logit y by logit_softcap * tanh(y / logit_softcap).
    """

    _: KW_ONLY
    parallel: bool = False
    logit_softcap: float | None = None
    activation: str = "gelu_tanh"
    positions: PositionConfig | str = PositionConfig(kind="learned")
    embeddings: EmbeddingConfig = EmbeddingConfig(scale=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tie(self, self.tie)
        if self.logit_softcap is not None:
            output = partial(CappedLinear, cap=self.logit_softcap)
            object.__setattr__(self, "parts", {**PARTS, Linear: output})


@dataclass(frozen=True)
class EncoderConfig(ExtendedConfig):
    """Configuration of an `EncoderModel` and of its heads.

    Other parameters: as `LanguageModelConfig` and `ExtendedConfig`.

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
    head_norm : bool
        Normalize the result of this layer.
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
    head_norm: bool = False
    head_dropout: float | None = None
    image_size: int = 0
    patch_size: int = 0
    num_channels: int = 3
    pad_id: int | None = 0

    @cached_property
    def effective(self) -> Any:
        """Return the configuration with the value that takes effect in place of each None."""
        return replace(super().effective, head_dropout=_or(self.head_dropout, self.dropout))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch_size:
            if self.image_size < 1 or self.image_size % self.patch_size:
                raise ValueError(
                    f"image_size must be a multiple of patch_size ({self.patch_size}), got "
                    f"{self.image_size}"
                )
            object.__setattr__(self, "max_len", (self.image_size // self.patch_size) ** 2 + 1)


def extended(config: book.ModelConfig) -> Any:
    """Return a configuration with all options that describes the same model."""
    if isinstance(config, ExtendedConfig):
        return config
    is_pair = isinstance(config, book.TransformerConfig)
    kind = EncoderDecoderConfig if is_pair else DecoderOnlyConfig
    return kind(**{item.name: getattr(config, item.name) for item in fields(config)})


def check_sizes(config: ExtendedConfig, shapes: Mapping[str, Sequence[int]], name: str) -> None:
    """Raise a ValueError for a model that needs larger arrays than a file has.

    It is called before the model takes memory: with a size of 10¹², that would be all there is.
    """
    kind, is_image = cast(PositionConfig, config.positions).kind, getattr(config, "patch_size", 0)
    largest = max((size for shape in shapes.values() for size in shape), default=0)
    largest_size = (largest, f"the largest size of an array in {name}")
    limits = dict.fromkeys(_SIZES, largest_size)
    most = 10_000 if getattr(config, "shared_layers", False) else len(shapes)
    limits |= dict.fromkeys(DEPTHS, (most, f"the number of arrays in {name}"))
    if "relative" in kind:
        limits["positions.relative_buckets"] = largest_size
    if kind.startswith("learned"):
        limits["image_size" if is_image else "max_len"] = largest_size
    if is_image:
        limits |= dict.fromkeys(("num_channels", "patch_size"), largest_size)
    if kind.startswith("sinusoidal"):
        limits["max_len"] = ((1 << 27) // config._sizes[0], "the limit of a table of positions")
    values = config.flatten(config.to_dict())
    for option, (most, reason) in limits.items():
        value = values.get(option) or 0  # other kinds of models have no such option
        if (config.max_len if option == "image_size" else value) > most:
            raise ValueError(f"{option} must be at most {most} ({reason}), got {value}")


_SIZES = (
    "vocab_size", "source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff",
    "num_types", "num_classes", "positions.offset", "embeddings.size", "attention.num_kv_heads",
    "attention.head_dim",
)  # fmt: skip
"""Options that are a size of an array, or smaller."""
