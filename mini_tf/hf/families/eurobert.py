"""EuroBERT: an encoder with the layers of Llama, and an output layer without a dense layer before it.

Source: Boizard et al. 2025, arXiv:2503.05500, and transformers' EuroBertForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Head, Layout, Names
from mini_tf.hf.families._architectures import encoder_heads
from mini_tf.hf.families._llama_layers import LlamaLayers, as_heads, llama_keys

POOLING = "classifier_pooling"


class Settings(LlamaLayers):
    MODEL = "encoder"
    HEADS = encoder_heads("EuroBert", "gelu", pools=("mean", "first"))
    KEYS = llama_keys(1e-5, as_heads)
    BEGIN = "cls_token"
    POOL = POOLING
    POOLS = {"mean": "mean", "bos": "first"}
    NO_EFFECT = "pretraining_tp"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        settings = super().settings(config, head)
        return settings | {"output_bias": head.masked and settings["bias"], "tied": settings["tied"] or not head.masked}

    def pooling(self, config: Config, head: Head) -> dict[str, str]:
        if head.pools and not config.has(POOLING):
            config.refuse(POOLING, f"it is 'late' where it is not given; minitf has {', '.join(self.POOLS)}")
            return {}
        config.get(POOLING)  # which other heads do not use
        return super().pooling(config, head)

    def names(self, model: Any, head: Head) -> Names:
        output = "lm_head" if head.masked else "classifier"
        return {**super().names(model, head), "head.linear": Layout(output), "head.dense": Layout("dense")}
