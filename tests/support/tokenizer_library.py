"""The package `tokenizers`, or a stand-in with the parts that `nn.text` uses, without it.

The stand-in reads and writes tokenizer.json. It has the models of words, word pieces and pairs of
tokens, and the steps of the tests. Its patterns know letters, digits and marks of Europe and China.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

LETTERS = {"Lu": "A-ZÀ-ÖØ-Þ", "Ll": "a-zµß-öø-ÿ", "Lo": "ªº一-鿿ぁ-ゖァ-ヺ가-힣", "Lt": "ǅ", "Lm": "ʰ", "M": "\u0300-\u036f"}  # fmt: skip
CLASSES = {
    **LETTERS, "L": "".join(LETTERS[name] for name in ("Lu", "Ll", "Lo", "Lt", "Lm")), "N": r"0-9²³¹¼-¾",
    "P": r"!-#%-*,-/:;?@\[-\]_{}¡§«¶·»¿。，、！…", "S": r"$+<->\^`|~¢-©¬®-±´¸×÷",
}  # fmt: skip
"""Characters of Unicode's categories in patterns of `re`."""
FIRST = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = {b: chr(b) for b in FIRST} | {
    b: chr(256 + i) for i, b in enumerate(sorted({*range(256)} - {*FIRST}))
}
"""Letters of GPT-2 for bytes."""
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def compiled(pattern: Any) -> re.Pattern[str]:
    """Return the pattern of a step, {"Regex": ...} or {"String": ...}."""
    if "String" in pattern:
        return re.compile(re.escape(pattern["String"]))
    text, depth, out = pattern["Regex"], 0, ""
    for part in re.findall(r"\\p\{\w+\}|\\.|.", text, re.DOTALL):
        if part.startswith("\\p{"):
            chars = CLASSES[part[3:-1]]
            part = chars if depth else f"[{chars}]"
        depth = {"[": 1, "]": 0}.get(part, depth)
        out += part
    if sys.version_info < (3, 11):  # the rules do not depend on possessive repeats
        out = re.sub(r"\]([?+])\+", r"]\1", out)
    return re.compile(out)


class Step:
    """A step or a model, with the options that tokenizer.json has of it."""

    def __init__(self, type: str, **options: Any) -> None:
        self.type, self.options = type, options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.options:
            raise AttributeError(name)
        return self.options[name]

    @property
    def steps(self) -> list[Step]:
        return next(self.options[name] for name in PARTS.values() if name in self.options)

    def decode(self, tokens: list[str]) -> str:
        return "".join(self.join(tokens))

    def alphabet(self) -> list[str]:
        return [*BYTES.values()]

    def normalize_str(self, text: str) -> str:
        if self.type == "Sequence":
            for step in self.steps:
                text = step.normalize_str(text)
        elif self.type == "BertNormalizer":
            lowers, strips = self.options.get("lowercase", True), self.options.get("strip_accents")
            if self.options.get("handle_chinese_chars", True):
                text = re.sub("([一-鿿])", r" \1 ", text)
            if lowers if strips is None else strips:
                text = unicodedata.normalize("NFD", text)
                text = "".join(c for c in text if unicodedata.category(c) != "Mn")
            text = text.lower() if lowers else text
        elif self.type == "Replace":
            text = compiled(self.pattern).sub(lambda _: self.content, text)
        elif self.type == "Prepend":
            text = self.prepend + text if text else text
        elif self.type in ("NFC", "NFKC"):
            text = unicodedata.normalize(self.type, text)
        elif self.type != "Precompiled":
            raise TypeError(f"unknown step {self.type}")
        return text

    def pre_tokenize_str(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        if self.type == "Sequence":
            pieces = [(text, (0, len(text)))]
            for step in self.steps:
                pieces = [
                    (piece, (start + a, start + b)) for old, (start, _) in pieces
                    for piece, (a, b) in step.pre_tokenize_str(old)
                ]  # fmt: skip
            return pieces
        if self.type == "custom":
            cut = SimpleNamespace(split=lambda f: [str(x) for x in f(0, text)])
            return [(piece, (0, 0)) for piece in self.step.pre_tokenize(cut)]
        if self.type == "ByteLevel":
            if self.options.get("add_prefix_space", True) and not text.startswith(" "):
                text = " " + text
            whole = not self.options.get("use_regex", True)
            found = [(text, (0, len(text)))] if whole else matches(compiled({"Regex": GPT2}), text)
            return [("".join(BYTES[b] for b in piece.encode()), ends) for piece, ends in found]
        patterns = {
            "Whitespace": r"\w+|[^\w\s]+",
            "BertPreTokenizer": r"\w+|[^\w\s]",
            "WhitespaceSplit": r"\S+",
        }
        if self.type in patterns:
            found = matches(re.compile(patterns[self.type]), text)
            return [(piece, ends) for piece, ends in found if piece.strip()]
        if self.type in ("Split", "Digits"):
            pattern = self.pattern if self.type == "Split" else {"Regex": r"\d"}
            return matches(compiled(pattern), text)
        raise TypeError(f"unknown step {self.type}")

    def join(self, tokens: list[str]) -> list[str]:
        """Return the strings that a decoder makes of tokens."""
        if self.type == "Sequence":
            for step in self.steps:
                tokens = step.join(tokens)
        elif self.type == "WordPiece":
            text = " ".join(tokens).replace(" ##", "")
            tokens = [re.sub(r" ([.,!?]|'s)", r"\1", text)]
        elif self.type == "ByteLevel":
            codes = {letter: byte for byte, letter in BYTES.items()}
            data = b"".join(
                bytes(codes[c] for c in t) if {*t} <= codes.keys() else t.encode() for t in tokens
            )
            tokens = [data.decode("utf-8", "replace")]
        elif self.type == "Replace":
            tokens = [compiled(self.pattern).sub(lambda _: self.content, t) for t in tokens]
        elif self.type == "Fuse":
            tokens = ["".join(tokens)]
        elif self.type == "ByteFallback":
            data, out = b"", []
            for token in [*tokens, ""]:
                if is_byte := re.fullmatch("<0x(..)>", token):
                    data += bytes.fromhex(is_byte[1])
                else:
                    out += [data.decode("utf-8", "replace"), token]
                    data = b""
            tokens = out
        elif self.type == "Strip":
            tokens = [re.sub(f"^{re.escape(self.content)}{{,{self.start}}}", "", t) for t in tokens]
        elif self.type == "BPEDecoder":
            tokens = [t.replace(self.suffix, " ") for t in tokens]
            tokens = ["".join(tokens).rstrip()]
        else:
            raise TypeError(f"unknown step {self.type}")
        return tokens

    def split(self, word: str) -> list[str]:
        """Return the tokens of a piece by a model."""
        vocab, unknown = self.vocab, self.options.get("unk_token")
        if self.type == "WordLevel":
            return [word if word in vocab else unknown]
        if self.type == "WordPiece":
            out, start = [], 0
            while start < len(word):
                mark = "##" if start else ""
                ends = range(len(word), start, -1)
                end = next((e for e in ends if mark + word[start:e] in vocab), None)
                if end is None:
                    return [unknown]
                out.append(mark + word[start:end])
                start = end
            return out
        if self.options.get("ignore_merges") and word in vocab:
            return [word]
        ranks = {tuple(pair): i for i, pair in enumerate(self.merges)}
        parts = [*word]
        parts[-1:] = [part + (self.options.get("end_of_word_suffix") or "") for part in parts[-1:]]
        while pairs := [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]:
            i = min(pairs)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        out = []
        for part in parts:
            if part in vocab:
                out.append(part)
            elif self.options.get("byte_fallback"):
                out += [f"<0x{byte:02X}>" for byte in part.encode()]
            elif unknown is not None and not (
                self.options.get("fuse_unk") and out[-1:] == [unknown]
            ):
                out.append(unknown)
        return out

    def json(self) -> dict[str, Any]:
        plain = lambda x: x.json() if isinstance(x, Step) else [*map(plain, x)] if isinstance(x, (list, tuple)) else x  # fmt: skip
        return {"type": self.type, **{name: plain(x) for name, x in self.options.items()}}


def matches(pattern: re.Pattern[str], text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the matches of a pattern, and what is between them."""
    ends = [0, *(i for m in pattern.finditer(text) for i in m.span()), len(text)]
    return [(text[a:b], (a, b)) for a, b in pairwise(ends) if a < b]


def from_json(data: Any) -> Any:
    """Return the steps of an entry of tokenizer.json."""
    if data is None:
        return None
    options = {name: x for name, x in data.items() if name != "type"}
    for name in {*PARTS.values(), "processors"} & options.keys():
        options[name] = [from_json(step) for step in options[name]]
    return Step(data["type"], **options)


def maker(type: str, *names: str, **defaults: Any) -> Callable[..., Step]:
    """Return a constructor of a step with these arguments."""
    return lambda *values, **options: Step(type, **defaults, **dict(zip(names, values)), **options)


class Regex(dict[str, str]):
    def __init__(self, pattern: str) -> None:
        super().__init__(Regex=pattern)


def replacing(type: str, *names: str) -> Callable[..., Step]:
    """Return a constructor of a step whose first argument is a string or a pattern."""
    return lambda pattern, *values: Step(
        type, pattern={"String": pattern} if isinstance(pattern, str) else dict(pattern),
        **dict(zip(names, values)),
    )  # fmt: skip


def template(single: Any, pair: Any = "$A $B:1", special_tokens: Any = ()) -> Step:
    """Return the step that puts special tokens around texts."""
    ids, parts = dict(special_tokens), {}
    for name, value in (("single", single), ("pair", pair)):
        parts[name] = []
        for part in value.split() if isinstance(value, str) else value:
            token, _, kind = part.partition(":") if not part.startswith(":") else (part, "", "")
            where = {"id": token.removeprefix("$") or "A", "type_id": int(kind or 0)}
            if not token.startswith("$") and token not in ids:
                raise ValueError(f"Missing SpecialToken(s) with id(s) `{token}`")
            parts[name].append({"Sequence" if token.startswith("$") else "SpecialToken": where})
    special = {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in ids.items()}
    return Step("TemplateProcessing", **parts, special_tokens=special)


class AddedToken:
    """A token of its own, with the flags of the package."""

    def __init__(self, content: str, single_word: bool = False, lstrip: bool = False,
                 rstrip: bool = False, normalized: bool | None = None, special: bool = False) -> None:  # fmt: skip
        self.content, self.single_word, self.lstrip, self.rstrip = content, single_word, lstrip, rstrip  # fmt: skip
        self.normalized, self.special = not special if normalized is None else normalized, special

    @property
    def pattern(self) -> str:
        text, edge = re.escape(self.content), r"\b" if self.single_word else ""
        left, right = r"\s*" if self.lstrip else "", r"\s*" if self.rstrip else ""
        return f"{left}{edge}(?:{text}){edge}{right}"


class Tokenizer:
    """Splits texts by added tokens, steps and a model."""

    def __init__(self, model: Step) -> None:
        self.model = model
        self.normalizer = self.pre_tokenizer = self.decoder = self.post_processor = None
        self.added: dict[int, AddedToken] = {}
        self.limit: int | None = None
        self.padding: Any = None

    @staticmethod
    def from_file(path: str) -> Tokenizer:
        return Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))

    @staticmethod
    def from_str(text: str) -> Tokenizer:
        data = json.loads(text)
        options = {name: x for name, x in data["model"].items() if name != "type"}
        if "merges" in options:
            options["merges"] = [tuple(pair) for pair in options["merges"]]
        kind = data["model"].get("type") or ("BPE" if "merges" in options else "WordLevel")
        if not all(isinstance(i, int) and i >= 0 for i in options["vocab"].values()):
            raise ValueError("ids must be integers")
        tokenizer = Tokenizer(Step(kind, **options))
        for name in (*PARTS, "post_processor"):
            setattr(tokenizer, name, from_json(data.get(name)))
        for entry in data.get("added_tokens") or ():
            token = AddedToken(**{name: x for name, x in entry.items() if name != "id"})
            tokenizer.added[tokenizer._next(token.content)] = token
        tokenizer.limit = (data.get("truncation") or {}).get("max_length")
        tokenizer.padding = data.get("padding")
        return tokenizer

    def to_str(self) -> str:
        steps = {name: getattr(self, name) for name in (*PARTS, "post_processor")}
        added = [{"id": i, **vars(token)} for i, token in self.added.items()]
        return json.dumps({
            "version": "1.0", "truncation": self.limit and {"max_length": self.limit}, "padding": self.padding,
            "added_tokens": added,
            **{name: step and step.json() for name, step in steps.items()}, "model": self.model.json(),
        })  # fmt: skip

    def save(self, path: str) -> None:
        Path(path).write_text(self.to_str(), encoding="utf-8")

    def train_from_iterator(self, texts: Iterable[str], trainer: Step) -> None:
        """Join the most frequent pair of neighbours until there are `vocab_size` tokens."""
        words: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            words.update(tuple(word) for word, _ in self.pre_tokenizer.pre_tokenize_str(text))
        letters = {*trainer.initial_alphabet, *(letter for word in words for letter in word)}
        tokens, merges = sorted(letters), []
        while len(tokens) < trainer.vocab_size:
            pairs = Counter[tuple[str, str]]()
            for word, count in words.items():
                for pair in pairwise(word):
                    pairs[pair] += count
            if not pairs:
                break
            best = min(pairs, key=lambda pair: (-pairs[pair], pair))
            merges.append(best)
            tokens.append("".join(best))
            joined: Counter[tuple[str, ...]] = Counter()
            for word, count in words.items():
                parts, i = [*word], 0
                while i < len(parts) - 1:
                    if tuple(parts[i : i + 2]) == best:
                        parts[i : i + 2] = ["".join(best)]
                    i += 1
                joined[tuple(parts)] += count
            words = joined
        self.model = models.BPE({token: i for i, token in enumerate(dict.fromkeys(tokens))}, merges)

    def no_padding(self) -> None:
        self.padding = None

    def enable_padding(self, length: int | None = None, **options: Any) -> None:
        self.padding = {"strategy": {"Fixed": length} if length else "BatchLongest", **options}

    def _pad(self, encodings: list[Any]) -> list[Any]:
        """Add padding tokens of type 0 behind encodings."""
        if self.padding is None:
            return encodings
        strategy = self.padding["strategy"]
        lengths = [len(e.ids) for e in encodings]
        longest = max(lengths, default=0) if isinstance(strategy, str) else strategy["Fixed"]
        filling = {"ids": self.padding.get("pad_id", 0), "type_ids": 0, "special_tokens_mask": 1,
                   "offsets": (0, 0), "tokens": "[PAD]"}  # fmt: skip
        for encoding, length in zip(encodings, lengths):
            for name, value in filling.items():
                getattr(encoding, name).extend([value] * (longest - length))
        return encodings

    def no_truncation(self) -> None:
        self.limit = None

    def enable_truncation(self, max_length: int) -> None:
        self.limit = max_length

    def get_vocab(self) -> dict[str, int]:
        return {**self.model.vocab, **{token.content: i for i, token in self.added.items()}}

    def get_vocab_size(self) -> int:
        return len(self.get_vocab())

    def get_added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self.added

    def token_to_id(self, token: str) -> int | None:
        if not isinstance(token, str):
            raise TypeError("token must be a string")
        return self.get_vocab().get(token)

    def id_to_token(self, i: int) -> str | None:
        return {i: token for token, i in self.get_vocab().items()}.get(i)

    def _next(self, content: str) -> int:
        """Return the id of a token that is added."""
        i = self.token_to_id(content)
        return i if i is not None else max([-1, *self.get_vocab().values()]) + 1

    def add_tokens(self, tokens: list[Any], special: bool = False) -> None:
        for token in tokens:
            token = AddedToken(token, special=special) if isinstance(token, str) else token
            token.special = token.special or special
            self.added[self._next(token.content)] = token

    def add_special_tokens(self, tokens: list[Any]) -> None:
        self.add_tokens(tokens, special=True)

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        encoding = self.encode("", *([""] if is_pair else []))
        return sum(token != "[PAD]" for token in encoding.tokens)

    def _tokens(self, text: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the tokens of a text with their places."""
        pieces = [(text, 0, False)]
        for normalized in (False, True):
            if normalized and self.normalizer is not None:
                pieces = [
                    (piece if done else self.normalizer.normalize_str(piece), start, done)
                    for piece, start, done in pieces
                ]
            added = [t for t in self.added.values() if t.normalized == normalized]
            if added:
                added.sort(key=lambda token: -len(token.content))
                pattern = re.compile("|".join(f"({token.pattern})" for token in added))
                pieces = [
                    (added[m.lastindex - 1].content, start + a, True)
                    if not done and (m := pattern.fullmatch(piece[a:b])) and m.lastindex
                    else (piece[a:b], start + a, done)
                    for piece, start, done in pieces
                    for a, b in ([(0, len(piece))] if done else [e for _, e in matches(pattern, piece)])
                ]  # fmt: skip
        for piece, start, done in pieces:
            if done:
                yield piece, (start, start + len(piece))
                continue
            words = [(piece, (0, len(piece)))] if piece else []
            if self.pre_tokenizer is not None:
                words = self.pre_tokenizer.pre_tokenize_str(piece)
            for word, (a, b) in words:
                tokens, at = self.model.split(word), start + a
                for token in tokens:
                    end = start + b if len(tokens) == 1 else at + len(token.removeprefix("##"))
                    yield token, (at, end)
                    at = end

    def encode(self, text: str, pair: Any = None, add_special_tokens: bool = True) -> Any:
        parts = {"A": [*self._tokens(text)], "B": [] if pair is None else [*self._tokens(pair)]}
        step = self.post_processor if add_special_tokens else None
        if step is None or step.type != "TemplateProcessing":
            step = template("$A", "$A $B:1")
        layout = step.single if pair is None else step.pair
        rows = lambda: [
            (token, ends, part["Sequence"]["type_id"], 0, self.token_to_id(token))
            for part in layout if "Sequence" in part
            for token, ends in parts[part["Sequence"]["id"]]
        ]  # fmt: skip
        around = sum("SpecialToken" in part for part in layout)
        while self.limit is not None and len(rows()) + around > self.limit:
            max(parts.values(), key=len).pop()
        found = []
        for part in layout:
            if "Sequence" in part:
                place = part["Sequence"]
                found += [
                    (t, ends, place["type_id"], 0, self.token_to_id(t))
                    for t, ends in parts[place["id"]]
                ]
            else:
                place = part["SpecialToken"]
                entry = step.special_tokens[place["id"]]
                found += [
                    (token, (0, 0), place["type_id"], 1, i)
                    for token, i in zip(entry["tokens"], entry["ids"])
                ]
        tokens, offsets, types, special, ids = (
            map(list, zip(*found)) if found else ([], [], [], [], [])
        )
        encoding = SimpleNamespace(
            tokens=tokens, offsets=offsets, type_ids=types, special_tokens_mask=special, ids=ids
        )
        return self._pad([encoding])[0]

    def encode_batch(self, inputs: list[Any], add_special_tokens: bool = True) -> list[Any]:
        pairs = [[x] if isinstance(x, str) else x for x in inputs]
        return self._pad([self.encode(*x, add_special_tokens=add_special_tokens) for x in pairs])

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        special = {i for i, token in self.added.items() if token.special and skip_special_tokens}
        tokens = [self.id_to_token(i) for i in ids if i not in special]
        present = [token for token in tokens if token is not None]
        return " ".join(present) if self.decoder is None else "".join(self.decoder.join(present))


def read_words(path: str) -> dict[str, int]:
    return {word: i for i, word in enumerate(Path(path).read_text("utf-8").splitlines())}


def read_merges(vocab: str, merges: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    lines = Path(merges).read_text("utf-8").splitlines()
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    if not all(len(pair) == 2 for pair in pairs):
        raise ValueError("Merges text file invalid")
    return json.loads(Path(vocab).read_text("utf-8")), pairs  # type: ignore[return-value]


models = SimpleNamespace(
    WordLevel=maker("WordLevel", "vocab", "unk_token"), WordPiece=maker("WordPiece", "vocab", "unk_token"),
    BPE=lambda vocab=None, merges=(), **options: Step("BPE", vocab=vocab or {}, merges=merges, **options),
)  # fmt: skip
models.WordPiece.read_file, models.BPE.read_file = read_words, read_merges  # type: ignore[attr-defined]
byte_level = maker("ByteLevel")
byte_level.alphabet = lambda: [*BYTES.values()]  # type: ignore[attr-defined]
custom = maker("custom", "step")
STAND_IN = ModuleType("tokenizers")
vars(STAND_IN).update(
    AddedToken=AddedToken, Regex=Regex, Tokenizer=Tokenizer, NormalizedString=str, models=models,
    normalizers=SimpleNamespace(
        BertNormalizer=maker("BertNormalizer"), NFC=maker("NFC"), Prepend=maker("Prepend", "prepend"),
        Replace=replacing("Replace", "content"), Sequence=maker("Sequence", "normalizers"),
    ),
    pre_tokenizers=SimpleNamespace(
        BertPreTokenizer=maker("BertPreTokenizer"), ByteLevel=byte_level, PreTokenizer=SimpleNamespace(custom=custom),
        Sequence=maker("Sequence", "pretokenizers"), Split=replacing("Split", "behavior"),
        Whitespace=maker("Whitespace"), WhitespaceSplit=maker("WhitespaceSplit"),
    ),
    decoders=SimpleNamespace(
        BPEDecoder=maker("BPEDecoder"), ByteFallback=maker("ByteFallback"), ByteLevel=byte_level, Fuse=maker("Fuse"),
        Replace=replacing("Replace", "content"), Sequence=maker("Sequence", "decoders"),
        Strip=maker("Strip", "content", "start", "stop"), WordPiece=maker("WordPiece"),
    ),
    trainers=SimpleNamespace(BpeTrainer=maker("BpeTrainer")),
    processors=SimpleNamespace(TemplateProcessing=template),
)  # fmt: skip
try:
    import tokenizers
except ImportError:
    tokenizers = STAND_IN
