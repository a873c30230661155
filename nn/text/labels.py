"""Labelled texts: facts before training, splits by label, and scores by label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from minigrad.io.reading import printable

from .pairs import Pair, random_order


def without_heading(pairs: Sequence[Pair]) -> tuple[list[Pair], Pair | None]:
    """Return labelled texts without a heading, and the heading if the first row is one.

    It is one if its text is a single word, and its label, unlike most others, occurs once.
    """
    counts = Counter(label for _, label in pairs)
    once = [label for label, count in counts.items() if count == 1]
    is_rare = counts[pairs[0][1]] == 1 and 2 * len(once) <= len(counts)
    if is_rare and len(pairs[0][0].split()) == 1 and len(counts) > 2:
        return list(pairs[1:]), pairs[0]
    return list(pairs), None


def label_warnings(pairs: Sequence[Pair]) -> list[str]:
    """Return what may be wrong with the labels of texts, a sentence each."""
    counts = Counter(label for _, label in pairs)
    quoted = lambda labels: ", ".join(repr(printable(label, 40)) for label in [*labels][:5])
    warnings = []
    if once := [label for label, count in counts.items() if count == 1]:
        warnings.append(f"{len(once):,} labels have a single text, such as {quoted(once)}")
    by_case: dict[str, list[str]] = {}
    for label in counts:
        by_case.setdefault(label.casefold(), []).append(label)
    if alike := [labels for labels in by_case.values() if len(labels) > 1]:
        warnings.append(f"labels differ in case only: {quoted(alike[0])}")
    if len(counts) > 10 and all(_is_number(label) for label in counts):
        warnings.append(f"the {len(counts):,} labels are numbers, each of which becomes a class")
    return warnings


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def split_by_label(pairs: Sequence[Pair], *sizes: int, seed: int) -> list[list[Pair]]:
    """Split labelled texts at random into parts with about equal shares of each label.

    `sizes` are those of the first parts. The rest is one more part, with every label. Nearly all
    texts keep their part if others are added.
    """
    keys = [random_order(seed, *pair) for pair in pairs]
    seen: Counter[str] = Counter()
    total = Counter(label for _, label in pairs)
    places = [0.0] * len(pairs)  # of a text among those of its label, from 0 to 1
    for i in sorted(range(len(pairs)), key=keys.__getitem__):
        label = pairs[i][1]
        seen[label] += 1
        is_last = seen[label] == total[label]
        places[i] = 2.0 if is_last else (seen[label] - keys[i][-1] / 256) / total[label]
    ranked = np.argsort(places, kind="stable").tolist()
    edges = [0, *accumulate(sizes), len(pairs)]
    return [[pairs[i] for i in ranked[start:end]] for start, end in pairwise(edges)]


def label_report(expected: Sequence[str], found: Sequence[str], labels: Sequence[str]) -> str:
    """Return a table of precision, recall, F1 and count of each label, and the accuracy.

    The last line has the accuracy of the most frequent label, for comparison.
    """
    counts, chosen = Counter(expected), Counter(found)
    right = Counter(a for a, b in zip(expected, found) if a == b)
    names = [printable(label, 40) for label in labels]
    width = max(5, *map(len, names))
    lines = [f"{'label':{width}}  precision  recall     F1  count"]
    scores = []
    for label, name in zip(labels, names):
        precision = right[label] / chosen[label] if chosen[label] else 0.0
        recall = right[label] / counts[label] if counts[label] else 0.0
        f1 = 2 * precision * recall / (precision + recall) if right[label] else 0.0
        if counts[label]:
            scores.append(f1)
        row = f"{precision:9.3f}  {recall:6.3f}  {f1:5.3f}  {counts[label]:5,}"
        lines.append(f"{name:{width}}  {row}")
    accuracy = right.total() / max(1, len(expected))
    best, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    lines.append(
        f"accuracy {accuracy:.3f}, mean F1 {sum(scores) / max(1, len(scores)):.3f}; always "
        f"{printable(best, 40)!r} would be {most / max(1, len(expected)):.3f}"
    )
    return "\n".join(lines)
