"""XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.

Source: Conneau et al. 2019, arXiv:1911.02116, and transformers' XLMRobertaForMaskedLM.
"""

from mini_tf.hf.families._architectures import encoder_heads
from mini_tf.hf.families._roberta_layers import RobertaLayers


class Settings(RobertaLayers):
    MODEL_TYPE = "xlm-roberta"
    HEADS = encoder_heads("XLMRoberta", "tanh")
