"""The generated corpora: translations of each construction of the grammars, and all their words."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from nn.text import toy_corpora as corpora

CHINESE_ENGLISH = {
    "我 有 一只 猫": "I have a cat",
    "那只 猫 很 白": "that cat is white",
    "那只 狗 不 白": "that dog is not white",
    "我 有 六条 鱼 吗 ？": "do I have six fish ?",
    "我 画 六个 孩子": "I draw six children",
    "她 画 一个 橙子": "she draws an orange",
    "他 找 八只 可爱 的 鸟": "he looks for eight cute birds",
    "她 没有 一只 狗": "she does not have a dog",
    "你 看不见 八辆 车": "you do not see eight cars",
    "昨天 她 找 了 三匹 马": "yesterday she looked for three horses",
    "我 在 家 吗 ？": "am I at home ?",
    "她 不 在 家": "she is not at home",
    "他们 在 公园": "they are in the park",
    "你 在 家 买 四只 狗": "you buy four dogs at home",
}
ENGLISH_SPANISH = {
    "hello world": "hola mundo",
    "hello": "hola",
    "the world": "el mundo",
    "hello young child": "hola niño joven",
    "an apple is red": "una manzana es roja",
    "the dogs are not old": "los perros no son viejos",
    "five beautiful houses are new": "cinco casas hermosas son nuevas",
    "I have many old cars": "yo tengo muchos coches viejos",
    "he sees these young friends": "él ve a estos amigos jóvenes",
    "Maria knows the child": "María conoce al niño",
    "my sisters know a teacher": "mis hermanas conocen a una maestra",
    "does he have a city ?": "¿ tiene él una ciudad ?",
    "he does not have that hat": "él no tiene ese sombrero",
    "we buy a hat": "nosotros compramos un sombrero",
    "I draw that car and a dog": "yo dibujo ese coche y un perro",
}


@pytest.mark.parametrize(
    ("name", "generate", "expected", "words", "checksum"),
    [
        ("zh-en", corpora.chinese_english, CHINESE_ENGLISH, (195, 128), 2504584113),
        ("en-es", corpora.english_spanish, ENGLISH_SPANISH, (104, 172), 860486546),
    ],
)
def test_corpus_has_each_construction_and_all_words(
    name: str,
    generate: Callable[..., list[corpora.Pair]],
    expected: dict[str, str],
    words: tuple[int, int],
    checksum: int,
) -> None:
    """Keep the pairs of a seed, so that results of models on them stay comparable."""
    pairs, always = generate(), corpora.ALWAYS[name]
    assert expected.items() <= dict(pairs).items()
    sides = [*zip(*pairs)]
    assert [len(set(side)) for side in sides] == [8000, 8000]
    assert tuple(len(set(" ".join(side).split())) for side in sides) == words
    assert pairs[: len(always)] == always == [*expected.items()][: len(always)]
    assert zlib.crc32(repr(pairs).encode()) == checksum
    assert generate(50, 0) == pairs[:50] != generate(50, 1) and generate(1) == always[:1]


def test_corpus_of_too_many_pairs_raises() -> None:
    draw: Callable[[np.random.Generator], corpora.Pair] = lambda rng: (str(rng.integers(3)), "x")
    with pytest.raises(ValueError, match="n must be at most about 3, .*, got 5"):
        corpora._distinct(draw, 5, 0, [])


def test_corpus_whose_sentences_are_drawn_seldom_has_all_of_them() -> None:
    numbers = itertools.count()
    draw: Callable[[np.random.Generator], corpora.Pair] = lambda rng: (
        str(next(numbers) // 6_000),
        "x",
    )
    assert [a for a, _ in corpora._distinct(draw, 4, 0, [])] == [*"0123"]
