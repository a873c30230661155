"""Exercises of lesson 7: the eight parts of a Transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import by_hand
import numpy as np
from by_hand import PAD, Parameters, feed_forward, linear
from grading import Exercises

import minigrad as mg

exercises = Exercises()
grade, solution = exercises.grade, exercises.solution

HEADS, LAYERS = 4, 3


def _parameters(rng: np.random.Generator) -> Parameters:
    """Return small weights, among them biases and norms that do change something."""
    p = by_hand.new_parameters((7, 9), 8, 12, LAYERS, rng)
    for t in p.values():
        t.data += (0.1 * rng.standard_normal(t.shape)).astype(np.float32)
    return p


def _tensor(rng: np.random.Generator, *shape: int) -> mg.Tensor:
    return mg.Tensor(rng.standard_normal(shape).astype(np.float32))


SOURCE = np.array([[4, 5, 6, 0], [5, 3, 3, 4]])
TARGET = np.array([[1, 5, 6, 8, 2], [1, 7, 2, 0, 0]])


# -- softmax ---------------------------------------------------------------------------------------


def _scores(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (_tensor(rng, 2, 3, 4),)
    yield (1000 * _tensor(rng, 2, 5),)


def _unsafe_softmax(scores: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(scores)
        return e / e.sum(-1, keepdims=True)


def _softmax(axis: Any) -> Callable[..., Any]:
    def softmax(scores: Any) -> Any:
        e = np.exp(scores - scores.data.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    return softmax


exercises.add(
    cases=_scores,
    differentiable=True,
    tolerance=1e-5,
    mistakes={
        "All weights together sum to 1; each row should.": _softmax(None),
        "The weights sum to 1 along the first axis; they should along the last.": _softmax(0),
        "Large scores overflow: subtract the largest score of each row first.": _unsafe_softmax,
        "The scores are divided by their sum; take their exponentials first.": lambda scores: (
            scores / scores.sum(-1, keepdims=True)
        ),
        "The exponentials are not divided by their sum.": lambda scores: np.exp(
            scores - scores.data.max(-1, keepdims=True)
        ),
    },
)(by_hand.softmax)


# -- attention -------------------------------------------------------------------------------------


def _attentions(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    p, name = _parameters(rng), "encoder.layers.0.self_attention"
    x = _tensor(rng, 2, 4, 8)
    yield p, name, x, x, (SOURCE != PAD)[:, None, None], HEADS
    yield p, name, _tensor(rng, 6, 5, 8), _tensor(rng, 6, 3, 8), np.tri(5, 3, dtype=bool), 2


def _attention(
    scale: Callable[[int, int], float] = lambda d, d_k: d_k**-0.5,
    masked: bool = True,
    one_head: bool = False,
    projected: bool = True,
    hidden: float = -1e9,
    shown: bool = True,
    asked: bool = False,
    merged: bool = True,
) -> Callable[..., Any]:
    def attention(p: Any, name: str, x: Any, source: Any, mask: Any, h: int) -> Any:
        h, mask, source = 1 if one_head else h, mask == shown, x if asked else source
        hidden_score = np.float32(hidden)
        (N, L, d), d_k = x.shape, x.shape[-1] // h
        heads = lambda y: y.reshape(N, -1, h, d_k).transpose(0, 2, 1, 3)
        Q = heads(linear(p, f"{name}.q_proj", x))
        K, V = (heads(linear(p, f"{name}.{part}_proj", source)) for part in "kv")
        scores = Q @ K.transpose(0, 1, 3, 2) * np.float32(scale(d, d_k))
        scores = np.where(mask, scores, hidden_score) if masked else scores
        z = by_hand.softmax(scores) @ V
        z = (z.transpose(0, 2, 1, 3) if merged else z).reshape(N, L, d)
        return linear(p, f"{name}.out_proj", z) if projected else z

    return attention


exercises.add(
    cases=_attentions,
    differentiable=True,
    tolerance=1e-4,
    mistakes={
        "The scores are not divided by the root of d_k.": _attention(lambda d, d_k: 1),
        "The scores are divided by the root of d; a head has d_k = d / h values.": _attention(
            lambda d, d_k: d**-0.5
        ),
        "The scores are divided by d_k; divide by its root.": _attention(lambda d, d_k: 1 / d_k),
        "True means: may attend. Here it hides.": _attention(shown=False),
        "Keys and values come from `source`; here they come from x.": _attention(asked=True),
        "Before the last reshape, undo the transpose: the axis of the heads comes after that of the words.": _attention(
            merged=False
        ),
        "The mask is not used.": _attention(masked=False),
        "There is one head; split the values into h groups.": _attention(one_head=True),
        "The last linear layer, out_proj, is missing.": _attention(projected=False),
        "A score of 0 is not hidden: softmax makes a weight of it. Use -1e9.": _attention(hidden=0),
        "The root is of the number of heads; it should be of d_k, the size of a head.": _attention(
            lambda d, d_k: (d / d_k) ** -0.5
        ),
    },
)(by_hand.attention)


# -- norm ------------------------------------------------------------------------------------------


def _norms(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _parameters(rng), "encoder.layers.0.norm1", 3 * _tensor(rng, 2, 4, 8) + np.float32(1)
    small = np.float32(3e-3) * _tensor(rng, 2, 3, 8)  # the variance is as small as 1e-5
    yield _parameters(rng), "encoder.layers.1.norm2", small


def _norm(
    axis: int = -1, mean: bool = True, root: bool = True, own: bool = True, eps: float = 1e-5,
    outside: float = 0, ddof: int = 0, swapped: bool = False, raw: bool = False,
) -> Any:  # fmt: skip
    def norm(p: Any, name: str, x: Any) -> Any:
        centred = x - x.mean(axis, keepdims=True) if mean else x
        n = x.shape[axis]
        variance = ((x if raw else centred) ** 2).sum(axis, keepdims=True) / np.float32(
            n - ddof
        ) + np.float32(eps)
        y = centred / ((np.sqrt(variance) if root else variance) + np.float32(outside))
        weight, bias = (p[f"{name}.{part}"] for part in ("weight", "bias"))
        weight, bias = (bias, weight) if swapped else (weight, bias)
        return y * weight + bias if own else y

    return norm


exercises.add(
    cases=_norms,
    differentiable=True,
    tolerance=1e-4,
    mistakes={
        "Mean and variance are of the batch; they should be of each vector (the last axis).": _norm(
            axis=0
        ),
        "The mean is not subtracted.": _norm(mean=False),
        "It divides by the variance; divide by its root.": _norm(root=False),
        "The weight and the bias of the norm are not used.": _norm(own=False),
        "The weight and the bias are exchanged.": _norm(swapped=True),
        "1e-5 is added to the root; add it to the variance, inside the root.": _norm(
            eps=0, outside=1e-5
        ),
        "The variance divides by d, not by d - 1.": _norm(ddof=1),
        "The variance gets no 1e-5; a vector of equal values would be 0 / 0.": _norm(eps=0),
        "The variance is the mean square after the mean is subtracted; here it is not.": _norm(
            raw=True
        ),
        "The bias is added after the weight has multiplied; here the weight is added, too.": lambda p, name, x: (
            _norm(own=False)(p, name, x) * (p[f"{name}.weight"] + p[f"{name}.bias"])
        ),
    },
)(by_hand.norm)


# -- embedding -------------------------------------------------------------------------------------


def _embeddings(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _parameters(rng), "source", SOURCE
    yield _parameters(rng), "target", TARGET
    yield _parameters(rng), "target", TARGET[:, :1]


def _embed(
    scaled: bool = True, first: int = 0, mixed: bool = True, placed: bool = True,
    step: int = 2, both_scaled: bool = False, power: float = 0.5, base: int = 10_000,
) -> Any:  # fmt: skip
    def embed(p: Any, side: str, ids: Any) -> Any:
        table = p[f"{side}_embedding.tokens.weight"]
        d, L = table.shape[1], ids.shape[1]
        angles = np.arange(first, first + L)[:, None] / base ** (step * np.arange(d // 2) / d)
        both = np.sin(angles), np.cos(angles)
        positions = np.stack(both, -1).reshape(L, d) if mixed else np.concatenate(both, -1)
        root = np.float32(d**power)
        if both_scaled:
            return (table[ids] + positions.astype(np.float32)) * root
        x = table[ids] * root if scaled else table[ids]
        return x + positions.astype(np.float32) if placed else x

    return embed


def _embed_by_columns(p: Any, side: str, ids: Any) -> Any:
    table = p[f"{side}_embedding.tokens.weight"]
    d, column = table.shape[1], np.arange(table.shape[1])
    angles = np.arange(ids.shape[1])[:, None] / 10_000 ** (column / d)
    positions = np.where(column % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)
    return table[ids] * np.float32(d**0.5) + positions


exercises.add(
    cases=_embeddings,
    differentiable=True,
    tolerance=1e-4,
    mistakes={
        "The rows are not multiplied by the root of d.": _embed(scaled=False),
        "The positions are missing.": _embed(placed=False),
        "Only the rows are multiplied by the root of d, not the positions.": _embed(
            both_scaled=True
        ),
        "The exponent is 2i / d, where i counts pairs of columns.": _embed(step=4),
        "The factor 2 of the exponent 2i / d is missing.": _embed(step=1),
        "The two columns of a pair have the same angle: columns 2i and 2i + 1 both have the exponent 2i / d.": _embed_by_columns,
        "The first position is 0, not 1.": _embed(first=1),
        "Sines and cosines take turns: sin, cos, sin, cos …": _embed(mixed=False),
        "The rows are multiplied by d; multiply by its root.": _embed(power=1),
        "The rows are divided by the root of d; multiply by it.": _embed(power=-0.5),
        "The base of the power is 10,000.": _embed(base=1000),
    },
)(by_hand.embed)


# -- encoder and decoder ---------------------------------------------------------------------------


def _encoders(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _parameters(rng), SOURCE, HEADS, LAYERS
    yield _parameters(rng), SOURCE[1:], 2, 1


def _encode(
    residual: bool = True, masked: bool = True, one_layer: bool = False, pre_norm: bool = False,
    normed: bool = True, same_norm: bool = False, fed: bool = True, first: bool = False,
) -> Any:  # fmt: skip
    def encode(p: Any, source: Any, h: int, layers: int) -> Any:
        x = by_hand.embed(p, "source", source)
        mask = (source != (PAD if masked else -1))[:, None, None]
        for i in range(1 if one_layer else layers):
            at = f"encoder.layers.{0 if first else i}"
            parts = (
                lambda y, at=at: by_hand.attention(p, f"{at}.self_attention", y, y, mask, h),
                lambda y, at=at: feed_forward(p, f"{at}.feed_forward", y),
            )
            for number, part in enumerate(parts if fed else parts[:1], 1):
                number = 1 if same_norm else number
                if not normed:
                    x = x + part(x)
                elif pre_norm:
                    x = x + part(by_hand.norm(p, f"{at}.norm{number}", x))
                else:
                    x = by_hand.norm(p, f"{at}.norm{number}", x + part(x) if residual else part(x))
        return x

    return encode


exercises.add(
    cases=_encoders,
    differentiable=True,
    tolerance=1e-3,
    mistakes={
        "The input of each part is not added to its output.": _encode(residual=False),
        "Padding is attended to: the mask is source != PAD.": _encode(masked=False),
        "There are `layers` layers; this is one.": _encode(one_layer=True),
        "The norm comes after the sum here, not before the part.": _encode(pre_norm=True),
        "The norms are missing.": _encode(normed=False),
        "Both parts use norm1; the second one has norm2.": _encode(same_norm=True),
        "The feed-forward part is missing.": _encode(fed=False),
        "Each layer has weights of its own; here layer 0 is used each time.": _encode(first=True),
    },
)(by_hand.encode)


def _decoders(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _parameters(rng), TARGET, _tensor(rng, 2, 4, 8), SOURCE, HEADS, LAYERS
    yield _parameters(rng), TARGET[:1], _tensor(rng, 1, 4, 8), SOURCE[:1], 2, 1


def _decode(
    causal: bool = True, masked: bool = True, crossed: bool = True, logits: bool = True,
    shift: int = 0, residual: bool = True, padded: bool = False, last: int = 3,
) -> Any:  # fmt: skip
    def decode(p: Any, target: Any, memory: Any, source: Any, h: int, layers: int) -> Any:
        x = by_hand.embed(p, "target", target)
        known = (source != (PAD if masked else -1))[:, None, None]
        past = (target != (-1 if padded else PAD))[:, None, None]
        past = np.tri(target.shape[1], k=shift, dtype=bool) & past if causal else past
        for i in range(layers):
            at = f"decoder.layers.{i}"
            self_attention = by_hand.attention(p, f"{at}.self_attention", x, x, past, h)
            x = by_hand.norm(p, f"{at}.norm1", x + self_attention if residual else self_attention)
            read, mask = (memory, known) if crossed else (x, past)
            cross_attention = by_hand.attention(p, f"{at}.cross_attention", x, read, mask, h)
            x = by_hand.norm(p, f"{at}.norm2", x + cross_attention if residual else cross_attention)
            fed = feed_forward(p, f"{at}.feed_forward", x)
            x = by_hand.norm(p, f"{at}.norm{last}", x + fed if residual else fed)
        return linear(p, "output", x) if logits else x

    return decode


exercises.add(
    cases=_decoders,
    differentiable=True,
    tolerance=1e-3,
    mistakes={
        "Words see those after them: use np.tri for the mask of self-attention.": _decode(
            causal=False
        ),
        "Each word sees one word too many: np.tri(L) already has the diagonal.": _decode(shift=1),
        "A word may see itself; the diagonal is not hidden.": _decode(shift=-1),
        "The input of each part is not added to its output.": _decode(residual=False),
        "Padding of the target is attended to: the mask is also False where it is PAD.": _decode(
            padded=True
        ),
        "Padding of the source is attended to.": _decode(masked=False),
        "Cross-attention should read the memory of the encoder.": _decode(crossed=False),
        "The last linear layer, output, is missing.": _decode(logits=False),
        "The last part has norm3; here it uses norm2 again.": _decode(last=2),
        "It returns probabilities; return the scores, without softmax.": lambda *arguments: (
            by_hand.softmax(by_hand.decode(*arguments))
        ),
    },
)(by_hand.decode)


# -- loss and Adam ---------------------------------------------------------------------------------


def _losses(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield _parameters(rng), SOURCE, TARGET, HEADS, LAYERS
    p = _parameters(rng)
    p["output.weight"].data *= 300  # probabilities as small as e⁻⁵⁰⁰
    yield p, SOURCE, TARGET, HEADS, LAYERS
    yield _parameters(rng), SOURCE[:1], TARGET[:1], 2, 1


def _loss(
    shift: int = 1, padded: bool = False, mean: bool = True, logarithm: Any = np.log, sign: int = -1
) -> Callable[..., Any]:
    def loss(p: Any, source: Any, target: Any, h: int, layers: int) -> Any:
        memory = by_hand.encode(p, source, h, layers)
        logits = by_hand.decode(p, target[:, :-1], memory, source, h, layers)
        probability = by_hand.softmax(logits)
        n, t = np.nonzero(target[:, 1:] != (-1 if padded else PAD))
        right = probability[n, t, target[n, t + shift]]
        with np.errstate(divide="ignore"):
            each = sign * logarithm(right)
        return each.mean() if mean else each.sum()

    return loss


def _mean_of_sentences(p: Any, source: Any, target: Any, h: int, layers: int) -> Any:
    each = [by_hand.loss(p, source[i : i + 1], target[i : i + 1], h, layers) for i in (0, 1)]
    return (each[0] + each[1]) / np.float32(2)


exercises.add(
    cases=_losses,
    differentiable=True,
    tolerance=1e-3,
    mistakes={
        "Each position should predict the next token, target[:, 1:], not its own.": _loss(shift=0),
        "Padding counts; leave out where the next token is PAD.": _loss(padded=True),
        "It is the sum; the loss is the mean.": _loss(mean=False),
        "A small probability becomes log 0: take the logarithm as s - max s - log of the sum.": _loss(),
        "The logarithm is missing.": _loss(logarithm=lambda p: p),
        "The sign is missing: the logarithm of a probability is negative.": _loss(sign=1),
        "The logarithm is natural, not to base 2.": _loss(logarithm=np.log2),
        "The logarithm is natural, not to base 10.": _loss(logarithm=np.log10),
        "It is the mean of the means of sentences; take one mean over all tokens.": _mean_of_sentences,
    },
)(by_hand.loss)


def _steps(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    for step in (1, 5):
        value, gradient, m = rng.standard_normal((3, 4))
        yield value, gradient, m, rng.random(4), step, 0.1
    tiny = 1e-9 * rng.standard_normal((2, 4))  # as small as the number in the denominator
    yield value, tiny[0], tiny[1], tiny[0] ** 2, 3, 0.1


def _adam(
    sign: int = 1,
    corrected: str = "mv",
    squared: bool = True,
    root: bool = True,
    eps: float = 1e-9,
    inside: float = 0,
    rates: tuple[float, float] = (0.1, 0.02),
    late: int = 0,
    exchanged: bool = False,
    hats: bool = False,
    order: Any = lambda value, m, v: (value, m, v),
) -> Callable[..., Any]:
    def adam(value: Any, gradient: Any, m: Any, v: Any, step: int, lr: float) -> Any:
        first, second = rates
        m = m + first * (gradient - m)
        v = v + second * ((gradient**2 if squared else abs(gradient)) - v)
        step += late
        kept = 1 - (1 - first) ** step, 1 - (1 - second) ** step
        m_hat = m / kept[0] if "m" in corrected else m
        v_hat = v / kept[1] if "v" in corrected else v
        m, v = (m_hat, v_hat) if hats else (m, v)
        m_hat, v_hat = (v_hat, abs(m_hat)) if exchanged else (m_hat, v_hat)
        update = m_hat / ((np.sqrt(v_hat + inside) if root else v_hat) + eps)
        return order(value - sign * lr * update, m, v)

    return adam


exercises.add(
    cases=_steps,
    mistakes={
        "The step goes up the slope; subtract it.": _adam(sign=-1),
        "The means start at 0: divide them by 1 - 0.9**step and 1 - 0.98**step.": _adam(
            corrected=""
        ),
        "v is the mean of the squared gradient.": _adam(squared=False),
        "Divide by the root of v.": _adam(root=False),
        "m and v are exchanged in the result.": _adam(order=lambda value, m, v: (value, v, m)),
        "The rates are exchanged: 0.1 is that of m, and 0.02 that of v.": _adam(rates=(0.02, 0.1)),
        "1e-9 is added to v; add it to the root, outside.": _adam(eps=0, inside=1e-9),
        "The means start at 0 in step 1: the exponent is the step, not the step plus 1.": _adam(
            late=1
        ),
        "It returns the new value alone; return the value, m and v.": _adam(
            order=lambda value, m, v: value
        ),
        "The denominator gets no 1e-9; a gradient of 0 would be 0 / 0.": _adam(eps=0),
        "The rate of v is 0.02, not 0.001.": _adam(rates=(0.1, 0.001)),
        "m and v are exchanged in the step: m is above the line, and the root of v below it.": _adam(
            exchanged=True
        ),
        "It returns the old m and v; return the new ones.": lambda value, gradient, m, v, step, lr: (
            by_hand.adam(value, gradient, m, v, step, lr)[0],
            m,
            v,
        ),
        "m is divided by 1 - 0.9**step; v is not: divide it by 1 - 0.98**step.": _adam(
            corrected="m"
        ),
        "v is divided by 1 - 0.98**step; m is not: divide it by 1 - 0.9**step.": _adam(
            corrected="v"
        ),
        "It returns m and v after their correction; return them as they are before it.": _adam(
            hats=True
        ),
    },
)(by_hand.adam)
