"""The contract of every positional encoding: it may change embeddings, queries and keys, or attention scores.

A file of `mini_tf/positions/` defines Settings with APPLIES_TO and `build`, and the module. One module serves a whole
stack; it is a submodule of the embedding, and mixers only refer to it.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import Kind


class PositionalEncoding(nn.Module):
    """Base class without any effect; a subclass overrides `embed`, `rotate` or `bias`.

    applies_to: "embed", "rotary" and "bias" accordingly.
    """

    applies_to: frozenset[str] = frozenset()
    max_positions: int | None = None
    """Number of positions if they are limited; a token beyond the last one is refused."""
    distance_only: bool = True
    """`bias` depends on the distance alone, so it is computed once for all queries and without them."""

    def of_layer(self, layer: int) -> "PositionalEncoding":
        """The encoding that the mixers of a layer use: this one, or a submodule with parameters of the layer."""
        return self

    def embed(self, x: Float[Tensor, "B L D"], token_positions: TokenPositions) -> Float[Tensor, "B L D"]:
        """Token embeddings with the positional encoding added or concatenated."""
        return x

    additive: bool = False
    """`embed` adds a vector of the position, whatever the tokens are."""

    orthogonal: bool = True
    """`rotate` preserves norms and treats queries and keys alike; the fast decoder supports only such encodings."""

    def rotate(
        self, x: Float[Tensor, "B L heads K"], token_positions: TokenPositions, n_queries: int | None = None
    ) -> Float[Tensor, "B L heads K"]:
        """Rotate queries and keys by their positions; the KV cache holds rotated keys.

        The first `n_queries` heads of x are queries, the others keys.
        """
        return x

    def rotations(self, token_positions: TokenPositions, d_k: int, like: Tensor) -> Tensor | None:
        """Complex numbers (B or 1, L, 1, d_k/2) of absolute value 1 by which `rotate` multiplies x_j + i x_(j + d_k/2);
        the real and imaginary parts of its outputs are adjacent. None if it does otherwise, or on this device.

        like: a tensor with the device, and of at most the precision.
        """
        return None

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor | None:
        """Bias (B or 1, H, ...) of the attention scores at `distance` (B or 1, ...), query minus key position.

        If not `distance_only`, q (B, H, L, K) and k (B, H, M, K) are given and distance is (B or 1, L, M).
        """
        return None


class PositionalEncodingSettings(Kind):
    PACKAGE = "positions"

    APPLIES_TO: ClassVar[frozenset[str]] = frozenset()
    """"embed" (token embeddings), "rotary" (queries and keys), "bias" (attention scores)."""

    PLOT_NOTE: ClassVar[str] = ""
    """A sentence printed below plots of its vectors."""

    def max_positions(self, context: int) -> int | None:
        """Number of positions if they are limited; context: `train.context`."""
        return None

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        """The module for a stack of these sizes; context: maximum length in training."""
        raise NotImplementedError

    def build_layers(self, n_layers: int, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        """As `build`, for an encoding with parameters of each layer."""
        return self.build(d_model, n_heads, d_k, context)


def sinusoids(positions: Tensor, d: int, base: float) -> Tensor:
    """Positions (...,) -> encodings (..., d); angles are computed in float64, for accuracy at large positions."""
    dimension = torch.arange(0, d, 2, device=positions.device, dtype=torch.float64)
    angle = positions[..., None].double() * base ** (-dimension / d)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d]
