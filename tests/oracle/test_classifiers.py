"""Classifiers that transformers wrote: the same labels and probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import nn

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "is", "it", "late", "?"]
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
LABELS = {0: "good", 1: "bad", 2: "odd"}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Bert", SIZES),
        ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
        ("Roberta", SIZES | {"pad_token_id": 0}),
    ],
)
def test_classifier_equals_the_pipeline_of_transformers(
    tmp_path: Path, name: str, sizes: dict[str, Any]
) -> None:
    words = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=20, **special
    )
    kind = getattr(transformers, f"{name}ForSequenceClassification")
    config = kind.config_class(
        vocab_size=len(WORDS),
        max_position_embeddings=40,
        id2label=LABELS,
        label2id={label: i for i, label in LABELS.items()},
        initializer_range=0.3,
        **sizes,
    )
    model = kind(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["the cat sat", "is it late ?", "cat", "late late the dog"]
    pipeline = transformers.pipeline("text-classification", model, tokenizer=tokenizer, top_k=None)
    labels, probabilities = nn.classifier(tmp_path)(texts, batch_size=3)
    for scores, label, row in zip(pipeline(texts), labels, probabilities, strict=True):
        assert label == scores[0]["label"]
        expected = {score["label"]: score["score"] for score in scores}
        np.testing.assert_allclose(row, [expected[label] for label in LABELS.values()], atol=1e-5)


@pytest.mark.parametrize(
    "name", ["Bert", "XLMRoberta", "Roberta", "DistilBert", "Electra", "MPNet"]
)
def test_reranker_equals_the_scores_of_transformers(tmp_path: Path, name: str) -> None:
    """Of a cross-encoder with one output, and pairs that are cut."""
    is_bert = name in ("Bert", "Electra")
    words = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if is_bert else "[CLS] $A [SEP] [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=12, pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", unk_token="[UNK]",
    )  # fmt: skip
    kind = getattr(transformers, f"{name}ForSequenceClassification")
    sizes: dict[str, Any] = SIZES
    if name == "DistilBert":
        sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
    pad_id = 1 if name == "MPNet" else 0  # the only one that MPNet has
    config = kind.config_class(
        vocab_size=len(WORDS), max_position_embeddings=40, num_labels=1, initializer_range=0.3,
        pad_token_id=pad_id, **({"type_vocab_size": 1} if "oberta" in name else {}), **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    model = kind(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    question = "is the cat late?"
    texts = [
        "the cat sat",
        "it is",
        "is it the late late late cat that sat and sat and sat?",
        "cat",
    ]
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    batch = tokenizer([question] * 4, texts, return_token_type_ids=is_bert, **options)
    expected = model(**batch).logits.detach().numpy()[:, 0]
    assert np.ptp(expected) > 0.05
    scores = nn.reranker(tmp_path)(question, texts, batch_size=3)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    with pytest.raises(ValueError, match="at least 2 classes, got 1; nn.reranker scores pairs"):
        nn.classifier(tmp_path)
