"""From logits to sequences: greedy search, beam search, sampling; inference."""

from .beam import *
from .decoding import *
from .inference import *
from .rules import *
from .search import *
from .text_generation import *
from .translator import *
