"""NumPy's functions beyond the core set, as compositions of the operations in `minigrad.ops`."""
