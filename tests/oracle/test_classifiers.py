"""Classifiers that transformers wrote: the same labels and probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
