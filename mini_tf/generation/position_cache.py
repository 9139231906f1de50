"""What the place of the next token means to every layer that reads it: how queries and keys turn, what is added to scores.

Any position is served by what every position has: turning is linear, so `turn` of the unit vectors is the matrix that turns;
`bias` depends on the distance alone, so one row of distances serves every place.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.nn.mixer import AttentionDims
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions

AHEAD = 2**16
"""Numbers in the matrices that are made ahead."""


class StepPosition(NamedTuple):
    """n: how many tokens stand before. turn (K, K), or (B, K, K): what turns queries and keys. bias (B G, R or 1, n + 1): what is
    added to the scores of the R queries that share one of G keys. None where nothing is."""

    n: int
    turn: Tensor | None
    bias: Tensor | None


class PositionCache:
    """Makes `StepPosition` for one place after the other; `like` has the model's type and device."""

    def __init__(self, position: PositionalEncoding, dims: AttentionDims, like: Tensor) -> None:
        self._dims, self._like = dims, like
        self._rotary = position if "rotary" in position.applies_to else None
        self._biasing = position if "bias" in position.applies_to else None
        self.forget()

    def forget(self) -> None:
        """The rows are others from now on."""
        self._turns: list[Tensor] = []
        self._fading: Tensor | None = None

    def at(self, n: int, rows: int, pads: Tensor | None) -> StepPosition:
        """After `n` tokens, of which in each row the first `pads` (B,) are padding."""
        if self._rotary is not None and not self._turns:
            self._turns = self._turns_from(n, pads, self._rotary)
        turn = self._turns.pop() if self._turns else None
        return StepPosition(n, turn, None if self._biasing is None and pads is None else self._bias(n, rows, pads))

    def _turns_from(self, n: int, pads: Tensor | None, position: PositionalEncoding) -> list[Tensor]:
        """Matrices for the positions from n on, the last first."""
        d, like = self._dims.d_k, self._like
        rows = 1 if pads is None else len(pads)
        steps = max(1, AHEAD // (rows * d * d))
        token_positions = TokenPositions(steps, n)
        if pads is not None:
            token_positions = TokenPositions(steps, positions=(n - pads)[:, None] + torch.arange(steps, device=like.device))
        units = torch.eye(d, dtype=like.dtype, device=like.device).expand(rows, steps, d, d)
        turned = position.rotate(units, token_positions)
        return list((turned[0] if pads is None else turned.transpose(0, 1)).flip(0))

    def _bias(self, n: int, rows: int, pads: Tensor | None) -> Tensor:
        if self._fading is None or self._fading.shape[-1] <= n:
            self._fading = self._by_distance(2 * (n + 1))
        bias = self._fading[..., -n - 1 :].expand(rows, self._dims.n_kv_heads, -1, -1)
        if pads is not None:
            hidden = torch.arange(n + 1, device=pads.device) < pads[:, None]
            bias = bias.masked_fill(hidden[:, None, None], -torch.inf)
        return bias.flatten(0, 1)

    def _by_distance(self, room: int) -> Tensor:
        """What is added where a key stands room - 1, ..., 0 positions back: (G, R, room), or (1, 1, room) where nothing is."""
        distance = torch.arange(room - 1, -1, -1, device=self._like.device)
        bias = None if self._biasing is None else self._biasing.bias(distance[None])
        if bias is None:
            return self._like.new_zeros(1, 1, room)
        return bias[0].to(self._like.dtype).view(self._dims.n_kv_heads, -1, room)
