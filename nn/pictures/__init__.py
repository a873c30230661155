"""Pictures: plots, and the attention explorer."""

from .explorer import *
