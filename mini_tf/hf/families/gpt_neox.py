"""GPT-NeoX and Pythia: a decoder whose attention and feed-forward layer are parallel, with partly rotated heads.

Source: Black et al. 2022, arXiv:2204.06745, and transformers' GPTNeoXForCausalLM.
"""

from typing import Any

from mini_tf.hf.config_json import LARGEST
from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._stacks import (
    ACTIVATIONS,
    ENDS,
    decoder_heads,
    output_layer,
    rotary_config,
    rotary_section,
    rotary_settings,
    their_word,
    value_of,
    within,
)
from mini_tf.hf.layouts import ByHead

LAYER = {
    "own.norm": "input_layernorm",
    "own.part.out": "attention.dense",
    "feed_forward.norm": "post_attention_layernorm",
    "feed_forward.part.up": "mlp.dense_h_to_4h",
    "feed_forward.part.down": "mlp.dense_4h_to_h",
}


class Settings(Family):
    MODEL = "decoder"
    PREFIX = "gpt_neox."
    HEADS = decoder_heads("GPTNeoX", "ForCausalLM")
    POOLS = ENDS
    TIED = {"embed_out.weight": ".embed_in.weight"}
    COMPUTED = r"\.?layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("attention_bias", True)
        tied = config.flag("tie_word_embeddings", False)
        width, n_heads = config.integer("hidden_size"), config.integer("num_attention_heads")
        return {
            "d_model": width,
            "n_layers": config.integer("num_hidden_layers"),
            "n_heads": n_heads,
            "d_ff": config.integer("intermediate_size"),
            "activation": config.word("hidden_act", ACTIVATIONS, "gelu"),
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps", 1e-5),
            "bias": True,
            "parallel": config.flag("use_parallel_residual", True),
            "tied": tied or head.objective is None,
            "positions": rotary_settings(config, "rotary_emb_base") | {"share": self._share(config, width // n_heads)},
        }

    def _share(self, config: Config, head_dim: int) -> float:
        """The share of the dimensions of a head that are rotated."""
        rope = rotary_section(config)
        keys, key = (rope, "partial_rotary_factor") if rope.has("partial_rotary_factor") else (config, "rotary_pct")
        share = keys.number(key, 0.25)
        rotated = int(min(head_dim * share, LARGEST))
        if rotated != 1 and rotated not in range(2, head_dim + 1, 2):  # of one dimension both rotate a pair
            keys.refuse(
                key,
                f"of {head_dim} dimensions of a head it rotates {rotated}, which must be an even number from 2 to"
                f" {head_dim}",
            )
        return share

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return {
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "num_attention_heads": model.n_heads,
            "intermediate_size": model.hidden_dim,
            "hidden_act": their_word(model.activation, ACTIVATIONS),
            "layer_norm_eps": model.norm_eps,
            "use_parallel_residual": model.parallel,
            "tie_word_embeddings": model.tied,
            "max_position_embeddings": facts.context,
            "rope_parameters": (
                rotary_config(model.positions) | {"partial_rotary_factor": value_of(model.positions, "share", 1.0)}
            ),
            "vocab_size": facts.vocabulary.size,
        }

    def names(self, model: Any, head: Head) -> Names:
        return {
            "embedding.tokens": Layout(".embed_in"),
            **within("stack", LAYER, ".layers"),
            "stack.layers.{i}.own.part.qkv": ByHead(".layers.{i}.attention.query_key_value", model.n_heads),
            "stack.norm": Layout(".final_layer_norm"),
            "head.linear": output_layer(head, "embed_out"),
        }
