"""Tokenizers, vocabularies, sentence pairs and batches of token ids."""

from .batches import *
from .bpe_dropout import *
from .corpus import *
from .huggingface import *
from .loading import *
from .pairs import *
from .scores import *
from .tokenize import *
from .vocabulary import *
