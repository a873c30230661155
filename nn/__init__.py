"""nn: layers and models on minigrad, up to the whole Transformer, and what trains and uses them."""

from . import init
from .attention import *
from .cache import *
from .config import *
from .decoding import *
from .explorer import *
from .feedforward import *
from .layers import *
from .layout import *
from .marian import *
from .masks import *
from .module import *
from .norm import *
from .position import *
from .trainer import *
from .transformer import *
from .translator import *
