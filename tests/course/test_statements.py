"""Every statement of the texts that can be computed holds, or is listed as an error."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from support.scripts import EXAMPLES
from support.statements import Statements

pytestmark = pytest.mark.slow
# statements, and those where the text is wrong
COUNTS = {
    "attention_mechanism": (59, 6),
    "multi_head_attention": (36, 4),
    "pruning_heads": (11, 0),
    "random_transformer": (98, 12),
    "random_transformer_exercises": (31, 0),
    "segmentation": (11, 0),
    "self_attention": (27, 3),
    "transformer_notes": (71, 4),
}
SCRIPTS = sorted((Path(__file__).parent / "statements").glob("*.py"))


def test_statement_files_are_all_counted() -> None:
    assert {script.stem for script in SCRIPTS} == set(COUNTS)


def untranslated(text: Statements, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts in the table that have words and no Chinese."""
    monkeypatch.syspath_prepend(str(EXAMPLES.parent / "docs"))
    sources = importlib.import_module("sources")
    catalog = sources.translations(f"statements_{name}")
    names = ("section", "text", "printed", "exact", "computed")
    texts = [getattr(statement, name) for statement in text.all for name in names]
    has_words = lambda text: re.search(r"[A-Za-z]{3}", re.sub(r"`[^`]+`|\$[^$]+\$", "", text))
    return [t for t in texts if has_words(t) and sources.fill(t, catalog) == t and t not in catalog]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_statements_hold(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "course"))
    spec = importlib.util.spec_from_file_location(f"state_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = Statements()
    module.state(text)
    assert text.failed == []
    assert untranslated(text, script.stem, monkeypatch) == []
    wrong = sum(bool(statement.printed) for statement in text.all)
    assert (len(text.all), wrong) == COUNTS[script.stem]
