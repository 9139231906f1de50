"""Linear cross-attention: of a source it keeps sums of phi(k) v^T and phi(k), phi = elu + 1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility


class Settings(MixerSettings):
    SUPPORTS = frozenset({"cross", "unordered", "nonnegative"})

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Sums":
        return Sums(dims)


class Sums(Mixer):
    def __init__(self, dims: AttentionDims) -> None:
        super().__init__()
        self.n_heads = dims.n_heads
        self.q = nn.Linear(dims.d_model, dims.n_heads * dims.d_k)
        self.k = nn.Linear(dims.d_memory, dims.n_heads * dims.d_k)
        self.v = nn.Linear(dims.d_memory, dims.n_heads * dims.d_v)
        self.out = nn.Linear(dims.n_heads * dims.d_v, dims.d_model)

    def start(self, batch: int) -> State:
        return {}

    def recall(self, memory: Tensor, token_positions: TokenPositions) -> State:
        k, v = self._keys(memory, token_positions)
        # `explicit` needs the keys and values themselves; they are made from the source, which all layers share.
        return {"kv": k.transpose(-1, -2) @ v, "k": k.sum(2), "source": memory}

    def forward(
        self, x: Tensor, memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        kept = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
        q = self._features(self.q(x))
        total = (q @ kept["k"][..., None]).clamp(min=1e-30)
        return self.join(q @ kept["kv"] / total, x, visibility, state)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        k, v = self._keys(memory["source"] if isinstance(memory, dict) else memory, visibility.memory)
        scores = self._features(self.q(x)) @ k.transpose(-1, -2)
        return ExplicitAttention(scores / scores.sum(-1, keepdim=True).clamp(min=1e-30), v)

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        return ForwardOutput(self.out(read.transpose(1, 2).flatten(2)), None, state)

    def _keys(self, memory: Tensor, token_positions: TokenPositions) -> tuple[Tensor, Tensor]:
        """phi(k) and v, (B, H, M, ..); 0 at padding."""
        segments, _ = token_positions.tensors(len(memory), memory.device)
        real = (segments != 0)[:, None, :, None]
        k, v = self._features(self.k(memory)), self.v(memory).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return torch.where(real, k, 0.0), torch.where(real, v, 0.0)

    def _features(self, x: Tensor) -> Tensor:
        return F.elu(x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)) + 1
