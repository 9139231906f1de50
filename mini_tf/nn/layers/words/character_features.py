"""A linear model of the n-grams of characters in the words of a text, which spelling variants and new words share."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from mini_tf.nn.layers.ngram_features import NGramFeatures
from mini_tf.nn.layers.words.word_characters import WordCharacters


class CharacterFeatures(NGramFeatures):
    """Of whole texts. texts: of each token id; lengths: of the shortest and the longest n-gram."""

    def __init__(
        self, texts: Sequence[str], lengths: tuple[int, int], rows: int, scale: float, n_outputs: int, log_counts: bool = False
    ) -> None:
        super().__init__(len(texts), 1, rows, scale, n_outputs, log_counts)
        self.words = WordCharacters(texts, *lengths)

    def _ngrams(self, ids: Tensor, is_token: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self.words(ids, is_token)
