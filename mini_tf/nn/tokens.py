"""Input of a model: token ids, token positions and token type ids."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mini_tf.nn.token_positions import TokenPositions


@dataclass(frozen=True, eq=False)
class Tokens:
    """ids (B, L); types (B, L): token type ids, None = all 0; token_positions: None = one document per row."""

    ids: Tensor
    token_positions: TokenPositions | None = None
    types: Tensor | None = None

    def to(self, device: torch.device) -> "Tokens":
        return self.each(lambda t: t.to(device, non_blocking=True))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        """With `change` applied to every tensor."""
        token_positions = None if self.token_positions is None else self.token_positions.each(change)
        return Tokens(change(self.ids), token_positions, None if self.types is None else change(self.types))
