"""N-gram embeddings: tables of bigrams, trigrams, ..., which are added to the token embedding.

If all n-grams fit into a table, each has its own row; else they are hashed. N-grams do not extend over the beginning of
a document. Source: Huang et al. 2025, "Over-Tokenized Transformer", arXiv:2501.16975.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.token_positions import TokenPositions

_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, near 2^64 / golden ratio, for multiplicative hashing; signed
_HASH_BITS = 31


def hash_keys(keys: Int[Tensor, "*at"], n_rows: int) -> Int[Tensor, "*at"]:
    """A row of a table of `n_rows` for each key."""
    return ((keys * _MULTIPLIER) >> (63 - _HASH_BITS) & (1 << _HASH_BITS) - 1) % n_rows


class NGrams(nn.Module):
    """rows[i]: rows of the table of (i + 2)-grams."""

    def __init__(self, vocabulary_size: int, d_model: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        n_combinations = [(vocabulary_size + 1) ** order for order in range(2, len(rows) + 2)]
        self.hashed = [n_rows < n for n_rows, n in zip(rows, n_combinations, strict=True)]
        self.tables = nn.ModuleList(
            nn.Embedding(min(n_rows, n), d_model) for n_rows, n in zip(rows, n_combinations, strict=True)
        )

    @property
    def n_previous(self) -> int:
        """Number of previous tokens in the longest n-gram."""
        return len(self.tables)

    def forward(
        self, ids: Int[Tensor, "B L"], previous: Int[Tensor, "B n_previous"], token_positions: TokenPositions
    ) -> Float[Tensor, "B L D"]:
        """previous: ids of the tokens before these; they are ignored at the beginning of a document."""
        length, no_token = ids.shape[1], self.vocabulary_size
        sequence = torch.cat([previous, ids], dim=1)
        positions = token_positions.all_positions(ids.device)
        key, summed = ids, torch.zeros((), device=ids.device)
        for back, (table, hashed) in enumerate(zip(self.tables, self.hashed, strict=True), start=1):
            assert isinstance(table, nn.Embedding)
            earlier = sequence[:, self.n_previous - back : self.n_previous - back + length]
            key = key * (no_token + 1) + torch.where(positions >= back, earlier, no_token)
            summed = summed + table(hash_keys(key, table.num_embeddings) if hashed else key)
        return summed
