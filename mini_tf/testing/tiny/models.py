"""Tiny models for contract tests: float64, eval mode, a vocabulary of 23 tokens, weights for non-uniform attention.

The settings under test should be small, as every check builds a model.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mini_tf.nn.layers.head import is_token
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.model import Model, ModelSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.kinds import settings_of

VOCABULARY, CONTEXT, B, L, M = 23, 16, 3, 9, 7


def tiny_model(settings: ModelSettings, seed: int = 0, context: int = CONTEXT) -> Model:
    """A model in eval mode with weights large enough for non-uniform attention."""
    torch.manual_seed(seed)
    model = settings.build(VOCABULARY, context).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def random_ids(rows: int = B, length: int = L, seed: int = 1) -> Tensor:
    """Token ids (rows, length)."""
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def source_for(model: Model, rows: int = B) -> Tokens | None:
    """A source, if the model needs one."""
    return Tokens(random_ids(rows, M, seed=2)) if model.needs_source else None


def padded(settings: ModelSettings) -> tuple[Tokens, Tokens | None]:
    """A row without padding, one with padding before it, and one with padding behind it; and a source for each."""

    def tokens(length: int, seed: int) -> Tokens:
        segments = torch.tensor([[1] * length, [0] * 3 + [1] * (length - 3), [1] * (length - 2) + [0] * 2])
        return Tokens(random_ids(B, length, seed), TokenPositions.packed(segments))

    return tokens(L, 1), tokens(M, 2) if settings.SOURCE else None


def row_alone(tokens: Tokens, row: int) -> Tokens:
    """A row without its padding."""
    return Tokens(tokens.ids[row, is_token(tokens)[row]][None])


def logits_of(model: Model, ids: Tensor, token_positions: TokenPositions | None = None) -> Tensor:
    """Logits (rows, length, V) for `ids`."""
    return output_logits(model, model(Tokens(ids, token_positions), source_for(model, len(ids))))


def output_logits(model: Model, output: ForwardOutput, candidates: Tensor | None = None) -> Tensor:
    """Logits of all hidden states of a forward pass."""
    return model.logits(output.y, candidates, output.copies)


def models_with(mixers: list[object]) -> Iterator[tuple[str, ModelSettings]]:
    """A small decoder, encoder and encoder-decoder with each of these mixers, where that is not refused, by kind."""
    for word in ("decoder", "encoder", "encoder_decoder"):
        kind: Any = settings_of("models", word)
        yield from ((word, settings) for settings in every_mixer(kind(d_model=16, n_layers=2, n_heads=2), mixers))


def every_mixer(settings: ModelSettings, mixers: list[object]) -> Iterator[ModelSettings]:
    """The settings with each of these mixers in all layers, without combinations that are refused.

    A mixer that cannot be self-attention is cross-attention.
    """
    no_positions = settings_of("positions", "none")()
    for mixer in mixers:
        for keys in (
            {"attention": (mixer,)},
            {"attention": (mixer,), "positions": no_positions},
            {"cross_attention": mixer},
        ):
            try:
                variant = type(settings).model_validate(dict(settings) | keys)
            except ValueError:
                continue
            yield variant
            break
