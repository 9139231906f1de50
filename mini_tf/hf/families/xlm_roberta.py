"""XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.

Source: Conneau et al. 2019, arXiv:1911.02116, and transformers' XLMRobertaForMaskedLM.
"""

from mini_tf.hf.families._architectures import RobertaLayers, encoder_heads


class Settings(RobertaLayers):
    MODEL_TYPE = "xlm-roberta"
    HEADS = encoder_heads("XLMRoberta", "tanh")
