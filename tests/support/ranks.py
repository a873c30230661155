"""Programs of the ranks of a job: mpiexec -n 2 python ranks.py CASE ARGUMENTS..."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from support import runs
from support.scripts import load

import minigrad as mg
import nn
from minigrad import MPIParallel, Tensor, optim
from minigrad.fast.parallel import job
from nn.commands import fine_tune, train
from nn.commands.console import run_script
from nn.runs import agreement
from nn.text.batches import PairBatches

INDEXED = load("indexed_pairs")

# -- steps -------------------------------------------------------------------------------------------


def model_and_optimizer(dropout: float = 0.0) -> tuple[nn.Transformer, optim.Adam]:
    """Return the same small model and optimizer, with two groups, on every rank."""
    mg.manual_seed(0)
    model = nn.Transformer(
        nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=dropout, max_len=16, dtype="float64")
    )
    weights, others = (
        [p for p in model.parameters() if (p.ndim > 1) == is_weight] for is_weight in (True, False)
    )
    groups = [{"params": weights}, {"params": others, "lr": 2e-3}]
    return model, optim.Adam(groups, lr=5e-3, clip_norm=0.5)


def batch(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target ids of a batch with padding."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(3, 9, (rows, 5)), rng.integers(3, 9, (rows, 6))
    source[0, 3:] = 0
    return source, target


def parts_of_rank(parallel: Any, whole: tuple[np.ndarray, ...]) -> list[Any]:
    """Return those parts of a batch that this rank computes."""
    n = parallel.size * parallel.parts
    parts = [tuple(side[i::n] for side in whole) for i in range(min(n, len(whole[0])))]
    return parts[parallel.rank :: parallel.size]


def check_steps(make: Callable[..., Any], processes: int) -> Any:
    """Compare steps with clipping, several batches, odd numbers of rows, and fewer rows than ranks."""
    (model, adam), (other, plain) = model_and_optimizer(), model_and_optimizer()
    loss = lambda model, rows: model.loss(*rows, reduction="sum") / 30
    with make(adam, lambda rows: loss(model, rows), processes, model=model) as parallel:
        for step in range(3):
            plain.zero_grad()
            for i, rows in enumerate([6, 7, 1]):
                whole = batch(10 * i + step, rows)
                losses = parallel.backward(parts_of_rank(parallel, whole), add=i > 0)
                expected = loss(other, whole)
                expected.backward()
                np.testing.assert_allclose(parallel.sum([sum(losses)]), expected.item(), 1e-9)
            np.testing.assert_allclose(parallel.step(), plain.step(), 1e-9)
            for p, q in zip(model.parameters(), other.parameters()):
                np.testing.assert_allclose(p.data, q.data, 1e-9, 5e-9)
        parallel.agree({"weights": agreement.digest(model.state_dict())})  # bit for bit
    return parallel


def check_gradients_of_one_rank(processes: int) -> None:
    """Check a parameter with a gradient on one rank, and one without a gradient."""
    a, b, unused = (Tensor(np.ones(2), True) for _ in range(3))
    sgd = optim.SGD([a, b, unused], lr=1.0, weight_decay=0.5)
    loss = lambda is_b: ((b if is_b else a) * 2).sum()
    with MPIParallel(sgd, loss, processes, model=None) as parallel:
        parallel.backward([1])
        parallel.step()
        parallel.backward([int(parallel.rank == 1)])  # what the others had is forgotten
        parallel.step()
    assert b.grad.tolist() == [2, 2] and unused.grad is None and unused.tolist() == [1, 1]


def check_random_numbers() -> None:
    """Check that ranks draw different numbers in `backward`, and the same numbers outside."""
    p, drawn = Tensor(np.zeros(1), True), []
    module = nn.Dropout(0.5, generator=np.random.default_rng(3))
    draw = lambda: [g.random() for g in (mg.default_generator(), module.generator)]

    def loss(shard: Any) -> Tensor:
        drawn.append(draw())
        return p.sum()

    with MPIParallel(optim.SGD([p]), loss, model=module) as parallel:
        parallel.backward([0])
        parallel.backward([0])
        for first, second in zip(*drawn):
            assert first != second
            with pytest.raises(ValueError, match="drawn must be the same"):
                parallel.agree({"drawn": first})
        parallel.agree({"outside": draw()})


def steps() -> None:
    """Check steps, gradients and random numbers of MPIParallel on these ranks."""
    mg.manual_seed(5)
    parallel = check_steps(MPIParallel, 1)
    assert parallel.bytes == 3 * 8 * sum(p.size for p in parallel.model.parameters())
    check_steps(MPIParallel, 2)
    check_gradients_of_one_rank(1)
    check_gradients_of_one_rank(2)
    check_random_numbers()


# -- runs --------------------------------------------------------------------------------------------


def trainer(out: Path, kind: str, **options: Any) -> nn.Trainer:
    """Return a short run on batches of this kind; files are in the directory above that of `out`."""
    model, adam = model_and_optimizer(dropout=0.1 if kind == "dropout" else 0.0)
    pairs = INDEXED.IndexedPairs(out.parents[1] / "corpus") if kind == "file" else runs.copying(60)
    train, valid = PairBatches(pairs, 60), PairBatches(runs.copying(20, 1), 60, shuffle=False)
    if kind == "list":
        train, valid = list(train.epoch(0)), list(valid.epoch(0))
    settings = {"max_epochs": 2, "accumulate": 2, "log_every": 2, "save_every": 1, **options}
    return nn.Trainer(
        model,
        adam,
        train,
        valid=valid,
        objective=nn.ModelLoss(label_smoothing=0.05),
        schedule=optim.inverse_sqrt_schedule(5),
        progress=False,
        run_dir=out,
        **settings,
    )


def whole_runs(out: str, *kinds: str) -> None:
    """Train each kind of run to its end."""
    for kind in kinds:
        trainer(Path(out) / kind, kind).fit()


def killed_run(out: str, rank: str, step: str) -> None:
    """Kill rank `rank` in step `step`."""
    t = trainer(Path(out), "dropout")
    if t.parallel.rank == int(rank):
        runs.at_step(t, int(step), lambda: os.kill(os.getpid(), signal.SIGKILL))
    t.fit()


def resumed_run(out: str) -> None:
    """Resume the run with dropout."""
    trainer(Path(out), "dropout").fit(resume=True)


def interrupted_run(out: str) -> None:
    """Send SIGINT to the last rank, once."""
    t = trainer(Path(out), "pairs", accumulate=1)
    if t.parallel.rank == t.parallel.size - 1:
        runs.at_step(t, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    t.fit()


def fail() -> NoReturn:
    """Raise the error of a full disk."""
    raise OSError(28, "No space left on device", "/data")


def one_fails(out: str) -> None:
    """Train while rank 1 meets a full disk."""
    t = trainer(Path(out), "pairs")
    if t.parallel.rank == 1:
        runs.at_step(t, 1, fail)
    t.fit()


def last_save_fails(out: str) -> None:
    """Fail in the first rank after the others have ended."""
    t = trainer(Path(out), "pairs")
    if t.parallel.rank == 0:
        saved = t.run.save_state
        is_last = lambda state: state["validated"] == t.step and state["epoch"] == 2
        t.run.save_state = (  # type: ignore[method-assign]
            lambda arrays, state: fail() if is_last(state) else saved(arrays, state)
        )
    t.fit()


def one_leaves(out: str) -> None:
    """Train while rank 1 exits with status 3."""
    t = trainer(Path(out), "pairs")
    if t.parallel.rank == 1:
        sys.exit(3)
    t.fit()


VERSION = mg.__version__

CHANGES: dict[str, tuple[str, Callable[[nn.Trainer], Any]]] = {
    "pairs": ("training data", lambda t: setattr(t, "train", PairBatches(runs.copying(60, 2), 60))),
    "accumulate": ("accumulate", lambda t: setattr(t, "accumulate", 3)),
    "lr": ("optimizer", lambda t: t.optimizer.param_groups[0].update(lr=2e-3)),
    "weights": ("the arrays", lambda t: t.model.output.weight.data.fill(1.0)),
    "dropout": ("the model", lambda t: setattr(t.model.encoder.layers[0].dropout, "p", 0.3)),
    "smoothing": ("losses", lambda t: t.objective.options.update(label_smoothing=0.2)),
    "schedule": ("learning rates", lambda t: setattr(t.schedule, "factors", [lambda step: 1.0])),
    "random": ("random", lambda t: mg.manual_seed(7)),
    "code": ("minigrad", lambda t: setattr(mg, "__version__", "0.1")),
}
"""Changes on one rank, and the name of what then differs."""


def mismatches(out: str) -> None:
    """Change one setting on rank 1 after another, and print the errors."""
    for name, (_, change) in CHANGES.items():
        t = trainer(Path(out) / name, "pairs")
        if t.parallel.rank == 1:
            change(t)
        print_error(t)
    t = trainer(Path(out) / "function", "pairs")
    mg.__version__ = VERSION
    seed = 100 * t.parallel.rank
    t.train = nn.runs.as_batches(lambda epoch: [batch(epoch + seed, 4)])  # compared when they come
    print_error(t)


def print_error(t: nn.Trainer) -> None:
    """Print the ValueError that training raises."""
    try:
        t.fit()
    except ValueError as error:
        print(error)


def saves(out: str, trials: str) -> None:
    """Save a model and an adapter of each rank into the same directories, at one moment."""
    ranks = job.world()
    config = nn.DecoderOnlyConfig(19, 8, 2, 2, 16, max_len=10, dropout=0.0)
    new_model = lambda seed: nn.LanguageModel(config, np.random.default_rng(seed))
    model, adapted = new_model(ranks.rank), nn.lora(new_model(9), rank=2)
    for p in adapted.parameters():
        if p.requires_grad:
            p.data[...] = np.random.default_rng(ranks.rank).standard_normal(p.shape)

    def is_of_one_rank(loaded: nn.Module, saved: nn.Module) -> bool:
        logits, saved_logits = (m.eval()(np.arange(9)[None]).data for m in (loaded, saved))
        equal = [np.allclose(logits, x, atol=1e-5) for x in ranks.allgather(saved_logits)]
        return equal.count(True) == 1

    for trial in range(int(trials)):
        directory = Path(out) / str(trial % 3)  # new ones, and then those of older models
        ranks.Barrier()
        nn.save(directory / "model", model)
        nn.save_adapter(directory / "adapter", adapted)
        ranks.Barrier()
        assert is_of_one_rank(nn.load(directory / "model"), model)
        assert is_of_one_rank(nn.load_adapter(directory / "adapter", new_model(9)), adapted)
        assert not list(directory.rglob(".*"))


# -- examples ----------------------------------------------------------------------------------------


def examples(directory: str) -> None:
    """Run two commands that train, on data in `directory`."""
    out, tiny = f"{directory}/out", ["--epochs", "1", "--d-model", "16", "--layers", "1", "--d-ff", "32"]  # fmt: skip
    toy = ["--sentences", "130", "--valid-size", "5", "--test-size", "5", "--num-heads", "2"]
    train.main([*toy, *tiny, "--processes", "1", "--out", f"{out}/train"])
    fine_tune.main([f"{directory}/encoder", f"{directory}/labels.tsv", *tiny[:2], "--out", f"{out}/tuned"])  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "one_leaves":
        sys.exit(one_leaves(sys.argv[2]))
    sys.exit(run_script(lambda: globals()[sys.argv[1]](*sys.argv[2:])))
