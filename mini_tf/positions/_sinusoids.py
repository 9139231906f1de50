"""Sines and cosines of positions, for encodings of positions and of distances."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, d: int, base: float) -> Tensor:
    """Positions (...,) -> encodings (..., d); angles are computed in float64, for accuracy at large positions."""
    dimension = torch.arange(0, d, 2, device=positions.device, dtype=torch.float64)
    angle = positions[..., None].double() * base ** (-dimension / d)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d]
