"""Programs of the ranks of a job: mpiexec -n 2 python ranks.py CASE ARGUMENTS..."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import runs
import scripts

import minigrad as mg
import nn
from minigrad import MPIParallel, Tensor, optim
from minigrad.console import run_script
from nn.commands import fine_tune, train
from nn.text import IndexedPairs, PairBatches
from nn.train import agreement

# -- steps -------------------------------------------------------------------------------------------


def model_and_optimizer() -> tuple[nn.Transformer, optim.Adam]:
    mg.manual_seed(0)
    model = nn.Transformer(
        nn.TransformerConfig(9, 9, 16, 2, 1, 1, 32, dropout=0.0, max_len=8, dtype="float64")
    )
    return model, optim.Adam(model.parameters(), lr=1e-2, clip_norm=0.5)


def batch(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(3, 9, (rows, 5)), rng.integers(3, 9, (rows, 6))
    source[0, 3:] = 0
    return source, target


def parts_of_rank(parallel: MPIParallel, whole: tuple[np.ndarray, ...]) -> list[Any]:
    n = parallel.size * parallel.parts
    parts = [tuple(side[i::n] for side in whole) for i in range(min(n, len(whole[0])))]
    return parts[parallel.rank :: parallel.size]


def check_steps(tolerance: float, **options: Any) -> None:
    """Compare steps with clipping, several batches, odd numbers of rows, and fewer rows than ranks."""
    (model, adam), (other, plain) = model_and_optimizer(), model_and_optimizer()
    with MPIParallel(
        adam, lambda s: model.loss(*s, reduction="sum") / 30, **options, model=model
    ) as parallel:
        for step in range(3):
            plain.zero_grad()
            for i, rows in enumerate([6, 7, 1]):
                whole = batch(10 * i + step, rows)
                losses = parallel.backward(parts_of_rank(parallel, whole), add=i > 0)
                loss = other.loss(*whole, reduction="sum") / 30
                loss.backward()
                np.testing.assert_allclose(parallel.sum([sum(losses)]), loss.item(), tolerance)
            np.testing.assert_allclose(parallel.step(), plain.step(), tolerance)
            for (name, p), q in zip(model.named_parameters(), other.parameters()):
                np.testing.assert_allclose(
                    p.data, q.data, rtol=tolerance, atol=5 * tolerance, err_msg=name
                )
        assert parallel.bytes == 3 * 8 * sum(p.size for p in model.parameters())
        parallel.agree({"weights": agreement.digest(model.state_dict())})  # bit for bit


def check_gradients_of_one_rank() -> None:
    """Check a parameter with a gradient on one rank, and one without a gradient."""
    a, b, unused = (Tensor(np.full(2, x), True) for x in (0.0, 0.0, 1.0))
    sgd = optim.SGD([a, b, unused], lr=1.0, weight_decay=0.5)
    for processes in (1, 2):
        with MPIParallel(
            sgd, lambda s: ((a + b).sum() if s else a.sum()) * 2, processes, model=None
        ) as parallel:
            for ranks in (
                range(9),
                [1],
            ):  # on all; then on one, and what the others had is forgotten
                parallel.backward([int(parallel.rank in ranks)])
                parallel.step()
            assert b.grad.tolist() == [2, 2] and unused.grad is None and unused.tolist() == [1, 1]


def check_random_numbers() -> None:
    """Check that ranks draw different numbers in `backward`, and the same numbers outside."""
    p, drawn = Tensor(np.zeros(1), True), []
    module = nn.Dropout(0.5, generator=np.random.default_rng(3))

    def loss(shard: Any) -> Tensor:
        drawn.append([g.random() for g in (mg.default_generator(), module.generator)])
        return p.sum()

    mg.manual_seed(5)
    with MPIParallel(optim.SGD([p], lr=1.0), loss, model=module) as parallel:
        for _ in range(2):
            parallel.backward([0])
        for number in range(2):
            x = drawn[0][number]
            sums = parallel.sum([x, x**2])
            assert sums[1] * parallel.size - sums[0] ** 2 > 1e-6 and x != drawn[1][number]
        parallel.agree({"random": [g.random() for g in (mg.default_generator(), module.generator)]})


def check_skipped_step() -> None:
    p = Tensor(np.ones(2), True)
    sgd = optim.SGD([p], lr=1.0, skip_nonfinite=True)
    with MPIParallel(sgd, lambda factor: (p * factor).sum(), model=None) as parallel:
        parallel.backward([float("nan") if parallel.rank == 1 else 1.0])
        assert np.isnan(parallel.step()) and sgd.skipped == 1 and p.tolist() == [1, 1]
        parallel.backward([1.0])
        parallel.step()
        assert p.tolist() == [1 - parallel.size] * 2


def steps() -> None:
    check_steps(1e-9)
    check_steps(1e-9, processes=2)
    check_gradients_of_one_rank()
    check_random_numbers()
    check_skipped_step()


# -- runs --------------------------------------------------------------------------------------------


class OneByOne(nn.ModelLoss):
    """Objective that splits a batch into parts of consecutive rows."""

    def split(self, batch: Any, parts: int) -> list[Any]:
        cuts = np.array_split(np.arange(len(batch[0])), parts)
        return [tuple(side[cut] for side in batch) for cut in cuts if len(cut)]


def trainer(out: Path, kind: str, dropout: float = 0.0, **options: Any) -> nn.Trainer:
    """Return a short run on batches of this kind."""
    mg.manual_seed(0)
    config = nn.TransformerConfig(
        9, 9, 16, 2, 1, 1, 32, dropout=dropout, max_len=16, dtype="float64"
    )
    model = nn.Transformer(config)
    if dropout:
        generator = np.random.default_rng(7)  # of the encoder
        for layer in model.encoder.modules():
            if hasattr(layer, "generator"):
                layer.generator = generator
    adam = optim.Adam(model.parameters(), lr=5e-3, clip_norm=1.0)
    pairs = runs.copying(60)
    if kind == "file":
        path = out.parent / "corpus"
        pairs = IndexedPairs(path) if path.exists() else IndexedPairs.write(path, pairs, 9)
    train, valid = PairBatches(pairs, 60), PairBatches(runs.copying(20, 1), 60, shuffle=False)
    if kind == "list":
        train, valid = list(train.epoch(0)), list(valid.epoch(0))
    settings = {"max_epochs": 2, "accumulate": 2, "log_every": 2, "save_every": 1, **options}
    return nn.Trainer(
        model,
        adam,
        train,
        valid=valid,
        objective=(OneByOne if kind == "own" else nn.ModelLoss)(label_smoothing=0.05),
        schedule=optim.inverse_sqrt_schedule(5),
        progress=False,
        run_dir=out,
        **settings,
    )


KINDS = ["pairs", "file", "list", "own"]


def whole_runs(out: str, *kinds: str) -> None:
    """Run trainers of these kinds, and the checks of steps if "steps" is a kind."""
    if "steps" in kinds:
        steps()
    for kind in kinds:
        if kind == "dropout":
            trainer(Path(out) / kind, "pairs", 0.1).fit()
        elif kind != "steps":
            trainer(Path(out) / kind, kind).fit()


def killed_run(out: str, rank: str, step: str) -> None:
    """Kill rank `rank` in step `step`."""
    t = trainer(Path(out), "pairs", 0.1)
    if t.parallel.rank == int(rank):
        total = t.objective.total

        def until(model: Any, part: Any) -> Any:
            if t.step == int(step):
                os.kill(os.getpid(), signal.SIGKILL)
            return total(model, part)

        t.objective.total = until  # type: ignore[method-assign]
    t.fit()


def resumed_run(out: str) -> None:
    trainer(Path(out), "pairs", 0.1).fit(resume=True)


def slow_run(out: str) -> None:
    """Run until Ctrl-C."""
    batches = [batch(0, 4)] * 1000
    t = trainer(Path(out), "list", max_epochs=10_000)
    t.train = nn.train.as_batches(batches)
    print("begins", flush=True)
    t.fit()


def one_fails(out: str) -> None:
    t = trainer(Path(out), "pairs")

    def fails(model: Any, part: Any) -> Any:
        if t.step == 1 and t.parallel.rank == 1:
            raise OSError(28, "No space left on device", "/data")
        return nn.ModelLoss().total(model, part)

    t.objective.total = fails  # type: ignore[method-assign]
    t.fit()


def last_save_fails(out: str) -> None:
    """Let the first rank fail after the others have ended."""
    t = trainer(Path(out), "pairs")
    if t.parallel.rank == 0:
        saved = t.run.save_state

        def save_state(arrays: Any, state: dict[str, Any]) -> None:
            if state["validated"] == t.step and state["epoch"] == 2:
                raise OSError(28, "No space left on device", "/data")
            saved(arrays, state)

        t.run.save_state = save_state  # type: ignore[method-assign]
    t.fit()


def one_leaves(out: str) -> None:
    t = trainer(Path(out), "pairs")
    if t.parallel.rank == 1:
        sys.exit(3)
    t.fit()


def mismatches(out: str) -> None:
    """Change one setting on rank 1 after another, and print the errors."""
    for name, change in CHANGES.items():
        t = trainer(Path(out) / name, "list" if name == "batch" else "pairs")
        if name == "function":  # whose batches are compared when they come
            t.train = nn.train.as_batches(lambda epoch: [batch(epoch, 4)])
        if t.parallel.rank == 1:
            change(t)
        try:
            t.fit()
        except ValueError as error:
            print(f"{name}: {error}")
        else:
            raise AssertionError(name)
        agreement._code = CODE


CODE = agreement._code


def _other_code(t: nn.Trainer) -> None:
    agreement._code = lambda: "something else"


def _other_pairs(t: nn.Trainer) -> None:
    t.train = PairBatches(runs.copying(60, 2), 60)


def _other_function(t: nn.Trainer) -> None:
    t.train = nn.train.as_batches(lambda epoch: [batch(epoch + 100, 4)])


def _other_batch(t: nn.Trainer) -> None:
    t.train.batches[0][0][0, 0] += 1


CHANGES: dict[str, Callable[[nn.Trainer], Any]] = {
    "accumulate": lambda t: setattr(t, "accumulate", 3),
    "lr": lambda t: t.optimizer.param_groups[0].update(lr=2e-3),
    "weights": lambda t: t.model.output.weight.data.__setitem__((0, 0), 1.0),
    "dropout": lambda t: setattr(t.model.encoder.layers[0].dropout, "p", 0.3),
    "smoothing": lambda t: t.objective.options.update(label_smoothing=0.2),
    "schedule": lambda t: setattr(t.schedule, "factors", [lambda step: 1.0]),
    "random": lambda t: mg.manual_seed(7),
    "code": _other_code,
    "pairs": _other_pairs,
    "batch": _other_batch,
    "function": _other_function,
}


# -- examples ----------------------------------------------------------------------------------------


def examples(directory: str) -> None:
    """Run an example and two commands that train, on data in `directory`."""
    labels, out = f"{directory}/labels.tsv", f"{directory}/out"
    tiny = ["--epochs", "1", "--d-model", "16", "--layers", "1", "--num-heads", "2"]
    scripts.load("classify").main(["--data", labels, *tiny[:-2], "--out", f"{out}/classify"])
    toy = ["--sentences", "130", "--valid-size", "5", "--test-size", "5", "--beam", "1"]
    train.main([*toy, *tiny, "--d-ff", "32", "--processes", "1", "--out", f"{out}/train"])
    fine_tune.main([f"{directory}/encoder", labels, *tiny[:2], "--out", f"{out}/fine_tune"])


CASES = {
    f.__name__: f
    for f in (whole_runs, killed_run, resumed_run, slow_run, one_fails, last_save_fails, one_leaves, mismatches, examples)
}  # fmt: skip

if __name__ == "__main__":
    if sys.argv[1] == "one_leaves":
        sys.exit(one_leaves(sys.argv[2]))
    sys.exit(run_script(lambda: CASES[sys.argv[1]](*sys.argv[2:])))
