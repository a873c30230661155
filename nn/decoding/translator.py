"""Translators: a model with its vocabularies and tokenizers, and its files in a run directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.arguments import checked_count
from minigrad.io import read_json, write_json
from minigrad.io.json import Settings

from ..inference.copies import for_inference
from ..models import Transformer
from ..published.weights import load_model, model_to_dict
from ..text.batches import padded
from ..text.tokenize import Tokenizer, check_texts, library_errors, tokenizer_named
from ..text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from .beam import beam_search
from .search import attention_maps, greedy_search

__all__ = ["Translation", "Translator"]

_EXPECTED = "a run directory has config.json, vocab.json and weights"


@dataclass
class Translation:
    """A translated sentence.

    Parameters
    ----------
    source : str
        The sentence.
    source_tokens : list of str
        Its tokens.
    tokens : list of str
        Tokens of the translation, without EOS.
    text : str
        The translation.
    score : float
        Score of the search, as in `Hypothesis`.
    ids : list of int
        Ids of the generated tokens, with EOS.
    """

    source: str
    source_tokens: list[str]
    tokens: list[str]
    text: str
    score: float
    ids: list[int]


class Translator:
    """A Transformer with vocabularies and tokenizers, which translates text.

    Parameters
    ----------
    model : Transformer
        Model of the translations.
    source_vocab, target_vocab : Vocabulary
        Of the sizes in the configuration of the model.
    source_tokenizer, target_tokenizer : Tokenizer
        Tokenizers of the two languages.
    source_eos : bool
        EOS ends each source.
    """

    def __init__(
        self,
        model: Transformer,
        source_vocab: Vocabulary,
        target_vocab: Vocabulary,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        source_eos: bool = False,
    ) -> None:
        if not isinstance(model, Transformer):
            raise ValueError(f"model must be a Transformer, got a {type(model).__name__}")
        config = model.config
        for side, vocab in (("source", source_vocab), ("target", target_vocab)):
            if len(vocab) != (size := getattr(config, f"{side}_vocab_size")):
                raise ValueError(
                    f"{side}_vocab must have as many tokens as the model ({size}), got {len(vocab)}"
                )
        ids = (config.pad_id, config.bos_id, config.eos_id)
        if ids[:2] != (PAD, BOS) or EOS not in config.end_ids:
            raise ValueError(
                f"pad_id, bos_id and eos_id of the model must be those of the vocabularies "
                f"{(PAD, BOS, EOS)}, got {ids}"
            )
        self.model = model
        self.source_vocab, self.target_vocab = source_vocab, target_vocab
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.source_eos = source_eos

    def _vocabularies(self) -> dict[str, list[str]]:
        return {"source": self.source_vocab.tokens, "target": self.target_vocab.tokens}

    def save(self, run_dir: str | Path, **settings: Any) -> None:
        """Write `config.json` and `vocab.json`: everything but the weights, which `Trainer` writes.

        Parameters
        ----------
        run_dir : str or Path
            An existing directory.
        **settings
            Further entries of `config.json`, plain data.
        """
        tokenizers = {
            "source": self.source_tokenizer.to_dict(),
            "target": self.target_tokenizer.to_dict(),
        }
        data = {"tokenizers": tokenizers, "source_eos": self.source_eos, **settings}
        write_json(Path(run_dir) / "vocab.json", self._vocabularies())
        # The file without which nobody reads a run comes last.
        write_json(Path(run_dir) / "config.json", {"model": model_to_dict(self.model), **data})

    def has_vocabularies_of(self, run_dir: str | Path) -> bool:
        """Return whether `vocab.json` of a run directory contains these vocabularies.

        Parameters: as `Translator.load`.
        """
        vocabs = read_json(Path(run_dir) / "vocab.json", _EXPECTED)
        vocabularies = self._vocabularies()
        return {side: _vocabulary(vocabs, side).tokens for side in vocabularies} == vocabularies

    @classmethod
    def load(
        cls, run_dir: str | Path, weights: str | None = "best.safetensors", inference: bool = True
    ) -> Translator:
        """Return the translator of a run directory, in evaluation mode.

        Parameters
        ----------
        run_dir : str or Path
            A directory with `config.json`, `vocab.json` and weights.
        weights : str, optional
            File of the weights in `run_dir`. None: untrained weights.
        inference : bool
            Make a copy of the model by `for_inference`, which cannot be trained.
        """
        run_dir = Path(run_dir)
        data = read_json(run_dir / "config.json", _EXPECTED)
        vocabs = read_json(run_dir / "vocab.json", _EXPECTED)
        tokenizers = data.object("tokenizers")
        sides = ("source", "target")
        source_vocab, target_vocab = (_vocabulary(vocabs, side) for side in sides)
        split_source, split_target = (_tokenizer(tokenizers.object(side)) for side in sides)
        source_eos = data.flag("source_eos", False)
        path = None if weights is None else run_dir / weights
        model = load_model(data.get("model"), f"{data.where}: model", path)
        try:
            translator = cls(
                model, source_vocab, target_vocab, split_source, split_target, source_eos
            )
        except ValueError as error:
            raise ValueError(f"{data.where}: {error}") from None
        translator.model = for_inference(model) if inference else model.eval()
        return translator

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
        """Return the padded source ids (N, L) of texts, and the tokens of each.

        Parameters
        ----------
        texts : list of str
            Sentences to translate.
        """
        texts = check_texts(texts)
        tokens = [self.source_tokenizer(text) for text in texts]
        limit = self.model.config.max_len - self.source_eos
        for text, words in zip(texts, tokens):
            if not words:
                raise ValueError(f"texts must have at least one token each, got {text!r:.60}")
            if len(words) > limit:
                raise ValueError(
                    f"texts must have at most {limit} tokens each, got {len(words)} in {text!r:.60}"
                )
        ids = [self.source_vocab.encode(words, eos=self.source_eos) for words in tokens]
        return padded(ids), tokens

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int = 1,
        length_penalty: float = 1.0,
        max_len: int | None = None,
        batch_size: int = 64,
        done: Callable[[int], Any] | None = None,
        n_best: int | None = None,
    ) -> list[Any]:
        """Return the translations of texts, in the same order.

        Parameters
        ----------
        texts : list of str
            Sentences to translate.
        beam_size : int
            Number of hypotheses of a beam search; 1 for greedy search.
        length_penalty : float
            As in `beam_search`.
        max_len : int, optional
            Largest number of tokens of a translation; by default twice that of the longest source
            in its batch, plus 10.
        batch_size : int
            Number of sentences that are translated at once.
        done : callable, optional
            Called after each batch with the number of sentences that are translated.
        n_best : int, optional
            Return a list of this number of translations for each text, best first, in place of the
            best one. At most `beam_size`.
        """
        checked_count("translate", "batch_size", batch_size)
        texts = check_texts(texts)
        if not texts:
            return []
        ids, tokens = self.encode(texts)
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # similar lengths together
        translations: dict[int, list[Translation]] = {}
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            width = len(tokens[rows[-1]]) + self.source_eos
            limit = min(2 * width + 10 if max_len is None else max_len, self.model.config.max_len)
            source = ids[rows, :width]
            if beam_size == 1 and n_best in (None, 1):
                results = [[h] for h in greedy_search(self.model, source, max_len=limit)]
            else:
                results = beam_search(
                    self.model,
                    source,
                    max_len=limit,
                    beam_size=beam_size,
                    length_penalty=length_penalty,
                    n_best=1 if n_best is None else n_best,
                )
            for i, best in zip(rows, results):
                words = [self.target_vocab.decode(h.tokens) for h in best]
                translations[i] = [
                    Translation(
                        texts[i], tokens[i], w, self.target_tokenizer.join(w), h.score, h.tokens
                    )
                    for h, w in zip(best, words)
                ]
            if done is not None:
                done(start + len(rows))
        ordered = [translations[i] for i in range(len(texts))]
        return [best for best, *_ in ordered] if n_best is None else ordered

    def unknown(self, translation: Translation) -> list[str]:
        """Return the source tokens that are not in the vocabulary.

        Parameters
        ----------
        translation : Translation
            A result of `translate`.
        """
        tokens = translation.source_tokens
        return [token for token, i in zip(tokens, self.source_vocab.encode(tokens)) if i == UNK]

    def attention(
        self, translation: Translation
    ) -> tuple[dict[str, list[np.ndarray]], list[str], list[str]]:
        """Return the `attention_maps` of a translation, and the tokens of source and target.

        Parameters: as `Translator.unknown`.
        """
        source = self.source_vocab.encode(translation.source_tokens, eos=self.source_eos)
        maps = attention_maps(self.model, source, translation.ids)
        source_tokens = translation.source_tokens + [SPECIALS[EOS]] * self.source_eos
        return maps, source_tokens, [self.target_vocab.tokens[i] for i in translation.ids]


def _tokenizer(settings: Settings) -> Tokenizer:
    with library_errors(settings.where):
        return tokenizer_named(**settings)


def _vocabulary(settings: Settings, side: str) -> Vocabulary:
    tokens = settings.list(side, str)
    try:
        return Vocabulary(tokens)
    except ValueError as error:
        raise ValueError(f"{settings.where}: {side}: {error}") from None
