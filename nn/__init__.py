"""nn: layers and models on minigrad, up to the whole Transformer, and what trains and uses them.

    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    loss = nn.CrossEntropyLoss()(model(x), y)

help(nn.Linear) describes one class. Modules of their own: nn.functional (functions in
PyTorch's order of arguments), nn.init, nn.text (tokenizers, vocabularies, batches), nn.inspection,
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

from minigrad.check.namespace import namespace as _namespace
from minigrad.check.report import list_names as _list_names

from . import functional as functional
from . import init as init
from . import text as text
from . import utils as utils
from .attention import *
from .block import *
from .config import *
from .decoding import *
from .fit import *
from .generation import *
from .inference import *
from .inspection import *
from .inspection import plots as plots
from .layers import *
from .models import *
from .module import *
from .options.activations import *
from .options.batch_norm import *
from .options.config import *
from .options.encoder import *
from .options.extended_layers import *
from .options.heads import *
from .options.images import *
from .options.losses import *
from .options.modules import *
from .options.norms import *
from .options.position_bias import *
from .options.probes import *
from .options.pruning import *
from .options.rotary import *
from .options.scored_attention import *
from .published import *
from .runs import *

__doc__ += _list_names(_sys.modules[__name__])

if not _typing.TYPE_CHECKING:  # type checkers report a missing name
    __all__, __getattr__, __dir__ = _namespace(
        __name__, "functional", "init", "plots", "text", "utils"
    )
