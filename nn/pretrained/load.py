"""Loading: a folder with config.json and model.safetensors to a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.io.atomic import read_together
from minigrad.io.json import read_if_any, read_json
from minigrad.io.reading import FileCopies, listed
from minigrad.io.shards import SafetensorsFolder
from minigrad.runtime import in_parallel

from ..layers import init
from ..models.base import Model
from ..models.model_types import KINDS
from .families import FAMILIES, HEADS
from .generation_config import read_generation_config
from .save import Origin, new_origin
from .tables import Place, Rule, is_unused, named, new_name, places, read_table, rules_of, theirs_of

__all__ = ["load"]

HOW = (
    "expected a folder with config.json and model.safetensors, such as transformers' "
    "save_pretrained writes, or "
    "`hf download NAME --local-dir FOLDER`"
)


def load(
    directory: str | Path,
    head: str = "",
    *,
    num_classes: int | None = None,
    dtype: Any = "float32",
    generator: np.random.Generator | None = None,
) -> Any:
    """The model in a folder of files as Hugging Face's transformers writes them, in evaluation
    mode.

    It is a `LanguageModel`, a `Transformer`, or an encoder with the head that the folder has.
    `head` gives an encoder another one: "none", "mlm" (the words that were masked), "classes" of a
    text or "tokens" (classes of each token), these with `num_classes`; what the folder does not
    have of it is drawn from `generator`. Weights are read into `dtype`; those that are of it in the
    file are mapped, and take memory only once they are used: replace the file at will, but do not
    write into it. `model.origin` remembers what `nn.save` needs. Nothing is downloaded, and nothing
    is unpickled. A folder that does not fit is a ValueError that names the file.
    """
    try:
        dtype = np.dtype(dtype).name
    except TypeError:
        raise ValueError(
            f"load: dtype: expected float32, float64 or float16, got {dtype!r}"
        ) from None
    with read_together(directory, "config.json") as source:
        return _load(_Folder(source, head, num_classes), dtype, generator)


def _load(folder: _Folder, dtype: str, generator: np.random.Generator | None) -> Any:
    """Make the model of a folder that was read, and fill it with its weights."""
    kinds = [kind for kind, config in KINDS.values() if config is folder.family.kind]
    kind: Any = HEADS[folder.head] if folder.head else kinds[0]
    try:
        model = kind(replace(folder.config, dtype=dtype), init=False)
    except MemoryError as error:
        raise ValueError(
            f"{folder.settings.where}: there is no memory for its sizes: {error}"
        ) from None
    origin = folder.fill(model, generator)
    if not folder.native:
        origin = new_origin(folder.name, model, folder.head, folder.settings)
    if not folder.head:
        origin.generation = read_generation_config(
            folder.generation, folder.settings, model.config.vocabulary
        )
    if (path := Path(folder.generation.where)).is_file():
        origin.files = FileCopies(path.parent, [path.name])
    model.origin = origin
    return model.eval()


_TOLD = ("eos_id=eos_token_id", "bos_id=decoder_start_token_id")
"""What generation_config.json tells rather than config.json, if it does: of chats, more tokens that
end a text.
"""


class _Folder:
    """A folder of which all is read but the arrays; `native`: it has the `head` that is asked for.

    `body` and `top` are the rules for the arrays of the model below a head, and of the head.
    """

    def __init__(self, directory: Path, asked: str, num_classes: int | None) -> None:
        self.settings = read_json(directory / "config.json", HOW)
        self.generation = read_if_any(directory / "generation_config.json")
        self.name = self.settings.text("model_type", choices=sorted(FAMILIES))
        if self.settings.get("quantization_config") is not None:
            self.settings.fail(
                "quantization_config",
                "null (quantised weights are not supported; get the original)",
            )
        self.family, self.weights = FAMILIES[self.name], SafetensorsFolder(directory, HOW)
        self.head, self.native = self._heads(asked)
        config, prefix = self.family.config(self.settings, self.weights), self.family.prefix
        self.prefix = prefix if any(name.startswith(prefix) for name in self.weights) else ""
        self.body = rules_of(self.family.table(config), self.prefix)
        self.top = rules_of(self.family.heads.get(self.head, ""), self.prefix)
        self.output = next(
            (rule.theirs + ".weight" for rule in self.top if rule.ours == "output"), ""
        )
        if self.head in ("classes", "tokens"):
            config = self._with_classes(config, num_classes)
        elif num_classes is not None:
            raise ValueError(
                f"num_classes is for head='classes' or 'tokens', got head={self.head!r}"
            )
        elif not self.head:
            config = self._with_output(config)
            told = " ".join(
                word for word in _TOLD if self.generation.get(word.partition("=")[2]) is not None
            )
            with named(told, self.generation):
                config = replace(config, **read_table(type(config), told, self.generation))
        self.config = config

    def _heads(self, asked: str) -> tuple[str, bool]:
        """The head that is asked for, or the folder's, and whether it is that."""
        base, suffixes = self.family.base, self.family.suffixes
        if asked not in ("", *suffixes):
            choices = " or ".join(filter(None, suffixes)) or "nothing"
            raise ValueError(
                f"{self.settings.where}: head: expected {choices} for {base}, got {asked!r}"
            )
        heads = {base + suffix: head for head, suffix in suffixes.items()} | {
            "BertForPreTraining": "mlm"
        }
        known = [
            heads[name] for name in self.settings.list("architectures", str, []) if name in heads
        ]
        native = known[0] if known else next(iter(suffixes))
        return asked or native, asked in ("", native)

    def _with_classes(self, config: Any, asked: int | None) -> Any:
        """The configuration with as many classes as are asked for, or as the folder has."""
        entry = self.weights.get(self.output) if self.native else None
        found = entry.shape[0] if entry and entry.shape else None
        count, where = found if asked is None else asked, self.settings.where
        if count is None:
            raise ValueError(
                f"{where}: the folder has no such head; head={self.head!r}: expected num_classes"
            )
        self.native = count == found
        labels = self.settings.object("id2label", None) if self.native else None
        if labels and len(labels) != count:
            self.settings.fail("id2label", f"as many as the {count} classes of the weights")
        own = self.family.classes if self.head == "classes" else self.family.tokens or {}
        return replace(config, num_classes=count, **own)

    def _with_output(self, config: Any) -> Any:
        """The output projection as the file has it: tied or not, and without a bias of zeros, which
        only costs time.
        """
        tie, weights = config.tie, self.weights
        if self.output not in weights:
            tie = "all" if tie == "embeddings" else tie
        elif tie in (True, "all"):
            names = (rule.theirs + ".weight" for rule in self.body if rule.ours.endswith(".tokens"))
            tokens = next((name for name in names if name in weights), self.output)
            if not np.array_equal(weights.array(self.output), weights.array(tokens)):
                tie = {True: False, "all": "embeddings"}[tie]
        used = "final_logits_bias" in weights and bool(weights.array("final_logits_bias").any())
        return replace(config, tie=tie, output_bias=config.output_bias and used)

    def _rules(self) -> list[Rule]:
        """Those by which the arrays are read: of another head only those that are inside the model
        are used.
        """
        if self.native:
            return self.body + self.top
        inside = [
            rule for rule in self.top if rule.inside and not self._is_zero(f"{rule.theirs}.weight")
        ]
        others = rules_of("\n".join(self.family.heads.values()), self.prefix)
        return self.body + inside + [rule._replace(ours="-") for rule in others]

    def _is_zero(self, name: str) -> bool:
        """Whether the file has zeros for a map, as bare models' files may for one that they do not
        use.
        """
        return name in self.weights and not self.weights.array(name).any()

    def fill(self, model: Model, generator: np.random.Generator | None) -> Origin:
        """Read the weights into the model.

        An array that is missing, unknown or misshaped is a ValueError, before anything is read.
        Parameters of a new head begin by BERT's rule.
        """
        weights, rules, own = self.weights, self._rules(), dict(model.named_parameters())
        found = _found(model, rules, weights)
        used = {ours for place in found.values() for ours in place.ours}
        left = [name for name in own if name not in used]
        shapes = {
            name: place.shape([own[o].shape for o in place.ours]) for name, place in found.items()
        }
        kinds = {
            "missing": {new_name(n, rules)[0] for n in left if self.native or not any(theirs_of(n, self.top))},
            "unknown": [n for n in weights if n not in found and not is_unused(n, rules)],
            "misshaped": [f"{name} (expected {shape}, got {weights[name].shape})"
                          for name, shape in shapes.items() if weights[name].shape != shape],
        }  # fmt: skip
        if any(kinds.values()):
            text = "; ".join(f"{kind}: {listed(wrong)}" for kind, wrong in kinds.items() if wrong)
            raise ValueError(f"{weights.where}: the weights do not fit config.json: {text}")
        for name in left:
            mean, std = float(name.endswith("norm.weight")), 0.02 if own[name].ndim > 1 else 0.0
            init.normal_(own[name], mean, std, generator)
        largest = sorted(
            found, key=lambda name: weights[name].start - weights[name].end
        )  # first, for even shares
        dtype = np.dtype(model.config.dtype)
        arrays = dict(
            zip(largest, in_parallel(lambda name: weights.checked(name, dtype), largest))
        )  # by all cores
        for name, place in found.items():
            for ours, part in zip(
                place.ours, place.split(arrays[name], [own[o].shape for o in place.ours])
            ):
                if ours in used:
                    used.remove(ours)
                    own[ours].replace(part)
                    own[ours].requires_grad = place.mark != "buffer"
                elif not np.array_equal(part, own[ours].data):
                    raise ValueError(
                        f"{weights.where}: {name} differs from the array that config.json ties it "
                        "to"
                    )
        kept = {name: weights.array(name) for name in weights if name not in found}
        return Origin(self.name, dict(self.settings), self.head, found, kept)


def _found(model: Model, rules: list[Rule], weights: SafetensorsFolder) -> dict[str, Place]:
    """The arrays of the file that the model has, by any of their names: one that is tied has
    several.
    """
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    return places(
        (first[id(value)], theirs, mark)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if id(value) in first
        for theirs, mark in theirs_of(f"{path}.{name}", rules)
        if theirs in weights
    )
