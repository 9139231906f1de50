"""Each key says by its content how long it may be seen, 1 to 4 tokens, so that a state shrinks by its content."""

import torch
from torch import Tensor

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, LayerSpec
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import POSITIONS_KEY, TokenPositions, Visibility


class Settings(MultiHeadSettings):
    SUPPORTS = frozenset({"causal", "packing", "streaming", "rotary", "nonnegative"})

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Spans":
        return Spans(self, dims, layer)


class Spans(MultiHeadAttention):
    LONGEST = 4

    def attend(self, q: Tensor, k: Tensor, v: Tensor, visibility: Visibility) -> Tensor:
        return self._weights(q, k, visibility) @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        q, k, v = self.project(x, memory, visibility)
        return ExplicitAttention(self._weights(q, k, visibility), v.repeat_interleave(q.shape[1] // v.shape[1], dim=1))

    def _weights(self, q: Tensor, k: Tensor, visibility: Visibility) -> Tensor:
        index, keys = (
            torch.arange(q.shape[2], device=q.device)[:, None],
            torch.arange(k.shape[2], device=q.device)[None],
        )
        seen = visibility.visible(index, keys) & (visibility.distance(index, keys) <= self._spans(k)[:, None])
        scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(-1, -2) * self.scale
        return scores.masked_fill(~seen[:, None], -torch.inf).softmax(-1).nan_to_num(0.0)

    def _spans(self, k: Tensor) -> Tensor:
        """(B, M); lengths of keys do not depend on their positions, since turning keeps them."""
        norms = k.square().sum(-1).sum(1)
        return 1 + (norms * 7).long().remainder(self.LONGEST)

    def trim(self, state: State) -> State:
        """Keys that no later token of any row may see go."""
        k = state["k"]
        token_positions = TokenPositions.of_state(state[POSITIONS_KEY], k.shape[2])
        positions = token_positions.all_positions(k.device)
        alive = ((positions[:, -1:] + 1 - positions) <= self._spans(k)).any(0)
        first = int(alive.nonzero()[0]) if alive.any() else k.shape[2] - 1
        return state | {
            "k": k[:, :, first:],
            "v": state["v"][:, :, first:],
            POSITIONS_KEY: token_positions.last(k.shape[2] - first).to_state(),
        }
