"""Exceptions of minigrad."""

__all__ = ["GradientError", "AnomalyError", "GradcheckError", "MissingExtraError"]


class GradientError(RuntimeError):
    """Error for a gradient that the graph cannot give: it is freed, changed, or not recorded."""


class AnomalyError(FloatingPointError):
    """Error of `detect_anomaly()` for the first NaN or Inf, with the operation and the line."""


class GradcheckError(AssertionError):
    """Error for a gradient that differs from its numerical derivative."""


class MissingExtraError(ImportError):
    """Error for a missing optional dependency, with the packages to install."""
