"""Tokenizers, vocabularies, sentence pairs and batches of token ids."""

from .batches import *
from .huggingface import *
from .loading import *
from .pairs import *
from .scores import *
from .tokenize import *
from .vocabulary import *
