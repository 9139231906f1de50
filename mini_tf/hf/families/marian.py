"""Marian: the Transformer of 2017 with a bias of the output layer, whose positions have all sines first.

Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344, and transformers' MarianMTModel.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Head
from mini_tf.hf.families._architectures import EncoderDecoderFamily


class Settings(EncoderDecoderFamily):
    HEADS = (Head("MarianMTModel", {"kind": "seq2seq"}, data="translate-toy"),)
    ONLY = {**EncoderDecoderFamily.ONLY, "normalize_embedding": False, "static_position_embeddings": True}
    BEGIN = "pad_token"
    TIED = {
        ".encoder.embed_tokens.weight": ".shared.weight",
        ".decoder.embed_tokens.weight": ".shared.weight",
        "lm_head.weight": ".decoder.embed_tokens.weight",
    }
    COMPUTED = r"\.?(encoder|decoder)\.embed_positions\.weight"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        size = config.integer("vocab_size")
        if config.integer("decoder_vocab_size", size) != size:
            must = f"of models with two vocabularies minitf reads none, so it must be vocab_size, {size}"
            config.refuse("decoder_vocab_size", must)
        shared = config.flag("share_encoder_decoder_embeddings", True)
        return super().settings(config, head) | {"shared_embeddings": shared}

    def positions(self, config: Config) -> dict[str, Any]:
        return {"kind": "sinusoidal", "order": "sines_first"}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        written = super().config(model, facts) | {"share_encoder_decoder_embeddings": model.shared_embeddings}
        return written | {"decoder_vocab_size": facts.vocabulary.size, "static_position_embeddings": True}
