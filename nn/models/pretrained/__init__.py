"""Models as others publish them: families as tables of names, loading, saving."""

from .load import *
from .save import *
from .sentences import *
