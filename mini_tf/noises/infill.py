"""Text infilling: spans of Poisson-distributed length are each replaced by one mark; an empty span inserts a mark.

Source: Lewis et al. 2020 (BART), arXiv:1910.13461, section 2.2, without the random tokens of the authors' code.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    MARKS = True

    rate: Share = Field(0.3)
    """Share of the tokens that are replaced; the last span is cut to it."""
    mean_length: float = Field(3.0, ge=0.5, le=1000)
    """Mean of the Poisson distribution of span lengths, in tokens."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        lengths = np.array(self._lengths(round(self.rate * len(text)), rng), np.int64)
        n_gaps = len(text) - int(lengths.sum()) + 1
        # Spans are apart from each other, unless there are more of them than gaps between the remaining tokens.
        gaps = np.sort(rng.choice(n_gaps, len(lengths), replace=len(lengths) > n_gaps))
        lengths = rng.permutation(lengths)
        return text.with_marks(gaps + np.cumsum(lengths) - lengths, lengths)

    def _lengths(self, n: int, rng: np.random.Generator) -> list[int]:
        """Span lengths with the sum `n`; at most `n` of them, so that the text does not grow."""
        lengths, n_empty = list[int](), 0
        while n:
            length = min(int(rng.poisson(self.mean_length)), n)
            if length:
                lengths.append(length)
            else:
                n_empty += 1
            n -= length
        return lengths + [0] * min(n_empty, sum(lengths) - len(lengths))
