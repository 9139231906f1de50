"""A decoder-only model: causal self-attention. With learned positions and pre-norm it is GPT-2.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
"""

from mini_tf.nn.model import ModelSettings


class Settings(ModelSettings):
    ALIASES = ("gpt", "gpt2", "llama", "causal", "decoder_only")
    DIRECTIONS = frozenset({"causal", "prefix"})
    OBJECTIVE = "next_token"
