"""What a model reads: ids, where they stand, and which segment embedding they take."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mini_tf.nn.places import Places


@dataclass(frozen=True, eq=False)
class Tokens:
    """ids (B, L); places None = one document a row from 0; types (B, L) chooses segment embeddings, None = all 0."""

    ids: Tensor
    places: Places | None = None
    types: Tensor | None = None

    def to(self, device: torch.device) -> "Tokens":
        places = None if self.places is None else self.places.to(device)
        types = None if self.types is None else self.types.to(device, non_blocking=True)
        return Tokens(self.ids.to(device, non_blocking=True), places, types)
