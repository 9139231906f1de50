"""A recurrence behind the attention, c_t = f c_(t-1) + (1 - f) a_t, which starts anew where a document begins, as SRU++
does.
"""

import torch
from torch import Tensor, nn

from mini_tf.nn.attention import MultiHeadAttention, MultiHeadSettings
from mini_tf.nn.mixer import AttentionDims, ForwardOutput, LayerSpec
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility


class Settings(MultiHeadSettings):
    SUPPORTS = MultiHeadSettings.SUPPORTS - {"bidirectional", "prefix", "cross"}

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Trailing":
        return Trailing(self, dims, layer)


class Trailing(MultiHeadAttention):
    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.forget = nn.Parameter(torch.zeros(dims.d_model))

    def start(self, batch: int) -> State:
        cell = self.forget.new_zeros(batch, len(self.forget))
        return super().start(batch) | {
            "cell": cell,
            "segment": torch.zeros(batch, dtype=torch.long, device=cell.device),
        }

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> ForwardOutput:
        joined = super().join(read, x, visibility, state)
        before = self.start(len(x)) if state is None else state
        cell, last, share = before["cell"], before["segment"], self.forget.sigmoid()
        segments, _ = visibility.queries.tensors(len(x), x.device)
        cells = []
        for t in range(x.shape[1]):
            here = segments[:, t]
            cell = share * torch.where((here == last)[:, None], cell, 0.0) + (1 - share) * joined.y[:, t]
            last = here
            cells.append(cell)
        return ForwardOutput(
            torch.stack(cells, dim=1),
            None,
            None if joined.state is None else joined.state | {"cell": cell, "segment": last},
        )
