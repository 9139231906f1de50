"""A model on trial: in float64 and eval, for a vocabulary of 23 tokens, with weights so large that attention is far from uniform.

The settings under test should be small, since every check builds a model of them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of

VOCABULARY, CONTEXT, B, L, M = 23, 16, 3, 9, 7


def built(settings: ModelSettings, seed: int = 0) -> Model:
    """A model in eval, with weights large enough that attention is far from uniform."""
    torch.manual_seed(seed)
    model = settings.build(VOCABULARY, CONTEXT).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def drawn_tokens(rows: int = B, length: int = L, seed: int = 1) -> Tensor:
    """Ids (rows, length)."""
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def source_of(model: Model, rows: int = B) -> Tokens | None:
    """Something to attend to, where the model does."""
    return Tokens(drawn_tokens(rows, M, seed=2)) if model.needs_source else None


def scores_of(model: Model, ids: Tensor, token_positions: TokenPositions | None = None) -> Tensor:
    """Scores (rows, length, V) of the tokens that follow each of `ids`, which stand at `token_positions`."""
    return model.logits(model(Tokens(ids, token_positions), source_of(model, len(ids))).y)


def every_mixer(settings: ModelSettings, mixers: list[object]) -> Iterator[ModelSettings]:
    """The same model with each of these mixers in all of its layers, those that its stacks cannot take left out."""
    without = settings_of("positions", "none")()
    for mixer in mixers:
        for given in ({}, {"positions": without}):
            try:
                made = type(settings).model_validate(dict(settings) | {"attention": (mixer,)} | given)
            except ValueError:
                continue
            yield made
            break
