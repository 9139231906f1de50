"""Embeddings of a token together with those before it: a table for pairs, one for triples, ...; what a layer would have to learn first.

Where all combinations fit into a table each has its own row, else they are hashed into it. A combination that would reach over
the beginning of a document takes "no token" there. Source: Huang et al. 2025, "Over-Tokenized Transformer", arXiv:2501.16975.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.token_positions import TokenPositions

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, near 2^64 / golden ratio: a multiplicative hash's; as a signed number
_KEPT_BITS = 31


class NGrams(nn.Module):
    """rows[i]: rows of the table of the (i + 2)-grams."""

    def __init__(self, vocabulary_size: int, d_model: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        every = [(vocabulary_size + 1) ** order for order in range(2, len(rows) + 2)]
        self.hashed = [wanted < combinations for wanted, combinations in zip(rows, every, strict=True)]
        self.tables = nn.ModuleList(nn.Embedding(min(wanted, most), d_model) for wanted, most in zip(rows, every, strict=True))

    @property
    def reach(self) -> int:
        """Tokens before its own that a token looks back at."""
        return len(self.tables)

    def forward(self, ids: Int[Tensor, "B L"], before: Int[Tensor, "B reach"], token_positions: TokenPositions) -> Float[Tensor, "B L D"]:
        """before: the tokens that stood before these, anything where there were none."""
        length, nothing = ids.shape[1], self.vocabulary_size
        line = torch.cat([before, ids], dim=1)
        positions = token_positions.all_positions(ids.device)
        key, summed = ids, torch.zeros((), device=ids.device)
        for back, (table, hashed) in enumerate(zip(self.tables, self.hashed, strict=True), start=1):
            assert isinstance(table, nn.Embedding)
            earlier = line[:, self.reach - back : self.reach - back + length]
            key = key * (nothing + 1) + torch.where(positions >= back, earlier, nothing)
            row = ((key * _STEP) >> (63 - _KEPT_BITS) & (1 << _KEPT_BITS) - 1) % table.num_embeddings if hashed else key
            summed = summed + table(row)
        return summed
