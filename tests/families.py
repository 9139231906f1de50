"""Tiny random models of Hugging Face's families, saved as folders with a tokenizer of words w0, w1, ..."""

import functools
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, pre_tokenizers

V, CONTEXT = 48, 40
SPECIAL = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "[MASK]": 4}


@functools.cache
def transformers() -> Any:
    """transformers, without its progress bars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers as module
    module.utils.logging.disable_progress_bar()
    return module


def words(size: int = V) -> tokenizers.Tokenizer:
    """Special tokens, then w5, w6, ... up to `size` ids; texts are split at spaces."""
    vocabulary = SPECIAL | {f"w{id}": id for id in range(len(SPECIAL), size)}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([*SPECIAL])
    return inner


def made(architecture: str, config: str, **settings: Any) -> Any:
    """A model with random weights, in which no norm is 1 and no bias 0, so that a mistaken one would show."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers(), architecture)(getattr(transformers(), config)(**settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape)
            elif "relative_attention_bias" in name:
                parameter.normal_()
    return model


def saved(model: Any, folder: Path, **more: Any) -> Path:
    """The model as transformers saves it, with its tokenizer; more: keys of config.json."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    words(model.config.vocab_size).save(str(folder / "tokenizer.json"))
    if more:
        change_config(folder, more)
    return folder


def change_config(folder: Path, changes: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(changes)))


IDS = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2}
LLAMA = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "initializer_range": 0.2}
BERT = LLAMA
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama, grouped queries, wide heads, tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA | {"num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": True, "rope_theta": 500.0},
    ),
    "llama, biases": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-3}),
    "llama without a head": ("LlamaModel", "LlamaConfig", LLAMA),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2, untied, relu": (
        "GPT2LMHeadModel",
        "GPT2Config",
        GPT2 | {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": 20},
    ),
    "gpt2 without a head": ("GPT2Model", "GPT2Config", GPT2 | {"layer_norm_epsilon": 1e-3}),
    "bert": ("BertForMaskedLM", "BertConfig", BERT),
    "bert, 3 types, untied": ("BertForMaskedLM", "BertConfig", BERT | {"type_vocab_size": 3, "tie_word_embeddings": False}),
    "bert, next sentence": ("BertForPreTraining", "BertConfig", BERT | {"hidden_act": "gelu_new"}),
    "bert without a head": ("BertModel", "BertConfig", BERT),
    "bert, tags": ("BertForTokenClassification", "BertConfig", BERT | {"id2label": {0: "O", 1: "B-x", 2: "I-x"}}),
}
"""By name: architecture, class of its configuration, settings."""


def folder_of(case: str, folder: Path, **more: Any) -> Path:
    """The saved model of a case."""
    architecture, config, settings = CASES[case]
    return saved(made(architecture, config, **IDS | settings), folder, **more)
