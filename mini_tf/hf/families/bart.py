"""BART: an encoder and a decoder with learned positions, post-norm and normalized embeddings.

Source: Lewis et al. 2019, arXiv:1910.13461, and transformers' BartForConditionalGeneration.
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
from mini_tf.hf.layouts import Shifted

OFFSET = 2
"""Rows of the tables of positions before that of the first token."""


class Settings(Family):
    MODEL = "encoder_decoder"
    PREFIX = "model."
    HEADS = (Head("BartForConditionalGeneration", {"kind": "seq2seq"}, data="translate-toy"),)
    NO_EFFECT = SIDES_NO_EFFECT
    ALIASES = SIDES_ALIASES
    ZERO = ("final_logits_bias",)
    TIED = {
        name: ".shared.weight"
        for name in (".encoder.embed_tokens.weight", ".decoder.embed_tokens.weight", "lm_head.weight")
    }

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("normalize_before", False)
        config.only("add_final_layer_norm", False)
        config.only("normalize_embedding", True)
        config.only("static_position_embeddings", False)
        positions = {"kind": "learned", "length": self.context(config)}
        return sides_settings(config, "gelu") | {"embed_norm": True, "positions": positions}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        length = model.positions.max_positions(facts.context) or facts.context
        return sides_config(model, facts) | {"max_position_embeddings": length}

    def names(self, model: Any, head: Head) -> Names:
        return sides_names(model) | {
            "embedding.position.table": Shifted(".decoder.embed_positions", OFFSET),
            "source_embedding.position.table": Shifted(".encoder.embed_positions", OFFSET),
        }

    def context(self, config: Config) -> int:
        return config.integer("max_position_embeddings", 1024)
