"""Ends of a process by a signal."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from minigrad.io.signals import SignalHandlers, Terminated, terminate


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


def test_handlers_replace_some_others_and_are_restored() -> None:
    def own(number: int, frame: object) -> None: ...

    numbers, before = (signal.SIGTERM, signal.SIGINT), {}
    try:
        before = {n: signal.signal(n, h) for n, h in zip(numbers, (own, signal.SIG_IGN))}
        for others, replaced in (
            ([own], [True, False]),
            ([own, signal.SIG_IGN], [True, True]),
            ([], [False, False]),
        ):
            handlers = SignalHandlers(numbers, terminate, others)
            for _ in range(2):
                with pytest.raises(ZeroDivisionError), handlers:
                    found = [signal.getsignal(n) is terminate for n in numbers]
                    assert found == replaced
                    _ = 1 / 0
                assert [*map(signal.getsignal, numbers)] == [own, signal.SIG_IGN]
        with ThreadPoolExecutor(1) as pool, SignalHandlers(numbers, terminate, [own]):
            enter = SignalHandlers(numbers, own, [terminate]).__enter__
            pool.submit(enter).result()  # other threads receive no signals
            assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
