"""From logits to sequences: greedy search, beam search, sampling; inference."""

from .layout import *
from .search import *
from .translator import *
