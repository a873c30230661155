"""Cutting up text as SentencePiece does by a unigram language model (Kudo 2018, arXiv:1804.10959)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

__all__ = ["normalizer", "segmenter"]

NORMAL, USER_DEFINED = 1, 4  # kinds of pieces
UNKNOWN_PENALTY = 10.0


def normalizer(charsmap: bytes) -> Callable[[str], str]:
    """A function that replaces, from left to right, the longest part of a text that a table knows.

    The table is the size of a double-array trie, the trie (Aoe 1989; of 32 bits for each node), which has the UTF-8 of
    what is replaced, and the replacements, each with a zero behind it.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if charsmap and (size % 4 or not 0 < size <= len(charsmap) - 4):
        raise ValueError(f"charsmap: expected a trie of {size} bytes within {len(charsmap)}")
    nodes, replacements = np.frombuffer(charsmap[4 : 4 + size], "<u4").tolist(), charsmap[4 + size :]

    def longest(data: bytes, start: int) -> tuple[int, int]:
        """How many bytes from `start` the longest match has (0: none), and where its replacement begins."""
        found, node = (0, 0), _children(nodes[0])
        for i in range(start, len(data)):
            node ^= data[i]
            if node >= len(nodes) or nodes[node] & 0x800000FF != data[i]:
                break
            has_value = nodes[node] >> 8 & 1
            node ^= _children(nodes[node])
            if has_value and node < len(nodes):
                found = i + 1 - start, nodes[node] & 0x7FFFFFFF
        return found

    def normalized(text: str) -> str:
        data, parts, at = text.encode(), [], 0
        while at < len(data):
            length, place = longest(data, at)
            if length:
                parts.append(replacements[place : replacements.find(b"\0", place)])
            else:  # one character as it is
                length = 1 + sum(data[at] >= first for first in (0xC0, 0xE0, 0xF0))
                parts.append(data[at : at + length])
            at += length
        return b"".join(parts).decode("utf-8", "replace")

    return normalized if charsmap else lambda text: text


def _children(node: int) -> int:
    """Where the children of a node are: their places are this number XOR their bytes."""
    return node >> 10 << (node >> 6 & 8)


def segmenter(pieces: Sequence[tuple[str, float, int]], charsmap: bytes) -> Callable[[str], list[str]]:
    """A function from a text to the likeliest pieces for it, of those given with their scores and kinds.

    Spaces become "▁", one before each word; what no piece covers is one piece by itself.
    """
    normal = [score for _, score, kind in pieces if kind == NORMAL]
    highest, unknown = max(normal, default=0.0), float(np.float32(min(normal, default=0.0) - UNKNOWN_PENALTY))
    own = lambda piece, score, kind: len(piece.encode()) * highest - 0.1 if kind == USER_DEFINED else score
    scores = {piece: own(piece, score, kind) for piece, score, kind in pieces if kind in (NORMAL, USER_DEFINED)}
    longest, normalize = max(map(len, scores), default=1), normalizer(charsmap)

    def cut(text: str) -> list[str]:
        words = re.sub(" +", " ", normalize(text)).strip(" ")
        text = "▁" + words.replace(" ", "▁") if words else ""
        best, begins = [0.0] + [-math.inf] * len(text), [0] * (len(text) + 1)  # of the pieces up to each place
        for start in range(len(text)):
            for end in range(start + 1, min(start + longest, len(text)) + 1):
                score = scores.get(text[start:end], unknown if end == start + 1 else None)
                # in single precision, as theirs, which decides between equals
                if score is not None and (total := float(np.float32(best[start] + score))) > best[end]:
                    best[end], begins[end] = total, start
        return _joined(text, begins, scores)

    return cut


def _joined(text: str, begins: Sequence[int], known: Mapping[str, float]) -> list[str]:
    """The pieces that end a text, and end before them, and so on; unknown ones that are neighbours as one."""
    found, end = list[str](), len(text)
    while end:
        piece, end = text[begins[end] : end], begins[end]
        if piece not in known and found and found[-1] not in known:
            found[-1] = piece + found[-1]
        else:
            found.append(piece)
    return found[::-1]
