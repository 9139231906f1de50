"""Tiny random models of Hugging Face's families, saved as folders with a tokenizer of words w0, w1, ..."""

import functools
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import tokenizers
import torch
from commands import minitf
from safetensors.torch import save_file
from tokenizers import models, pre_tokenizers
from torch import Tensor

from mini_tf.hf.families import Names
from mini_tf.hf.family_choice import as_family, as_other_model
from mini_tf.hf.layouts import read_tensors
from mini_tf.hf.proof import Parity, compare, make_batch
from mini_tf.nn.model import Model
from mini_tf.recipe.kinds import listing, settings_of

V, CONTEXT = 48, 40
NAMES = ("<pad>", "<s>", "</s>", "<unk>", "[MASK]")


@functools.cache
def transformers() -> Any:
    """transformers, without its progress bars; where it is missing, the test is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: Any = pytest.importorskip("transformers")
    module.utils.logging.disable_progress_bar()
    return module


def words(config: Any) -> tokenizers.Tokenizer:
    """Special tokens, of which padding and end have their ids of `config`, and words w5, w6, ... by their ids."""
    given = {"<pad>": config.pad_token_id, "</s>": config.eos_token_id}
    free = iter(sorted({*range(len(NAMES) + 2)} - {*given.values()}))
    special = {name: given[name] if name in given else next(free) for name in NAMES}
    vocabulary = special | {f"w{id}": id for id in range(config.vocab_size) if id not in special.values()}
    inner = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([*NAMES])
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
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.normal_()
        if architecture == "T5ForConditionalGeneration" and not model.config.scale_decoder_outputs:
            model.lm_head.weight = torch.nn.Parameter(0.2 * torch.randn(model.lm_head.weight.shape))  # it was tied
    return model


def saved(model: Any, folder: Path, **more: Any) -> Path:
    """The model as transformers saves it, with its tokenizer; more: keys of config.json."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    words(model.config).save(str(folder / "tokenizer.json"))
    if more:
        change_config(folder, more)
    return folder


def change_config(folder: Path, changes: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(changes)))


IDS = {"vocab_size": V, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2}
LLAMA = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "initializer_range": 0.2}
BERT = LLAMA
DISTILBERT = {
    "dim": 16,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 24,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
}
ROBERTA = BERT | {"pad_token_id": 1, "type_vocab_size": 1}
CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so-so"}}
ELECTRA = BERT | {"embedding_size": 12}
MODERN = {
    "hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2, "local_attention": 6, "cls_token_id": 2, "sep_token_id": 2,
}  # fmt: skip
SIDES = {
    "d_model": 16, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20, "decoder_ffn_dim": 24, "max_position_embeddings": CONTEXT, "init_std": 0.2,
    "forced_eos_token_id": None,
    "decoder_start_token_id": 2,
}  # fmt: skip
T5 = {
    "d_model": 16, "d_kv": 5, "num_heads": 4, "d_ff": 24, "num_layers": 3, "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10, "decoder_start_token_id": 2,
}  # fmt: skip
PERCEIVER = {
    "num_latents": 5, "d_latents": 24, "d_model": 16, "num_blocks": 2, "num_self_attends_per_block": 2,
    "num_self_attention_heads": 2, "num_cross_attention_heads": 2, "qk_channels": 8, "v_channels": 24,
    "max_position_embeddings": CONTEXT, "initializer_range": 0.2,
}  # fmt: skip
# fmt: off
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "llama, grouped queries, wide heads, tied": (
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA | {"num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": True, "rope_theta": 500.0},
    ),
    "llama, biases": ("LlamaForCausalLM", "LlamaConfig",
        LLAMA | {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-3}),
    "llama, positions interpolated": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"rope_parameters": LINEAR}),
    "llama, long wavelengths scaled": ("LlamaForCausalLM", "LlamaConfig",
        LLAMA | {"head_dim": 16, "rope_parameters": LLAMA3}),
    "llama without a head": ("LlamaModel", "LlamaConfig", LLAMA),
    "llama, another gate": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"hidden_act": "relu"}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config",
        LLAMA | {"num_key_value_heads": 2, "head_dim": 6, "rms_norm_eps": 1e-4}),
    "qwen3, tied, classes": ("Qwen3ForSequenceClassification", "Qwen3Config",
        LLAMA | CLASSES | {"num_key_value_heads": 4, "head_dim": 4, "hidden_act": "gelu"}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2, untied, relu": (
        "GPT2LMHeadModel",
        "GPT2Config",
        GPT2 | {"tie_word_embeddings": False, "activation_function": "relu", "n_inner": 20},
    ),
    "gpt2 without a head": ("GPT2Model", "GPT2Config", GPT2 | {"layer_norm_epsilon": 1e-3}),
    "bert": ("BertForMaskedLM", "BertConfig", BERT),
    "bert, 3 types, untied": ("BertForMaskedLM", "BertConfig",
        BERT | {"type_vocab_size": 3, "tie_word_embeddings": False}),
    "bert, next sentence": ("BertForPreTraining", "BertConfig", BERT | {"hidden_act": "gelu_new"}),
    "bert without a head": ("BertModel", "BertConfig", BERT),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", ROBERTA),
    "roberta, 2 types, untied": ("RobertaForMaskedLM", "RobertaConfig",
        ROBERTA | {"type_vocab_size": 2, "tie_word_embeddings": False}),
    "roberta without a head": ("RobertaModel", "RobertaConfig", ROBERTA | {"layer_norm_eps": 1e-3}),
    "xlm_roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", ROBERTA),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT),
    "distilbert, relu": ("DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT | {"activation": "relu"}),
    "distilbert, tags": ("DistilBertForTokenClassification", "DistilBertConfig",
        DISTILBERT | {"id2label": {0: "O", 1: "x"}}),
    "electra": ("ElectraForPreTraining", "ElectraConfig", ELECTRA),
    "electra generator": ("ElectraForMaskedLM", "ElectraConfig", ELECTRA),
    "electra, embeddings as wide as the model": ("ElectraForPreTraining", "ElectraConfig",
        BERT | {"embedding_size": 16}),
    "electra without a head": ("ElectraModel", "ElectraConfig", ELECTRA | {"hidden_act": "relu"}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", LLAMA | {"rotary_pct": 0.5}),
    "gpt_neox, one after the other": (
        "GPTNeoXForCausalLM", "GPTNeoXConfig",
        LLAMA | {"use_parallel_residual": False, "rotary_pct": 1.0, "tie_word_embeddings": True},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", SIDES),
    "bart, scaled embeddings, relu": (
        "BartForConditionalGeneration", "BartConfig", SIDES | {"scale_embedding": True, "activation_function": "relu"},
    ),
    "marian": ("MarianMTModel", "MarianConfig", SIDES | {"scale_embedding": True, "activation_function": "swish"}),
    "marian, separate embeddings": (
        "MarianMTModel", "MarianConfig",
        SIDES | {"activation_function": "relu", "share_encoder_decoder_embeddings": False},
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5 1.1": ("T5ForConditionalGeneration", "T5Config",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5, gated silu": ("T5ForConditionalGeneration", "T5Config", T5 | {"feed_forward_proj": "gated-silu"}),
    "eurobert": ("EuroBertForMaskedLM", "EuroBertConfig", LLAMA | {"classifier_pooling": "late"}),
    "eurobert, biases, tied": ("EuroBertForMaskedLM", "EuroBertConfig",
        LLAMA | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 2}),
    "eurobert, classes": ("EuroBertForSequenceClassification", "EuroBertConfig",
        LLAMA | CLASSES | {"classifier_pooling": "mean"}),
    "eurobert, numbers": ("EuroBertForSequenceClassification", "EuroBertConfig",
        LLAMA | {"num_labels": 1, "classifier_pooling": "bos"}),
    "perceiver": ("PerceiverForMaskedLM", "PerceiverConfig", PERCEIVER),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", MODERN),
    "modernbert, biases, wide windows": (
        "ModernBertForMaskedLM", "ModernBertConfig",
        MODERN | {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True,
            "local_attention": 16},
    ),
    "modernbert without a head": ("ModernBertModel", "ModernBertConfig", MODERN | {"num_hidden_layers": 2}),
    "modernbert, classes": ("ModernBertForSequenceClassification", "ModernBertConfig", MODERN | CLASSES),
    "modernbert, numbers": ("ModernBertForSequenceClassification", "ModernBertConfig",
        MODERN | {"num_labels": 1, "classifier_pooling": "mean", "classifier_bias": True}),
    "modernbert, tags": ("ModernBertForTokenClassification", "ModernBertConfig",
        MODERN | {"id2label": {0: "O", 1: "B-x", 2: "I-x"}, "norm_eps": 1e-3}),
    "bert, classes": ("BertForSequenceClassification", "BertConfig", BERT | CLASSES),
    "roberta, classes": ("RobertaForSequenceClassification", "RobertaConfig", ROBERTA | CLASSES),
    "distilbert, classes": ("DistilBertForSequenceClassification", "DistilBertConfig", DISTILBERT | CLASSES),
    "electra, classes": ("ElectraForSequenceClassification", "ElectraConfig", ELECTRA | CLASSES),
    "bert, numbers": ("BertForSequenceClassification", "BertConfig",
        BERT | {"num_labels": 1, "problem_type": "regression"}),
    "electra, numbers": ("ElectraForSequenceClassification", "ElectraConfig", ELECTRA | {"num_labels": 1}),
    "llama, classes": ("LlamaForSequenceClassification", "LlamaConfig", LLAMA | CLASSES),
    "llama, numbers": ("LlamaForSequenceClassification", "LlamaConfig", LLAMA | {"num_labels": 1}),
    "gpt2, classes": ("GPT2ForSequenceClassification", "GPT2Config", GPT2 | CLASSES),
    "gpt_neox, classes": ("GPTNeoXForSequenceClassification", "GPTNeoXConfig",
        LLAMA | CLASSES | {"num_attention_heads": 2}),
    "bert, tags": ("BertForTokenClassification", "BertConfig", BERT | {"id2label": {0: "O", 1: "B-x", 2: "I-x"}}),
}
# fmt: on
CASES = {name: case for name, case in CASES.items() if re.split(r"[ ,]", name)[0] in listing("hf.families")}
"""By name: architecture, class of its configuration, settings; without the families of absent papers."""


@functools.cache
def _model_of(case: str) -> Any:
    architecture, config, settings = CASES[case]
    return made(architecture, config, **IDS | settings)


def folder_of(case: str, folder: Path, **more: Any) -> Path:
    """The saved model of a case."""
    return saved(_model_of(case), folder, **more)


def imported(source: Path, run: Path) -> dict[str, Any]:
    """Import a folder; the content of parity.json."""
    done = minitf("import", source, "-o", run)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{run}\n"
    return json.loads((run / "parity.json").read_text())  # type: ignore[no-any-return]


def exported(run: Path, out: Path, *options: str) -> dict[str, Any]:
    """Export a run; the content of parity.json."""
    done = minitf("export", run, "-o", out, *options)
    assert done.exit_code == 0, done.stderr
    return json.loads((out / "parity.json").read_text())  # type: ignore[no-any-return]


def written(loaded: Any, family: str, folder: Path) -> Parity:
    """The parity of a model with transformers' one of a family, from weights and a config.json in a folder alone."""
    loaded = as_other_model(loaded, family)
    _, head, config, weights = as_family(loaded, family)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.detach() for name, tensor in weights.items()}, folder / "model.safetensors")
    parity = compare(loaded.model, head, make_batch(loaded.model, loaded.tokenizer.vocabulary), folder)
    assert parity.reader.startswith("transformers")
    return parity


def filled(
    ours: Model, family: str, theirs: Mapping[str, Tensor], more: Names = MappingProxyType({}), head: int = 0
) -> Model:
    """Our model with all weights of theirs, by the names of a family, for one of its heads, and `more`."""
    known: Any = settings_of("hf.families", family)()
    named = {
        f".{name.removeprefix(known.PREFIX)}" if name.startswith(known.PREFIX or "\0") else name: t
        for name, t in theirs.items()
    }
    names = {**known.names(ours.settings, known.HEADS[head]), **more}
    ours.load_weights(read_tensors(ours, names, named))
    assert not any(parameter.isnan().any() for parameter in ours.parameters())
    return ours.eval()
