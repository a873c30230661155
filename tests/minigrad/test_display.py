"""Help pages name all public functions; tensors and tables have HTML for notebooks."""

from __future__ import annotations

import re
from types import ModuleType

import numpy as np
import pytest

import minigrad as mg
import nn
from minigrad.check.report import Report


@pytest.mark.parametrize("module", [mg, nn])
def test_help_names_all_public_functions_and_classes(module: ModuleType) -> None:
    doc = module.__doc__ or ""
    words = set(re.findall(r"\w+", doc))
    public = {
        name
        for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", "").startswith(("minigrad", "nn"))
    }
    assert not public - words
    for name in re.findall(r"\w+", doc.partition("by module:\n")[2]):
        assert hasattr(module, name) or module.__name__ in doc, f"{name} is listed and not there"


def test_tensor_and_reports_have_html_for_notebooks() -> None:
    x = mg.tensor([[1.0, 2.0]], requires_grad=True)
    assert x._repr_html_() == (
        "<pre>tensor([[1., 2.]], dtype=float64, requires_grad=True)</pre><small>1 × 2</small>"
    )
    for report in (mg.memory_report(x.sum()), nn.Linear(2, 3).summary()):
        assert report._repr_html_().startswith("<pre>")
    assert "&lt;b&gt;" in Report("<b>")._repr_html_()
    for shape, shown in (((), "scalar"), ((2,), "2"), ((2, 0, 1), "2 × 0 × 1")):
        assert mg.Tensor(np.ones(shape))._repr_html_().endswith(f"<small>{shown}</small>")


def test_format_without_specification_is_str() -> None:
    for x in (mg.Tensor(1.5), mg.Tensor([1.5, 2.0])):
        assert f"{x}" == str(x) and f"{x!s:>60}" == str(x).rjust(60)
    assert f"{mg.Tensor([1.5]):.2f}" == "1.50"
