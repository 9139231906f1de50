"""N-grams of tokens: embeddings, and a linear model that a task head adds to its outputs (wide and deep learning).

The n-grams are hashed to the rows of a table. Of a text, each counts with its inverse document frequency, and the text
is scaled to unit length, as in TF-IDF; n-grams of the characters of its words may be further features, scaled by
themselves. Of a token, the n-grams in a window around it count, each at its distance. On small data this alone is hard
to beat; the network learns what it cannot see.
Sources: Cheng et al. 2016, arXiv:1606.07792 (wide and deep); Joulin et al. 2017, arXiv:1607.01759 (hashed n-grams);
Wang and Manning 2012, "Baselines and Bigrams" (log-count ratios of naive Bayes).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from mini_tf.nn.token_positions import TokenPositions
from mini_tf.recipe.kinds import Section

_MULTIPLIER = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, near 2^64 / golden ratio, for multiplicative hashing; signed
_HASH_BITS = 31


def hash_keys(keys: Int[Tensor, "*at"], n_rows: int) -> Int[Tensor, "*at"]:
    """A row of a table of `n_rows` for each key."""
    return ((keys * _MULTIPLIER) >> (63 - _HASH_BITS) & (1 << _HASH_BITS) - 1) % n_rows


class NGrams(nn.Module):
    """N-gram embeddings: tables of bigrams, trigrams, ..., which are added to the token embedding.

    rows[i]: rows of the table of (i + 2)-grams. If all n-grams fit into a table, each has its own row; else they are
    hashed. N-grams do not extend over the beginning of a document.
    Source: Huang et al. 2025, "Over-Tokenized Transformer", arXiv:2501.16975.
    """

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


LARGEST_SCALE = 10.0
"""Of the outputs of a network beside n-grams."""
MAX_CLASSES = 256
"""Classes of which log-count ratios are computed, the most frequent ones, as each needs a count per row."""

Texts = Iterable[tuple[Int[Tensor, "B L"], Bool[Tensor, "B L"], Int[Tensor, " B"]]]
"""Batches of texts: ids, False at padding, and the class of each text."""


class WideSettings(Section):
    """Settings of the linear model of n-grams beside the network."""

    order: int = Field(2, ge=1, le=8)
    """Tokens in the longest n-gram."""
    rows: int = Field(2**17, ge=1, le=10**8)
    """Rows of the table of weights; n-grams are hashed to them."""
    scale: float = Field(50.0, gt=0, le=1e6)
    """Multiplies its outputs: as Adam moves weights by the learning rate, a larger scale makes it learn faster."""
    own_loss: bool = False
    """It is trained on the loss of its own outputs without token dropout, and the network on what they leave over."""
    network_scale: Annotated[float, Field(ge=0, le=1)] | Literal["fit"] = 1.0
    """Multiplies the outputs of the network in evaluation; fit: that of the smallest loss on the validation data."""


class DocumentCounts(NamedTuple):
    """Of texts with an n-gram of each row, by class: with it, and all."""

    with_row: Int[Tensor, "C rows"]
    texts: Int[Tensor, " C"]


class LinearFeatures(nn.Module):
    """A weight per output of each n-gram of 1 to `order` tokens, 0 at first. scale: multiplies the outputs."""

    NO_GRAPH: ClassVar[str] = ""
    """Why no fixed graph of operations on ids computes it, such as an ONNX file; empty if one does."""

    def __init__(self, vocabulary_size: int, order: int, rows: int, scale: float, n_outputs: int) -> None:
        super().__init__()
        self.vocabulary_size, self.order, self.scale = vocabulary_size, order, scale
        self.weights = nn.Embedding(rows, n_outputs)
        self.weights.weight.data.zero_()

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        is_token: Bool[Tensor, "B L"],
        at: Int[Tensor, " T"] | None,
        words: Int[Tensor, "T K"] | None = None,
    ) -> Float[Tensor, "N C"]:
        """Outputs for each text, or for the tokens at flat indices `at` into (B, L). is_token: False at padding.

        words: keys of the word that begins at each of them, for a model of words.
        """
        raise NotImplementedError

    def arguments(self) -> Mapping[str, Any]:
        """What makes another one, as `OutputLayer.arguments`."""
        rows, n_outputs = self.weights.weight.shape
        sizes = {"vocabulary_size": self.vocabulary_size, "order": self.order, "rows": rows}
        return {**sizes, "scale": self.scale, "n_outputs": n_outputs}

    def fit(self, texts: Callable[[], Texts], n_classes: int) -> None:
        """Set from the training texts, which each call gives anew, what each feature counts; default: all the same."""

    def _ngrams(self, ids: Tensor, is_token: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For n = 1, 2, ...: a key of the n-gram that begins at each token (B, L - n + 1), and if it has no padding."""
        keys, inside = torch.zeros_like(ids), torch.ones_like(is_token)
        for n in range(min(self.order, ids.shape[1])):
            keys = keys[:, : ids.shape[1] - n] * (self.vocabulary_size + 1) + ids[:, n:] + 1
            inside = inside[:, : ids.shape[1] - n] & is_token[:, n:]
            yield keys, inside

    def _weighted(
        self, rows: Int[Tensor, "N F"], values: Float[Tensor, "N F"], factors: Float[Tensor, "N F"] | None = None
    ) -> Float[Tensor, "N C"]:
        """The sum of the weights of the features with these values, scaled to unit length, and then these factors."""
        values = values / torch.linalg.vector_norm(values, dim=1, keepdim=True).clamp(min=1e-6)
        values = values if factors is None else values * factors
        return self.scale * F.embedding_bag(rows, self.weights.weight, per_sample_weights=values, mode="sum")


class NGramFeatures(LinearFeatures):
    """Of whole texts. log_counts: what occurs c times counts 1 + log c times, else c times.

    class_ratios: after the scaling, an n-gram also counts by how much more frequent it is in one class than in others:
    |log of the ratio of its probabilities|, that of the class with the largest one. characters: further features,
    whose outputs are added.
    """

    idf: Tensor
    ratio: Tensor | None

    def __init__(
        self,
        vocabulary_size: int,
        order: int,
        rows: int,
        scale: float,
        n_outputs: int,
        log_counts: bool = False,
        class_ratios: bool = False,
        *,
        characters: "NGramFeatures | None" = None,
    ) -> None:
        super().__init__(vocabulary_size, order, rows, scale, n_outputs)
        self.log_counts = log_counts
        self.register_buffer("idf", torch.ones(rows))
        self.register_buffer("ratio", torch.ones(rows) if class_ratios else None)
        self.characters = characters

    def arguments(self) -> Mapping[str, Any]:
        weighted = {"log_counts": self.log_counts, "class_ratios": self.ratio is not None}
        return {**super().arguments(), **weighted, "characters": self.characters}

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        is_token: Bool[Tensor, "B L"],
        at: Tensor | None = None,
        words: Tensor | None = None,
    ) -> Float[Tensor, "B C"]:
        rows, occurs = self.rows(ids, is_token)
        values: Tensor = occurs
        if self.log_counts:
            rows, counts = distinct(rows, occurs)
            values = torch.where(counts > 0, 1 + counts.clamp(min=1).log(), 0)
        outputs = self._weighted(rows, self.idf[rows] * values, None if self.ratio is None else self.ratio[rows])
        return outputs if self.characters is None else outputs + self.characters(ids, is_token)

    def rows(
        self, ids: Int[Tensor, "B L"], is_token: Bool[Tensor, "B L"]
    ) -> tuple[Int[Tensor, "B N"], Bool[Tensor, "B N"]]:
        """The row of the n-gram that begins at each token, shorter n-grams first; and whether it ends in the text."""
        keys, complete = zip(*self._ngrams(ids, is_token), strict=True)
        return hash_keys(torch.cat(keys, dim=1), self.weights.num_embeddings), torch.cat(complete, dim=1)

    def fit(self, texts: Callable[[], Texts], n_classes: int) -> None:
        """Inverse document frequencies, smoothed as in scikit-learn, 0 of what is in no text; and log-count ratios."""
        counts = self.document_counts(texts(), n_classes if self.ratio is not None else 1)
        n_texts, frequencies = counts.texts.sum(), counts.with_row.sum(0)
        self.idf.copy_(torch.where(frequencies > 0, ((1 + n_texts) / (1 + frequencies)).log() + 1, 0))
        if self.ratio is not None:
            self.ratio.copy_(log_count_ratios(counts))
        if self.characters is not None:
            self.characters.fit(texts, n_classes)

    def document_counts(self, texts: Texts, n_classes: int) -> DocumentCounts:
        """The number of texts of each class with an n-gram of each row; classes from `MAX_CLASSES` on are one class."""
        size = min(n_classes, MAX_CLASSES + 1)
        counts = DocumentCounts(
            torch.zeros(size, self.weights.num_embeddings, dtype=torch.int32), torch.zeros(size, dtype=torch.int64)
        )
        for ids, is_token, classes in texts:
            rows, occurrences = distinct(*self.rows(ids, is_token))
            classes = classes.clamp(max=size - 1)
            text, place = (occurrences > 0).nonzero(as_tuple=True)
            counts.with_row.index_put_(
                (classes[text], rows[text, place]), torch.ones((), dtype=torch.int32), accumulate=True
            )
            counts.texts.add_(classes.bincount(minlength=size))
        return counts


def log_count_ratios(counts: DocumentCounts) -> Float[Tensor, " rows"]:
    """The largest |log P(row | class) / P(row | other classes)| of each row; probabilities are smoothed by 1 text."""
    largest, frequencies, n_texts = torch.zeros(counts.with_row.shape[1]), counts.with_row.sum(0), counts.texts.sum()
    for with_row, n in zip(counts.with_row[:MAX_CLASSES], counts.texts, strict=False):
        p_class, p_others = (with_row + 1) / (n + 2), (frequencies - with_row + 1) / (n_texts - n + 2)
        largest = torch.maximum(largest, (p_class / p_others).log().abs())
    return largest


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
        longest = min(order, 2 * window + 1)  # no longer n-gram fits in
        super().__init__(vocabulary_size, longest, rows, scale, n_outputs)
        self.window = window

    def arguments(self) -> Mapping[str, Any]:
        return {**super().arguments(), "window": self.window}

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        is_token: Bool[Tensor, "B L"],
        at: Int[Tensor, " T"] | None,
        words: Tensor | None = None,
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


@torch.enable_grad()
def fit_network_scale(
    network: Float[Tensor, "T C"], wide: Float[Tensor, "T C"], loss: Callable[[Tensor], Tensor]
) -> float:
    """The scale of the network's outputs, from 0 to LARGEST_SCALE, with the smallest loss of wide + scale * network.

    loss: of outputs (T, C), summed, and convex in them. Logits also have a temperature, which is fitted with it, but
    decides no class; that of numbers (C = 1) is 1. A prior that counts as much as few targets draws both to 1.
    """
    network, wide = network.detach().double(), wide.detach().double()
    factors = torch.ones(2, dtype=torch.float64, device=wide.device, requires_grad=True)
    search = torch.optim.LBFGS([factors], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        of_wide = factors[0] if wide.shape[1] > 1 else 1.0
        value = loss(of_wide * wide + factors[1] * network) + ((factors - 1) ** 2).sum() / 2
        value.backward()
        return value

    search.step(closure)
    of_wide, of_network = factors.tolist()
    if of_wide <= 0:  # n-grams that tell the opposite
        return LARGEST_SCALE if of_network > 0 else 1.0
    return min(max(float(of_network / of_wide), 0.0), LARGEST_SCALE)
