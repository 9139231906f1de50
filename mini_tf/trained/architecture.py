"""A model as its recipe, vocabularies and labels determine it: the one way to build it, to be trained or to load a run's weights."""

from dataclasses import dataclass

import torch

from mini_tf.data.labels import Labels
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.nn.model import Model
from mini_tf.nn.weights.meta_model import on_meta_device
from mini_tf.objectives import Objective
from mini_tf.recipe.recipe import Recipe


@dataclass(frozen=True)
class Architecture:
    """A model before it has weights, and its objective.

    source_vocabulary_size: of the source side where it has a vocabulary of its own, else None. context: longest row in tokens.
    """

    recipe: Recipe
    objective: Objective
    vocabulary_size: int
    source_vocabulary_size: int | None
    context: int

    @classmethod
    def of(
        cls, recipe: Recipe, tokenizer: Tokenizer, source_tokenizer: Tokenizer, labels: Labels | None = None, context: int | None = None
    ) -> "Architecture":
        """source_tokenizer: the same as `tokenizer` where there is one vocabulary. context: by default the recipe's.

        Raises DataFault where the vocabulary lacks a token that the objective needs.
        """
        objective = recipe.objective.build(tokenizer.vocabulary, labels)
        sizes = vocabulary_sizes(tokenizer, source_tokenizer)
        return cls(recipe, objective, *sizes, context or recipe.train.context)

    def build(self) -> Model:
        """The model with new weights, drawn from torch's generator."""
        model = self.recipe.model.build(self.vocabulary_size, self.context, self.source_vocabulary_size)
        assert isinstance(model, Model)
        self.objective.add_modules(model)
        return model

    def initialize(self, seed: int) -> Model:
        """The model with weights that depend on the seed alone."""
        torch.manual_seed(seed)
        return self.build()

    def on_meta(self) -> Model:
        """The model with names and shapes, but no memory: on torch's meta device."""
        return on_meta_device(self.build)


def vocabulary_sizes(tokenizer: Tokenizer, source_tokenizer: Tokenizer) -> tuple[int, int | None]:
    """Of the vocabulary that the model writes, and of the one of the source side where that is another."""
    return tokenizer.vocabulary.size, None if source_tokenizer is tokenizer else source_tokenizer.vocabulary.size
