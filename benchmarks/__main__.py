"""Benchmarks, by hand: `python benchmarks all`, or one of

train     a training step at three sizes, with its memory and its share of the machine's GEMM rate,
          and the same without dropout against PyTorch; "kept" has minigrad's settings of malloc
published models of published shapes against transformers: tokens, sentences, fine-tuning, loading
decode    32 tokens by a model of OPUS-MT's shape, against Hugging Face's generate and CTranslate2
int8      tokens a second and memory of models in float32 and in 8 bits, against the same two
drafts    a given text written with and without drafts that are looked up in it
gains     what each kernel, and each other thing that is there for speed, saves of a step
ops       one recorded op, forward and backward, on small arrays
programs  value and gradient of eight small programs, against autograd, MyGrad, PyTorch and JAX
scaling   how a training step grows with batch, length and width, as slopes of log-log lines
imports   CPU time of `import` beyond `import numpy`
mpi       a training step by 1 and 2 ranks of MPI, by forked processes, and by PyTorch with gloo
scale     the efficiency of up to 1,000 machines, by the α-β model, from the step of this one

Each library has a process of its own. They take turns, and medians are compared. Libraries that are
not installed are skipped. Figures are written to OUT.json, and a picture of them to OUT.png.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import programs
import ranks
from harness import Worker, compare, machine, take_turns
from sizes import SIZES

from nn.inspection.style import COLOURS, style

PYTORCH = ["torch", "torch+kept", "torch:processes", "torch:processes+kept"]
RIVALS = [*PYTORCH, "torch:compiled", "jax", "autograd", "mygrad"]
SLOW = ["autograd", "mygrad"]  # not at the size base, where they would take minutes
NAMES = {
    "minigrad": "minigrad", "torch": "PyTorch", "torch:processes": "PyTorch, 2 proc.",
    "torch:compiled": "torch.compile", "torch+kept": "PyTorch, kept",
    "torch:processes+kept": "PyTorch, 2, kept",
    "jax": "JAX jit", "autograd": "HIPS autograd", "mygrad": "MyGrad", "ctranslate2": "CTranslate2",
    "minigrad:int8": "minigrad int8", "ctranslate2:int8": "CTranslate2 int8",
}  # fmt: skip
OPS = [
    "add", "multiply", "divide", "negative", "tanh", "relu", "exp, log", "square", "matmul",
    "reshape", "transpose", "slice", "mean", "softmax", "maximum", "where",
]  # fmt: skip


def against(
    rivals: list[str], task: str, config: dict[str, Any], rounds: int, warmup: int
) -> dict[str, Any]:
    """Run minigrad and each rival in turns; return medians, peak memory over idle, and ratios."""
    measured: dict[str, Any] = {}
    for rival in rivals:
        workers = compare(["minigrad", rival], task, config, rounds, warmup)
        for w in workers:
            result = {
                "ms": w.median * 1e3,
                "peak_mb": w.peak / 1e6,
                "version": w.facts["version"],
                "rounds_ms": [1e3 * seconds for seconds in w.seconds],
            }
            measured.setdefault(w.library, result)
        if rival in measured:
            measured[rival]["ratio"] = workers[0].median / measured[rival]["ms"] * 1e3
    return measured


def show(title: str, measured: dict[str, Any], names: dict[str, str]) -> None:
    for library, f in measured.items():
        ratio = f"{f['ratio']:.2f}" if "ratio" in f else ""
        print(
            f"{title:19}{names[library]:17}{f['ms']:9.1f}{f['peak_mb']:9.0f}{ratio:>20}", flush=True
        )


HEAD = f"{'':36}       ms  peak MB   minigrad's / its time"


def train(rounds: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    print(f"a training step\n{HEAD}")
    for size, s in SIZES.items():
        rivals = [r for r in RIVALS if size != "base" or r not in SLOW]
        measured = against(rivals, "train", {"size": size}, rounds, 3)
        show(size, measured, NAMES)
        without = [r for r in rivals if r in PYTORCH]
        plain = against(without, "train", {"size": size, "dropout": 0.0}, rounds, 3)
        show(f"{size}, no dropout", plain, NAMES)
        (gemm,) = compare(["minigrad"], "gemm", {"size": size}, rounds)
        rate = s.useful_flops() / gemm.median
        fraction = gemm.median / (measured["minigrad"]["ms"] / 1e3)
        print(
            f"{size:19}matrix products alone, in two processes: {gemm.median * 1e3:.1f} ms, "
            f"{rate / 1e9:.0f} GFLOP/s; {fraction:.0%} of a step"
        )
        result[size] = {
            "libraries": measured,
            "no_dropout": plain,
            "gemm_ms": gemm.median * 1e3,
            "gemm_share": fraction,
        }
    return result


def decode(rounds: int) -> dict[str, Any]:
    result = {}
    print(f"32 tokens\n{HEAD}")
    with tempfile.TemporaryDirectory() as path:
        write_model(path, "OPUS-MT")
        for batch, beams in ((1, 1), (32, 1), (1, 4)):
            name = f"batch {batch}, beam {beams}"
            config = {"path": path, "batch": batch, "beams": beams, "length": 16, "steps": 32}
            result[name] = against(["torch", "ctranslate2"], "decode", config, rounds, 2)
            show(name, result[name], NAMES | {"torch": "Hugging Face"})
    return result


def write_model(path: str, shape: str) -> None:
    """Write a model with random weights for transformers, and for CTranslate2 if there is one."""
    Worker("torch", "published", {"path": path, "shape": shape}).close()
    if shape != "MiniLM":
        compare(["ctranslate2"], "convert", {"path": path}, 0, 0)


PUBLISHED: list[tuple[str, str, str, dict[str, int]]] = [
    ("GPT-2, 32 tokens", "GPT-2", "write_on", {"context": 16, "steps": 32}),
    ("GPT-2, loading", "GPT-2", "load", {}),
    ("SmolLM2, 32 tokens", "SmolLM2", "write_on", {"context": 16, "steps": 32}),
    ("MiniLM, 32 × 128", "MiniLM", "encode", {"batch": 32, "length": 128}),
    ("MiniLM, 1 × 16", "MiniLM", "encode", {"batch": 1, "length": 16}),
    ("MiniLM, taught", "MiniLM", "fine_tune", {"batch": 16, "length": 64}),
]


def published(rounds: int) -> dict[str, Any]:
    """Measure time and memory over idle of published models here and in transformers."""
    result: dict[str, Any] = {}
    print(f"a model of a published shape, with random weights\n{HEAD}")
    with tempfile.TemporaryDirectory() as root:
        for name, shape, task, config in PUBLISHED:
            path = Path(root) / shape
            if not path.exists():
                write_model(str(path), shape)
            result[name] = against(["torch"], task, {"path": str(path), **config}, rounds, 2)
            show(name, result[name], NAMES | {"torch": "Hugging Face"})
    return result


PROMPT, SOURCE = {"context": 16, "steps": 32}, {"length": 16, "steps": 32}
GENERATED: list[tuple[str, str, str, dict[str, int]]] = [
    ("GPT-2, 1 text", "GPT-2", "write_on", PROMPT),
    ("GPT-2, 4 texts", "GPT-2", "write_on", PROMPT | {"batch": 4}),
    ("SmolLM2, 1 text", "SmolLM2", "write_on", PROMPT),
    ("SmolLM2, 4 texts", "SmolLM2", "write_on", PROMPT | {"batch": 4}),
    ("OPUS-MT, 1 text", "OPUS-MT", "decode", SOURCE | {"batch": 1, "beams": 1}),
    ("OPUS-MT, beam 4", "OPUS-MT", "decode", SOURCE | {"batch": 1, "beams": 4}),
    ("OPUS-MT, 32 texts", "OPUS-MT", "decode", SOURCE | {"batch": 32, "beams": 1}),
]  # fmt: skip


def int8(rounds: int) -> dict[str, Any]:
    """Measure tokens a second of float32 and 8 bits, and memory over idle; all take turns."""
    result: dict[str, Any] = {}
    libraries = ["minigrad", "minigrad:int8", "torch", "ctranslate2", "ctranslate2:int8"]
    print(f"32 tokens{'':29}tokens/s  peak MB   time / minigrad's in float32")
    with tempfile.TemporaryDirectory() as root:
        for name, shape, task, config in GENERATED:
            path = Path(root) / shape
            if not path.exists():
                write_model(str(path), shape)
            workers = compare(libraries, task, {"path": str(path), **config}, rounds, 2)
            tokens = config["steps"] * config.get("batch", 1)
            result[name] = {
                w.library: {
                    "tokens_per_second": tokens / w.median,
                    "peak_mb": w.peak / 1e6,
                    "ratio": w.median / workers[0].median,
                }
                for w in workers
            }
            for library, f in result[name].items():
                label = (NAMES | {"torch": "transformers"})[library]
                print(
                    f"{name:19}{label:17}{f['tokens_per_second']:10.1f}{f['peak_mb']:9.0f}"
                    f"{f['ratio']:10.2f}",
                    flush=True,
                )
    return result


def drafts(rounds: int) -> dict[str, Any]:
    """Measure tokens a pass and tokens a second of drafts of 3 and 7 tokens, and without drafts."""
    result: dict[str, Any] = {}
    print(f"GPT-2{'':20}tokens a pass  tokens/s   time / time without drafts")
    with tempfile.TemporaryDirectory() as path:
        write_model(path, "GPT-2")
        for library in ("minigrad", "minigrad:int8"):
            for text in ("code", "guide", "edit"):
                workers = [
                    Worker(library, "rewrite", {"path": path, "text": text, "draft_len": n})
                    for n in (0, 3, 7)
                ]
                take_turns(workers, rounds, 1)
                for n, w in zip((0, 3, 7), workers):
                    tokens, passes = w.counts[-1]["tokens"], w.counts[-1]["passes"]
                    figures = {
                        "tokens_per_pass": tokens / passes,
                        "tokens_per_second": tokens / w.median,
                        "ratio": w.median / workers[0].median,
                    }
                    result[f"{library}, {text}, {n}"] = figures
                    print(
                        f"{NAMES[library]:15}{text:7}{n:3}"
                        + "".join(f"{figure:13.2f}" for figure in figures.values()),
                        flush=True,
                    )
    return result


PARTS_OF_A_STEP = [
    "linear", "row_norm", "attention", "linear_cross_entropy", "relu_dropout", "embedding",
    "kept memory", "processes",
]  # fmt: skip


def gains(rounds: int) -> dict[str, Any]:
    """Measure time and memory without one optimization, as multiples of those with all."""
    result: dict[str, Any] = {}
    print(
        "without                            ms  peak MB   time    memory, as multiples of with it"
    )
    for size in ("toy", "small"):
        _gains(result, "train", size, {"size": size}, PARTS_OF_A_STEP, rounds)
        _gains(
            result,
            "train",
            f"{size} with gelu",
            {"size": size, "activation": "gelu"},
            ["gelu"],
            rounds,
        )
    return result


def _gains(
    result: dict[str, Any],
    task: str,
    name: str,
    config: dict[str, Any],
    parts: list[str],
    rounds: int,
) -> None:
    """Run variants of a task in turns; compare lower quartiles, since differences are small."""
    changes = [
        {"processes": 1} if part == "processes" else {"without": part} for part in ["", *parts]
    ]
    workers = take_turns(
        [Worker("minigrad", task, config | change) for change in changes], rounds, 2
    )
    times = [float(np.quantile(worker.seconds, 0.25)) for worker in workers]
    for part, worker, seconds in zip(["(nothing)", *parts], workers, times):
        measured = {
            "ms": seconds * 1e3,
            "ratio": seconds / times[0],
            "memory_ratio": worker.peak / workers[0].peak,
        }
        result.setdefault(name, {})[part] = measured
        ratios = f"{measured['ratio']:7.2f}{measured['memory_ratio']:10.2f}"
        print(f"{name:26}{part:22}{seconds * 1e3:8.1f}{worker.peak / 1e6:8.0f}{ratios}", flush=True)


def ops(rounds: int) -> dict[str, Any]:
    result = {}
    print("op, 8 × 8 float64        minigrad    PyTorch    ratio")
    for name in OPS:
        ours, other = compare(
            ["minigrad", "torch"], "ops", {"name": name, "n": 200, "side": 8}, rounds, warmup=5
        )
        ratio = ours.median / other.median
        result[name] = {
            "us": ours.median / 200 * 1e6,
            "torch_us": other.median / 200 * 1e6,
            "ratio": ratio,
        }
        print(
            f"{name:20}{result[name]['us']:10.2f} µs{result[name]['torch_us']:8.2f} µs{ratio:8.2f}",
            flush=True,
        )
    mean = geometric_mean([r["ratio"] for r in result.values()])
    print(f"geometric mean of the ratios: {mean:.2f}")
    return {"ops": result, "mean_ratio": mean}


def scaling(rounds: int) -> dict[str, Any]:
    """Fit slopes of log time over log size, around the size small."""
    result: dict[str, Any] = {}
    print("growth of a training step: the exponent of its time")
    lines = {"batch": [16, 32, 64, 128], "length": [10, 20, 40, 80], "d_model": [128, 256, 512]}
    for what, values in lines.items():
        for library in ("minigrad", "torch"):
            times = []
            for value in values:
                changes = {what: value} | ({"d_ff": 4 * value} if what == "d_model" else {})
                (worker,) = compare(
                    [library], "train", {"size": "small", **changes}, min(rounds, 3)
                )
                times.append(worker.median)
            slope = float(np.polyfit(np.log(values), np.log(times), 1)[0])
            result.setdefault(what, {})[library] = {
                "values": values,
                "seconds": times,
                "slope": slope,
            }
            print(f"{what:10}{NAMES[library]:12}{slope:6.2f}", flush=True)
    return result


def imports(rounds: int) -> dict[str, Any]:
    result = {}
    for library in ("minigrad", "minigrad, nn", "torch", "jax", "autograd", "mygrad"):
        code = (
            f"import numpy, time; t = time.process_time(); import {library}; "
            "print(time.process_time() - t)"
        )
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", code]
        runs = [
            subprocess.run(command, capture_output=True, text=True, env=env)
            for _ in range(rounds + 1)
        ]
        if runs[0].returncode == 0:
            result[library] = 1e3 * median(float(run.stdout) for run in runs[1:])
            print(f"import {library:13}{result[library]:8.0f} ms beyond import numpy", flush=True)
    return result


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "train": train, "published": published, "decode": decode, "int8": int8, "drafts": drafts,
    "gains": gains, "ops": ops, "programs": lambda rounds: programs.programs(rounds, RIVALS),
    "scaling": scaling, "imports": imports, "mpi": ranks.mpi, "scale": ranks.scale,
}  # fmt: skip


def draw(results: dict[str, Any], path: Path) -> str:
    """Draw bars of times as multiples of minigrad's; return a list of what was drawn."""
    panels = [
        (f"training step, {size}", r["libraries"]) for size, r in results.get("train", {}).items()
    ]
    panels += [(f"decoding, {name}", r) for name, r in results.get("decode", {}).items()]
    if not panels:
        return ""
    with style():
        _bars(panels).savefig(path, dpi=120)
    return f", picture: {path}"


def _bars(panels: list[tuple[str, dict[str, Any]]]) -> Any:
    """Return a figure with a panel of bars for each title, minigrad's in colour."""
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 2.6 * rows), layout="constrained")
    for place, (title, measured) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        labels = [
            "Hugging Face" if n == "torch" and "decoding" in title else NAMES[n] for n in measured
        ]
        ratios = [1 / f.get("ratio", 1) for f in measured.values()]
        bars = axes.barh(
            labels, ratios, color=[COLOURS[0] if n == "minigrad" else "#b8b8b8" for n in measured]
        )
        # each pair was timed by itself, so ratios of milliseconds differ a little from the bars
        labels = [
            f"{ratio:.2f} × ({f['ms']:.0f} ms)" for ratio, f in zip(ratios, measured.values())
        ]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
        axes.set(
            title=title, xlabel="time, as a multiple of minigrad's", xlim=(0, 1.6 * max(ratios))
        )
        axes.axvline(1, color="black", linewidth=0.8)
        axes.invert_yaxis()
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["all", *PARTS], help="which benchmark")
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of each library (default: %(default)s)"
    )
    parser.add_argument(
        "--against",
        nargs="+",
        choices=RIVALS,
        default=RIVALS,
        help="rivals in training and in small programs (default: all)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/benchmarks"), help="(default: %(default)s)"
    )
    args = parser.parse_args()
    RIVALS[:] = args.against
    results: dict[str, Any] = {"machine": machine(), "rounds": args.rounds}
    print(results["machine"])
    for name in PARTS if args.what == "all" else [args.what]:
        results[name] = PARTS[name](args.rounds)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"figures: {args.out.with_suffix('.json')}{draw(results, args.out.with_suffix('.png'))}")
