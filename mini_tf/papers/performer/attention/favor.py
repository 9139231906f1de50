"""Performer attention (FAVOR+): softmax attention approximated by random features; time and memory O(L).

The approximation is unbiased before normalization. Its error falls slowly with the number of features, so a model that
was trained with softmax attention needs some training after the conversion.
Source: Choromanski et al. 2021, arXiv:2009.14794.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, PositiveFloat
from torch import Tensor

from mini_tf.nn.attention import scale_value
from mini_tf.nn.mixer import Ability, AttentionDims, LayerSpec
from mini_tf.papers.performer.key_sums import Features
from mini_tf.papers.performer.linear_attention import LinearAttention, LinearAttentionSettings
from mini_tf.system.seeds import seed_of

Variant = Literal["positive", "hyperbolic", "trigonometric", "relu"]
RELU_EPSILON = 1e-3
"""Added to ReLU features, as in the paper's generalized attention, so that no key has the weight 0 for all queries."""


class Settings(LinearAttentionSettings):
    ALIASES = ("performer",)
    TRAINING_KEYS = frozenset({"redraw_every"})

    features: int = Field(64, ge=1, le=2**14)
    """Number of random features."""
    variant: Variant = "positive"
    """Random features: exp(w x); exp(+-w x) of half as many w; sin(w x), cos(w x), which are unstable; or relu(w x)."""
    orthogonal: bool = True
    """Rows of the projection are orthogonal within blocks of d_k, which lowers the variance."""
    regularized: bool = False
    """Rows of the projection all have the norm sqrt(d_k) (SMREG) instead of that of normal vectors."""
    redraw_every: int = Field(1000, ge=0)
    """Steps between new random projections in training; 0: the first one is kept."""
    scale: Literal["rsqrt_dk", "none"] | PositiveFloat = "rsqrt_dk"
    """Factor of the attention scores that are approximated: 1/sqrt(d_k), 1, or this number."""

    @property
    def supports(self) -> frozenset[Ability]:
        return self.SUPPORTS - {"nonnegative"} if self.variant == "trigonometric" else self.SUPPORTS

    @property
    def n_rows(self) -> int:
        """Rows of the projection, each of which gives one or two features."""
        return -(-self.features // (2 if self.variant in ("hyperbolic", "trigonometric") else 1))

    @property
    def n_features(self) -> int:
        return self.n_rows * (2 if self.variant in ("hyperbolic", "trigonometric") else 1)

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Favor":
        return Favor(self, dims, layer)


class Favor(LinearAttention):
    projection: Tensor

    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.settings, self.scale = settings, scale_value(settings.scale, dims.d_k)
        self.n_features = settings.n_features
        self.register_buffer("projection", torch.empty(settings.n_rows, dims.d_k))
        self._draw(seed_of(torch.initial_seed(), "projection", layer.layer, layer.attention))

    def features(self, x: Float[Tensor, "B H L K"]) -> Features:
        return random_features(x * self.scale**0.5, self.projection.to(x.dtype), self.settings.variant)

    def refresh(self, seed: int, step: int) -> bool:
        """A new projection, with which sums over the features of another one cannot be used."""
        every = self.settings.redraw_every
        redraw = every > 0 and step > 0 and step % every == 0
        if redraw:
            self._draw(seed_of(seed, step))
        return redraw

    def _draw(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            settings, (rows, d_k) = self.settings, self.projection.shape
            self.projection.copy_(draw_projection(rows, d_k, settings.orthogonal, settings.regularized, generator))


def random_features(x: Float[Tensor, "B H L K"], projection: Float[Tensor, "R K"], variant: Variant) -> Features:
    """phi(x): the expectation of phi(q) . phi(k) over random projections is exp(q . k); relu has another kernel.

    Source: Choromanski et al. 2021, Lemma 1 and section 2.3.
    """
    projected = x @ projection.T
    if variant == "relu":
        return Features((projected.relu() + RELU_EPSILON) * len(projection) ** -0.5, torch.zeros_like(x[..., 0]))
    half = (x * x).sum(-1, keepdim=True) / 2
    if variant == "trigonometric":
        scale = half.detach()
        values = torch.cat([projected.sin(), projected.cos()], dim=-1) * (half - scale).exp()
    else:
        exponents = projected - half if variant == "positive" else torch.cat([projected, -projected], dim=-1) - half
        scale = exponents.detach().amax(-1, keepdim=True)
        values = (exponents - scale).exp()
    n = len(projection) * (2 if variant == "hyperbolic" else 1)
    return Features(values * n**-0.5, scale.squeeze(-1))


def draw_projection(
    rows: int, d: int, orthogonal: bool, regularized: bool, generator: torch.Generator
) -> Float[Tensor, "rows d"]:
    """Random rows, each normally distributed if not `regularized`; if `orthogonal`, in blocks of d orthogonal rows.

    The sign of each column of Q is fixed by R: LAPACK's own choice of signs is not uniform over the rotations, which
    biases the features (Mezzadri 2007, arXiv:math-ph/0609050).
    """
    normal = torch.randn(-(-rows // d), d, d, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    directions = (
        (q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]).transpose(1, 2)
        if orthogonal
        else F.normalize(normal, dim=-1)
    )
    norms = torch.randn(rows, d, generator=generator, dtype=torch.float64).norm(dim=-1, keepdim=True)
    lengths = torch.full_like(norms, d**0.5) if regularized else norms
    return (directions.flatten(0, 1)[:rows] * lengths).float()
