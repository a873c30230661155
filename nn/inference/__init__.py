"""Copies of models for inference: frozen, with fused layers, in float32 or int8."""

from .copies import *
