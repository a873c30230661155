"""NumPy's vocabulary: forms of arguments, further functions, arrays of examples for vmap."""
