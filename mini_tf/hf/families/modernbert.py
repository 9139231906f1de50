"""ModernBERT: an encoder with rotary positions, pre-norm, gated GELU, and windows in most layers.

Source: Warner et al. 2024, arXiv:2412.13663, and transformers' ModernBertForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names, their_word, value_of
from mini_tf.hf.families._architectures import UNUSED_HEAD, encoder_heads, shortest_period

GATED = {"gelu": "geglu", "gelu_pytorch_tanh": "geglu_tanh", "silu": "swiglu", "relu": "reglu"}
PLAIN = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu"}
FULL, SLIDING = "full_attention", "sliding_attention"
BASES = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}


class Settings(Family):
    MODEL = "encoder"
    PREFIX = "model."
    HEADS = encoder_heads("ModernBert", "gelu_norm", pools=("first", "mean"), token_dense="gelu_norm")
    BEGIN = "cls_token"
    POOL = "classifier_pooling"
    POOLS = {"cls": "first", "mean": "mean"}
    NAMES = {
        "embedding.tokens": ".embeddings.tok_embeddings",
        "embedding.norm": ".embeddings.norm",
        "stack.norm": ".final_norm",
    }
    LAYER = {
        "self_attn.norm": "attn_norm",
        "self_attn.part.qkv": "attn.Wqkv",
        "self_attn.part.out": "attn.Wo",
        "feed_forward.norm": "mlp_norm",
        "feed_forward.part.up": "mlp.Wi",
        "feed_forward.part.down": "mlp.Wo",
    }
    LAYERS = ".layers"
    TIED = {"decoder.weight": ".embeddings.tok_embeddings.weight"}
    NO_EFFECT = (
        "classifier_.*|decoder_bias|deterministic_flash_attn|reference_compile|repad_logits_with_grad|sparse_pred.*"
        "|layer_norm_eps"
    )
    DROPPED = {r"(head|decoder)\..*": UNUSED_HEAD}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        bias, tied = config.flag("attention_bias", False), config.flag("tie_word_embeddings", True)
        for key in ("mlp_bias", "norm_bias"):
            if config.flag(key, False) != bias:
                config.refuse(key, "minitf has biases in all layers or in none, so it must equal attention_bias")
        if head.masked:
            config.only("decoder_bias", True)
        elif head.objective is not None:
            config.only("classifier_activation", "gelu", why=", the activation of its classifiers")
        config.only("position_embedding_type", "absolute")  # which ModernBERT's files say, though positions are rotary
        types = self._types(config)
        window = {"kind": "window", "window": config.integer("local_attention", 128, least=2) // 2}
        mixers = shortest_period([{"kind": "softmax"} if type_ == FULL else window for type_ in types])
        bases = shortest_period([self._base(config, type_) for type_ in types])
        positions = {"base": bases[0]} if len(bases) == 1 else {"layer_bases": tuple(bases)}
        return {
            "d_model": config.integer("hidden_size"),
            "n_layers": config.integer("num_hidden_layers"),
            "n_heads": config.integer("num_attention_heads"),
            "d_ff": config.integer("intermediate_size"),
            "activation": config.word("hidden_activation", GATED, "gelu"),
            "norm": "layer",
            "norm_eps": config.number("norm_eps", 1e-5),
            "first_norm": False,
            "bias": bias,
            "head": "bert" if head.masked else "linear",
            "head_activation": config.word("classifier_activation", PLAIN, "gelu") if head.masked else None,
            "tied": tied or not head.masked,
            "embed_norm": True,
            "attention": tuple(mixers) if len(mixers) > 1 else mixers[0],
            "positions": {"kind": "rotary", **positions},
        }

    def _types(self, config: Config) -> list[str]:
        """FULL or SLIDING, by layer."""
        n_layers, every = config.integer("num_hidden_layers"), config.integer("global_attn_every_n_layers", 3)
        usual = [SLIDING if layer % every else FULL for layer in range(n_layers)]
        types = config.get("layer_types") or usual
        if isinstance(types, list) and len(types) == n_layers and all(type_ in (FULL, SLIDING) for type_ in types):
            return types
        config.refuse("layer_types", f"it must be {FULL} or {SLIDING} for each layer")
        return usual

    def _base(self, config: Config, type_: str) -> float:
        rope = config.section("rope_parameters").section(type_)
        rope.only("rope_type", "default", why=": its rotation is not scaled")
        return rope.number("rope_theta", config.number(*BASES[type_]))

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        # What is no window is written as full attention, which reading it back finds out.
        mixers = [model.attention[layer % len(model.attention)] for layer in range(model.n_layers)]
        windows = [value_of(mixer, "window", None) for mixer in mixers]
        types = [FULL if window is None else SLIDING for window in windows]
        layer_bases = value_of(model.positions, "layer_bases", ()) or (value_of(model.positions, "base", 10000.0),)
        bases = {type_: layer_bases[layer % len(layer_bases)] for layer, type_ in enumerate(types)}
        return {
            "hidden_size": model.d_model,
            "num_hidden_layers": model.n_layers,
            "num_attention_heads": model.n_heads,
            "intermediate_size": model.hidden_dim,
            "hidden_activation": their_word(model.activation, GATED),
            "classifier_activation": their_word(model.head_activation or "gelu", PLAIN),
            "norm_eps": model.norm_eps,
            **{key: model.bias for key in ("attention_bias", "mlp_bias", "norm_bias")},
            **{key: True for key in ("classifier_bias", "decoder_bias")},
            "layer_types": types,
            "local_attention": 2 * next((window for window in windows if window is not None), 64),
            "rope_parameters": {
                type_: {"rope_type": "default", "rope_theta": bases.get(type_, BASES[type_][1])} for type_ in BASES
            },
            "tie_word_embeddings": model.tied,
            "max_position_embeddings": facts.context,
            "vocab_size": facts.vocabulary.size,
            "cls_token_id": facts.vocabulary.begin_id,
            "sep_token_id": facts.vocabulary.separator,
        }

    def names(self, model: Any, head: Head) -> Names:
        dense, norm = (
            ("head.transform.dense", "head.transform.norm") if head.masked else ("head.dense", "head.dense.norm")
        )
        output = Layout("decoder" if head.masked else "classifier")
        head_names = {dense: Layout("head.dense"), norm: Layout("head.norm"), "head.linear": output}
        return {**super().names(model, head), **head_names}

    def lacking(self, config: Config) -> set[str]:
        return set() if config.flag("classifier_bias", False) else {"head.dense.bias"}
