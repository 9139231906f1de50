"""Perceiver IO for masked language modelling; outputs are decoded by 8 heads with queries of width 32.

Source: Jaegle et al. 2021, arXiv:2107.14795, and transformers' PerceiverForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, ConfigKey, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._architectures import ACTIVATIONS
from mini_tf.hf.layouts import Layer, within

WIDENING = ("self_attention_widening_factor", "cross_attention_widening_factor")
HEADS = ("num_self_attention_heads", "num_cross_attention_heads")
LAYER: Layer = {
    "{mixer}.norm": "attention.self.layernorm1",
    "{mixer}.part.out": "attention.output.dense",
    "feed_forward.norm": "layernorm",
    "feed_forward.part.up": "mlp.dense1",
    "feed_forward.part.down": "mlp.dense2",
}
QUERY, KEY, VALUE = (f"attention.self.{part}" for part in ("query", "key", "value"))
CROSSES = {
    "encoder.layers.{i}": ".encoder.cross_attention",
    "decoder.layers.{i}": ".decoder.decoding_cross_attention",
}


class Settings(Family):
    MODEL = "perceiver"
    PREFIX = "perceiver."
    HEADS = (Head("PerceiverForMaskedLM", {"kind": "masked"}),)
    KEYS = (
        ConfigKey("d_model", "d_model"),
        ConfigKey("num_latents", "n_latents"),
        ConfigKey("num_blocks", "n_blocks", 1),
        ConfigKey("num_self_attends_per_block", "n_layers", 26),
        ConfigKey("hidden_act", "activation", "gelu", ACTIVATIONS),
        ConfigKey("tie_word_embeddings", "tied", True),
    )
    FIXED = {
        **{"norm": "layer", "norm_eps": 1e-5, "bias": True, "embed_norm": True, "share_blocks": True},
        **{"query": "position", "query_residual": False},
    }
    ONLY = {"use_query_residual": True}
    CONTEXT = ("max_position_embeddings", 2048)
    BEGIN = "cls_token"
    NAMES = {
        "embedding.tokens": ".input_preprocessor.embeddings",
        "embedding.position.table": ".input_preprocessor.position_embeddings",
        "embedding.norm": ".encoder.cross_attention.attention.self.layernorm2",
        ".latents": ".embeddings.latents",
        "processor.norm": ".decoder.decoding_cross_attention.attention.self.layernorm2",
        "queries.table.weight": ".decoder.output_position_encodings.position_embeddings",
        "head.linear.bias": "embedding_decoder.bias",
    }
    NO_EFFECT = "layer_norm_eps|image_size|train_size|num_frames|audio_.*|samples_per_patch|output_.*|_label_.*"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        d_model, d_latent = config.integer("d_model", 768), config.integer("d_latents", 1280)
        n_heads, widening = (self._equal(config, keys, usual) for keys, usual in ((HEADS, 8), (WIDENING, 1)))
        config.only("cross_attention_shape_for_attention", *("kv", "q"))
        qk = config.integer("qk_channels")
        v = config.integer("v_channels", qk)
        if v != d_latent:
            config.refuse("v_channels", f"it must be d_latents, {d_latent}, which it is added to")
        for key, width in (("qk_channels", qk), ("v_channels", v)):
            if width % n_heads:
                config.refuse(key, f"it must be a multiple of {n_heads} heads")
        if d_model % 8:
            config.refuse("d_model", "it must be a multiple of 8, the number of heads of the decoder")
        sizes = {"d_latent": d_latent, "n_heads": n_heads, "d_k": qk // n_heads, "d_v": v // n_heads}
        decoder = {"n_heads": 8, "d_k": 32, "d_v": d_model // 8, "d_ff": d_model}
        learned = {"kind": "learned", "length": self.context(config)}
        return {
            **super().settings(config, head),
            **sizes,
            "d_ff": widening * d_latent,
            "decoder": decoder,
            "query_positions": learned,
        }

    def _equal(self, config: Config, keys: tuple[str, str], usual: int) -> int:
        """Two keys that must be equal, since latents have the same sizes in all layers."""
        first, second = (config.integer(key, usual) for key in keys)
        if first != second:
            config.refuse(keys[1], f"it must equal {keys[0]}, {first}")
        return first

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        width = model.d_latent or model.d_model
        stack = model.processor_stack
        return {
            **super().config(model, facts),
            "d_latents": width,
            **dict.fromkeys(HEADS, model.n_heads),
            **dict.fromkeys(WIDENING, stack.hidden_dim // width if stack.hidden_dim % width == 0 else stack.hidden_dim),
            "qk_channels": model.n_heads * stack.head_dim,
            "v_channels": model.n_heads * (model.d_v or stack.head_dim),
        }

    def names(self, model: Any, head: Head) -> Names:
        names = {ours: Layout(theirs) for ours, theirs in self.NAMES.items()}
        for path, theirs in CROSSES.items():
            layer = {**_layer("cross_attn"), "cross_attn.part.q": (QUERY,), "cross_attn.part.kv": (KEY, VALUE)}
            names |= {
                f"{path}.{ours}": Layout(*(f"{theirs}.{name}" for name in parts)) for ours, parts in layer.items()
            }
        self_attention = {**_layer("self_attn"), "self_attn.part.qkv": (QUERY, KEY, VALUE)}
        return names | within("processor", self_attention, ".encoder.self_attends")


def _layer(mixer: str) -> dict[str, tuple[str, ...]]:
    return {ours.format(mixer=mixer): (str(theirs),) for ours, theirs in LAYER.items()}
