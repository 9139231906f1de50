"""Retention without normalization: a faded sum of the values of a row so far, which does not keep documents apart.

Weights sum to more than 1. Source: Sun et al. 2023, arXiv:2307.08621, section 2.1, with one decay and no keys.
"""

import torch
from torch import Tensor, nn

from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class Settings(MixerSettings):
    SUPPORTS = frozenset({"causal", "streaming", "nonnegative"})

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Running":
        return Running(dims)


class Running(Mixer):
    DECAY = 0.9

    def __init__(self, dims: AttentionDims) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(dims.d_model, dims.d_v), nn.Linear(dims.d_v, dims.d_model)

    def start(self, batch: int) -> State:
        return {"sum": self.value.weight.new_zeros(batch, self.value.out_features)}

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        total, values, sums = (state or self.start(len(x)))["sum"], self._values(x, visibility), []
        for t in range(x.shape[1]):
            total = self.DECAY * total + values[:, t]
            sums.append(total)
        return self.join(torch.stack(sums, dim=1)[:, None], x, visibility, None if state is None else {"sum": total})

    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> ExplicitAttention:
        index = torch.arange(x.shape[1], device=x.device)
        weights = self.DECAY ** visibility.distance(index[:, None], index[None]).clamp(min=0).to(
            x.dtype
        ) * visibility.mask(x.device)
        return ExplicitAttention(weights.expand(len(x), -1, -1)[:, None], self._values(x, visibility)[:, None])

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        return ForwardOutput(self.out(read[:, 0]), None, state)

    def _values(self, x: Tensor, visibility: Visibility) -> Tensor:
        """0 at padding."""
        segments, _ = visibility.queries.tensors(len(x), x.device)
        return torch.where((segments != 0)[..., None], self.value(x), 0.0)
