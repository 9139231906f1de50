"""A linear model of words, their shapes and affixes, and those of the words around, which a head for tags adds.

In text with few labels most names occur once: capital letters, endings and the words beside them tell more than the
names do. Strings are given as keys, which are hashed to the rows of a table. Source of the features: Ratinov and Roth
2009, "Design challenges and misconceptions in named entity recognition", section 3.1.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mini_tf.nn.layers.ngram_features import LinearFeatures
from mini_tf.nn.layers.ngrams import hash_keys

WHOLE = 2
"""Keys of a word that are of all of it: the word and its shape."""
_AFFIX_DISTANCE = 1
"""Affixes count of words up to this distance."""
_COMBINE = 0x2545F4914F6CDD1D  # odd, so that keys of different order differ


class WordFeatures(LinearFeatures):
    """Of words: words, shapes and affixes within `window` words, at their distance, and n-grams with the word itself.

    These are n-grams of 2 to `order` words, and of as many shapes. Outside a text, all keys are 0.
    """

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int, window: int) -> None:
        super().__init__(vocabulary_size, min(order, 2 * window + 1), rows, scale, n_outputs)
        self.window = window

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        is_token: Bool[Tensor, "B L"],
        at: Int[Tensor, " T"] | None,
        words: Int[Tensor, "T K"] | None = None,
    ) -> Float[Tensor, "T C"]:
        """words: the keys of each word, `WHOLE` of all of it and then those of its affixes. at: where each begins."""
        assert at is not None, "a model of words needs the positions of words"
        assert words is not None, "a model of words needs their keys"
        rows = hash_keys(torch.cat([*self._keys(words, at // ids.shape[1])], dim=1), self.weights.num_embeddings)
        return self._weighted(rows, torch.ones_like(rows, dtype=self.weights.weight.dtype))

    def _keys(self, words: Int[Tensor, "T K"], text: Int[Tensor, " T"]) -> Iterator[Int[Tensor, "T F"]]:
        """Keys of features, each with a number for its kind and distance. text: the row of each word."""
        around = self._around(words, text)
        number, nearest = 1, min(self.window, _AFFIX_DISTANCE)
        near = around[:, self.window - nearest : self.window + nearest + 1, WHOLE:]
        single = torch.cat([around[..., :WHOLE].flatten(1), near.flatten(1)], dim=1)
        for keys in (single, *self._ngrams_of_words(around[..., :WHOLE])):
            yield keys * _COMBINE + torch.arange(number, number + keys.shape[1], device=keys.device)
            number += keys.shape[1]

    def _around(self, words: Int[Tensor, "T K"], text: Int[Tensor, " T"]) -> Int[Tensor, "T N K"]:
        """The keys of the N = 2 * window + 1 words around each word."""
        width = (self.window, self.window)
        near, text_of = (
            F.pad(words, (0, 0, *width)).unfold(0, sum(width) + 1, 1),
            F.pad(text, width, value=-1).unfold(0, sum(width) + 1, 1),
        )
        return near.transpose(1, 2) * (text_of == text[:, None])[..., None]

    def _ngrams_of_words(self, around: Int[Tensor, "T N W"]) -> Iterator[Int[Tensor, "T F"]]:
        """Keys of the n-grams in the window that have the word in its middle, n = 2, 3, ..."""
        keys = around
        for n in range(2, self.order + 1):
            keys = keys[:, :-1] * _COMBINE + around[:, n - 1 :]
            yield keys[:, max(0, self.window - n + 1) : self.window + 1].flatten(1)
