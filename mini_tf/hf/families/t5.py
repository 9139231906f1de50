"""T5: an encoder and a decoder with relative positions, RMSNorm, no biases and scores that are not scaled.

Version 1.0 has ReLU and a tied output layer, whose input is scaled by d_model^-0.5: here the scale is part of the last
norm's weight. Version 1.1 has a gated GELU and an output layer of its own.
Source: Raffel et al. 2020, arXiv:1910.10683, and transformers' T5ForConditionalGeneration.
"""

from typing import Any

from mini_tf.hf.families import Config, ConfigKey, Facts, Family, Head, Layout, Names, value_of
from mini_tf.hf.layouts import Layer, ScaledParts, within
from mini_tf.nn.layers.feed_forward import ACTIVATIONS

WORDS = {
    **{"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu"},
    **{"gated-gelu": "geglu_tanh", "gated-gelu_new": "geglu_tanh", "gated-silu": "swiglu", "gated-relu": "reglu"},
}
SELF: Layer = {
    "self_attn.norm": "layer.0.layer_norm",
    "self_attn.part.qkv": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
    "self_attn.part.out": "layer.0.SelfAttention.o",
}
CROSS: Layer = {
    "cross_attn.norm": "layer.1.layer_norm",
    "cross_attn.part.q": "layer.1.EncDecAttention.q",
    "cross_attn.part.kv": ("layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v"),
    "cross_attn.part.out": "layer.1.EncDecAttention.o",
}
UNSCALED = {"kind": "softmax", "scale": "none"}
BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias"


class Settings(Family):
    MODEL = "encoder_decoder"
    HEADS = (Head("T5ForConditionalGeneration", {"kind": "seq2seq"}, data="translate-toy"),)
    BEGIN = "pad_token"
    KEYS = (
        ConfigKey("d_model", "d_model"),
        ConfigKey("num_layers", "encoder.n_layers"),
        ConfigKey("num_decoder_layers", "n_layers", lambda config: config.integer("num_layers")),
        ConfigKey("num_heads", "n_heads"),
        ConfigKey("d_kv", "d_k"),
        ConfigKey("d_ff", "d_ff"),
        ConfigKey("feed_forward_proj", "activation", "relu", WORDS),
        ConfigKey("layer_norm_epsilon", "norm_eps", 1e-6),
        ConfigKey("scale_decoder_outputs", "tied", lambda config: config.flag("tie_word_embeddings", True)),
    )
    FIXED = {"norm": "rms", "bias": False, "attention": UNSCALED, "cross_attention": UNSCALED}
    CONTEXT = ("n_positions", 512)
    TIED = {f"{name}.weight": "shared.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")}
    ALWAYS_TIED = True
    KEY_ALIASES = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
    KEY_ALIASES |= {"head_dim": "d_kv"}
    COMPUTED = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        gate, _, function = str(config.get("feed_forward_proj") or "relu").rpartition("-")
        # Computed from feed_forward_proj, but of higher rank where they are given.
        config.only("is_gated_act", gate == "gated")
        config.only("dense_act_fn", "gelu_new" if (gate, function) == ("gated", "gelu") else function)
        settings = super().settings(config, head)
        positions = settings["positions"]
        encoder = settings["encoder"] | {"positions": positions}
        return settings | {"positions": positions | {"bidirectional": False}, "encoder": encoder}

    def positions(self, config: Config) -> dict[str, Any]:
        return {
            "kind": "t5",
            "n_buckets": config.integer("relative_attention_num_buckets", 32),
            "max_distance": config.integer("relative_attention_max_distance", 128),
        }

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        positions = model.source_stack.positions
        return {
            **self.written(model),
            "tie_word_embeddings": model.tied,
            "relative_attention_num_buckets": value_of(positions, "n_buckets", 32),
            "relative_attention_max_distance": value_of(positions, "max_distance", 128),
            "n_positions": facts.context,
            "vocab_size": facts.vocabulary.size,
            "decoder_start_token_id": facts.vocabulary.begin_id,
            "is_encoder_decoder": True,
        }

    def names(self, model: Any, head: Head) -> Names:
        names = {"embedding.tokens": Layout("shared"), "head.linear": Layout("lm_head")}
        ups = ("wi",) if ACTIVATIONS[model.activation].n_inputs == 1 else ("wi_0", "wi_1")
        for path, side, number in (("encoder", "encoder", 1), ("stack", "decoder", 2)):
            feed = f"layer.{number}"
            forward: Layer = {
                "feed_forward.norm": f"{feed}.layer_norm",
                "feed_forward.part.up": tuple(f"{feed}.DenseReluDense.{up}" for up in ups),
                "feed_forward.part.down": f"{feed}.DenseReluDense.wo",
            }
            names |= within(path, {**SELF, **forward}, f"{side}.block")
        names |= within("stack", CROSS, "decoder.block")
        return names | {
            "embedding.position.table": Layout(f"decoder.{BIAS}"),
            "source_embedding.position.table": Layout(f"encoder.{BIAS}"),
            "encoder.norm": Layout("encoder.final_layer_norm"),
            "stack.norm": ScaledParts(["decoder.final_layer_norm"], [model.d_model**-0.5 if model.tied else 1.0]),
        }
