"""Two small language pairs, made by grammars: sentences to learn translation from.

`chinese_english(n)` and `english_spanish(n)` give `n` distinct pairs, drawn by a seed, those of `ALWAYS` first. Each
source sentence has one translation. What a model must learn is not word for word: Chinese measure words, plurals,
agreement and the articles of English; Spanish gender, number, adjectives after their nouns, and the `a` before people.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Pair = tuple[str, str]

# What everyone tries first is in every corpus.
ALWAYS: dict[str, list[Pair]] = {
    "zh-en": [("我 有 一只 猫", "I have a cat")],
    "en-es": [("hello world", "hola mundo"), ("hello", "hola"), ("the world", "el mundo")],
}


class _Draw:
    """Random choices from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, options: list | dict):  # type: ignore[no-untyped-def, type-arg]
        """One of the options; of a dictionary, a (key, value) pair."""
        listed = list(options.items()) if isinstance(options, dict) else options
        return listed[self.rng.integers(len(listed))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)


def _distinct(
    sentence: Callable[[_Draw], Pair], n: int, seed: int, always: list[Pair]
) -> list[Pair]:
    """`n` pairs with different sources, those of `always` first."""
    draw = _Draw(seed)
    found = dict(always)
    idle = 0  # draws since the last new sentence
    while len(found) < n:
        source, target = sentence(draw)
        idle = idle + 1 if source in found else 0
        if idle > 10_000:
            raise ValueError(
                f"the grammar has hardly more than {len(found)} sentences, and {n} were asked for"
            )
        found.setdefault(source, target)
    return list(found.items())[:n]


# -- Chinese to English --------------------------------------------------------------------------------

# noun: (English, plural, measure word, the adjectives that suit it)
_ANIMAL = ["大", "小", "黑", "白", "可爱"]
_THING = ["大", "小", "新", "旧", "红", "黑", "白", "好看"]
_PERSON = ["高", "年轻", "聪明"]
_NOUNS = {
    "猫": ("cat", "cats", "只", _ANIMAL), "狗": ("dog", "dogs", "只", _ANIMAL), "鸟": ("bird", "birds", "只", _ANIMAL),
    "兔子": ("rabbit", "rabbits", "只", _ANIMAL), "鱼": ("fish", "fish", "条", _ANIMAL),
    "马": ("horse", "horses", "匹", _ANIMAL), "大象": ("elephant", "elephants", "头", ["大", "小", "可爱"]),
    "书": ("book", "books", "本", _THING), "词典": ("dictionary", "dictionaries", "本", _THING),
    "桌子": ("table", "tables", "张", _THING), "地图": ("map", "maps", "张", ["大", "小", "新", "旧"]),
    "椅子": ("chair", "chairs", "把", _THING), "雨伞": ("umbrella", "umbrellas", "把", _THING),
    "杯子": ("cup", "cups", "个", _THING), "苹果": ("apple", "apples", "个", ["大", "小", "红"]),
    "橙子": ("orange", "oranges", "个", ["大", "小"]), "盒子": ("box", "boxes", "个", _THING),
    "手表": ("watch", "watches", "块", _THING), "车": ("car", "cars", "辆", _THING),
    "自行车": ("bicycle", "bicycles", "辆", _THING),
    "房子": ("house", "houses", "座", ["大", "小", "新", "旧", "白", "红"]),
    "朋友": ("friend", "friends", "个", _PERSON), "学生": ("student", "students", "个", _PERSON),
    "孩子": ("child", "children", "个", ["高", "聪明", "可爱"]), "老师": ("teacher", "teachers", "位", _PERSON),
    "医生": ("doctor", "doctors", "位", _PERSON),
}  # fmt: skip
_ADJECTIVES = {
    "大": "big", "小": "small", "新": "new", "旧": "old", "红": "red", "黑": "black", "白": "white", "可爱": "cute",
    "好看": "nice", "高": "tall", "年轻": "young", "聪明": "clever",
}  # fmt: skip
_NUMBERS = {
    "一": "",
    "两": "two",
    "三": "three",
    "四": "four",
    "五": "five",
    "六": "six",
    "七": "seven",
    "八": "eight",
}
# subject: (English, third person singular)
_SUBJECTS = {
    "我": ("I", False), "你": ("you", False), "他": ("he", True), "她": ("she", True), "我们": ("we", False),
    "他们": ("they", False), "小明": ("Xiaoming", True), "我 妈妈": ("my mother", True), "我 爸爸": ("my father", True),
    "他 的 老师": ("his teacher", True), "她 的 朋友 们": ("her friends", False), "那个 学生": ("that student", True),
    "孩子 们": ("the children", False),
}  # fmt: skip
# verb: (English, third person singular, past)
_VERBS = {
    "有": ("have", "has", "had"), "看见": ("see", "sees", "saw"), "喜欢": ("like", "likes", "liked"),
    "想要": ("want", "wants", "wanted"), "需要": ("need", "needs", "needed"), "画": ("draw", "draws", "drew"),
    "找": ("look for", "looks for", "looked for"), "认识": ("know", "knows", "knew"), "买": ("buy", "buys", "bought"),
}  # fmt: skip
_ABOUT_PEOPLE, _ABOUT_THINGS = (
    ["有", "看见", "喜欢", "认识", "找", "画"],
    [v for v in _VERBS if v != "认识"],
)
_DEEDS = ["看见", "画", "买", "找"]
_PLACES = {
    "学校": "at school", "家": "at home", "公园": "in the park", "图书馆": "in the library", "商店": "in the shop",
    "北京": "in Beijing", "医院": "in the hospital", "火车站": "at the station",
}  # fmt: skip


def _article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def _measured(noun: str, number: str) -> str:
    return number + _NOUNS[noun][2]


def _chinese_phrase(d: _Draw, noun: str) -> Pair:
    """A number with its measure word, perhaps an adjective, and the noun."""
    number, english_number = d.one(_NUMBERS) if d.chance(0.6) else ("一", "")
    singular, plural, _, adjectives = _NOUNS[noun]
    words, english = [_measured(noun, number)], singular if number == "一" else plural
    if d.chance(0.45):
        adjective = d.one(adjectives)
        words += [adjective, "的"]
        english = f"{_ADJECTIVES[adjective]} {english}"
    return " ".join([*words, noun]), _article(
        english
    ) if number == "一" else f"{english_number} {english}"


def _is_person(noun: str) -> bool:
    return _NOUNS[noun][0] in ("friend", "student", "child", "teacher", "doctor")


def _chinese_sentence(d: _Draw) -> Pair:
    kind = d.one(
        ["have", "have", "have", "not", "question", "past", "where", "which", "where from"]
    )
    (subject, (who, third)), noun = d.one(_SUBJECTS), d.one(list(_NOUNS))
    verb = d.one(_ABOUT_PEOPLE if _is_person(noun) else _ABOUT_THINGS)
    base, singular, past = _VERBS[verb]
    if kind == "where":  # 他 在 学校 : he is at school
        place, english = d.one(_PLACES)
        be = "is" if third else "am" if who == "I" else "are"
        if d.chance(0.3):
            return f"{subject} 不 在 {place}", f"{who} {be} not {english}"
        if d.chance(0.4):
            asked = f"{be} {who} {english} ?"
            return f"{subject} 在 {place} 吗 ？", asked
        return f"{subject} 在 {place}", f"{who} {be} {english}"
    if kind == "which":  # 这只 猫 很 大 : this cat is big
        adjective = d.one(_NOUNS[noun][3])
        this, english = d.one({"这": "this", "那": "that"})
        head = f"{this}{_NOUNS[noun][2]} {noun}"
        if d.chance(0.3):
            return (
                f"{head} 不 {adjective}",
                f"{english} {_NOUNS[noun][0]} is not {_ADJECTIVES[adjective]}",
            )
        return f"{head} 很 {adjective}", f"{english} {_NOUNS[noun][0]} is {_ADJECTIVES[adjective]}"
    phrase, english = _chinese_phrase(d, noun)
    if kind == "where from" and verb in _DEEDS:  # 我 在 商店 买 一本 书 : I buy a book in the shop
        place, at = d.one(_PLACES)
        return (
            f"{subject} 在 {place} {verb} {phrase}",
            f"{who} {singular if third else base} {english} {at}",
        )
    if kind == "past" and verb in _DEEDS:  # 昨天 我 买 了 一本 书 : yesterday I bought a book
        return f"昨天 {subject} {verb} 了 {phrase}", f"yesterday {who} {past} {english}"
    if kind == "question":
        return (
            f"{subject} {verb} {phrase} 吗 ？",
            f"{'does' if third else 'do'} {who} {base} {english} ?",
        )
    if kind == "not":
        no = {"有": "没有", "看见": "看不见"}.get(verb, f"不 {verb}")
        return f"{subject} {no} {phrase}", f"{who} {'does' if third else 'do'} not {base} {english}"
    return f"{subject} {verb} {phrase}", f"{who} {singular if third else base} {english}"


def chinese_english(n: int = 8000, seed: int = 0) -> list[Pair]:
    """`n` Chinese sentences, in words, and their English translations."""
    return _distinct(_chinese_sentence, n, seed, ALWAYS["zh-en"])


# -- English to Spanish --------------------------------------------------------------------------------

# noun: (English plural, Spanish, Spanish plural, feminine, the adjectives that suit it)
_OBJECT = [
    "red",
    "white",
    "black",
    "green",
    "blue",
    "small",
    "new",
    "old",
    "beautiful",
    "cheap",
    "ugly",
]
_CREATURE, _SITE = (
    ["white", "black", "small", "old", "beautiful"],
    ["small", "new", "old", "beautiful", "ugly"],
)
_HUMAN = ["tall", "young", "clever", "old", "beautiful"]
_SPANISH_NOUNS = {
    "cat": ("cats", "gato", "gatos", False, _CREATURE), "dog": ("dogs", "perro", "perros", False, _CREATURE),
    "bird": ("birds", "pájaro", "pájaros", False, [*_CREATURE, "green"]),
    "house": ("houses", "casa", "casas", True, _OBJECT), "table": ("tables", "mesa", "mesas", True, _OBJECT),
    "book": ("books", "libro", "libros", False, _OBJECT), "window": ("windows", "ventana", "ventanas", True, _OBJECT),
    "flower": ("flowers", "flor", "flores", True, _OBJECT),
    "tree": ("trees", "árbol", "árboles", False, ["green", "tall", "small", "old", "beautiful"]),
    "apple": ("apples", "manzana", "manzanas", True, ["red", "green", "small", "cheap"]),
    "orange": ("oranges", "naranja", "naranjas", True, ["green", "small", "beautiful", "cheap"]),
    "car": ("cars", "coche", "coches", False, _OBJECT), "hat": ("hats", "sombrero", "sombreros", False, _OBJECT),
    "chair": ("chairs", "silla", "sillas", True, _OBJECT), "train": ("trains", "tren", "trenes", False, _OBJECT),
    "shirt": ("shirts", "camisa", "camisas", True, _OBJECT), "city": ("cities", "ciudad", "ciudades", True, _SITE),
    "world": ("worlds", "mundo", "mundos", False, _SITE),
    "friend": ("friends", "amigo", "amigos", False, _HUMAN), "child": ("children", "niño", "niños", False, _HUMAN),
    "teacher": ("teachers", "maestra", "maestras", True, _HUMAN),
}  # fmt: skip
# adjective: Spanish masculine, feminine, masculine plural, feminine plural
_SPANISH_ADJECTIVES = {
    "red": ("rojo", "roja", "rojos", "rojas"), "white": ("blanco", "blanca", "blancos", "blancas"),
    "black": ("negro", "negra", "negros", "negras"), "green": ("verde", "verde", "verdes", "verdes"),
    "blue": ("azul", "azul", "azules", "azules"), "small": ("pequeño", "pequeña", "pequeños", "pequeñas"),
    "new": ("nuevo", "nueva", "nuevos", "nuevas"), "old": ("viejo", "vieja", "viejos", "viejas"),
    "beautiful": ("hermoso", "hermosa", "hermosos", "hermosas"), "cheap": ("barato", "barata", "baratos", "baratas"),
    "ugly": ("feo", "fea", "feos", "feas"), "tall": ("alto", "alta", "altos", "altas"),
    "young": ("joven", "joven", "jóvenes", "jóvenes"),
    "clever": ("inteligente", "inteligente", "inteligentes", "inteligentes"),
}  # fmt: skip
# subject: (Spanish, person: 0 yo, 1 tú, 2 él, 3 nosotros, 4 ellos)
_SPANISH_SUBJECTS = {
    "I": ("yo", 0), "you": ("tú", 1), "he": ("él", 2), "she": ("ella", 2), "we": ("nosotros", 3), "they": ("ellos", 4),
    "Maria": ("María", 2), "Juan": ("Juan", 2), "my brother": ("mi hermano", 2), "my sisters": ("mis hermanas", 4),
}  # fmt: skip
# verb: (third person, the five Spanish forms)
_SPANISH_VERBS = {
    "have": ("has", ("tengo", "tienes", "tiene", "tenemos", "tienen")),
    "see": ("sees", ("veo", "ves", "ve", "vemos", "ven")),
    "want": ("wants", ("quiero", "quieres", "quiere", "queremos", "quieren")),
    "buy": ("buys", ("compro", "compras", "compra", "compramos", "compran")),
    "draw": ("draws", ("dibujo", "dibujas", "dibuja", "dibujamos", "dibujan")),
    "need": ("needs", ("necesito", "necesitas", "necesita", "necesitamos", "necesitan")),
    "sell": ("sells", ("vendo", "vendes", "vende", "vendemos", "venden")),
    "know": ("knows", ("conozco", "conoces", "conoce", "conocemos", "conocen")),
}  # fmt: skip
_OF_PEOPLE, _OF_THINGS = ["see", "draw", "know"], [v for v in _SPANISH_VERBS if v != "know"]
_PEOPLE = [noun for noun, entry in _SPANISH_NOUNS.items() if entry[4] is _HUMAN]
_THINGS = [noun for noun in _SPANISH_NOUNS if noun not in _PEOPLE]
_SPANISH_NUMBERS = {"two": "dos", "three": "tres", "four": "cuatro", "five": "cinco", "six": "seis"}
_THIS = {"this": ("este", "esta", "estos", "estas"), "that": ("ese", "esa", "esos", "esas")}


def _spanish_noun(d: _Draw, noun: str, many: bool) -> Pair:
    """A noun and perhaps an adjective, which Spanish puts behind it and gives its gender and number."""
    plural, spanish, spanish_plural, feminine, adjectives = _SPANISH_NOUNS[noun]
    english, spanish = (plural, spanish_plural) if many else (noun, spanish)
    if d.chance(0.55):
        adjective = d.one(adjectives)
        english, spanish = (
            f"{adjective} {english}",
            f"{spanish} {_SPANISH_ADJECTIVES[adjective][2 * many + feminine]}",
        )
    return english, spanish


def _spanish_phrase(d: _Draw, noun: str) -> tuple[str, str, bool]:
    """An English noun phrase, the Spanish one, and whether it is plural."""
    feminine = _SPANISH_NOUNS[noun][3]
    kind, many = d.one(["the", "a", "this", "number", "many"]), d.chance(0.45)
    if kind in ("number", "many"):
        many = True
    elif kind == "a":
        many = False
    form = 2 * many + feminine
    english, spanish = _spanish_noun(d, noun, many)
    if kind == "the":
        english, first = f"the {english}", ("el", "la", "los", "las")[form]
    elif kind == "this":
        this = d.one(list(_THIS))
        english, first = (
            f"{ {'this': 'these', 'that': 'those'}[this] if many else this } {english}",
            _THIS[this][form],
        )
    elif kind == "number":
        number, first = d.one(_SPANISH_NUMBERS)
        english = f"{number} {english}"
    elif kind == "many":
        english, first = f"many {english}", ("muchos", "muchas")[feminine]
    else:
        english, first = _article(english), ("un", "una")[feminine]
    return english, f"{first} {spanish}", many


def _spanish_object(d: _Draw, people: bool) -> Pair:
    """What a verb acts on. Before people stands `a`, which contracts with `el`."""
    english, spanish, _ = _spanish_phrase(d, d.one(_PEOPLE if people else _THINGS))
    if people:
        spanish = f"al {spanish[3:]}" if spanish.startswith("el ") else f"a {spanish}"
    return english, spanish


def _spanish_sentence(d: _Draw) -> Pair:
    kind = d.one(["verb", "verb", "verb", "not", "question", "is", "is not", "two", "hello"])
    noun = d.one(list(_SPANISH_NOUNS))
    if kind == "hello":
        english, spanish = _spanish_noun(d, noun, many=False)
        return f"hello {english}", f"hola {spanish}"
    if kind in ("is", "is not"):
        english, spanish, many = _spanish_phrase(d, noun)
        feminine, adjectives = _SPANISH_NOUNS[noun][3:]
        adjective = d.one(adjectives)
        no, not_ = ("no ", "not ") if kind == "is not" else ("", "")
        form = _SPANISH_ADJECTIVES[adjective][2 * many + feminine]
        return (
            f"{english} {'are' if many else 'is'} {not_}{adjective}",
            f"{spanish} {no}{'son' if many else 'es'} {form}",
        )
    people = noun in _PEOPLE
    (subject, (who, person)), verb = (
        d.one(_SPANISH_SUBJECTS),
        d.one(_OF_PEOPLE if people else _OF_THINGS),
    )
    third, forms = _SPANISH_VERBS[verb]
    english, spanish = _spanish_object(d, people)
    does = "does" if person == 2 else "do"
    if kind == "not":
        return f"{subject} {does} not {verb} {english}", f"{who} no {forms[person]} {spanish}"
    if kind == "question":
        return f"{does} {subject} {verb} {english} ?", f"¿ {forms[person]} {who} {spanish} ?"
    if kind == "two":
        other, otro = _spanish_object(d, people)
        english, spanish = f"{english} and {other}", f"{spanish} y {otro}"
    return (
        f"{subject} {third if person == 2 else verb} {english}",
        f"{who} {forms[person]} {spanish}",
    )


def english_spanish(n: int = 8000, seed: int = 0) -> list[Pair]:
    """`n` English sentences and their Spanish translations."""
    return _distinct(_spanish_sentence, n, seed, ALWAYS["en-es"])
