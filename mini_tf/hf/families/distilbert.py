"""DistilBERT: BERT without token types, under other names.

Source: Sanh et al. 2019, arXiv:1910.01108, and transformers' DistilBertForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._encoders import EncoderKeys, encoder_config, encoder_settings, head_names, task_heads
from mini_tf.hf.families._stacks import within

KEYS = EncoderKeys("dim", "n_layers", "n_heads", "hidden_dim", "activation", None)
EPS = 1e-12
LAYER = {
    "own.part.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "own.part.out": "attention.out_lin",
    "own.norm": "sa_layer_norm",
    "feed_forward.part.up": "ffn.lin1",
    "feed_forward.part.down": "ffn.lin2",
    "feed_forward.norm": "output_layer_norm",
}
PREDICTIONS = {
    "head.transform.dense": "vocab_transform",
    "head.transform.norm": "vocab_layer_norm",
    "head.linear": "vocab_projector",
}


class Settings(Family):
    MODEL = "encoder"
    PREFIX = "distilbert."
    HEADS = (
        Head("DistilBertForMaskedLM", {"kind": "masked"}),
        *task_heads("DistilBert", "relu"),
        Head("DistilBertModel", None, True, "last_hidden_state"),
    )
    BEGIN = "cls_token"
    TIED = {"vocab_projector.weight": ".embeddings.word_embeddings.weight"}
    COMPUTED = r"\.?embeddings\.position_ids"
    NO_EFFECT = "sinusoidal_pos_embds|tie_weights_"
    ALIASES = {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
    DROPPED = {r"vocab_.*": "the masked-LM head, which this architecture does not use"}

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        return encoder_settings(config, head, KEYS) | {"n_types": 0, "norm_eps": EPS}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return encoder_config(model, facts, KEYS)

    def names(self, model: Any, head: Head) -> Names:
        return {
            "embedding.tokens": Layout(".embeddings.word_embeddings"),
            "embedding.position.table": Layout(".embeddings.position_embeddings"),
            "embedding.norm": Layout(".embeddings.LayerNorm"),
            **within("stack", LAYER, ".transformer.layer"),
            **head_names(PREDICTIONS, head, "pre_classifier", "classifier"),
        }
