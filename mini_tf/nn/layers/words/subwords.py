"""Subword vectors: the mean of the vectors of a token's character n-grams, which is added to its embedding.

Tokens with parts in common have something in common from the start, also those that are rare. N-grams are hashed.
Source: Bojanowski et al. 2017, arXiv:1607.04606, section 3.2.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.ngrams import hash_keys
from mini_tf.nn.layers.words.word_characters import WordCharacters

SHORTEST, LONGEST = 3, 5
MOST = 32
"""N-grams of a token that are used, shorter ones first: all of a word of 11 letters."""
_TOKENS = 1024
"""Tokens that are spelled at once."""


class Subwords(nn.Module):
    """A table of `n_rows` vectors. `spell` tells the texts of the tokens, once; weights keep the n-grams of each."""

    rows: Tensor

    def __init__(self, vocabulary_size: int, d_model: int, n_rows: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(n_rows, d_model)
        self.register_buffer("rows", torch.full((vocabulary_size, MOST), -1, dtype=torch.int32))

    def spell(self, texts: Sequence[str]) -> None:
        """Find the n-grams of each token as if it were a word. texts: whitespace around them is ignored."""
        spelling = WordCharacters([text.strip() for text in texts], SHORTEST, LONGEST)
        for first in range(0, len(texts), _TOKENS):
            ids = torch.arange(first, min(first + _TOKENS, len(texts)))[:, None]
            found = spelling(ids, torch.ones_like(ids, dtype=torch.bool))
            keys, inside = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
            order = torch.sort(~inside, dim=1, stable=True).indices[:, :MOST]
            rows = torch.where(inside, hash_keys(keys, self.vectors.num_embeddings), -1).gather(1, order)
            self.rows[first : first + _TOKENS, : rows.shape[1]] = rows

    def forward(self, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        tokens, places = ids.unique(return_inverse=True)  # many occur several times
        rows = self.rows[tokens].long()
        shares = (rows >= 0) / (rows >= 0).sum(1, keepdim=True).clamp(min=1)
        table = self.vectors.weight
        mean = F.embedding_bag(rows.clamp(min=0), table, per_sample_weights=shares.to(table.dtype), mode="sum")
        return mean[places]
