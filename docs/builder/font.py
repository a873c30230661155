"""The font of formulas: the part of STIX Math that formulas here can have, as docs/assets/math.woff.

    python docs/builder/font.py STIXMath-Regular.otf        (Debian: fonts-stix)

The licence of the font asks for another name where it is changed: it is "minigrad math". It needs fonttools, which
comes with matplotlib.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from fontTools import subset
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.transformPen import TransformPen
from fontTools.ttLib import TTFont

from minigrad.io.reading import found_file

__all__ = ["covered", "make"]

MADE = Path(__file__).parent.parent / "assets" / "math.woff"
NAME = "minigrad math"
PLAIN = (
    "".join(map(chr, range(32, 127)))
    + "\u00a0°±·×¬¯ˆ˜′″‖…⋯⋮⋱ℓℝℎ←↑→↓↔⇒⇔↦∀∂∃∇∈∉∏∑−∓∗∘√∝∞∩∪∫∼≈≠≡≤≥≪≫⊂⊆⊕⊗⊙⊤⊥⌈⌉⌊⌋⟨⟩ıȷ\u0302\u0304\u20d7"
)
GREEK = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθικλμνξοπρςστυφχψω"
ITALIC = "".join(
    map(chr, [*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C)])
)  # a letter by itself is in italics


def make(original: Path) -> None:
    """Write the part of the font."""
    font = TTFont(original)
    options = subset.Options(
        layout_features=["*"],
        name_IDs=[0, 1, 2, 4, 6, 7, 13, 14],
        hinting=False,
        notdef_outline=True,
    )
    part = subset.Subsetter(options)
    part.populate(text=PLAIN + GREEK + ITALIC)
    part.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 4, 6):
            record.string = NAME.replace(" ", "-" if record.nameID == 6 else " ")
    if "CFF " in font:
        top = font["CFF "].cff
        top.fontNames = [NAME.replace(" ", "-")]
        top.topDictIndex[0].FullName = top.topDictIndex[0].FamilyName = NAME
    narrow_roots(font)
    for kern in (
        "RadicalKernBeforeDegree",
        "RadicalKernAfterDegree",
    ):  # square roots have no degree, and no gap for it
        getattr(font["MATH"].table.MathConstants, kern).Value = 0
    font.flavor = "woff"
    font.save(MADE)


def narrow_roots(font: TTFont) -> None:
    """Make the taller signs of a root as narrow as the lowest: a browser leaves room for the widest behind each of them."""
    variants, glyphs = font["MATH"].table.MathVariants, font.getGlyphSet()
    root = font.getBestCmap()[ord("√")]
    taller = variants.VertGlyphConstruction[variants.VertGlyphCoverage.glyphs.index(root)]
    width = font["hmtx"][root][0]
    strings = font["CFF "].cff.topDictIndex[0].CharStrings
    names = {
        *(record.VariantGlyph for record in taller.MathGlyphVariantRecord),
        *(p.glyph for p in taller.GlyphAssembly.PartRecords),
    }
    for name in names:
        advance, side = font["hmtx"][name]
        if advance > width:
            pen = T2CharStringPen(width, glyphs)
            glyphs[name].draw(TransformPen(pen, (width / advance, 0, 0, 1, 0, 0)))
            strings[name] = pen.getCharString(strings[name].private, strings[name].globalSubrs)
            font["hmtx"][name] = width, round(side * width / advance)


@cache
def covered() -> frozenset[str]:
    """The characters that the font has."""
    try:
        with TTFont(found_file(MADE)) as font:
            return frozenset(map(chr, font.getBestCmap()))
    except OSError:
        raise
    except Exception as error:  # fontTools has errors of many kinds
        raise ValueError(f"{MADE}: not a font ({error!r:.200})") from None


if __name__ == "__main__":
    make(Path(sys.argv[1]))
