"""Normalisation of a token's vector: LayerNorm (Ba et al. 2016, arXiv:1607.06450) and RMSNorm (Zhang, Sennrich 2019, arXiv:1910.07467)."""

from typing import Literal

from torch import nn

NormKind = Literal["layer", "rms"]


def build_norm(kind: NormKind, d_model: int, eps: float, bias: bool) -> nn.Module:
    """A norm over the last axis, with a learned scale and, for LayerNorm where `bias`, a learned shift."""
    return nn.LayerNorm(d_model, eps=eps, bias=bias) if kind == "layer" else nn.RMSNorm(d_model, eps=eps)
