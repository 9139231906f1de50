"""Sliding-window attention; time and memory O(L * window).

Source: Beltagy et al. 2020, arXiv:2004.05150, section 3.1, without dilation and global tokens.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.attention import MemorySettings, MultiHeadAttention
from mini_tf.nn.layers.attention_kernels import fused_attention, repeat_kv
from mini_tf.nn.mixer import Ability, AttentionDims, LayerSpec, SoftmaxAttention
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import last_tokens
from mini_tf.nn.token_positions import Visibility, spans
from mini_tf.recipe.kinds import Rule, Rules

MIN_BLOCKS = 3
"""A row of fewer blocks attends as a whole."""


class Settings(MemorySettings):
    ALIASES = ("local", "sliding", "sliding_window")
    SUPPORTS = MemorySettings.SUPPORTS - {"cross", "unordered"} | {"streaming"}

    window: int = Field(128, ge=1, le=2**20)
    """Window size: largest distance in tokens at which a token attends, on both sides unless the stack is causal."""

    attends_self: bool = True
    """A token attends to itself."""
    projections: bool = True
    """Linear projections W_Q, W_K, W_V and W_O; false: the identity. scale: 0 makes the attention weights uniform."""

    @property
    def restriction(self) -> str:
        return f"at most {self.window} tokens away{'' if self.attends_self else ', without itself'}"

    @property
    def memory_bound(self) -> int:
        return min(self.window, self.memory_length or self.window)

    @property
    def supports(self) -> frozenset[Ability]:
        excluded: frozenset[Ability] = frozenset() if self.attends_self else frozenset({"excludes_self"})
        # Queries depend on their own tokens.
        without_query: frozenset[Ability] = frozenset({"context_only"}) if excluded and self.scale == 0 else frozenset()
        return super().supports | excluded | without_query

    def rules_with(self, dims: AttentionDims) -> Rules:
        if not self.projections and (dims.n_kv_heads, dims.d_k, dims.d_v) != (
            dims.n_heads,
            (d := dims.d_model // dims.n_heads),
            d,
        ):
            message = (
                "projections: false divides the hidden states among the heads; leave n_kv_heads, d_k and d_v to their"
                " defaults"
            )
            yield Rule("attention", message, ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v"))

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Window":
        if layer.attention == "cross":
            raise ValueError(
                "window attention does not support cross-attention: source and target have no common positions"
            )
        return Window(self, dims, layer)


class Window(MultiHeadAttention):
    """Queries in blocks of `window` tokens; each block attends to the keys of itself and the neighboring blocks."""

    STANDARD_SOFTMAX = True

    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.window, self.attends_self, self.projections = settings.window, settings.attends_self, settings.projections
        if not settings.projections:
            self.qkv, self.out = NoProjection(3), NoProjection()  # type: ignore[assignment]

    def restrict(self, visibility: Visibility) -> Visibility:
        limited = visibility.with_window(self.window)
        return limited if self.attends_self else limited.without_self()

    def fast_decoding(self) -> SoftmaxAttention | None:
        return super().fast_decoding() if self.projections else None

    def trim(self, state: State) -> State:
        """Drop keys outside of every later window."""
        return last_tokens(state, self.window)

    def attend(
        self,
        q: Float[Tensor, "B H L K"],
        k: Float[Tensor, "B G M K"],
        v: Float[Tensor, "B G M V"],
        visibility: Visibility,
    ) -> Float[Tensor, "B H L V"]:
        n_blocks = -(-q.shape[2] // self.window)
        if n_blocks < MIN_BLOCKS:
            return super().attend(q, k, v, visibility)  # as much work as blocks, in fewer steps
        if not visibility.causal or visibility.queries.orders is not None:
            return self._attend_blocks(q, k, v, visibility)
        before, parts = k.shape[2] - q.shape[2], []
        for part in spans(q.shape[2], self.window):
            seen = slice(max(0, before + part.start - self.window), before + part.stop)
            parts.append(self._attend_blocks(q[:, :, part], k[:, :, seen], v[:, :, seen], visibility.span(part, seen)))
        return torch.cat(parts, dim=2)

    def _attend_blocks(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        (batch, n_heads, length, _), w = q.shape, self.window
        n_blocks = -(-length // w)
        before = k.shape[2] - length  # cached keys; the index of the first query in the memory
        # Key blocks per query block: the previous, its own and, unless causal, the next.
        span = 2 if visibility.causal and visibility.queries.orders is None else 3
        k_index = torch.arange(span * w, device=q.device) - w + before  # keys of the first block

        def key_blocks(t: Tensor) -> Tensor:
            front = w - before
            t = t[:, :, -front:] if front < 0 else t
            padded = F.pad(repeat_kv(t, n_heads), (0, 0, max(0, front), n_blocks * w - length + (span - 2) * w))
            blocks = padded.unflatten(2, (-1, w))  # (B, H, n_blocks + span - 1, w, K)
            return torch.cat([blocks[:, :, i : i + n_blocks] for i in range(span)], dim=3).transpose(1, 2).flatten(0, 1)

        first = torch.arange(n_blocks, device=q.device)[:, None, None] * w
        q_index, key_index = first + torch.arange(w, device=q.device)[:, None], first + k_index
        mask = visibility.visible(q_index, key_index)[:, :, None]  # (B or 1, n_blocks, 1, w, span * w)
        q_blocks = F.pad(q, (0, 0, 0, n_blocks * w - length)).unflatten(2, (n_blocks, w)).transpose(1, 2).flatten(0, 1)
        k_blocks = key_blocks(k)
        encoding = self._bias_encoding
        if encoding is not None:
            distance = visibility.distance(q_index, key_index)
            if encoding.distance_only:
                bias = encoding.bias(distance).transpose(1, 2)  # type: ignore[union-attr]
            else:
                block_bias = encoding.bias(distance.expand(batch, -1, -1, -1).flatten(0, 1), q_blocks, k_blocks)
                bias = block_bias.unflatten(0, (batch, n_blocks))  # type: ignore[union-attr]
            mask = bias.to(q.dtype).masked_fill(~mask, -torch.inf)
        mask = mask.expand(batch, -1, -1, -1, -1).flatten(0, 1)
        dropout_rate = self.dropout_rate if self.training else 0.0
        y = fused_attention(q_blocks, k_blocks, key_blocks(v), mask, self.scale, dropout_rate)
        y = y.view(batch, n_blocks, n_heads, w, -1).transpose(1, 2)  # (B, H, n_blocks, w, V)
        return y.flatten(2, 3)[:, :, :length]


class NoProjection(nn.Module):
    """The identity in place of a linear layer; n: of as many layers with one input, as in `FusedLinear`."""

    def __init__(self, n: int = 1) -> None:
        super().__init__()
        self.n = n
        self.register_buffer("weight", torch.empty(0), persistent=False)  # follows the dtype and device of the model
        self.weight: Tensor

    def forward(self, x: Float[Tensor, "*at D"]) -> Float[Tensor, "*at nD"]:
        return x.repeat((1,) * (x.dim() - 1) + (self.n,)) if self.n > 1 else x
