"""nn: layers and models on minigrad, up to the whole Transformer, and what trains and uses them.

    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    loss = nn.CrossEntropyLoss()(model(x), y)

help(nn.Linear) tells shapes and sources. Modules of their own: nn.functional (functions in
PyTorch's order of arguments), nn.init, nn.text (tokenizers, vocabularies, batches), nn.plots,
nn.utils.

Layers, losses, masks:
    ACTIVATIONS, ALiBi, Activation, AdditiveAttention, AttentionCache, BCELoss, BCEWithLogitsLoss,
    BatchNorm1d, CrossEntropyLoss, DotProductAttention, Dropout, ELU, Embedding, FeedForward,
    Flatten, GELU, HuberLoss, Identity, KLDivLoss, KeysAndValues, L1Loss, LayerNorm, LeakyReLU,
    LearnedPositions, Linear, LogSigmoid, LogSoftmax, MSELoss, Module, ModuleDict, ModuleList,
    MultiHeadAttention, MultiHeadCrossAttention, MultiHeadSelfAttention, NLLLoss, Parameter,
    RMSNorm, ReLU, RelativePositionBias, RotaryPositions, Sequential, SiLU, Sigmoid,
    SinusoidalPositions, SmoothL1Loss, Softmax, Softplus, Tanh, TransformerDecoderLayer,
    TransformerEncoderLayer, activation_named, attentions_of, causal_mask, evaluating, gate_heads,
    norm_named, padding_mask_of, prune_heads, record_attention, sinusoidal_table, valid_lens_mask,
    with_weights

Models:
    AttentionConfig, Decoder, DecodingState, EmbeddingConfig, Encoder, EncoderClassifier,
    EncoderConfig, EncoderModel, InputEmbedding, LanguageModel, LanguageModelConfig, LoRALinear,
    MaskedLanguageModel, Model, ModelConfig, PatchEmbedding, PositionConfig, SentenceEncoder,
    TokenClassifier, Transformer, TransformerConfig, attribute, differing, fit_weights, load,
    load_adapter, load_model, load_run, load_weights, lora, merge_lora, misfit, model_from_dict,
    model_to_dict, pixels, record_hidden, save, save_adapter, save_weights, sentence_encoder,
    settings_of

Training:
    ArrayBatches, Batches, FunctionLoss, Interrupts, ModelLoss, MovingAverage, Objective,
    ProgressLine, RunDirectory, Stopped, Trainer, WindowBatches, as_batches, as_objective,
    average_weights

Generation:
    Hypothesis, OWN, Rules, Translation, Translator, attention_maps, beam_search, for_inference,
    generate, generate_text, greedy_search, sample, stream, stream_text

Pictures:
    ExplorerPage, attention_page, explore
"""

import typing as _typing

import minigrad as _minigrad

if not hasattr(_minigrad, "custom_op"):  # PyPI has another project of that name
    raise ImportError(
        f"nn needs the minigrad of the distribution minigrad-nn, got another package at "
        f"{_minigrad.__file__}; run: pip uninstall minigrad, then reinstall minigrad-nn"
    )

from . import functional as functional
from . import text as text
from . import utils as utils
from .generation import *
from .inspection import *
from .inspection import plots as plots
from .layers import *
from .layers import init as init
from .models import *
from .pretrained import *
from .train import *

if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error
    _REMOVED = {"RDrop": "copy the objective from examples/rdrop.py"}  # since version 0.2

    def __getattr__(name: str) -> _typing.NoReturn:
        if name in _REMOVED:  # no AttributeError, of which `from nn import name` drops the text
            raise ImportError(f"nn.{name} was removed: {_REMOVED[name]}", name=name)
        from minigrad.advice import missing

        missing("nn", name)
