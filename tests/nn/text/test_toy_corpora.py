"""Check the generated corpora by independent rules of grammar."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from nn.text import toy_corpora as corpora


def table(text: str) -> dict[str, str]:
    """Return a dict from pairs of words."""
    words = text.split()
    return dict(zip(words[::2], words[1::2]))


MASCULINE = table(
    "cat gato dog perro bird pájaro book libro tree árbol car coche hat sombrero train tren world mundo friend amigo child niño"
)
FEMININE = table(
    "house casa table mesa window ventana flower flor apple manzana orange naranja chair silla shirt camisa city ciudad teacher maestra"
)
PEOPLE = {"friend", "child", "teacher"}
ES_ADJECTIVES = table(
    "red rojo white blanco black negro green verde blue azul small pequeño new nuevo old viejo beautiful hermoso "
    "cheap barato ugly feo tall alto young joven clever inteligente"
)
ES_NUMBERS = table("two dos three tres four cuatro five cinco six seis")
# masculine and feminine, in the singular and in the plural
ES_ARTICLES = {
    "the": ("el la", "los las"), "a": ("un una", ""), "an": ("un una", ""), "this": ("este esta", ""), "that": ("ese esa", ""),
    "these": ("", "estos estas"), "those": ("", "esos esas"), "many": ("", "muchos muchas"),
}  # fmt: skip
# the name, and which of yo, tú, él, nosotros, ellos it goes with
ES_SUBJECTS = {
    "I": ("yo", 0), "you": ("tú", 1), "he": ("él", 2), "she": ("ella", 2), "Maria": ("María", 2), "Juan": ("Juan", 2),
    "my brother": ("mi hermano", 2), "we": ("nosotros", 3), "they": ("ellos", 4), "my sisters": ("mis hermanas", 4),
}  # fmt: skip
ES_VERBS = table(
    "buy comprar draw dibujar need necesitar sell vender see ver know conocer have tener want querer"
)
ES_IRREGULAR = {("ver", 0): "veo", ("conocer", 0): "conozco", ("tener", 0): "tengo"}
ES_ENDINGS = {"ar": ("o", "as", "a", "amos", "an"), "er": ("o", "es", "e", "emos", "en")}


def conjugated(verb: str, person: int) -> str:
    stem = verb[:-2]
    if verb in ("tener", "querer") and person != 3:  # where it is stressed, e becomes ie
        stem = stem[:-2] + "i" + stem[-2:]
    return ES_IRREGULAR.get((verb, person), stem + ES_ENDINGS[verb[-2:]][person])


def spanish_plural(word: str) -> str:
    return {"joven": "jóvenes"}.get(word, word + ("s" if word[-1] in "aeo" else "es"))


def agreeing(adjective: str, feminine: bool, many: bool) -> str:
    word = ES_ADJECTIVES[adjective]
    word = word[:-1] + "a" if feminine and word.endswith("o") else word
    return spanish_plural(word) if many else word


def spanish_noun(english: str, many: bool) -> tuple[str, bool, bool]:
    """Translate `[adjective] noun`; return the Spanish, is feminine, is a person."""
    *adjectives, noun = english.split()
    assert len(adjectives) <= 1
    if many:
        assert noun.endswith("s") or noun == "children", english
        noun = {"children": "child", "cities": "city"}.get(noun, noun[:-1])
    feminine = noun in FEMININE
    word = (FEMININE if feminine else MASCULINE)[noun]
    words = [
        spanish_plural(word) if many else word,
        *(agreeing(a, feminine, many) for a in adjectives),
    ]
    return " ".join(words), feminine, noun in PEOPLE


def spanish_phrase(english: str) -> tuple[str, bool, bool, bool]:
    """Translate `article [adjective] noun`; return the Spanish, is feminine, is plural, is a person."""
    first, rest = english.split(" ", 1)
    many = first in ES_NUMBERS or first in ("these", "those", "many")
    many |= first == "the" and rest.endswith(("s", "children"))
    assert first not in ("a", "an") or (first == "an") == (rest[0] in "aeiou"), english
    noun, feminine, person = spanish_noun(rest, many)
    article = ES_NUMBERS.get(first) or ES_ARTICLES[first][many].split()[feminine]
    return f"{article} {noun}", feminine, many, person


def spanish_object(english: str) -> str:
    phrase, _, _, person = spanish_phrase(english)
    return re.sub("^a el ", "al ", f"a {phrase}") if person else phrase


WHO = "|".join(ES_SUBJECTS)


def spanish(english: str) -> str:
    """Translate a sentence of the corpus by rules of Spanish."""
    if english == "hello":
        return "hola"
    if english.startswith("hello "):
        return f"hola {spanish_noun(english[6:], many=False)[0]}"
    if found := re.fullmatch(r"(.+?) (is|are) (not )?(\w+)", english):
        phrase, feminine, many, _ = spanish_phrase(found[1])
        assert found[2] == ("are" if many else "is"), english
        return f"{phrase} {'no ' if found[3] else ''}{'son' if many else 'es'} {agreeing(found[4], feminine, many)}"
    if asked := re.fullmatch(rf"(do|does) ({WHO}) (\w+) (.+) \?", english):
        does, who, verb, what = asked.groups()
    elif denied := re.fullmatch(rf"({WHO}) (do|does) not (\w+) (.+)", english):
        who, does, verb, what = denied.groups()
    elif said := re.fullmatch(rf"({WHO}) (\w+) (.+)", english):
        (who, verb, what), does = said.groups(), ""
    else:
        return spanish_phrase(english)[0]
    name, person = ES_SUBJECTS[who]
    assert does in ("", "does" if person == 2 else "do"), english
    if person == 2 and not does:
        assert verb.endswith("s"), english
        verb = {"has": "have"}.get(verb, verb[:-1])
    form = conjugated(ES_VERBS[verb], person)
    what = " y ".join(map(spanish_object, what.split(" and ")))
    return f"¿ {form} {name} {what} ?" if asked else f"{name} {'no ' if does else ''}{form} {what}"


@pytest.mark.parametrize("seed", [0, 1])
def test_english_spanish_equals_rules_of_spanish(seed: int) -> None:
    """Gender, number, order of adjectives, verb forms, and `a` before people."""
    for english, found in corpora.english_spanish(8000, seed):
        assert found == spanish(english), english


# measure word: the nouns that it goes with
ZH_NOUNS = {
    "只": "猫 cat 狗 dog 鸟 bird 兔子 rabbit", "条": "鱼 fish", "匹": "马 horse", "头": "大象 elephant",
    "本": "书 book 词典 dictionary", "张": "桌子 table 地图 map", "把": "椅子 chair 雨伞 umbrella",
    "个": "杯子 cup 苹果 apple 橙子 orange 盒子 box 朋友 friend 学生 student 孩子 child", "块": "手表 watch",
    "辆": "车 car 自行车 bicycle", "座": "房子 house", "位": "老师 teacher 医生 doctor",
}  # fmt: skip
ZH_NOUN = {
    noun: (english, measure)
    for measure, t in ZH_NOUNS.items()
    for noun, english in table(t).items()
}
ZH_ADJECTIVES = table(
    "大 big 小 small 新 new 旧 old 红 red 黑 black 白 white 可爱 cute 好看 nice 高 tall 年轻 young 聪明 clever"
)
ZH_VERBS = {
    **table("有 have 看见 see 喜欢 like 想要 want 需要 need 画 draw 认识 know 买 buy"),
    "找": "look for",
}
ZH_PAST = {"see": "saw", "draw": "drew", "buy": "bought", "look for": "looked for"}
# longer ones before those that they begin with
ZH_SUBJECTS = {
    "我 妈妈": "my mother", "我 爸爸": "my father", "他 的 老师": "his teacher", "她 的 朋友 们": "her friends",
    "那个 学生": "that student", "孩子 们": "the children", "我们": "we", "他们": "they", "小明": "Xiaoming", "我": "I",
    "你": "you", "他": "he", "她": "she",
}  # fmt: skip
ZH_THIRD = {"he", "she", "Xiaoming", "my mother", "my father", "his teacher", "that student"}
ZH_PLACES = {
    "学校": "at school", "家": "at home", "公园": "in the park", "图书馆": "in the library", "商店": "in the shop",
    "北京": "in Beijing", "医院": "in the hospital", "火车站": "at the station",
}  # fmt: skip
COUNTS = {"一": "", **table("两 two 三 three 四 four 五 five 六 six 七 seven 八 eight")}


def english_plural(noun: str) -> str:
    if noun in ("fish", "child"):
        return {"fish": "fish", "child": "children"}[noun]
    return noun[:-1] + "ies" if noun.endswith("ry") else noun + ("es" if noun[-1] in "xh" else "s")


def english_phrase(words: list[str]) -> str:
    measured, *adjective, noun = words
    english, measure = ZH_NOUN[noun]
    assert measured[1:] == measure and adjective[1:] in ([], ["的"]), words
    number = COUNTS[measured[0]]
    english = " ".join(
        [ZH_ADJECTIVES[a] for a in adjective[:1]] + [english_plural(english) if number else english]
    )
    return (
        f"{number} {english}" if number else f"{'an' if english[0] in 'aeiou' else 'a'} {english}"
    )


def english(chinese: str) -> str:
    """Translate a sentence of the corpus by rules of English."""
    words = chinese.split()
    if words[0][0] in "这那" and words[2] in ("很", "不") and words[-1] in ZH_ADJECTIVES:
        noun, measure = ZH_NOUN[words[1]]
        assert words[0][1:] == measure and len(words) == 4
        return f"{'this' if words[0][0] == '这' else 'that'} {noun} is {'not ' * (words[2] == '不')}{ZH_ADJECTIVES[words[3]]}"
    asked = words[-2:] == ["吗", "？"]
    words = words[:-2] if asked else words
    past = words[0] == "昨天"
    text = " ".join(words[past:])
    chosen = next(s for s in ZH_SUBJECTS if text.startswith(s + " "))
    who, rest = ZH_SUBJECTS[chosen], text[len(chosen) + 1 :].split()
    third = who in ZH_THIRD
    denied = rest[0] in ("不", "没有", "看不见")
    if denied:
        rest = (
            rest[1:] if rest[0] == "不" else [{"没有": "有", "看不见": "看见"}[rest[0]], *rest[1:]]
        )
    where = ""
    if rest[0] == "在":
        where, rest = " " + ZH_PLACES[rest[1]], rest[2:]
    if not rest:
        be = {"I": "am"}.get(who, "is" if third else "are")
        return f"{be} {who}{where} ?" if asked else f"{who} {be}{' not' * denied}{where}"
    verb, rest = ZH_VERBS[rest[0]], rest[1:]
    if past:
        assert rest[0] == "了"
        return f"yesterday {who} {ZH_PAST[verb]} {english_phrase(rest[1:])}"
    does, what = "does" if third else "do", english_phrase(rest) + where
    if asked:
        return f"{does} {who} {verb} {what} ?"
    first, *more = verb.split()
    verb3 = " ".join([{"have": "has"}.get(first, first + "s"), *more])
    return (
        f"{who} {does} not {verb} {what}" if denied else f"{who} {verb3 if third else verb} {what}"
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_chinese_english_equals_rules_of_english(seed: int) -> None:
    """Measure words, plurals, articles, verb forms, questions, negation and places."""
    for chinese, found in corpora.chinese_english(8000, seed):
        assert found == english(chinese), chinese


@pytest.mark.parametrize("pair", ["zh-en", "en-es"])
def test_corpora_contain_all_words(pair: str) -> None:
    made = {"zh-en": corpora.chinese_english, "en-es": corpora.english_spanish}[pair]
    pairs = made(8000, 0)
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == 8000
    assert pairs[: len(corpora.ALWAYS[pair])] == corpora.ALWAYS[pair] and made(50, 0) == pairs[
        :50
    ] != made(50, 1)
    tokens = Counter(token for sides in pairs for side in sides for token in side.split())
    if pair == "zh-en":
        assert ("我 有 一只 猫", "I have a cat") in pairs
        words = {
            *ZH_NOUN,
            *ZH_ADJECTIVES,
            *ZH_VERBS,
            *ZH_PLACES,
            "不",
            "没有",
            "吗",
            "很",
            "了",
            "昨天",
            "的",
        }
        measured = {n + m for n in "一两三四五六七八" for m in ZH_NOUNS}
        assert words | measured <= set(tokens)
        assert all(any(f"{s} " in a for a, _ in pairs) for s in ZH_SUBJECTS)
    else:
        assert ("hello world", "hola mundo") in pairs
        words = {
            "el",
            "la",
            "los",
            "las",
            "un",
            "una",
            "al",
            "a",
            "y",
            "no",
            "¿",
            "son",
            "es",
            "hola",
            *ES_NUMBERS.values(),
        }
        assert words | set(MASCULINE.values()) | set(FEMININE.values()) <= set(tokens)
        assert all(any(name in b for _, b in pairs) for name, _ in ES_SUBJECTS.values())
        assert all(conjugated(v, p) in tokens for v in ES_VERBS.values() for p in range(5))
        assert all(
            agreeing(a, f, many) in tokens
            for a in ES_ADJECTIVES
            for f in (True, False)
            for many in (True, False)
        )


def test_corpora_too_large_n_raises() -> None:
    draw = lambda d: (str(d.one([1, 2, 3])), "x")
    with pytest.raises(ValueError, match="n must be at most about 3, .*, got 5"):
        corpora._distinct(draw, 5, 0, [])
