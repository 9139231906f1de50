"""The mean of a row so far, which does not keep documents apart."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from mini_tf.nn.mixer import AttentionDims, Direction, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class Settings(MixerSettings):
    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset({"causal"})
    CROSS: ClassVar[bool] = False
    STREAMS: ClassVar[bool] = True
    PACKS: ClassVar[bool] = False

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Running":
        return Running(dims)


class Running(Mixer):
    def __init__(self, dims: AttentionDims) -> None:
        super().__init__()
        self.value, self.out = nn.Linear(dims.d_model, dims.d_v), nn.Linear(dims.d_v, dims.d_model)

    def start(self, batch: int) -> State:
        weight = self.value.weight
        return {"sum": weight.new_zeros(batch, weight.shape[0]), "n": weight.new_zeros(batch, 1)}

    def forward(self, x: Tensor, memory: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        before = state or self.start(len(x))
        real = self._real(x, visibility)
        sums = before["sum"][:, None] + torch.where(real, self.value(x), 0.0).cumsum(1)
        n = before["n"][:, None] + real.to(x.dtype).cumsum(1)
        y = self.join((sums / n.clamp(min=1))[:, None], x, visibility).y
        return ForwardOutput(y, None, None if state is None else {"sum": sums[:, -1], "n": n[:, -1]})

    def explicit(self, x: Tensor, memory: Tensor, visibility: Visibility) -> ExplicitAttention:
        seen = visibility.mask_rows(0, x.shape[1], x.device).expand(len(x), -1, -1)[:, None].to(x.dtype)
        real = self._real(x, visibility)
        return ExplicitAttention(seen / seen.sum(-1, keepdim=True).clamp(min=1), torch.where(real, self.value(x), 0.0)[:, None])

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        return ForwardOutput(self.out(read[:, 0]), None, state)

    @staticmethod
    def _real(x: Tensor, visibility: Visibility) -> Tensor:
        return (visibility.queries.tensors(len(x), x.device)[0] != 0)[..., None]
