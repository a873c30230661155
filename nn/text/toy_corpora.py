"""Two small translation corpora, generated from the words and patterns in `toy_words.json`.

The translations are not word for word. A model must learn measure words of Chinese, plurals,
agreement and articles of English, and gender, number, the order of adjectives and the personal `a`
of Spanish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Pair = tuple[str, str]

ALWAYS: dict[str, list[Pair]] = {
    "zh-en": [("我 有 一只 猫", "I have a cat")],
    "en-es": [("hello world", "hola mundo"), ("hello", "hola"), ("the world", "el mundo")],
}
"""First pairs of every corpus: the sentences that people try first."""

_WORDS: dict[str, Any] = json.loads(
    Path(__file__).with_name("toy_words.json").read_text(encoding="utf-8")
)
_CHINESE = _WORDS["chinese"]
_SPANISH = _WORDS["spanish"]


def _one(rng: np.random.Generator, options: Any) -> Any:
    """Return a random item of a list, or a random (key, value) pair of a dict."""
    items = list(options.items()) if isinstance(options, dict) else options
    return items[rng.integers(len(items))]


def _distinct(
    sentence: Callable[[np.random.Generator], Pair], n: int, seed: int, always: list[Pair]
) -> list[Pair]:
    """Return `n` pairs with different sources, those of `always` first."""
    rng = np.random.default_rng(seed)
    pairs = dict(always)
    idle = 0  # draws since the last new sentence
    while len(pairs) < n:
        source, target = sentence(rng)
        idle = idle + 1 if source in pairs else 0
        if idle > 10_000:
            raise ValueError(
                f"n must be at most about {len(pairs)}, the sentences of this grammar, got {n}"
            )
        pairs.setdefault(source, target)
    return list(pairs.items())[:n]


def _filled(patterns: Sequence[str], words: Mapping[str, str]) -> Pair:
    """Return a sentence and its translation by their patterns."""
    source, target = patterns
    return source.format_map(words), target.format_map(words)


def _article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


# -- Chinese to English ----------------------------------------------------------------------------


def _chinese_phrase(rng: np.random.Generator, noun: str) -> Pair:
    """Return a number with its measure word, perhaps an adjective, and the noun."""
    number, english_number = _one(rng, _CHINESE["numbers"]) if rng.random() < 0.6 else ("一", "")
    singular, plural, measure, adjectives = _CHINESE["nouns"][noun]
    words = [number + measure]
    english = singular if number == "一" else plural
    if rng.random() < 0.45:
        adjective = _one(rng, adjectives)
        words += [adjective, "的"]
        english = f"{_CHINESE['adjectives'][adjective]} {english}"
    english = _article(english) if number == "一" else f"{english_number} {english}"
    return " ".join([*words, noun]), english


def _chinese_sentence(rng: np.random.Generator) -> Pair:
    kind = _one(rng, _CHINESE["kinds"])
    subject, (who, is_third) = _one(rng, _CHINESE["subjects"])
    noun = _one(rng, list(_CHINESE["nouns"]))
    verbs = _CHINESE["verbs"]
    about_things = [verb for verb in verbs if verb != "认识"]
    verb = _one(rng, _CHINESE["verbs of people"] if noun in _CHINESE["people"] else about_things)
    base, third, past = verbs[verb]
    words = {
        "subject": subject,
        "who": who,
        "be": "is" if is_third else "am" if who == "I" else "are",
        "do": "does" if is_third else "do",
        "verb": verb,
        "base": base,
        "form": third if is_third else base,
        "past": past,
        "noun": noun,
    }
    if kind == "which":
        words["thing"], _, words["measure"], adjectives = _CHINESE["nouns"][noun]
        words["adjective"] = _one(rng, adjectives)
        words["quality"] = _CHINESE["adjectives"][words["adjective"]]
        words["这"], words["this"] = _one(rng, {"这": "this", "那": "that"})
        words["很"], words["is"] = ("不", "is not") if rng.random() < 0.3 else ("很", "is")
    elif kind == "where":
        words["place"], words["at"] = _one(rng, _CHINESE["places"])
        if rng.random() < 0.3:
            kind = "where not"
        elif rng.random() < 0.4:
            kind = "where question"
    else:
        words["phrase"], words["object"] = _chinese_phrase(rng, noun)
        if kind in ("where from", "past") and verb not in _CHINESE["deeds"]:
            kind = "have"
        elif kind == "where from":
            words["place"], words["at"] = _one(rng, _CHINESE["places"])
        elif kind == "not":
            words["no"] = {"有": "没有", "看见": "看不见"}.get(verb, f"不 {verb}")
    return _filled(_CHINESE["sentences"][kind], words)


def chinese_english(n: int = 8000, seed: int = 0) -> list[Pair]:
    """Generate `n` distinct Chinese sentences, as words, with their English translations."""
    return _distinct(_chinese_sentence, n, seed, ALWAYS["zh-en"])


# -- English to Spanish ----------------------------------------------------------------------------


def _spanish_noun(rng: np.random.Generator, noun: str, is_plural: bool) -> Pair:
    """Return a noun, perhaps with an adjective, which agrees with it in Spanish."""
    plural, spanish, spanish_plural, feminine, adjectives = _SPANISH["nouns"][noun]
    english, spanish = (plural, spanish_plural) if is_plural else (noun, spanish)
    if rng.random() < 0.55:
        adjective = _one(rng, adjectives)
        forms = _SPANISH["adjectives"][adjective]
        return f"{adjective} {english}", f"{spanish} {forms[2 * is_plural + feminine]}"
    return english, spanish


def _spanish_phrase(rng: np.random.Generator, noun: str) -> tuple[str, str, bool]:
    """Return an English noun phrase, its translation, and True if it is plural."""
    feminine = _SPANISH["nouns"][noun][3]
    determiners = _SPANISH["determiners"]
    kind = _one(rng, list(determiners))
    is_plural = rng.random() < 0.45
    is_plural = kind in ("number", "many") or (is_plural and kind != "a")
    english, spanish = _spanish_noun(rng, noun, is_plural)
    singular, (plural, forms) = _one(rng, determiners[kind])
    first = plural if is_plural else singular
    english = _article(english) if kind == "a" else f"{first} {english}"
    return english, f"{forms[2 * is_plural + feminine]} {spanish}", is_plural


def _spanish_object(rng: np.random.Generator, is_person: bool) -> Pair:
    """Return an object of a verb; Spanish has `a` before people, or `al` for `a el`."""
    people = _SPANISH["people"]
    things = [noun for noun in _SPANISH["nouns"] if noun not in people]
    english, spanish, _ = _spanish_phrase(rng, _one(rng, people if is_person else things))
    if is_person:
        spanish = f"al {spanish[3:]}" if spanish.startswith("el ") else f"a {spanish}"
    return english, spanish


def _spanish_sentence(rng: np.random.Generator) -> Pair:
    kind = _one(rng, _SPANISH["kinds"])
    noun = _one(rng, list(_SPANISH["nouns"]))
    words: dict[str, str] = {}
    if kind == "hello":
        words["english"], words["spanish"] = _spanish_noun(rng, noun, is_plural=False)
    elif kind in ("is", "is not"):
        words["english"], words["spanish"], is_plural = _spanish_phrase(rng, noun)
        feminine, adjectives = _SPANISH["nouns"][noun][3:]
        words["adjective"] = _one(rng, adjectives)
        words["quality"] = _SPANISH["adjectives"][words["adjective"]][2 * is_plural + feminine]
        words["is"], words["es"] = ("are", "son") if is_plural else ("is", "es")
    else:
        is_person = noun in _SPANISH["people"]
        verbs = _SPANISH["verbs"]
        words["subject"], (words["who"], person) = _one(rng, _SPANISH["subjects"])
        about_things = [verb for verb in verbs if verb != "know"]
        verb = _one(rng, _SPANISH["verbs of people"] if is_person else about_things)
        third, forms = verbs[verb]
        words |= {
            "do": "does" if person == 2 else "do",
            "base": verb,
            "verb": third if person == 2 else verb,
            "form": forms[person],
        }
        words["english"], words["spanish"] = _spanish_object(rng, is_person)
        if kind == "two":
            words["other"], words["otro"] = _spanish_object(rng, is_person)
    return _filled(_SPANISH["sentences"][kind], words)


def english_spanish(n: int = 8000, seed: int = 0) -> list[Pair]:
    """Generate `n` distinct English sentences with their Spanish translations."""
    return _distinct(_spanish_sentence, n, seed, ALWAYS["en-es"])
