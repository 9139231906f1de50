"""Sentence permutation: the sentences of a text are shuffled.

Source: Lewis et al. 2020 (BART), arXiv:1910.13461, section 2.2.
"""

import numpy as np
from pydantic import Field

from mini_tf.noises import NoiseSettings, NoisyText
from mini_tf.recipe.kinds import Share


class Settings(NoiseSettings):
    NEEDS_SENTENCES = True

    rate: Share = Field(1.0)
    """Share of the sentences that are shuffled; the others keep their place in the order."""

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        assert text.sentence_starts is not None
        heads = np.append(text.tokens, 0)[text.offsets[:-1]]  # a mark at the end may stand for no token
        starts = np.flatnonzero(text.sentence_starts[heads] & ~text.marked) if len(text) else np.empty(0, np.int64)
        sentences = np.split(np.arange(len(text)), starts[starts > 0])
        chosen = np.sort(rng.permutation(len(sentences))[: round(self.rate * len(sentences))])
        order = np.arange(len(sentences))
        order[chosen] = rng.permutation(chosen)
        return text.select(np.concatenate([sentences[i] for i in order]))
