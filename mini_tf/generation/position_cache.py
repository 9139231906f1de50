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


class PositionCache:
    """Computes `StepPosition` for consecutive steps; `like` has the model's dtype and device.

    needs_bias: False if no layer computes attention scores, which would need a bias or the mask of the padding.
    """

    def __init__(
        self, position: PositionalEncoding, dims: AttentionDims, like: Tensor, needs_bias: bool = True
    ) -> None:
        self._dims, self._like, self._needs_bias = dims, like, needs_bias
        self._rotary = position if "rotary" in position.applies_to else None
        self._biased = position if "bias" in position.applies_to else None
        self.reset()

    def reset(self) -> None:
        """Drop the tensors computed for the current rows."""
        self._rotations: list[Tensor] = []
        self._distance_bias: Tensor | None = None

    def at(self, n: int, rows: int, pads: Tensor | None) -> StepPosition:
        """The step after `n` tokens, of which the first `pads` (B,) of each row are padding."""
        if self._rotary is not None and not self._rotations:
            self._rotations = self._rotations_from(n, pads, self._rotary)
        rotation = self._rotations.pop() if self._rotations else None
        biased = self._needs_bias and (self._biased is not None or pads is not None)
        return StepPosition(n, rotation, self._bias(n, rows, pads) if biased else None)

    def _rotations_from(self, n: int, pads: Tensor | None, position: PositionalEncoding) -> list[Tensor]:
        """Matrices for the positions from n on, the last position first."""
        d, like = self._dims.d_k, self._like
        rows = 1 if pads is None else len(pads)
        steps = max(1, BUFFER_SIZE // (rows * d * d))
        token_positions = TokenPositions(steps, n)
        if pads is not None:
            token_positions = TokenPositions(
                steps, positions=(n - pads)[:, None] + torch.arange(steps, device=like.device)
            )
        units = torch.eye(d, dtype=like.dtype, device=like.device).expand(rows, steps, d, d)
        rotated = position.rotate(units, token_positions)
        return list((rotated[0] if pads is None else rotated.transpose(0, 1)).flip(0))

    def _bias(self, n: int, rows: int, pads: Tensor | None) -> Tensor:
        if self._distance_bias is None or self._distance_bias.shape[-1] <= n:
            self._distance_bias = self._by_distance(2 * (n + 1))
        bias = self._distance_bias[..., -n - 1 :].expand(rows, self._dims.n_kv_heads, -1, -1)
        if pads is not None:
            padding = torch.arange(n + 1, device=pads.device) < pads[:, None]
            bias = bias.masked_fill(padding[:, None, None], -torch.inf)
        return bias.flatten(0, 1)

    def _by_distance(self, size: int) -> Tensor:
        """Bias for keys at distances size - 1, ..., 0: (G, R, size), or zeros (1, 1, size) without a bias."""
        distance = torch.arange(size - 1, -1, -1, device=self._like.device)
        bias = None if self._biased is None else self._biased.bias(distance[None])
        if bias is None:
            return self._like.new_zeros(1, 1, size)
        return bias[0].to(self._like.dtype).view(self._dims.n_kv_heads, -1, size)
