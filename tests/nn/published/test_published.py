"""Directories of published models, without other libraries: loading, saving and errors."""

from __future__ import annotations

import json
import re
import runpy
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.environment import max_examples
from support.properties import perturb, seeds
from support.published_settings import MODELS

import minigrad as mg
import nn
from minigrad.io.json import Settings
from minigrad.io.safetensors import SafetensorsFile, SafetensorsFolder, write_safetensors
from nn import init
from nn.options.config import extended
from nn.published import llama
from nn.published.load import FAMILIES, _Directory, read_config
from nn.published.save import origin_of_trained
from nn.published.weights import MAY_DIFFER

LM = (30, 16, 4, 2, 32)  # sizes of all models: vocabulary, width, heads, layers, inner width
GPT2 = nn.DecoderOnlyConfig(*LM, max_len=20, bos_id=1, eos_id=2)
LLAMA = nn.DecoderOnlyConfig(
    *LM, max_len=20, norm="rms", norm_eps=1e-6, gated=True, activation="silu", bias=False, positions="rotary",
    attention=nn.AttentionConfig(num_kv_heads=2), tie=False,
)  # fmt: skip
MARIAN = nn.EncoderDecoderConfig(30, *LM[:4], 2, 32, tie="all", max_len=20, positions="sinusoidal_halves")  # fmt: skip


def bert(**changes: Any) -> nn.EncoderConfig:
    """Return the configuration of a BERT, with some options changed."""
    options = {"num_types": 2, "positions": "learned", "activation": "gelu", "norm_eps": 1e-12}
    embeddings = nn.EmbeddingConfig(scale=False, norm=True)
    return nn.EncoderConfig(*LM, **{**options, "embeddings": embeddings, "max_len": 20, **changes})


CLASSES = bert(num_classes=3, pool="first", head_activation="tanh")
MADE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: nn.LanguageModel(GPT2),
    "llama": lambda: nn.LanguageModel(LLAMA),
    "marian": lambda: nn.Transformer(MARIAN),
    "bert": lambda: nn.EncoderModel(bert()),
    "bert, masked": lambda: nn.MaskedLanguageModel(bert()),
    "bert, classes": lambda: nn.EncoderClassifier(CLASSES),
    "bert, tokens": lambda: nn.TokenClassifier(bert(num_classes=3)),
}


SCALES = [nn.EmbeddingConfig(scale=scale) for scale in (False, True)]


def result(model: Any) -> np.ndarray:
    """Return the output of a model for two sequences of four tokens."""
    ids = np.array([[3, 4, 5, 9], [7, 8, 6, 11]])
    return model(ids, ids).data if isinstance(model, nn.Transformer) else model(ids).data


def folder(path: Path, name: str = "gpt2", **changes: Any) -> Path:
    """Save a model, with changes to its config.json."""
    nn.save(path, MADE[name]().eval())
    change_settings(path, **changes)
    return path


def change_settings(path: Path, **changes: Any) -> None:
    """Change entries of a directory's config.json."""
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | changes))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """Read the weights of a directory."""
    file = SafetensorsFile(path / "model.safetensors")
    return {name: file.read(name) for name in file}


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    write_safetensors(path / "model.safetensors", arrays, {"format": "pt"})


def check_saved_again(path: Path, model: Any, *names: str) -> None:
    """Assert that a loaded model is saved with the same bytes."""
    nn.save(path / "again", model)
    for name in (*names, "model.safetensors"):
        assert (path / "again" / name).read_bytes() == (path / name).read_bytes()


@pytest.mark.parametrize("name", MADE)
@max_examples(3)
@given(st.data())
def test_save_then_load_computes_the_same(name: str, data: st.DataObject) -> None:
    """Draw the sizes of a model, its weights, and settings that its family can have."""
    draw = lambda *choices: data.draw(st.sampled_from(choices))
    heads = draw(1, 2, 4)
    sizes: dict[str, Any] = {
        "d_model": 4 * heads, "num_heads": heads, "d_ff": draw(1, 8), "max_len": draw(4, 9),
        "dropout": draw(0.0, 0.1),
    }  # fmt: skip
    if name != "bert, classes":
        sizes["activation"] = draw("gelu", "gelu_tanh", "relu", "silu", "tanh")
    if name == "marian":
        sizes |= {"num_encoder_layers": draw(1, 2), "num_decoder_layers": draw(1, 3)}
        sizes |= {"tie": draw("none", "target", "all"), "embeddings": draw(*SCALES)}
    else:
        sizes |= {"num_layers": draw(1, 2), "norm_eps": draw(1e-5, 1e-6)}
    if name in ("bert", "bert, masked"):
        sizes |= {"pool": draw("mean", "first"), "head_activation": draw("none", "tanh")}
    if name in ("gpt2", "llama"):
        sizes["eos_id"] = draw(None, 2, [2, 5])
    if name == "llama":
        sizes["attention"] = nn.AttentionConfig(num_kv_heads=draw(1, heads))
        sizes["tie"] = draw(True, False)
    made = MADE[name]()
    model = type(made)(replace(made.config, **sizes)).eval()
    perturb(model, data.draw(seeds))
    with TemporaryDirectory() as directory:
        path = Path(directory)
        nn.save(path, model)
        again = nn.load(path)
        assert type(again) is type(model) and not again.training
        assert again.config.end_ids == model.config.end_ids
        np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)
        check_saved_again(path, again, "config.json")


ATTENTION, IDS_OF_ENDS = nn.AttentionConfig, (None, 7, [4], [5, 2], [])
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "bos_id": (None, 0, 3), "eos_id": IDS_OF_ENDS, "pad_id": (None, 5), "dropout": (0.0, 0.3), "d_ff": (7, 64),
        "attention": (ATTENTION(dropout=0.2),), "norm_eps": (1e-3,), "max_len": (9,), "num_layers": (1,), "num_heads": (2,),
        "activation": ("gelu", "gelu_tanh", "relu", "silu", "tanh")},
    "marian": {
        "bos_id": (0, 3), "eos_id": IDS_OF_ENDS, "pad_id": (1, 5), "tie": ("none", "target", "all"), "dropout": (0.3,),
        "activation_dropout": (0.2,), "attention": (ATTENTION(dropout=0.1),), "embeddings": (*SCALES,), "num_heads": (2,),
        "num_encoder_layers": (3, 1), "num_decoder_layers": (1, 2), "d_ff": (7,), "max_len": (9,)},
    "bert": {"num_types": (3,), "dropout": (0.3,), "attention": (ATTENTION(dropout=0.2),), "pad_id": (5,), "activation": ("relu",)},
    "bert, classes": {"head_dropout": (0.2,)},
    "bert, tokens": {"head_dropout": (0.2,)},
    "llama": {
        "attention": (ATTENTION(num_kv_heads=1, bias=False), ATTENTION(head_dim=6), ATTENTION(bias=True, dropout=0.2)),
        "bias": (True, False), "tie": (True, False), "norm_eps": (1e-3,), "bos_id": (None, 3), "eos_id": IDS_OF_ENDS, "pad_id": (5,),
        "activation": ("gelu_tanh", "silu"),
        "positions": tuple(nn.PositionConfig(kind="rotary", **options) for options in (
            {"rotary_base": 77.0}, {"rotary_scaling": {"rope_type": "linear", "factor": 2.0}}))},
}  # fmt: skip
"""Values of the options of families; the n-th model has the n-th value of each, or the first again."""


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_read_from_the_settings_of_a_saved_model(name: str) -> None:
    made = MADE[name]()
    for n in range(max(map(len, OPTIONS[name].values()))):
        changes = {option: values[n % len(values)] for option, values in OPTIONS[name].items()}
        config = extended(replace(made.config, **changes))
        with init.skipped():
            origin = origin_of_trained(type(made)(config))
        settings = Settings(json.loads(json.dumps(origin.settings)), "config.json")
        free = {*MAY_DIFFER, "num_classes", "pool", "head_activation"} - origin.family.keys.keys()
        read = read_config(settings, origin.family).effective
        found, expected = (c.flatten(c.to_dict()) for c in (read, config.effective))
        assert {key for key in expected if found[key] != expected[key]} <= free, changes


def lm(**options: Any) -> nn.LanguageModel:
    return nn.LanguageModel(nn.DecoderOnlyConfig(*LM, **options))


BIAS = nn.AttentionConfig(bias="qk")
REFUSED: list[tuple[Callable[[], nn.Module], str]] = [
    (lambda: nn.Linear(2, 2), "model must be a model of nn, got Linear; nn.save_weights"),
    (lambda: nn.Transformer(replace(MARIAN, positions="sinusoidal")), r"the options of Marian, got positions.kind='sinusoidal' \(expected 'sinusoidal_halves'\);"),
    (lambda: lm(positions="alibi"), "the options of GPT2, got positions.kind='alibi'"),
    (lambda: lm(norm="rms", positions="rotary", bias=False, attention=BIAS), 'Llama: attention_bias must be true or false, got "qk"'),
    (lambda: nn.EncoderClassifier(bert(num_classes=3)), r"the options of Bert, got pool='mean' \(expected 'first'\)"),
    (lambda: nn.EncoderModel(bert(num_types=0)), "save: Bert: type_vocab_size must be"),
    (lambda: nn.lora(lm()), "save: model must have no adapters; make them part of it by merge_lora"),
    (lambda: lm(pruned_heads={"layers.layers.0.self_attention": [1]}), "model must have all heads"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_save_of_a_model_that_no_family_describes_raises(
    tmp_path: Path, make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        nn.save(tmp_path, make())  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_load_of_weights_that_are_not_finite_names_the_file(tmp_path: Path) -> None:
    nn.save(tmp_path, MADE["gpt2"]())
    path = tmp_path / "model.safetensors"
    arrays = {name: np.array(SafetensorsFile(path).read(name)) for name in SafetensorsFile(path)}
    name = next(name for name, array in arrays.items() if array.ndim == 2)
    for value, dtype in ((np.nan, "float32"), (1e6, "float16")):
        arrays[name][1, 1] = value
        write_safetensors(path, arrays, {"format": "pt"})
        with pytest.raises(ValueError, match=f"^{path}: {name}: 1 of its .* infinite in {dtype}"):
            nn.load(tmp_path, dtype=dtype)
    assert nn.load(tmp_path).config.dtype == "float32"


def test_save_with_another_dtype_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="dtype must be 'float16', 'bfloat16'.*, got 'int8'"):
        nn.save(tmp_path, MADE["gpt2"](), dtype="int8")


def test_load_of_narrow_weights_widens_them(tmp_path: Path) -> None:
    nn.save(tmp_path, MADE["llama"](), dtype="bfloat16")
    model = nn.load(tmp_path)
    assert {p.dtype for p in model.parameters()} == {np.dtype("float32")}
    nn.save(tmp_path / "again", model, dtype="bfloat16")
    np.testing.assert_equal(arrays_of(tmp_path / "again"), arrays_of(tmp_path))
    assert nn.load(tmp_path, dtype="float64").output.weight.dtype == "float64"


def test_load_with_another_head_keeps_the_body(tmp_path: Path) -> None:
    path, ids = folder(tmp_path, "bert, masked"), np.array([[3, 4]])
    model = nn.load(path, head="classes", num_classes=4)
    np.testing.assert_array_equal(model.hidden(ids).data, nn.load(path).hidden(ids).data)
    nn.save(tmp_path / "classes", model)
    settings = json.loads((tmp_path / "classes/config.json").read_text())
    assert settings["architectures"] == ["BertForSequenceClassification"]
    assert len(settings["id2label"]) == 4
    again = nn.load(tmp_path / "classes")
    np.testing.assert_array_equal(result(again), result(model))
    wider = nn.load(tmp_path / "classes", head="classes", num_classes=7)
    assert wider.output.out_features == 7
    np.testing.assert_array_equal(wider.dense.weight.data, again.dense.weight.data)


@pytest.mark.parametrize(
    ("name", "classes", "kind"),
    [
        ("bert, masked", ["BertForMaskedLM"], nn.MaskedLanguageModel),
        ("bert, masked", ["Odd", "BertForMaskedLM", "BertModel"], nn.MaskedLanguageModel),
        ("bert, masked", ["BertForPreTraining"], nn.MaskedLanguageModel),
        ("bert, tokens", ["BertForTokenClassification"], nn.TokenClassifier),
        ("bert", ["Odd", "GPT2LMHeadModel"], nn.EncoderModel),
        ("bert", [], nn.EncoderModel),
        ("bert", None, nn.EncoderModel),
    ],
)
def test_load_has_the_head_of_the_first_known_class(
    tmp_path: Path, name: str, classes: list[str] | None, kind: type
) -> None:
    assert type(nn.load(folder(tmp_path, name, architectures=classes))) is kind


@pytest.mark.parametrize("name", ["bert, classes", "bert, tokens"])
def test_load_with_other_labels_than_classes_raises(tmp_path: Path, name: str) -> None:
    """Labels are those of the head in the directory, and no others."""
    folder(tmp_path, name, id2label={"0": "a", "1": "b"})
    with pytest.raises(ValueError, match="id2label must be as many as the 3 classes of the weigh"):
        nn.load(tmp_path)
    change_settings(tmp_path, id2label={})
    assert nn.load(tmp_path).config.num_classes == 3
    change_settings(tmp_path, id2label={"0": "a", "1": "b", "2": "c"})
    for count, labels in ((3, "abc"), (2, ["LABEL_0", "LABEL_1"])):
        model = nn.load(tmp_path, head=name.partition(", ")[2], num_classes=count)
        names = model.origin.settings["id2label"]
        assert list(names.values()) == [*labels]
        assert (
            model.origin.settings["label2id"] == {name: int(i) for i, name in names.items()}
            or count == 3
        )


def test_save_removes_files_of_the_tokenizer_before_only_with_a_new_one(tmp_path: Path) -> None:
    """Weights in several files are replaced by one, and other files are kept."""
    old = {"vocab.txt", "merges.txt", "chat_template.jinja", "target_vocab.json", "tokenizer.model"}
    for name in old | {"README.md"}:
        (tmp_path / name).write_text("old")
    nn.save(tmp_path, MADE["gpt2"](), max_shard_size=20_000)
    shards = {path.name for path in tmp_path.glob("model*")}
    assert len(shards) > 2
    names = {path.name for path in tmp_path.iterdir()}
    assert names == old | shards | {"README.md", "config.json"}
    text = SimpleNamespace(save=lambda path: (path / "merges.txt").write_text("new"))
    nn.save(tmp_path, MADE["gpt2"](), text)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"README.md", "config.json", "merges.txt", "model.safetensors"}
    assert (tmp_path / "merges.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("names", "stored"),
    [((), None), ((), "bfloat16"), ((), np.dtype("float32")), (("dtype",), "float16"), (("torch_dtype",), "float32"), (("dtype", "torch_dtype"), "float64")],
)  # fmt: skip
def test_save_writes_the_dtype_under_the_names_of_the_file(
    tmp_path: Path, names: tuple[str, ...], stored: Any
) -> None:
    settings = json.loads((folder(tmp_path) / "config.json").read_text())
    del settings["torch_dtype"]
    (tmp_path / "config.json").write_text(json.dumps(settings | dict.fromkeys(names, "odd")))
    nn.save(tmp_path / "again", nn.load(tmp_path, dtype="float64"), dtype=stored)
    again = json.loads((tmp_path / "again/config.json").read_text())
    found = {name: again[name] for name in ("dtype", "torch_dtype") if name in again}
    assert found == dict.fromkeys(names or ("torch_dtype",), str(stored or "float64"))
    kinds = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
    file = SafetensorsFile(tmp_path / "again/model.safetensors")
    assert {entry.dtype for entry in file.values()} == {kinds.get(str(stored), "F64")}


def test_load_with_another_head_refuses_missing_and_unknown_arrays(tmp_path: Path) -> None:
    arrays = arrays_of(folder(tmp_path, "bert, masked"))
    write_arrays(tmp_path, {**arrays, "odd.weight": np.ones(2, "f4")})
    with pytest.raises(ValueError, match="unknown: odd.weight$"):
        nn.load(tmp_path, "classes", num_classes=2)
    key = "bert.encoder.layer.1.output.dense.bias"
    write_arrays(tmp_path, {name: x for name, x in arrays.items() if name != key})
    with pytest.raises(ValueError, match=f"missing: {key}$"):
        nn.load(tmp_path, "classes", num_classes=2)


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_save_of_a_translator_names_a_shared_embedding_only_if_it_has_one(
    tmp_path: Path, tie: str
) -> None:
    nn.save(tmp_path, nn.Transformer(replace(MARIAN, tie=tie)))
    names = {name.rpartition("model.")[2] for name in arrays_of(tmp_path) if "layers" not in name}
    apart = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    expected = {"shared.weight"} if tie == "all" else apart
    assert names - {"final_logits_bias"} == expected | (
        {"lm_head.weight"} if tie == "none" else set()
    )


def test_save_of_a_bare_encoder_writes_a_pooler_of_zeros(tmp_path: Path) -> None:
    """Other libraries expect one."""
    arrays = arrays_of(folder(tmp_path, "bert"))
    assert not arrays["pooler.dense.weight"].any() and not arrays["pooler.dense.bias"].any()
    assert arrays["pooler.dense.weight"].shape == (16, 16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_load_of_arrays_of_several_types_reads_each(tmp_path: Path, dtype: str) -> None:
    arrays = arrays_of(folder(tmp_path, "llama"))
    kinds = ["<f2", "<f4", "<f8"]
    stored = {name: x.astype(kinds[i % 3]) for i, (name, x) in enumerate(arrays.items())}
    write_arrays(tmp_path, stored)
    nn.save(tmp_path / "again", nn.load(tmp_path, dtype=dtype), max_shard_size=3000)
    assert len([*(tmp_path / "again").glob("model-*-of-*.safetensors")]) > 2
    again = dict(nn.load(tmp_path / "again", dtype=dtype).origin.arrays)
    whole = SafetensorsFolder(tmp_path / "again")
    assert whole.keys() == stored.keys() == again.keys()
    for name, x in stored.items():
        np.testing.assert_array_equal(whole.array(name), x.astype(dtype), strict=True)


def test_load_with_another_head_draws_its_layers(tmp_path: Path) -> None:
    """Draw a pooler instead of the zeros in the file of a bare BERT."""
    path = folder(tmp_path, "bert")
    labels = nn.load(path, head="classes", num_classes=3)
    masked = nn.load(path, head="mlm")
    for head in (labels, masked):
        assert head.dense.weight.data.std() == pytest.approx(0.02, rel=0.2)
        assert not head.dense.bias.data.any()
    assert (masked.norm.weight.data == 1).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert, masked", {"head": "words"}, "head must be none or mlm or classes or tokens for Bert, got 'words'"),
        ("bert, masked", {"head": "classes"}, "num_classes must be given for head='classes'"),
        ("gpt2", {"head": "classes", "num_classes": 2}, "config.json: head must be nothing for GPT2, got 'classes'"),
        ("bert, masked", {"num_classes": 3}, "num_classes must be None without head='classes' or 'tokens', got head='mlm'"),
        ("bert, classes", {"head": "none", "num_classes": 3}, "num_classes must be None without head='classes'"),
        ("gpt2", {"num_classes": 3}, "num_classes must be None without head='classes'"),
        ("gpt2", {"dtype": "bfloat16"}, "dtype must be float32, float64 or float16, got 'bfloat16'"),
    ],
)  # fmt: skip
def test_load_with_bad_arguments_raises(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nn.load(folder(tmp_path, name), **options)


TOKENS = "transformer.wte.weight"
BUFFER = "transformer.h.0.attn.bias"
Arrays = dict[str, np.ndarray]
OTHER_ARRAYS: dict[str, Callable[[Arrays], Arrays]] = {
    "gpt2": lambda arrays: {**arrays, "lm_head.weight": arrays[TOKENS], BUFFER: np.ones((1, 1, 20, 20), bool),
        "transformer.h.1.attn.masked_bias": np.float32([-1e4])},
    "llama": lambda arrays: {**arrays, "model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(2, "f4")},
    "bert, masked": lambda arrays: {"bert.embeddings.position_ids": np.arange(20)[None]} | {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): a for name, a in arrays.items()},
    "bert": lambda arrays: {**arrays, "pooler.dense.weight": np.ones((16, 16), "f4"), "pooler.dense.bias": np.ones(16, "f4")},
    "marian": lambda arrays: {
        **arrays, "model.encoder.embed_tokens.weight": arrays["model.shared.weight"],
        "model.encoder.embed_positions.weight": np.ones((20, 16), "f4")},
}  # fmt: skip
"""Arrays of older files: masks and tables, tied weights under a second name, norms with gamma and beta."""


@pytest.mark.parametrize("name", OTHER_ARRAYS)
def test_load_of_arrays_that_older_versions_wrote_computes_the_same(
    tmp_path: Path, name: str
) -> None:
    expected = result(nn.load(folder(tmp_path, name)))
    write_arrays(tmp_path, OTHER_ARRAYS[name](arrays_of(tmp_path)))
    model = nn.load(tmp_path)
    np.testing.assert_array_equal(result(model), expected)
    check_saved_again(tmp_path, model)


def test_load_with_another_output_projection_unties_it(tmp_path: Path) -> None:
    """A stored projection that differs is used, whatever config.json contains."""
    arrays, tied = arrays_of(folder(tmp_path)), nn.load(tmp_path)
    write_arrays(tmp_path, {**arrays, "lm_head.weight": 2 * arrays[TOKENS]})
    model = nn.load(tmp_path)
    np.testing.assert_allclose(result(model), 2 * result(tied), 1e-5, 1e-5)
    check_saved_again(tmp_path, model)


def test_load_of_a_translator_with_another_output_projection_unties_it(tmp_path: Path) -> None:
    """Keep embeddings tied. A bias of zeros is left out, but saved again."""
    arrays, tied = arrays_of(folder(tmp_path, "marian")), nn.load(tmp_path)
    assert tied.output.bias is None
    output = np.float32(3 * arrays["model.shared.weight"])
    bias = np.zeros((1, 30), np.float32)
    write_arrays(tmp_path, {**arrays, "lm_head.weight": output, "final_logits_bias": bias})
    model = nn.load(tmp_path)
    assert model.output.bias is None
    assert model.source_embedding.tokens.weight is model.target_embedding.tokens.weight
    np.testing.assert_allclose(result(model), 3 * result(tied), 1e-5, 1e-5)
    check_saved_again(tmp_path, model)
    bias[0, 5] = 2
    write_arrays(tmp_path, {**arrays, "final_logits_bias": bias})
    model = nn.load(tmp_path)
    np.testing.assert_allclose(result(model), result(tied) + bias, 1e-5, 1e-5)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["output.bias"]


def test_load_of_a_second_name_that_differs_raises(tmp_path: Path) -> None:
    arrays = arrays_of(folder(tmp_path, "marian"))
    arrays["model.decoder.embed_tokens.weight"] = 2 * arrays["model.shared.weight"]
    write_arrays(tmp_path, arrays)
    with pytest.raises(ValueError, match="model.shared.weight differs from the array that"):
        nn.load(tmp_path)


def test_load_without_embedding_uses_a_tied_output_projection(tmp_path: Path) -> None:
    """Take it for the embedding only if config.json ties the two."""
    arrays = arrays_of(folder(tmp_path, tie_word_embeddings=True))
    output = arrays["lm_head.weight"] = arrays.pop(TOKENS)
    write_arrays(tmp_path, arrays)
    np.testing.assert_array_equal(nn.load(tmp_path).embedding.tokens.weight.data, output)
    change_settings(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=f"do not fit config.json: missing: {TOKENS}$"):
        nn.load(tmp_path)


def test_load_reads_generation_config(tmp_path: Path) -> None:
    path = folder(tmp_path, bad_words_ids=[[7], [3, 4]], forced_bos_token_id=5)
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 9], "suppress_tokens": [8]}')
    model = nn.load(path)
    assert model.config.end_ids == (2, 9)
    assert model.origin.generation == {"eos_token_id": (2, 9), "suppress_tokens": (8,)}
    check_saved_again(tmp_path, model, "generation_config.json")


IDS: tuple[list[Any], list[Any]] = ([0, 29, [2, 9], []], [-1, 30, [2, 30], [-1], "a", 1.5, [1.5]])
COUNTS: tuple[list[Any], list[Any]] = ([0, 1, 70], [-1, 1.5, True, "a"])
SHARES: tuple[list[Any], list[Any]] = ([0, 0.5, 1], [-0.1, 1.1, "a"])
GENERATION: dict[str, tuple[list[Any], list[Any]]] = {
    "max_length": COUNTS, "max_new_tokens": COUNTS, "min_length": COUNTS, "min_new_tokens": COUNTS, "top_k": COUNTS,
    "no_repeat_ngram_size": COUNTS, "top_p": SHARES, "min_p": SHARES, "forced_bos_token_id": IDS,
    "forced_eos_token_id": IDS, "suppress_tokens": IDS, "begin_suppress_tokens": IDS,
    "eos_token_id": ([0, 29, [2, 9]], [-1, 30, [2, 30], "a", 1.5]), "num_beams": ([1, 1000], [0, 1001, 2.5]),
    "temperature": ([0, 2.5], [-0.1, "a"]), "repetition_penalty": ([0, 1.2], [-0.1]),
    "length_penalty": ([-20, 0.5, 20], [-20.1, 20.1]), "do_sample": ([True, False], [1, "a"]),
    "early_stopping": ([True, False, "never"], ["always", 1]),
    "bad_words_ids": ([[[0], [3, 29]]], [[[30]], [[-1]], [[]], [7], 7]),
}  # fmt: skip
"""Settings of generation that are read, and those that are refused, with a vocabulary of 30."""


def plain_ids(value: Any) -> Any:
    """Return token ids as tuples."""
    return tuple(map(plain_ids, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_load_reads_settings_of_generation(tmp_path: Path, file: str) -> None:
    """Read the copies in config.json without generation_config.json; null is no setting."""
    path = folder(tmp_path) / file
    before = json.loads(path.read_text()) if path.exists() else {}
    for i in range(4):
        values = {key: read[i] for key, (read, _) in GENERATION.items() if i < len(read)}
        path.write_text(json.dumps(before | {"top_k": None} | values))
        found = nn.load(tmp_path).origin.generation
        for key, value in values.items():
            is_of_id = key.endswith(("_token_id", "_tokens")) and "new" not in key
            ids = [value] if is_of_id and isinstance(value, int) else value
            assert found[key] == plain_ids(ids)
        assert ("top_k" in found) == ("top_k" in values)


def test_load_of_settings_of_generation_beyond_their_limits_raises(tmp_path: Path) -> None:
    path = folder(tmp_path) / "generation_config.json"
    path.write_text("{}")
    files = _Directory(tmp_path)
    for key, (_, refused) in GENERATION.items():
        for value in refused:
            files.generation = Settings({key: value}, str(path))
            with pytest.raises(ValueError, match=f"^{path}: {key} must "):
                files.generation_settings(30)


@pytest.mark.parametrize("file", [None, {}, {"top_k": 5}])
@pytest.mark.parametrize("flag", [None, False, True])
def test_bart_that_forces_the_first_token_reads_it_from_config_json(
    tmp_path: Path, flag: bool | None, file: dict[str, int] | None
) -> None:
    """Ignore the older flag, and all other copies, beside generation_config.json."""
    folder(tmp_path, "marian", force_bos_token_to_be_generated=flag, bos_token_id=7, num_beams=3)
    if file is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(file))
    found = nn.load(tmp_path).origin.generation
    assert found.get("forced_bos_token_id") == ((7,) if flag and file is None else None)
    assert found.get("num_beams") == (3 if file is None else None)
    assert found.get("top_k") == (file or {}).get("top_k")


def test_translator_that_was_trained_here_forces_no_token(tmp_path: Path) -> None:
    """Marian's class of transformers forces EOS at the longest length by default."""
    settings = json.loads((folder(tmp_path, "marian") / "config.json").read_text())
    assert settings["forced_eos_token_id"] is None and settings["is_encoder_decoder"] is True
    assert "forced_eos_token_id" not in nn.load(tmp_path).origin.generation


def test_load_reads_the_first_token_of_a_translation_from_generation_config(tmp_path: Path) -> None:
    path = folder(tmp_path, "marian")
    (path / "generation_config.json").write_text('{"decoder_start_token_id": 4}')
    assert nn.load(path).config.bos_id == 4


IMAGES = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)


def test_pixels_are_scaled_and_normalized_by_channel(tmp_path: Path) -> None:
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": mean, "image_std": std, "rescale_factor": 1 / 255}))
    expected = ((IMAGES / 255 - mean) / std).transpose(0, 3, 1, 2)
    images = nn.pixels(tmp_path, IMAGES)
    np.testing.assert_allclose(images, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"must be uint8 \(N, H, W, C\), .*, got float32 \(2, 3,"):
        nn.pixels(tmp_path, images)
    file.write_text(json.dumps({"do_rescale": False, "do_normalize": False}))
    np.testing.assert_array_equal(nn.pixels(tmp_path, IMAGES), IMAGES.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([np.zeros((2, 3, 8, 8), "u1")], r"images must be floats \(N, 3, 8, 8\), got uint8"),
        ([np.zeros((1, 3, 8, 8)), np.ones((1, 5), bool)], "padding_mask must be None for images"),
    ],
)
def test_image_model_with_other_inputs_raises(arguments: list[np.ndarray], message: str) -> None:
    model = nn.EncoderModel(nn.EncoderConfig(0, 16, 4, 1, 32, image_size=8, patch_size=4))
    with pytest.raises(ValueError, match=message):
        model(*arguments)
    with pytest.raises(ValueError, match="attribute: ids must be one sequence"):
        nn.attribute(model, arguments[0])


def test_families_of_contributing_are_those_of_the_library() -> None:
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## Add a family")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    library = Path(llama.__file__).read_text(encoding="utf-8")
    assert code.count("class ") == 1 and all(
        part.strip() in library for part in code.split("\n\n\n")
    )


def test_command_prints_the_effective_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_module("nn.published", run_name="main")["main"]
    main([str(folder(tmp_path, "llama", use_cache=True))])
    printed = capsys.readouterr().out
    count = nn.load(tmp_path).num_parameters()
    assert printed.startswith(f"LanguageModel (LlamaForCausalLM), {count:,} parameters\n")
    for line in (
        r"attention.scale *= 0\.5", "keys that were.*num_key_value_heads", "keys without effect.*use_cache",
        "arrays that are not used: none",
    ):  # fmt: skip
        assert re.search(f"^{line}", printed, re.MULTILINE)
    read, unread = ({*line.split(", ")} for line in re.findall("^keys .*: (.*)", printed, re.M))
    keys = json.loads((tmp_path / "config.json").read_text()).keys()
    assert read | unread == keys and not read & unread
    with pytest.raises(SystemExit, match="error: .*config.json: no such file"):
        main([str(tmp_path / "none")])


OLDER_KEYS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_ctx": 1024, "task_specific_params": {"text-generation": {"do_sample": True}}, "auto_map": {"AutoConfig": "x"}},
    "bert": {
        "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128, "pooler_type": "first_token_transform", "position_embedding_type": "absolute"},
    "distilbert": {"tie_weights_": True, "output_past": True},
    "albert, masked": {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0},
    "llama": {"is_llama_config": True, "transformers.js_config": {"dtype": "q4"}, "torch_dtype": "float32"},
    "gemma2": {"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid", "sliding_window_size": 4096},
    "gemma3_text": {"_sliding_window_pattern": 6, "rope_scaling": None, "use_bidirectional_attention": False},
    "modernbert": {
        "reference_compile": True, "repad_logits_with_grad": False, "position_embedding_type": "absolute",
        "layer_norm_eps": 1e-5, "deterministic_flash_attn": False, "sparse_prediction": False},
    "opt": {"prefix": "</s>", "some_null": None, "some_flag": False, "some_list": [], "some_object": {}},
    "marian": {"bad_words_ids": [[48]], "classif_dropout": 0.0, "static_position_embeddings": True},
    "mbart": {"add_final_layer_norm": True, "normalize_before": True},
    "t5": {"n_positions": 512},
}  # fmt: skip
"""Keys of well-known files that change nothing, and that classes of transformers no longer have."""


@pytest.mark.parametrize("name", OLDER_KEYS)
def test_read_config_accepts_keys_of_published_files(name: str) -> None:
    settings = Settings(MODELS[name][1] | OLDER_KEYS[name], "config.json")
    read_config(settings, FAMILIES[name.partition(",")[0]])


def test_load_of_a_length_without_table_takes_no_memory(tmp_path: Path) -> None:
    """Rotary positions and caches grow with the text, so a length of 10¹² is as good as 20."""
    folder(tmp_path, "llama", max_position_embeddings=10**12)
    tracemalloc.start()
    nn.generate(nn.load(tmp_path), [3, 4, 5], max_len=5)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_loss_of_a_classifier_of_one_class_raises_and_names_the_loss_of_scores() -> None:
    model = nn.EncoderClassifier(bert(num_classes=1, pool="first", head_activation="tanh"))
    ids, targets = np.array([[1, 2, 3], [3, 2, 1]]), np.array([0.0, 1.0], np.float32)
    with pytest.raises(ValueError, match=r"num_classes must be at least 2 .* got 1; train scores"):
        model.loss(ids, [0, 0])
    loss = mg.binary_cross_entropy_with_logits(model(ids)[..., 0], targets)
    loss.backward()
    assert model.output.bias.grad is not None and loss.item() > 0
