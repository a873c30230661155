"""Translate with a run of `minigrad train`, or with a published model (OPUS-MT, NLLB, mBART ...).

    minigrad translate runs/zh-en "我 有 一只 猫"                    sentences as arguments
    minigrad translate runs/zh-en < sentences.txt                    one on each line
    minigrad translate runs/zh-en                                    at a prompt
    minigrad translate runs/zh-en --references b.txt < a.txt         with BLEU and chrF at the end
    minigrad translate DIR --from eng_Latn --to fra_Latn "A cat."    a model of many languages

DIR contains config.json, model.safetensors and the files of the tokenizer. Published models need
tokenizers, those of OPUS-MT also sentencepiece, and --references needs sacrebleu:
pip install "minigrad-nn[all]".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nn
from minigrad.check.extras import require

from ..decoding.sequences import position_limit
from ..text.pairs import read_lines
from ..text.scores import bleu_tokenizer, translation_scores
from ..text.tokenize import SpaceTokenizer
from ..text.vocabulary import SPECIALS
from .console import escaped, note
from .inputs import (
    BLEU_TOKENIZERS,
    add_json,
    add_model_options,
    add_number,
    announce,
    command_parser,
    is_run,
    load_model,
    load_text,
    print_json,
    read_batches,
)

BEST = "best.safetensors"
Translate = Callable[[list[str]], list[list[tuple[str, str]]]]
"""Returns the best translations of each sentence, each with what is printed after it."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    model = "run directory, or directory of a published model"
    parser = command_parser("translate", __doc__, model)
    parser.usage = "%(prog)s DIR [text ...] [options]"
    add = parser.add_argument
    add("text", nargs="*", help="sentences (default: lines of standard input, or a prompt)")
    add_number(parser, "--beam", None, "beam size; 1 is greedy (default: 4 for a run)")
    add_number(parser, "--top", 1, "translations to print for each sentence, the best first")
    add_number(parser, "--max-len", None, "the most tokens of a translation")
    add("--references", type=Path, metavar="FILE", help="correct translations, one on each line")
    tokenizer = "tokenizer of sacrebleu (default: by the script of the references)"
    add("--bleu-tokenize", choices=BLEU_TOKENIZERS, help=tokenizer)
    add_json(parser)
    add_model_options(parser)
    runs = parser.add_argument_group("runs")
    add_number(runs, "--length-penalty", 1.0, "length penalty of the beam search", float, "A")
    runs.add_argument("--scores", action="store_true", help="print the score of each translation")
    weights = runs.add_mutually_exclusive_group()
    weights.add_argument(
        "--weights", default=BEST, metavar="FILE", help="weights of the run to load"
    )
    average = "use the mean of the last N weights that the run kept (see train --average)"
    add_number(weights, "--average", None, average)
    add = parser.add_argument_group("models of many languages").add_argument
    add("--from", dest="language", metavar="CODE", help="language of the sentences")
    add("--to", metavar="CODE", help="language of the translations")
    args = parser.parse_intermixed_args(argv)
    if args.bleu_tokenize and not args.references:
        parser.error("--bleu-tokenize needs --references")
    if args.beam and args.beam < args.top:
        parser.error(f"--beam must be at least --top ({args.top}), got {args.beam}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Print a translation for each sentence, and return 1 if one could not be translated."""
    args = parse(argv)
    if args.references:
        require("sacrebleu", "minigrad translate --references")
    announce(args.references)
    references = list(read_lines(args.references)) if args.references else []
    make_functions = make_run_functions if is_run(args.model) else make_published_functions
    check, translate = make_functions(args)
    texts: list[str] = []
    status = 0
    for sentences in read_batches(args.text):
        possible = []
        for sentence in filter(None, sentences):
            try:
                check(sentence)
                possible.append(sentence)
            except ValueError as error:
                note(f"error: {error}")
                status = 1
        translations = dict(zip(possible, translate(possible)))
        for sentence in sentences:
            best = translations.get(sentence, [("", "")] * args.top)
            found = [translation for translation, _ in best]
            if args.json:
                several = {"translations": found} if args.top > 1 else {}
                print_json(text=sentence, translation=found[0], **several)
            else:
                print(*(escaped(text) + score for text, score in best), sep="\n")
            texts.append(found[0])
        sys.stdout.flush()
    if args.references:
        tokenize = args.bleu_tokenize or bleu_tokenizer(references)
        scores = translation_scores(texts, references, tokenize=tokenize)
        note(f"BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f}; {scores.bleu_signature}")
    return status


def load_run(args: argparse.Namespace) -> nn.Translator:
    """Return the translator of a run, with the weights that the options choose."""
    if not args.average:
        return nn.Translator.load(args.model, args.weights)
    checkpoints = nn.RunDirectory(args.model).checkpoints()[-args.average :]
    if not checkpoints:
        raise ValueError(f"{args.model}: no weights were kept; train with --average")
    translator = nn.Translator.load(args.model, checkpoints[-1].name, inference=False)
    translator.model.load_state_dict(nn.average_weights(checkpoints))
    translator.model = nn.for_inference(translator.model)
    return translator


def make_run_functions(args: argparse.Namespace) -> tuple[Callable[[str], None], Translate]:
    """Return a check of a sentence, and a function that translates sentences with a run."""
    if args.language or args.to:
        raise ValueError(f"--from and --to are for published models, got {args.model}")
    if args.adapter:
        raise ValueError(f"--adapter is for published models, got {args.model}")
    translator = load_run(args)
    if args.int8:
        translator.model = nn.for_inference(translator.model, "int8")
    beam = args.beam or max(4, args.top)

    def translate(sentences: list[str]) -> list[list[tuple[str, str]]]:
        options = (beam, args.length_penalty, args.max_len)
        found = translator.translate(sentences, *options, n_best=args.top)
        for best, *_ in found:
            if unknown := translator.unknown(best):
                words = escaped(" ".join(unknown))
                note(f"not in the vocabulary: {words}")
        score = "\t{:.3f}" if args.scores else ""
        return [[(t.text, score.format(t.score)) for t in row] for row in found]

    def check(sentence: str) -> None:
        translator.encode([sentence])
        check_spaces(translator, sentence)

    return check, translate


def make_published_functions(args: argparse.Namespace) -> tuple[Callable[[str], None], Translate]:
    """Return a check of a sentence, and a function that translates with a published model."""
    chosen = {
        "--weights": args.weights != BEST,
        "--average": args.average,
        "--scores": args.scores,
        "--length-penalty": args.length_penalty != 1,
    }
    for option in [option for option, value in chosen.items() if value]:
        raise ValueError(f"{option} is for runs of minigrad train, got {args.model}")
    text = load_text(args.model)
    model = load_model(args)
    if not hasattr(model.config, "source_vocab_size"):
        raise ValueError(f"{args.model}: not a model that translates, got {type(model).__name__}")
    settings = {
        "language": args.language,
        "to": args.to,
        "num_beams": args.beam,
        "max_len": args.max_len,
    }
    options = {name: value for name, value in settings.items() if value is not None}
    if args.top > 1:
        options |= {"num_beams": args.beam or max(4, args.top), "do_sample": False}
    n_best = args.top if args.top > 1 else None
    text.encode("", language=args.language)  # a wrong language is one error, not one a sentence

    def translate(sentences: list[str]) -> list[list[tuple[str, str]]]:
        parts = (sentences[i : i + 16] for i in range(0, len(sentences), 16))
        found = [
            row
            for part in parts
            for row in nn.generate_text(model, text, part, n_best=n_best, **options)
        ]
        return [[(line, "") for line in ([row] if n_best is None else row)] for row in found]

    def check(sentence: str) -> None:
        length = text.batch([sentence], language=args.language)[0].shape[1]
        if length > (position_limit(model.config) or length):
            raise ValueError(
                f"texts must have at most {model.config.max_len} tokens each, got {length} in "
                f"{sentence!r:.60}"
            )

    return check, translate


def check_spaces(translator: nn.Translator, sentence: str) -> None:
    """Raise an error for a sentence without the spaces that the run expects between words."""
    if not isinstance(translator.source_tokenizer, SpaceTokenizer):
        return
    words, tokens = translator.source_vocab, translator.source_tokenizer(sentence)
    if any(len(token) > 1 for token in tokens) and not any(token in words for token in tokens):
        example = " ".join(words.tokens[len(SPECIALS) : len(SPECIALS) + 3])
        raise ValueError(f"{sentence!r} must have spaces between words, as in {example!r}")
