"""What some choices gain on Multi30k's validation pairs, and cost: a run goes on under each of them.

    OPENBLAS_NUM_THREADS=1 python benchmarks/choices.py --data DIR --run RUN_DIR --updates 300 --out choices.jsonl

RUN_DIR is one of `examples/multi30k.py`; it stays as it is. Each choice begins with its last weights and optimizer
state, and has as many updates; the last ten sets of weights are averaged. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import minigrad as mg
from minigrad.optim import Adam, inverse_sqrt_schedule
from nn import ModelLoss, MovingAverage, RDrop, RunDirectory, Trainer, Translator, average_weights
from nn.text import translation_scores

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import multi30k

CHOICES = {
    "as before": [],
    "BPE dropout": ["--bpe-dropout", "0.1"],
    "R-Drop": ["--r-drop", "5"],
}
DECAYS = (0.98, 0.99)
KEPT = 10


class Beside:
    """Moving averages that are taken, but not put into the model, so that the run stays as it is."""

    def __init__(self, model: Any, step: int) -> None:
        self.averages = {decay: MovingAverage(model, decay) for decay in DECAYS}
        for average in self.averages.values():
            average.updates = step  # as if they had been there from the first

    def update(self, model: Any) -> None:
        for average in self.averages.values():
            average.update(model)

    def applied(self, model: Any) -> Any:
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        return {}


def scores(translator: Translator, weights: Any, valid: list[Any], beam: int) -> dict[str, Any]:
    """BLEU and chrF of the translations of the validation sources by a model with these weights."""
    translator.model.load_state_dict(weights)
    texts = [found.text for found in translator.translate([source for source, _ in valid], beam)]
    found = translation_scores(texts, [target for _, target in valid], tokenize="none", lowercase=True)
    return {"beam": beam, "bleu": round(found.bleu, 2), "chrf": round(found.chrf, 2)}


def go_on(args: argparse.Namespace, run: RunDirectory, updates: int) -> dict[str, Any]:
    """Take the updates under the choices of `args`; what they cost, and how the weights translate."""
    mg.manual_seed(args.seed)
    pairs, valid = multi30k.pairs_of(args, "train"), multi30k.pairs_of(args, "val")
    translator = multi30k.untrained(args, pairs)
    model = translator.model
    parts, state = run.load_state()
    model.load_state_dict(parts["model"])
    optimizer = Adam(model.parameters(), args.lr, betas=(0.9, 0.98), eps=1e-8, clip_norm=args.clip)
    optimizer.load_state_dict({"groups": state["optimizer"], "arrays": parts["optimizer"]})
    batches, held = multi30k.batches_of(args, translator, pairs, valid)
    objective = RDrop(label_smoothing=0.1, alpha=args.r_drop) if args.r_drop else ModelLoss(label_smoothing=0.1)
    factor, before = inverse_sqrt_schedule(args.warmup), state["step"]
    beside = Beside(model, before)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            model, optimizer, batches, objective=objective, valid=held, schedule=lambda step: factor(before + step),
            max_steps=updates, validate_every=updates // KEPT, keep_last=KEPT, log_every=10, run_dir=directory,
            average=beside, progress=False,
        )  # fmt: skip
        began = time.process_time()
        history = trainer.fit()
        seconds = time.process_time() - began
        weights = {
            "last": {name: array.copy() for name, array in model.state_dict().items()},
            f"mean of {KEPT}": average_weights(trainer.run.kept()),
        }
    weights |= {f"moving average, {decay}": average.average for decay, average in beside.averages.items()}
    found = {name: [scores(translator, w, valid, beam) for beam in (1, 5)] for name, w in weights.items()}
    return {"seconds": round(seconds / updates, 2), "valid_loss": history[-1]["valid_loss"], "scores": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="as for examples/multi30k.py")
    parser.add_argument("--run", type=Path, required=True, help="the run directory to go on from")
    parser.add_argument("--updates", type=int, default=300, help=f"under each choice, a multiple of {KEPT}")
    parser.add_argument("--only", choices=CHOICES, nargs="+", default=list(CHOICES), help="these choices")
    parser.add_argument("--out", type=Path, required=True, help="a line of JSON for each choice")
    own = parser.parse_args()
    for name in own.only:
        args = multi30k.parse(["--data", own.data, *CHOICES[name]])
        entry = {"choice": name, "updates": own.updates, **go_on(args, RunDirectory(own.run), own.updates)}
        print(json.dumps(entry), flush=True)
        with own.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
