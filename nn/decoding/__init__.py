"""From logits to sequences: greedy search, beam search, sampling; inference."""

from .beam import *
from .rules import *
from .search import *
from .sequences import *
from .text_generation import *
from .translator import *
