"""Builds a model from its recipe, vocabularies and labels, for training and for loading a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mini_tf.data.examples import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.model import Model
from mini_tf.nn.weights import on_meta_device
from mini_tf.objectives import Objective
from mini_tf.recipe.recipe import Recipe


@dataclass(frozen=True)
class Architecture:
    """The sizes and settings of a model, and its objective; no weights.

    source_vocabulary_size: None unless the source has its own vocabulary. context: maximum row length in tokens.
    special_ids: of the target vocabulary. texts: of each of its ids, and of those of the source.
    """

    recipe: Recipe
    objective: Objective
    vocabulary_size: int
    source_vocabulary_size: int | None
    context: int
    special_ids: frozenset[int]
    texts: tuple[Sequence[str], Sequence[str]]

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer,
        labels: Labels | None = None,
        context: int | None = None,
    ) -> "Architecture":
        """source_tokenizer: `tokenizer` itself if the vocabulary is shared. context: default is `train.context`.

        Raises DataFault if the vocabulary lacks a token that the objective needs.
        """
        objective = recipe.objective.build(tokenizer.vocabulary, labels)
        sizes = vocabulary_sizes(tokenizer, source_tokenizer)
        texts = tokenizer.vocabulary.texts, source_tokenizer.vocabulary.texts
        return cls(recipe, objective, *sizes, context or recipe.train.context, tokenizer.vocabulary.special_ids, texts)

    def build(self) -> Model:
        """The model, initialized from torch's global random generator."""
        model = self.recipe.model.build(self.vocabulary_size, self.context, self.source_vocabulary_size)
        assert isinstance(model, Model)
        model.special_ids = self.special_ids
        self.objective.add_modules(model)
        return model

    def initialize(self, seed: int) -> Model:
        """The model, initialized from the seed alone."""
        torch.manual_seed(seed)
        model = self.build()
        for embeddings, texts in zip((model.embeddings(), model.embeddings("source")), self.texts, strict=True):
            for embedding in embeddings.values():
                embedding.spell(texts)
        return model

    def on_meta(self) -> Model:
        """The model on torch's meta device: names and shapes without memory."""
        return on_meta_device(self.build)


def vocabulary_sizes(tokenizer: Tokenizer, source_tokenizer: Tokenizer) -> tuple[int, int | None]:
    """The size of the (target) vocabulary, and of the source vocabulary or None if it is shared."""
    shared = source_tokenizer is tokenizer or source_tokenizer.splits_as_other_language(tokenizer)
    return tokenizer.vocabulary.size, None if shared else source_tokenizer.vocabulary.size
