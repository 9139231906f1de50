"""Relative positions of Transformer-XL: the attention score of a query and a key at distance d has four terms,

    q . k  +  q . W_R R(d)  +  u . k  +  v . W_R R(d)            all divided by sqrt(d_k)

with the sinusoidal encoding R(d) of the distance, a matrix W_R per layer, and the biases u and v, which all layers
share. So a token of the memory keeps its place relative to a query, in whatever row it was read.
Source: Dai et al. 2019, arXiv:1901.02860, section 3.3.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.positional_encoding import PositionalEncoding, PositionalEncodingSettings, sinusoids


class Settings(PositionalEncodingSettings):
    APPLIES_TO = frozenset({"bias"})

    bidirectional: bool = False
    """Keys ahead of the query have distances of their own, as an encoder needs; false: they count as distance 0."""
    max_distance: int | None = Field(None, ge=1, le=2**20)
    """Greater distances count as this one; default: twice `train.context`, a row and a memory as long."""
    shared_biases: bool = True
    """All layers share u and v."""

    def build(self, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return RelativeScores((d_model, n_heads, d_k), self.max_distance or 2 * context, self.bidirectional, None)

    def build_layers(self, n_layers: int, d_model: int, n_heads: int, d_k: int, context: int) -> PositionalEncoding:
        return TransformerXL(self, n_layers, (d_model, n_heads, d_k), self.max_distance or 2 * context)


class TransformerXL(PositionalEncoding):
    """The encodings of all layers, and the biases u and v that they share."""

    applies_to = Settings.APPLIES_TO
    distance_only = False

    def __init__(self, settings: Settings, n_layers: int, sizes: tuple[int, int, int], max_distance: int) -> None:
        super().__init__()
        biases = _Biases(sizes[1] * sizes[2]) if settings.shared_biases else None
        self.biases = biases
        self.layers = nn.ModuleList(
            RelativeScores(sizes, max_distance, settings.bidirectional, biases) for _ in range(n_layers)
        )

    def of_layer(self, layer: int) -> PositionalEncoding:
        encoding = self.layers[layer]
        assert isinstance(encoding, PositionalEncoding)
        return encoding


class _Biases(nn.Module):
    """u and v (H K): vectors, so that weight decay and Muon leave them alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.u, self.v = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))


class RelativeScores(PositionalEncoding):
    """The three terms that one layer adds to q . k; biases: u and v if other layers share them."""

    applies_to = Settings.APPLIES_TO
    distance_only = False

    def __init__(
        self, sizes: tuple[int, int, int], max_distance: int, bidirectional: bool, biases: _Biases | None
    ) -> None:
        super().__init__()
        self.d_model, self.n_heads, self.d_k = sizes
        self.max_distance, self.min_distance = max_distance, -max_distance if bidirectional else 0
        self.relative = nn.Linear(self.d_model, self.n_heads * self.d_k, bias=False)
        self.own_biases = _Biases(self.n_heads * self.d_k) if biases is None else None
        self._shared = (biases,)  # in a tuple, so not registered twice
        self._cached: tuple[object, Tensor] | None = None

    def bias(self, distance: Tensor, q: Tensor | None = None, k: Tensor | None = None) -> Tensor:
        assert q is not None
        assert k is not None
        biases = self.own_biases or self._shared[0]
        assert biases is not None
        u, v = (bias.to(q.dtype).view(self.n_heads, 1, self.d_k) for bias in (biases.u, biases.v))
        # Scores for every distance, of which each pair of a query and a key picks one.
        by_distance = (q + v) @ self._keys().to(q.dtype).transpose(1, 2)  # (B, H, L, n)
        index = distance.clamp(self.min_distance, self.max_distance) - self.min_distance
        by_position = by_distance.gather(-1, index[:, None].expand(*q.shape[:2], -1, -1))  # (B, H, L, M)
        by_key = (k * u).sum(-1)[:, :, None]  # (B, H, 1, M)
        bias: Tensor = (by_position + by_key) * self.d_k**-0.5
        return bias

    def _keys(self) -> Float[Tensor, "H n K"]:
        """W_R R(d) of every distance; to decode, they are computed once, not for every token."""
        weight = self.relative.weight
        decodes = not (self.training or torch.is_grad_enabled() or torch.compiler.is_exporting())
        key = (weight.data_ptr(), weight._version, weight.dtype, weight.device) if decodes else None
        if decodes and self._cached is not None and self._cached[0] == key:
            return self._cached[1]
        distances = torch.arange(self.min_distance, self.max_distance + 1, device=weight.device)
        keys: Tensor = self.relative(sinusoids(distances, self.d_model, 10000.0).to(weight.dtype))
        keys = keys.unflatten(1, (self.n_heads, self.d_k)).transpose(0, 1)
        self._cached = (key, keys) if decodes else None
        return keys
