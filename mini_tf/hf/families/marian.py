"""Marian: the Transformer of 2017 with a bias of the output layer, whose positions have all sines first.

Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344, and transformers' MarianMTModel.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Names
from mini_tf.hf.families._encoder_decoders import (
    SIDES_ALIASES,
    SIDES_NO_EFFECT,
    sides_config,
    sides_names,
    sides_settings,
)


class Settings(Family):
    MODEL = "encoder_decoder"
    PREFIX = "model."
    HEADS = (Head("MarianMTModel", {"kind": "seq2seq"}, data="translate-toy"),)
    NO_EFFECT = SIDES_NO_EFFECT
    ALIASES = SIDES_ALIASES
    ZERO = ("final_logits_bias",)
    BEGIN = "pad_token"
    TIED = {
        ".encoder.embed_tokens.weight": ".shared.weight",
        ".decoder.embed_tokens.weight": ".shared.weight",
        "lm_head.weight": ".decoder.embed_tokens.weight",
    }
    COMPUTED = r"\.?(encoder|decoder)\.embed_positions\.weight"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("normalize_before", False)
        config.only("normalize_embedding", False)
        config.only("add_final_layer_norm", False)
        config.only("static_position_embeddings", True)
        size = config.integer("vocab_size")
        if config.integer("decoder_vocab_size", size) != size:
            config.refuse(
                "decoder_vocab_size",
                f"of models with two vocabularies minitf reads none, so it must be vocab_size, {size}",
            )
        shared = config.flag("share_encoder_decoder_embeddings", True)
        positions = {"kind": "sinusoidal", "order": "sines_first"}
        return sides_settings(config, "gelu") | {"shared_embeddings": shared, "positions": positions}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        written = sides_config(model, facts) | {"share_encoder_decoder_embeddings": model.shared_embeddings}
        return written | {"decoder_vocab_size": facts.vocabulary.size, "static_position_embeddings": True}

    def names(self, model: Any, head: Head) -> Names:
        return sides_names(model)

    def context(self, config: Config) -> int:
        return config.integer("max_position_embeddings", 1024)
