"""Whole models, and their configurations."""

from .adapters import *
from .base import *
from .config import *
from .encoder import *
from .images import *
from .kinds import *
from .language_model import *
from .looking import *
from .lora import *
from .pretrained import *
from .sentences import *
from .stacks import *
from .transformer import *
from .weights import *
