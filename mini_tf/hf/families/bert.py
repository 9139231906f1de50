"""BERT: an encoder with learned positions, token types and post-norm, with or without its masked-LM head.

Source: Devlin et al. 2018, arXiv:1810.04805, and transformers' BertForMaskedLM.
"""

from mini_tf.hf.families import Head
from mini_tf.hf.families._architectures import GELUS, IDS, POOLER, UNUSED_HEAD, EncoderFamily, encoder_heads
from mini_tf.hf.layouts import GgufArchitecture


class Settings(EncoderFamily):
    PREFIX = "bert."
    HEADS = encoder_heads("Bert", "tanh", Head("BertForPreTraining", {"kind": "masked"}, output="prediction_logits"))
    ONLY = {"position_embedding_type": "absolute"}
    PREDICTIONS = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder")
    CLASSES = (".pooler.dense", "classifier")
    BIAS = "cls.predictions.bias"
    GGUF = (GgufArchitecture("bert", None, GELUS, causal=False, classes=("pooler.dense", "classifier")),)
    TIED = {
        "cls.predictions.decoder.weight": ".embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": BIAS,
    }
    COMPUTED = IDS
    DROPPED = {
        **POOLER,
        r"cls\.seq_relationship\..*": "the head of next-sentence prediction",
        r"cls\.predictions\..*": UNUSED_HEAD,
    }
    NO_EFFECT = r"directionality|pooler_.*"
