"""Parameter-free attention: softmax(X X^T) X, without projections. O(L^2) time.

Attention scores are dot products of the hidden states; with unit variance and large d_model each token attends almost
only to itself, unless `scale` is rsqrt_d or cosine.
Source: Kosar, "Self-Attention Mechanism Simplified"; Pantelis, "Transformers and Self-Attention".
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.nn.attention import attention_weights
from mini_tf.nn.layers.attention_kernels import attend
from mini_tf.nn.mixer import AttentionDims, ExplicitAttention, ForwardOutput, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.state import State
from mini_tf.nn.token_cache import append_tokens, empty_cache
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import Rule, Rules


class Settings(MixerSettings):
    scale: Literal["none", "rsqrt_d", "cosine"] = "none"
    """Scaling of the dot products: none, 1/sqrt(d_model), or cosine similarity."""

    def rules_with(self, dims: AttentionDims) -> Rules:
        if dims.d_memory != dims.d_model:
            message = (
                f"simple attention has no projections, so d_model {dims.d_model} must be the width of the source,"
                f" {dims.d_memory}"
            )
            yield Rule("attention", f"{message}; use softmax", ("d_model",))

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Simple":
        if dims.d_memory != dims.d_model:
            raise ValueError(
                f"simple attention has no projections: d_memory must be d_model {dims.d_model}, not {dims.d_memory}"
            )
        return Simple(self, dims, layer)


class Simple(Mixer):
    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__()
        self.cosine = settings.scale == "cosine"
        self.scale = dims.d_model**-0.5 if settings.scale == "rsqrt_d" else 1.0
        self.is_cross_attn = layer.attention == "cross"
        self.d_model = dims.d_model
        # It has no parameters, so this buffer follows the dtype and device of the model.
        self.register_buffer("like", torch.empty(0), persistent=False)
        self.like: Tensor

    def start(self, batch: int) -> State:
        return {} if self.is_cross_attn else empty_cache(x=self.like.new_empty(batch, 0, self.d_model))

    def recall(self, memory: Tensor, token_positions: TokenPositions) -> State:
        return {"x": memory}

    def forward(
        self, x: Tensor, memory: Tensor | State, visibility: Visibility, state: State | None = None
    ) -> ForwardOutput:
        keys: Tensor = memory["x"] if isinstance(memory, dict) else memory
        if state:
            state, visibility = append_tokens(state, visibility, x=keys)
            keys = state["x"]
        attended = attend(self._query_or_key(x), self._query_or_key(keys), keys[:, None], visibility, self.scale)
        return self.join(attended, x, visibility, state)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> ExplicitAttention:
        memory = memory["x"] if isinstance(memory, dict) else memory
        return ExplicitAttention(
            attention_weights(self._query_or_key(x), self._query_or_key(memory), visibility, self.scale),
            memory[:, None],
        )

    def join(
        self,
        attended: Float[Tensor, "B 1 L D"],
        x: Float[Tensor, "B L D"],
        visibility: Visibility,
        state: State | None = None,
    ) -> ForwardOutput:
        return ForwardOutput(attended[:, 0], None, state)

    def _query_or_key(self, x: Tensor) -> Tensor:
        """Queries or keys: (B, L, D) -> (B, 1, L, D)."""
        return (F.normalize(x, dim=-1) if self.cosine else x)[:, None]
