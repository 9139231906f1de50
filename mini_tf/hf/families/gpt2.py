"""GPT-2: a decoder with learned positions, LayerNorm and biases, whose matrices are stored transposed.

Source: Radford et al. 2019, and transformers' GPT2LMHeadModel.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._stacks import ACTIVATIONS, ENDS, decoder_heads, output_layer, their_word
from mini_tf.hf.layouts import Transposed

LAYER = {
    "own.norm": Layout(".h.{i}.ln_1"),
    "own.part.qkv.weight": Transposed(".h.{i}.attn.c_attn.weight"),
    "own.part.qkv.bias": Layout(".h.{i}.attn.c_attn.bias"),
    "own.part.out.weight": Transposed(".h.{i}.attn.c_proj.weight"),
    "own.part.out.bias": Layout(".h.{i}.attn.c_proj.bias"),
    "feed_forward.norm": Layout(".h.{i}.ln_2"),
    "feed_forward.part.up.weight": Transposed(".h.{i}.mlp.c_fc.weight"),
    "feed_forward.part.up.bias": Layout(".h.{i}.mlp.c_fc.bias"),
    "feed_forward.part.down.weight": Transposed(".h.{i}.mlp.c_proj.weight"),
    "feed_forward.part.down.bias": Layout(".h.{i}.mlp.c_proj.bias"),
}


class Settings(Family):
    MODEL = "decoder"
    PREFIX = "transformer."
    HEADS = decoder_heads("GPT2", "LMHeadModel")
    POOLS = ENDS
    TIED = {"lm_head.weight": ".wte.weight"}
    NO_EFFECT = "summary_.*|n_ctx|n_special|predict_special_tokens|reorder_and_upcast_attn"
    ALIASES = {
        **{"hidden_size": "n_embd", "max_position_embeddings": "n_positions"},
        **{"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    }
    COMPUTED = r"\.?h\.\d+\.attn\.(masked_)?bias"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("scale_attn_weights", True)
        config.only("scale_attn_by_inverse_layer_idx", False)
        width, tied = config.integer("n_embd"), config.flag("tie_word_embeddings", True)
        return {
            "d_model": width,
            "n_layers": config.integer("n_layer"),
            "n_heads": config.integer("n_head"),
            "d_ff": config.integer("n_inner", 4 * width),
            "activation": config.word("activation_function", ACTIVATIONS, "gelu_new"),
            "norm": "layer",
            "norm_eps": config.number("layer_norm_epsilon", 1e-5),
            "bias": True,
            "tied": tied or head.objective is None,
            "positions": {"kind": "learned", "length": config.integer("n_positions")},
        }

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return {
            "n_embd": model.d_model,
            "n_layer": model.n_layers,
            "n_head": model.n_heads,
            "n_inner": model.hidden_dim,
            "activation_function": their_word(model.activation, ACTIVATIONS),
            "layer_norm_epsilon": model.norm_eps,
            "tie_word_embeddings": model.tied,
            "n_positions": model.positions.max_positions(facts.context) or facts.context,
            "vocab_size": facts.vocabulary.size,
        }

    def names(self, model: Any, head: Head) -> Names:
        return {
            "embedding.tokens": Layout(".wte"),
            "embedding.position.table": Layout(".wpe"),
            **{f"stack.layers.{{i}}.{name}": layout for name, layout in LAYER.items()},
            "stack.norm": Layout(".ln_f"),
            "head.linear": output_layer(head, "lm_head"),
        }

    def context(self, config: Config) -> int:
        return config.integer("n_positions")
