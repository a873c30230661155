"""Whole models, and their configurations."""

from .base import *
from .config import *
from .encoder import *
from .language_model import *
from .stacks import *
from .transformer import *
from .weights import *
