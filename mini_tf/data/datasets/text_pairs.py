"""Texts that are similar or not: a text alone, with a positive, with a hard negative, too, or with a second text and a
score of their similarity.

A row is a group of examples, which are contrasted with each other and with no other ones, so that micro-batches and
processes change nothing. Each epoch has other groups, by its seed. A row has every text by itself, between separators
and in a segment of its own: an anchor, its positive, its negative. A text without a positive stands twice, and so do
both texts of a pair with a score, which does not say that they are similar. Of a group longer than the context the
longest texts lose their ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import Reader, TokenizedData
from mini_tf.data.datasets._labelled import LabelledTexts, encode_parts, join_by_separators, text_of
from mini_tf.data.examples import Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.text_groups import ROLES, TextGroups, text_starts
from mini_tf.recipe.corpora import has_pairs
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault


class Settings(LabelledTexts):
    REQUIRED = ("text",)
    OPTIONAL = ("positive", "negative", "score")
    LABELS = frozenset({"score"})
    PAIR_COLUMNS = {"text": "source", "positive": "target"}
    COMMON_NAMES = {"text": (*LabelledTexts.COMMON_NAMES["text"], "anchor", "query")}
    COLUMNS_HINT = "needed: {text: COLUMN}, and positive, negative and score for pairs of texts"
    SPLIT_UNIT = "texts"
    ROW, BORDER = "a group of examples per row", "its text"

    group: int | None = Field(None, ge=2, le=4096)
    """Examples of a row; default: as many as fit."""

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        return {**(self.PAIR_COLUMNS if has_pairs(corpus) else {}), **data.fields}

    def reader(self, data: Data, corpus: object = None, labelled: bool = True, labels: Labels | None = None) -> Reader:
        """Every column but that of the text may be missing: validation data may have others than training data."""
        named = self.named(data, corpus)
        roles = [role for role in self.OPTIONAL if labelled or role not in self.LABELS]
        names = [named.get(role, role) for role in roles]
        return Reader(self, (*self.REQUIRED, *roles), self.columns(data, named, self.REQUIRED, names), labelled)

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        # A table has cells for all: an empty one is no negative and no score.
        row = {role: cell for role, cell in row.items() if cell != "" or role in ("text", "positive")}
        texts = [text_of(row[role], where, names[role]) for role in ("text", "positive", "negative") if role in row]
        if "negative" in row and "positive" not in row:
            raise DataFault.located(where, f"{names['negative']!r} without a positive", hint="add it to the row")
        if not labelled or "score" not in row:
            return Example(texts, [], where)
        if len(texts) != 2:
            two = f"{names['text']!r} and {names['positive']!r}"
            raise DataFault.located(where, f"a score is of two texts, {two}, and this row has {len(texts)}")
        return Example(texts, [repr(columns.number_of(row["score"], where, names["score"]))], where)

    def fit_labels(self, examples: Any) -> Labels:
        return Labels()

    def split_key(self, example: Example) -> str:
        return example.texts[0]

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        ids = (join_by_separators(parts, tokenizers.target) for parts in encode_parts(examples, tokenizers.target))
        scores = (float(example.labels[0]) if example.labels else np.nan for example in examples)
        return [
            Encoded(text_ids, row_labels=np.array([score], np.float32))
            for text_ids, score in zip(ids, scores, strict=True)
        ]

    def packing(self, store: Store, shape: Shape) -> Packing:
        return TextGroups(store, shape, self.group)

    def label_statistics(self, store: Store, labels: Labels) -> dict[str, float]:
        counts = np.bincount(TextGroups(store, Shape(0)).kinds, minlength=4).tolist()
        return dict(zip(("scored pairs", "texts", "pairs", "triplets"), counts, strict=True))

    def labels_of_row(self, rows: Rows, row: int, labels: Labels) -> list[Any]:
        """The role of a text at its first token, a score at the second one."""
        assert rows.labels is not None
        stored, decoded = rows.labels[row], list[Any]()
        for label, first in zip(stored.tolist(), text_starts(rows)[row].tolist(), strict=True):
            decoded.append(None if np.isnan(label) else ROLES[int(label)] if first else float(f"{label:.6g}"))
        return decoded

    def summary(self, data: TokenizedData) -> Iterator[str]:
        yield from super().summary(data)
        for split, store in (("training", data.train), ("validation", data.val)):
            counts = self.label_statistics(store, Labels())
            listed = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
            alone = store.n_documents == 1 and (counts["texts"] or counts["pairs"])
            yield f"{split} data: {listed}{', without a negative, so the loss is 0' if alone else ''}"
