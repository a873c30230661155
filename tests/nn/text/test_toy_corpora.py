"""The generated corpora: translations of each construction of the grammars, and all their words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nn.text import toy_corpora as corpora

CHINESE_ENGLISH = {
    "那只 猫 很 白": "that cat is white",
    "这条 鱼 很 黑": "this fish is black",
    "那只 狗 不 白": "that dog is not white",
    "我 有 六条 鱼 吗 ？": "do I have six fish ?",
    "我 画 六个 孩子": "I draw six children",
    "她 画 一个 橙子": "she draws an orange",
    "他 找 八只 可爱 的 鸟": "he looks for eight cute birds",
    "我 妈妈 喜欢 一匹 马": "my mother likes a horse",
    "小明 有 六把 雨伞": "Xiaoming has six umbrellas",
    "她 没有 一只 狗": "she does not have a dog",
    "你 看不见 八辆 车": "you do not see eight cars",
    "昨天 她 找 了 三匹 马": "yesterday she looked for three horses",
    "昨天 我 画 了 八只 鸟": "yesterday I drew eight birds",
    "我 在 家 吗 ？": "am I at home ?",
    "她 不 在 家": "she is not at home",
    "他们 在 公园": "they are in the park",
    "你 在 家 买 四只 狗": "you buy four dogs at home",
}
ENGLISH_SPANISH = {
    "hello young child": "hola niño joven",
    "an apple is red": "una manzana es roja",
    "a cat is not old": "un gato no es viejo",
    "the dogs are not old": "los perros no son viejos",
    "five beautiful houses are new": "cinco casas hermosas son nuevas",
    "he draws the old cities": "él dibuja las ciudades viejas",
    "I have many old cars": "yo tengo muchos coches viejos",
    "he sees these young friends": "él ve a estos amigos jóvenes",
    "I see those cars": "yo veo esos coches",
    "I know a child": "yo conozco a un niño",
    "Maria knows the child": "María conoce al niño",
    "do they know the child ?": "¿ conocen ellos al niño ?",
    "my sisters know a teacher": "mis hermanas conocen a una maestra",
    "does he have a city ?": "¿ tiene él una ciudad ?",
    "we do not want a shirt": "nosotros no queremos una camisa",
    "he does not have that hat": "él no tiene ese sombrero",
    "you want a cat": "tú quieres un gato",
    "we buy a hat": "nosotros compramos un sombrero",
    "they sell a car": "ellos venden un coche",
    "I draw that car and a dog": "yo dibujo ese coche y un perro",
}


@pytest.mark.parametrize(
    ("generate", "expected"),
    [
        (corpora.chinese_english, CHINESE_ENGLISH),
        (corpora.english_spanish, ENGLISH_SPANISH),
    ],
)
def test_corpus_translates_each_construction(
    generate: Callable[..., list[corpora.Pair]], expected: dict[str, str]
) -> None:
    pairs = dict(generate(8000, 0))
    assert {source: pairs[source] for source in expected} == expected


def words_of(table: Any) -> Iterator[str]:
    """Yield the words of nested lists and dicts."""
    if isinstance(table, str):
        yield from table.split()
    elif isinstance(table, (list, dict)):
        for part in [*table, *(table.values() if isinstance(table, dict) else ())]:
            yield from words_of(part)


@pytest.mark.parametrize(
    ("name", "generate", "table"),
    [
        ("zh-en", corpora.chinese_english, corpora._CHINESE),
        ("en-es", corpora.english_spanish, corpora._SPANISH),
    ],
)
def test_corpus_contains_all_words_and_agrees_with_its_seed(
    name: str, generate: Callable[..., list[corpora.Pair]], table: dict[str, Any]
) -> None:
    pairs, always = generate(8000, 0), corpora.ALWAYS[name]
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 8000
    assert pairs[: len(always)] == always
    assert generate(50, 0) == pairs[:50] != generate(50, 1)
    text = "\n".join(f"{a}\n{b}" for a, b in pairs)
    parts = [table[part] for part in ("nouns", "adjectives", "subjects", "verbs")]
    missing = {word for word in words_of(parts) if word not in text}
    assert missing <= {"had", "liked", "wanted", "needed", "knew"}  # no deeds


def test_english_spanish_determiners_agree_with_their_nouns() -> None:
    text = "\n".join(spanish for _, spanish in corpora.english_spanish(8000, 0))
    feminine = [
        "casa",
        "mesa",
        "ventana",
        "flor",
        "manzana",
        "naranja",
        "silla",
        "camisa",
        "ciudad",
        "maestra",
    ]
    plural = [word + ("es" if word in ("flor", "ciudad") else "s") for word in feminine]
    nouns = set(re.findall(r"\b(?:la|una|esta|esa|las|estas|esas|muchas) (\w+)", text))
    assert nouns == {*feminine, *plural}
    others = set(re.findall(r"\b(?:el|al|un|este|ese|los|estos|esos|muchos) (\w+)", text))
    assert len(others) == 22 and not others & nouns


def test_corpus_of_too_many_pairs_raises() -> None:
    draw = lambda rng: (str(rng.integers(3)), "x")
    with pytest.raises(ValueError, match="n must be at most about 3, .*, got 5"):
        corpora._distinct(draw, 5, 0, [])
