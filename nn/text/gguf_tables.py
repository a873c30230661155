"""Tables of llama.cpp for the tokenizers of GGUF files.

References
----------
https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
"""

from __future__ import annotations

from typing import NamedTuple


class PreTokenizer(NamedTuple):
    """Rules of a byte-level tokenizer that `tokenizer.ggml.pre` stands for."""

    patterns: tuple[str, ...]  # each one splits the pieces of the one before
    whole_words: bool = False  # a piece that is a token is not split and merged
    add_bos: bool = False  # if the file does not have `tokenizer.ggml.add_bos_token`


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_MARKS}|\s+(?!\S)"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_MARKS}[\r\n]*|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_JAIS2 = (
    rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_MARKS}[\r\n]*|\s*[\r\n]+"
    + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
    + r"|\s{1,2}(?!\S)|\s{1}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    rf"|{_MARKS}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased(end: str, numbers: str) -> str:
    """Return a pattern that splits words before capital letters."""
    first = r"[^\r\n\p{L}\p{N}]?"
    words = f"{first}{_UPPER}*{_LOWER}+{end}|{first}{_UPPER}+{_LOWER}*{end}"
    return rf"{words}|{numbers}|{_MARKS}[\r\n/]*|{_SPACES}"


_GPT4O = _cased(f"{_CONTRACTIONS}?", r"\p{N}{1,3}")
_CHINESE_JAPANESE = "[一-龥\u3040-ゟ゠-ヿ]+"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    _CHINESE_JAPANESE,
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿ"
    "ⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_ASIAN = "[一-龥ࠀ-一가-\ud7ff]+"
_DIGITS_OF_THREE = "[0-9][0-9][0-9]"
_FALCON = r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, _DIGITS_OF_THREE
_DEFAULT = r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", _DIGITS_OF_THREE
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer(_DEFAULT),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
         "jina-v5-nano"),
        PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True),
    ),
    **dict.fromkeys(
        ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), PreTokenizer((_LLAMA3,))
    ),
    "jais-2": PreTokenizer((_JAIS2,)),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _LLAMA3.replace("{1,3}", "+")), whole_words=True),
    **dict.fromkeys(
        ("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
         "mellum", "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt",
         "olmo", "jais", "trillion", "granite-docling"),
        PreTokenizer((_GPT2,)),
    ),
    **dict.fromkeys(
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
         "mellum2"),
        PreTokenizer((r"\p{N}", _GPT2)),
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
         "solar-open", "grok-2"),
        PreTokenizer((_QWEN2,)),
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    "ufakzeka": PreTokenizer((_QWEN2.removeprefix(f"{_CONTRACTIONS}|"),)),
    "laguna": PreTokenizer((r"[^\n]+|[\n]+", _QWEN2)),
    "seed-coder": PreTokenizer((_SEED,)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), PreTokenizer((_BAILING,))),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,)),
    "tekken": PreTokenizer((_cased("", r"\p{N}"),), whole_words=True, add_bos=True),
    **dict.fromkeys(
        ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), PreTokenizer((_GPT4O,))
    ),
    "granite-embed-multi-97m": PreTokenizer((_GPT4O,), whole_words=True),
    **dict.fromkeys(
        ("tiny_aya", "cohere2moe"), PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))
    ),
    "youtu": PreTokenizer(
        ("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + _CHINESE_JAPANESE,
         _cased(f"{_CONTRACTIONS}?", r"\p{N}")),
        whole_words=True,
    ),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), PreTokenizer(_DEEPSEEK3)
    ),
    "spark2_5": PreTokenizer(
        (*_DEEPSEEK3[:2],
         _DEEPSEEK3[2].replace(r"+[\r\n]*|\s*[\r\n]+", r"+|[\r\n]"), r"\p{N}")
    ),
    "deepseek-llm": PreTokenizer(
        (r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$",
         _ASIAN, r"\p{N}+")
    ),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}")
    ),
    "falcon": PreTokenizer(_FALCON),
    **dict.fromkeys(("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_BLOOM,))),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "chameleon": PreTokenizer(
        ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
         r"[\p{P}!-/:-@\[-`{-~]", _GPT2),
        add_bos=True,
    ),
}  # fmt: skip
"""Rules by `tokenizer.ggml.pre`. Those of kimi-k2 and afmoe are programs, and those of gemma4,
granite-embed-multi-311m, sarvam-moe and whitespace are not byte-level: they are missing.
"""

END_NAMES = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
}  # fmt: skip
"""Tokens that end generation, whatever their type."""
FIM_NAMES = {
    "pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
            "<|code_prefix|>", "<|prefix|>"),
    "suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
            "<|code_suffix|>", "<|suffix|>"),
    "mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
            "<|code_middle|>", "<|middle|>"),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "sep": ("<|file_sep|>",),
}  # fmt: skip
"""Control tokens for filling in the middle by the stem of their key, if the file lacks the key.
"pad", "rep" and "sep" end generation.
"""
VISIBLE_NAMES = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}
"""Tokens of gpt-oss that are part of the text, whatever their type."""

OTHER_KEYS = {
    "tokenizer.chat_templates",
    "tokenizer.huggingface.json",
    *(f"tokenizer.ggml.{name}" for name in (
        "add_sep_token", "add_space_prefix", "cls_token_id", "mask_token_id", "merges",
        "middle_token_id", "normalizer.lowercase", "normalizer.strip_accents",
        "pre", "precompiled_charsmap", "prefix_token_id", "remove_extra_whitespaces", "scores",
        "seperator_token_id", "suffix_token_id", "suppress_tokens", "token_type_count",
    )),
}  # fmt: skip
"""Keys that llama.cpp does not read for one or both of the supported tokenizers."""
