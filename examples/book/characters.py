"""Train a model of characters by two optimizers, save it, load it, and draw text from it.

python examples/book/characters.py [STEPS]
"""

import copy
import io
import pickle
import sys

import numpy as np

import minigrad as mg
import nn

STEPS, LENGTH, BATCH = int(sys.argv[1]) if sys.argv[1:] else 150, 32, 16

text = "".join(f"{a} and {b} are {a + b}; " for a in range(1, 30) for b in range(1, 9))
characters = sorted(set(text))
ids = np.array([characters.index(c) for c in text])


def batches(epoch):
    """Yield rows of the text that begin anywhere."""
    rng = np.random.default_rng(epoch)
    for _ in range(STEPS):
        starts = rng.integers(0, len(ids) - LENGTH, BATCH)
        yield (ids[starts[:, None] + np.arange(LENGTH)],)


# The next character by the last one alone, with a training step written out.
pairs = nn.Sequential(nn.Embedding(len(characters), 32), nn.Linear(32, len(characters)))
for (rows,) in batches(0):
    pairs.zero_grad()
    loss = mg.cross_entropy(pairs(rows[:, :-1]), rows[:, 1:])
    loss.backward()
    with mg.no_grad():
        for parameter in pairs.parameters():
            parameter -= parameter.grad
pairs[0].requires_grad_(False)
print(pairs, f"{pairs[1].bias!r:.60}...", f"loss {loss.item():.2f}", sep="\n")

# A Transformer, by two optimizers.
sizes = {"d_model": 64, "num_heads": 4, "num_layers": 2, "d_ff": 128, "max_len": 128}
config = nn.LanguageModelConfig(len(characters), dropout=0.0, **sizes)
models = [nn.LanguageModel(config, np.random.default_rng(0)) for _ in range(2)]
optimizers = [
    mg.optim.AdamW(models[0].parameters(), lr=3e-3, weight_decay=0.01),
    mg.optim.SGD(models[1].parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4),
]
print(models[0], f"{models[0].num_parameters():,} parameters", sep="\n")
for model, optimizer in zip(models, optimizers):
    losses = nn.TrainingLoop(model, optimizer, batches, max_epochs=1, label_smoothing=0.01).fit()
    print(f"{type(optimizer).__name__}: loss {losses[0]:.2f} → {np.mean(losses[-5:]):.2f}")

# A file of arrays, and a model with these weights. A model can also be copied.
model, file = models[0], io.BytesIO()
np.savez(file, **model.state_dict())
file.seek(0)
with nn.init.skipped():  # draws no weights
    loaded = nn.LanguageModel(config)
loaded.load_state_dict(np.load(file))
prompt = np.array([[characters.index(c) for c in "3 and 4 are "]])
for other in loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
    assert np.array_equal(other(prompt).data, model(prompt).data)
assert loaded.hidden(prompt).shape == (*prompt.shape, config.d_model)
print(f"{model.num_targets(ids[None, :LENGTH])} targets in a row of {LENGTH} characters")

mg.manual_seed(1)
continuations = [
    nn.decode(loaded, prompt, max_len=40),
    nn.decode(loaded, prompt, max_len=40, choose=lambda logits: nn.sampled(logits, 0.8)),
]
for (following,) in continuations:
    print("3 and 4 are " + "".join(characters[i] for i in following))
