"""GPT-NeoX and Pythia: a decoder whose attention and feed-forward layer are parallel, with partly rotated heads.

Source: Black et al. 2022, arXiv:2204.06745, and transformers' GPTNeoXForCausalLM.
"""

from typing import Any

from mini_tf.hf.config_json import LARGEST
from mini_tf.hf.families import Config, ConfigKey, Head, Names, value_of
from mini_tf.hf.families._architectures import (
    ACTIVATIONS,
    DecoderFamily,
    decoder_heads,
    rotary_config,
    rotary_section,
    rotary_settings,
)
from mini_tf.hf.layouts import by_head


class Settings(DecoderFamily):
    PREFIX = "gpt_neox."
    HEADS = decoder_heads("GPTNeoX", "ForCausalLM")
    KEYS = (
        ConfigKey("hidden_size", "d_model"),
        ConfigKey("num_hidden_layers", "n_layers"),
        ConfigKey("num_attention_heads", "n_heads"),
        ConfigKey("intermediate_size", "d_ff"),
        ConfigKey("hidden_act", "activation", "gelu", ACTIVATIONS),
        ConfigKey("layer_norm_eps", "norm_eps", 1e-5),
        ConfigKey("use_parallel_residual", "parallel", True),
        ConfigKey("tie_word_embeddings", "tied", False),
    )
    FIXED = {"norm": "layer", "bias": True}
    ONLY = {"attention_bias": True}
    NAMES = {"embedding.tokens": ".embed_in", "stack.norm": ".final_layer_norm"}
    LAYER = {
        "self_attn.norm": "input_layernorm",
        "self_attn.part.out": "attention.dense",
        "feed_forward.norm": "post_attention_layernorm",
        "feed_forward.part.up": "mlp.dense_h_to_4h",
        "feed_forward.part.down": "mlp.dense_4h_to_h",
    }
    LAYERS = ".layers"
    OUTPUT = "embed_out"
    TIED = {"embed_out.weight": ".embed_in.weight"}
    COMPUTED = r"\.?layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"

    def positions(self, config: Config) -> dict[str, Any]:
        return rotary_settings(config, "rotary_emb_base") | {"share": self._share(config)}

    def _share(self, config: Config) -> float:
        """The share of the dimensions of a head that are rotated."""
        head_dim = config.integer("hidden_size") // config.integer("num_attention_heads")
        rope = rotary_section(config)
        keys, key = (rope, "partial_rotary_factor") if rope.has("partial_rotary_factor") else (config, "rotary_pct")
        share = keys.number(key, 0.25)
        rotated = int(min(head_dim * share, LARGEST))
        if rotated != 1 and rotated not in range(2, head_dim + 1, 2):  # of one dimension both rotate a pair
            must = f"which must be an even number from 2 to {head_dim}"
            keys.refuse(key, f"of {head_dim} dimensions of a head it rotates {rotated}, {must}")
        return share

    def positions_config(self, model: Any) -> dict[str, Any]:
        share = value_of(model.positions, "share", 1.0)
        return {"rope_parameters": rotary_config(model.positions) | {"partial_rotary_factor": share}}

    def names(self, model: Any, head: Head) -> Names:
        qkv = by_head(".layers.{i}.attention.query_key_value", model.n_heads)
        return {**super().names(model, head), "stack.layers.{i}.self_attn.part.qkv": qkv}
