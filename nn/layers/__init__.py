"""Layers, modules, parameters, masks and caches."""

from . import init as init
from .attention import *
from .block import *
from .cache import *
from .feedforward import *
from .linear import *
from .losses import *
from .masks import *
from .module import *
from .norm import *
from .position import *
from .position_bias import *
from .probes import *
from .pruning import *
from .rotary import *
from .scored_attention import *
