"""Llama: a decoder with rotary positions, RMSNorm, SwiGLU and grouped queries, without biases.

Source: Touvron et al. 2023, arXiv:2302.13971, and transformers' LlamaForCausalLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._stacks import (
    ENDS,
    decoder_heads,
    output_layer,
    rotary_config,
    rotary_section,
    rotary_settings,
    within,
)

LAYER = {
    "own.norm": "input_layernorm",
    "own.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "own.part.out": "self_attn.o_proj",
    "feed_forward.norm": "post_attention_layernorm",
    "feed_forward.part.up": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.part.down": "mlp.down_proj",
}


class Settings(Family):
    MODEL = "decoder"
    PREFIX = "model."
    HEADS = decoder_heads("Llama", "ForCausalLM")
    POOLS = ENDS
    TIED = {"lm_head.weight": ".embed_tokens.weight"}
    SEPARATOR = "bos_token"
    NO_EFFECT = "pretraining_tp|is_llama_config"
    COMPUTED = r".*\.rotary_emb\.inv_freq"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("hidden_act", "silu")
        config.only("rope_interleaved", False)
        for keys in (config, rotary_section(config)):
            keys.only("partial_rotary_factor", 1.0, 1)
        bias, tied = config.flag("attention_bias", False), config.flag("tie_word_embeddings", False)
        if bias != config.flag("mlp_bias", False):
            config.refuse(
                "mlp_bias", "minitf has biases in all linear layers or in none, so it must equal attention_bias"
            )
        n_heads = config.integer("num_attention_heads")
        return {
            "d_model": config.integer("hidden_size"),
            "n_layers": config.integer("num_hidden_layers"),
            "n_heads": n_heads,
            "n_kv_heads": config.integer("num_key_value_heads", n_heads),
            "d_k": config.integer("head_dim", max(1, config.integer("hidden_size") // n_heads)),
            "d_ff": config.integer("intermediate_size"),
            "activation": "swiglu",
            "norm": "rms",
            "norm_eps": config.number("rms_norm_eps", 1e-6),
            "bias": bias,
            "tied": tied or head.objective is None,
            "positions": rotary_settings(config, "rope_theta"),
        }

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return {
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "num_attention_heads": model.n_heads,
            "num_key_value_heads": model.n_kv_heads or model.n_heads,
            "head_dim": model.head_dim,
            "intermediate_size": model.hidden_dim,
            "hidden_act": "silu",
            "rms_norm_eps": model.norm_eps,
            "attention_bias": model.bias,
            "mlp_bias": model.bias,
            "tie_word_embeddings": model.tied,
            "max_position_embeddings": facts.context,
            "rope_parameters": rotary_config(model.positions),
            "vocab_size": facts.vocabulary.size,
        }

    def names(self, model: Any, head: Head) -> Names:
        return {
            "embedding.tokens": Layout(".embed_tokens"),
            **within("stack", LAYER, ".layers"),
            "stack.norm": Layout(".norm"),
            "head.linear": output_layer(head, "lm_head"),
        }
