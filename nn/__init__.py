"""nn: layers and models on minigrad, up to the whole Transformer, and what trains and uses them."""

from . import functional as functional
from . import text as text
from . import utils as utils
from .generation import *
from .layers import *
from .layers import init as init
from .models import *
from .pictures import *
from .pictures import plots as plots
from .train import *
