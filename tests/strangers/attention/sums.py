"""Linear cross-attention: of a source it keeps sums of phi(k) v^T and phi(k), phi = elu + 1."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mini_tf.nn.mixer import Direction, Explicit, Mixed, Mixer, MixerSettings, Place, Width
from mini_tf.nn.places import Places, Visibility
from mini_tf.nn.state import State


class Settings(MixerSettings):
    DIRECTIONS: ClassVar[frozenset[Direction]] = frozenset()

    def build(self, width: Width, place: Place) -> "Sums":
        return Sums(width)


class Sums(Mixer):
    def __init__(self, width: Width) -> None:
        super().__init__()
        self.n_heads = width.n_heads
        self.q = nn.Linear(width.d_model, width.n_heads * width.d_k)
        self.k = nn.Linear(width.d_memory, width.n_heads * width.d_k)
        self.v = nn.Linear(width.d_memory, width.n_heads * width.d_v)
        self.out = nn.Linear(width.n_heads * width.d_v, width.d_model)

    def start(self, batch: int) -> State:
        return {}

    def recall(self, memory: Tensor, places: Places) -> State:
        k, v = self._keys(memory, places)
        # `explicit` needs the keys and values themselves; they are made from the source, which all layers share.
        return {"kv": k.transpose(-1, -2) @ v, "k": k.sum(2), "source": memory}

    def forward(self, x: Tensor, memory: Tensor | State, visibility: Visibility, state: State | None = None) -> Mixed:
        kept = memory if isinstance(memory, dict) else self.recall(memory, visibility.memory)
        q = self._features(self.q(x))
        total = (q @ kept["k"][..., None]).clamp(min=1e-30)
        return self.join(q @ kept["kv"] / total, x, visibility, state)

    def explicit(self, x: Tensor, memory: Tensor | State, visibility: Visibility) -> Explicit:
        k, v = self._keys(memory["source"] if isinstance(memory, dict) else memory, visibility.memory)
        scores = self._features(self.q(x)) @ k.transpose(-1, -2)
        return Explicit(scores / scores.sum(-1, keepdim=True).clamp(min=1e-30), v)

    def join(self, read: Tensor, x: Tensor, visibility: Visibility, state: State | None = None) -> Mixed:
        return Mixed(self.out(read.transpose(1, 2).flatten(2)), None, state)

    def _keys(self, memory: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """phi(k) and v, (B, H, M, ..); 0 at padding."""
        segments, _ = places.tensors(len(memory), memory.device)
        real = (segments != 0)[:, None, :, None]
        k, v = self._features(self.k(memory)), self.v(memory).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        return torch.where(real, k, 0.0), torch.where(real, v, 0.0)

    def _features(self, x: Tensor) -> Tensor:
        return F.elu(x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)) + 1
