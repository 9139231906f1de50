"""A decoder: every token sees what stands before it and itself. With learned positions and pre-norm this is GPT-2.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
"""

from typing import ClassVar

from mini_tf.nn.model import ModelSettings
from mini_tf.recipe.kind_settings import Direction


class Settings(ModelSettings):
    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset({"causal", "prefix"})
    OBJECTIVE: ClassVar[str] = "next_token"
