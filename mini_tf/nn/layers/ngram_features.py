"""A linear model of the n-grams of a text, which a task head adds to its outputs (wide and deep learning).

The n-grams of tokens are hashed to the rows of a table. Each counts with its inverse document frequency, and a text is
scaled to unit length, as in TF-IDF. On small data this alone is hard to beat; the network learns what it cannot see.
Sources: Cheng et al. 2016, arXiv:1606.07792 (wide and deep); Joulin et al. 2017, arXiv:1607.01759 (hashed n-grams).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.ngrams import hash_keys


class NGramFeatures(nn.Module):
    """A weight per output of each n-gram of 1 to `order` tokens, 0 at first. scale: multiplies the outputs."""

    idf: Tensor

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int) -> None:
        super().__init__()
        self.vocabulary_size, self.order, self.scale = vocabulary_size, order, scale
        self.weights = nn.Embedding(rows, n_outputs)
        self.weights.weight.data.zero_()
        self.register_buffer("idf", torch.ones(rows))

    def forward(self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]) -> Float[Tensor, "B C"]:
        """is_token: False at padding."""
        rows, is_ngram = self.rows(ids, is_token)
        values = self.idf[rows] * is_ngram
        values = values / torch.linalg.vector_norm(values, dim=1, keepdim=True).clamp(min=1e-6)
        return self.scale * F.embedding_bag(rows, self.weights.weight, per_sample_weights=values, mode="sum")

    def rows(self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]:
        """The row of the n-gram that begins at each token, shorter n-grams first; and whether it ends in the text."""
        rows, complete = [], []
        keys, inside = torch.zeros_like(ids), torch.ones_like(is_token)
        for n in range(min(self.order, ids.shape[1])):
            keys = keys[:, : ids.shape[1] - n] * (self.vocabulary_size + 1) + ids[:, n:] + 1
            inside = inside[:, : ids.shape[1] - n] & is_token[:, n:]
            rows.append(hash_keys(keys, self.weights.num_embeddings))
            complete.append(inside)
        return torch.cat(rows, dim=1), torch.cat(complete, dim=1)

    def fit(self, frequencies: Int[Tensor, " rows"], n_texts: int) -> None:
        """Set the inverse document frequencies, smoothed as scikit-learn does. frequencies: texts with each row."""
        self.idf.copy_(((1 + n_texts) / (1 + frequencies)).log() + 1)
