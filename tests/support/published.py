"""Tiny random models of every family and head, made by transformers."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.environment import needs
from support.published_settings import MODELS, draw_target, inputs_of

import nn

torch: Any = needs("torch")
transformers: Any = needs("transformers")


def make(name: str, directory: Path | None = None, **changes: Any) -> Any:
    """Return a model of transformers with random parameters; save it if a directory is given."""
    model_class, settings = MODELS[name]
    model_class = getattr(transformers, model_class)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**{**settings, **changes})).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                is_matrix = p.ndim > 1
                mean = 0.0 if is_matrix or p.abs().max() == 0 else 1.0  # a norm's weight is about 1
                p.copy_(mean + (0.3 if is_matrix else 0.1) * torch.randn_like(p))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    if directory is not None:
        model.save_pretrained(directory)
    return model


def load_theirs(model_class: Any, directory: Path) -> Any:
    """Load a directory with transformers, and check that no weight is missing or unexpected."""
    options = {"output_loading_info": True, "dtype": torch.float32}
    model, report = model_class.from_pretrained(directory, **options)
    assert not any(report.values()), report
    return model.eval()


def write_settings(directory: Path, settings: dict[str, Any]) -> None:
    """Write config.json."""
    (directory / "config.json").write_text(json.dumps(settings))


def read_settings(directory: Path) -> dict[str, Any]:
    """Read config.json."""
    return json.loads((directory / "config.json").read_text())


def settings_of(model_or_config: Any) -> dict[str, Any]:
    """Return all settings of a configuration of transformers, defaults among them."""
    return json.loads(model_or_config.to_json_string(use_diff=False))


def draw_batch(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of a model of transformers, and their padding mask."""
    return inputs_of(model.config.model_type, getattr(model.config, "pad_token_id", 0) or 0)


def outputs(theirs: Any, ours: Any) -> tuple[Any, Any, np.ndarray]:
    """Return the results of both models on a padded batch, and a mask of the rows to compare.

    The results are logits, or hidden states if the model of transformers has no head.
    """
    x, mask = draw_batch(theirs)
    if theirs.config.model_type == "vit":
        output, arguments = theirs(pixel_values=torch.tensor(x, dtype=theirs.dtype)), (x,)
    else:
        inputs = {"input_ids": torch.tensor(x), "attention_mask": torch.tensor(mask).long()}
        if isinstance(ours, nn.Transformer):
            target = draw_target()
            logits = theirs(**inputs, decoder_input_ids=torch.tensor(target)).logits
            return logits, ours(x, target, mask), np.ones(target.shape, bool)
        output, arguments = theirs(**inputs), (x, mask)
    if "last_hidden_state" in output:
        return output.last_hidden_state, ours.hidden(*arguments), mask
    logits = output.prediction_logits if "prediction_logits" in output else output.logits
    return logits, ours(*arguments), mask if logits.ndim == 3 else np.ones(3, bool)


def assert_same_outputs(theirs: Any, ours: Any, message: str = "") -> None:
    """Compare the outputs of both models on a padded batch, except for padding.

    In float64, since large random weights amplify rounding, which depends on the processor.
    """
    expected, found, is_real = outputs(copy.deepcopy(theirs).double(), copy.deepcopy(ours).double())
    expected = expected.detach().numpy()[is_real]
    np.testing.assert_allclose(found.data[is_real], expected, 1e-5, 2e-5, err_msg=message)


def until_end(tokens: list[int], ends: int | Sequence[int] | None) -> list[int]:
    """Return the tokens up to the first of `ends`, which is included."""
    ends = [ends] if isinstance(ends, int) else ends or ()
    last = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[: last + 1]


def name_in_file(model: Any, name: str) -> str:
    """Return the name in a file of a parameter of transformers, which renames some when loading."""
    if model.config.model_type == "gpt_neox":
        return name.replace("lm_head.", "embed_out.")
    if model.config.model_type == "vit":
        for in_memory, in_file in (
            ("attention.o_proj", "attention.output.dense"),
            ("attention.q_proj", "attention.attention.query"),
            ("attention.k_proj", "attention.attention.key"),
            ("attention.v_proj", "attention.attention.value"),
            ("mlp.fc1", "intermediate.dense"),
            ("mlp.fc2", "output.dense"),
        ):
            name = name.replace(in_memory, in_file)
        return name if "encoder.layer." in name else name.replace("layers.", "encoder.layer.")
    return name
