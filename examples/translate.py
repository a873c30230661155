"""Translate with a trained run.

python examples/translate.py runs/zh-en "我 有 一只 猫"      sentences as arguments
python examples/translate.py runs/zh-en < sentences.txt        one on each line of standard input
python examples/translate.py runs/zh-en                        at a prompt
python examples/translate.py runs/zh-en --attention a.png "我 有 一只 猫"
python examples/translate.py runs/zh-en --explore a.html "我 有 一只 猫"
"""

from __future__ import annotations

import stoppable  # isort: skip  # noqa: F401 (first: Ctrl-C is one line from here on)

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from prompt import asked

from minigrad import MissingExtraError
from minigrad.console import count, one_line, piped, run_script
from nn import Translation, Translator, beam_search, explore
from nn.inspection.plots import attention_grid, text_heatmap
from nn.text import SPECIALS, SpaceTokenizer

BLANK = Translation("", [], [], "", 0.0, [])  # of a blank line


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s RUN_DIR [text ...] [options]",
    )
    parser.add_argument("run_dir", type=Path, help="the run directory that training left")
    parser.add_argument("text", nargs="*", help="sentences to translate")
    parser.add_argument(
        "--beam",
        type=count,
        default=4,
        metavar="N",
        help="beam size; 1 is greedy (default: %(default)s)",
    )
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, metavar="A", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--max-len", type=count, metavar="N", help="the most tokens of a translation"
    )
    parser.add_argument(
        "--weights",
        default="best.safetensors",
        metavar="FILE",
        help="of the run: best.safetensors (default), last.safetensors, or a checkpoint",
    )
    parser.add_argument(
        "--attention", type=Path, metavar="PNG", help="draw what the last translation attended to"
    )
    parser.add_argument(
        "--explore", type=Path, metavar="HTML", help="make a page of it, to explore in a browser"
    )
    parser.add_argument(
        "--scores", action="store_true", help="show the mean log-probability of each translation"
    )
    return parser.parse_intermixed_args(argv)  # sentences can follow options


def sentences(args: argparse.Namespace) -> Iterator[list[str]]:
    """Lists of sentences: the arguments, or the lines of standard input, or one after another at a prompt."""
    if args.text:
        yield args.text
    elif not sys.stdin.isatty():
        yield list(piped())
    else:
        print("A sentence a line; an empty line ends.", file=sys.stderr)
        yield from ([line] for line in asked("> "))


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    translator = Translator.load(args.run_dir, args.weights)
    last: Translation | None = None
    status = 0
    for texts in sentences(args):
        for found in translated(translator, texts, args):
            if found is None or found is BLANK:
                status = max(status, int(found is None))
                print(flush=True)  # a line for each sentence, come what may
                continue
            last = found
            if unknown := translator.unknown(last):
                print(f"not in the vocabulary: {' '.join(unknown)}", file=sys.stderr)
            print(f"{last.text}\t{last.score:.3f}" if args.scores else last.text, flush=True)
    if last is not None and (args.attention or args.explore):
        try:
            show(translator, last, args)
        except (OSError, ValueError) as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
            status = 1
    return status


def translated(
    translator: Translator, texts: list[str], args: argparse.Namespace
) -> list[Translation | None]:
    """The translations; None for a sentence that cannot be translated, with a note. A blank line stays one."""
    if not all(texts):
        found = (
            iter(translated(translator, [text for text in texts if text], args))
            if any(texts)
            else iter(())
        )
        return [next(found) if text else BLANK for text in texts]
    try:
        for text in texts:
            check_spaces(translator, text)
        return list(translator.translate(texts, args.beam, args.length_penalty, args.max_len))
    except ValueError as error:
        if len(texts) > 1:
            return [found for text in texts for found in translated(translator, [text], args)]
        print(f"error: {error}", file=sys.stderr)
        return [None]


def check_spaces(translator: Translator, text: str) -> None:
    """A run that learned words with spaces between them makes nonsense of a sentence without."""
    if not isinstance(translator.source_tokenizer, SpaceTokenizer):
        return
    words, tokens = translator.source_vocab, translator.source_tokenizer(text)
    if any(len(token) > 1 for token in tokens) and not any(token in words for token in tokens):
        example = " ".join(words.tokens[len(SPECIALS) : len(SPECIALS) + 3])
        raise ValueError(
            f"{text!r}: this run knows words with spaces between them, as in {example!r}, and none of these"
        )


def show(translator: Translator, last: Translation, args: argparse.Namespace) -> None:
    """What a translation attended to, as a page, a picture or text."""
    maps, source, target = translator.attention(last)
    title = f"{last.source} → {last.text}"
    if args.explore:
        ids, _ = translator.encode([last.source])
        words = translator.target_vocab
        beams = [
            (translator.target_tokenizer.join(words.decode(other.tokens)), other.log_prob)
            for other in beam_search(translator.model, ids, beam_size=max(4, args.beam), n_best=4)[
                0
            ]
        ]
        explore(
            translator.model,
            ids,
            source,
            last.ids,
            target,
            args.explore,
            title,
            vocabulary=words.tokens,
            beams=beams,
        )
        print(f"attention: {args.explore}", file=sys.stderr)
    if args.attention:
        try:
            attention_grid(maps["cross"], target, source, title, args.attention)
            print(f"attention: {args.attention}", file=sys.stderr)
        except MissingExtraError as error:
            print(f"{error}; the last layer, heads averaged:", file=sys.stderr)
            print(text_heatmap(maps["cross"][-1].mean(0), target, source), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_script(main))
