"""Show what each token attended to, as a page to explore in a browser, or as a picture.

    minigrad explore runs/zh-en "我 有 一只 猫"                    the translation by a run
    minigrad explore DIR "The animal was tired." --out cat.html    a published model
    minigrad explore runs/zh-en "我 有 一只 猫" --out cat.png      a picture of cross-attention
    minigrad explore runs/zh-en "我 有 一只 猫" --backward         with the gradients of each word

The page works without a network. With --backward it also contains the gradient of the
log-probability of each token by each attention weight, and a head in ten steps that increase the
probability, and it opens on the least certain token. Published models need tokenizers, and pictures
need matplotlib: pip install "minigrad-nn[all]".
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import nn
from minigrad.check.extras import require
from nn.inspection import plots

from .inputs import command_parser, is_run, load_text
from .translate import check_spaces

PICTURES = (".png", ".svg", ".pdf")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command."""
    parser = command_parser("explore", __doc__, "directory of a run or a model")
    parser.add_argument("text", help="a sentence")
    out = "page (.html) or picture (.png, .svg, .pdf) to write (default: runs/NAME.html)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=out)
    parser.add_argument(
        "--backward",
        action="store_true",
        help="add the gradient of each output token by each attention weight to the page",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> Path:
    """Write the page or the picture, and return its path."""
    args = parse(argv)
    out = args.out or Path("runs") / f"{Path(args.model).resolve().name}.html"
    if out.suffix not in (".html", *PICTURES):
        raise ValueError(f"--out must end in .html, {', '.join(PICTURES)}, got {out}")
    if out.suffix in PICTURES:
        if args.backward:
            raise ValueError(f"--out must end in .html with --backward, got {out}")
        if not is_run(args.model):
            raise ValueError(f"--out must end in .html for a published model, got {out}")
        require("matplotlib", f"minigrad explore --out {out}")
    if is_run(args.model):
        explore_run(args.model, args.text, out, args.backward)
    else:
        explore_published(args.model, args.text, out, args.backward)
    print(out)
    return out


def explore_run(run_dir: str, sentence: str, out: Path, backward: bool) -> None:
    """Write what a translator attended to while it translated a sentence."""
    translator = nn.Translator.load(run_dir, inference=not backward)
    check_spaces(translator, sentence)
    (beams,) = translator.translate([sentence], beam_size=4, n_best=4)
    translation = beams[0]
    maps, source, target = translator.attention(translation)
    title = f"{translation.source} → {translation.text}"
    if out.suffix in PICTURES:
        plots.attention_grid(maps["cross"], target, source, title, out)
        return
    nn.explore(
        translator.model,
        translator.encode([sentence])[0],
        source,
        translation.ids,
        target,
        out,
        title,
        vocabulary=translator.target_vocab.tokens,
        beams=[(t.text, t.score) for t in beams],
        backward=backward,
    )


def explore_published(directory: str, sentence: str, out: Path, backward: bool) -> None:
    """Write what a published model attended to in a sentence, or in its translation."""
    text = load_text(directory)
    model = nn.load(directory)
    ids = text.encode(sentence)
    if not ids:
        raise ValueError("text must have at least one token, got none")
    target = None
    if hasattr(model.config, "source_vocab_size"):
        target = nn.generate(model, source=[ids])[0]
    vocabulary = text.tokens(range(text.vocab_size or len(text)))
    nn.explore(
        model,
        ids,
        text.tokens(ids),
        target,
        text.tokens(target or []),
        out,
        sentence,
        vocabulary=vocabulary,
        backward=backward,
    )
