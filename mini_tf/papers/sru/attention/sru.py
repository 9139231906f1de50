"""Simple recurrent unit: a layer of gates whose states depend on each other elementwise only. O(L) time, no attention.

The output is a highway connection to the input of the layer, so a stack of them needs no feed-forward layers
(`d_ff: 0`). Positions are the order of the tokens.
Source: Lei et al. 2018, arXiv:1709.02755.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from mini_tf.nn.layers.kernels import FusedLinear
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, RecurrentUnit
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import Visibility
from mini_tf.papers.sru.recurrence import Recurrence, RecurrenceSettings, no_heads


class Settings(RecurrenceSettings):
    SUPPORTS = RecurrenceSettings.SUPPORTS | {"streaming"}

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "SRU":
        if layer.attention == "cross":
            raise ValueError("sru has no cross-attention: a recurrence reads one sequence")
        return SRU(self, dims)


class SRU(Mixer):
    has_heads = False

    def __init__(self, settings: Settings, dims: AttentionDims) -> None:
        super().__init__()
        self.project = FusedLinear(dims.d_model, (dims.d_model,) * 3, bias=False)
        self.recurrence = Recurrence(dims.d_model, settings)

    def start(self, batch: int) -> State:
        return self.recurrence.start(batch)

    def forward(
        self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        y, after = self.recurrence(self.project(x), x, visibility, state)
        return ForwardOutput(y, None, after)

    def explicit(self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility) -> ExplicitAttention:
        return no_heads(x)

    def join(
        self,
        attended: Float[Tensor, "B H L V"],
        x: Float[Tensor, "B L D"],
        visibility: Visibility,
        state: State | None = None,
    ) -> ForwardOutput:
        return self.forward(x, x, visibility, state)

    def fast_decoding(self) -> RecurrentUnit:
        return RecurrentUnit(lambda x, state: self.recurrence.step(self.project(x), x, state))

    def observe(self, x: Float[Tensor, "B L D"], memory: object, visibility: Visibility) -> Mapping[str, Tensor]:
        return self.recurrence.gates(self.project(x), visibility)
