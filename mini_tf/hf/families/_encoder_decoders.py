"""What BART and Marian share: settings and names of an encoder and a decoder with cross-attention."""

from typing import Any

from mini_tf.hf.families import Config, Facts, Layout
from mini_tf.hf.families._stacks import ACTIVATIONS, their_word, within
from mini_tf.hf.layouts import AsRow

WORDS = ACTIVATIONS | {"swish": "silu", "silu": "silu"}
LAYER = {
    "own.part.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "own.part.out": "self_attn.out_proj",
    "own.norm": "self_attn_layer_norm",
    "feed_forward.part.up": "fc1",
    "feed_forward.part.down": "fc2",
    "feed_forward.norm": "final_layer_norm",
}
CROSS = {
    "cross.part.q": "encoder_attn.q_proj",
    "cross.part.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.part.out": "encoder_attn.out_proj",
    "cross.norm": "encoder_attn_layer_norm",
}
SIDES_NO_EFFECT = "extra_pos_embeddings|force_bos_token_to_be_generated|save_step|replacing_rate|student_.*_layers"
SIDES_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
HAS_BIAS = "minitf_final_logits_bias"
"""A key of config.json of our own: whether the output layer has a bias. Without it, it has one."""


def sides_settings(config: Config, activation: str) -> dict[str, Any]:
    """The recipe's section `model` of a post-norm encoder and decoder, without their positions."""
    config.only("add_bias_logits", False)
    config.only("do_blenderbot_90_layernorm", False)
    return {
        "d_model": config.integer("d_model"),
        **_sizes(config, "decoder"),
        "encoder": _sizes(config, "encoder"),
        "activation": config.word("activation_function", WORDS, activation),
        "norm": "layer",
        "norm_place": "post",
        "bias": True,
        "embed_scale": config.flag("scale_embedding", False),
        "tied": config.flag("tie_word_embeddings", True),
        "output_bias": config.flag(HAS_BIAS, True),
    }


def _sizes(config: Config, side: str) -> dict[str, int]:
    heads, width = config.integer(f"{side}_attention_heads"), config.integer(f"{side}_ffn_dim")
    return {"n_layers": config.integer(f"{side}_layers"), "n_heads": heads, "d_ff": width}


def _written(stack: Any, side: str) -> dict[str, int]:
    """The inverse of `_sizes`."""
    return {
        f"{side}_layers": stack.n_layers,
        f"{side}_attention_heads": stack.n_heads,
        f"{side}_ffn_dim": stack.hidden_dim,
    }


def sides_config(model: Any, facts: Facts) -> dict[str, Any]:
    """The keys of config.json for `sides_settings`."""
    return {
        "d_model": model.d_model,
        **_written(model.source_stack, "encoder"),
        **_written(model, "decoder"),
        "activation_function": their_word(model.activation, WORDS),
        "scale_embedding": model.embed_scale,
        "tie_word_embeddings": model.tied,
        HAS_BIAS: model.output_bias,
        "max_position_embeddings": facts.context,
        "vocab_size": facts.vocabulary.size,
        "decoder_start_token_id": facts.vocabulary.begin_id,
        "forced_eos_token_id": None,
        "is_encoder_decoder": True,
    }


def sides_names(model: Any) -> dict[str, Layout]:
    """The names of all tensors but the positions'."""
    shared = model.shared_embeddings
    return {
        "embedding.tokens": Layout(".shared" if shared else ".decoder.embed_tokens"),
        "source_embedding.tokens": Layout(".encoder.embed_tokens"),
        "embedding.norm": Layout(".decoder.layernorm_embedding"),
        "source_embedding.norm": Layout(".encoder.layernorm_embedding"),
        **within("encoder", LAYER, ".encoder.layers"),
        **within("stack", LAYER | CROSS, ".decoder.layers"),
        "head.linear.weight": Layout("lm_head.weight"),
        "head.linear.bias": AsRow("final_logits_bias"),
    }
