"""Classifiers of text, and rerankers: an encoder with a head, and its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.fast.runtime import in_parallel
from minigrad.io.json import Settings, read_if_any, read_json
from minigrad.io.safetensors import SafetensorsFile
from minigrad.modes import no_grad

from ..generation import with_maximum
from ..inference.copies import for_inference
from ..module import evaluating
from ..options.encoder import EncoderClassifier
from ..text.hub import find_model
from ..text.huggingface import ModelText
from ..text.loading import load as load_text
from ..text.tokenize import check_texts
from .adapters import LABELS, load_adapter
from .family import expect_values
from .load import family_of, load
from .lora import merge_lora

__all__ = ["Classifier", "Reranker", "classifier", "reranker"]


class _TextModel:
    """An encoder with a head for sequences, and its tokenizer."""

    def __init__(self, model: Any, text: ModelText) -> None:
        self.model, self.text = model, text
        self.max_len = min(text.max_len or model.config.max_len, model.config.max_len)

    def _logits(
        self, texts: list[str], batch_size: int, first: Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the logits (n, outputs) of texts, each after its text of `first`, if given."""
        checked_count(type(self).__name__, "batch_size", batch_size)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]

        def compute(rows: list[int]) -> np.ndarray:
            parts = [[texts[i] for i in rows]]
            if first is not None:
                parts.insert(0, [first[i] for i in rows])
            ids, mask, types = self.text.batch(*parts, max_len=self.max_len)
            has_types = self.model.config.num_types > 1
            with no_grad(), evaluating():
                return np.asarray(self.model(ids, mask, types if has_types else None).data, float)

        width = self.model.config.num_classes
        logits = np.concatenate([np.empty((0, width)), *in_parallel(compute, batches)])
        return with_maximum(logits[np.argsort(order)] if order else logits)


class Classifier(_TextModel):
    """A classifier of text, which `nn.classifier` loads. A call returns labels and probabilities.

    Parameters
    ----------
    model : EncoderClassifier
        Returns logits of the classes.
    text : ModelText
        The tokenizer.
    labels : sequence of str
        Name of each class.

    Examples
    --------
    >>> classify = nn.classifier("mine")  # doctest: +SKIP
    >>> labels, probabilities = classify(["is it late?", "it is late"])  # doctest: +SKIP
    """

    def __init__(self, model: Any, text: ModelText, labels: Sequence[str]) -> None:
        super().__init__(model, text)
        self.labels = tuple(labels)

    def __call__(self, texts: Any, batch_size: int = 32) -> tuple[Any, np.ndarray]:
        """Return the most probable label of each text, and the probabilities (n, classes).

        For a single string they are a string, and (classes,). Tokens after the first `max_len` of a
        text are cut off.
        """
        if isinstance(texts, str):
            labels, probabilities = self([texts])
            return labels[0], probabilities[0]
        logits = self._logits(check_texts(texts), batch_size)
        e = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities = e / e.sum(-1, keepdims=True)
        return [self.labels[i] for i in probabilities.argmax(-1)], probabilities


class Reranker(_TextModel):
    """A cross-encoder, which `nn.reranker` loads. A call scores texts for a question.

    Parameters
    ----------
    model : EncoderClassifier
        Returns one logit for a pair of texts.
    text : ModelText
        The tokenizer.

    Examples
    --------
    >>> rerank = nn.reranker("directory")  # doctest: +SKIP
    >>> scores = rerank("is it late?", ["it is ten o'clock", "a cat"])  # doctest: +SKIP

    References
    ----------
    Nogueira and Cho (2019), Passage re-ranking with BERT, arXiv:1901.04085.
    """

    def __call__(self, question: str, texts: Iterable[str], batch_size: int = 32) -> np.ndarray:
        """Return a logit for each text, (n,): a larger one for a text that fits better.

        The longer one of a pair is cut off first.
        """
        texts = check_texts(texts)
        return self._logits(texts, batch_size, [question] * len(texts))[:, 0]


def classifier(
    directory: str | Path, *, adapter: str | Path | None = None, weights: str = "float"
) -> Classifier:
    """Return a classifier of text, such as `minigrad fine-tune` and transformers write.

    Parameters
    ----------
    directory : str or Path
        A directory of an encoder for sequence classification, with its tokenizer, or its name on
        the Hub, as in `nn.load`. The names of the labels are `id2label` of config.json.
    adapter : str or Path, optional
        Directory of an adapter, as `nn.save_adapter` and PEFT write. Then `directory` may be the
        encoder without the head, which the adapter contains.
    weights : {"float", "int8"}
        As in `nn.for_inference`.
    """
    settings = read_json(find_model(directory) / "config.json")
    text = load_text(directory)  # before the model, since it may need a missing package
    if adapter is None:
        model = load(directory)
    else:
        count = _num_classes(Path(adapter), settings)
        model = merge_lora(load_adapter(adapter, load(directory, "classes", num_classes=count)))
    _check_outputs(settings, model, "classify texts", "train a head with minigrad fine-tune")
    if model.config.num_classes < 2:
        raise ValueError(
            f"{settings.where}: the model must have at least 2 classes, got 1; nn.reranker scores "
            "pairs of texts with it"
        )
    expect_values(settings, {"problem_type": (None, "single_label_classification")})
    source = settings
    if adapter is not None:
        source = read_if_any(Path(adapter) / LABELS) or settings
    names = source.object("id2label", Settings({}, source.where))
    if len(names) != model.config.num_classes:
        names = Settings({}, settings.where)
    labels = [names.text(str(i), f"LABEL_{i}") for i in range(model.config.num_classes)]
    result = Classifier(for_inference(model, weights), text, labels)
    if (longest := settings.number("model_max_length", None, 1)) is not None:
        result.max_len = int(min(longest, result.max_len))
    return result


def reranker(directory: str | Path, *, weights: str = "float") -> Reranker:
    """Return a reranker, such as a cross-encoder of sentence-transformers.

    Other parameters: as `classifier`.

    Parameters
    ----------
    directory : str or Path
        A directory of an encoder for sequence classification with one output, with its tokenizer,
        or its name on the Hub, as in `nn.load`.
    """
    settings = read_json(find_model(directory) / "config.json")
    text = load_text(directory)  # first, since it may need a package that is missing
    model = load(directory)
    _check_outputs(settings, model, "score pairs of texts", "take a cross-encoder")
    if model.config.num_classes > 1:
        raise ValueError(
            f"{settings.where}: the model must have one output, got {model.config.num_classes}; "
            "nn.classifier returns their probabilities"
        )
    return Reranker(for_inference(model, weights), text)


def _check_outputs(settings: Settings, model: Any, purpose: str, fix: str) -> None:
    """Raise a ValueError if a model has no head for sequences."""
    if not isinstance(model, EncoderClassifier):
        kind = type(model).__name__
        raise ValueError(f"{settings.where}: the model must {purpose}, got {kind}; {fix}")


def _num_classes(adapter: Path, settings: Settings) -> int:
    """Return the number of classes of the head in an adapter."""
    path = adapter / "adapter_model.safetensors"
    names = family_of(settings).head_names.get("classes", {})
    ends = tuple(f".{name}.weight" for name, target in names.items() if target == "output")
    for name, entry in SafetensorsFile(path).items():
        if ends and name.endswith(ends) and entry.shape:
            return entry.shape[0]
    raise ValueError(f"{path}: the adapter must contain the head of a classifier")
