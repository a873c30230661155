"""The families of published models by the `model_type` of their config.json."""

from __future__ import annotations

from .bart import M2M100, Bart, Marian, MBart
from .bert import Albert, Bert, DistilBert, Electra, MPNet, Roberta, ViT, XLMRoberta
from .family import Family
from .gpt import GPT2, OPT, GPTNeoX
from .llama import Gemma, Llama, Mistral, Phi3, Qwen2, Qwen3, SmolLM3
from .t5 import T5

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "albert": Albert(),
    "bart": Bart(),
    "bert": Bert(),
    "distilbert": DistilBert(),
    "electra": Electra(),
    "gemma": Gemma(),
    "gpt2": GPT2(),
    "gpt_neox": GPTNeoX(),
    "llama": Llama(),
    "m2m_100": M2M100(),
    "marian": Marian(),
    "mbart": MBart(),
    "mistral": Mistral(),
    "mpnet": MPNet(),
    "opt": OPT(),
    "phi3": Phi3(),
    "qwen2": Qwen2(),
    "qwen3": Qwen3(),
    "roberta": Roberta(),
    "smollm3": SmolLM3(),
    "t5": T5(),
    "vit": ViT(),
    "xlm-roberta": XLMRoberta(),
}
