"""Multi-head projections: what every mixer with queries, keys and values of several heads shares.

d_k, d_v and the number of key-value heads are configurable. Subclasses compute attention from the projected heads.
Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; grouped-query attention: Ainslie et al. 2023,
arXiv:2305.13245; QK normalization: Henry et al. 2020, arXiv:2010.04245.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mini_tf.nn.layers.fused_linear import FusedLinear, ResidualLinear, split_outputs
from mini_tf.nn.layers.norm import rms_norm
from mini_tf.nn.mixer import AttentionDims, FastProjections, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility

Scale = Literal["rsqrt_dk", "none"] | float
"""Factor of the attention scores: 1/sqrt(d_k), 1, or a number."""


class ProjectionSettings(MixerSettings):
    SUPPORTS = MixerSettings.SUPPORTS | {"rotary"}

    qk_norm: bool = False
    """Queries and keys are normalized to RMS 1 before the dot product."""


def scale_value(scale: Scale, d_k: int) -> float:
    """The number that a `scale` setting stands for."""
    scales = {"rsqrt_dk": d_k**-0.5, "none": 1.0}
    return scales[scale] if isinstance(scale, str) else scale


class MultiHeadProjections(Mixer):
    """Projections to queries, keys and values, and the output projection."""

    def __init__(self, settings: ProjectionSettings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__()
        self.dims, self.qk_norm = dims, settings.qk_norm
        # In a tuple, so not registered as a submodule: the embedding owns the module.
        self._positional_encoding = (layer.positional_encoding,)
        self.cross = layer.attention == "cross"
        q, k, v = dims.n_heads * dims.d_k, dims.n_kv_heads * dims.d_k, dims.n_kv_heads * dims.d_v
        if self.cross:
            self.q = nn.Linear(dims.d_model, q, bias=layer.bias)
            self.kv = FusedLinear(dims.d_memory, (k, v), layer.bias)
        else:
            self.qkv = FusedLinear(dims.d_model, (q, k, v), layer.bias)
        self.sizes = (q, k, v)
        self.out = ResidualLinear(dims.n_heads * dims.d_v, dims.d_model, bias=layer.bias)

    def join(
        self, attended: Float[Tensor, "B H L V"], x: Float[Tensor, "B L D"], visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        return ForwardOutput(self.out(attended.transpose(1, 2).flatten(2)), None, state)  # (B,H,L,V) -> (B,L,H*V) -> (B,L,D)

    def fast_projections(self) -> FastProjections:
        """Self-attention: the projections of the fast decoder."""
        return FastProjections(self.dims, self.qkv, self.sizes, self.out, self.qk_norm)

    def project_query(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L K"]:
        """Cross-attention: the queries."""
        return self._normed(self._heads(self.q(x))).transpose(1, 2)

    def project_memory(self, memory: Float[Tensor, "B M d_memory"]) -> tuple[Float[Tensor, "B G M K"], Float[Tensor, "B G M V"]]:
        """Cross-attention: keys and values of a source."""
        assert self.cross, "recall is for cross-attention"
        k, v = split_outputs(self.kv, memory, self.sizes[1:])
        return self._normed(self._heads(k)).transpose(1, 2), self._heads(v, self.dims.d_v).transpose(1, 2)

    def project(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility
    ) -> tuple[Float[Tensor, "B H L K"], Float[Tensor, "B G L K"], Float[Tensor, "B G L V"]]:
        """Self-attention: queries, keys and values, rotated by their positions. ValueError unless memory is x."""
        if not self.qk_norm and not self._rotary:
            q, k, v = self._split(x, memory, self.sizes)
            return self._heads(q).transpose(1, 2), self._heads(k).transpose(1, 2), self._heads(v, self.dims.d_v).transpose(1, 2)
        q_and_k, v = self.project_heads(x, memory)
        q, k = self.rotated(q_and_k, visibility).transpose(1, 2).split([self.dims.n_heads, self.dims.n_kv_heads], dim=1)
        return q, k, v

    def project_heads(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State
    ) -> tuple[Float[Tensor, "B L heads K"], Float[Tensor, "B G L V"]]:
        """Self-attention: queries and keys, neither rotated nor normalized, and values."""
        q_and_k, v = self._split(x, memory, (self.sizes[0] + self.sizes[1], self.sizes[2]))
        # A view of v would keep the whole output of qkv in memory for the backward pass.
        return self._heads(q_and_k), self._heads(v, self.dims.d_v).contiguous().transpose(1, 2)

    def rotated(self, q_and_k: Float[Tensor, "B L heads K"], visibility: Visibility) -> Float[Tensor, "B L heads K"]:
        """Queries and keys at the positions of the queries, normalized with `qk_norm`."""
        # Queries and keys have the same width and are rotated and normalized together. Rotations preserve norms, so the
        # norm may come last: then only tensors that the attention scores need anyway are saved for the backward pass.
        encoding = self._positional_encoding[0]
        orthogonal = encoding is None or encoding.orthogonal
        q_and_k = q_and_k if orthogonal else self._normed(q_and_k)
        if encoding is not None and self._rotary:
            q_and_k = encoding.rotate(q_and_k, visibility.queries, self.dims.n_heads)
        return self._normed(q_and_k) if orthogonal else q_and_k

    def _split(self, x: Tensor, memory: Tensor | State, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        if isinstance(memory, dict) or memory.shape != x.shape:
            raise ValueError("self-attention needs x itself as memory; build the mixer with attention 'cross' for another memory")
        return split_outputs(self.qkv, x, sizes)

    @property
    def _rotary(self) -> bool:
        encoding = self._positional_encoding[0]
        return encoding is not None and "rotary" in encoding.applies_to

    def _heads(self, x: Tensor, d: int | None = None) -> Tensor:
        return x.reshape(*x.shape[:-1], -1, d or self.dims.d_k)

    def _normed(self, x: Tensor) -> Tensor:
        # The epsilon of at least fp32, so that a model trained in half precision gives the same outputs in fp32.
        return rms_norm(x, torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps) if self.qk_norm else x
