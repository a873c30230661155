"""A trained translator: model, vocabularies and tokenizers, in a run directory and in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io import read_json, write_json
from minigrad.io.json import Settings, checksum
from minigrad.optim.settings import checked_count

from ..models.model_types import model_to_dict
from ..models.transformer import Transformer
from ..models.weights import load_model
from ..text import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer, Vocabulary, padded, tokenizer_named
from ..text.tokenize import library_errors
from .beam import beam_search, check_beam
from .inference import for_inference
from .search import attention_maps, greedy_search

__all__ = ["Translation", "Translator"]

_EXPECTED = "a run directory has config.json, vocab.json and weights"


@dataclass
class Translation:
    """A source sentence, its tokens, the tokens of its translation, and the text that they make."""

    source: str
    source_tokens: list[str]
    tokens: list[str]
    text: str
    score: float
    ids: list[int]


class Translator:
    """Translates text with a Transformer.

    With `source_eos`, EOS closes a source as it does a target. `save` and `load` keep
    everything but the weights in `config.json` and `vocab.json` of a run directory; the weights are
    those that a `Trainer` leaves there.
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
            raise ValueError(f"Translator: expected a Transformer, got a {type(model).__name__}")
        config = model.config
        for side, vocab in (("source", source_vocab), ("target", target_vocab)):
            if len(vocab) != (size := getattr(config, f"{side}_vocab_size")):
                raise ValueError(
                    f"the {side} vocabulary has {len(vocab)} tokens, but the model was made for "
                    f"{size}"
                )
        if (config.pad_id, config.bos_id) != (PAD, BOS) or EOS not in config.end_ids:
            own = f"pad_id={PAD}, bos_id={BOS} and eos_id={EOS}, the vocabularies' own"
            raise ValueError(
                f"Translator: expected {own}, got {config.pad_id}, {config.bos_id} and "
                f"{config.eos_id}"
            )
        self.model = model
        self.source_vocab, self.target_vocab = source_vocab, target_vocab
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.source_eos = source_eos

    def save(self, run_dir: str | Path, **settings: Any) -> None:
        """Write `vocab.json`, and `config.json` with any further settings, and checksums of all but
        the model's.

        The settings of the model stand beside the weights once more; `load` holds both against each
        other.
        """
        tokenizers = {
            "source": self.source_tokenizer.to_dict(),
            "target": self.target_tokenizer.to_dict(),
        }
        parts = {"tokenizers": tokenizers, "source_eos": self.source_eos}
        vocabs = {"source": self.source_vocab.tokens, "target": self.target_vocab.tokens}
        checksums = {
            name: checksum(data)
            for name, data in ({**parts, **settings, "vocab.json": vocabs}).items()
        }
        data = {"model": model_to_dict(self.model), **parts, **settings, "checksums": checksums}
        write_json(Path(run_dir) / "vocab.json", vocabs)
        write_json(
            Path(run_dir) / "config.json", data
        )  # the last: a directory that has it is whole

    def has_vocabularies_of(self, run_dir: str | Path) -> bool:
        """Whether these are the vocabularies that `save` wrote there."""
        own = {"source": self.source_vocab.tokens, "target": self.target_vocab.tokens}
        found = read_json(Path(run_dir) / "vocab.json", _EXPECTED)
        return {side: _vocabulary(found, side).tokens for side in own} == own

    @classmethod
    def load(
        cls, run_dir: str | Path, weights: str | None = "best.safetensors", inference: bool = True
    ) -> Translator:
        """The translator of a run directory, in evaluation mode; `weights=None` leaves its model
        untrained.

        Its model is a copy made by `for_inference`; `inference=False` gives one that can be trained
        on.
        """
        run_dir = Path(run_dir)
        data, vocabs = (
            read_json(run_dir / name, _EXPECTED) for name in ("config.json", "vocab.json")
        )
        tokenizers = data.object("tokenizers")
        split_source, split_target = (
            _tokenizer(tokenizers.object(side)) for side in ("source", "target")
        )
        source_vocab, target_vocab = (_vocabulary(vocabs, side) for side in ("source", "target"))
        source_eos = data.flag("source_eos", False)
        model = load_model(
            data.get("model"),
            f"{data.where}: model",
            None if weights is None else run_dir / weights,
        )
        try:
            translator = cls(
                model, source_vocab, target_vocab, split_source, split_target, source_eos
            )
        except ValueError as error:
            raise ValueError(f"{data.where}: {error}") from None
        data.expect_unchanged(**{"vocab.json": dict(vocabs)})
        translator.model = for_inference(model) if inference else model.eval()
        return translator

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
        """Texts as padded source ids (N, L), and as tokens."""
        tokens = [self.source_tokenizer(text) for text in texts]
        limit = self.model.config.max_len - self.source_eos
        for text, found in zip(texts, tokens):
            if not found:
                raise ValueError(f"nothing to translate: {text!r} has no tokens")
            if len(found) > limit:
                longer = f"a sentence of {len(found)} tokens is longer than the {limit} that the model takes"
                raise ValueError(f"{longer}: {text[:60]!r}...")
        return padded(
            [self.source_vocab.encode(found, eos=self.source_eos) for found in tokens]
        ), tokens

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int = 1,
        length_penalty: float = 1.0,
        max_len: int | None = None,
        batch_size: int = 64,
        done: Callable[[int], Any] | None = None,
    ) -> list[Translation]:
        """The translations of texts: greedily, or with a beam.

        `max_len` bounds the tokens of a translation: twice those of the longest source in its batch
        plus 10, unless given. `done` is called after each batch, with the number of sentences that
        are translated.
        """
        check_beam(beam_size, length_penalty)
        checked_count("translate", "batch_size", batch_size)
        if isinstance(texts, str):
            raise TypeError(f"translate: expected a list of texts, got one: {texts[:60]!r}")
        result: list[Translation | None] = [None] * len(texts)
        ids, tokens = self.encode(texts) if texts else (np.empty((0, 0)), [])
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # like lengths together
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            width = max(len(tokens[i]) for i in part) + self.source_eos
            limit = min(2 * width + 10 if max_len is None else max_len, self.model.config.max_len)
            source = ids[part, :width]
            if beam_size == 1:
                best = greedy_search(self.model, source, max_len=limit)
            else:
                beam = {"beam_size": beam_size, "length_penalty": length_penalty}
                best = [h for h, *_ in beam_search(self.model, source, max_len=limit, **beam)]  # type: ignore[arg-type]
            for i, h in zip(part, best):
                words = self.target_vocab.decode(h.tokens)
                text = self.target_tokenizer.join(words)
                result[i] = Translation(texts[i], tokens[i], words, text, h.score, h.tokens)
            if done is not None:
                done(start + len(part))
        return [translation for translation in result if translation is not None]

    def unknown(self, translation: Translation) -> list[str]:
        """The source tokens that the vocabulary does not have."""
        found = zip(translation.source_tokens, self.source_vocab.encode(translation.source_tokens))
        return [token for token, i in found if i == UNK]

    def attention(
        self, translation: Translation
    ) -> tuple[dict[str, list[np.ndarray]], list[str], list[str]]:
        """What each head attended to (see `attention_maps`), and the tokens of source and target."""
        source = self.source_vocab.encode(translation.source_tokens, eos=self.source_eos)
        maps = attention_maps(self.model, source, translation.ids)
        source_tokens = translation.source_tokens + [SPECIALS[EOS]] * self.source_eos
        return maps, source_tokens, [self.target_vocab.tokens[i] for i in translation.ids]


def _tokenizer(settings: Settings) -> Tokenizer:
    with library_errors(settings.where):
        return tokenizer_named(**settings)


def _vocabulary(settings: Settings, side: str) -> Vocabulary:
    tokens = settings.list(side, str)
    if tokens[BOS : BOS + 1] == ["<sos>"]:  # as older versions wrote it
        tokens[BOS] = SPECIALS[BOS]
    try:
        return Vocabulary(tokens)
    except ValueError as error:
        raise ValueError(f"{settings.where}: {side}: {error}") from None
