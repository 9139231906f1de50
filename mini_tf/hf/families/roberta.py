"""RoBERTa: BERT with one token type, and positions that count from the row after that of padding.

Source: Liu et al. 2019, arXiv:1907.11692, and transformers' RobertaForMaskedLM.
"""

from mini_tf.hf.families._architectures import encoder_heads
from mini_tf.hf.families._roberta_layers import RobertaLayers


class Settings(RobertaLayers):
    HEADS = encoder_heads("Roberta", "tanh")
