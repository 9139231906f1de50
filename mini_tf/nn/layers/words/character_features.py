"""A linear model of the n-grams of characters in the words of a text, which spelling variants and new words share."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field
from torch import Tensor

from mini_tf.nn.layers.ngram_features import NGramFeatures, WideSettings
from mini_tf.nn.layers.words.word_characters import WordCharacters
from mini_tf.recipe.kinds import Rules


class WideTextSettings(WideSettings):
    """Settings of the linear model of n-grams of whole texts."""

    characters: tuple[Annotated[int, Field(ge=1, le=32)], Annotated[int, Field(ge=1, le=32)]] | None = None
    """Shortest and longest n-gram of characters within words, as further features; null: none."""
    log_counts: bool = False
    """An n-gram that occurs c times in a text counts 1 + log c times; else c times."""

    def rules(self) -> Rules:
        if self.characters is not None and self.characters[0] > self.characters[1]:
            yield "characters", "the shortest n-gram comes first: [3, 5]"

    @property
    def weighted_by_class(self) -> bool:
        """N-grams count by how much more frequent they are in one class than in others."""
        return False

    def features(self, vocabulary_size: int, texts: Sequence[str], n_outputs: int) -> NGramFeatures:
        """texts: of each token id."""
        common = self.rows, self.scale, n_outputs, self.log_counts, self.weighted_by_class
        found = NGramFeatures(vocabulary_size, self.order, *common)
        if self.characters is not None:
            found.characters = CharacterFeatures(texts, self.characters, *common)
        return found


class CharacterFeatures(NGramFeatures):
    """Of whole texts. texts: of each token id; lengths: of the shortest and the longest n-gram."""

    def __init__(
        self,
        texts: Sequence[str],
        lengths: tuple[int, int],
        rows: int,
        scale: float,
        n_outputs: int,
        log_counts: bool = False,
        class_ratios: bool = False,
    ) -> None:
        super().__init__(len(texts), 1, rows, scale, n_outputs, log_counts, class_ratios)
        self.words = WordCharacters(texts, *lengths)

    def _ngrams(self, ids: Tensor, is_token: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield from self.words(ids, is_token)
