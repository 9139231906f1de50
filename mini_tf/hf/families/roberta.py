"""RoBERTa: BERT with one token type, and positions that count from the row after that of padding.

Source: Liu et al. 2019, arXiv:1907.11692, and transformers' RobertaForMaskedLM.
"""

from mini_tf.hf.families._architectures import RobertaLayers, encoder_heads


class Settings(RobertaLayers):
    HEADS = encoder_heads("Roberta", "tanh")
