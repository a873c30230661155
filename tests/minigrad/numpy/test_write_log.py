"""Writes into shared memory: the values of NumPy and the gradients of finite differences, or an error."""

from __future__ import annotations

from support.write_machine import FreezingMachine, WriteMachine

TestWrites = WriteMachine.TestCase
TestWritesThatFreeze = FreezingMachine.TestCase
