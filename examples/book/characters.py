"""Train a model of characters by two optimizers, save it, load it, and draw text from it.

python examples/book/characters.py [STEPS]
"""

import copy
import io
import pickle
import sys

import alone  # noqa: F401
import numpy as np

from minigrad.optimizer import SGD, AdamW, clip_grad_norm_
from minigrad.random import manual_seed
from minigrad.tensor import Tensor
from nn.config import LanguageModelConfig
from nn.fit import TrainingLoop
from nn.generation import generate, sampled
from nn.initial import skipped
from nn.models import LanguageModel

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


sizes = {"d_model": 64, "num_heads": 4, "num_layers": 2, "d_ff": 128}
options = {"norm_first": True, "positions": "learned", "dropout": 0.0, "max_len": 128}
config = LanguageModelConfig(len(characters), **sizes, **options)
models = [LanguageModel(config, np.random.default_rng(0)) for _ in range(2)]
optimizers = [
    AdamW(models[0].parameters(), lr=3e-3, weight_decay=0.01),
    SGD(models[1].parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4),
]
for model, optimizer in zip(models, optimizers):
    print(f"{model.num_parameters():,} parameters")
    losses = TrainingLoop(model, optimizer, batches, max_epochs=1, label_smoothing=0.01).fit()
    print(f"{type(optimizer).__name__}: loss {losses[0]:.2f} → {np.mean(losses[-5:]):.2f}")

# The same gradients, clipped by hand.
model = models[0]
model.loss(ids[None, :LENGTH]).backward()
norm = clip_grad_norm_(model.parameters(), 1e-3)
print(f"norm of the gradients {norm:.3f}, clipped {clip_grad_norm_(model.parameters(), 1):.3f}")

# The state of the optimizer continues in another one.
resumed = AdamW(model.parameters())
resumed.load_state_dict(optimizers[0].state_dict())
assert resumed.state_dict()["groups"][0]["steps"] == STEPS

# A file of arrays, and a model with these weights.
file = io.BytesIO()
np.savez(file, **model.state_dict())
file.seek(0)
with skipped():  # draws no weights
    loaded = LanguageModel(config)
loaded.load_state_dict(np.load(file))
prompt = np.array([[characters.index(c) for c in "3 and 4 are "]])
assert np.array_equal(loaded(prompt).data, model(prompt).data)
assert loaded.hidden(prompt).shape == (*prompt.shape, config.d_model)
print(f"{model.num_targets(ids[None, :LENGTH])} targets in a row of {LENGTH} characters")
for other in copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
    assert np.array_equal(other(prompt).data, model(prompt).data)

# Tensors behave as numbers and arrays, can be copied, and say what they are.
weight = Tensor(np.eye(2), requires_grad=True)
(weight * weight).sum().backward()
for other in copy.copy(weight), copy.deepcopy(weight), pickle.loads(pickle.dumps(weight)):
    assert other.tolist() == weight.tolist() and other.requires_grad
assert len(weight) == 2 and 1 in weight and [row.sum().item() for row in weight] == [1, 1]
loss = weight.detach().sum()
assert bool(loss) and float(loss) == 2.0 and int(loss) == 2 and complex(loss) == 2 + 0j
assert [10, 20, 30][Tensor(1)] == 20 and {weight: 1}[weight] == 1 and loss.numpy() == 2
print(repr(weight), f"{loss:.3f} {loss}", model, sep="\n")

manual_seed(1)
continuations = [
    generate(loaded, prompt, max_len=40),
    generate(loaded, prompt, max_len=40, choose=lambda logits: sampled(logits, 0.8)),
]
for (following,) in continuations:
    print("3 and 4 are " + "".join(characters[i] for i in following))
