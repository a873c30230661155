"""Helpers of the tests: samples, programs, files and references."""
