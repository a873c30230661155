"""Exercises of the lessons, with hidden cases and typical mistakes; see `grading`."""
