"""From text to batches of token ids, and back."""

from .batches import *
from .bpe_dropout import *
from .corpus import *
from .huggingface import *
from .loading import *
from .pairs import *
from .scores import *
from .tokenize import *
from .vocabulary import *
