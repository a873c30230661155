"""Primitive operations, and the functions composed of them, by kind."""
