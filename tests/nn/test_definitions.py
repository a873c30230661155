"""Whole models with drawn options: their definition, gradients, padding and decoding."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.edges import overwrite
from support.environment import max_examples
from support.properties import assert_gradients, perturb, seeds
from support.thresholds import lowered, product_limits, replaced, replaced_products

import minigrad as mg
import nn
from nn.options.activations import Identity
from nn.options.config import POSITIONS
from nn.options.norms import NORMS
from nn.options.position_bias import POSITION_BIASES

# -- models --------------------------------------------------------------------------------------------

attentions = st.builds(
    nn.AttentionConfig,
    num_kv_heads=st.sampled_from((None, 1)),
    head_dim=st.sampled_from((None, 4, 6)),
    scale=st.sampled_from((None, 0.3)),
    bias=st.sampled_from((None, True, False, "qv", "ko", "qkvo")),
    qk_norm=st.booleans(),
    softcap=st.sampled_from((None, None, 0.8)),
)
windowed = st.builds(
    lambda attention, window, layers: dataclasses.replace(
        attention, window=window, window_layers=layers
    ),
    attentions,
    st.integers(1, 4),
    st.sampled_from((None, (), (0,))),
)
embeddings = st.builds(
    nn.EmbeddingConfig, scale=st.sampled_from((True, False, 0.5)), norm=st.booleans()
)
depths = st.integers(1, 2)
OPTIONS: dict[str, Any] = {
    "num_heads": st.sampled_from((1, 2, 4)),
    "activation": st.sampled_from(list(nn.ACTIVATIONS)),
    "gated": st.booleans(),
    "norm": st.sampled_from(NORMS),
    "norm_first": st.booleans(),
    "final_norm": st.sampled_from((None, True, False)),
    "bias": st.booleans(),
    "positions": st.sampled_from((*POSITIONS, *POSITION_BIASES)),
    "attention": attentions | windowed,
    "embeddings": embeddings,
    "output_bias": st.booleans(),
    "output_scale": st.sampled_from((1.0, 0.5)),
}
ENCODER: dict[str, Any] = {
    "num_layers": depths,
    "num_types": st.sampled_from((0, 2)),
    "num_classes": st.just(3),
    "pool": st.sampled_from(("mean", "first")),
    "head_activation": st.sampled_from(("none", "tanh")),
    "head_norm": st.booleans(),
    "pad_id": st.sampled_from((None, 0)),
}
OF_KIND: dict[Any, tuple[Any, dict[str, Any]]] = {
    nn.Transformer: (
        nn.EncoderDecoderConfig,
        {
            "num_encoder_layers": depths,
            "num_decoder_layers": depths,
            "tie": st.sampled_from(("none", "target", "embeddings", "all")),
        },
    ),
    nn.LanguageModel: (
        nn.DecoderOnlyConfig,
        {
            "num_layers": depths,
            "tie": st.booleans(),
            "pad_id": st.sampled_from((None, 0)),
            "logit_softcap": st.sampled_from((None, 1.5)),
        },
    ),
    nn.EncoderModel: (nn.EncoderConfig, ENCODER),
    nn.EncoderClassifier: (nn.EncoderConfig, ENCODER),
    nn.TokenClassifier: (nn.EncoderConfig, ENCODER),
    nn.MaskedLanguageModel: (nn.EncoderConfig, ENCODER),
}
KINDS = list(OF_KIND)
WITH_LOSS = [kind for kind in KINDS if kind is not nn.EncoderModel]
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def options_of(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(OPTIONS | OF_KIND[kind][1])


@cache
@st.composite
def configs(draw: Any, kind: Any) -> Any:
    """Draw the configuration of a tiny model in float64, with 7 tokens."""
    config = OF_KIND[kind][0]
    fixed: dict[str, Any] = {"d_model": 8, "d_ff": 6, "max_len": 12, "dtype": "float64"}
    vocabularies = ("source_vocab_size", "target_vocab_size")
    fixed |= dict.fromkeys(vocabularies if kind is nn.Transformer else ("vocab_size",), 7)
    drawn = draw(options_of(kind))
    if kind is nn.LanguageModel:
        drawn["parallel"] = drawn["norm_first"] and draw(st.booleans())
    is_free = not draw(st.booleans()) or drawn.get("tie") in (True, "target", "all")
    if not is_free:
        drawn["embeddings"] = dataclasses.replace(drawn["embeddings"], size=4)
    if drawn["positions"] == "rotary":
        layers = draw(st.sampled_from(((), (0,))))
        dim = draw(st.sampled_from((None, 2)))
        base = draw(st.sampled_from((None, 50.0))) if drawn["attention"].window else None
        drawn["positions"] = nn.PositionConfig(
            kind="rotary", no_rotary_layers=layers, rotary_dim=dim, rotary_window_base=base
        )
    if config is nn.EncoderConfig and drawn["attention"].window_layers is None:
        layers = getattr(drawn["positions"], "no_rotary_layers", ())
        drawn["shared_layers"] = not layers and draw(st.booleans())
    if drawn["norm_first"]:
        drawn["norm_after"] = not drawn.get("parallel") and draw(st.booleans())
        drawn["first_norm"] = drawn.get("shared_layers", False) or draw(st.booleans())
    return config(**fixed, **drawn, dropout=0.0)


def made(kind: Any, config: Any, seed: int) -> Any:
    """Return a model whose parameters are all random, in evaluation mode."""
    return perturb(kind(config, np.random.default_rng(seed)), seed).eval()


# -- batches -------------------------------------------------------------------------------------------


@dataclass
class Batch:
    """Padded sequences, with what the model reads or predicts beside them.

    `labels` are classes of sequences or tokens, or the target sequences of a Transformer.
    """

    ids: np.ndarray
    real: np.ndarray
    padding_mask: np.ndarray | None
    types: np.ndarray | None = None
    labels: Any = None
    real_labels: Any = None
    target_mask: Any = None

    def __getitem__(self, rows: Any) -> Batch:
        """Return some rows of the batch."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Batch(**{name: None if x is None else x[rows] for name, x in values.items()})

    def alone(self, row: int) -> Batch:
        """Return one row without padding."""
        real, types, labels = self.real[row], self.types, self.labels
        length = int(real.sum())
        if labels is not None:
            target = self.real_labels
            labels = labels[row : row + 1]
            if labels.ndim == 2:
                labels = labels[:, real if target is None else target[row]]
        return Batch(
            self.ids[row : row + 1, real],
            np.ones((1, length), bool),
            None,
            None if types is None else types[row : row + 1, real],
            labels,
            None if self.real_labels is None else np.ones_like(labels, bool),
        )

    def logits(self, model: Any) -> Any:
        if isinstance(model, nn.Transformer):
            return model(self.ids, self.labels, self.padding_mask)
        if isinstance(model, nn.LanguageModel):
            return model(self.ids, self.padding_mask)
        return model(self.ids, self.padding_mask, self.types)

    def loss(self, model: Any, **options: Any) -> Any:
        if isinstance(model, nn.Transformer):
            masks = {"padding_mask": self.padding_mask, "target_mask": self.target_mask}
            return model.loss(self.ids, self.labels, **masks, **options)
        if isinstance(model, nn.LanguageModel):
            return model.loss(self.ids, self.padding_mask, self.target_mask, **options)
        return model.loss(self.ids, self.labels, self.padding_mask, self.types, **options)

    def num_targets(self, model: Any) -> int:
        if isinstance(model, nn.Transformer):
            return model.num_targets(self.ids, self.labels, target_mask=self.target_mask)
        if isinstance(model, nn.LanguageModel):
            return model.num_targets(self.ids, self.padding_mask, target_mask=self.target_mask)
        return model.num_targets(self.ids, self.labels, self.padding_mask)


@cache
def integers(shape: tuple[int, ...], low: int, high: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(int, shape, elements=st.integers(low, high))


@cache
@st.composite
def padded(draw: Any, n: int, sides: Any, longest: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Draw n sequences of tokens from 1 to 6, padded with 0; and which tokens are real."""
    lengths = np.array(draw(st.lists(st.integers(1, longest), min_size=n, max_size=n)))[:, None]
    width = int(lengths.max())
    ids = draw(integers((n, width), 1, 6))
    positions = np.arange(width)
    is_left = draw(st.sampled_from(sides)) == "left"
    real = positions >= width - lengths if is_left else positions < lengths
    return np.where(real, ids, 0), real


@st.composite
def batches(
    draw: Any, kind: Any, config: Any, sides: Any = ("left", "right"), longest: int = 5
) -> Batch:
    n = draw(st.integers(1, 3))
    if getattr(config, "pool", "mean") == "first" and kind is nn.EncoderClassifier:
        sides = ("right",)
    ids, real = draw(padded(n, sides, longest))
    explicit = config.pad_id is None or draw(st.booleans(), label="explicit mask")
    if explicit:  # what is hidden is then any token
        ids = np.where(real, ids, draw(st.integers(1, 6)))
    batch = Batch(ids, real, real if explicit else None)
    if kind is nn.Transformer:
        batch.labels, batch.real_labels = draw(padded(n, ("right",)))
        if draw(st.booleans(), label="explicit target mask"):
            batch.target_mask = batch.real_labels
            batch.labels = np.where(batch.real_labels, batch.labels, draw(st.integers(1, 6)))
    elif isinstance(config, nn.EncoderConfig):
        if config.num_types:
            batch.types = draw(integers(ids.shape, 0, 1))
        shape = (n,) if kind is nn.EncoderClassifier else ids.shape
        batch.labels = draw(integers(shape, 0, 2))
    return batch


# -- definitions ---------------------------------------------------------------------------------------


def embedded(part: Any, config: Any, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """Return the vectors of tokens: their rows, scaled, plus types and positions."""
    scale = config.embeddings.scale
    x = part.tokens.weight.data[ids] * (math.sqrt(8) if scale is True else scale or 1)
    if getattr(config, "num_types", 0):
        x = x + part.types.weight.data[np.zeros_like(ids) if types is None else types]
    if config.positions.kind.startswith(("learned", "sinusoidal")):
        x = part.positions(x).data
    if config.embeddings.norm:
        x = part.norm(x).data
    return x if config.embeddings.size is None else part.projection(x).data


def stacked(stack: Any, config: Any, x: np.ndarray, causal: bool, memory: Any = None) -> np.ndarray:
    """Apply the layers of a stack as the paper's figure 1 does, or with the norms first."""
    layers, attention = [*stack.layers], config.attention
    depth = config.num_layers if getattr(config, "shared_layers", False) else len(layers)
    for i in range(depth):
        layer: Any = layers[i % len(layers)]
        limited = attention.window_layers is None or i in attention.window_layers
        assert layer.self_attention.window == (attention.window if limited else None)
        if config.positions.kind == "rotary":
            rotary, base = layer.self_attention.rotary, config.positions.rotary_window_base
            assert (rotary is None) == (i in config.positions.no_rotary_layers)
            assert rotary is None or rotary.base == (
                (limited and base) or config.positions.rotary_base
            )
        mask = nn.causal_mask(x.shape[1]) if causal else None
        attend = lambda h: layer.self_attention(h, mask=mask)  # noqa: B023
        if getattr(config, "parallel", False):
            of_attention = layer.norm1(x).data if i or config.first_norm else x
            of_network = layer.norm2(x).data
            x = x + attend(of_attention).data + layer.feed_forward(of_network).data
            continue
        sublayers = [(attend, layer.norm1)]
        if memory is not None:
            sublayers.append((lambda h: layer.cross_attention(h, memory), layer.norm2))  # noqa: B023
        sublayers.append((layer.feed_forward, layer.norm2 if memory is None else layer.norm3))
        for sublayer, norm in sublayers:
            if config.norm_first:
                before, after = (
                    (norm.before, norm.after) if config.norm_after else (norm, Identity())
                )
                is_first = i == 0 and norm is layer.norm1 and not config.first_norm
                h = sublayer(x if is_first else before(x).data)
                x = x + after(h).data
            else:
                x = norm(x + sublayer(x).data).data
    ends = config.norm_first if config.final_norm is None else config.final_norm
    return stack.norm(x).data if ends else x


def defined(model: Any, batch: Batch) -> np.ndarray:
    """Return the logits of one sequence without padding, layer by layer."""
    config = model.config
    if isinstance(model, nn.Transformer):
        memory = embedded(model.source_embedding, config, batch.ids, None)
        memory = stacked(model.encoder, config, memory, False)
        x = embedded(model.target_embedding, config, batch.labels, None)
        x = stacked(model.decoder, config, x, True, memory)
    elif isinstance(model, nn.LanguageModel):
        x = stacked(model.layers, config, embedded(model.embedding, config, batch.ids, None), True)
    else:
        x = embedded(model.embedding, config, batch.ids, batch.types)
        x = stacked(model.encoder, config, x, False)
        if isinstance(model, nn.EncoderClassifier):
            x = x[:, 0] if config.pool == "first" else x.mean(1)
        if isinstance(model, nn.MaskedLanguageModel):
            x = model.norm(nn.ACTIVATIONS[config.activation](model.dense(x))).data
        elif hasattr(model, "output"):
            x = np.tanh(model.dense(x).data) if config.head_activation == "tanh" else x
            x = model.norm(x).data if config.head_norm else x
        elif not hasattr(model, "output"):
            return x
    bias = 0 if model.output.bias is None else model.output.bias.data
    logits = (config.output_scale * x) @ model.output.weight.data.T + bias
    cap = getattr(config, "logit_softcap", None)
    return logits if cap is None else cap * np.tanh(logits / cap)


@every_kind
@max_examples(15)
@given(data=st.data(), seed=seeds)
def test_model_of_a_padded_batch_equals_the_definition_of_each_sequence(
    kind: Any, data: Any, seed: int
) -> None:
    """Padding changes nothing, on either side, and neither does the order of the batch."""
    config = data.draw(configs(kind), label="config")
    model, batch = made(kind, config, seed), data.draw(batches(kind, config), label="batch")
    logits = batch.logits(model).data
    for row in range(len(logits)):
        real = batch.real[row] if batch.real_labels is None else batch.real_labels[row]
        values = logits[row] if kind is nn.EncoderClassifier else logits[row, real]
        expected = defined(model, batch.alone(row))[0]
        np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-10)
    order = data.draw(st.permutations(range(len(logits))), label="order")
    again = batch[np.array(order)].logits(model).data
    np.testing.assert_allclose(again, logits[order], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", WITH_LOSS)
@max_examples(15)
@given(data=st.data(), smoothing=st.sampled_from((0.0, 0.1)), seed=seeds)
def test_loss_of_a_padded_batch_equals_the_definition_of_each_sequence(
    kind: Any, data: Any, smoothing: float, seed: int
) -> None:
    config = data.draw(configs(kind), label="config")
    model, batch = made(kind, config, seed), data.draw(batches(kind, config), label="batch")
    total, count = 0.0, 0
    for row in range(len(batch.ids)):
        alone = batch.alone(row)
        rows = alone.logits(model).data.reshape(-1, model.output.out_features)
        targets = (alone.ids if kind is nn.LanguageModel else alone.labels).ravel()
        if kind in (nn.Transformer, nn.LanguageModel):
            rows, targets = rows[:-1], targets[1:]
        for x, target in zip(rows, targets):
            log_p = x - math.log(np.exp(x).sum())
            total -= (1 - smoothing) * log_p[target] + smoothing * log_p.mean()
            count += 1
    close = lambda value: pytest.approx(value, rel=1e-8, abs=1e-10)
    losses = {
        reduction: batch.loss(model, label_smoothing=smoothing, reduction=reduction).data
        for reduction in ("mean", "sum", "none")
    }
    assert batch.num_targets(model) == count
    assert smoothing or batch.loss(model).data == losses["mean"]
    assert losses["sum"] == close(total) and losses["mean"] == close(total / max(count, 1))
    assert losses["none"].sum() == close(total) and np.count_nonzero(losses["none"]) <= count


@given(data=st.data(), seed=seeds)
def test_loss_with_a_target_mask_has_no_part_of_other_tokens(data: Any, seed: int) -> None:
    """Neither in its value nor in a gradient; and tokens after the last target do not matter."""
    config = data.draw(configs(nn.LanguageModel), label="config")
    model, batch = (
        made(nn.LanguageModel, config, seed),
        data.draw(batches(nn.LanguageModel, config)),
    )
    batch.target_mask = data.draw(arrays(bool, batch.ids.shape), label="target mask")

    def result(loss: Any) -> tuple[float, list[np.ndarray]]:
        model.zero_grad()
        loss.backward()
        return loss.item(), [p.grad for p in model.parameters()]

    ids, counted = batch.ids, batch.target_mask[:, 1:] & batch.real[:, 1:] & batch.real[:, :-1]
    log_p = mg.log_softmax(batch.logits(model)[:, :-1])
    rows, columns = np.indices(ids[:, 1:].shape)
    value, gradients = result(batch.loss(model, reduction="sum"))
    expected, expected_gradients = result(-(log_p[rows, columns, ids[:, 1:]] * counted).sum())
    assert batch.num_targets(model) == counted.sum()
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-10)
    for found, gradient in zip(gradients, expected_gradients):
        np.testing.assert_allclose(found, gradient, rtol=1e-7, atol=1e-9)
    later = np.cumsum(batch.target_mask[:, ::-1], 1)[:, ::-1] == 0  # no target from here on
    batch.ids = np.where(later & batch.real, data.draw(st.integers(1, 6)), ids)
    changed, changed_gradients = result(batch.loss(model, reduction="sum"))
    assert changed == pytest.approx(value, rel=1e-12, abs=1e-12)
    for found, gradient in zip(changed_gradients, gradients):
        np.testing.assert_allclose(found, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", WITH_LOSS)
@max_examples(15)
@given(data=st.data(), smoothing=st.sampled_from((0.0, 0.1)), seed=seeds)
def test_loss_gradients_equal_finite_differences(
    kind: Any, data: Any, smoothing: float, seed: int
) -> None:
    config = data.draw(configs(kind), label="config")
    model, batch = made(kind, config, seed), data.draw(batches(kind, config), label="batch")
    reduction = data.draw(st.sampled_from(("mean", "sum", "none")), label="reduction")
    loss = lambda: batch.loss(model, label_smoothing=smoothing, reduction=reduction)
    assert_gradients(loss, list(model.parameters()), seed)


# -- models that are called again ----------------------------------------------------------------------


@every_kind
@max_examples(8)
@given(data=st.data(), seed=seeds)
def test_model_called_again_equals_an_unused_one(kind: Any, data: Any, seed: int) -> None:
    """Batches of other sizes and calls in another dtype leave nothing behind."""
    config = data.draw(configs(kind), label="config")
    unused = made(kind, config, seed).astype("float32")
    dtypes = st.lists(st.sampled_from(("float32", "float64")), min_size=2, max_size=4)
    model = copy.deepcopy(unused)
    for dtype in data.draw(dtypes, label="dtypes"):
        batch = data.draw(batches(kind, config, longest=9), label="batch")
        model.astype(dtype)
        expected = batch.logits(copy.deepcopy(unused).astype(dtype)).data
        found = batch.logits(model).data
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", WITH_LOSS)
@max_examples(8)
@given(data=st.data(), seed=seeds)
def test_loss_gradients_do_not_depend_on_arguments_that_change_later(
    kind: Any, data: Any, seed: int
) -> None:
    """A program can read the next batch into the arrays of the last one."""
    config = data.draw(configs(kind), label="config")
    model, batch = made(kind, config, seed), data.draw(batches(kind, config), label="batch")
    leaves = list(model.parameters())
    expected = mg.gradients(batch.loss(model), leaves, allow_unused=True)
    loss = batch.loss(model)
    overwrite(batch)
    for g, e in zip(mg.gradients(loss, leaves, allow_unused=True), expected, strict=True):
        assert (g is None) == (e is None)
        if g is not None:
            np.testing.assert_array_equal(g.data, e.data)


# -- decoding and inference ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.Transformer, nn.LanguageModel])
@given(data=st.data(), seed=seeds)
def test_steps_with_a_cache_equal_the_full_pass(kind: Any, data: Any, seed: int) -> None:
    """In chunks of any length, also after rows are repeated or left out; of a copy, too."""
    config = data.draw(configs(kind), label="config")
    sides = ("left",) if kind is nn.LanguageModel else ("left", "right")
    batch = data.draw(batches(kind, config, sides), label="batch")
    model = made(kind, config, seed)
    for m in (model, nn.for_inference(model)):
        rows = np.arange(len(batch.ids))
        if kind is nn.Transformer:
            state, tokens = m.start(batch.ids, batch.padding_mask), batch.labels
        else:
            state, tokens = m.start(batch.real), batch.ids
        cuts = data.draw(st.sets(st.integers(1, tokens.shape[1])), label="cuts")
        full = batch.logits(model).data
        start = 0
        for end in sorted({*cuts, tokens.shape[1]}):
            logits = m.step(tokens[rows, start:end], state)
            known = batch.real[rows, end - 1] if kind is nn.LanguageModel else np.s_[:]
            expected = full[rows, end - 1]
            np.testing.assert_allclose(logits[known], expected[known], rtol=1e-8, atol=1e-10)
            start = end
            chosen = st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=3)
            chosen = np.array(data.draw(chosen, label="rows"))
            state.select(chosen)
            rows = rows[chosen]


@every_kind
@max_examples(15)
@given(data=st.data(), thresholds=lowered(), limits=product_limits(), seed=seeds)
def test_copy_for_inference_equals_its_model(
    kind: Any, data: Any, thresholds: Any, limits: Any, seed: int
) -> None:
    """Also with small thresholds, and in several threads."""
    config = data.draw(configs(kind), label="config")
    model, batch = made(kind, config, seed), data.draw(batches(kind, config), label="batch")
    expected = batch.logits(model).data
    with replaced(thresholds), replaced_products(limits):
        found = batch.logits(nn.for_inference(model)).data
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
