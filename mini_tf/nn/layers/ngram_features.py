"""A linear model of n-grams of tokens, which a task head adds to its outputs (wide and deep learning).

The n-grams are hashed to the rows of a table. Of a text, each counts with its inverse document frequency, and the text
is scaled to unit length, as in TF-IDF; n-grams of the characters of its words may be further features, scaled by
themselves. Of a token, the n-grams in a window around it count, each at its distance. On small data this alone is hard
to beat; the network learns what it cannot see.
Sources: Cheng et al. 2016, arXiv:1606.07792 (wide and deep); Joulin et al. 2017, arXiv:1607.01759 (hashed n-grams).
"""

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mini_tf.nn.layers.ngrams import hash_keys


class LinearFeatures(nn.Module):
    """A weight per output of each n-gram of 1 to `order` tokens, 0 at first. scale: multiplies the outputs."""

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int) -> None:
        super().__init__()
        self.vocabulary_size, self.order, self.scale = vocabulary_size, order, scale
        self.weights = nn.Embedding(rows, n_outputs)
        self.weights.weight.data.zero_()

    def forward(
        self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"], at: Int[Tensor, " T"] | None, words: Int[Tensor, "T K"] | None = None
    ) -> Float[Tensor, "N C"]:
        """Outputs for each text, or for the tokens at flat indices `at` into (B, L). is_token: False at padding.

        words: keys of the word that begins at each of them, for a model of words.
        """
        raise NotImplementedError

    def _ngrams(self, ids: Tensor, is_token: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For n = 1, 2, ...: a key of the n-gram that begins at each token (B, L - n + 1), and if it has no padding."""
        keys, inside = torch.zeros_like(ids), torch.ones_like(is_token)
        for n in range(min(self.order, ids.shape[1])):
            keys = keys[:, : ids.shape[1] - n] * (self.vocabulary_size + 1) + ids[:, n:] + 1
            inside = inside[:, : ids.shape[1] - n] & is_token[:, n:]
            yield keys, inside

    def _weighted(self, rows: Int[Tensor, "N F"], values: Float[Tensor, "N F"]) -> Float[Tensor, "N C"]:
        """The sum of the weights of the features with these values, scaled to unit length."""
        values = values / torch.linalg.vector_norm(values, dim=1, keepdim=True).clamp(min=1e-6)
        return self.scale * F.embedding_bag(rows, self.weights.weight, per_sample_weights=values, mode="sum")


class NGramFeatures(LinearFeatures):
    """Of whole texts. log_counts: what occurs c times counts 1 + log c times, else c times.

    characters: further features, whose outputs are added.
    """

    idf: Tensor

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int, log_counts: bool = False) -> None:
        super().__init__(vocabulary_size, order, rows, scale, n_outputs)
        self.log_counts = log_counts
        self.register_buffer("idf", torch.ones(rows))
        self.characters: NGramFeatures | None = None

    def forward(
        self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"], at: Tensor | None = None, words: Tensor | None = None
    ) -> Float[Tensor, "B C"]:
        rows, occurs = self.rows(ids, is_token)
        values: Tensor = occurs
        if self.log_counts:
            rows, counts = distinct(rows, occurs)
            values = torch.where(counts > 0, 1 + counts.clamp(min=1).log(), 0)
        outputs = self._weighted(rows, self.idf[rows] * values)
        return outputs if self.characters is None else outputs + self.characters(ids, is_token)

    def rows(self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]:
        """The row of the n-gram that begins at each token, shorter n-grams first; and whether it ends in the text."""
        keys, complete = zip(*self._ngrams(ids, is_token), strict=True)
        return hash_keys(torch.cat(keys, dim=1), self.weights.num_embeddings), torch.cat(complete, dim=1)

    def document_frequencies(self, texts: Iterable[tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"]]]) -> Int[Tensor, " rows"]:
        """The number of texts with an n-gram of each row. texts: ids, and False at padding."""
        found = torch.zeros(self.weights.num_embeddings, dtype=torch.int64)
        for ids, is_token in texts:
            rows, counts = distinct(*self.rows(ids, is_token))
            found += torch.bincount(rows[counts > 0], minlength=len(found))
        return found

    def fit(self, frequencies: Int[Tensor, " rows"], n_texts: int) -> None:
        """Set the inverse document frequencies, smoothed as scikit-learn does; 0 of what is in no text.

        frequencies: texts with each row.
        """
        self.idf.copy_(torch.where(frequencies > 0, ((1 + n_texts) / (1 + frequencies)).log() + 1, 0))


def distinct(rows: Int[Tensor, "B N"], occurs: Bool[Tensor, "B N"]) -> tuple[Int[Tensor, "B N"], Int[Tensor, "B N"]]:
    """The rows of each text in their order, and how often each occurs in it: at its first place, 0 at others."""
    last = torch.iinfo(torch.int64).max
    ordered = torch.where(occurs, rows, last).sort(dim=1).values
    first = torch.searchsorted(ordered, ordered)
    counts = torch.searchsorted(ordered, ordered, right=True) - first
    is_first = first == torch.arange(ordered.shape[1], device=rows.device)
    return torch.where(ordered < last, ordered, 0), counts * (is_first & (ordered < last))


class WindowFeatures(LinearFeatures):
    """Of tokens: the n-grams within `window` tokens before and after it, each with its distance."""

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int, window: int) -> None:
        super().__init__(vocabulary_size, min(order, 2 * window + 1), rows, scale, n_outputs)  # no longer n-gram fits in
        self.window = window

    def forward(
        self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"], at: Int[Tensor, " T"] | None, words: Tensor | None = None
    ) -> Float[Tensor, "T C"]:
        length, around = ids.shape[1], (self.window, self.window)
        at = torch.arange(ids.numel(), device=ids.device) if at is None else at
        row, position = at // length, at % length
        keys, complete = [], []
        for n, (key, inside) in enumerate(self._ngrams(F.pad(ids, around), F.pad(is_token, around)), start=1):
            first = torch.arange(2 * self.window + 2 - n, device=ids.device)  # of the n-gram in the window
            places = position[:, None] + first
            keys.append(key[row[:, None], places] * (2 * self.window + 1) + first)
            complete.append(inside[row[:, None], places])
        rows = hash_keys(torch.cat(keys, dim=1), self.weights.num_embeddings)
        return self._weighted(rows, torch.cat(complete, dim=1).to(self.weights.weight.dtype))
