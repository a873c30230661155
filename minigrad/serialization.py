"""Former name of `minigrad.io`."""

raise ImportError(
    "minigrad.serialization is now minigrad.io: from minigrad.io import load_arrays, save_arrays"
)
