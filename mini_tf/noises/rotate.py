"""Document rotation: a text begins at a random token, and what was before that token follows its end.

Source: Lewis et al. 2020 (BART), arXiv:1910.13461, section 2.2.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    rate: Share = Field(1.0)
    """Share of the texts that are rotated."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        if rng.random() >= self.rate or not len(text):
            return text
        return text.select(np.roll(np.arange(len(text)), -int(rng.integers(len(text)))))
