"""Hypothesis profiles: `dev` is the default; `HYPOTHESIS_PROFILE=ci` or `intense` looks harder."""

import os

from hypothesis import HealthCheck, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("dev", max_examples=15, **_common)
settings.register_profile("ci", max_examples=15, derandomize=True, **_common)
settings.register_profile("intense", max_examples=1000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
