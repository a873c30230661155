"""Configurations of models: sizes and choices as data.

Look at `TransformerConfig`: its defaults are the paper's, except `tie`. A model reads its
configuration. What came later is in subclasses, such as `nn.EncoderDecoderConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from minigrad.arguments import check_choice, checked_count, checked_number

__all__ = ["LanguageModelConfig", "ModelConfig", "TransformerConfig"]


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise an error if heads cannot have equal sizes."""
    if num_heads < 1 or d_model % num_heads:
        raise ValueError(f"d_model must be divisible by num_heads, got {d_model=} and {num_heads=}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of the configurations; the defaults are the paper's.

    Parameters
    ----------
    dropout : float
        Dropout of embeddings, sublayers and attention weights, and inside feed-forward networks.
    activation : str
        Activation of the feed-forward network, a key of `ACTIVATIONS`.
    norm_first : bool
        Normalize the input of each sublayer rather than its sum with the residual.
    positions : str
        "sinusoidal": the paper's sines and cosines. "learned": a table of `max_len` rows.
    max_len : int
        Number of positions.
    output_bias : bool
        Bias of the output projection.
    pad_id : int, optional
        Token that is padding. None: no token is padding. A token that is also one of `eos_id` is
        text, and padding needs a mask.
    bos_id : int, optional
        Token that begins a sequence.
    eos_id : int or sequence of int, optional
        Tokens that end a sequence.
    dtype : str
        Type of the parameters.

    Attributes
    ----------
    parts : mapping of type to type
        Classes of the parts of a model, by the classes of `nn` that they replace.
    """

    dropout: float = 0.1
    activation: str = "relu"
    norm_first: bool = False
    positions: Any = "sinusoidal"
    max_len: int = 512
    output_bias: bool = True
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | Sequence[int] | None = None
    dtype: str = "float32"

    parts: ClassVar[Mapping[type, type]] = {}

    def __post_init__(self) -> None:
        self._check_sizes()
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype must be a floating dtype, got {self.dtype!r}")
        if isinstance(self.eos_id, list):
            object.__setattr__(self, "eos_id", tuple(self.eos_id))
        ids = {"pad_id": (self.pad_id,), "bos_id": (self.bos_id,), "eos_id": self.end_ids}
        for name, values in ids.items():
            for i in values:
                if i is not None and not 0 <= i < (self.vocabulary or math.inf):
                    tokens = f" and less than the {self.vocabulary:,} tokens" * bool(
                        self.vocabulary
                    )
                    raise ValueError(f"{name} must be at least 0{tokens}, got {i}")

    def _check_sizes(self) -> None:
        """Raise an error for a field out of its range."""
        config: Any = self
        for name in ("d_model", "num_heads", "d_ff", "max_len"):
            checked_count(type(self).__name__, name, getattr(self, name))
        for name in ("num_layers", "num_encoder_layers", "num_decoder_layers"):
            checked_count(type(self).__name__, name, getattr(self, name, 0), 0)
        check_heads(config.d_model, config.num_heads)
        checked_number(type(self).__name__, "dropout", self.dropout, high=1)
        check_choice("", "positions", self.positions, "sinusoidal", "learned")

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Return the tokens that end a sequence."""
        if self.eos_id is None:
            return ()
        if isinstance(self.eos_id, (int, np.integer)):
            return (self.eos_id,)
        return tuple(self.eos_id)

    @property
    def masked_id(self) -> int | None:
        """Return `pad_id`, or None if that token also ends sequences and must be learned."""
        return None if self.pad_id in self.end_ids else self.pad_id

    @property
    def vocabulary(self) -> int:
        """Return the number of output tokens, or 0 if it is not set yet."""
        return getattr(self, "target_vocab_size", 0) or getattr(self, "vocab_size", 0)


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Configuration of a `Transformer`; the sizes are those of the paper's base model.

    The paper's model also has `tie="all"`. As in PyTorch, dropout applies to the weights of
    attention and inside feed-forward networks, too.

    Other parameters: as `ModelConfig`.

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
        check_choice("", "tie", self.tie, "none", "target", "embeddings", "all")
        if self.tie in ("embeddings", "all") and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                f"target_vocab_size must be equal to source_vocab_size with tie={self.tie!r}, got "
                f"{self.target_vocab_size} and {self.source_vocab_size}"
            )


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """Configuration of a `LanguageModel`; the sizes and norms are GPT-2's, but smaller.

    Other parameters: as `ModelConfig`.

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
    """

    vocab_size: int = 0
    d_model: int = 256
    num_heads: int = 4
    num_layers: int = 4
    d_ff: int = 1024
    _: KW_ONLY
    tie: bool = True
    norm_first: bool = True
    positions: Any = "learned"
    output_bias: bool = False
