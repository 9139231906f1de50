"""Token masking: single tokens are replaced by marks.

Source: Lewis et al. 2020 (BART), arXiv:1910.13461, section 2.2.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    MARKS = True

    rate: Share = Field(0.15)
    """Share of the tokens that are replaced, each by a mark of its own."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        chosen = np.sort(rng.permutation(len(text))[: round(self.rate * len(text))])
        return text.with_marks(chosen, np.ones_like(chosen))
