"""Rotary position embeddings (RoPE): queries and keys are rotated by their positions, so scores depend on distances
only.

Dimension j is paired with j + d_k/2 (the layout of Hugging Face's Llama). The output has the two dimensions of a pair
adjacent, in queries and keys alike, so no score changes. Source: Su et al. 2021, arXiv:2104.09864.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mini_tf.nn.layers.kernels import handwritten
from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import Rules, Section

COMPLEX = frozenset({"cpu", "cuda"})
"""Devices on which pairs are rotated as complex numbers: fewer passes over memory, and fewer kernels to launch."""


class LongWavelengths(Section):
    """Which wavelengths of a rotation, in tokens, a factor applies to: fully above context / low, not below
    context / high, and between them in part.
    """

    context: int = Field(8192, ge=1, le=2**24)
    """The context that the model was first trained with."""
    low: float = Field(1.0, gt=0, le=1e6)
    """Least number of rotations within the context that keeps some of its frequency."""
    high: float = Field(4.0, gt=0, le=1e6)
    """Number of rotations within the context from which on the frequency is unchanged."""

    def rules(self) -> Rules:
        if self.low >= self.high:
            yield "low", f"must be below high, {self.high:g}"


class Settings(PositionalEncodingSettings):
    ALIASES = ("rope",)
    APPLIES_TO = frozenset({"rotary"})

    base: float = Field(10000.0, gt=1)
    """Pair i is rotated by base^(-2i/d_k) per token; a smaller base suits short contexts."""

    share: float = Field(1.0, gt=0, le=1)
    """Share of the dimensions of a head that are rotated, the first ones; the others have no position (GPT-NeoX)."""

    layer_bases: Annotated[tuple[Annotated[float, Field(gt=1)], ...], Field(max_length=1024)] = ()
    """Bases that are repeated over the layers, in place of base."""

    factor: float = Field(1.0, ge=1, le=1e6)
    """Divides the frequencies, for a context so many times as long (position interpolation, Chen et al. 2023)."""

    long_wavelengths: LongWavelengths | None = None
    """Wavelengths that the factor applies to, {context, low, high}, as in Llama 3.1; null: all."""

    def build_layers(self, n_layers: int, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        if not self.layer_bases:
            return self.build(d_model, n_heads, d_k, context)
        return RotaryLayers([self._rotary(d_k, self.layer_bases[n % len(self.layer_bases)]) for n in range(n_layers)])

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return self._rotary(d_k, self.base)

    def _rotary(self, d_k: int, base: float) -> "Rotary":
        return Rotary(max(2, int(self.share * d_k) // 2 * 2), base, self.factor, self.long_wavelengths)


class Rotary(PositionalEncoding):
    """d_k: the number of dimensions of each head that are rotated, the first ones."""

    applies_to = Settings.APPLIES_TO

    def __init__(self, d_k: int, base: float, factor: float = 1.0, long: LongWavelengths | None = None) -> None:
        super().__init__()
        self.d_k, self.base, self.factor, self.long = d_k, base, factor, long
        self._last: tuple[TokenPositions, tuple[Tensor, Tensor, Tensor | None]] | None = None

    def frequencies(self, device: torch.device) -> Tensor:
        """Rotation per token of each pair, (K/2,) in float64, fastest first."""
        pair = torch.arange(0, self.d_k, 2, device=device, dtype=torch.float64)
        unchanged = self.base ** (-pair / self.d_k)
        if self.long is None:
            return unchanged / self.factor
        rotations = self.long.context * unchanged / (2 * math.pi)  # within the context
        kept = ((rotations - self.long.low) / (self.long.high - self.long.low)).clamp(0, 1)
        return unchanged * (kept + (1 - kept) / self.factor)

    def rotate(self, x: Tensor, token_positions: TokenPositions, n_queries: int | None = None) -> Tensor:
        if x.shape[-1] > self.d_k:
            rest = x.shape[-1] - self.d_k
            first, others = x.split([self.d_k, rest], dim=-1)
            return torch.cat([self.rotate(first.contiguous(), token_positions, n_queries), others], dim=-1)
        half = x.dtype in (torch.bfloat16, torch.float16)
        cos, sin, rotations = self._rotations(token_positions, x)
        if handwritten() and rotations is not None:
            rotated: Tensor = _Rotate.apply(x.float() if half else x, rotations)
            return rotated.to(x.dtype)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)

    def rotations(self, token_positions: TokenPositions, d_k: int, like: Tensor) -> Tensor | None:
        return self._rotations(token_positions, like)[2] if d_k == self.d_k else None

    def _rotations(self, token_positions: TokenPositions, like: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """cos and sin of every pair's angle, (B or 1, L, 1, K/2), and on a device of `COMPLEX` cos + i sin.

        Cached, as all layers have the same positions. torch.compile does not support complex numbers, nor some devices
        float64.
        """
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        if (
            self._last is not None
            and self._last[0] is token_positions
            and self._last[1][0].dtype == exact
            and self._last[1][0].device == like.device
        ):
            return self._last[1]
        positions = token_positions.all_positions(like.device)[..., None]
        if like.device.type == "mps":
            positions = positions.cpu()
        angle = positions.double() * self.frequencies(positions.device)
        cos, sin = ((part[:, :, None].to(exact)).to(like.device) for part in (angle.cos(), angle.sin()))
        rotations = torch.complex(cos, sin) if handwritten() and like.device.type in COMPLEX else None
        self._last = (token_positions, (cos, sin, rotations))
        return self._last[1]


class RotaryLayers(PositionalEncoding):
    """Rotations of each layer."""

    applies_to = Settings.APPLIES_TO

    def __init__(self, layers: Sequence[Rotary]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def of_layer(self, layer: int) -> PositionalEncoding:
        chosen = self.layers[layer]
        assert isinstance(chosen, PositionalEncoding)
        return chosen


class _Rotate(torch.autograd.Function):
    """Pairs as complex numbers, times e^(i angle): two passes over memory; real arithmetic takes five."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rotations: Tensor) -> Tensor:
        ctx.save_for_backward(rotations)
        first, second = x.chunk(2, dim=-1)
        return torch.view_as_real(torch.complex(first, second).mul_(rotations)).flatten(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (rotations,) = ctx.saved_tensors
        pairs = torch.view_as_complex(dy.contiguous().unflatten(-1, (-1, 2))) * rotations.conj()
        return torch.cat([pairs.real, pairs.imag], dim=-1), None
