"""Token deletion: single tokens are removed.

Source: Lewis et al. 2020 (BART), arXiv:1910.13461, section 2.2.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    DELETES = True

    rate: Share = Field(0.15)
    """Share of the tokens that are removed."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text.select(np.sort(rng.permutation(len(text))[round(self.rate * len(text)) :]))
