"""Train the paper's Transformer on sentences of a small grammar, and translate greedily.

    python examples/book/translator.py [EPOCHS SENTENCES]

The model, the optimizer, the loop and the decoding are files directly in `minigrad/` and `nn/`.
"""

import runpy
import sys
import time
from pathlib import Path

import numpy as np

import minigrad as mg
import nn

PAD, BOS, EOS, UNKNOWN = 0, 1, 2, 3
BATCH, WARMUP = 64, 200
EPOCHS, SENTENCES = map(int, sys.argv[1:] or (8, 6000))
CORPORA = Path(__file__).parents[2] / "nn/text/toy_corpora.py"
chinese_english = runpy.run_path(str(CORPORA))["chinese_english"]

# Sentences are lists of words. The last 200 are held out.
pairs = [(source.split(), target.split()) for source, target in chinese_english(SENTENCES)]
order = np.random.default_rng(0).permutation(len(pairs))
train, held_out = [pairs[i] for i in order[:-200]], [pairs[i] for i in order[-200:]]


def vocabulary(sentences):
    words = sorted({word for sentence in sentences for word in sentence})
    return {word: i for i, word in enumerate(words, start=UNKNOWN + 1)}


source_ids, target_ids = (vocabulary(side) for side in zip(*train))
target_words = {i: word for word, i in target_ids.items()}


def rows(sentences, ids, first=(), last=()):
    """Return the ids of sentences as rows of one array, padded at the right."""
    found = [[*first, *(ids.get(w, UNKNOWN) for w in words), *last] for words in sentences]
    array = np.full((len(found), max(map(len, found))), PAD)
    for row, values in zip(array, found):
        row[: len(values)] = values
    return array


def batches(epoch):
    """Yield the source and target ids of batches, in an order of each epoch."""
    print(f"epoch {epoch + 1} of {EPOCHS}, {time.perf_counter() - began:.0f} s", flush=True)
    order = np.random.default_rng(epoch).permutation(len(train))
    for start in range(0, len(order), BATCH):
        sources, targets = zip(*[train[i] for i in order[start : start + BATCH]])
        yield rows(sources, source_ids), rows(targets, target_ids, [BOS], [EOS])


sizes = {"d_model": 128, "num_heads": 4, "d_ff": 256, "dropout": 0.05, "tie": "target"}
layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
vocabularies = UNKNOWN + 1 + len(source_ids), UNKNOWN + 1 + len(target_ids)
config = nn.TransformerConfig(*vocabularies, **sizes, **layers)
model = nn.Transformer(config, np.random.default_rng(0))
optimizer = mg.optim.Adam(model.parameters(), lr=0.6, betas=(0.9, 0.98), eps=1e-9, clip_norm=5.0)
rate = mg.optim.noam_schedule(config.d_model, WARMUP)
options = {"rate": rate, "max_epochs": EPOCHS, "label_smoothing": 0.05}

began = time.perf_counter()
loop = nn.TrainingLoop(model, optimizer, batches, **options)
losses = loop.fit()
print(f"loss {losses[0]:.2f} → {np.mean(losses[-20:]):.2f} in {loop.step} steps")

sources, references = zip(*held_out)
source, target = rows(sources, source_ids), rows(references, target_ids, [BOS], [EOS])
generated = nn.decode(model, np.full((200, 1), BOS), source, max_len=30)
translations = [[target_words.get(i, "") for i in ids if i != EOS] for ids in generated]
for words, translation in list(zip(sources, translations))[:5]:
    print(" ".join(words), "→", " ".join(translation))
exact = np.mean([a == b for a, b in zip(translations, references)])
logits = model.output(model.decode(target[:, :-1], model.encode(source), source != PAD))
assert np.allclose(model(source, target[:, :-1]).data, logits.data, atol=1e-4)
right = (np.argmax(logits.data, -1) == model.targets(source, target)).sum() / model.num_targets(
    source, target
)
print(f"200 held-out sentences: {right:.1%} of next words right, exact match {exact:.1%}")
print(f"{time.perf_counter() - began:.0f} s")
