"""Learned positions: a table with a vector for each place, added to the embeddings; it ends where the table ends.

Source: Devlin et al. 2018, arXiv:1810.04805 (BERT); Radford et al. 2019 (GPT-2).
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.places import Places
from mini_tf.nn.position import Position, PositionSettings
from mini_tf.system.errors import DataFault


class Settings(PositionSettings):
    ATTACHES = frozenset({"embed"})

    length: Annotated[int, Field(ge=1, le=2**20)] | Literal["auto"] = "auto"
    """Number of places in the table; auto = train.context."""

    def longest(self, context: int) -> int:
        return context if self.length == "auto" else self.length

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> Position:
        return Learned(self.longest(context), d_model)


class Learned(Position):
    attaches = Settings.ATTACHES

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.ends = length
        self.table = nn.Embedding(length, d_model)

    def embed(self, x: Tensor, places: Places) -> Tensor:
        """Raises DataFault where a token stands past the table's end."""
        if places.positions is None:
            self._reaches(places.start + places.length)
            return x + self.table.weight[places.start : places.start + places.length]
        # Positions come from rows of a known length; reading their maximum would wait for the device.
        if places.positions.device.type == "cpu":
            self._reaches(int(places.positions.max()) + 1 if places.positions.numel() else 0)
        embedded: Tensor = x + self.table(places.positions)
        return embedded

    def _reaches(self, length: int) -> None:
        if length > self.table.num_embeddings:
            raise DataFault(
                f"a text of {length} tokens is longer than the {self.table.num_embeddings} learned positions",
                hint="shorten it, or train with a longer train.context, or with positions that run on: rotary, alibi, sinusoidal",
            )
