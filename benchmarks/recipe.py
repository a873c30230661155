"""Multi30k recipe in minigrad and in PyTorch, update by update: same weights, batches, threads.

    OPENBLAS_NUM_THREADS=1 python benchmarks/recipe.py --data DIR --updates 500 --out curve.jsonl

Dropout masks differ, so the two loss curves lie on each other but are not equal. With `--dropout 0`
they are equal, except for rounding. Seconds are of the processor, so that a busy machine changes
them little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minigrad as mg
import nn
from minigrad.optim import Adam, Schedule, inverse_sqrt_schedule

Array = np.ndarray
Step = Callable[[Array, Array], float]


class TorchTransformer(torch.nn.Module):
    """Post-norm `nn.Transformer` with one table and no output bias, in PyTorch's layers."""

    def __init__(self, ours: nn.Transformer) -> None:
        super().__init__()
        c = ours.config
        if c.tie != "all" or c.norm_first or c.output_bias:
            raise ValueError(
                "TorchTransformer: expected tie='all', norm_first=False, output_bias=False"
            )
        options = {"dim_feedforward": c.d_ff, "dropout": c.dropout, "batch_first": True}
        kinds = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
        counts = (c.num_encoder_layers, c.num_decoder_layers)
        self.table = torch.nn.Embedding(c.target_vocab_size, c.d_model, padding_idx=0)
        self.encoder, self.decoder = (
            torch.nn.ModuleList(kind(c.d_model, c.num_heads, **options) for _ in range(n))
            for kind, n in zip(kinds, counts)
        )
        for layer in (*self.encoder, *self.decoder):  # dropout after sublayers alone, as published
            layer.dropout.p = 0.0
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.dropout = torch.nn.Dropout(c.dropout)
        self.to(getattr(torch, c.dtype))
        table = nn.sinusoidal_table(c.max_len, c.d_model).astype(c.dtype)
        self.register_buffer("positions", torch.tensor(table))
        self.scale = c.d_model**0.5
        self._load(ours)

    @torch.no_grad()
    def _load(self, ours: nn.Transformer) -> None:
        state = ours.state_dict()
        self.table.weight.copy_(torch.tensor(ours.target_embedding.tokens.weight.data))
        for name, p in self.named_parameters():
            if name == "table.weight":
                continue
            name = (
                name.replace("coder.", "coder.layers.", 1)
                .replace("self_attn", "self_attention")
                .replace("multihead_attn", "cross_attention")
            )
            name = name.replace(".linear", ".feed_forward.linear")
            stem, _, kind = name.partition(".in_proj_")
            parts = [f"{stem}.{x}_proj.{kind}" for x in "qkv"] if kind else [name]
            p.copy_(torch.tensor(np.concatenate([state[part] for part in parts])))

    def forward(self, source: Any, target: Any) -> Any:
        """Return logits (N, L_t, vocab)."""
        embed = lambda ids: self.dropout(
            self.table(ids) * self.scale + self.positions[: ids.shape[1]]
        )
        padding, x, y = source == 0, embed(source), embed(target)
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=padding)
        causal = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        for layer in self.decoder:
            y = layer(y, x, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding)
        return y @ self.table.weight.T


def our_step(model: nn.Transformer, lr: float, warmup: int, smoothing: float = 0.1) -> Step:
    """Return an update of the recipe in minigrad, which returns the loss."""
    optimizer = Adam(model.parameters(), lr, betas=(0.9, 0.98), eps=1e-8, clip_norm=1.0)
    schedule = Schedule(optimizer, inverse_sqrt_schedule(warmup))

    def step(source: Array, target: Array) -> float:
        optimizer.zero_grad()
        loss = model.loss(source, target, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    return step


def torch_step(model: TorchTransformer, lr: float, warmup: int, smoothing: float = 0.1) -> Step:
    """Return the same update in PyTorch."""
    optimizer = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98), eps=1e-8, fused=True)
    factor = lambda i: min((i + 1) / warmup, (warmup / (i + 1)) ** 0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    entropy = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=smoothing)

    def step(source: Array, target: Array) -> float:
        optimizer.zero_grad()
        logits = model(torch.tensor(source), torch.tensor(target[:, :-1]))
        loss = entropy(
            logits.reshape(-1, logits.shape[-1]), torch.tensor(target[:, 1:].reshape(-1))
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss.item()

    return step


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="as for examples/multi30k.py")
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    parser.add_argument("--out", type=Path, help="a line of JSON for every ten updates")
    return parser.parse_args()


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    import multi30k

    own = parse()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    pairs = multi30k.read(own.data, "train")
    mg.manual_seed(1)
    translator = multi30k.make_translator(pairs, dropout=own.dropout)
    torch_model = TorchTransformer(translator.model)
    batches = multi30k.make_batches(translator, pairs, shuffle=True, max_tokens=own.batch_tokens)
    steps = {
        "minigrad": our_step(translator.model.train(), multi30k.LR, multi30k.WARMUP),
        "torch": torch_step(torch_model.train(), multi30k.LR, multi30k.WARMUP),
    }
    compare(
        steps,
        itertools.chain.from_iterable(map(batches.epoch, itertools.count())),
        own.updates,
        own.out,
    )


def compare(steps: dict[str, Step], batches: Any, updates: int, out: Path | None) -> None:
    """Take the updates in turn; every ten, print the mean losses and the seconds so far."""
    seconds = dict.fromkeys(steps, 0.0)
    sums = dict.fromkeys(steps, 0.0)
    for i, batch in enumerate(itertools.islice(batches, updates), 1):
        for name, step in steps.items():
            began = time.process_time()
            sums[name] += step(*batch) / 10
            seconds[name] += time.process_time() - began
        if i % 10 == 0:
            entry = {
                "update": i,
                "loss": sums,
                "seconds": {k: round(v, 2) for k, v in seconds.items()},
            }
            print(json.dumps(entry), flush=True)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            sums = dict.fromkeys(steps, 0.0)


if __name__ == "__main__":
    main()
