"""Recording of a training run of `by_hand`, and the page that replays it. Lesson 7 and the site use it.

The page opens at the depth of a lesson: `watch.html#lesson=3` shows the heads, `#lesson=4` the mask.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
from by_hand import BOS, EOS, PAD, Parameters, linear

import minigrad as mg
from nn.text import toy_corpora
from nn.text.vocabulary import Vocabulary

__all__ = ["Recording", "known_words", "watch_page"]

STEPS = (
    0,
    1,
    2,
    3,
    5,
    8,
    12,
    16,
    20,
    25,
    30,
    36,
    42,
    50,
    60,
    70,
    80,
    90,
    100,
    115,
    130,
    145,
    160,
    180,
    200,
)
SENTENCE = "我 有 一只 猫"
WEIGHT = ("output.bias", "a")  # how much the model likes a word before it has read anything
VALUES = np.linspace(-4, 4, 9)  # of this weight, for the curve of the loss
GRAMMAR = {
    "的": "(joins adjective and noun)",
    "了": "(past)",
    "吗": "(question)",
    "？": "?",
    "们": "(plural)",
    "在": "in, at",
    "不": "not",
    "没有": "not have",
    "看不见": "not see",
    "很": "(is)",
    "昨天": "yesterday",
    "妈妈": "mother",
    "爸爸": "father",
}


class Recording:
    """What a model says and where it attends, at some steps of its training.

    Parameters
    ----------
    p : dict of str to Tensor
        Parameters, which training changes in place.
    source_words, target_words : Vocabulary
    known, held_out : sequence of (source, target)
        Sentences that the model learns from, and new ones, as lists of words.
    heads, layers : int
    total : int
        Number of steps of the training.
    """

    def __init__(
        self,
        p: Parameters,
        source_words: Vocabulary,
        target_words: Vocabulary,
        known: Sequence[tuple[list[str], list[str]]],
        held_out: Sequence[tuple[list[str], list[str]]],
        heads: int,
        layers: int,
        total: int,
    ) -> None:
        self.p, self.heads, self.layers = p, heads, layers
        self.source_words, self.target_words = source_words, target_words
        self.steps = {*STEPS, *range(240, total, 40), total}
        self.total = total
        self.known, self.new = self._ids(known[:32]), self._ids(held_out[:150])
        middle = [s for s, _ in held_out if 4 <= len(s) <= 6][:45:15]
        self.sentences = [SENTENCE.split(), *middle]
        right = {" ".join(source): target for source, target in [*known, *held_out]}
        self.answers = [right.get(" ".join(source), []) for source in self.sentences]
        self.losses: list[float] = []
        self.snapshots = [self._snapshot(0)]

    def keep(self, losses: Iterable[float]) -> list[float]:
        """Go through the losses of a training, and take a snapshot after some of its steps."""
        for loss in losses:
            self.losses.append(round(loss, 4))
            if len(self.losses) in self.steps:
                self.snapshots.append(self._snapshot(len(self.losses)))
        return self.losses

    def data(self) -> dict[str, Any]:
        """Return the recording as JSON can hold it."""
        words = known_words(self.source_words.tokens[4:])
        return {
            "sentences": self.sentences,
            "answers": self.answers,
            "tokens": self.target_words.tokens,
            "words": words,
            "snapshots": self.snapshots,
            "losses": self.losses,
            "heads": self.heads,
            "size": self._width() // self.heads,
            "guess": round(float(np.log(len(self.target_words))), 4),
            "weights": int(sum(t.size for t in self.p.values())),
            "weight": {"word": WEIGHT[1], "values": VALUES.tolist()},
        }

    def _width(self) -> int:
        return int(self.p["target_embedding.tokens.weight"].shape[1])

    def _ids(self, pairs: Sequence[tuple[list[str], list[str]]]) -> tuple[np.ndarray, np.ndarray]:
        from nn.text.batches import padded

        sources = [self.source_words.encode(source) for source, _ in pairs]
        targets = [self.target_words.encode(target, bos=True, eos=True) for _, target in pairs]
        return padded(sources), padded(targets)

    def _snapshot(self, step: int) -> dict[str, Any]:
        source, target = self.new
        said = by_hand.translate(self.p, source, self.heads, self.layers, target.shape[1])
        return {
            "step": step,
            "right": round(float((said == target).all(1).mean()), 3),
            "weight": self._weight(),
            "runs": [self._run(sentence) for sentence in self.sentences],
        }

    def _weight(self) -> dict[str, Any]:
        """Return a weight, its gradient, and the loss for some values of it, on a fixed batch."""
        name, word = WEIGHT
        t, i = self.p[name], self.target_words.encode([word])[0]
        value = float(t.data[i])
        by_hand.loss(self.p, *self.known, self.heads, self.layers).backward()
        gradient = float(t.grad.data[i])
        for other in self.p.values():
            other.grad = None
        curve = []
        with mg.no_grad():
            for t.data[i] in VALUES:
                loss = by_hand.loss(self.p, *self.known, self.heads, self.layers).item()
                curve.append(round(loss, 4))
        t.data[i] = value
        return {"value": round(value, 5), "gradient": round(gradient, 6), "curve": curve}

    def _run(self, sentence: list[str], longest: int = 10) -> dict[str, Any]:
        """Return what the model says to a sentence, and the scores behind its attention."""
        p, source = self.p, np.array([self.source_words.encode(sentence)])
        with mg.no_grad():
            said = self._say(source, longest)
            read = np.array([[BOS, *said[:-1]]])
            memory = by_hand.encode(p, source, self.heads, self.layers)
            logits = by_hand.decode(p, read, memory, source, self.heads, self.layers).data[0]
            queries, keys, scores, states = self._inside(read, memory, source)
            lens = [_likeliest(linear(p, "output", x).data[0], 1) for x in states]
            silent = [self._without(head, source, longest) for head in range(self.heads)]
            top = _likeliest(logits, 8)
            begun = self._beginnings([i for i, _ in top[0][:3]], memory, source, longest)
        return {
            "said": said,
            "top": top,
            "lens": [[row[0] for row in part] for part in lens],
            "begun": begun,
            "queries": _packed(queries),
            "keys": _packed(keys),
            "scores": _packed(scores),
            "silent": silent,
        }

    def _say(self, source: np.ndarray, longest: int) -> list[int]:
        row = by_hand.translate(self.p, source, self.heads, self.layers, longest)[0, 1:]
        return [int(i) for i in row[: 1 + int(np.argmax(row == EOS))] if (row == EOS).any()] or [
            int(i) for i in row
        ]

    def _beginnings(
        self, first: list[int], memory: mg.Tensor, source: np.ndarray, longest: int
    ) -> list[Any]:
        """Return sentences that begin with some words and go on with the likeliest, and their probabilities."""
        rows = [np.repeat(x, len(first), 0) for x in (memory.data, source)]
        said = np.column_stack([np.full(len(first), BOS), first])
        for _ in range(longest - 2):  # `longest` counts the start, too
            memories = mg.Tensor(rows[0])
            logits = by_hand.decode(self.p, said, memories, rows[1], self.heads, self.layers).data
            said = np.column_stack([said, logits[:, -1].argmax(-1)])
        words = said[:, 1:]
        log_p = np.take_along_axis(mg.log_softmax(logits).data, words[..., None], -1)[..., 0]
        is_part = np.cumsum(words == EOS, 1) - (words == EOS) == 0  # up to the first end
        return [
            [words[i][is_part[i]].tolist(), float(f"{np.exp(log_p[i][is_part[i]].sum()):.3g}")]
            for i in range(len(first))
        ]

    def _without(self, head: int, source: np.ndarray, longest: int) -> list[int]:
        """Return what the model says if a head of the last cross-attention adds nothing."""
        name = f"decoder.layers.{self.layers - 1}.cross_attention.out_proj.weight"
        weight, size = self.p[name].data, self._width() // self.heads
        columns = slice(head * size, (head + 1) * size)
        kept = weight[:, columns].copy()
        weight[:, columns] = 0
        said = self._say(source, longest)
        weight[:, columns] = kept
        return said

    def _inside(
        self, read: np.ndarray, memory: mg.Tensor, source: np.ndarray
    ) -> tuple[Any, Any, Any, list[mg.Tensor]]:
        """Return what is inside the last layer of the decoder.

        Queries and keys of cross-attention (h, L, d_k), scores of self-attention (h, L, L) before the mask, and the
        vectors (1, L, d) before the layer and after each of its parts.
        """
        p, h, x = self.p, self.heads, by_hand.embed(self.p, "target", read)
        known = (source != PAD)[:, None, None]
        past = np.tri(read.shape[1], dtype=bool) & (read != PAD)[:, None, None]

        def parts(name: str, y: mg.Tensor, other: mg.Tensor) -> tuple[np.ndarray, np.ndarray]:
            split = lambda z: z.data.reshape(z.shape[1], h, -1).swapaxes(0, 1)
            q, k = (linear(p, f"{name}.{part}_proj", z) for part, z in (("q", y), ("k", other)))
            return split(q), split(k)

        for i in range(self.layers):
            at, states = f"decoder.layers.{i}", [x]
            q, k = parts(f"{at}.self_attention", x, x)
            scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
            x = by_hand.norm(
                p, f"{at}.norm1", x + by_hand.attention(p, f"{at}.self_attention", x, x, past, h)
            )
            states.append(x)
            q, k = parts(f"{at}.cross_attention", x, memory)
            found = by_hand.attention(p, f"{at}.cross_attention", x, memory, known, h)
            x = by_hand.norm(p, f"{at}.norm2", x + found)
            states.append(x)
            x = by_hand.norm(p, f"{at}.norm3", x + by_hand.feed_forward(p, f"{at}.feed_forward", x))
            states.append(x)
        return q, k, scores, states


def _likeliest(logits: np.ndarray, count: int) -> list[list[list[float]]]:
    """Return the likeliest words at each place (L, V), as pairs of an id and its probability."""
    top = np.argsort(-logits, axis=-1)[:, :count]
    sure = np.take_along_axis(mg.softmax(logits).data, top, -1)
    return [[[int(i), round(float(s), 4)] for i, s in zip(*row)] for row in zip(top, sure)]


def _packed(values: np.ndarray) -> str:
    """Return values in hundredths, as 16-bit integers in base 64."""
    return base64.b64encode(np.round(100 * values).astype("<i2").tobytes()).decode()


def known_words(tokens: Iterable[str]) -> dict[str, list[list[str]]]:
    """Return kinds of Chinese words, and of each kind the words among `tokens` with their English."""
    path = Path(toy_corpora.__file__).with_name("toy_words.json")
    data = json.loads(path.read_text("utf-8"))["chinese"]
    nouns = {noun: forms[0] for noun, forms in data["nouns"].items()}
    counted: dict[str, str] = {}  # measure words, each with the first noun that it counts
    for english, _, measure, _ in data["nouns"].values():
        counted.setdefault(measure, english)
    numbers = {**data["numbers"], "一": "a", "这": "this", "那": "that"}
    kinds = {
        "subjects": {subject: who for subject, (who, _) in data["subjects"].items()},
        "verbs": {verb: forms[0] for verb, forms in data["verbs"].items()},
        "nouns": nouns,
        "adjectives": data["adjectives"],
        "places": {place: at.split()[-1] for place, at in data["places"].items()},
        "numbers": {
            f"{number}{measure}": f"{english} ({noun})"
            for number, english in numbers.items()
            for measure, noun in counted.items()
        },
        "grammar": GRAMMAR,
    }
    known = {*tokens}
    return {
        kind: [[word, english] for word, english in words.items() if word in known]
        for kind, words in kinds.items()
    }


def watch_page(
    data: dict[str, Any], language: str = "en", lesson: int | None = None, live: str = ""
) -> str:
    """Return one HTML file that replays a recording.

    Parameters
    ----------
    data : dict
        `Recording.data()`.
    language : {"en", "zh"}
        Language, if the address of the page does not name one.
    lesson : int, optional
        Lesson at whose depth the page opens, if its address names none. None shows all at once.
    live : str
        Address of the live translator, which translates other sentences. Without it the page has no field for them.
    """
    page = Path(__file__).with_name("watch.html").read_text("utf-8")
    settings = {"language": language, "lesson": lesson, "live": live}
    for name, value in (("settings", settings), ("data", data)):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
        page = page.replace(f"@{name}@", text)
    return page
