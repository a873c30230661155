"""Numbers, flags and strings that are defaults in PyTorch, of names that `minigrad.torch` has, too."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

PLACES = ["", "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "utils.data"]  # fmt: skip

UNLIKE = {"norm": ["p"]}
"""Parameters whose defaults have other types with the same meaning."""


def both(package: str) -> Iterator[tuple[str, Any]]:
    """Yield the callables of a package with the modules of PyTorch, and their methods `forward`."""
    for place in PLACES:
        known = dir(importlib.import_module(f"minigrad.torch.{place}".rstrip(".")))
        module = importlib.import_module(f"{package}.{place}".rstrip("."))
        for name in known:
            value = getattr(module, name, None)
            if callable(value) and name[0] != "_":
                label = f"{place}.{name}".lstrip(".")
                yield label, value
                if inspect.isclass(value) and "forward" in vars(value):
                    yield f"{label}.forward", value.forward


def defaults(package: str) -> dict[str, dict[str, Any]]:
    """Return the defaults of a package that are numbers, flags or strings, by name and parameter."""
    found = {}
    for name, function in both(package):
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # a function in C
            continue
        found[name] = {
            p.name: p.default
            for p in parameters
            if isinstance(p.default, (bool, int, float, str, tuple))
            and p.name not in UNLIKE.get(name, ())
        }
    return found


DEFAULTS: dict[str, dict[str, Any]] = {
    "autocast": {"enabled": True},
    "nn.BCELoss": {"reduction": "mean"},
    "nn.BCEWithLogitsLoss": {"reduction": "mean"},
    "nn.CrossEntropyLoss": {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
    "nn.Dropout": {"p": 0.5, "inplace": False},
    "nn.ELU": {"alpha": 1.0, "inplace": False},
    "nn.Flatten": {"start_dim": 1, "end_dim": -1},
    "nn.GELU": {"approximate": "none"},
    "nn.HuberLoss": {"reduction": "mean", "delta": 1.0},
    "nn.KLDivLoss": {"reduction": "mean", "log_target": False},
    "nn.L1Loss": {"reduction": "mean"},
    "nn.LayerNorm": {"eps": 1e-05, "elementwise_affine": True, "bias": True},
    "nn.LeakyReLU": {"negative_slope": 0.01, "inplace": False},
    "nn.Linear": {"bias": True},
    "nn.MSELoss": {"reduction": "mean"},
    "nn.MultiheadAttention": {"dropout": 0.0, "bias": True, "batch_first": False},
    "nn.MultiheadAttention.forward": {"need_weights": True, "average_attn_weights": True, "is_causal": False},
    "nn.NLLLoss": {"ignore_index": -100, "reduction": "mean"},
    "nn.Parameter": {"requires_grad": True},
    "nn.RMSNorm": {"elementwise_affine": True},
    "nn.ReLU": {"inplace": False},
    "nn.SiLU": {"inplace": False},
    "nn.SmoothL1Loss": {"reduction": "mean", "beta": 1.0},
    "nn.Softplus": {"beta": 1.0},
    "nn.Transformer": {"d_model": 512, "nhead": 8, "num_encoder_layers": 6, "num_decoder_layers": 6},
    "nn.TransformerDecoderLayer": {"dim_feedforward": 2048, "dropout": 0.1, "layer_norm_eps": 1e-05, "batch_first": False, "norm_first": False, "bias": True},
    "nn.TransformerDecoderLayer.forward": {"tgt_is_causal": False, "memory_is_causal": False},
    "nn.TransformerEncoder": {"enable_nested_tensor": True, "mask_check": True},
    "nn.TransformerEncoderLayer": {"dim_feedforward": 2048, "dropout": 0.1, "layer_norm_eps": 1e-05, "batch_first": False, "norm_first": False, "bias": True},
    "nn.TransformerEncoderLayer.forward": {"is_causal": False},
    "nn.functional.binary_cross_entropy": {"reduction": "mean"},
    "nn.functional.binary_cross_entropy_with_logits": {"reduction": "mean"},
    "nn.functional.cross_entropy": {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
    "nn.functional.dropout": {"p": 0.5, "training": True},
    "nn.functional.elu": {"alpha": 1.0},
    "nn.functional.huber_loss": {"reduction": "mean", "delta": 1.0},
    "nn.functional.kl_div": {"reduction": "mean", "log_target": False},
    "nn.functional.l1_loss": {"reduction": "mean"},
    "nn.functional.layer_norm": {"eps": 1e-05},
    "nn.functional.leaky_relu": {"negative_slope": 0.01},
    "nn.functional.mse_loss": {"reduction": "mean"},
    "nn.functional.nll_loss": {"ignore_index": -100, "reduction": "mean"},
    "nn.functional.normalize": {"p": 2.0, "dim": 1, "eps": 1e-12},
    "nn.functional.smooth_l1_loss": {"reduction": "mean", "beta": 1.0},
    "nn.init.kaiming_normal_": {"a": 0, "mode": "fan_in", "nonlinearity": "leaky_relu"},
    "nn.init.kaiming_uniform_": {"a": 0, "mode": "fan_in", "nonlinearity": "leaky_relu"},
    "nn.init.normal_": {"mean": 0.0, "std": 1.0},
    "nn.init.orthogonal_": {"gain": 1},
    "nn.init.trunc_normal_": {"mean": 0.0, "std": 1.0, "a": -2.0, "b": 2.0},
    "nn.init.uniform_": {"a": 0.0, "b": 1.0},
    "nn.init.xavier_normal_": {"gain": 1.0},
    "nn.init.xavier_uniform_": {"gain": 1.0},
    "norm": {"keepdim": False},
    "optim.Adam": {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0},
    "optim.AdamW": {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-08, "weight_decay": 0.01},
    "optim.SGD": {"lr": 0.001, "momentum": 0, "weight_decay": 0},
    "optim.lr_scheduler.CosineAnnealingLR": {"eta_min": 0.0},
    "optim.lr_scheduler.LinearLR": {"start_factor": 0.3333333333333333, "end_factor": 1.0, "total_iters": 5},
    "optim.lr_scheduler.MultiStepLR": {"gamma": 0.1},
    "optim.lr_scheduler.OneCycleLR": {"pct_start": 0.3, "anneal_strategy": "cos", "cycle_momentum": True, "base_momentum": 0.85, "max_momentum": 0.95, "div_factor": 25.0, "final_div_factor": 10000.0, "three_phase": False},
    "optim.lr_scheduler.ReduceLROnPlateau": {"mode": "min", "factor": 0.1, "patience": 10, "threshold": 0.0001, "threshold_mode": "rel", "cooldown": 0, "min_lr": 0, "eps": 1e-08},
    "optim.lr_scheduler.StepLR": {"gamma": 0.1},
    "split": {"dim": 0},
    "utils.data.DataLoader": {"batch_size": 1, "num_workers": 0, "pin_memory": False, "drop_last": False},
}  # fmt: skip
