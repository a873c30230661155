"""Optimizers and learning-rate schedules."""

from . import schedules as lr_scheduler  # its name in PyTorch
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .optimizer import Optimizer as Optimizer
from .optimizer import clip_grad_norm_ as clip_grad_norm_
from .schedules import *
from .sgd import SGD as SGD
