"""Calls of the live page, which runs the library in the browser. Each takes and returns JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import no_grad, softmax
from minigrad.fast.runtime import has_blas
from minigrad.optim import Adam
from nn import Transformer, Translation, Translator, explore, gate_heads
from nn.decoding.search import target_inputs
from nn.options.probes import attentions_of
from nn.text.batches import padded
from nn.text.toy_corpora import chinese_english
from nn.text.vocabulary import Vocabulary

__all__ = ["Asked"]

REMEMBERED = 16  # old sentences in each batch of teaching, so that these are not forgotten


class Asked:
    """A trained translator that translates with some heads silenced, and learns new sentences."""

    def __init__(self, run_dir: str) -> None:
        self.run_dir = Path(run_dir)
        self.known = [(s.split(), t.split()) for s, t in chinese_english(400)]
        self.forget()

    def forget(self, _: str = "") -> str:
        """Go back to the weights of the run."""
        self.translator = Translator.load(self.run_dir, inference=False)
        return "null"

    def about(self, _: str = "") -> str:
        """Return the heads of each attention, the known words, some sentences, the model's size and its platform."""
        heads = {
            name: attention.num_heads
            for name, attention in attentions_of(self.translator.model).items()
        }
        return json.dumps(
            {
                "heads": heads,
                "words": self.translator.source_vocab.tokens[4:],
                "examples": [" ".join(source) for source, _ in self.known[:1] + self.known[20:27]],
                "parameters": self.translator.model.num_parameters(),
                "numpy": np.__version__,
                "blas": has_blas(),
            }
        )

    def translate(self, asked: str) -> str:
        """Translate the text of {"text", "silent": {name: heads}}; return unknown words and the page of attention too."""
        call = json.loads(asked)
        with gate_heads(self.translator.model, self._gates(call["silent"])):
            found = self.translator.translate([call["text"]])[0]
            page = self._explored(found, call.get("language", "en"))
        unknown = self.translator.unknown(found)
        return json.dumps(
            {"text": found.text, "score": found.score, "unknown": unknown, "page": page}
        )

    def record(self, asked: str) -> str:
        """Translate the text of {"text"}; return the attention of the last layers at each step, for the first page.

        "encoder", "decoder" and "cross" are weights (h, L_q, L_kv), to three digits. Row i of the last
        two, and of "sure", is the step that writes token i of "target".
        """
        translator = self.translator
        said = translator.translate([json.loads(asked)["text"]])[0]
        maps, source, target = translator.attention(said)
        ids = translator.source_vocab.encode(source)
        with no_grad():
            logits = translator.model([ids], target_inputs(translator.model, said.ids))
        sure = softmax(logits[0]).data[np.arange(len(said.ids)), said.ids]
        short = lambda values: values.astype(float).round(3).tolist()
        run = {"source": source, "target": target, "unknown": translator.unknown(said)}
        run |= {"sure": short(sure)} | {kind: short(of[-1]) for kind, of in maps.items()}
        return json.dumps(run)

    def _gates(self, silent: dict[str, list[int]]) -> dict[str, np.ndarray]:
        found = attentions_of(self.translator.model)
        return {
            name: ~np.isin(np.arange(found[name].num_heads), heads)
            for name, heads in silent.items()
        }

    def _explored(self, said: Translation, language: str) -> str:
        translator = self.translator
        ids = translator.source_vocab.encode(said.source_tokens)
        words = translator.target_vocab.tokens
        target = [words[i] for i in said.ids]
        return str(
            explore(
                translator.model,
                ids,
                said.source_tokens,
                said.ids,
                target,
                vocabulary=words,
                language=language,
                backward=True,
            )
        )

    def teach(self, asked: str) -> Iterator[str]:
        """Learn {"pairs", "steps"}; yield at each step the loss of the new sentences and of old ones beside them."""
        call = json.loads(asked)
        new = [(source.split(), target.split()) for source, target in call["pairs"]]
        if not new or not all(source and target for source, target in new):
            raise ValueError("each new sentence needs some words on both sides")
        self._make_room(new)
        model, rng = self.translator.model, np.random.default_rng(0)
        optimizer = Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9, clip_norm=1.0)
        for _ in range(call["steps"]):
            old = [self.known[i] for i in rng.choice(len(self.known), REMEMBERED, replace=False)]
            fresh, kept = (model.loss(*self._ids(pairs)) for pairs in (new, old))
            optimizer.zero_grad()
            (fresh + kept).backward()
            optimizer.step()
            yield json.dumps({"new": fresh.item(), "old": kept.item()})

    def _ids(self, pairs: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        source, target = self.translator.source_vocab, self.translator.target_vocab
        return (
            padded([source.encode(s) for s, _ in pairs]),
            padded([target.encode(t, bos=True, eos=True) for _, t in pairs]),
        )

    def _make_room(self, pairs: list[Any]) -> None:
        """Add new words to the vocabularies, and a row for each to the tables of the model."""
        old = self.translator
        vocabs = []
        for side, vocab in enumerate((old.source_vocab, old.target_vocab)):
            words = dict.fromkeys(
                word for pair in pairs for word in pair[side] if word not in vocab
            )
            vocabs.append(Vocabulary([*vocab.tokens, *words]))
        sizes = {"source_vocab_size": len(vocabs[0]), "target_vocab_size": len(vocabs[1])}
        model = Transformer(replace(old.model.config, **sizes)).eval()
        weights = model.state_dict()
        for name, trained in old.model.state_dict().items():
            weights[name][: len(trained)] = (
                trained  # of a table, the first rows; of all else, everything
            )
        model.load_state_dict(weights)
        self.translator = Translator(model, *vocabs, old.source_tokenizer, old.target_tokenizer)
