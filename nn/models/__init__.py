"""Whole models, and their configurations."""

from .base import *
from .config import *
from .encoder import *
from .kinds import *
from .language_model import *
from .pretrained import *
from .stacks import *
from .transformer import *
from .weights import *
