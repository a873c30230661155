"""Every setting of a Transformer, in one object that is saved with the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ..layers.linear import ACTIVATIONS
from ..text.vocabulary import BOS, EOS, PAD

__all__ = ["TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig:
    """The settings of a Transformer; the defaults are those of the paper's base model.

    `tie`: "none"; "target" shares the output projection with the target embedding; "all" shares
    both with the source embedding (one vocabulary). `final_norm` adds a norm after each stack; left
    at None it does so where `norm_first`. `positions`: "sinusoidal" (interleaved, as the paper),
    "sinusoidal_halves", "learned" or "none". `pruned_heads` lists, by the name of an attention, the
    heads that a model's `prune_heads` removed.
    """

    source_vocab_size: int = 0  # 0 where there is no encoder
    target_vocab_size: int = 0  # 0 where there is no decoder
    d_model: int = 512
    num_heads: int = 8
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float | None = None  # of attention weights; None: as dropout
    activation_dropout: float | None = None  # between the two maps of a feed-forward net; None: as dropout
    activation: str = "relu"
    gated: bool = False
    norm: str = "layer"  # or "rms"
    norm_eps: float = 1e-5
    norm_first: bool = False
    final_norm: bool | None = None
    bias: bool = True
    output_bias: bool = True
    positions: str = "sinusoidal"
    max_len: int = 512
    scale_embedding: bool = True  # by the root of d_model, as the paper's section 3.4
    tie: str = "none"
    pad_id: int = PAD
    sos_id: int = BOS
    eos_id: int = EOS
    dtype: str = "float32"
    pruned_heads: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "d_ff", "max_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be divisible by num_heads, got d_model={self.d_model} and num_heads={self.num_heads}"
            )
        choices = {
            "activation": tuple(ACTIVATIONS),
            "norm": ("layer", "rms"),
            "positions": ("sinusoidal", "sinusoidal_halves", "learned", "none"),
            "tie": ("none", "target", "all"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name}: expected 0 <= {name} < 1, got {value}")
        if self.tie == "all" and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"tie='all' needs one vocabulary, got sizes {self.source_vocab_size} and {self.target_vocab_size}"
            )
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype: expected a floating dtype, got {self.dtype!r}")

    @property
    def has_final_norm(self) -> bool:
        """Whether each stack ends in a norm."""
        return self.norm_first if self.final_norm is None else self.final_norm

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransformerConfig:
        """The configuration that `to_dict` gave; an unknown name is an error."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise ValueError(f"unknown settings: {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")
        return cls(**data)
