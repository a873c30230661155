"""Hypothesis profiles: `dev` is the default; `HYPOTHESIS_PROFILE=ci` or `intense` looks harder."""

import os
import signal

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has a core to itself: BLAS with more threads would only wait for it
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # begun in the background: what the tests start would ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import HealthCheck, settings

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("dev", max_examples=12, **_common)
settings.register_profile("ci", max_examples=12, derandomize=True, **_common)
settings.register_profile("intense", max_examples=1000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
