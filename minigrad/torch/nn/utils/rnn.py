"""Functions of `torch.nn.utils.rnn`: those of `nn.utils.rnn`."""

from nn.utils.rnn import pad_sequence as pad_sequence

__all__ = ["pad_sequence"]
