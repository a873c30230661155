"""Continue a text with a published language model (GPT-2, SmolLM2, Qwen ...).

    python examples/generate.py DIR "Once upon a time"

`minigrad generate` also chats, and has more options.
"""

import sys

import nn
from nn.commands.console import run_script


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if len(argv) != 2:
        sys.exit(__doc__)
    directory, prompt = argv
    tokenizer = nn.text.load(directory)
    model = nn.for_inference(nn.load(directory))
    print(prompt, end="")
    for piece in nn.stream_text(model, tokenizer, prompt, max_len=100, do_sample=True, top_p=0.9):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    sys.exit(run_script(main))
