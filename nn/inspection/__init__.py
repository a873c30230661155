"""Inspection of models: hidden states, attributions, plots, and the attention explorer."""

from .explorer import *
from .hidden_states import *
