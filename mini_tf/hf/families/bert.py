"""BERT: an encoder with learned positions, token types and post-norm, with or without its masked-LM head.

Source: Devlin et al. 2018, arXiv:1810.04805, and transformers' BertForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Config, Facts, Family, Head, Layout, Names
from mini_tf.hf.families._encoders import encoder_config, encoder_names, encoder_settings, is_masked, task_heads
from mini_tf.hf.layouts import Twice

PREDICTIONS = {
    "head.transform.dense": "cls.predictions.transform.dense",
    "head.transform.norm": "cls.predictions.transform.LayerNorm",
    "head.linear": "cls.predictions.decoder",
}
TIED_BIAS = {"head.linear.bias": Layout("cls.predictions.bias")}
OWN_BIAS = {"head.linear.bias": Twice("cls.predictions.decoder.bias", "cls.predictions.bias")}


class Settings(Family):
    MODEL = "encoder"
    PREFIX = "bert."
    HEADS = (
        Head("BertForMaskedLM", {"kind": "masked"}),
        Head("BertForPreTraining", {"kind": "masked"}, output="prediction_logits"),
        *task_heads("Bert", "tanh"),
        Head("BertModel", None, True, "last_hidden_state"),
    )
    BEGIN = "cls_token"
    TIED = {
        "cls.predictions.decoder.weight": ".embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    COMPUTED = r"\.?embeddings\.(position|token_type)_ids"
    DROPPED = {
        r"\.?pooler\..*": "the pooler, which no output of this model uses",
        r"cls\.seq_relationship\..*": "the head of next-sentence prediction",
        r"cls\.predictions\..*": "the masked-LM head, which this architecture does not use",
    }
    NO_EFFECT = r"directionality|pooler_.*"

    def settings(self, config: Config, head: Head) -> dict[str, Any]:
        config.only("position_embedding_type", "absolute")
        return encoder_settings(config, head) | {"n_types": config.integer("type_vocab_size", 2)}

    def config(self, model: Any, facts: Facts) -> dict[str, Any]:
        return encoder_config(model, facts) | {"type_vocab_size": model.n_types}

    def names(self, model: Any, head: Head) -> Names:
        names = encoder_names(PREDICTIONS, head, ".pooler.dense")
        return names | (TIED_BIAS if model.tied else OWN_BIAS) if is_masked(head) else names
