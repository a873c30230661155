"""Inspection of models: hidden states, attributions, plots, and the attention explorer."""

from . import summary as summary  # a method of modules
from .explorer import *
from .hidden_states import *
