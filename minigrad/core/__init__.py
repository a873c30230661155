"""The engine. Read modes, graph, tensor and op, about 1,000 lines; each says what a first reading
can skip.

Around them: `registry` declares ops, `forms` and `protocols` answer NumPy's functions,
`changes` notes what is written in place, `nested` looks for tensors in lists and dicts, `creation`
and `random` make new ones, `watch` lets a tool see every operation.
"""
