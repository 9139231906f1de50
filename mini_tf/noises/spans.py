"""Span corruption: an exact number of spans of an exact mean length are each replaced by one mark.

A text begins with a token and ends with a mark, as in the authors' code; a text of one token stays as it is.
Source: Raffel et al. 2020 (T5), arXiv:1910.10683, section 3.1.4 and `random_spans_noise_mask` of the released code.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    MARKS = True

    rate: Share = Field(0.15)
    """Share of the tokens that are replaced; at least one token per text, and not all."""
    mean_length: float = Field(3.0, ge=1, le=1000)
    """Mean length of the spans, in tokens."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        if not self.rate or len(text) < 2:
            return text
        n = min(max(round(self.rate * len(text)), 1), len(text) - 1)
        n_spans = min(max(round(n / self.mean_length), 1), len(text) - n)
        lengths, between = partition(n, n_spans, rng), partition(len(text) - n, n_spans, rng)
        return text.with_marks(np.cumsum(between) + np.cumsum(lengths) - lengths, lengths)


def partition(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """`k` positive lengths with the sum `n`; every such partition is equally probable."""
    cuts = np.sort(rng.permutation(n - 1)[: k - 1]) + 1
    return np.diff(cuts, prepend=0, append=n)
