"""From text to batches of token ids, and back."""

from .batches import *
from .corpus import *
from .pairs import *
from .tokenize import *
from .vocabulary import *
