"""nn: layers and models on minigrad, up to the whole Transformer, and what trains and uses them.

    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    loss = nn.CrossEntropyLoss()(model(x), y)

help(nn.Linear) describes one class. Modules of their own: nn.functional (functions in
PyTorch's order of arguments), nn.init, nn.text (tokenizers, vocabularies, batches), nn.plots,
nn.utils.

The names by module:
"""

import sys as _sys
import typing as _typing

import minigrad as _minigrad

if not hasattr(_minigrad, "custom_op"):  # PyPI has another project of that name
    raise ImportError(
        f"nn needs the minigrad of the distribution minigrad-nn, got another package at "
        f"{_minigrad.__file__}; run: pip uninstall minigrad, then reinstall minigrad-nn"
    )

from . import functional as functional
from . import text as text
from . import utils as utils
from .generation import *
from .inspection import *
from .inspection import plots as plots
from .layers import *
from .layers import init as init
from .models import *
from .pretrained import *
from .train import *

__doc__ += _minigrad.report.list_names(_sys.modules[__name__])

if not _typing.TYPE_CHECKING:  # for type checkers a name that is not here is an error
    _REMOVED = {  # since version 0.2
        "ArrayBatches": "use nn.Batches",
        "RDrop": "copy the objective from examples/rdrop.py",
    }

    def __getattr__(name: str) -> _typing.NoReturn:
        if name in _REMOVED:  # no AttributeError, of which `from nn import name` drops the text
            raise ImportError(f"nn.{name} was removed: {_REMOVED[name]}", name=name)
        from minigrad.advice import missing

        missing("nn", name)
