"""What the tests of nn share."""

import os

import pytest


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk: these tests do not lose power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
