"""Directories of published models, without other libraries: loading, saving and errors."""

from __future__ import annotations

import json
import re
import runpy
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import MODELS

import nn
from minigrad.io.json import Settings
from minigrad.io.safetensors import SafetensorsFile, write_safetensors
from nn.pretrained import llama
from nn.pretrained.load import FAMILIES, read_config

LM = (30, 16, 4, 2, 32)  # sizes of all models: vocabulary, width, heads, layers, inner width
GPT2 = nn.LanguageModelConfig(*LM, max_len=20, bos_id=1, eos_id=2)
LLAMA = nn.LanguageModelConfig(
    *LM, max_len=20, norm="rms", norm_eps=1e-6, gated=True, activation="silu", bias=False, positions="rotary",
    attention=nn.AttentionConfig(num_kv_heads=2), tie=False,
)  # fmt: skip
MARIAN = nn.TransformerConfig(30, *LM[:4], 2, 32, tie="all", max_len=20, positions="sinusoidal_halves")  # fmt: skip
UNSCALED = nn.EmbeddingConfig(scale=False)


def bert(**changes: Any) -> nn.EncoderConfig:
    options = {"num_types": 2, "positions": "learned", "activation": "gelu", "norm_eps": 1e-12}
    embeddings = nn.EmbeddingConfig(scale=False, norm=True)
    return nn.EncoderConfig(*LM, **{**options, "embeddings": embeddings, "max_len": 20, **changes})


CLASSES = bert(num_classes=3, pool="first", head_activation="tanh")
MADE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: nn.LanguageModel(GPT2),
    "llama": lambda: nn.LanguageModel(LLAMA),
    "marian": lambda: nn.Transformer(MARIAN),
    "marian, unscaled": lambda: nn.Transformer(replace(MARIAN, embeddings=UNSCALED)),
    "bert": lambda: nn.EncoderModel(bert()),
    "bert, masked": lambda: nn.MaskedLanguageModel(bert()),
    "bert, classes": lambda: nn.EncoderClassifier(CLASSES),
    "bert, tokens": lambda: nn.TokenClassifier(bert(num_classes=3)),
}


def result(model: Any) -> np.ndarray:
    ids = np.array([[3, 4, 5, 9], [7, 8, 6, 11]])
    return model(ids, ids).data if isinstance(model, nn.Transformer) else model(ids).data


def folder(path: Path, name: str = "gpt2", **changes: Any) -> Path:
    """Save a model, with changes to its config.json."""
    nn.save(path, MADE[name]().eval())
    change_settings(path, **changes)
    return path


def change_settings(path: Path, **changes: Any) -> None:
    settings = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(settings | changes))


def arrays_of(path: Path) -> dict[str, np.ndarray]:
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
def test_save_then_load_computes_the_same(tmp_path: Path, name: str) -> None:
    model = MADE[name]().eval()
    nn.save(tmp_path, model)
    again = nn.load(tmp_path)
    assert type(again) is type(model) and not again.training
    np.testing.assert_allclose(result(again), result(model), rtol=1e-5, atol=1e-6)
    check_saved_again(tmp_path, again, "config.json")


def pruned() -> nn.LanguageModel:
    model = nn.LanguageModel(GPT2)
    model.prune_heads({"layers.layers.0.self_attention": [1]})
    return model


def lm(**options: Any) -> nn.LanguageModel:
    return nn.LanguageModel(nn.LanguageModelConfig(*LM, **options))


BIAS = nn.AttentionConfig(bias="qk")
REFUSED: list[tuple[Callable[[], nn.Module], str]] = [
    (lambda: nn.Linear(2, 2), "model must be a model of nn, got Linear; nn.save_weights"),
    (lambda: nn.Transformer(replace(MARIAN, positions="sinusoidal")), r"the options of Marian, got positions.kind='sinusoidal' \(expected 'sinusoidal_halves'\);"),
    (lambda: nn.Transformer(replace(MARIAN, norm_first=True)), r"the options of Marian, got norm_first=True \(expected False\), final_norm=True"),
    (lambda: lm(positions="alibi"), "the options of GPT2, got positions.kind='alibi'"),
    (lambda: lm(positions="rotary", gated=True), r"the options of GPT2, got gated=True \(expected False\), .*positions.kind='rotary'"),
    (lambda: lm(norm="rms", positions="rotary", bias=False, attention=BIAS), 'Llama: attention_bias must be true or false, got "qk"'),
    (lambda: nn.EncoderModel(bert(positions="relative")), r"the options of Bert, got .*positions.kind='relative' \(expected 'learned'\)"),
    (lambda: nn.EncoderClassifier(bert(num_classes=3)), r"the options of Bert, got pool='mean' \(expected 'first'\)"),
    (lambda: nn.EncoderModel(bert(num_types=0)), "save: Bert: type_vocab_size must be"),
    (pruned, "model must have all heads"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_save_of_a_model_that_no_family_describes_raises(
    tmp_path: Path, make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        nn.save(tmp_path / "x", make())  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("dtype", ["int8", "bf16"])  # the first would make zeros of most weights
def test_save_with_another_dtype_raises(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"dtype must be 'float16', 'bfloat16'.*, got '{dtype}'"):
        nn.save(tmp_path, MADE["gpt2"](), dtype=dtype)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["", "tiny.gguf"])
def test_load_of_gguf_names_the_conversion(tmp_path: Path, place: str) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    for read in (nn.load, nn.sentence_encoder):
        with pytest.raises(
            ValueError, match=r"tiny.gguf: GGUF files are not read; convert .*gguf_file='tiny.gguf'"
        ):
            read(tmp_path / place)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_load_of_narrow_weights_widens_them(tmp_path: Path, dtype: str) -> None:
    nn.save(tmp_path, MADE["llama"]().eval(), dtype=dtype)
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == dtype
    model = nn.load(tmp_path)
    assert {p.dtype for p in model.parameters()} == {np.dtype("float32")}
    nn.save(tmp_path / "again", model, dtype=dtype)
    narrow, again = arrays_of(tmp_path), arrays_of(tmp_path / "again")
    assert all(np.array_equal(narrow[name], again[name]) for name in narrow)
    assert nn.load(tmp_path, dtype="float64").config.dtype == "float64"


def test_load_with_another_head_keeps_the_body(tmp_path: Path) -> None:
    path, ids = folder(tmp_path, "bert, masked"), np.array([[3, 4]])
    model = nn.load(path, head="classes", num_classes=4, generator=np.random.default_rng(0))
    assert isinstance(model, nn.EncoderClassifier) and model.output.out_features == 4
    np.testing.assert_array_equal(model.hidden(ids).data, nn.load(path).hidden(ids).data)
    assert type(nn.load(path, head="none")) is nn.EncoderModel
    nn.save(tmp_path / "classes", model)
    settings = json.loads((tmp_path / "classes/config.json").read_text())
    assert settings["architectures"] == ["BertForSequenceClassification"]
    assert len(settings["id2label"]) == 4
    np.testing.assert_array_equal(result(nn.load(tmp_path / "classes")), result(model))


def test_load_with_another_head_draws_its_layers(tmp_path: Path) -> None:
    path = folder(tmp_path, "bert, classes")
    model = nn.load(path)
    wider = nn.load(path, head="classes", num_classes=7)
    assert wider.output.out_features == 7
    np.testing.assert_array_equal(wider.dense.weight.data, model.dense.weight.data)
    tokens = nn.load(path, head="tokens", num_classes=3)
    assert not np.array_equal(tokens.output.weight.data, model.output.weight.data)
    masked = nn.load(path, head="mlm")
    assert (masked.norm.weight.data == 1).all()  # the new norm changes nothing
    assert not masked.dense.bias.data.any() and masked.dense.weight.data.any()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert, masked", {"head": "words"}, "config.json: head must be none or mlm or classes or tokens for Bert, got 'words'"),
        ("bert, masked", {"head": "classes"}, "num_classes must be given for head='classes'"),
        ("bert, masked", {"head": "mlm", "num_classes": 2}, "num_classes must be None without head='classes' or 'tokens', got head='mlm'"),
        ("gpt2", {"head": "classes", "num_classes": 2}, "config.json: head must be nothing for GPT2, got 'classes'"),
        ("gpt2", {"dtype": "bfloat16"}, "dtype must be float32, float64 or float16, got 'bfloat16'"),
    ],
)  # fmt: skip
def test_load_with_bad_arguments_raises(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nn.load(folder(tmp_path, name), **options)


def test_load_with_a_pooler_of_zeros_draws_it(tmp_path: Path) -> None:
    """Draw a pooler instead of the zeros in the file of a bare BERT."""
    nn.save(tmp_path, MADE["bert"]())
    labels = nn.load(tmp_path, head="classes", num_classes=3, generator=np.random.default_rng(0))
    assert labels.dense.weight.data.std() == pytest.approx(0.02, rel=0.2)
    assert not labels.dense.bias.data.any()


TOKENS = "transformer.wte.weight"
BUFFER = "transformer.h.0.attn.bias"
OTHER_ARRAYS: dict[str, tuple[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]]] = {
    "norms called gamma and beta": ("bert, masked", lambda arrays: {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): a
        for n, a in arrays.items()}),
    "a tied projection": ("gpt2", lambda arrays: {**arrays, "lm_head.weight": arrays[TOKENS]}),
    "masks": ("gpt2", lambda arrays: {**arrays, BUFFER: np.ones((1, 1, 20, 20), bool)}),
    "frequencies": ("llama", lambda arrays: {**arrays, "model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(2, "f4")}),
    "positions": ("bert, masked", lambda arrays: {**arrays, "bert.embeddings.position_ids": np.arange(20)[None]}),
    "sines": ("marian", lambda arrays: {**arrays, "model.encoder.embed_positions.weight": np.ones((20, 16), "f4")}),
    "a second name": ("marian", lambda arrays: {**arrays, "model.encoder.embed_tokens.weight": arrays["model.shared.weight"]}),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER_ARRAYS)
def test_load_of_arrays_that_older_versions_wrote_computes_the_same(
    tmp_path: Path, case: str
) -> None:
    name, change = OTHER_ARRAYS[case]
    expected = result(nn.load(folder(tmp_path, name)))
    write_arrays(tmp_path, change(arrays_of(tmp_path)))
    model = nn.load(tmp_path)
    np.testing.assert_array_equal(result(model), expected)
    check_saved_again(tmp_path, model)


def test_load_with_another_output_projection_unties_it(tmp_path: Path) -> None:
    """A stored projection that differs is used, whatever config.json contains."""
    arrays, tied = arrays_of(folder(tmp_path)), nn.load(tmp_path)
    assert tied.output.weight is tied.embedding.tokens.weight
    write_arrays(tmp_path, {**arrays, "lm_head.weight": 2 * arrays[TOKENS]})
    model = nn.load(tmp_path)
    assert model.output.weight is not model.embedding.tokens.weight
    np.testing.assert_allclose(result(model), 2 * result(tied), rtol=1e-5)
    check_saved_again(tmp_path, model)


def test_load_of_a_second_name_that_differs_raises(tmp_path: Path) -> None:
    arrays = arrays_of(folder(tmp_path, "marian"))
    other = {"model.decoder.embed_tokens.weight": 2 * arrays["model.shared.weight"]}
    write_arrays(tmp_path, arrays | other)
    message = "model.safetensors: model.shared.weight differs from the array that"
    with pytest.raises(ValueError, match=message):
        nn.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_load_without_embedding_uses_a_tied_output_projection(tmp_path: Path, name: str) -> None:
    """It is the embedding only if config.json ties the two."""
    arrays = arrays_of(folder(tmp_path, name, tie_word_embeddings=True))
    tokens = TOKENS if name == "gpt2" else "model.embed_tokens.weight"
    output = arrays["lm_head.weight"] = arrays.pop(tokens)
    write_arrays(tmp_path, arrays)
    np.testing.assert_array_equal(nn.load(tmp_path).embedding.tokens.weight.data, output)
    change_settings(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=f"do not fit config.json: missing: {tokens}$"):
        nn.load(tmp_path)


def test_load_reads_generation_config(tmp_path: Path) -> None:
    path = folder(tmp_path, bad_words_ids=[[7], [3, 4]], forced_bos_token_id=5)
    data = json.dumps({"eos_token_id": [2, 9], "suppress_tokens": [8]})
    (path / "generation_config.json").write_text(data)
    model = nn.load(path)
    assert model.config.end_ids == (2, 9)
    assert model.origin.generation == {"eos_token_id": (2, 9), "suppress_tokens": (8,)}
    check_saved_again(tmp_path, model, "generation_config.json")


def test_load_reads_the_first_token_of_a_translation_from_generation_config(tmp_path: Path) -> None:
    path = folder(tmp_path, "marian")
    (path / "generation_config.json").write_text('{"decoder_start_token_id": 4}')
    assert nn.load(path).config.bos_id == 4


def test_load_with_padding_equal_to_eos_learns_eos(tmp_path: Path) -> None:
    """If PAD and EOS have one id (GPT-2, SmolLM2), EOS is learned, unless a mask hides it."""
    model = nn.load(folder(tmp_path, pad_token_id=2))
    ids = np.array([[3, 4, 2, 2]])
    assert (
        model.num_targets(ids) == 3
        and model.num_targets(ids, np.array([[True, True, True, False]])) == 2
    )


IMAGES = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)


def test_pixels_are_scaled_and_normalized_by_channel(tmp_path: Path) -> None:
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": mean, "image_std": std, "rescale_factor": 1 / 255}))
    found = nn.pixels(tmp_path, IMAGES)
    assert found.dtype == np.float32
    expected = ((IMAGES / 255 - mean) / std).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"must be uint8 \(N, H, W, C\), .*, got float32 \(2, 3, 8"
    ):
        nn.pixels(tmp_path, found)
    file.write_text(json.dumps({"do_rescale": False, "do_normalize": False}))
    np.testing.assert_array_equal(nn.pixels(tmp_path, IMAGES).transpose(0, 2, 3, 1), IMAGES)


def image_model() -> nn.EncoderClassifier:
    sizes = {"d_model": 16, "num_heads": 4, "num_layers": 1, "d_ff": 32, "num_classes": 3}
    return nn.EncoderClassifier(nn.EncoderConfig(**sizes, image_size=8, patch_size=4))


@pytest.mark.parametrize("shape, dtype", [((2, 3, 4, 8), "float64"), ((2, 3, 8, 8), "uint8")])
def test_image_model_with_other_images_raises(shape: tuple[int, ...], dtype: str) -> None:
    message = re.escape(f"images must be floats (N, 3, 8, 8), got {dtype} {shape}")
    with pytest.raises(ValueError, match=message):
        image_model()(np.zeros(shape, dtype))


def test_image_model_takes_no_padding_mask_and_no_ids() -> None:
    model, images = image_model(), np.zeros((1, 3, 8, 8))
    with pytest.raises(ValueError, match="padding_mask must be None for images"):
        model(images, np.ones((1, 5), bool))
    with pytest.raises(ValueError, match="attribute: ids must be one sequence"):
        nn.attribute(model, images)


def test_families_of_contributing_are_those_of_the_library() -> None:
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## How to add a family")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    library = Path(llama.__file__).read_text(encoding="utf-8")
    classes = code.split("\n\n\n")
    assert len(classes) == 2 and all(part.strip() in library for part in classes)


def test_command_prints_the_effective_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_module("nn.pretrained", run_name="main")["main"]
    main([str(folder(tmp_path, "llama", use_cache=True))])
    printed = capsys.readouterr().out
    count = nn.load(tmp_path).num_parameters()
    assert printed.startswith(f"LanguageModel (LlamaForCausalLM), {count:,} parameters\n")
    for name, value in {"attention.num_kv_heads": 2, "attention.scale": 0.5, "d_ff": 32}.items():
        assert re.search(rf"^ *{name} *= {value}$", printed, re.MULTILINE)
    assert re.search("^keys that were.*num_key_value_heads", printed, re.MULTILINE)
    assert re.search("^keys without effect.*use_cache", printed, re.MULTILINE)
    assert printed.endswith("arrays that are not used: none\n")
    with pytest.raises(SystemExit, match="error: .*config.json: no such file"):
        main([str(tmp_path / "none")])


PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {  # keys of well-known files that have no effect
    "any file": ("gpt2", {"some_null": None, "some_flag": False, "some_list": [], "some_object": {}}),
    "gpt2": ("gpt2", {
        "n_ctx": 1024, "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
        "summary_type": "cls_index", "task_specific_params": {"text-generation": {"do_sample": True}}}),
    "bert-base-multilingual": ("bert", {
        "directionality": "bidi", "gradient_checkpointing": False, "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
        "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0"}),
    "distilbert": ("distilbert", {"qa_dropout": 0.1, "sinusoidal_pos_embds": False, "tie_weights_": True, "output_past": True}),
    "albert-base-v2": ("albert, masked", {
        "down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0, "num_hidden_groups": 1,
        "inner_group_num": 1, "layers_to_keep": []}),
    "electra-small": ("electra, masked", {"summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_use_proj": True}),
    "SmolLM2-135M-Instruct": ("llama", {
        "is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000, "pretraining_tp": 1,
        "transformers.js_config": {"dtype": "q4"}, "_model_name_or_path": "tiny"}),
    "Qwen2.5-1.5B": ("qwen2", {"max_window_layers": 28, "sliding_window": 131072, "use_mrope": False, "use_sliding_window": False}),
    "Phi-3-mini-4k": ("phi3", {"auto_map": {"AutoConfig": "x"}, "embd_pdrop": 0.0, "original_max_position_embeddings": 4096}),
    "opt-125m": ("opt", {"_remove_final_layer_norm": False, "do_layer_norm_before": True, "layerdrop": 0.0, "prefix": "</s>"}),
    "opus-mt-en-de": ("marian", {
        "add_bias_logits": False, "add_final_layer_norm": False, "bad_words_ids": [[48]], "classif_dropout": 0.0,
        "normalize_before": False, "normalize_embedding": False, "static_position_embeddings": True}),
    "mbart-large-50": ("mbart", {"add_final_layer_norm": True, "normalize_before": True, "static_position_embeddings": False}),
    "t5-small": ("t5", {"initializer_factor": 1.0, "n_positions": 512, "output_past": True}),
    "vit-base": ("vit", {"encoder_stride": 16, "qkv_bias": True, "id2label": {"0": "cat"}, "label2id": {"cat": 0}}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_read_config_accepts_keys_of_published_files(name: str) -> None:
    model, keys = PUBLISHED[name]
    settings = {**MODELS[model][1], **keys, "torch_dtype": "float32"}
    read_config(Settings(settings, "config.json"), FAMILIES[model.partition(",")[0]])


def test_load_of_a_length_without_table_takes_no_memory(tmp_path: Path) -> None:
    """Rotary positions and caches grow with the text, so a length of 10¹² is as good as 20."""
    path = folder(tmp_path, "llama")
    short = nn.generate(nn.load(path), [3, 4, 5], max_len=5)
    change_settings(path, max_position_embeddings=10**12)
    tracemalloc.start()
    long = nn.generate(nn.load(path), [3, 4, 5], max_len=5)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert short == long
