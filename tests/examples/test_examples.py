"""The scripts that a person runs: what they learn from, print, write and refuse."""

from __future__ import annotations

import builtins
import gzip
import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripts import EXAMPLES, load

import nn
from minigrad.console import run_script
from minigrad.io import load_arrays, save_arrays
from nn.text import BOS, EOS

corpora, train, translate = (
    load(name) for name in ("corpora", "train_toy_translation", "translate")
)

# -- the grammars, held against translators of our own ------------------------------------------------


def table(text: str) -> dict[str, str]:
    """Every second word, by the word before it."""
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
    """`[adjective] noun` in Spanish; whether it is feminine, and a person."""
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
    """`article [adjective] noun` in Spanish; whether it is feminine, plural, and a person."""
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
    """What the rules of Spanish make of a sentence of this little English."""
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
def test_every_spanish_sentence_is_what_the_rules_make(seed: int) -> None:
    """Gender, number, the place of the adjective, verb forms, `a` before people: for all pairs."""
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
    """What the rules of English make of a sentence of this little Chinese."""
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
def test_every_english_sentence_is_what_the_rules_make(seed: int) -> None:
    """Measure words, plurals, articles, verb forms, questions, negation, places: for all pairs."""
    for chinese, found in corpora.chinese_english(8000, seed):
        assert found == english(chinese), chinese


@pytest.mark.parametrize("pair", ["zh-en", "en-es"])
def test_a_corpus_has_thousands_of_pairs_with_everything_in_them(pair: str) -> None:
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


def test_a_corpus_that_cannot_be_that_large_says_so() -> None:
    draw = lambda d: (str(d.one([1, 2, 3])), "x")
    with pytest.raises(ValueError, match="hardly more than 3 sentences, and 5 were asked for"):
        corpora._distinct(draw, 5, 0, [])


@pytest.mark.parametrize(
    "options", [[], ["--reverse"], ["--pair", "en-es"], ["--pair", "en-es", "--reverse"]]
)
def test_what_is_held_out_is_new_and_made_of_known_words(
    options: list[str], tmp_path: Path
) -> None:
    args = train.parse([*options, "--out", str(tmp_path)])
    learnt, valid, test = train.load_pairs(args)
    sources = [{a for a, _ in part} for part in (learnt, valid, test)]
    assert sum(map(len, sources)) == len(set.union(*sources)) == 8000 and len(test) == 600
    known = {token for a, b in learnt for token in f"{a} {b}".split()}
    assert all(set(f"{a} {b}".split()) <= known for a, b in valid + test)
    always = [pair[::-1] if args.reverse else pair for pair in corpora.ALWAYS[args.pair]]
    assert learnt[: len(always)] == always and len(learnt) == 8000 + 7 * len(always) - len(
        valid
    ) - len(test)


# -- a whole run -------------------------------------------------------------------------------------

LEARNS = shlex.split(
    "--pair en-es --sentences 1200 --valid-size 40 --test-size 60 "
    "--layers 1 --d-model 32 --num-heads 2 --d-ff 64 --norm-first --epochs 9 --lr 2e-2 --warmup 40 --batch-tokens 256 --dropout 0"
)
TINY = shlex.split(
    "--sentences 120 --valid-size 15 --test-size 15 "
    "--layers 1 --d-model 8 --num-heads 2 --d-ff 8 --epochs 3 --batch-tokens 256 --save-every 2 --warmup 3 --beam 1"
)


def run_main(argv: list[str], main: Callable[..., Any] = train.main) -> SimpleNamespace:
    """What `main` returned, printed, and wrote on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        result = main(argv)
    return SimpleNamespace(result=result, out=out.getvalue(), err=err.getvalue())


def refused(argv: list[str], main: Callable[..., Any] = train.main) -> str:
    """The one line of the error that `main` ends with."""
    err = io.StringIO()
    with redirect_stderr(err), redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as stop:
        assert run_script(lambda: main(argv)) == 1, "it did not refuse"
        raise SystemExit(1)
    assert stop.value.code not in (0, None)
    text = stop.value.code if isinstance(stop.value.code, str) else err.getvalue()
    errors = [line for line in text.splitlines() if "error: " in line]
    assert len(errors) == 1 and "Traceback" not in text
    assert (
        text.splitlines()[-1] == errors[0] and len(text.splitlines()) <= 2
    )  # at most a line of usage before it
    return errors[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    pytest.importorskip("matplotlib")
    directory = tmp_path_factory.mktemp("runs") / "en-es"
    found = run_main([*LEARNS, "--out", str(directory)])
    found.directory, found.args = directory, [*LEARNS, "--out", str(directory)]
    found.translator = nn.Translator.load(directory)
    fresh = train.parse([*LEARNS, "--out", str(directory / "none")])
    found.test = train.load_pairs(fresh)[2]
    return found


def bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    """Papineni et al. (2002): the geometric mean of n-gram precisions, times the brevity penalty."""
    grams = lambda words, n: Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    precision = []
    for n in range(1, 5):
        pairs = [(grams(h, n), grams(r, n)) for h, r in zip(hypotheses, references)]
        precision.append(sum((h & r).total() for h, r in pairs) / sum(h.total() for h, _ in pairs))
    length, goal = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * math.exp(np.log(precision).mean() + min(0, 1 - goal / length))


def is_picture(path: Path) -> bool:
    image = pytest.importorskip("matplotlib.image").imread(path)
    return image.std() > 0.05 and min(image.shape[:2]) > 100


def test_a_run_leaves_what_it_promises(run: SimpleNamespace) -> None:
    promised = {"config.json", "vocab.json", "best.safetensors", "last.safetensors", "metrics.jsonl", "summary.json", "loss.png", "attention.png"}  # fmt: skip
    assert {path.name for path in run.directory.iterdir()} == promised | {".lock"}
    assert is_picture(run.directory / "loss.png") and is_picture(run.directory / "attention.png")
    summary = json.loads((run.directory / "summary.json").read_text(encoding="utf-8"))
    assert summary == run.result
    metrics = [
        json.loads(line) for line in (run.directory / "metrics.jsonl").read_text().splitlines()
    ]
    validations = [e["valid_loss"] for e in metrics if "valid_loss" in e]
    assert (
        len(validations) == 9 and summary["valid_loss"] == min(validations) < 0.5 * validations[0]
    )
    assert summary["steps"] == metrics[-1]["step"] and summary["sentences"] == 60
    config = json.loads((run.directory / "config.json").read_text())
    assert config["settings"]["d_model"] == config["model"]["d_model"] == 32


def test_its_figures_are_right(run: SimpleNamespace) -> None:
    """Loss, exact matches and BLEU of the held-out sentences, each by its definition."""
    summary, translator, total, count = run.result, run.translator, 0.0, 0
    for a, b in run.test:
        ids = [BOS, *(translator.target_vocab.encode(b.split())), EOS]
        scores = translator.model.eval()(
            np.array([translator.source_vocab.encode(a.split())]), np.array([ids[:-1]])
        )
        scores = scores.data[0].astype(float)
        log_probs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        total -= log_probs[np.arange(len(ids) - 1), ids[1:]].sum()
        count += len(ids) - 1
    assert summary["held_out_loss"] == pytest.approx(total / count, rel=1e-4)
    found = {t.source: t.text for t in translator.translate([a for a, _ in run.test], beam_size=4)}
    matches = [found[a] == b for a, b in run.test]
    assert summary["exact_match"] == pytest.approx(np.mean(matches)) and np.mean(matches) > 0.4
    texts, references = [found[a].split() for a, _ in run.test], [b.split() for _, b in run.test]
    assert (
        summary["bleu"] == pytest.approx(bleu(texts, references), abs=1e-6) and summary["bleu"] > 60
    )
    assert re.fullmatch(
        r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:.+", summary["bleu_signature"]
    )
    assert len(summary["samples"]) == 10
    for sample in summary["samples"]:
        assert sample["translation"] == found[sample["source"]] and sample["reference"] == dict(run.test)[sample["source"]]  # fmt: skip


def test_what_it_prints_are_the_same_figures(run: SimpleNamespace) -> None:
    lines, s = run.out.splitlines(), run.result
    assert lines[0] == "1,121 pairs to learn, 40 to validate, 60 held out; for example"
    assert lines[-1] == (
        f"60 held-out sentences: loss {s['held_out_loss']:.3f}, exact match {s['exact_match']:.1%}, BLEU {s['bleu']:.1f}; "
        f"{s['steps']} steps in {s['training_seconds']:.0f} s, {s['seconds']:.0f} s in all; run directory {run.directory}"
    )
    for sample in s["samples"]:
        at = lines.index(f"  {sample['source']}")
        same = sample["translation"] == sample["reference"]
        assert lines[at + 1 : at + 3] == [f"    → {sample['translation']}", f"    {'=' if same else '≠'} {sample['reference']}"]  # fmt: skip
    assert f"pictures: {run.directory / 'loss.png'}, {run.directory / 'attention.png'}" in lines
    assert f"chrF {s['chrf']:.2f}; signature of BLEU: {s['bleu_signature']}" in lines
    lines = run.err.splitlines()  # a line for each validation, where there is no terminal
    assert len(lines) == 9 and all(
        re.match(r"step [\d,]+/\d+  valid_loss \d", line) and len(line) <= 80 for line in lines
    )


def test_quiet_prints_the_last_line_only(undrawn: None, tmp_path: Path) -> None:
    found = run_main([*TINY, "--quiet", "--out", str(tmp_path)])
    assert found.err == "" and re.fullmatch(r"15 held-out sentences: loss .*\n", found.out)


# -- runs that are cut off ---------------------------------------------------------------------------


def weights(directory: Path) -> dict[str, np.ndarray]:
    return load_arrays(directory / "last.safetensors")[0]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take longer than these tiny runs."""
    monkeypatch.setattr(train, "draw", lambda *_: "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that nothing disturbs."""
    directory = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "draw", lambda *_: "")
        run_main([*TINY, "--quiet", "--out", str(directory)])
    return directory


def cut(at: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run end before that step: `KeyboardInterrupt` keeps the state, anything else is a kill."""
    step = nn.Trainer._step

    def stopped(self: nn.Trainer, batches: list[Any]) -> Any:
        if self.step == at:
            raise error
        return step(self, batches)

    monkeypatch.setattr(nn.Trainer, "_step", stopped)


@pytest.mark.parametrize("at, error", [(5, KeyboardInterrupt), (5, MemoryError), (1, MemoryError)])
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(
    whole: Path,
    undrawn: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    error: type[BaseException],
) -> None:
    out = ["--quiet", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        cut(at, error, patch)
        err = io.StringIO()
        with redirect_stderr(err):
            assert run_script(lambda: train.main([*TINY, *out])) == (
                130 if error is KeyboardInterrupt else 1
            )
    if error is KeyboardInterrupt:
        assert err.getvalue() == f"stopped at step {at}; go on with --out {tmp_path} --resume\n"
    if at > 1:  # the first state was saved after step 2
        assert f"{tmp_path} holds a run already: pass --resume to go on with it" in refused(
            [*TINY, *out]
        )
    again = run_main(
        ["--resume", "--d-model", "64", "--epochs", "1", "--seed", "9", *out]
    )  # its own settings count
    for name, array in weights(whole).items():
        np.testing.assert_array_equal(weights(tmp_path)[name], array, err_msg=name)
    timeless = lambda d: {k: v for k, v in d.items() if "seconds" not in k}
    assert timeless(again.result) == timeless(
        json.loads((whole / "summary.json").read_text(encoding="utf-8"))
    )


def test_a_run_that_is_done_can_be_resumed_and_a_missing_one_begins(
    whole: Path, undrawn: None, tmp_path: Path
) -> None:
    copy = shutil.copytree(whole, tmp_path / "copy")
    found = run_main(["--resume", "--out", str(copy)])
    steps = json.loads((whole / "summary.json").read_text(encoding="utf-8"))["steps"]
    assert f"going on from step {steps}" in found.out and found.result["steps"] == steps
    found = run_main([*TINY, "--steps", "1", "--resume", "--out", str(tmp_path / "new")])
    assert (
        f"nothing in {tmp_path / 'new'} to go on with: beginning" in found.err
        and found.result["steps"] == 1
    )


def test_what_is_left_out_of_a_file_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        "Source\tTarget",
        *(f"a {i} b\tx {i} y" for i in range(30)),
        "\tz",
        "a 1 b\tx 1 y",
        "l " * 9 + "\tm",
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = ["--data", str(tmp_path / "pairs.tsv"), "--max-len", "8", "--out", str(tmp_path / "run")]
    train.build(
        train.parse([*data, "--d-model", "8", "--num-heads", "2", "--processes", "1"]),
        lambda *_: None,
    )
    said = "left out of 34 rows: 1 a row of headings, 1 with an empty side, 1 there before, 1 of more than 8 tokens\n"
    assert capsys.readouterr().err == said


def test_a_file_of_two_pairs_is_named(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    for more, said in (
        ([], "two.tsv: 2 pairs are too few"),
        (["--test", str(tmp_path / "two.tsv")], ""),
    ):
        with pytest.raises(ValueError, match=said) if said else nullcontext():
            train.load_pairs(
                train.parse(
                    ["--data", str(tmp_path / "two.tsv"), "--out", str(tmp_path / "run"), *more]
                )
            )


def test_another_directory_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no run", encoding="utf-8")
    assert f"--resume: {tmp_path} holds no run: it has other files" in refused(
        ["--resume", "--out", str(tmp_path)]
    )


def test_the_last_state_of_a_run_translates_too(whole: Path) -> None:
    """It holds the optimizer beside the weights."""
    arrays, _ = load_arrays(whole / "last.safetensors")
    model = nn.Translator.load(whole, "last.safetensors", inference=False).model
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, arrays[f"model.{name}"], err_msg=name)


def test_the_last_state_of_a_larger_model_loads_too(tmp_path: Path) -> None:
    """The optimizer's flat arrays, as long as all parameters together, are no sizes of the model."""
    model = nn.LanguageModel(
        nn.LanguageModelConfig(9, d_model=8, num_heads=2, num_layers=1, d_ff=8, max_len=256)
    )
    settings = nn.settings_of(model)
    arrays = {f"model.{name}": array for name, array in model.state_dict().items()}
    arrays["optimizer.0.exp_avg"] = np.zeros(700_000, np.float32)
    save_arrays(tmp_path / "last.safetensors", arrays, {"trainer": {"model": settings}})
    loaded = nn.load_model(settings, "config.json", tmp_path / "last.safetensors")
    np.testing.assert_array_equal(next(loaded.parameters()).data, next(model.parameters()).data)


def test_the_figures_are_those_of_the_best_weights(
    whole: Path, undrawn: None, tmp_path: Path
) -> None:
    """With weights of 0 all tokens are equally likely."""
    copy = shutil.copytree(whole, tmp_path / "copy")
    best = {
        name: np.zeros_like(array)
        for name, array in load_arrays(copy / "best.safetensors")[0].items()
    }
    save_arrays(copy / "best.safetensors", best)
    found = run_main(["--resume", "--quiet", "--out", str(copy)])
    vocab = json.loads((copy / "vocab.json").read_text(encoding="utf-8"))
    assert found.result["held_out_loss"] == pytest.approx(math.log(len(vocab["target"])))


def test_what_cannot_be_resumed(whole: Path, tmp_path: Path) -> None:
    resume = lambda directory: refused(["--quiet", "--resume", "--out", str(directory)])

    def broken(name: str, change: Callable[[bytes], bytes]) -> Path:
        directory = shutil.copytree(whole, tmp_path / f"{len(list(tmp_path.iterdir()))}")
        (directory / name).write_bytes(change((directory / name).read_bytes()))
        return directory

    assert "last.safetensors: not a whole safetensors file" in resume(
        broken("last.safetensors", lambda b: b[:-9])
    )
    assert "config.json: not JSON" in resume(broken("config.json", lambda b: b[:-9]))
    assert "config.json: expected an object, got []" in resume(
        broken("config.json", lambda b: b"[]")
    )
    assert "config.json: settings is missing" in resume(broken("config.json", lambda b: b"{}"))
    seed = lambda b: b.replace(b'"seed": 0', b'"seed": 1')
    assert "config.json: settings was changed since it was written" in resume(
        broken("config.json", seed)
    )
    changed = broken("config.json", lambda b: seed(b).replace(b'"checksums"', b'"no checksums"'))
    assert "its vocabulary is not that of this data; has the data changed" in resume(changed)


# -- data of one's own -------------------------------------------------------------------------------

PAIRS = [
    (f"Take {n} {noun}, please.", f"请给我{z}个{name}。")
    for n, z in table("two 两 three 三 six 六 ten 十").items()
    for noun, name in table("cups 杯子 boxes 盒子 apples 苹果").items()
]
SMALL = shlex.split(
    "--valid-size 2 --test-size 2 --layers 1 --d-model 8 --num-heads 2 --d-ff 8 --epochs 1 --min-count 1"
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    """The same pairs in each form of file that there is."""
    text = "".join(f"{a}\t{b}\tsomething else\n" for a, b in PAIRS).encode()
    (tmp_path / "pairs.tsv").write_bytes(text)
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress(text))
    for i, name in enumerate(["a.en", "b.zh"]):
        (tmp_path / name).write_text("".join(pair[i] + "\n" for pair in PAIRS), encoding="utf-8")
    path = lambda name: str(tmp_path / name)
    return {
        "tsv": ["--data", path("pairs.tsv")], "gz": ["--data", path("pairs.tsv.gz")],
        "two": ["--source", path("a.en"), "--target", path("b.zh")],
    }  # fmt: skip


@pytest.mark.parametrize("form", ["tsv", "gz", "two"])
@pytest.mark.parametrize("reverse", [False, True])
def test_pairs_are_read_from_every_form_of_file(
    form: str, reverse: bool, files: dict[str, list[str]], tmp_path: Path
) -> None:
    args = train.parse(
        [*files[form], *SMALL, "--out", str(tmp_path / "run"), *["--reverse"] * reverse]
    )
    parts = train.load_pairs(args)
    assert [len(part) for part in parts] == [8, 2, 2]
    assert sorted(pair for part in parts for pair in part) == sorted(
        (b, a) if reverse else (a, b) for a, b in PAIRS
    )
    assert (args.d_model, args.dropout, args.lr, args.max_len) == (
        8,
        0.3,
        1e-3,
        128,
    )  # files have other defaults


def test_a_run_on_a_file(files: dict[str, list[str]], tmp_path: Path) -> None:
    out = tmp_path / "run"
    found = run_main([*files["gz"], *SMALL, "--lowercase", "--quiet", "--out", str(out)])
    vocab = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    assert {"take", ",", "please", "."} <= set(vocab["source"]) and "Take" not in vocab[
        "source"
    ]  # words
    assert {"请", "给", "我", "个", "。"} <= set(vocab["target"])  # characters
    assert "tok:zh" in found.result["bleu_signature"] and found.result["sentences"] == 2
    assert is_picture(out / "attention.png")
    again = nn.Translator.load(out)
    assert again.source_tokenizer.name == "word" and again.target_tokenizer.name == "char"


def test_files_of_their_own_to_validate_and_to_test(
    files: dict[str, list[str]], tmp_path: Path
) -> None:
    (tmp_path / "other.tsv").write_text("A cat.\t一只猫。\n")
    held = ["--valid", *files["two"][1::2], "--test", str(tmp_path / "other.tsv")]
    args = train.parse([*files["gz"], *SMALL, *held, "--out", str(tmp_path / "run")])
    learnt, valid, test = train.load_pairs(args)
    assert sorted(learnt) == sorted(valid) == sorted(PAIRS) and test == [("A cat.", "一只猫。")]


def test_a_run_with_one_vocabulary_and_all_that_regularises(
    files: dict[str, list[str]], undrawn: None, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    out = tmp_path / "run"
    more = shlex.split(
        "--joint --tie all --vocab-size 280 --bpe-dropout 0.2 --r-drop 1 --average 2 --bleu-tokenize none"
    )
    found = run_main([*files["tsv"], *SMALL, *more, "--quiet", "--out", str(out)])
    again = nn.Translator.load(out)
    assert again.source_vocab == again.target_vocab and len(again.source_vocab) == 284
    assert again.model.source_embedding.tokens.weight is again.model.output.weight
    assert "tok:none" in found.result["bleu_signature"] and found.result[
        "chrf_signature"
    ].startswith("nrefs:1")
    kept = sorted(out.glob("weights-*.safetensors"))
    for name, array in nn.average_weights(kept).items():
        np.testing.assert_array_equal(again.model.state_dict()[name], array)


def test_bpe_dropout_is_for_sides_of_bpe(
    files: dict[str, list[str]], undrawn: None, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    args = [
        *files["tsv"],
        *SMALL,
        "--vocab-size",
        "300",
        "--bpe-dropout",
        "0.1",
        "--quiet",
        "--out",
    ]
    assert (
        run_main([*args, str(tmp_path / "a"), "--target-tokenizer", "bpe"]).result["sentences"] == 2
    )
    with pytest.raises(ValueError, match="--bpe-dropout: neither side is split by bpe"):
        train.main([*args, str(tmp_path / "b")])


def test_each_of_several_references_counts() -> None:
    """The translation is held against all; a match is shown, whichever it is."""
    said = {"a": "y y", "b": "Z"}
    tokens = lambda text: text.split()
    tokens.join = " ".join
    translator = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(max_len=9)),
        source_tokenizer=tokens,
        target_tokenizer=tokens,
        translate=lambda sources, beam_size, length_penalty, done: [
            nn.Translation(s, [s], said[s].split(), said[s], 0.0, []) for s in sources
        ],
    )
    test = [("a", "x"), ("a", "y   y"), ("b", "w")]
    result, judged = train.evaluate(
        translator,
        test,
        SimpleNamespace(
            beam=1, lowercase=False, length_penalty=1.0, bleu_tokenize=None, quiet=True
        ),
    )
    assert result["sentences"] == 2 and result["exact_match"] == 0.5
    assert [(t.text, reference, match) for t, reference, match in judged] == [
        ("y y", "y   y", True),
        ("Z", "w", False),
    ]


@pytest.mark.parametrize("schedule", ["noam", "inverse-sqrt", "cosine", "linear"])
def test_every_schedule_rises_then_falls(schedule: str, tmp_path: Path) -> None:
    args = train.parse(["--schedule", schedule, "--warmup", "10", "--out", str(tmp_path)])
    factor = train.make_schedule(args, 100)
    rates = [factor(step) for step in range(1, 101)]
    assert (
        8 <= np.argmax(rates) <= 10 and rates[0] < 0.3 * max(rates) and rates[-1] < 0.4 * max(rates)
    )


# -- what is missing or wrong ------------------------------------------------------------------------


def without(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these packages were not installed."""
    for name in [*names, *(m for m in sys.modules if m.partition(".")[0] in names)]:
        monkeypatch.setitem(sys.modules, name, None)


def test_it_goes_on_without_pictures_and_bleu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(
        ["matplotlib", "sacrebleu", "tqdm", "safetensors", "tokenizers"], monkeypatch
    )  # NumPy alone
    found = run_main([*TINY, "--out", str(tmp_path)])
    assert "no pictures: plotting needs matplotlib: pip install matplotlib" in found.out
    shown = found.out.split("cross-attention of the last layer, mean of its heads:\n")[
        1
    ].splitlines()
    assert "│" in shown[1] and set("░▒▓█") & set(shown[1])
    assert "no BLEU, which needs sacrebleu" in found.out.splitlines()[-1]
    assert found.result["bleu"] is found.result["bleu_signature"] is None
    assert not list(tmp_path.glob("*.png")) and (tmp_path / "summary.json").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (
            "--d-model 10 --num-heads 4",
            "d_model must be divisible by num_heads, got d_model=10 and num_heads=4",
        ),
        ("--data nothing.tsv", "nothing.tsv: no such file"),
        ("--source nothing.txt", "--source and --target go together"),
        ("--data a --source b --target c", "--data and --source exclude each other"),
        ("--sentences 100", "97|99 pairs are too few to hold out 800"),
        ("--activation swoosh", "activation must be one of relu, .*, got 'swoosh'"),
        ("--dropout 1", "dropout must be a number of at least 0 and less than 1, got 1.0"),
        ("--label-smoothing 2", "expected 0 <= label_smoothing <= 1, got 2.0"),
        ("--batch-tokens 5", "a sentence of .* tokens exceeds max_tokens=5"),
        ("--beam 0", "argument --beam: must be at least 1, got 0"),
        ("--epochs x", "argument --epochs: invalid int value: 'x'"),
        ("--source-tokenizer foo", "invalid choice: 'foo'"),
        ("--lr -1", "Adam: expected a finite lr >= 0, got -1"),
        ("--max-len 1", "PairBatches: no pairs|every training pair is longer"),
    ],
)
def test_bad_settings_are_one_line(options: str, message: str, tmp_path: Path) -> None:
    few = (
        []
        if "--sentences" in options
        else ["--sentences", "200", "--valid-size", "20", "--test-size", "20"]
    )
    assert re.search(message, refused([*few, *options.split(), "--out", str(tmp_path / "run")]))
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_is_one_line(tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        assert re.search("the loss is|the norm of the gradients is", refused([*TINY, "--lr", "1e30", "--warmup", "1", "--quiet", "--out", str(tmp_path)]))  # fmt: skip


@pytest.mark.parametrize("script, options", [("train_toy_translation", ["--data", "no.tsv"]), ("translate", ["nowhere", "x"])])  # fmt: skip
def test_from_a_shell_an_error_is_a_line_and_a_status(
    script: str, options: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert re.fullmatch("error: .*no such file.*\n", done.stderr)


@pytest.mark.parametrize("module", [train, translate], ids=["train", "translate"])
def test_help_tells_of_every_option(
    module: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0 and module.__doc__.strip() in text
    options = re.findall(
        r"^  (?:-h, )?(--[\w-]+)(?: (?:[A-Z]+(?: \[[A-Z]+ \.\.\.\])?|\{.*?\}))?(?:  +|\n {8,})(\S.*)$",
        text,
        re.MULTILINE,
    )
    assert (
        len(options) == len(re.findall(r"^  -", text, re.MULTILINE)) > 5
    )  # each has a line of help
    if module is train:
        said = dict(options)
        for name in train.TOY:  # what it says of defaults is so
            toy, real = train.TOY[name], train.REAL[name]
            found = re.search(
                r"\(default: ([\d.e-]+)(?: toy, ([\d.e-]+) files)?\)",
                said[f"--{name.replace('_', '-')}"],
            )
            assert (float(found[1]), float(found[2] or found[1])) == (toy, real), name


# -- translate ---------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_translating_arguments(run: SimpleNamespace) -> None:
    texts = ["hello world", "the red house is small", "I see the teacher"]
    found = run_main([str(run.directory), *texts], translate.main)
    assert found.result == 0 and found.err == ""
    assert found.out.splitlines()[0] == "hola mundo"
    assert found.out.splitlines() == [t.text for t in run.translator.translate(texts, beam_size=4)]


def test_beam_and_greedy(run: SimpleNamespace) -> None:
    texts = [a for a, _ in run.test[:20]]
    for beam in (1, 3):
        found = run_main(
            [str(run.directory), *texts, "--beam", str(beam), "--scores", "--max-len", "6"],
            translate.main,
        )
        expected = run.translator.translate(texts, beam_size=beam, max_len=6)
        assert found.out.splitlines() == [f"{t.text}\t{t.score:.3f}" for t in expected]
    greedy, beams = (run.translator.translate(texts, beam_size=n) for n in (1, 4))
    assert [g.score for g in greedy] != [b.score for b in beams]  # one is a sum, the other a mean


def test_translating_standard_input(run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello world\n\n  she has a cat \n"))
    found = run_main([str(run.directory)], translate.main)
    first, last = run.translator.translate(["hello world", "she has a cat"], 4)
    assert found.out.splitlines() == [first.text, "", last.text]


def test_a_line_that_cannot_be_translated_keeps_its_place(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"hello world\n{'hello ' * 300}\nshe has a cat\n")
    )
    found = run_main([str(run.directory)], translate.main)
    first, last = (t.text for t in run.translator.translate(["hello world", "she has a cat"], 4))
    assert found.out.splitlines() == [first, "", last] and found.result == 1
    (line,) = found.err.splitlines()
    assert line.startswith(
        "error: a sentence of 300 tokens is longer than the 256 that the model takes"
    )


def test_blank_lines_stay_and_words_without_spaces_are_told(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello world\n\nhelloworld\nhello world\n"))
    assert translate.main([str(run.directory)]) == 1
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert len(lines) == 5 and lines[1] == lines[2] == "" and lines[0] == lines[3] != ""
    assert "helloworld" in err and "spaces between them" in err and err.count("\n") == 1


def test_resuming_with_another_setting_says_so(
    run: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    args = train.parse(["--out", str(run.directory), "--resume", "--lr", "0.125", "--quiet"])
    assert args.lr != 0.125 and args.quiet
    assert (
        capsys.readouterr().err
        == f"{run.directory} goes on with --lr {args.lr}, as it was begun, not with 0.125\n"
    )


@pytest.mark.parametrize("option", ["--attention", "--explore"])
def test_a_picture_that_cannot_be_written_is_one_line(
    run: SimpleNamespace, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").write_text("")
    found = run_main(
        [str(run.directory), option, str(tmp_path / "file" / "a.png"), "hello world"],
        translate.main,
    )
    assert found.out == "hola mundo\n" and found.result == 1
    assert len(found.err.splitlines()) == 1 and found.err.startswith("error: ")


@pytest.mark.parametrize("end", [["", "never"], [EOFError], [KeyboardInterrupt]])
def test_translating_at_a_prompt(
    run: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, end: list[Any]
) -> None:
    said: Iterator[Any] = iter(["hello world", "hello xylophone", *end])

    def asked(prompt: str) -> str:
        line = next(said)
        if isinstance(line, type):
            raise line
        return line

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(builtins, "input", asked)
    found = run_main([str(run.directory)], lambda argv: run_script(lambda: translate.main(argv)))
    assert found.result == (130 if end == [KeyboardInterrupt] else 0)
    assert len(found.out.splitlines()) == 2 and found.out.startswith("hola mundo\n")
    assert "not in the vocabulary: xylophone" in found.err


def test_translate_draws_what_it_attended_to(
    run: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "a.png"
    options = [str(run.directory), "--attention", str(path), "hello world"]
    found = run_main(options, translate.main)
    assert is_picture(path) and str(path) in found.err and found.out == "hola mundo\n"
    path.unlink()
    without(["matplotlib"], monkeypatch)
    found = run_main(options, translate.main)
    assert "plotting needs matplotlib: pip install matplotlib" in found.err and not path.exists()
    assert (
        "hello world" in found.err
        and re.search("^ *mundo │", found.err, re.MULTILINE)
        and found.result == 0
    )


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Change what a JSON file of a run holds."""

    def apply(directory: Path) -> None:
        data = json.loads((directory / name).read_text(encoding="utf-8"))
        change(data)
        (directory / name).write_text(json.dumps(data), encoding="utf-8")

    return apply


def cut_short(name: str, keep: float) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        data = (directory / name).read_bytes()
        (directory / name).write_bytes(data[: int(keep * len(data))])

    return apply


@pytest.mark.parametrize(
    "break_it, message",
    [
        (cut_short("best.safetensors", 0.9), "best.safetensors: not a whole safetensors file"),
        (cut_short("best.safetensors", 0.0), "best.safetensors: not a whole safetensors file"),
        (lambda d: (d / "best.safetensors").unlink(), "best.safetensors: no such file"),
        (lambda d: (d / "vocab.json").unlink(), "vocab.json: no such file; a run directory has"),
        (cut_short("config.json", 0.5), "config.json: not JSON"),
        (
            edited("vocab.json", lambda v: v["source"].pop()),
            r"the source vocabulary has (\d+) tokens, but the model was made for",
        ),
        (
            edited("vocab.json", lambda v: v["target"].append("ñu")),
            "the target vocabulary has .* but the model was made for",
        ),
        (
            edited("vocab.json", lambda v: v["source"].reverse()),
            "expected <pad>, <bos>, <eos>, <unk> first",
        ),
        (edited("vocab.json", lambda v: v.pop("target")), "vocab.json: target is missing"),
        (
            edited("config.json", lambda c: c["model"].update(d_modle=3)),
            "unknown settings: d_modle; expected some of",
        ),
        (
            edited("config.json", lambda c: c["model"].update(num_heads=5)),
            "d_model must be divisible by num_heads, got d_model=32 and num_heads=5",
        ),
        (
            edited("config.json", lambda c: c["model"].update(d_ff=8)),
            "config.json: model: d_ff must be a size of an array in best.safetensors, got 8",
        ),
        (
            edited("config.json", lambda c: c["tokenizers"]["source"].update(name="foo")),
            "unknown tokenizer 'foo'",
        ),
        (
            edited("config.json", lambda c: c["model"].update(d_model="wide")),
            'config.json: model: d_model: expected an integer, got "wide"',
        ),
    ],
)
def test_a_broken_run_is_one_line(
    run: SimpleNamespace, tmp_path: Path, break_it: Callable[[Path], None], message: str
) -> None:
    directory = shutil.copytree(run.directory, tmp_path / "run")
    break_it(directory)
    assert re.search(message, refused([str(directory), "hello world"], translate.main))


@pytest.mark.parametrize(
    "text, message",
    [
        ([" "], "nothing to translate: ' ' has no tokens"),
        (
            ["hello " * 300],
            "a sentence of 300 tokens is longer than the 256 that the model takes: 'hello hello",
        ),
        (["hello", "--beam", "0"], "expected 1 <= n_best <= beam_size|at least 1"),
        (["hello", "--max-len", "0"], "at least 1"),
    ],
)
def test_text_that_cannot_be_translated_is_one_line(
    run: SimpleNamespace, text: list[str], message: str
) -> None:
    assert re.search(message, refused([str(run.directory), *text], translate.main))
