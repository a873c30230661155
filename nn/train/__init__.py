"""Training: the trainer, its objectives, its batches, its checkpoints."""

from .averaging import *
from .batches import *
from .checkpoint import *
from .interrupts import *
from .objectives import *
from .progress import *
from .trainer import *
