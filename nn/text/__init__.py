"""From text to batches of token ids, and back."""

from .batches import *
from .corpus import *
from .dropout import *
from .loading import *
from .pairs import *
from .pretrained import *
from .scores import *
from .tokenize import *
from .vocabulary import *
