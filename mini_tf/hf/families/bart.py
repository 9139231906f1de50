"""BART: an encoder and a decoder with learned positions, post-norm and normalized embeddings.

Source: Lewis et al. 2019, arXiv:1910.13461, and transformers' BartForConditionalGeneration.
"""

from typing import Any

from mini_tf.hf.families import Head, Names
from mini_tf.hf.families._architectures import EncoderDecoderFamily
from mini_tf.hf.layouts import shifted

OFFSET = 2
"""Rows of the tables of positions before that of the first token."""


class Settings(EncoderDecoderFamily):
    HEADS = (Head("BartForConditionalGeneration", {"kind": "seq2seq"}, data="translate-toy"),)
    FIXED = {**EncoderDecoderFamily.FIXED, "embed_norm": True}
    ONLY = {**EncoderDecoderFamily.ONLY, "normalize_embedding": True, "static_position_embeddings": False}
    TIED = {
        f"{name}.weight": ".shared.weight" for name in (".encoder.embed_tokens", ".decoder.embed_tokens", "lm_head")
    }

    def names(self, model: Any, head: Head) -> Names:
        return {
            **super().names(model, head),
            "embedding.position.table": shifted(".decoder.embed_positions", OFFSET),
            "source_embedding.position.table": shifted(".encoder.embed_positions", OFFSET),
        }
