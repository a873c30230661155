"""Training: the trainer, its objectives, its batches, its checkpoints."""

from ..text.batches import Batches, WindowBatches, as_batches
from .averaging import *
from .checkpoint import *
from .objectives import *
from .progress import *
from .trainer import *
