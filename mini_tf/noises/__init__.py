"""Noises: how a text is corrupted before a model restores it (the objective `denoising`).

The contract is here; every other file of this package is one noise, named by the word that a recipe writes. A noise
never sees token ids: it replaces tokens by marks, removes them or reorders them, and the objective writes the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mini_tf.recipe.kinds import Kind, Share


@dataclass(frozen=True, eq=False)
class NoisyText:
    """A text of L tokens, corrupted: n items in order, each a token or a mark that replaces `lengths[i]` tokens.

    tokens (m,): indices of the original tokens that the items stand for, item after item. lengths (n,): 1 for a token,
    0 or more for a mark. marked (n,): True for a mark. sentence_starts (L,): True where an original token begins a
    sentence; None unless a noise has `NEEDS_SENTENCES`.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    marked: np.ndarray
    sentence_starts: np.ndarray | None = None

    @classmethod
    def of(cls, length: int, sentence_starts: np.ndarray | None = None) -> "NoisyText":
        """The uncorrupted text."""
        return cls(np.arange(length), np.ones(length, np.int64), np.zeros(length, bool), sentence_starts)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def offsets(self) -> np.ndarray:
        """(n + 1,): the range of `tokens` of each item; item i has tokens[offsets[i]:offsets[i + 1]]."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def select(self, items: np.ndarray) -> "NoisyText":
        """The items with these indices, in this order."""
        offsets = self.offsets
        parts = [self.tokens[offsets[item] : offsets[item + 1]] for item in items]
        tokens = np.concatenate([*parts, np.empty(0, np.int64)])
        return NoisyText(tokens.astype(np.int64), self.lengths[items], self.marked[items], self.sentence_starts)

    def with_marks(self, first: np.ndarray, n_items: np.ndarray) -> "NoisyText":
        """Each range of `n_items[i]` items from item `first[i]` on becomes one mark; an empty range inserts one.

        The ranges must be in order and must not overlap.
        """
        offsets, last = self.offsets, first + n_items
        lengths, marked, after = list[np.ndarray](), list[np.ndarray](), 0
        for begin, end in zip(first.tolist(), last.tolist(), strict=True):
            lengths += [self.lengths[after:begin], offsets[end : end + 1] - offsets[begin]]
            marked += [self.marked[after:begin], np.ones(1, bool)]
            after = end
        lengths, marked = [*lengths, self.lengths[after:]], [*marked, self.marked[after:]]
        return NoisyText(self.tokens, np.concatenate(lengths), np.concatenate(marked), self.sentence_starts)


class NoiseSettings(Kind):
    """Base class of noises. rate 0 leaves every text as it is."""

    PACKAGE = "noises"

    MARKS: ClassVar[bool] = False
    """It replaces tokens by marks, which a model can be trained to fill (`objective.target: spans`)."""
    DELETES: ClassVar[bool] = False
    """It removes tokens without a mark."""
    NEEDS_SENTENCES: ClassVar[bool] = False
    """It needs `NoisyText.sentence_starts`."""

    rate: Share

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        """The text with more noise; it is never longer. A pure function: all random numbers come from `rng`."""
        raise NotImplementedError


def corrupt(noises: Sequence[NoiseSettings], text: NoisyText, rng: np.random.Generator) -> NoisyText:
    """Apply the noises one after the other."""
    for noise in noises:
        text = noise.apply(text, rng)
    return text
