"""Layers, and what they are made of: modules, parameters, masks, caches."""

from . import init as init
from .attention import *
from .cache import *
from .feedforward import *
from .linear import *
from .masks import *
from .module import *
from .norm import *
from .position import *
