"""Learned positional embeddings, added to the token embeddings or concatenated with them; the table limits the number
of positions. A linear layer maps the concatenation to d_model.

Source: Devlin et al. 2018, arXiv:1810.04805 (BERT); Radford et al. 2019 (GPT-2).
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.system.errors import DataFault


class Settings(PositionalEncodingSettings):
    ALIASES = ("absolute",)
    APPLIES_TO = frozenset({"embed"})

    combine: Literal["add", "concat"] = "add"
    """Add to the token embeddings, or concatenate with them and map to d_model."""
    length: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Number of positions; auto = train.context."""

    def max_positions(self, context: int) -> int:
        return context if self.length == "auto" else self.length

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Learned(self.max_positions(context), d_model, self.combine == "concat")


class Learned(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, length: int, d_model: int, concat: bool = False) -> None:
        super().__init__()
        self.max_positions = length
        self.table = nn.Embedding(length, d_model)
        self.map = nn.Linear(2 * d_model, d_model, bias=False) if concat else None
        self.additive = not concat

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        """Raises DataFault if a position is beyond the table."""
        vectors = self._vectors(token_positions)
        if self.map is None:
            return x + vectors
        embedded: Tensor = self.map(torch.cat([x, vectors.expand_as(x)], dim=-1))
        return embedded

    def _vectors(self, token_positions: TokenPositions) -> Tensor:
        """(L, D) or (B, L, D)."""
        if token_positions.positions is None:
            self._check_length(token_positions.start + token_positions.length)
            return self.table.weight[token_positions.start : token_positions.start + token_positions.length]
        # Rows have a known length, so it is not checked on a GPU, where reading the maximum would synchronize, nor in a
        # compiled graph, which it would end.
        if token_positions.positions.device.type == "cpu" and not torch.compiler.is_compiling():
            self._check_length(int(token_positions.positions.max()) + 1 if token_positions.positions.numel() else 0)
        vectors: Tensor = self.table(token_positions.positions)
        return vectors

    def _check_length(self, length: int) -> None:
        if length > self.table.num_embeddings:
            raise DataFault(
                f"a text of {length} tokens is longer than the {self.table.num_embeddings} learned positions",
                hint=(
                    "shorten the text, or train with a longer train.context or positions without a limit: rotary,"
                    " alibi, sinusoidal"
                ),
            )
