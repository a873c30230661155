"""Engine: tensors, recorded operations and the backward pass.

Read modes, graph, tensor, caller and op first, about 1,000 lines. Each module names what a first
reading can skip.

- `registry` declares ops.
- `forms` and `protocols` answer NumPy's functions.
- `changes` detects arrays that were changed in place.
- `nested` finds tensors in lists and dicts.
- `creation` and `random` make tensors and random numbers.
- `watch` is the base of tools that see every operation.
"""
