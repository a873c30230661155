"""Vectors of sentences (Reimers, Gurevych 2019, arXiv:1908.10084)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad.core.modes import no_grad
from minigrad.optim.settings import checked_count
from minigrad.runtime import in_parallel

from ..layers.linear import Linear
from ..layers.module import evaluating
from ..text.batches import padded
from ..text.huggingface import ModelText
from ..text.tokenize import check_texts

__all__ = ["SentenceEncoder"]

POOLS = ("mean", "first", "last", "max")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


class SentenceEncoder:
    """Sentences to vectors, alike where the sentences mean alike.

    `pool` makes one vector of those of a sentence's tokens: "mean", "first", "last" or "max".
    `maps` are linear maps that follow, each with a function; with `normalize` the vectors have
    length 1. Longer sentences are cut off at `max_len` tokens (None: as the tokenizer's files
    tell). `prompts` are texts, by name, that can be put before sentences, `default_prompt_name` is
    that of the one that is (None: none); where not `include_prompt`, its tokens would be left out
    of the pooling, which is refused. `similarity_fn_name` is "cosine", "dot", "euclidean" or
    "manhattan".
    """

    def __init__(
        self,
        model: Any,
        text: ModelText,
        pool: str = "mean",
        normalize: bool = True,
        max_len: int | None = None,
        maps: Sequence[tuple[Linear, Any]] = (),
        *,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        include_prompt: bool = True,
        similarity_fn_name: str = "cosine",
    ) -> None:
        if pool not in POOLS:
            raise ValueError(f"pool: expected one of {', '.join(POOLS)}, got {pool!r}")
        if similarity_fn_name not in SIMILARITIES:
            expected = f"expected one of {', '.join(SIMILARITIES)}"
            raise ValueError(f"similarity_fn_name: {expected}, got {similarity_fn_name!r}")
        self.model, self.text, self.pool, self.normalize, self.maps = (
            model,
            text,
            pool,
            normalize,
            list(maps),
        )
        self.max_len = min(max_len or text.max_len or model.config.max_len, model.config.max_len)
        self.prompts, self.default_prompt_name = dict(prompts or {}), default_prompt_name
        self.include_prompt, self.similarity_fn_name = include_prompt, similarity_fn_name
        self._prompt(None, None)  # refuses what is wrong

    def encode(
        self,
        sentences: Any,
        batch_size: int = 32,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """The vectors (n, d) of n sentences, or (d,) of one; longer ones are cut off at `max_len`
        tokens.

        `prompt` is put before each, or that of `prompts` called `prompt_name`; without them the
        default one, if there is one. Batches of sentences of like length run at once, as many as
        matrix products may use threads.
        """
        if isinstance(sentences, str):
            return self.encode([sentences], prompt=prompt, prompt_name=prompt_name)[0]
        before, sentences = self._prompt(prompt, prompt_name), list(sentences)
        check_texts([before, *sentences])
        checked_count("encode", "batch_size", batch_size)
        rows = (
            self.text.encode([before + s for s in sentences], max_len=self.max_len)
            if len(sentences)
            else []
        )
        if [] in rows:
            raise ValueError(
                f"encode: the tokenizer makes no tokens of {sentences[rows.index([])]!r:.60}"
            )
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        found = in_parallel(lambda part: self._vectors([rows[i] for i in part]), parts)
        width = self.maps[-1][0].out_features if self.maps else self.model.config.d_model
        return np.concatenate([np.empty((0, width)), *found], dtype=np.float32)[np.argsort(order)]

    def _prompt(self, prompt: str | None, name: str | None) -> str:
        """What is put before sentences."""
        if prompt is not None and name is not None:
            raise ValueError("encode: expected a prompt or a prompt_name, got both")
        if prompt is None:
            name = self.default_prompt_name if name is None else name
            if name is not None and name not in self.prompts:
                raise ValueError(
                    f"prompt_name: expected one of {', '.join(self.prompts) or 'none'}, got "
                    f"{name!r}"
                )
            prompt = "" if name is None else self.prompts[name]
        if prompt and not self.include_prompt:
            raise ValueError(
                f"encode: a pooling without the prompt's tokens is not supported, got "
                f"{prompt!r:.60}"
            )
        return prompt

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """How alike each of the vectors a (n, d) is to each of b (m, d), (n, m); larger is more
        alike.

        By `similarity_fn_name`: the cosine, the product, or the distance below zero.
        """
        a, b = _vectors(a), _vectors(b)
        if a.shape[1] != b.shape[1]:
            raise ValueError(
                f"similarity: expected vectors of one width, got {a.shape} and {b.shape}"
            )
        if self.similarity_fn_name in ("euclidean", "manhattan"):
            order = 2 if self.similarity_fn_name == "euclidean" else 1
            return -np.reshape(
                [np.linalg.norm(a - row, order, -1) for row in b], (len(b), len(a))
            ).T
        if self.similarity_fn_name == "cosine":
            a, b = _of_length_one(a), _of_length_one(b)
        return np.asarray(a @ b.T)

    def _vectors(self, rows: list[list[int]]) -> np.ndarray:
        ids, real = (
            padded(rows, self.text.pad_id or 0),
            padded([[1] * len(row) for row in rows], 0) > 0,
        )  # (n, L)
        with no_grad(), evaluating():
            x = self._pooled(self.model.hidden(ids, real).data, real)  # (n, d)
            for linear, function in self.maps:
                x = function(linear(x)).data
        return _of_length_one(x) if self.normalize else x

    def _pooled(self, x: np.ndarray, real: np.ndarray) -> np.ndarray:
        if self.pool == "first":
            return x[:, 0]
        if self.pool == "last":
            return x[np.arange(len(x)), real.sum(-1) - 1]
        if self.pool == "max":
            return np.where(real[..., None], x, -np.inf).max(1)
        weights = (real / real.sum(-1, keepdims=True)).astype(x.dtype)
        return (weights[:, None] @ x)[:, 0]


def _vectors(x: Any) -> np.ndarray:
    """Vectors (n, d), or one (d,), as floats (n, d): integers of 8 bits would not hold their
    differences.
    """
    x = np.atleast_2d(x)
    if x.ndim > 2 or x.dtype.kind not in "iuf":
        raise ValueError(f"similarity: expected vectors (n, d) of numbers, got {x.dtype} {x.shape}")
    return np.asarray(x, np.result_type(x, np.float32))


def _of_length_one(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))
