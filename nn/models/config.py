"""The settings of each kind of model, in one object that is saved with the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from minigrad.io.json import dataclass_from

from ..layers.attention import check_heads
from ..layers.block import NORMS
from ..layers.linear import ACTIVATIONS
from ..layers.rotary import RotaryPositions

__all__ = ["EncoderConfig", "LanguageModelConfig", "ModelConfig", "TransformerConfig"]

C = TypeVar("C", bound="ModelConfig")
POSITIONS = (
    "sinusoidal",
    "sinusoidal_halves",
    "sinusoidal_last",
    "learned",
    "rotary",
    "relative",
    "learned_relative",
    "alibi",
    "none",
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What the configurations of all models share; the defaults are the paper's.

    Layers: `attention_dropout` and `activation_dropout` (inside the feed-forward net) are `dropout`
    where they are None; `norm` is "layer", "rms" or "rms_zero_centred" (times 1 + weight, as
    Gemma's); `final_norm` adds a norm after each stack, None where `norm_first`. `bias` is that of
    all linear maps of a layer; `attention_bias`, where it differs, a bool or the letters of those
    of q, k, v and o that have one. `num_kv_heads`, `head_dim`, `attention_scale`, `qk_norm` and
    `window` as in `MultiHeadAttention`; the window holds for `window_layers` (None: all).

    Positions: "sinusoidal" (interleaved, as the paper), "sinusoidal_halves", "sinusoidal_last"
    (halves, with exponents up to 1), "learned", "rotary" (but in `no_rotary_layers`; see
    `RotaryPositions`), "relative" (see `RelativePositionBias`), "learned_relative" (both), "alibi"
    or "none". The first real token is at row `position_offset` of a table.

    Embeddings: `scale_embedding` multiplies them, True by the root of d_model; `embedding_norm`
    adds a norm after their sum; with an `embedding_size` they are projected to d_model.
    `output_scale` multiplies what the output projection sees. `pad_id` None: no token is padding.
    `eos_id`: an id, several, or None. `pruned_heads` lists, by the name of an attention, the heads
    that a model's `prune_heads` removed.
    """

    dropout: float = 0.1
    attention_dropout: float | None = None
    activation_dropout: float | None = None
    activation: str = "relu"
    gated: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_first: bool = False
    final_norm: bool | None = None
    bias: bool = True
    attention_bias: bool | str | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    attention_scale: float | None = None
    qk_norm: bool = False
    window: int | None = None
    window_layers: Sequence[int] | None = None
    positions: str = "sinusoidal"
    position_offset: int = 0
    max_len: int = 512
    rotary_base: float = 10000.0
    rotary_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    rotary_dim: int | None = None
    no_rotary_layers: Sequence[int] = ()
    relative_buckets: int = 32
    relative_max_distance: int = 128
    scale_embedding: bool | float = False
    embedding_norm: bool = False
    embedding_size: int | None = None
    output_bias: bool = True
    output_scale: float = 1.0
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | Sequence[int] | None = None
    dtype: str = "float32"
    pruned_heads: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    # Each kind of model has these, at places of their own among its arguments.
    d_model = num_heads = d_ff = property(lambda self: 0)

    def __post_init__(self) -> None:
        for name in ("window_layers", "no_rotary_layers", "eos_id"):  # lists, as JSON has them
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_sizes()
        self._check_choices()

    def _check_sizes(self) -> None:
        for name, low in _COUNTS.items():
            value = getattr(self, name, None)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"{name}: expected an integer, got {value!r}")
            if value is not None and value < low:
                raise ValueError(f"{name}: expected at least {low}, got {value}")
        for name, ids in (
            ("pad_id", (self.pad_id,)),
            ("bos_id", (self.bos_id,)),
            ("eos_id", self.end_ids),
        ):
            if outside := [
                i for i in ids if i is not None and not 0 <= i < (self.vocabulary or math.inf)
            ]:
                raise ValueError(
                    f"{name}: expected less than the {self.vocabulary:,} tokens, got {outside[0]}"
                )
        check_heads(self.d_model, self.num_heads, self.num_kv_heads, self.head_dim)
        for name in ("window_layers", "no_rotary_layers"):
            if not all(isinstance(i, int) for i in getattr(self, name) or ()):
                raise ValueError(
                    f"{name}: expected numbers of layers, got {getattr(self, name)!r:.60}"
                )
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name, None)
            if value is None or (name == "scale_embedding" and isinstance(value, bool)):
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not least <= value < most
            ):
                raise ValueError(f"{name}: expected {least} <= {name} < {most}, got {value!r:.30}")

    def _check_choices(self) -> None:
        for name, allowed in self._choices().items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if isinstance(self.attention_bias, str) and not set(self.attention_bias) <= set("qkvo"):
            raise ValueError(
                f"attention_bias: expected a bool or some of the letters qkvo, got "
                f"{self.attention_bias!r}"
            )
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype: expected a floating dtype, got {self.dtype!r}")
        if self.positions == "rotary" and self.size_of_head > 1 << 16:
            raise ValueError(
                f"head_dim: expected at most {1 << 16} with rotary positions, got "
                f"{self.size_of_head}"
            )
        if self.positions == "rotary":
            self.rotary()  # refuses what is wrong

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {"activation": tuple(ACTIVATIONS), "norm": NORMS, "positions": POSITIONS}

    @property
    def has_final_norm(self) -> bool:
        """Whether each stack ends in a norm."""
        return self.norm_first if self.final_norm is None else self.final_norm

    @property
    def size_of_head(self) -> int:
        """`head_dim`, or d_model / num_heads."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    def rotary(self) -> RotaryPositions:
        """What turns queries and keys, where `positions` is "rotary"."""
        scaling, part = self.rotary_scaling, self.rotary_dim
        return RotaryPositions(
            self.size_of_head, self.rotary_base, scaling=scaling, rotary_dim=part
        )

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The tokens that end a sequence."""
        return (
            ()
            if self.eos_id is None
            else (self.eos_id,)
            if isinstance(self.eos_id, int)
            else tuple(self.eos_id)
        )

    @property
    def vocabulary(self) -> int:
        """How many tokens there are to choose from; 0: not known yet."""
        return getattr(self, "target_vocab_size", 0) or getattr(self, "vocab_size", 0)

    @property
    def hidden_id(self) -> int | None:
        """The token that stands for nothing: `pad_id`, unless that ends sequences too, and so is to
        be learned.
        """
        return None if self.pad_id in self.end_ids else self.pad_id

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by."""
        scale = self.scale_embedding
        return (math.sqrt(self.d_model) if scale else 1.0) if isinstance(scale, bool) else scale

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def explicit(self) -> dict[str, Any]:
        """All settings, with what takes effect in place of each None that stands for another
        setting.

        Letters of `attention_bias` that stand for all or for none are True or False, others in the
        order qkvo.
        """
        settings, meant = asdict(self), {
            "attention_dropout": self.dropout, "activation_dropout": self.dropout, "attention_bias": self.bias,
            "num_kv_heads": self.num_heads, "head_dim": self.size_of_head, "embedding_size": self.d_model,
            "attention_scale": self.size_of_head**-0.5, "final_norm": self.has_final_norm,
            "rotary_dim": self.size_of_head, "head_dropout": self.dropout,
        }  # fmt: skip
        if isinstance(bias := self.attention_bias, str):
            letters = "".join(letter for letter in "qkvo" if letter in bias)
            settings["attention_bias"] = {"": False, "qkvo": True}.get(letters, letters)
        return settings | {
            name: value for name, value in meant.items() if settings.get(name, value) is None
        }

    @classmethod
    def from_dict(cls: type[C], data: Mapping[str, Any]) -> C:
        """The configuration that `to_dict` gave; names and types that are not its own are an error."""
        return dataclass_from(cls, data, cls.__name__)


_COUNTS = {
    **dict.fromkeys(("d_model", "num_heads", "num_kv_heads", "head_dim", "d_ff", "max_len", "embedding_size"), 1),
    **dict.fromkeys(("source_vocab_size", "target_vocab_size", "vocab_size", "num_classes", "num_types"), 0),
    **dict.fromkeys(("num_layers", "num_encoder_layers", "num_decoder_layers", "position_offset"), 0),
    **dict.fromkeys(("pad_id", "bos_id", "image_size", "patch_size"), 0),
    **dict.fromkeys(("window", "relative_buckets", "num_channels", "rotary_dim"), 1),
}  # fmt: skip
"""Settings that are integers, and the least of each."""
_RANGES: dict[str, tuple[float, float]] = {
    "norm_eps": (1e-30, 1),  # less vanishes beside 0 in float32
    **dict.fromkeys(("scale_embedding", "output_scale", "attention_scale"), (1e-30, 1e30)),
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "head_dropout"), (0, 1)),
}
"""Settings that are numbers, and where each is."""


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """The settings of a `Transformer`; the defaults are those of the paper's base model.

    `tie`: "none"; "target" shares the output projection with the target embedding; "embeddings" the
    source embedding with the target's (one vocabulary); "all" shares the three.
    """

    source_vocab_size: int = 0
    target_vocab_size: int = 0
    d_model: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_ff: int = 2048
    tie: str = field(default="none", kw_only=True)
    scale_embedding: bool | float = field(default=True, kw_only=True)  # section 3.4
    pad_id: int | None = field(default=0, kw_only=True)
    bos_id: int | None = field(default=1, kw_only=True)
    eos_id: int | Sequence[int] | None = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie in ("embeddings", "all") and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"tie={self.tie!r} needs one vocabulary, got sizes {self.source_vocab_size} and "
                f"{self.target_vocab_size}"
            )

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {**super()._choices(), "tie": ("none", "target", "embeddings", "all")}


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """The settings of a `LanguageModel`; the defaults are those of GPT-2, but smaller.

    `tie` shares the output projection with the embedding; `parallel` as in
    `TransformerEncoderLayer`.
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
    positions: str = field(default="learned", kw_only=True)
    output_bias: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """The settings of an `EncoderModel` and of its heads.

    `num_types` are the kinds of segments that an embedding tells apart, 0 for none; with
    `shared_layers` one layer serves as all. For a classifier: `num_classes`; `pool`, the "mean"
    over the real tokens or the "first" token; `head_activation`, that of a further linear map
    before the output ("none": there is no such map); `head_dropout`, what the output sees less of
    in training (None: as `dropout`). With a `patch_size` it reads images in patches of so many
    pixels a side: squares of `image_size`, in `num_channels` colours, in place of the ids of a
    vocabulary; `max_len` follows from them.
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
    scale_embedding: bool | float = field(default=True, kw_only=True)
    pad_id: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch_size:
            if self.image_size < 1 or self.image_size % self.patch_size:
                raise ValueError(
                    f"image_size: expected a multiple of {self.patch_size}, got {self.image_size}"
                )
            object.__setattr__(self, "max_len", (self.image_size // self.patch_size) ** 2 + 1)
        for name in ("window_layers", "no_rotary_layers"):
            if self.shared_layers and getattr(self, name):
                raise ValueError(
                    f"{name} must be empty with shared_layers=True, which uses one layer at every "
                    f"depth, got {getattr(self, name)!r:.60}; choose the setting for all layers"
                )

    def _choices(self) -> dict[str, tuple[str, ...]]:
        return {
            **super()._choices(),
            "pool": ("mean", "first"),
            "head_activation": ("none", *ACTIVATIONS),
        }
