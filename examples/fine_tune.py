"""Train adapters of a published encoder (BERT, MiniLM ...) to classify text: LoRA in NumPy.

    python examples/fine_tune.py DIR pairs.tsv adapter     each line: a text, a tab, its label

PEFT loads the directory `adapter`. `minigrad fine-tune` also trains all weights, or the head only.
"""

import sys

import numpy as np

import minigrad as mg
import nn
from minigrad.optim import AdamW, linear_schedule
from nn.commands.console import run_script
from nn.text.pairs import read_pairs


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    if len(argv) != 3:
        sys.exit(__doc__)
    directory, file, out = argv
    mg.manual_seed(0)
    pairs = read_pairs(file)
    labels = sorted({label for _, label in pairs})
    tokenizer = nn.text.load(directory)

    # The model: all weights are frozen but the new head and two small matrices in each layer.
    model = nn.load(directory, head="classes", num_classes=len(labels))
    nn.lora(model, rank=8, alpha=16)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    print(f"{sum(p.size for p in trained):,} of {model.num_parameters():,} parameters are trained")

    # Batches of 16 texts, a tenth of which are held out.
    def collate(samples):
        ids, mask, _ = tokenizer.batch([text for text, _ in samples], max_len=64)
        return ids, np.array([labels.index(label) for _, label in samples]), mask

    pairs = [pairs[i] for i in np.random.default_rng(0).permutation(len(pairs))]
    held_out = max(1, len(pairs) // 10)
    valid = nn.Batches(pairs[:held_out], batch_size=64, shuffle=False, collate=collate)
    train = nn.Batches(pairs[held_out:], batch_size=16, collate=collate)

    def accuracy(model):
        right = [model(ids, mask).data.argmax(-1) == c for ids, c, mask in valid.epoch()]
        return float(np.concatenate(right).mean())

    epochs = 3
    trainer = nn.Trainer(
        model,
        AdamW(trained, lr=1e-3, clip_norm=1.0),
        train,
        valid=valid,
        score=accuracy,
        schedule=linear_schedule(epochs * len(train), warmup=len(train) // 10),
        max_epochs=epochs,
    )
    trainer.fit()
    nn.save_adapter(out, model, base=directory)
    print(f"accuracy {accuracy(model):.3f} on {held_out} held-out texts; adapter in {out}")


if __name__ == "__main__":
    sys.exit(run_script(main))
