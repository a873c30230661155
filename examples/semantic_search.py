"""Search the lines of a file by meaning, with a published sentence encoder (MiniLM, BGE ...).

    python examples/semantic_search.py DIR notes.txt "how do I get my money back?"

`minigrad search` also keeps the vectors in a file.
"""

import sys

import numpy as np

import nn
from nn.commands.console import run_script
from nn.text.pairs import read_lines


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if len(argv) != 3:
        sys.exit(__doc__)
    directory, file, question = argv
    lines = [line for line in read_lines(file) if line.strip()]
    encoder = nn.sentence_encoder(directory)
    vectors = encoder.encode(lines)  # (lines, d)
    similarity = encoder.similarity(vectors, encoder.encode(question))[:, 0]
    for i in np.argsort(-similarity)[:3]:
        print(f"{similarity[i]:.2f}  {lines[i]}")


if __name__ == "__main__":
    sys.exit(run_script(main))
