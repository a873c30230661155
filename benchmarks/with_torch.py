"""Tasks in PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import follow
from programs import Functions, task
from sizes import CLIP, LR, SIZES, SMOOTHING, Size, prompt_of, sentences
from small_ops import chain

VERSION = torch.__version__
torch.set_num_threads(2)


def ops(name: str, n: int, side: int) -> Callable[[], None]:
    """Return a chain of `n` small ops, forward and backward."""
    variable = lambda array: torch.tensor(array, requires_grad=True)
    centre = lambda h: h - h.mean(-1, keepdim=True)
    return chain(name, n, side, torch, variable, torch.tensor, lambda h: h.flip(0), centre)


class Translator(torch.nn.Module):
    """Embeddings, sinusoidal positions, torch.nn.Transformer, projection."""

    def __init__(self, s: Size) -> None:
        super().__init__()
        d = s.d_model
        self.source, self.target = (torch.nn.Embedding(s.vocab, d, padding_idx=0) for _ in range(2))
        place, k = torch.arange(s.length)[:, None], torch.arange(d // 2) * 2 / d
        angles = place / 10000**k
        self.register_buffer(
            "positions", torch.stack([angles.sin(), angles.cos()], -1).reshape(s.length, d)
        )
        self.dropout = torch.nn.Dropout(s.dropout)
        self.transformer = torch.nn.Transformer(
            d, s.num_heads, s.layers, s.layers, s.d_ff, s.dropout, batch_first=True
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = (
            None  # post-norm, as the paper
        )
        self.output = torch.nn.Linear(d, s.vocab)
        self.register_buffer(
            "causal", torch.nn.Transformer.generate_square_subsequent_mask(s.length)
        )
        self.scale = d**0.5

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        padding = torch.zeros(source.shape, dtype=torch.float32).masked_fill(
            source == 0, float("-inf")
        )
        x = self.dropout(self.source(source) * self.scale + self.positions)
        y = self.dropout(self.target(target) * self.scale + self.positions)
        h = self.transformer(
            x,
            y,
            tgt_mask=self.causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.output(h)


def _step(
    s: Size,
    model: torch.nn.Module,
    source: torch.Tensor,
    target: torch.Tensor,
    forward: Callable[..., torch.Tensor] | None = None,
) -> Callable[[], None]:
    """Return a step: forward with dropout, smoothed loss, backward, clipping, fused Adam."""
    adam = torch.optim.Adam(model.parameters(), LR, fused=True)
    forward = model if forward is None else forward  # a compiled model has no truth value

    def step() -> None:
        adam.zero_grad()
        logits = forward(source, target[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, s.vocab), target[:, 1:].reshape(-1), label_smoothing=SMOOTHING
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()

    return step


def train(size: str, compiled: bool = False, **changes: Any) -> Callable[[], None]:
    """Return a training step in one process with two threads."""
    s = SIZES[size]._replace(**changes)
    torch.manual_seed(0)
    model = Translator(s)
    source, target = map(torch.tensor, s.data())
    return _step(s, model, source, target, forward=torch.compile(model) if compiled else None)


def train_compiled(size: str, **changes: Any) -> Callable[[], None]:
    """Return the same step, compiled by torch.compile."""
    return train(size, compiled=True, **changes)


def train_processes(size: str, **changes: Any) -> Callable[[], None]:
    """Return a step of two processes with one thread each: DistributedDataParallel over gloo."""
    import torch.multiprocessing as multiprocessing

    s = SIZES[size]._replace(**changes)
    store = tempfile.TemporaryDirectory()
    own, other = multiprocessing.get_context("spawn").Pipe()
    peer = multiprocessing.get_context("spawn").Process(
        target=_follow, args=(other, store.name, s), daemon=True
    )
    peer.start()
    own_part = _part(store.name, s, 0)

    def step() -> None:
        own.send(None)
        own_part()
        own.recv()

    step.store = store  # type: ignore[attr-defined]  # lives as long as the task
    return step


def _part(store: str, s: Size, rank: int) -> Callable[[], None]:
    """Return the step of one of two processes, with every second row of the batch."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}/store", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    source, target = (torch.tensor(ids[rank::2]) for ids in s.data())
    model = torch.nn.parallel.DistributedDataParallel(Translator(s), gradient_as_bucket_view=True)
    return _step(s, model, source, target)


def _follow(pipe: Any, store: str, s: Size) -> None:
    follow(pipe, _part(store, s, 1))


PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "OPUS-MT": ("MarianMTModel", "MarianConfig", {
        "vocab_size": 58101, "d_model": 512, "encoder_layers": 6, "decoder_layers": 6,
        "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048, "activation_function": "swish", "max_position_embeddings": 512,
        "pad_token_id": 58100, "decoder_start_token_id": 58100, "eos_token_id": 0,
        "forced_eos_token_id": None, "scale_embedding": True,
    }),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "SmolLM2": ("LlamaForCausalLM", "LlamaConfig", {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
        "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
    }),
    "MiniLM": ("BertModel", "BertConfig", {
        "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
        "intermediate_size": 1536,
    }),
}  # fmt: skip
"""Published models by their shapes: class, configuration, and what differs from its defaults."""


def published(path: str, shape: str) -> dict[str, int]:
    """Write a model of a published shape with random weights; return its number of parameters."""
    import transformers

    torch.manual_seed(0)
    kind, config, settings = PUBLISHED[shape]
    model = getattr(transformers, kind)(getattr(transformers, config)(**settings))
    model.save_pretrained(path)
    return {"parameters": model.num_parameters()}


def write_on(path: str, context: int, steps: int, batch: int = 1) -> Callable[[], Any]:
    """Return a call that generates exactly `steps` tokens greedily, with the cache."""
    model = loaded("AutoModelForCausalLM", path)
    prompt = torch.tensor([prompt_of(context)] * batch)
    options = {"max_new_tokens": steps, "min_new_tokens": steps, "do_sample": False}

    def step() -> Any:
        with torch.inference_mode():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)

    return step


def encode(path: str, batch: int, length: int) -> Callable[[], Any]:
    """Return a call that computes the hidden states of a batch of sentences."""
    model, (ids, _) = loaded("AutoModel", path), map(torch.tensor, sentences(batch, length))

    def step() -> Any:
        with torch.inference_mode():
            return model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state

    return step


def fine_tune(path: str, batch: int, length: int) -> Callable[[], None]:
    """Return a step of fine-tuning an encoder to two classes: dropout, clipping, fused AdamW."""
    model, (ids, classes) = (
        loaded("AutoModelForSequenceClassification", path),
        map(torch.tensor, sentences(batch, length)),
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(ids, attention_mask=torch.ones_like(ids), labels=classes).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return step


def load(path: str) -> Callable[[], Any]:
    """Return a call that loads a model from its directory."""
    return lambda: loaded("AutoModelForCausalLM", path)


def loaded(kind: str, path: str) -> Any:
    """Load a model from its directory, in float32, and print nothing."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return getattr(transformers, kind).from_pretrained(path, dtype=torch.float32).eval()


def decode(path: str, batch: int, beams: int, length: int, steps: int) -> Callable[[], Any]:
    """Return a call of `generate` for exactly `steps` tokens of `batch` sources."""
    model = loaded("MarianMTModel", path)
    source = torch.tensor(np.random.default_rng(0).integers(1, 1000, (batch, length)))
    options = {
        "num_beams": beams,
        "max_new_tokens": steps,
        "min_new_tokens": steps,
        "do_sample": False,
    }

    def step() -> Any:
        with torch.inference_mode():
            return model.generate(source, attention_mask=torch.ones_like(source), **options)

    return step


def program(name: str, size: int) -> Callable[[], None]:
    """Return value and gradient of one of the small programs, in float64, on one thread."""
    torch.set_num_threads(1)
    xp = Functions(
        torch,
        torch.special,
        writes=True,
        rereads=False,
        constant=torch.as_tensor,
        copied=torch.tensor,
        zeros=lambda shape: torch.zeros(shape, dtype=torch.float64),
        cho_solve=lambda factor, b: torch.cholesky_solve(b[:, None], factor)[:, 0],
    )

    def derive(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def derived(x: Any) -> Any:
            leaf = torch.tensor(x, requires_grad=True)
            value = f(leaf)
            value.backward()
            return value.item(), leaf.grad

        return derived

    return task(xp, name, size, derive)
