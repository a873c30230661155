"""Tasks in minigrad."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np
from harness import in_processes
from programs import Functions, task
from sizes import CLIP, LR, SIZES, SMOOTHING, given_text, prompt_of, sentences
from small_ops import chain

import minigrad as mg
import nn
from minigrad import Tensor, optim
from minigrad.fast.runtime import keep_freed_memory
from nn.decoding.drafts import DraftedDecoding
from nn.decoding.sequences import RuledDecoding

VERSION = mg.__version__


def ops(name: str, n: int, side: int) -> Callable[[], None]:
    """Return a chain of `n` small ops, forward and backward."""
    variable = lambda array: Tensor(array, requires_grad=True)
    centre = lambda h: h - h.mean(-1, keepdims=True)
    return chain(name, n, side, mg, variable, lambda array: array, lambda h: h[::-1], centre)


_contexts = ExitStack()  # what was left out stays so, to the end of the process


def _leave_out(part: str) -> None:
    """Replace a kernel by its definition, or leave out another part that is there for speed."""
    if part == "kept memory":
        os.environ["MINIGRAD_MALLOC"] = "default"
    elif part:
        _contexts.enter_context(mg.use_definitions(part))


def train(
    size: str, processes: int = 2, activation: str = "relu", without: str = "", **changes: Any
) -> Callable[[], None]:
    """Return a training step: forward with dropout, smoothed loss, backward, clipping, Adam."""
    _leave_out(without)
    kind = functools.partial(mg.DataParallel, processes=processes)
    step, _ = _training(size, kind, activation, changes)
    return step


def _training(
    size: str, kind: Callable[..., Any], activation: str, changes: dict[str, Any]
) -> tuple[Any, Any]:
    """Return a training step, and the `kind(optimizer, loss, model=model)` that takes it."""
    s = SIZES[size]._replace(**changes)
    mg.manual_seed(0)
    config = nn.TransformerConfig(
        s.vocab,
        s.vocab,
        s.d_model,
        s.num_heads,
        s.layers,
        s.layers,
        s.d_ff,
        dropout=s.dropout,
        max_len=s.length,
        activation=activation,
    )
    model = nn.Transformer(config)
    optimizer = optim.Adam(model.parameters(), LR, clip_norm=CLIP)
    source, target = s.data()
    n = s.batch * s.length
    keep_freed_memory()
    parallel = kind(
        optimizer,
        lambda shard: model.loss(*shard, label_smoothing=SMOOTHING, reduction="sum") / n,
        model=model,
    )
    parts = parallel.size * parallel.parts
    shards = [(source[i::parts], target[i::parts]) for i in range(parts)][
        parallel.rank :: parallel.size
    ]

    def step() -> None:
        parallel.backward(shards)
        parallel.step()

    return step, parallel


def train_mpi(size: str, ranks: int, **changes: Any) -> Any:
    """Return the same step by ranks of an MPI job, one thread each, which the first starts."""
    mg.set_num_threads(1)
    step, parallel = _training(size, mg.MPIParallel, "relu", changes)
    lead = _leading(parallel, step)
    lead.counts = lambda: {
        "communication": parallel.seconds,
        "bytes": parallel.bytes,
        "messages": parallel.messages,
    }
    lead.facts = {"parameters": sum(p.size for p in parallel.optimizer.state)}
    return lead


def all_reduce_mpi(ranks: int, floats: int) -> Any:
    """Sum arrays of `floats` float32 values over all ranks."""
    _, parallel = _training("toy", mg.MPIParallel, "relu", {})
    array = np.zeros(floats, np.float32)
    return _leading(parallel, lambda: parallel._summed(array))


def _leading(parallel: Any, step: Callable[[], Any]) -> Any:
    """Return a step that all ranks take when the first calls it. Until then the others sleep."""
    word = np.zeros(1)

    def say(go: float) -> None:
        word[:] = go
        parallel.comm.Ibcast(word).Wait()

    def lead() -> None:
        say(1.0)
        step()

    while parallel.rank:
        request, began = parallel.comm.Ibcast(word), time.perf_counter()
        while not request.Test():
            if time.perf_counter() - began > 0.01:
                time.sleep(0.005)
        if not word[0]:
            sys.exit()
        step()
    if parallel.size > 1:
        atexit.register(say, 0.0)
    return lead


def for_inference(path: str, weights: str) -> Any:
    """Load a model for inference."""
    model = nn.load(path, weights=weights)
    model = model if weights == "int8" else nn.for_inference(model)
    keep_freed_memory()
    return model


def decode(
    path: str, batch: int, beams: int, length: int, steps: int, weights: str = "float"
) -> Callable[[], Any]:
    """Return a call that decodes exactly `steps` tokens for `batch` sources, with the cache."""
    model = for_inference(path, weights)
    source = np.random.default_rng(0).integers(1, 1000, (batch, length))
    if beams == 1:
        return lambda: nn.greedy_search(model, source, max_len=steps, eos=None, scores=False)
    return lambda: nn.beam_search(model, source, beam_size=beams, max_len=steps, eos=None)


def write_on(
    path: str, context: int, steps: int, batch: int = 1, weights: str = "float"
) -> Callable[[], Any]:
    """Return a call that generates exactly `steps` tokens greedily, with the cache."""
    model, prompts = for_inference(path, weights), [prompt_of(context)] * batch
    return lambda: nn.generate(model, prompts, max_len=steps, eos=None)


def rewrite(path: str, text: str, draft_len: int, weights: str = "float") -> Callable[[], Any]:
    """Return a call in which a model writes a given text, whatever it finds likely."""
    model, (prompt, following) = for_inference(path, weights), given_text(text)
    kind: Any = RuledDecoding
    if draft_len:
        kind = functools.partial(DraftedDecoding, draft_len=draft_len, name="rewrite")
    counts = {"passes": 0, "tokens": 0}

    def step() -> None:
        decoding = kind(model, None, prompt, None, len(following), None, nn.Rules())
        tokens = iter(following)
        for _ in decoding.steps(lambda logits: (np.array([next(tokens)]), np.zeros(1))):
            pass
        counts["tokens"] += len(following)
        counts["passes"] += getattr(decoding, "passes", len(following))

    step.counts = counts.copy  # type: ignore[attr-defined]
    return step


rewrite_int8 = functools.partial(rewrite, weights="int8")
decode_int8 = functools.partial(decode, weights="int8")
write_on_int8 = functools.partial(write_on, weights="int8")


def encode(path: str, batch: int, length: int) -> Callable[[], Any]:
    """Return a call that computes the hidden states of a batch of sentences."""
    keep_freed_memory()
    model, (ids, _) = nn.for_inference(nn.load(path, head="none")), sentences(batch, length)
    return lambda: model.hidden(ids, np.ones(ids.shape, bool))


def fine_tune(path: str, batch: int, length: int, processes: int = 2) -> Callable[[], None]:
    """Return a step of fine-tuning an encoder to two classes: dropout, clipping, AdamW."""
    keep_freed_memory()
    model = nn.load(path, head="classes", num_classes=2).train()
    optimizer = optim.AdamW(model.parameters(), LR, clip_norm=CLIP)
    ids, classes = sentences(batch, length)
    shards = [(ids[i::processes], classes[i::processes]) for i in range(processes)]
    parallel = mg.DataParallel(
        optimizer,
        lambda shard: model.loss(*shard, np.ones(shard[0].shape, bool), reduction="sum") / batch,
        processes,
        model=model,
    )

    def step() -> None:
        parallel.backward(shards)
        parallel.step()

    return step


def load(path: str) -> Callable[[], Any]:
    """Return a call that loads a model from its directory."""
    return lambda: nn.load(path)


def gemm(size: str, processes: int = 2) -> Callable[[], None]:
    """Return the matrix products of a step: forward, gradient of the input, of the weight.

    Split as `train` splits them: each process has its rows of the batch, and one thread.
    """
    s = SIZES[size]
    n, d = s.batch * s.length // processes, s.d_model
    shapes = [
        (d, d, 12 * s.layers),
        (d, s.d_ff, 2 * s.layers),
        (s.d_ff, d, 2 * s.layers),
        (d, s.vocab, 1),
    ]

    def products() -> Callable[[], None]:
        mg.set_num_threads(1)
        rng = np.random.Generator(np.random.SFC64(0))
        work = []
        for n_in, n_out, times in shapes:
            operands = ((n, n_in), (n_out, n_in), (n, n_out))
            work.append(([rng.random(shape, np.float32) for shape in operands], times))

        def step() -> None:
            for (x, w, g), times in work:
                for _ in range(times):
                    x @ w.T
                    g @ w
                    g.T @ x

        return step

    return in_processes(products, processes)


def program(name: str, size: int) -> Callable[[], None]:
    """Return value and gradient of one of the small programs, in NumPy's and SciPy's names."""
    from scipy import special

    xp = Functions(
        np,
        special,
        writes=True,
        rereads=True,
        constant=np.asarray,
        copied=mg.tensor,
        zeros=mg.zeros,
        logsumexp=mg.logsumexp,
        cho_solve=lambda factor, b: mg.cho_solve((factor, True), b),
    )
    return task(xp, name, size, mg.value_and_grad)
