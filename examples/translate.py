"""Translate with a trained run, or with a published model.

    python examples/translate.py runs/zh-en "我 有 一只 猫"
    python examples/translate.py DIR "The house is small."     a directory of OPUS-MT, NLLB ...

`minigrad translate` has more options.
"""

import sys
from pathlib import Path

import nn
from nn.commands.console import run_script


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if len(argv) < 2:
        sys.exit(__doc__)
    directory, *sentences = argv
    if (Path(directory) / "best.safetensors").exists():  # a run of train_toy_translation.py
        translator = nn.Translator.load(directory)
        translations = [t.text for t in translator.translate(sentences, beam_size=4)]
    else:
        tokenizer = nn.text.load(directory)
        model = nn.for_inference(nn.load(directory))
        translations = nn.generate_text(model, tokenizer, sentences)
    print("\n".join(translations))


if __name__ == "__main__":
    sys.exit(run_script(main))
