"""The engine, to be read first: the graph and the walk back, Tensor, what an op is, the modes."""
