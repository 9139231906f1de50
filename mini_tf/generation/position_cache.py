"""Positional encoding of decoding steps, shared by all layers: rotation of queries and keys, bias of attention scores.

Works for any positional encoding: a rotation is linear, so `rotate` of the unit vectors gives its matrix; a bias
depends on the distance only, so one row of distances serves every position.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.nn.mixer import AttentionDims
from mini_tf.nn.positional_encoding import PositionalEncoding
from mini_tf.nn.token_positions import TokenPositions

BUFFER_SIZE = 2**16
"""Maximum elements of the rotation matrices that are computed at once."""


class StepPosition(NamedTuple):
    """n: number of tokens before this one. rotation (K, K) or (B, K, K): multiplies queries and keys.

    bias (B G, R or 1, n + 1): added to the attention scores of the R queries that share one of G keys. None if there is
    none.
    """

    n: int
    rotation: Tensor | None
    bias: Tensor | None

    def within(self, window: int | None, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values (`LayerCache`) at most `window` tokens before this one, None = all, and their bias."""
        if window is None or self.n <= window:
            return keys, values, self.bias
        first = self.n - window
        return keys[:, :, first:], values[:, first:], None if self.bias is None else self.bias[:, :, first:]


class PositionCache:
    """Computes `StepPosition` for consecutive steps; `like` has the model's dtype and device.

    needs_bias: False if no layer computes attention scores, which would need a bias or the mask of the padding.
    """

    def __init__(
        self, position: PositionalEncoding, dims: AttentionDims, like: Tensor, needs_bias: bool = True
    ) -> None:
        self.dims, self.needs_bias, self.device, self._like = dims, needs_bias, like.device, like
        self._rotary = position if "rotary" in position.applies_to else None
        self._biased = position if "bias" in position.applies_to else None
        self.is_biased = self._biased is not None
        self.reset()

    def reset(self) -> None:
        """Drop the tensors computed for the current rows."""
        self._rotations: list[Tensor] = []
        self._distance_bias: Tensor | None = None

    def at(self, n: int, rows: int, pads: Tensor | None) -> StepPosition:
        """The step after `n` tokens, of which the first `pads` (B,) of each row are padding."""
        if self._rotary is not None and not self._rotations:
            self._rotations = self._next_rotations(n, pads)
        rotation = self._rotations.pop() if self._rotations else None
        biased = self.needs_bias and (self.is_biased or pads is not None)
        return StepPosition(n, rotation, self._bias(n, rows, pads) if biased else None)

    def _next_rotations(self, n: int, pads: Tensor | None) -> list[Tensor]:
        """Matrices for the positions from n on, the last position first."""
        rows = 1 if pads is None else len(pads)
        steps = max(1, BUFFER_SIZE // (rows * self.dims.d_k**2))
        token_positions = TokenPositions(steps, n)
        if pads is not None:
            token_positions = TokenPositions(
                steps, positions=(n - pads)[:, None] + torch.arange(steps, device=pads.device)
            )
        rotations = self.rotations(token_positions, rows)
        assert rotations is not None
        return list((rotations[0] if pads is None else rotations.transpose(0, 1)).flip(0))

    def rotations(self, token_positions: TokenPositions, rows: int = 1) -> Tensor | None:
        """Matrices (rows, length, K, K) that rotate queries and keys at these positions; None without rotations."""
        if self._rotary is None:
            return None
        units = torch.eye(self.dims.d_k, dtype=self._like.dtype, device=self.device)
        return self._rotary.rotate(units.expand(rows, token_positions.length, -1, -1), token_positions)

    def _bias(self, n: int, rows: int, pads: Tensor | None) -> Tensor:
        if self._distance_bias is None or self._distance_bias.shape[-1] <= n:
            self._distance_bias = self.bias_by_distance(2 * (n + 1))
        bias = self._distance_bias[..., -n - 1 :].expand(rows, self.dims.n_kv_heads, -1, -1)
        if pads is not None:
            padding = torch.arange(n + 1, device=pads.device) < pads[:, None]
            bias = bias.masked_fill(padding[:, None, None], -torch.inf)
        return bias.flatten(0, 1)

    def bias_by_distance(self, size: int) -> Tensor:
        """Bias for keys at distances size - 1, ..., 0: (G, R, size), or zeros (1, 1, size) without a bias."""
        distance = torch.arange(size - 1, -1, -1, device=self.device)
        bias = None if self._biased is None else self._biased.bias(distance[None])
        if bias is None:
            return self._like.new_zeros(1, 1, size)
        return bias[0].to(self._like.dtype).view(self.dims.n_kv_heads, -1, size)


class FixedPosition(NamedTuple):
    """`StepPosition` for all slots of a `FixedKVCache`. distance (capacity,): to each slot, negative behind the token.

    n (1,). bias (B G, R or 1, capacity): -inf hides slots that are not filled, and padding.
    """

    n: Tensor
    rotation: Tensor | None
    bias: Tensor | None
    distance: Tensor
    by_window: dict[int, Tensor]

    def within(self, window: int | None, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `StepPosition.within`; a window hides slots."""
        if window is None or self.bias is None:
            return keys, values, self.bias
        if window not in self.by_window:
            self.by_window[window] = self.bias.masked_fill(self.distance > window, -torch.inf)
        return keys, values, self.by_window[window]


class FixedPositions:
    """Computes `FixedPosition` from tables of all positions below `capacity`, so the number of tokens is a tensor."""

    def __init__(self, positions: PositionCache, capacity: int) -> None:
        rotations = positions.rotations(TokenPositions(capacity))
        self._rotations = None if rotations is None else rotations[0]  # (capacity, K, K)
        self._biases = positions.bias_by_distance(capacity).flip(-1) if positions.needs_bias else None
        self._groups, self._is_biased = positions.dims.n_kv_heads, positions.is_biased
        self._slots = torch.arange(capacity, device=positions.device)

    def at(self, n: Tensor, pads: Tensor) -> FixedPosition:
        """The step after `n` (1,) tokens, of which the first `pads` (B,) of each row are padding."""
        rotation = None if self._rotations is None else self._rotations.index_select(0, n - pads)  # (B, K, K)
        distance, bias = n - self._slots, None
        if self._biases is not None:
            hidden = (distance < 0) | (self._slots < pads[:, None])  # (B, capacity)
            bias = self._biases.index_select(-1, distance.clamp(min=0)) if self._is_biased else self._biases
            bias = bias.expand(len(pads), self._groups, -1, -1).masked_fill(hidden[:, None, None], -torch.inf)
            bias = bias.flatten(0, 1)
        return FixedPosition(n, rotation, bias, distance, {})
