"""Writes into shared memory: the values of NumPy and the gradients of finite differences, or an error."""

from __future__ import annotations

from support.environment import max_examples
from support.write_machine import FreezingMachine, WriteMachine

TestWrites = WriteMachine.TestCase
TestWrites.settings = max_examples(20)
TestWritesThatFreeze = FreezingMachine.TestCase
TestWritesThatFreeze.settings = max_examples(12)
