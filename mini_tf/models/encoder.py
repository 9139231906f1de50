"""An encoder-only model: bidirectional self-attention. With learned positions, post-norm and the bert head it is BERT.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.1; Devlin et al. 2018, arXiv:1810.04805.
"""

from mini_tf.nn.model import ModelSettings


class Settings(ModelSettings):
    ALIASES = ("bert", "roberta", "modernbert", "encoder_only")
    DIRECTIONS = frozenset({"bidirectional"})
    OBJECTIVE = "masked"
