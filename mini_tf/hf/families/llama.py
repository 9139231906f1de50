"""Llama: a decoder with rotary positions, RMSNorm, SwiGLU and grouped queries, without biases.

Source: Touvron et al. 2023, arXiv:2302.13971, and transformers' LlamaForCausalLM.
"""

from typing import Any

from mini_tf.hf.families import Config, ConfigKey, Facts, Head
from mini_tf.hf.families._architectures import (
    DecoderFamily,
    decoder_heads,
    rotary_config,
    rotary_section,
    rotary_settings,
)


def head_width(config: Config) -> int:
    """The default of head_dim."""
    return max(1, config.integer("hidden_size") // config.integer("num_attention_heads"))


class Settings(DecoderFamily):
    PREFIX = "model."
    HEADS = decoder_heads("Llama", "ForCausalLM")
    KEYS = (
        ConfigKey("hidden_size", "d_model"),
        ConfigKey("num_hidden_layers", "n_layers"),
        ConfigKey("num_attention_heads", "n_heads"),
        ConfigKey("num_key_value_heads", "n_kv_heads", lambda config: config.integer("num_attention_heads")),
        ConfigKey("head_dim", "d_k", head_width),
        ConfigKey("intermediate_size", "d_ff"),
        ConfigKey("hidden_act", "", "silu"),
        ConfigKey("rms_norm_eps", "norm_eps", 1e-6),
        ConfigKey("attention_bias", "bias", False),
        ConfigKey("mlp_bias", "bias", False),
        ConfigKey("tie_word_embeddings", "tied", False),
    )
    FIXED = {"activation": "swiglu", "norm": "rms"}
    ONLY = {"rope_interleaved": False}
    NAMES = {"embedding.tokens": ".embed_tokens", "stack.norm": ".norm"}
    LAYER = {
        "own.norm": "input_layernorm",
        "own.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "own.part.out": "self_attn.o_proj",
        "feed_forward.norm": "post_attention_layernorm",
        "feed_forward.part.up": ("mlp.gate_proj", "mlp.up_proj"),
        "feed_forward.part.down": "mlp.down_proj",
    }
    LAYERS = ".layers"
    OUTPUT = "lm_head"
    TIED = {"lm_head.weight": ".embed_tokens.weight"}
    SEPARATOR = "bos_token"
    NO_EFFECT = "pretraining_tp|is_llama_config"
    COMPUTED = r".*\.rotary_emb\.inv_freq"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        for keys in (config, rotary_section(config)):
            keys.only("partial_rotary_factor", 1.0, 1)
        bias = config.flag("attention_bias", False)
        if bias != config.flag("mlp_bias", False):
            config.refuse(
                "mlp_bias", "minitf has biases in all linear layers or in none, so it must equal attention_bias"
            )
        return super().settings(config, head) | {"bias": bias}

    def positions(self, config: Config) -> dict[str, Any]:
        return rotary_settings(config, "rope_theta")

    def positions_config(self, model: Any) -> dict[str, Any]:
        return {"rope_parameters": rotary_config(model.positions)}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return super().config(model, facts) | {"num_key_value_heads": model.n_kv_heads or model.n_heads}
