"""Configurations of models: frozen dataclasses with the sizes and choices of the paper.

A configuration also makes the parts in which models differ: norms, positions, and the options of
each layer. `nn.options.config` extends these classes by what came after the paper, such as rotary
positions and grouped heads; those are the classes that `nn` exports.

On a first reading: the fields of `TransformerConfig`, and `ModelConfig.layer_options`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from minigrad.arguments import check_choice, checked_count, checked_number

from .attention import check_heads
from .block import TransformerDecoderLayer, TransformerEncoderLayer
from .linear import ACTIVATIONS
from .module import Module
from .norm import LayerNorm
from .positions import LearnedPositions, SinusoidalPositions

__all__: list[str] = []

_RULE = "Parameters\n    ----------\n"
DEPTHS = ("num_layers", "num_encoder_layers", "num_decoder_layers")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of the configurations; the defaults are the paper's.

    Parameters
    ----------
    dropout : float
        Dropout of embeddings and sublayers.
    activation : str
        Activation of the feed-forward network, a key of `ACTIVATIONS`.
    norm_eps : float
        Added to the variance.
    norm_first : bool
        Normalize the input of each sublayer rather than its sum with the residual.
    bias : bool
        Biases of the linear layers.
    positions : str
        "sinusoidal": the paper's sines and cosines. "learned": a table of `max_len` rows.
        `nn.PositionConfig` describes other kinds.
    max_len : int
        Number of positions. Without a table of positions it is not a limit.
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
    """

    dropout: float = 0.1
    activation: str = "relu"
    norm_eps: float = 1e-5
    norm_first: bool = False
    bias: bool = True
    positions: Any = "sinusoidal"
    max_len: int = 512
    output_bias: bool = True
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | Sequence[int] | None = None
    dtype: str = "float32"

    # Each kind of model has these, at different positions among its arguments.
    d_model = num_heads = d_ff = property(lambda self: 0, doc="Size, a field of each subclass.")
    _scales_embeddings = True
    _described = ""

    def __init_subclass__(cls) -> None:
        """Add the parameters of the base classes to the docstring."""
        if not cls.__doc__:  # python -OO
            return
        head, _, cls._described = cls.__doc__.partition(_RULE)
        bases = [base for base in cls.__mro__ if issubclass(base, ModelConfig)]
        texts = [(vars(base).get("_described") or "").rstrip() + "\n" for base in bases]
        parameters = "".join([text for text in texts if text.strip()]).rstrip()
        cls.__doc__ = f"{head.rstrip()}\n\n    {_RULE}{parameters}\n    "

    def __post_init__(self) -> None:
        self._check_fields()
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"dtype must be a floating dtype, got {self.dtype!r}")
        ids = {"pad_id": (self.pad_id,), "bos_id": (self.bos_id,), "eos_id": self.end_ids}
        for name, values in ids.items():
            for i in values:
                if i is not None and i >= (self.vocabulary or math.inf):
                    raise ValueError(
                        f"{name} must be less than the {self.vocabulary:,} tokens, got {i}"
                    )
        self._check_heads()

    def _check_fields(self) -> None:
        """Raise an error for a field out of its range."""
        for name in ("d_model", "num_heads", "d_ff", "max_len"):
            checked_count(type(self).__name__, name, getattr(self, name))
        checked_number(type(self).__name__, "dropout", self.dropout, high=1)
        checked_number(type(self).__name__, "norm_eps", self.norm_eps, above=True)
        check_choice("", "activation", self.activation, *ACTIVATIONS)
        check_choice("", "positions", self.positions, "sinusoidal", "learned")

    def _check_heads(self) -> None:
        check_heads(self.d_model, self.num_heads, None, None)

    # -- tokens

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Return the tokens that end a sequence."""
        if self.eos_id is None:
            return ()
        return (self.eos_id,) if isinstance(self.eos_id, int) else tuple(self.eos_id)

    @cached_property
    def masked_id(self) -> int | None:
        """Return `pad_id`, or None if that token also ends sequences and must be learned."""
        return None if self.pad_id in self.end_ids else self.pad_id

    @property
    def vocabulary(self) -> int:
        """Return the number of output tokens, or 0 if it is not set yet."""
        return getattr(self, "target_vocab_size", 0) or getattr(self, "vocab_size", 0)

    # -- sizes and parts of a model; subclasses add the options of `nn.options`

    @property
    def depth(self) -> int:
        """Return the number of layers of the deepest stack."""
        return max(getattr(self, name, 0) for name in DEPTHS)

    @property
    def position_limit(self) -> int | None:
        """Return the largest number of positions, or None without a limit."""
        return self.max_len

    @property
    def embedding_size(self) -> int:
        """Return the width of the embeddings."""
        return self.d_model

    @property
    def embedding_scale(self) -> float:
        """Return the factor of the embeddings: sqrt(d_model) in section 3.4 of the paper."""
        return math.sqrt(self.d_model) if self._scales_embeddings else 1.0

    @property
    def hidden_scale(self) -> float:
        """Return the factor of the input of the output projection."""
        return 1.0

    def new_positions(self, size: int, generator: Generator | None) -> Module | None:
        """Return the module that adds positions to vectors, or None.

        Parameters
        ----------
        size : int
            Size of a vector.
        generator : numpy.random.Generator or None
            Draws the weights.
        """
        if self.positions == "learned":
            return LearnedPositions(self.max_len, size, dtype=self.dtype, generator=generator)
        return SinusoidalPositions(self.max_len, size, dtype=self.dtype)

    def new_norm(self, size: int) -> Module:
        """Return a norm of vectors.

        Parameters
        ----------
        size : int
            Size of a vector.
        """
        return LayerNorm(size, self.norm_eps, dtype=self.dtype)

    def new_embedding_norm(self) -> Module | None:
        """Return the norm of the sum of embeddings and positions, or None."""
        return None

    def new_final_norm(self) -> Module | None:
        """Return the norm after a stack of layers, or None."""
        return self.new_norm(self.d_model) if self.norm_first else None

    def new_layer(self, cross: bool, generator: Generator | None, **options: Any) -> Module:
        """Return a layer of a stack. Override it for models with layers of your own.

        Parameters
        ----------
        cross : bool
            The layer has cross-attention.
        generator : numpy.random.Generator or None
            Draws the weights.
        **options
            What `layer_options` returned for this layer.
        """
        layer = TransformerDecoderLayer if cross else TransformerEncoderLayer
        sizes = self.d_model, self.num_heads, self.d_ff
        return layer(*sizes, generator=generator, **options)

    def layer_options(
        self, count: int, *, causal: bool, cross: bool, generator: Generator | None
    ) -> list[dict[str, Any]]:
        """Return the options of each layer of a stack.

        Parameters
        ----------
        count : int
            Number of layers.
        causal : bool
            The self-attention is causal.
        cross : bool
            The layers have cross-attention.
        generator : numpy.random.Generator or None
            Draws the weights that layers share.
        """
        names = ("dropout", "activation", "norm_eps", "norm_first", "bias", "dtype")
        return [{name: getattr(self, name) for name in names} for _ in range(count)]

    def finish(self, model: Any) -> None:
        """Change a model after its weights are drawn. Here, nothing is changed.

        Parameters
        ----------
        model : Model
            A new model of this configuration.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for JSON."""
        return asdict(self)


ModelConfig._described = (ModelConfig.__doc__ or "").partition(_RULE)[2]


@dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Configuration of a `Transformer`; the sizes are those of the paper's base model.

    The paper's model also has `tie="all"`. As in PyTorch, dropout applies to the weights of
    attention and inside feed-forward networks, too.

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
        if self.tie in ("target", "all") and self.embedding_size != self.d_model:
            raise ValueError(
                f"embeddings.size must be d_model ({self.d_model}) with tie={self.tie!r}, got "
                f"{self.embedding_size}"
            )


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """Configuration of a `LanguageModel`; the sizes and norms are GPT-2's, but smaller.

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

    _scales_embeddings = False
