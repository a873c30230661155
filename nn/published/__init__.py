"""Published models: loading, saving, sentence encoders, and adapters."""

from .adapters import *
from .classifier import *
from .images import *
from .load import *
from .lora import *
from .save import *
from .sentence_encoder import *
from .sentence_transformers import *
from .weights import *
