"""Files: written atomically, read within bounds. Arrays as safetensors, plain data as JSON."""

from .arrays import *
from .atomic import *
from .json import *
from .reading import *
from .safetensors import *
