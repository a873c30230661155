"""Sentence encoders: Reimers and Gurevych (2019), arXiv:1908.10084."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad.arguments import check_choice, checked_count
from minigrad.fast.runtime import in_parallel
from minigrad.modes import no_grad

from ..layers import Linear
from ..module import evaluating
from ..text.batches import padded
from ..text.huggingface import ModelText
from ..text.tokenize import check_texts

__all__ = ["SentenceEncoder"]

POOLS = ("mean", "first", "last", "max")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


class SentenceEncoder:
    """An encoder of sentences: vectors that are similar if the sentences mean the same.

    `sentence_encoder` makes one from a directory.

    Parameters
    ----------
    model : EncoderModel or LanguageModel
        Returns a vector of each token.
    text : ModelText
        The tokenizer.
    pool : {"mean", "first", "last", "max"}
        Reduction of the vectors of the tokens to one.
    normalize : bool
        Divide the vectors by their lengths.
    max_len : int, optional
        Number of tokens after which sentences are cut off. By default that of the tokenizer's
        files, and never more than the model's.
    maps : sequence of (Linear, callable)
        Linear layers after the pooling, each with its activation.
    prompts : mapping of str, optional
        Strings by name that can be put before sentences.
    default_prompt_name : str, optional
        Name of the prompt that is put before sentences by default.
    include_prompt : bool
        Whether the pooling includes the tokens of the prompt. If not, prompts are refused, because
        such a pooling is not supported.
    similarity_fn_name : {"cosine", "dot", "euclidean", "manhattan"}
        What `similarity` computes.
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
        check_choice("", "pool", pool, *POOLS)
        check_choice("", "similarity_fn_name", similarity_fn_name, *SIMILARITIES)
        self.model, self.text, self.maps = model, text, list(maps)
        self.pool = pool
        self.normalize = normalize
        self.max_len = min(max_len or text.max_len or model.config.max_len, model.config.max_len)
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.include_prompt = include_prompt
        self.similarity_fn_name = similarity_fn_name
        self._find_prompt(None, None)  # refuses a wrong default

    def encode(
        self,
        sentences: Any,
        batch_size: int = 32,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Return the vectors (n, d) of sentences, or (d,) for one string.

        Batches of sentences of similar length are computed at once, as many as there are threads.

        Parameters
        ----------
        sentences : str or iterable of str
            The tokens after the first `max_len` of each are cut off.
        batch_size : int
            Number of sentences in a batch.
        prompt : str, optional
            Put before each sentence.
        prompt_name : str, optional
            Name of the prompt, instead of `prompt`. The default prompt, if there is one, is used if
            both are missing.
        """
        if isinstance(sentences, str):
            return self.encode([sentences], prompt=prompt, prompt_name=prompt_name)[0]
        prompt = self._find_prompt(prompt, prompt_name)
        check_texts([prompt])
        sentences = check_texts(sentences)
        checked_count("encode", "batch_size", batch_size)
        rows = self.text.encode([prompt + s for s in sentences], max_len=self.max_len)
        if [] in rows:
            raise ValueError(
                "encode: sentences must have at least one token each, got "
                f"{sentences[rows.index([])]!r:.60}"
            )
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        vectors = in_parallel(lambda batch: self._encode([rows[i] for i in batch]), batches)
        width = self.maps[-1][0].out_features if self.maps else self.model.config.d_model
        return np.concatenate([np.empty((0, width)), *vectors], dtype=np.float32)[np.argsort(order)]

    def _find_prompt(self, prompt: str | None, name: str | None) -> str:
        """Return the string that is put before sentences."""
        if prompt is not None and name is not None:
            raise ValueError("encode: prompt must be None with a prompt_name, got both")
        name = self.default_prompt_name if name is None else name
        if prompt is None and name is not None:
            check_choice("", "prompt_name", name, *(self.prompts or ("None",)))
            prompt = self.prompts[name]
        if prompt and not self.include_prompt:
            raise ValueError(
                "encode: a pooling without the prompt's tokens is not supported, got "
                f"{prompt!r:.60}"
            )
        return prompt or ""

    def similarity(self, a: Any, b: Any) -> np.ndarray:
        """Compute how similar all vectors are to all others, (n, m): larger is more similar.

        Parameters
        ----------
        a : array, shape (n, d) or (d,)
            Vectors.
        b : array, shape (m, d) or (d,)
            Vectors.
        """
        a = _as_vectors(a)
        b = _as_vectors(b)
        if a.shape[1] != b.shape[1]:
            raise ValueError(
                f"similarity: a and b must have vectors of one width, got {a.shape} and {b.shape}"
            )
        if self.similarity_fn_name in ("euclidean", "manhattan"):
            order = 2 if self.similarity_fn_name == "euclidean" else 1
            distances = [np.linalg.norm(a - row, order, -1) for row in b]
            return -np.reshape(distances, (len(b), len(a))).T
        if self.similarity_fn_name == "cosine":
            a = _normalized(a)
            b = _normalized(b)
        return a @ b.T

    def _encode(self, rows: list[list[int]]) -> np.ndarray:
        """Return the vectors (n, d) of a batch of token ids."""
        lengths = np.array([len(row) for row in rows])
        ids = padded(rows, 0)  # (n, L); the mask hides the padding
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        with no_grad(), evaluating():
            x = self._pooled(self.model.hidden(ids, mask).data, mask)
            for linear, activation in self.maps:
                x = activation(linear(x)).data
        return _normalized(x) if self.normalize else x

    def _pooled(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return one vector a row, (n, d), of the vectors (n, L, d) of its tokens."""
        if self.pool == "first":
            return x[:, 0]
        if self.pool == "last":
            return x[np.arange(len(x)), mask.sum(-1) - 1]
        if self.pool == "max":
            return np.where(mask[..., None], x, -np.inf).max(1)
        weights = (mask / mask.sum(-1, keepdims=True)).astype(x.dtype)
        return (weights[:, None] @ x)[:, 0]


def _as_vectors(x: Any) -> np.ndarray:
    """Return vectors (n, d) as floats, since integers of 8 bits cannot hold their differences."""
    x = np.atleast_2d(x)
    if x.ndim > 2 or x.dtype.kind not in "iuf":
        raise ValueError(f"similarity: vectors must be numbers (n, d), got {x.dtype} {x.shape}")
    return np.asarray(x, np.result_type(x, np.float32))


def _normalized(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
