"""What Llama, Qwen3 and EuroBERT share: RMSNorm, rotary positions, gated feed-forward layers, and their names."""

from typing import Any

from mini_tf.hf.families import Config, ConfigKey, Facts, Family, Head
from mini_tf.hf.families._architectures import rotary_config, rotary_section, rotary_settings

GATED = {
    "silu": "swiglu",
    "gelu": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "relu": "reglu",
}
"""Their words for the activation of a gate, and ours."""


def as_heads(config: Config) -> int:
    """The default of num_key_value_heads."""
    return config.integer("num_attention_heads")


def llama_keys(eps: float, n_kv_heads: Any = None, head_dim: int | None = None) -> tuple[ConfigKey, ...]:
    """`Family.KEYS`, by the defaults that differ. n_kv_heads: None if the key is required. head_dim: None if usual."""

    def usual(config: Config) -> int:
        return max(1, config.integer("hidden_size") // config.integer("num_attention_heads"))

    return (
        ConfigKey("hidden_size", "d_model"),
        ConfigKey("num_hidden_layers", "n_layers"),
        ConfigKey("num_attention_heads", "n_heads"),
        ConfigKey("num_key_value_heads", "n_kv_heads", n_kv_heads),
        ConfigKey("head_dim", "d_k", head_dim or usual),
        ConfigKey("intermediate_size", "d_ff"),
        ConfigKey("hidden_act", "activation", "silu", GATED),
        ConfigKey("rms_norm_eps", "norm_eps", eps),
        ConfigKey("attention_bias", "bias", False),
        ConfigKey("mlp_bias", "bias", False),
        ConfigKey("tie_word_embeddings", "tied", False),
    )


class LlamaLayers(Family):
    PREFIX = "model."
    FIXED = {"norm": "rms"}
    NAMES = {"embedding.tokens": ".embed_tokens", "stack.norm": ".norm"}
    LAYER = {
        "self_attn.norm": "input_layernorm",
        "self_attn.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.part.out": "self_attn.o_proj",
        "feed_forward.norm": "post_attention_layernorm",
        "feed_forward.part.up": ("mlp.gate_proj", "mlp.up_proj"),
        "feed_forward.part.down": "mlp.down_proj",
    }
    LAYERS = ".layers"
    TIED = {"lm_head.weight": ".embed_tokens.weight"}
    COMPUTED = r".*\.rotary_emb\.inv_freq"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        for keys in (config, rotary_section(config)):
            keys.only("partial_rotary_factor", 1.0, 1)
        bias = config.flag("attention_bias", False)
        if bias != config.flag("mlp_bias", False):
            must = "minitf has biases in all linear layers or in none, so it must equal attention_bias"
            config.refuse("mlp_bias", must)
        return super().settings(config, head) | {"bias": bias}

    def positions(self, config: Config) -> dict[str, Any]:
        return rotary_settings(config, "rope_theta")

    def positions_config(self, model: Any) -> dict[str, Any]:
        return {"rope_parameters": rotary_config(model.positions)}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return super().config(model, facts) | {"num_key_value_heads": model.n_kv_heads or model.n_heads}
