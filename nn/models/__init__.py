"""Whole models, and their configurations."""

from .config import *
from .marian import *
from .transformer import *
from .weights import *
