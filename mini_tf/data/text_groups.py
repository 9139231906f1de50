"""Rows of groups of texts for `data.datasets.text_pairs`: every text of a row is a segment of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.packing import Packing, id_before
from mini_tf.data.permutation import permute
from mini_tf.data.tokenization.vocabulary import between_characters
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import DataFault
from mini_tf.system.seeds import seed_of

ROLES = ("anchor", "positive", "negative", "the same text")
"""Roles of the texts of a row. The last one is a positive: the anchor itself."""
ANCHOR, POSITIVE, NEGATIVE, SAME = range(4)
FITTING = 0.95
"""Share of the examples for whose length the default size of a group has room."""


def text_starts(rows: Rows) -> np.ndarray:
    """(B, n): True at the first token of each text."""
    assert rows.segments is not None
    return np.diff(rows.segments, axis=1, prepend=0) > 0


def text_keys(inputs: Tokens) -> list[bytes]:
    """What equal texts have in common, in any batch: their ids without padding."""
    ids, n_tokens = inputs.ids.cpu().numpy(), is_token(inputs).sum(1).tolist()
    return [row[:n].tobytes() for row, n in zip(ids, n_tokens, strict=True)]


@dataclass(frozen=True, eq=False)
class TextGroups(Packing):
    """Rows of groups of examples. `Rows.labels` has the role of a text at its first token, and of the first of two
    texts with a score the score at its second one. group: examples of a row, at most; None: as many as fit.
    """

    group: int | None = None

    pack = "none"

    @property
    def _before(self) -> tuple[int, ...]:
        """The ids before a text."""
        return id_before(self.store, self.store.vocabulary.target_start[:1])

    @cached_property
    def _borders(self) -> np.ndarray:
        """(n_texts + 1,): indices of the separators of the store, between which its texts are."""
        return np.flatnonzero(np.asarray(self.store.ids) == self.store.vocabulary.separator)

    @cached_property
    def _first_text(self) -> np.ndarray:
        """(n_documents + 1,): the first text of each example, then the number of texts."""
        return np.append(np.searchsorted(self._borders, self.store.starts), len(self._borders) - 1)

    @cached_property
    def kinds(self) -> np.ndarray:
        """(n_documents,): the number of texts of each example, or 0 for two texts with a score."""
        assert self.store.row_labels is not None
        return np.where(np.isnan(self.store.row_labels[:, 0]), np.diff(self._first_text), 0)

    @cached_property
    def _views(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(V,) each: the texts that the rows of all examples have, in order, their roles, and their examples."""
        example = np.repeat(np.arange(len(self.kinds)), np.diff(self._first_text))
        times = np.where(self.kinds < 2, 2, 1)[example]
        text = np.repeat(np.arange(len(example)), times)
        second = np.append(False, text[1:] == text[:-1])
        number = text - self._first_text[example[text]]
        return text, np.where(self.kinds[example[text]] < 2, np.where(second, SAME, ANCHOR), number), example[text]

    @cached_property
    def _view_lengths(self) -> np.ndarray:
        """(V,): tokens of each text with those around it."""
        lengths: np.ndarray = np.diff(self._borders)[self._views[0]] + len(self._before)
        return lengths

    @cached_property
    def _size(self) -> int:
        """Examples of a row, at most. DataFault if their texts do not fit into the context, each of a single token."""
        context, n = self.shape.context, self.store.n_documents
        views = np.bincount(self._views[2], minlength=n)
        shortest = (len(self._before) + 2) * int(views.max())
        tokens = np.bincount(self._views[2], self._view_lengths, minlength=n)
        size = self.group or min(max(2, int(context // np.quantile(tokens, FITTING))), max(2, context // shortest))
        if shortest * min(size, max(2, n)) > context:
            fault = f"{size} examples of {int(views.max())} texts do not fit into a row of {context} tokens"
            raise DataFault(f"train.context: {fault}", hint=f"train.context={shortest * size} at least")
        return size

    @property
    def n_rows(self) -> int:
        return max(1, -(-self.store.n_documents // self._size))

    @property
    def lengths(self) -> np.ndarray:
        """The most that a row can have, as its examples are others in every epoch."""
        return np.full(self.n_rows, self.shape.context)

    @property
    def row_tokens(self) -> float:
        return float(self.eval_row_tokens.mean())

    @cached_property
    def eval_row_tokens(self) -> np.ndarray:
        return np.array([lengths.sum() for _, lengths in self._eval_views])

    @cached_property
    def n_too_long(self) -> int:  # type: ignore[override]
        """Examples that are cut in an evaluation."""
        cut = (self._views[2][views[self._view_lengths[views] > lengths]] for views, lengths in self._eval_views)
        return len(np.unique(np.concatenate([*cut])))

    @cached_property
    def _eval_views(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [self._fitted(self._members(row, None)) for row in range(self.n_rows)]

    def _members(self, row: int, epoch: int | None) -> np.ndarray:
        """The examples of a row of an epoch; None: of an evaluation, where they are in order."""
        n = self.store.n_documents
        first, last = row * n // self.n_rows, (row + 1) * n // self.n_rows
        places = np.arange(first, last)
        return places if epoch is None else permute(places, n, seed_of("groups", self.shape.seed, epoch))

    def _fitted(self, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The views of a row with these examples, and the tokens of each."""
        ends = np.searchsorted(self._views[2], np.stack([members, members + 1]))
        views = np.concatenate([np.arange(first, last) for first, last in ends.T.tolist()])
        lengths = self._view_lengths[views]
        return views, np.minimum(lengths, largest_length(lengths, self.shape.context))

    def documents(self, rows: np.ndarray, epoch: int) -> np.ndarray:
        return np.unique(np.concatenate([np.empty(0, np.int64), *(self._members(int(row), epoch) for row in rows)]))

    def take(self, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Rows:
        return self._rows([self._fitted(self._members(int(row), epoch)) for row in rows], keys)

    def take_eval(self, rows: np.ndarray, keys: np.ndarray) -> Rows:
        return self._rows([self._eval_views[int(row)] for row in rows], keys)

    def _rows(self, fitted: Sequence[tuple[np.ndarray, np.ndarray]], keys: np.ndarray) -> Rows:
        self.store.check()
        store, before = self.store, self._before
        assert store.row_labels is not None
        width = max(int(lengths.sum()) for _, lengths in fitted)
        ids, segments = np.zeros((2, len(fitted), width), np.int64)
        labels = np.full(ids.shape, np.nan, np.float32)
        for row, (views, lengths) in enumerate(fitted):
            text, role, example = (part[views] for part in self._views)
            starts = self._borders[text] + 1
            cuts = np.minimum(self._borders[text + 1], starts + lengths - len(before) - 1)
            cuts = between_characters(store.vocabulary, store.ids, cuts, starts)
            at = np.append(0, np.cumsum(cuts - starts + len(before) + 1))
            for n, (first, start, cut) in enumerate(zip(at.tolist(), starts.tolist(), cuts.tolist(), strict=False)):
                tokens = (*before, *store.ids[start:cut].tolist(), store.vocabulary.separator)
                ids[row, first : first + len(tokens)], segments[row, first : first + len(tokens)] = tokens, n + 1
            labels[row, at[:-1]] = role
            # The first text of two with a score; the others have none.
            is_first = (role == ANCHOR) & (text == self._first_text[example])
            labels[row, at[:-1][is_first] + 1] = store.row_labels[example[is_first], 0]
        return Rows(ids, keys, segments, labels=labels)


def largest_length(lengths: np.ndarray, budget: int) -> int:
    """The largest length to which texts of these lengths can be cut to have `budget` tokens together.

    If the k shortest ones are whole, the others share what is left; so the most that any k allows.
    """
    if lengths.sum() <= budget:
        return int(lengths.max())
    ordered = np.sort(lengths)
    left = budget - np.append(0, np.cumsum(ordered)[:-1])
    return int((left // np.arange(len(ordered), 0, -1)).max())
