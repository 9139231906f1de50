"""Linear attention with a fixed feature map; time and memory O(L), constant memory in generation.

Source: Katharopoulos et al. 2020, arXiv:2006.16236, section 3.2.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.papers.performer.key_sums import Features
from mini_tf.papers.performer.linear_attention import LinearAttention, LinearAttentionSettings


class Settings(LinearAttentionSettings):
    feature_map: Literal["elu", "relu"] = "elu"
    """Feature map phi of queries and keys: elu(x) + 1, or relu(x)."""

    def build(self, dims: AttentionDims, layer: LayerSpec) -> "Linear":
        return Linear(self, dims, layer)


class Linear(LinearAttention):
    def __init__(self, settings: Settings, dims: AttentionDims, layer: LayerSpec) -> None:
        super().__init__(settings, dims, layer)
        self.feature_map, self.n_features = settings.feature_map, dims.d_k

    def features(self, x: Float[Tensor, "B H L K"]) -> Features:
        values = F.elu(x) + 1 if self.feature_map == "elu" else F.relu(x)
        return Features(values, torch.zeros_like(x[..., 0]))
