"""Learned positional embeddings, added to the token embeddings; the table limits the number of positions.

Source: Devlin et al. 2018, arXiv:1810.04805 (BERT); Radford et al. 2019 (GPT-2).
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.system.errors import DataFault


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"embed"})

    length: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Number of positions; auto = train.context."""

    def max_positions(self, context: int) -> int:
        return context if self.length == "auto" else self.length

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return Learned(self.max_positions(context), d_model)


class Learned(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.max_positions = length
        self.table = nn.Embedding(length, d_model)

    def embed(self, x: Tensor, token_positions: TokenPositions) -> Tensor:
        """Raises DataFault if a position is beyond the table."""
        if token_positions.positions is None:
            self._check_length(token_positions.start + token_positions.length)
            return x + self.table.weight[token_positions.start : token_positions.start + token_positions.length]
        # Not checked on a GPU, where reading the maximum would synchronize; rows have a known length.
        if token_positions.positions.device.type == "cpu":
            self._check_length(int(token_positions.positions.max()) + 1 if token_positions.positions.numel() else 0)
        embedded: Tensor = x + self.table(token_positions.positions)
        return embedded

    def _check_length(self, length: int) -> None:
        if length > self.table.num_embeddings:
            raise DataFault(
                f"a text of {length} tokens is longer than the {self.table.num_embeddings} learned positions",
                hint="shorten the text, or train with a longer train.context or positions without a limit: rotary, alibi, sinusoidal",
            )
