"""The exceptions that are minigrad's own."""

__all__ = ["GradientError", "AnomalyError", "GradcheckError", "MissingExtraError"]


class GradientError(RuntimeError):
    """The graph cannot give the gradient that was asked for: freed, changed, or never recorded."""


class AnomalyError(FloatingPointError):
    """Raised inside `detect_anomaly()` at the first NaN or Inf; names the operation and the line."""


class GradcheckError(AssertionError):
    """A gradient differs from its numerical truth; the message says where and by how much."""


class MissingExtraError(ImportError):
    """An optional dependency is missing; the message names the packages to install."""
