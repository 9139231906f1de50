"""GPT-2: a decoder with learned positions, LayerNorm and biases, whose matrices are stored transposed.

Source: Radford et al. 2019, and transformers' GPT2LMHeadModel.
"""

from typing import Any

from mini_tf.hf.families import ConfigKey, Head, Names
from mini_tf.hf.families._architectures import ACTIVATIONS, GELUS, DecoderFamily, decoder_heads
from mini_tf.hf.layouts import GgufArchitecture, transposed

MATRICES = {
    "self_attn.part.qkv": "attn.c_attn",
    "self_attn.part.out": "attn.c_proj",
    "feed_forward.part.up": "mlp.c_fc",
    "feed_forward.part.down": "mlp.c_proj",
}


class Settings(DecoderFamily):
    PREFIX = "transformer."
    HEADS = decoder_heads("GPT2", "LMHeadModel")
    KEYS = (
        ConfigKey("n_embd", "d_model"),
        ConfigKey("n_layer", "n_layers"),
        ConfigKey("n_head", "n_heads"),
        ConfigKey("n_inner", "d_ff", lambda config: 4 * config.integer("n_embd")),
        ConfigKey("activation_function", "activation", "gelu_new", ACTIVATIONS),
        ConfigKey("layer_norm_epsilon", "norm_eps", 1e-5),
        ConfigKey("tie_word_embeddings", "tied", True),
    )
    FIXED = {"norm": "layer", "bias": True}
    ONLY = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}
    CONTEXT = ("n_positions", None)
    NAMES = {"embedding.tokens": ".wte", "embedding.position.table": ".wpe", "stack.norm": ".ln_f"}
    LAYER = {"self_attn.norm": "ln_1", "feed_forward.norm": "ln_2"}
    LAYERS = ".h"
    GGUF = (GgufArchitecture("gpt2", None, GELUS),)
    OUTPUT = "lm_head"
    TIED = {"lm_head.weight": ".wte.weight"}
    NO_EFFECT = "summary_.*|n_ctx|n_special|predict_special_tokens|reorder_and_upcast_attn"
    KEY_ALIASES = {
        **{"hidden_size": "n_embd", "max_position_embeddings": "n_positions"},
        **{"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    }
    COMPUTED = r"\.?h\.\d+\.attn\.(masked_)?bias"

    def names(self, model: Any, head: Head) -> Names:
        matrices = {f"stack.layers.{{i}}.{ours}": transposed(f".h.{{i}}.{name}") for ours, name in MATRICES.items()}
        return {**super().names(model, head), **matrices}
