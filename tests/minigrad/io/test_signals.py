"""Ends of a process by a signal."""

from __future__ import annotations

import signal

import pytest

from minigrad.io.signals import Terminated, terminate


@pytest.mark.parametrize("name, code", [("SIGTERM", 143), ("SIGHUP", 129)])
def test_terminated_process_has_the_code_and_the_text_of_its_signal(name: str, code: int) -> None:
    if not hasattr(signal, name):
        pytest.skip("needs processes")
    number = getattr(signal, name)
    with pytest.raises(Terminated) as error:
        terminate(number, None)
    assert (error.value.code, error.value.text) == (code, f"ended by {name}")
    other = Terminated(number, "saved")
    assert (other.code, other.text) == (code, "saved")
