"""Training steps shared by several processes: one protocol, and what stands behind it."""

from .forked import *
from .mpi import *
from .protocol import *
from .start import *
