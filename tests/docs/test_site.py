"""The site: what makes it, and what it refuses. The whole of it is built and looked at by .ci/run."""

from __future__ import annotations

import html
import importlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

pytest.importorskip("markdown_it")
pytest.importorskip("pygments")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def docs() -> Iterator[SimpleNamespace]:
    """The modules of docs/ and of the course."""
    paths = [str(ROOT / "docs"), str(ROOT / "examples" / "course")]
    sys.path[:0] = paths
    try:
        names = (
            "build",
            "look",
            "builder.check",
            "builder.diagrams",
            "builder.markdown",
            "builder.reference",
            "formulas",
            "terminal",
        )
        yield SimpleNamespace(
            **{name.split(".")[-1]: importlib.import_module(name) for name in names}
        )
    finally:
        for path in paths:
            sys.path.remove(path)


# -- formulas --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\frac{QK^\top}{\sqrt{d_k}}", "QKᵀ / √dₖ"),
        (r"x \in \R^{n \times d}", "x ∈ ℝ^(n × d)"),
        (r"\sum_{j=1}^n a_j^2", "∑ⱼ₌₁ⁿ aⱼ²"),
        (r"f'(x) = \cos x", "f′(x) = cos x"),
        (r"\operatorname{softmax}(z)_i", "softmax(z)ᵢ"),
        (r"a \qquad b", "a    b"),
        (r"\text{loss of a batch}", "loss of a batch"),
        (r"\left(\frac{a+b}{2}\right)", "((a + b) / 2)"),
        (r"\begin{cases} x & x > 0 \\ 0 & x \le 0 \end{cases}", "{ x x>0;  0 x ≤ 0"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "[1 2; 3 4]"),
    ],
)
def test_a_formula_is_text_and_mathml(docs: SimpleNamespace, tex: str, text: str) -> None:
    assert docs.formulas.text(tex) == text
    for block in (False, True):
        root = ElementTree.fromstring(docs.formulas.mathml(tex, block))
        assert root.tag == "math" and root.get("aria-label")
        assert all(
            len(node)
            == {"mfrac": 2, "msup": 2, "msub": 2, "msubsup": 3, "munderover": 3}.get(
                node.tag, len(node)
            )
            for node in root.iter()
        )


def test_marks_and_spaces_of_mathml(docs: SimpleNamespace) -> None:
    mathml = docs.formulas.mathml
    assert '<mi>f</mi><mo lspace="0" rspace="0">′</mo>' in mathml("f'") and "<msup>" not in mathml(
        "f'"
    )  # not raised twice
    assert '<mi>sin</mi><mspace width="0.17em"></mspace><mi>x</mi>' in mathml(r"\sin x")
    assert "mspace" not in mathml(r"\tanh(x)") and mathml(r"e^x \sin x").count("mspace width") == 2


@pytest.mark.parametrize(
    "tex", [r"\frac{a}", r"{a", r"\unknown", r"\begin{matrix} a \end{matrix}", "a}", r"\left( a"]
)
def test_what_is_not_known_is_an_error(docs: SimpleNamespace, tex: str) -> None:
    with pytest.raises(docs.formulas.FormulaError):
        docs.formulas.mathml(tex)


# -- the terminal ----------------------------------------------------------------------------------------


def test_differing_digits(docs: SimpleNamespace) -> None:
    differing = docs.terminal.differing
    assert differing("1.71887693", "1.71887700") == [("1.71887", False), ("700", True)]
    assert differing("[0.84, 0.99]", "[0.84 0.54]") == [
        ("[0.84", False),
        (" 0.", False),
        ("54", True),
        ("]", False),
    ]
    assert differing("logits", "probabilities") == [("probabilities", True)]
    assert not any(differs for _, differs in differing("0.50", "0.5"))


@pytest.mark.parametrize("width", [30, 47, 80, 200])
def test_lines_fit_any_width(docs: SimpleNamespace, width: int) -> None:
    text = (
        "我们在这篇博客中，将通过一个端到端的示例来讲解 Transformer 模型中的数学原理 and some words in English, too."
        * 3
    )
    lines = docs.terminal.wrapped(text, width, "  ✓ ", "    ").split("\n")
    assert all(docs.terminal.columns(line) <= width for line in lines) and lines[1].startswith(
        "    "
    )
    assert "".join("".join(lines).split()) == "✓" + "".join(text.split())


def test_marks_of_prose(docs: SimpleNamespace) -> None:
    assert (
        docs.terminal.plain("a *b* of `c_d` is $x^2$, see [here](x.md); 2*3*4")
        == "a b of c_d is x², see here; 2*3*4"
    )


# -- pages -----------------------------------------------------------------------------------------------


def test_markdown(docs: SimpleNamespace) -> None:
    page = docs.markdown.render(
        "# T\n\n## A $x^2$\n\ncosts $5 and [b](b.md#c) `$y$`\n\n$$a_1$$\n\n| n | t |\n| ---: | --- |\n| 1.5 | `a_b` |\n"
    )
    assert (
        page.count("<math") == 2
        and 'display="block"' in page
        and "costs $5" in page
        and "<code>$y$</code>" in page
    )
    assert 'href="b.html#c"' in page and '<td class="number">1.5</td>' in page
    assert "<code>a_<wbr>b</code>" in page and '<th style="text-align:right">n</th>' in page


def test_quotes_are_curved_and_primes_are_not(docs: SimpleNamespace) -> None:
    shown = docs.markdown.inline('to "see" d\' and `"x\'" < y`, <b>')
    assert shown == "to “see” d' and <code>&quot;x'&quot; &lt; y</code>, &lt;b&gt;"


def test_no_line_begins_with_what_closes_after_a_formula(docs: SimpleNamespace) -> None:
    shown = docs.markdown.inline("a $x$，因为 $y$ b ($z$).")
    assert (
        re.findall(r'<span class="whole"><math.*?</math>(.*?)</span>', shown) == ["，", ")."]
        and shown.count("<span") == 2
    )


def test_words_of_diagrams_are_translated_and_letters_have_an_index(docs: SimpleNamespace) -> None:
    translated = (
        importlib.import_module("languages").catalogue("common", "zh").words
    )  # a word without Chinese is a ValueError
    for name in docs.diagrams.DIAGRAMS:
        shown = docs.diagrams.figure(name, "", translated)
        assert re.search("<text[^>]*>[^<]*[\u4e00-\u9fff]", shown), name
        assert not re.search(">[^<]*[a-z] [a-z]+ [a-z]+ [a-z]+[^<]*</text>", shown), name
    head = docs.diagrams.figure("head", "")
    assert (
        'W<tspan dy="0.25em" font-size="0.75em">Q</tspan></text>' in head
        and "rows sum to 1" in head
    )


def problems(docs: SimpleNamespace, folder: Path, body: str) -> list[str]:
    (folder / "a.html").write_text(
        f'<html><body><p id="here">x</p>{body}</body></html>', encoding="utf-8"
    )
    return docs.check.problems(folder)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ('<a href="b.html">b</a>', "dead link"),
        ('<a href="#there">b</a>', "not there"),
        ('<a href="../../etc/passwd">b</a>', "dead link"),
        ('<img src="data:image/png;base64,AA==">', "without alt"),
        ("<svg></svg>", "without a label"),
        ('<img alt="x" src="https://example.com/x.png">', "external"),
        ('<a href="https://example.com/">x</a>', "external"),
        ('<script src="//cdn.example.com/x.js"></script>', "dead link"),
        ('<p style="background: url(https://example.com/x.png)">x</p>', "address"),
        ("<script>fetch('x')</script>", "loaded"),
        ('<p id="here">x</p>', "twice"),
        ('<iframe src="a.html"></iframe>', "without a title"),
        ('<math aria-label="x"><mi>∰</mi></math>', "font of formulas: ∰"),
    ],
)
def test_what_a_page_may_not_have(
    docs: SimpleNamespace, tmp_path: Path, body: str, word: str
) -> None:
    found = problems(docs, tmp_path, body)
    assert found and any(word in line for line in found), found


def test_what_a_page_may_have(docs: SimpleNamespace, tmp_path: Path) -> None:
    fine = '<a href="#here">x</a><a href="a.html">x</a><a href="https://arxiv.org/abs/1706.03762">x</a><svg aria-label="y"></svg>'
    assert problems(docs, tmp_path, fine) == []


def test_the_font_has_what_formulas_can_have(docs: SimpleNamespace) -> None:
    """Each sign that is known, and each letter in italics, as a letter by itself is shown."""
    formulas, font = docs.formulas, importlib.import_module("builder.font")
    shown = "".join([*formulas.LETTERS.values(), *formulas.OPERATORS.values()]).replace("ᵀ", "⊤")
    italic = "".join(chr(0x1D434 + i) for i in range(52)).replace("\U0001d455", "ℎ")
    assert not {*shown, *italic, *font.GREEK, *map(chr, range(33, 127))} - font.covered()
    with font.TTFont(font.MADE) as made:
        assert "MATH" in made and font.NAME in {str(record) for record in made["name"].names}
        assert (
            "STI Pub" in str(made["name"].getDebugName(0))
            and len(made["MATH"].table.MathVariants.VertGlyphCoverage.glyphs) > 20
        )
        roots = {
            made["hmtx"][name][0] for name in made.getGlyphOrder() if name.startswith("uni221A")
        }
        assert len(roots) == 1, "a browser leaves room behind a root for the widest sign of it"
    assert "SIL OPEN FONT LICENSE" in (font.MADE.parent / "math-LICENSE.txt").read_text(
        encoding="utf-8"
    )


def test_diagrams_are_drawn_with_what_was_computed(docs: SimpleNamespace) -> None:
    for draw, alt in docs.diagrams.DIAGRAMS.values():
        root = ElementTree.fromstring(draw().svg(alt))
        left, top, width, height = map(float, root.get("viewBox").split())
        assert root.get("aria-label") and len(alt) > 40
        for node in root.iter("rect"):
            x, y, w, h = (float(node.get(name)) for name in ("x", "y", "width", "height"))
            assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
    shown = docs.diagrams.DIAGRAMS["graph"][0]().svg("")
    assert (
        "∂L/∂x = 0.3199" in shown and "∂L/∂w = 1.279" in shown
    )  # by hand: 2 tanh 1 (1 - tanh² 1) times 0.5 and 2


def test_the_reference_has_every_operation_and_rule(docs: SimpleNamespace) -> None:
    page = docs.reference.operations().content
    from tools import operations_table

    names = {
        name for kinds in operations_table.KINDS.values() for part in kinds for name in part.__all__
    }
    assert all(f'<dt id="{name}">' in page for name in names)
    bare = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert "lambda" not in bare and page.count("<pre") > 40
    for rule in (
        "grad_b = -g * y / b",
        "grad_x = safe_divide(g, np.sqrt((x - 1) * (x + 1)))",
        "# grad_a:\ndef _matmul_a",
    ):
        assert rule in bare


def test_the_reference_of_modules(docs: SimpleNamespace) -> None:
    """Every public name by its group, with a signature to be read; no operation is told of twice."""
    import nn

    found = {
        name: docs.reference.module(name, *where).content
        for name, where in docs.reference.MODULES.items()
    }
    bare = {name: html.unescape(re.sub(r"<[^>]+>", "", page)) for name, page in found.items()}
    public = {n for n, thing in vars(nn).items() if not n.startswith("_") and callable(thing)}
    assert public <= set(re.findall(r'<dt id="(\w+)"', found["nn"]))
    assert "Linear(in_features: int, out_features: int, bias: bool = True" in bare["nn"]
    assert not re.search(r": 'bool'|→ 'Tensor'| object at 0x", "".join(bare.values()))
    assert (
        '<dt id="Tensor.backward">' in found["minigrad"]
        and '<dt id="Tensor.exp">' not in found["minigrad"]
    )
    assert '<a href="operations.html#absolute"><code>.abs</code></a>' in found["minigrad"]
    assert "Operations as methods" not in found["nn"]  # AttentionCache.append is not ours
    for page in found.values():
        assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))


def test_what_works_is_a_page_of_the_reference(docs: SimpleNamespace) -> None:
    page = next(page for page in docs.build.written() if page.path == "numpy.html")
    assert page.group == "Reference" and page.content.count("<code>") > 600
    for shown in (
        "minimize, BFGS, jac=",
        "np.linalg.svd",
        "x.unsqueeze(0)",
        "mean different things by one name",
    ):
        assert shown in page.content, shown


def test_written_pages_and_their_code(docs: SimpleNamespace) -> None:
    made = docs.build.written()
    assert made[0].path == "index.html" and {"start.html", "design.html"} <= {
        page.path for page in made
    }
    assert all("{{diagram" not in page.content for page in made)


def test_a_page_that_cannot_be_read_is_noticed(docs: SimpleNamespace, tmp_path: Path) -> None:
    pytest.importorskip("selenium")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip(
            "chromium and chromedriver are not installed (Debian: chromium, chromium-driver)"
        )
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><html><body style="background:#fff"><p style="color:#aaa">pale words</p>'
        '<div style="width:900px">wide</div><script>null.x</script></body></html>',
        encoding="utf-8",
    )
    driver = docs.look.browser()
    try:
        found = docs.look.look_at(driver, tmp_path / "bad.html", "bad", None)
    finally:
        driver.quit()
    assert any("pale words" in line and "contrast 2.3" in line for line in found)
    assert any("bad at 390: 5" in line and "too wide" in line for line in found)
    assert not any("at 1440: " in line for line in found)
    assert any("TypeError" in line for line in found)


def test_a_lesson_that_does_not_hold_stops_the_build(docs: SimpleNamespace, tmp_path: Path) -> None:
    lessons = importlib.import_module("builder.lessons")
    for name, true in (("good", True), ("bad", False)):
        (tmp_path / f"{name}.py").write_text(
            f"import sys; sys.path.insert(0, {str(lessons.COURSE)!r})\n"
            "from lesson import Lesson\n"
            "lesson = Lesson('x', 'A title.', sys.argv[1:])\n"
            f"lesson.fact('the sun is cold', {true})\n"
            "raise SystemExit(lesson.end())\n",
            encoding="utf-8",
        )
    folder, error = lessons._run(tmp_path / "good.py", tmp_path / "records", reuse=False)
    (page,), problems = lessons._in_each_language(tmp_path / "good.py", folder)
    assert (
        not error
        and problems == ["good.py: expected its Chinese in zh/good.txt"]
        and "The sun is cold" in page.content
    )
    assert (
        lessons._run(tmp_path / "bad.py", tmp_path / "records", reuse=False)[1]
        == "does not agree: the sun is cold"
    )


def test_blocks_as_html(docs: SimpleNamespace, tmp_path: Path) -> None:
    view = importlib.import_module("builder.lessons")._View(tmp_path, "course/x")
    page = view.blocks(
        [
            {"kind": "title", "text": "A < B."},
            {"kind": "fact", "text": "<script>", "holds": True, "detail": "x < y"},
            {
                "kind": "erratum",
                "text": "s",
                "holds": True,
                "printed": "1.23",
                "exact": "1.25",
                "detail": "d",
            },
            {"kind": "measured", "text": "12 ms"},
            {"kind": "table", "header": ["a", "b"], "rows": [["x", "1.5"]], "caption": ""},
            {"kind": "exercise", "question": "q?", "answer": "a $x^2$"},
            {"kind": "quote", "text": "注意力", "english": "attention"},
        ],
        "Lesson",
    )
    assert "<script>" not in page and "A &lt; B" in page and "x &lt; y" in page
    assert "1.2<mark>5</mark>" in page and page.count("<ul") == 1 and 'class="time"' in page
    assert '<td class="number">1.5</td>' in page and "<details" in page and 'lang="zh"' in page


def test_a_page_in_chinese(docs: SimpleNamespace, tmp_path: Path) -> None:
    lessons, page = (
        importlib.import_module("builder.lessons"),
        importlib.import_module("builder.page"),
    )
    words = importlib.import_module("languages").catalogue("00_autodiff", "zh")
    blocks = [
        {"kind": "title", "text": "Autodiff from nothing: how a program can know its own derivative."},
        {"kind": "diagram", "name": "graph", "caption": "The three steps as a graph: values go to the right, derivatives come back."},
        {"kind": "exercise", "question": "What would `backward` give for $y \\cdot y$ with `=` in place of `+=`?", "answer": ""},
    ]  # fmt: skip
    both = [
        lessons._page(Path("00_autodiff.py"), tmp_path, blocks, w)
        for w in (lessons.Catalogue(), words)
    ]
    first = page.Page("zh/index.html", "minigrad", "", "", language="zh")
    english, chinese = (page.document([first, *both], here) for here in both)
    assert (
        '<html lang="en">' in english and 'hreflang="zh" href="../zh/00_autodiff.html"' in english
    )
    assert (
        '<html lang="zh">' in chinese
        and 'hreflang="en" href="../course/00_autodiff.html"' in chinese
    )
    assert (
        "<h1>从零开始的自动微分：程序怎样知道自己的导数</h1>" in chinese
        and "<b>练习。</b>" in chinese
    )
    assert not re.search(r"[a-z]{3,} [a-z]{3,} [a-z]{3,}", re.sub(r"<svg.*?</svg>|<code>.*?</code>|<math.*?</math>|<[^>]+>", "", chinese, flags=re.S))  # fmt: skip
    assert both[1].short == "0 · 从零开始的自动微分"


def test_a_sentence_without_chinese_stops_the_build(docs: SimpleNamespace, tmp_path: Path) -> None:
    lessons = importlib.import_module("builder.lessons")
    blocks = [
        {"kind": "title", "text": "Autodiff from nothing."},
        {"kind": "say", "text": "A new sentence."},
    ]
    (tmp_path / "lesson.json").write_text(json.dumps({"blocks": blocks}), encoding="utf-8")
    _, wrong = lessons._in_each_language(Path("00_autodiff.py"), tmp_path)
    assert "00_autodiff.py: no zh for: A new sentence." in wrong
    assert "00_autodiff.py: no longer said: Trust, but measure" in wrong
