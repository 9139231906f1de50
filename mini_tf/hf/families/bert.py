"""BERT: an encoder with learned positions, token types and post-norm, with or without its masked-LM head.

Source: Devlin et al. 2018, arXiv:1810.04805, and transformers' BertForMaskedLM.
"""

from typing import Any

from mini_tf.hf.families import Head, Layout, Names
from mini_tf.hf.families._architectures import GELUS, IDS, POOLER, UNUSED_HEAD, EncoderFamily, encoder_heads
from mini_tf.hf.gguf_architecture import GgufArchitecture
from mini_tf.hf.layouts import Twice


class Settings(EncoderFamily):
    PREFIX = "bert."
    HEADS = encoder_heads("Bert", "tanh", Head("BertForPreTraining", {"kind": "masked"}, output="prediction_logits"))
    ONLY = {"position_embedding_type": "absolute"}
    PREDICTIONS = (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
    )
    CLASSES = (".pooler.dense", "classifier")
    GGUF = (GgufArchitecture("bert", None, GELUS, causal=False, classes=("pooler.dense", "classifier")),)
    TIED = {
        "cls.predictions.decoder.weight": ".embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    COMPUTED = IDS
    DROPPED = {
        **POOLER,
        r"cls\.seq_relationship\..*": "the head of next-sentence prediction",
        r"cls\.predictions\..*": UNUSED_HEAD,
    }
    NO_EFFECT = r"directionality|pooler_.*"

    def names(self, model: Any, head: Head) -> Names:
        tied, own = Layout("cls.predictions.bias"), Twice("cls.predictions.decoder.bias", "cls.predictions.bias")
        names = super().names(model, head)
        return {**names, "head.linear.bias": tied if model.tied else own} if head.masked else names
