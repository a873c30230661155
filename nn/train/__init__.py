"""Training: the trainer, its objectives, its checkpoints."""

from .averaging import *
from .trainer import *
