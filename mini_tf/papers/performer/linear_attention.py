"""Multi-head linear attention with a recurrent state, which mixers with a feature map share.

Subclasses define `features`. Self-attention costs O(L) time and memory, cross-attention O(L + M).
Source: Katharopoulos et al. 2020, arXiv:2006.16236.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mini_tf.nn.attention import MultiHeadProjections, ProjectionSettings
from mini_tf.nn.layers.attention_kernels import recomputed, repeat_kv
from mini_tf.nn.mixer import ExplicitAttention, ForwardOutput, RecurrentAttention
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility, spans
from mini_tf.papers.performer.key_sums import (
    CHUNK,
    Features,
    KeySums,
    add_key,
    attend_to_sums,
    linear_attention,
    linear_weights,
    sum_sources,
)


class LinearAttentionSettings(ProjectionSettings):
    SUPPORTS = ProjectionSettings.SUPPORTS | {"streaming"}


class LinearAttention(MultiHeadProjections):
    """Attention weights phi(q) . phi(k), normalized per query; sums are computed in fp32 or more."""

    NO_GRAPH = "its sums are over chunks, whose number depends on the length"
    n_features: int

    def features(self, x: Float[Tensor, "B H L K"]) -> Features:
        """phi of queries or keys, (B, H, L, n_features)."""
        raise NotImplementedError

    def start(self, batch: int) -> State:
        if self.is_cross_attn:
            return {}  # the sums come from `recall`
        weight = self.out.weight
        like = weight.new_empty(0, dtype=torch.promote_types(weight.dtype, torch.float32))
        return KeySums.empty(batch, self.dims.n_heads, self.n_features, self.dims.d_v, like)._asdict()

    def recall(self, memory: Float[Tensor, "B M d_memory"], token_positions: TokenPositions) -> State:
        """Keys `k` and values `v` (B, H, M, ..), and their `sums` by document."""
        k, v = self._repeated(*self.project_memory(memory))
        with torch.autocast(memory.device.type, enabled=False):
            sums = sum_sources(self.features(_float(k)), _float(v), token_positions)
        return {"k": k, "v": v, "sums": sums}

    def forward(
        self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        if self.is_cross_attn:
            recalled = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
            q = self.project_query(x).contiguous()  # each product with sums would copy it
            with torch.autocast(x.device.type, enabled=False):
                attended = attend_to_sums(self.features(_float(q)).values, recalled["sums"], visibility.queries)
            return self.join(attended.to(q.dtype), x, visibility, state)
        q, k, v = self._repeated(*self.project(x, memory, visibility))
        before = KeySums(**state) if state else None
        attended, after = self._attend(q, k, v, visibility, before)
        return self.join(
            attended.to(q.dtype), x, visibility, None if after is None or before is None else after._asdict()
        )

    def explicit(self, x: Float[Tensor, "B L D"], memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        if self.is_cross_attn:
            recalled = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
            q, k, v = self.project_query(x), recalled["k"], recalled["v"]
        else:
            q, k, v = self._repeated(*self.project(x, memory, visibility))
        with torch.autocast(x.device.type, enabled=False):
            weights = linear_weights(self.features(_float(q)).values, self.features(_float(k)), visibility)
        return ExplicitAttention(weights.to(v.dtype), v)

    def fast_decoding(self) -> RecurrentAttention | None:
        return None if self.is_cross_attn else RecurrentAttention(self.fast_projections(), self._step)

    def _step(
        self, q_and_k: Float[Tensor, "B N K"], v: Float[Tensor, "B G V"], state: State
    ) -> tuple[Float[Tensor, "B H V"], State]:
        before, dtype = KeySums(**state), state["sums"].dtype
        values, log_scale = self.features(q_and_k[:, :, None].to(dtype))  # (B, H + G, 1, F), (B, H + G, 1)
        q, k = values.split_with_sizes([self.dims.n_heads, self.dims.n_kv_heads], dim=1)
        k, v, key_scale = self._repeated(k, v[:, :, None].to(dtype), log_scale[:, self.dims.n_heads :, :, None])
        after = add_key(before, k, v, key_scale)
        return attend_to_sums(q, after.sums[:, :, None])[:, :, 0].to(q_and_k.dtype), after._asdict()

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, before: KeySums | None
    ) -> tuple[Tensor, KeySums | None]:
        cut = list(spans(q.shape[2]))
        if not visibility.causal or visibility.queries.orders is not None or len(cut) == 1:
            return self._attend_once(q, k, v, visibility, before)
        parts: list[Tensor] = []
        after = before or KeySums(**self.start(len(q)))
        for part in cut:
            attended, after = self._attend_once(
                q[:, :, part], k[:, :, part], v[:, :, part], visibility.span(part, part), after
            )
            parts.append(attended)
        return torch.cat(parts, dim=2), after

    def _attend_once(
        self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, before: KeySums | None
    ) -> tuple[Tensor, Any]:
        if not torch.is_grad_enabled() or q.shape[2] <= 2 * CHUNK:
            return self._attend_in_chunks(q, k, v, visibility, before)
        # Features and weights are several times as large as queries, keys and values, so they are recomputed in the
        # backward pass.
        y: tuple[Tensor, Any] = recomputed(self._attend_in_chunks, q, k, v, visibility, before)
        return y

    def _attend_in_chunks(
        self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility, before: KeySums | None
    ) -> tuple[Tensor, KeySums | None]:
        with torch.autocast(q.device.type, enabled=False):
            return linear_attention(
                self.features(_float(q)).values, self.features(_float(k)), _float(v), visibility, before
            )

    def _repeated(self, *heads: Tensor) -> tuple[Tensor, ...]:
        """Keys and values for every query head."""
        return tuple(repeat_kv(t, self.dims.n_heads) for t in heads)


def _float(x: Tensor) -> Tensor:
    """In fp32 or more: in half precision sums over many keys would lose the small ones."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
