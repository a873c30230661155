"""Published models: what the makers' other tools make of ours, and each thing that goes wrong in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import VOCAB, batch, make

import nn
from minigrad.io.safetensors import SafetensorsFile, write_safetensors

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is not installed")
transformers = pytest.importorskip(
    "transformers", reason="Hugging Face's models are the oracle; it is not installed"
)

WORDS = [f"t{i}" for i in range(VOCAB)]


def logits(model: Any, ids: np.ndarray, **options: Any) -> np.ndarray:
    with torch.no_grad():
        return model(
            torch.tensor(ids), **{k: torch.tensor(v) for k, v in options.items()}
        ).logits.numpy()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


IDS = np.random.default_rng(5).integers(3, 48, (2, 12))


# -- CTranslate2 ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["gpt2", "llama", "marian"])
def test_ctranslate2_converts_what_we_save(tmp_path: Path, name: str) -> None:
    ctranslate2 = pytest.importorskip(
        "ctranslate2", reason="CTranslate2 is the oracle; it is not installed"
    )
    from ctranslate2.converters import transformers as converters

    made = make(transformers, torch, name)
    if (
        name == "marian"
    ):  # as Marian's own: the padding's vector is zero, and it begins each sentence
        with torch.no_grad():
            made.model.shared.weight[49] = 0
            made.final_logits_bias[0, 49] = -1e9
    made.save_pretrained(tmp_path / "theirs")
    ours = nn.load(tmp_path / "theirs")
    nn.save(tmp_path / "ours", ours)
    kind = {"gpt2": "GPT2Loader", "llama": "LlamaLoader", "marian": "MarianMTLoader"}[name]
    loader = getattr(converters, kind)()
    again = type(made).from_pretrained(tmp_path / "ours", dtype=torch.float32)
    spec = loader.get_model_spec(again)
    words = WORDS[:-1] if name == "marian" else WORDS
    if name == "marian":
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.decoder_start_token = words[0]
        spec.config.add_source_eos = False
    else:
        spec.register_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (
        words[1],
        words[ours.config.end_ids[0]],
        words[3],
    )
    spec.validate()
    spec.optimize(quantization=None)
    (tmp_path / "converted").mkdir()
    spec.save(str(tmp_path / "converted"))
    if name == "marian":
        translator = ctranslate2.Translator(
            str(tmp_path / "converted"), compute_type="float32", inter_threads=1
        )
        found = translator.translate_batch(
            [[words[i] for i in row] for row in IDS], beam_size=1, max_decoding_length=8
        )
        theirs = [[words.index(w) for w in r.hypotheses[0]] for r in found]
        expected = nn.generate(ours, source=IDS, max_len=8, suppress=(49,))
    else:
        generator = ctranslate2.Generator(
            str(tmp_path / "converted"), compute_type="float32", inter_threads=1
        )
        found = generator.generate_batch(
            [[words[i] for i in row] for row in IDS],
            max_length=8,
            sampling_topk=1,
            include_prompt_in_result=False,
        )
        theirs = [r.sequences_ids[0] for r in found]
        expected = nn.generate(ours, IDS.tolist(), max_len=8)
    ends = ours.config.end_ids
    assert [[t for t in row if t not in ends] for row in theirs] == [
        [t for t in row if t not in ends] for row in expected
    ]


# -- what goes wrong in silence ---------------------------------------------------------------------------------


def test_rotary_halves_are_not_pairs(tmp_path: Path) -> None:
    """Rows of q and k in the order of pairs (Meta, GGUF) give other logits: the test of logits tells them apart."""
    made = make(transformers, torch, "llama")
    made.save_pretrained(tmp_path)
    file = SafetensorsFile(tmp_path / "model.safetensors")
    arrays = {n: file.read(n) for n in file}
    expected = logits(made, IDS)
    close(nn.load(tmp_path)(IDS).data, expected)
    for name, array in arrays.items():
        if "q_proj" in name or "k_proj" in name:
            arrays[name] = array.reshape(-1, 2, 2, 16).transpose(0, 2, 1, 3).reshape(array.shape)
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    assert np.abs(nn.load(tmp_path)(IDS).data - expected).max() > 1e-2


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 2.0},
        {"type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
            "attention_factor": 1.3,
        },
    ],
)
def test_rope_scaling_as_it_was_written_before(tmp_path: Path, scaling: dict[str, Any]) -> None:
    """rope_theta and rope_scaling in place of rope_parameters; what was read is written back."""
    today = {
        "rope_theta": 5e4,
        **scaling,
        "rope_type": scaling.get("rope_type", scaling.get("type")),
    }
    made = make(transformers, torch, "llama", rope_parameters=today)
    made.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    del settings["rope_parameters"]
    settings |= {"rope_theta": 5e4, "rope_scaling": scaling, "torch_dtype": settings.pop("dtype")}
    path.write_text(json.dumps(settings))
    model = nn.load(tmp_path)
    close(model(IDS).data, logits(made, IDS))
    nn.save(tmp_path / "again", model)
    assert json.loads((tmp_path / "again/config.json").read_text()) == settings


def test_a_head_that_is_there_and_differs(tmp_path: Path) -> None:
    made = make(transformers, torch, "llama, scaled")
    made.save_pretrained(tmp_path)
    file = SafetensorsFile(tmp_path / "model.safetensors")
    arrays = {n: file.read(n) for n in file}
    assert "lm_head.weight" not in arrays  # tied: it is not in the file
    arrays["lm_head.weight"] = (
        np.random.default_rng(0).standard_normal((VOCAB, 16)).astype(np.float32)
    )
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    theirs = type(made).from_pretrained(tmp_path, dtype=torch.float32).eval()
    close(nn.load(tmp_path)(IDS).data, logits(theirs, IDS))


@pytest.mark.parametrize("form", ["gelu", "gelu_new", "relu", "silu"])
def test_forms_of_gelu(tmp_path: Path, form: str) -> None:
    made = make(transformers, torch, "gpt2", activation_function=form)
    made.save_pretrained(tmp_path)
    close(nn.load(tmp_path)(IDS).data, logits(made, IDS))


def test_quick_gelu_is_refused(tmp_path: Path) -> None:
    make(transformers, torch, "gpt2", activation_function="quick_gelu").save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match='activation_function: expected one of gelu, .*, got "quick_gelu"'
    ):
        nn.load(tmp_path)


def test_eos_as_padding(tmp_path: Path) -> None:
    """GPT-2 and SmolLM2 pad with EOS: real ones are seen and learned, only a mask hides any."""
    made = make(transformers, torch, "gpt2", pad_token_id=2)
    made.save_pretrained(tmp_path)
    ids = np.array([[3, 2, 5, 2, 2]])
    real = np.array([[True, True, True, True, False]])
    ours = nn.load(tmp_path)
    close(ours(ids).data, logits(made, ids))
    labels = np.where(real, ids, -100)
    expected = made(
        torch.tensor(ids), attention_mask=torch.tensor(real).long(), labels=torch.tensor(labels)
    ).loss
    assert ours.loss(ids, real).item() == pytest.approx(expected.item(), rel=1e-5)


def test_positions_of_roberta_with_padding_in_between(tmp_path: Path) -> None:
    made = make(transformers, torch, "roberta, masked")
    made.save_pretrained(tmp_path)
    ids, real = batch(made)
    ids[0, 4], real[0, 4] = 1, False
    close(
        nn.load(tmp_path)(ids, real).data[real],
        logits(made, ids, attention_mask=real.astype(int))[real],
    )


def test_what_mpnet_and_the_heads_of_roberta_say_in_code_alone_is_refused_elsewhere(
    tmp_path: Path,
) -> None:
    for name, changes in (
        ("mpnet", {"pad_token_id": 0}),
        ("mpnet", {"relative_attention_num_buckets": 64}),
        ("mpnet, masked", {"hidden_act": "relu"}),
        ("roberta, masked", {"hidden_act": "relu"}),
        ("electra, masked", {"hidden_act": "relu"}),
    ):
        make(transformers, torch, name, **changes).save_pretrained(tmp_path)
        with pytest.raises(
            ValueError,
            match=rf"config.json: {next(iter(changes))}: expected (gelu|1|32) \(others are",
        ):
            nn.load(tmp_path)


def test_a_bucket_of_mpnet_for_each_distance(tmp_path: Path) -> None:
    made = make(transformers, torch, "mpnet", max_position_embeddings=302)
    made.save_pretrained(tmp_path)
    ids = np.random.default_rng(5).integers(3, 48, (1, 300))
    with torch.no_grad():
        close(nn.load(tmp_path)(ids).data, made(torch.tensor(ids)).last_hidden_state.numpy())


@pytest.mark.parametrize("name", ["mistral", "qwen2, window"])
def test_beyond_the_window(tmp_path: Path, name: str) -> None:
    made = make(transformers, torch, name)
    made.save_pretrained(tmp_path)
    ours = nn.load(tmp_path)
    close(ours(IDS).data, logits(made, IDS))
    attention = replace(ours.config.attention, window=None, window_layers=None)
    whole = nn.LanguageModel(replace(ours.config, attention=attention))
    whole.load_state_dict(ours.state_dict())
    assert np.abs(whole.eval()(IDS).data - ours(IDS).data).max() > 1e-3
    np.testing.assert_allclose(
        whole(IDS[:, :4]).data, ours(IDS[:, :4]).data, atol=1e-6
    )  # equal up to its length


def test_a_vocabulary_wider_than_the_tokenizer_is_no_matter(tmp_path: Path) -> None:
    made = make(transformers, torch, "qwen2", vocab_size=64)
    made.save_pretrained(tmp_path)
    close(nn.load(tmp_path)(IDS).data, logits(made, IDS))


def test_older_t5_with_a_head_of_its_own(tmp_path: Path) -> None:
    """v1.1 and flan: lm_head in the file, tie_word_embeddings false, and the decoder's output not scaled."""
    made = make(transformers, torch, "t5, gated")
    made.save_pretrained(tmp_path)
    file = SafetensorsFile(tmp_path / "model.safetensors")
    head = np.random.default_rng(0).standard_normal((VOCAB, 16)).astype(np.float32)
    write_safetensors(
        tmp_path / "model.safetensors",
        {**{n: file.read(n) for n in file}, "lm_head.weight": head},
        {"format": "pt"},
    )
    settings = json.loads((tmp_path / "config.json").read_text())
    settings.pop("scale_decoder_outputs", None)
    (tmp_path / "config.json").write_text(json.dumps({**settings, "tie_word_embeddings": False}))
    ours = nn.load(tmp_path)
    target = IDS[:, :5]
    with torch.no_grad():
        hidden = made.decoder(
            torch.tensor(target),
            encoder_hidden_states=made.encoder(torch.tensor(IDS)).last_hidden_state,
        ).last_hidden_state.numpy()
    close(ours(IDS, target).data, hidden @ head.T)
    nn.save(tmp_path / "again", ours)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        tmp_path / "model.safetensors"
    ).read_bytes()


def test_an_older_pythia(tmp_path: Path) -> None:
    """Its rotary settings have names of their own, and its file has masks and angles, too."""
    make(transformers, torch, "gpt_neox").save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings |= {"rotary_pct": 0.5, "rotary_emb_base": 500}
    del settings["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    file, begin = SafetensorsFile(tmp_path / "model.safetensors"), "gpt_neox.layers.1.attention."
    arrays = {name: file.read(name) for name in file} | {
        begin + "bias": np.tri(40, dtype=bool)[None, None], begin + "masked_bias": np.float32(-1e9)[None],
        begin + "rotary_emb.inv_freq": np.ones(2, np.float32),
    }  # fmt: skip
    write_safetensors(tmp_path / "model.safetensors", arrays, {"format": "pt"})
    ours, theirs = (
        nn.load(tmp_path),
        transformers.GPTNeoXForCausalLM.from_pretrained(tmp_path, dtype=torch.float32),
    )
    close(ours(IDS).data, logits(theirs.eval(), IDS))
    nn.save(tmp_path / "again", ours)
    assert (tmp_path / "again/model.safetensors").read_bytes() == (
        tmp_path / "model.safetensors"
    ).read_bytes()


def test_the_files_dtype(tmp_path: Path) -> None:
    made = make(transformers, torch, "llama").to(torch.bfloat16)
    made.save_pretrained(tmp_path / "1")
    ours = nn.load(tmp_path / "1")
    theirs = type(made).from_pretrained(tmp_path / "1", dtype=torch.float32).eval()
    close(ours(IDS).data, logits(theirs, IDS))
    nn.save(tmp_path / "2", ours, dtype="bfloat16")
    assert (tmp_path / "1/model.safetensors").read_bytes() == (
        tmp_path / "2/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["gpt2", "bert, classes", "marian"])
def test_one_of_many_shards(tmp_path: Path, name: str) -> None:
    made = make(transformers, torch, name)
    made.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ours = nn.load(tmp_path)
    ids, real = batch(made)
    found = ours(ids, ids, real) if isinstance(ours, nn.Transformer) else ours(ids, real)
    extra = {"decoder_input_ids": ids} if isinstance(ours, nn.Transformer) else {}
    expected = logits(made, ids, attention_mask=real.astype(int), **extra)
    where = real if found.ndim == 3 and not extra else np.ones(found.shape[:1], bool)
    close(found.data[where], expected[where])
    again = tmp_path / "again"
    nn.save(again, ours, max_shard_size="4KB")
    assert (
        len(list(again.glob("model-*-of-*.safetensors"))) > 2
        and not (again / "model.safetensors").exists()
    )
    theirs, report = type(made).from_pretrained(
        again, output_loading_info=True, dtype=torch.float32
    )
    assert not any(report.values()), report
    assert all(
        torch.equal(a, b) for a, b in zip(theirs.state_dict().values(), made.state_dict().values())
    )
    nn.save(again, nn.load(again))  # in one file; the others are gone
    assert {p.name for p in again.glob("model*")} == {"model.safetensors"}
    made.save_pretrained(tmp_path / "whole")
    assert (again / "model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()
    with pytest.raises(
        ValueError, match=r'max_shard_size: expected a number of bytes or .*"5GB", got \'5 gigs\''
    ):
        nn.save(again, ours, max_shard_size="5 gigs")


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_a_head_for_a_bare_encoder_is_for_all_to_load(tmp_path: Path, name: str) -> None:
    make(transformers, torch, name).save_pretrained(tmp_path / "bare")
    ours = nn.load(tmp_path / "bare", head="classes", num_classes=4)
    nn.save(tmp_path / "classes", ours)
    kind = transformers.AutoModelForSequenceClassification
    theirs, report = kind.from_pretrained(
        tmp_path / "classes", output_loading_info=True, dtype=torch.float32
    )
    assert not any(report.values()) and theirs.config.num_labels == 4
    close(ours(IDS).data, logits(theirs.eval(), IDS))


_LLAMA: dict[str, Any] = {
    "norm": "rms", "norm_eps": 1e-6, "gated": True, "activation": "silu", "bias": False, "positions": "rotary",
}  # fmt: skip
_BERT: dict[str, Any] = {
    "positions": "learned", "embeddings": nn.EmbeddingConfig(scale=False, norm=True), "activation": "gelu",
    "norm_eps": 1e-12,
}  # fmt: skip
MADE_HERE: list[tuple[str, type[nn.Module], Any]] = [
    ("GPT2LMHeadModel", nn.LanguageModel, nn.LanguageModelConfig(VOCAB, 16, 4, 2, 32)),
    ("LlamaForCausalLM", nn.LanguageModel, nn.LanguageModelConfig(VOCAB, 16, 4, 2, 32, attention=nn.AttentionConfig(num_kv_heads=2), tie=False, **_LLAMA)),
    ("LlamaForCausalLM", nn.LanguageModel, nn.LanguageModelConfig(VOCAB, 16, 4, 2, 32, attention=nn.AttentionConfig(bias="vkqo"), **_LLAMA)),
    ("MarianMTModel", nn.Transformer, nn.TransformerConfig(VOCAB, VOCAB, 16, 4, 2, 3, 32, positions="sinusoidal_halves")),
    ("MarianMTModel", nn.Transformer, nn.TransformerConfig(VOCAB, VOCAB, 16, 4, 2, 3, 32, tie="target", positions="sinusoidal_halves")),
    ("MarianMTModel", nn.Transformer, nn.TransformerConfig(VOCAB, VOCAB, 16, 4, 2, 3, 32, tie="all", positions="sinusoidal_halves")),
    ("BertForMaskedLM", nn.MaskedLanguageModel, nn.EncoderConfig(VOCAB, 16, 4, 2, 32, num_types=2, **_BERT)),
    ("BertForTokenClassification", nn.TokenClassifier, nn.EncoderConfig(VOCAB, 16, 4, 2, 32, num_types=2, num_classes=3, **_BERT)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "config"), MADE_HERE)
def test_models_made_here_are_for_all_to_load(
    tmp_path: Path, name: str, kind: Any, config: Any
) -> None:
    ours = kind(config)
    for parameter in ours.parameters():
        parameter.data[...] += 0.1 * np.random.default_rng(1).standard_normal(parameter.shape)
    nn.save(tmp_path, ours.eval())
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]
    kind = getattr(transformers, name)
    theirs, report = kind.from_pretrained(tmp_path, output_loading_info=True, dtype=torch.float32)
    assert not any(report.values())
    if name == "MarianMTModel":
        close(ours(IDS, IDS).data, logits(theirs.eval(), IDS, decoder_input_ids=IDS))
    else:
        close(ours(IDS).data, logits(theirs.eval(), IDS))
