"""T5's relative position bias: a learned bias per head and bucket of distances, shared by all layers of the stack.

Near distances have one bucket each, greater ones share logarithmic buckets, and all from max_distance on share the last
one, so positions are not limited. Source: Raffel et al. 2020, arXiv:1910.10683, section 2.1, and the released code.
"""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings
from mini_tf.recipe.kinds import Rule, Rules


class Settings(PositionalEncodingSettings):
    ALIASES = ("relative", "relative_bias")
    APPLIES_TO = frozenset({"bias"})

    bidirectional: bool = True
    """Half of the buckets are for keys ahead of the query, as in an encoder; false for a decoder."""
    n_buckets: int = Field(32, ge=4, le=65536)
    """Number of buckets per head."""
    max_distance: int = Field(128, ge=2, le=2**20)
    """All distances from here on share a bucket."""

    def rules(self) -> Rules:
        yield from super().rules()
        if self.bidirectional and self.n_buckets % 2:
            message = (
                f"{self.n_buckets} buckets cannot be split evenly between earlier and later keys; use"
                f" {self.n_buckets + 1}"
            )
            yield Rule("n_buckets", message, ("bidirectional",))
        elif self.max_distance <= (near := self.n_buckets // (4 if self.bidirectional else 2)):
            message = f"the {near} nearest distances have a bucket each; use more than {near}"
            yield Rule("max_distance", message, ("bidirectional", "n_buckets"))

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return T5(self, n_heads)


class T5(PositionalEncoding):
    applies_to = Settings.APPLIES_TO

    def __init__(self, settings: Settings, n_heads: int) -> None:
        super().__init__()
        self.max_distance = settings.max_distance
        self.table = nn.Embedding(settings.n_buckets, n_heads)
        distance = torch.arange(-self.max_distance, self.max_distance + 1)
        self.register_buffer(
            "bucket", buckets(distance, settings.bidirectional, settings.n_buckets, self.max_distance), persistent=False
        )
        self.bucket: Tensor

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        # There are few distinct distances: looking buckets up per distance first makes the backward pass cheaper.
        biases: Tensor = self.table(self.bucket).t()  # (H, 2 max_distance + 1)
        index = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return biases.index_select(1, index.flatten()).view(biases.shape[0], *distance.shape).transpose(0, 1)


def buckets(distance: Tensor, bidirectional: bool, n_buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance (query position minus key position).

    Keys ahead have the second half of the buckets, or the bucket of distance 0 if not `bidirectional`.
    """
    n = n_buckets // 2 if bidirectional else n_buckets
    far = distance.abs() if bidirectional else distance.clamp(min=0)
    near = n // 2
    # In fp32 and in this order, as in the released code: the edges of buckets depend on the rounding of the logarithm.
    growth = torch.log(far.clamp(min=near).float() / near) / math.log(max_distance / near) * (n - near)
    bucket = torch.where(far < near, far, (near + growth.long()).clamp(max=n - 1))
    return bucket + n * (distance < 0) if bidirectional else bucket
