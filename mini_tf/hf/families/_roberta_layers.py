"""What RoBERTa and XLM-RoBERTa share: BERT whose positions count from the row after that of padding."""

from typing import Any

from mini_tf.hf.families import Config, Facts, Head, Layout, Names
from mini_tf.hf.families._architectures import IDS, POOLER, UNUSED_HEAD, EncoderFamily
from mini_tf.hf.layouts import Twice, shifted

PAD = 1
"""Id of the padding token; the position of the first token is the row after it."""


class RobertaLayers(EncoderFamily):
    PREFIX = "roberta."
    ONLY = {"position_embedding_type": "absolute"}
    PREDICTIONS = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder")
    TIED = {"lm_head.decoder.weight": ".embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"}
    COMPUTED = IDS
    DROPPED = {**POOLER, r"lm_head\..*": UNUSED_HEAD}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        if config.get("pad_token_id") != PAD:
            config.refuse("pad_token_id", f"positions are counted from the id of padding, which must be {PAD}")
        if head.masked:
            config.only("hidden_act", "gelu", why=", the activation of its masked-LM head")
        return super().settings(config, head)

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        written = super().config(model, facts)
        length = written["max_position_embeddings"] + PAD + 1
        return written | {"max_position_embeddings": length, "pad_token_id": facts.vocabulary.pad}

    def names(self, model: Any, head: Head) -> Names:
        table = shifted(".embeddings.position_embeddings", PAD + 1)
        tied, own = Layout("lm_head.bias"), Twice("lm_head.decoder.bias", "lm_head.bias")
        bias = {"head.linear.bias": tied if model.tied else own} if head.masked else {}
        return {**super().names(model, head), "embedding.position.table": table, **bias}

    def context(self, config: Config) -> int:
        return config.integer("max_position_embeddings", least=PAD + 2) - PAD - 1
