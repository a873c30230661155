"""BPE dropout: subword regularization by leaving out merges at random."""

from __future__ import annotations

import json
import math

_OTHER_ALGORITHMS = (
    "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges",
)  # fmt: skip


class BPEDropout:
    """Tokenizer that leaves out each possible merge with probability `p`, for training.

    A model thus sees words split in many ways. To translate, use `tokenizer` itself. Build the
    vocabulary of all `tokenizer.pieces`.

    Parameters
    ----------
    tokenizer : BPETokenizer
        Tokenizer whose merges are dropped.
    p : float, default 0.1
        At least 0 and less than 1.

    References
    ----------
    Provilkov, Emelianenko, Voita (2020), arXiv:1910.13267.
    """

    def __init__(self, tokenizer, p=0.1):
        if not 0 <= p < 1:
            raise ValueError(f"p must be at least 0 and less than 1, got {p}")
        data = json.loads(tokenizer.model)
        model = {"normalizer": data["normalizer"], **data["model"]}
        if others := [name for name in ("normalizer", *_OTHER_ALGORITHMS) if model.get(name)]:
            raise ValueError(f"tokenizer must be made by BPETokenizer.train, got {others}")
        pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
        self.tokenizer = tokenizer
        self.p = p
        self._ranks = {(a, b): i for i, (a, b) in enumerate(pairs)}

    def __call__(self, text, generator):
        """Return the tokens of a string, with merges drawn from `generator`."""
        words = self.tokenizer.words(text)
        steps = sum(map(len, words))  # a word has fewer merges than letters
        skipped = iter((generator.geometric(1 - self.p, steps) - 1).tolist())
        return [piece for word in words for piece in self._split(word, skipped)]

    def _split(self, word, skipped):
        """Merge until no merge is possible, or all possible merges are left out.

        Each `skipped`, a geometric variable, is the number of the best merges that are left out.
        """
        pieces = list(word)
        rank = lambda i: self._ranks.get((pieces[i], pieces[i + 1]), math.inf)
        ranks = [rank(i) for i in range(len(pieces) - 1)]  # of each piece and the next
        while ranks:
            left_out = next(skipped)
            if left_out >= len(ranks):
                break
            i = sorted(range(len(ranks)), key=ranks.__getitem__)[left_out]
            if ranks[i] == math.inf:
                break
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
            del ranks[i]
            for j in range(max(i - 1, 0), min(i + 1, len(ranks))):
                ranks[j] = rank(j)
        return pieces
