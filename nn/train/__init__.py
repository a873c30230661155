"""Training: the trainer, its objectives, its checkpoints."""

from .trainer import *
