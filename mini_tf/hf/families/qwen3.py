"""Qwen3: Llama with normalized queries and keys, each with a learned weight.

Theirs have the epsilon of the other norms, ours that of fp32: W_Q and W_K are scaled by the square root of the ratio.
Source: Yang et al. 2025, arXiv:2505.09388, and transformers' Qwen3ForCausalLM.
"""

from typing import Any

import torch

from mini_tf.hf.families import Config, Head, Names
from mini_tf.hf.families._architectures import DecoderFamily, decoder_heads
from mini_tf.hf.families._llama_layers import LlamaLayers, llama_keys
from mini_tf.hf.layouts import GgufArchitecture, ScaledParts
from mini_tf.nn.attention import qk_norm_eps

FULL = "full_attention"


class Settings(DecoderFamily, LlamaLayers):
    HEADS = decoder_heads("Qwen3", "ForCausalLM")
    KEYS = tuple(key for key in llama_keys(1e-6, head_dim=128) if key.ours != "bias")
    FIXED = {**LlamaLayers.FIXED, "attention": {"kind": "softmax", "qk_norm": "weight"}}
    ONLY = {"attention_bias": False, "use_sliding_window": False}
    LAYER = {
        **LlamaLayers.LAYER,
        "self_attn.part.q_norm": "self_attn.q_norm.weight",
        "self_attn.part.k_norm": "self_attn.k_norm.weight",
    }
    GGUF = (
        GgufArchitecture("qwen3", False, ("silu",), scaled=False),
        GgufArchitecture("apertus", False, ("relu",), gate=False, xielu=True),
    )
    OUTPUT = "lm_head"
    SEPARATOR = "bos_token"
    NO_EFFECT = "sliding_window|max_window_layers"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        types = config.get("layer_types")
        if types is not None and types != [FULL] * config.integer("num_hidden_layers"):
            config.refuse("layer_types", f"it must be {FULL} for each layer")
        return super().settings(config, head)

    def names(self, model: Any, head: Head) -> Names:
        factor = (qk_norm_eps(torch.float32) / model.norm_eps) ** 0.5
        qkv = [f".layers.{{i}}.{name}" for name in self.LAYER["self_attn.part.qkv"]]
        return {
            **super().names(model, head),
            "stack.layers.{i}.self_attn.part.qkv": ScaledParts(qkv, (factor, factor, 1)),
        }
