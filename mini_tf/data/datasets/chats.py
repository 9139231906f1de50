"""Conversations: a prompt and its response, or messages: sep turn sep turn sep.

1 stands at what the assistant says, and at the separator that closes it. What is longer than the context loses its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.datasets._labelled import Labelled, cut_rows, encoded_parts, joined, labels_in, room_of, text_of
from mini_tf.data.examples import ASSISTANT, Example
from mini_tf.data.formats import cells
from mini_tf.data.formats.cells import Cell
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.recipe.corpora import has_pairs
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault


class Settings(Labelled):
    REQUIRED = ()
    OPTIONAL = ("prompt", "response", "messages")
    TOGETHER = ("prompt", "response")
    PAIR_COLUMNS = {"prompt": "source", "response": "target"}
    COLUMNS_HINT = "a conversation is read: {prompt: COLUMN, response: COLUMN} or {messages: COLUMN}"
    LABELS = frozenset()
    KNOWN_BY = "prompts"
    CUTS = "beginning"

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        if not has_pairs(corpus):
            return dict(data.fields)
        return {**self.PAIR_COLUMNS} | {role: name for role, name in data.fields.items() if role in self.PAIR_COLUMNS.values()}

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        further = list[str]()
        if "messages" in row and ("prompt" in row or "response" in row):
            two = f"{where}: has messages, and a prompt or a response besides; which of them is the conversation"
            raise DataFault(two, hint="data.fields={messages: COLUMN}, or {prompt: COLUMN, response: COLUMN}", where=(where,))
        if "messages" in row:
            turns = cells.messages_of(row["messages"], where, names["messages"])
        elif "prompt" in row and "response" in row:
            response, *further = cells.texts_of(row["response"], where, names["response"])
            turns = [("user", text_of(row["prompt"], where, names["prompt"])), (ASSISTANT, response)]
        else:
            hint = "name the columns: {prompt: COLUMN, response: COLUMN}"
            raise DataFault(f"{where}: needs prompt and response, or messages", hint=hint, where=(where,))
        last = max(number for number, (who, _) in enumerate(turns) if who == ASSISTANT)
        said = turns[: last + 1]
        return Example([text for _, text in said], [who for who, _ in said], where, tuple(further), len(turns) - len(said))

    def known_by(self, example: Example) -> str:
        return "\0".join(example.texts[:-1] or example.texts)

    def left_out(self, examples: Sequence[Example]) -> dict[str, int]:
        told = "{n:,} turns behind the assistant's last one were left out: nothing is asked for there"
        return {told: sum(one.n_later for one in examples)}

    def encode(self, examples: Sequence[Example], used: Tokenizers, labels: Labels | None) -> list[Encoded]:
        found = []
        for one, turns in zip(examples, encoded_parts(examples, used.target), strict=True):
            # A turn's label stands at its own tokens and at the separator behind them.
            said = [1.0 if who == ASSISTANT else np.nan for who in one.labels]
            asked = [np.full(len(ids) + 1, label, np.float32) for ids, label in zip(turns, said, strict=True)]
            found.append(Encoded(joined(turns, used.target), np.concatenate(asked)))
        return found

    def packing(self, store: Store, shape: Shape) -> Packing:
        first = store.starts + 1
        last = first + store.lengths
        return cut_rows(store, shape, Spans.of(np.maximum(first, last - room_of(shape)), last))

    def label_figures(self, store: Store, labels: Labels) -> dict[str, float]:
        return {"tokens_asked_for": len(labels_in(store))}

    def summary(self, text: TokenizedData) -> Iterator[str]:
        yield from super().summary(text)
        yield f"asked for: {len(labels_in(text.train)):,} of {len(text.train):,} tokens"

    def shown(self, text: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        return describing.between_separators(text.tokenizer, rows, batch, row)

    def table(self, row: Mapping[str, Any], head: str) -> list[str]:
        return [f"{head}: {describing.size_of(row)}", *describing.token_table(row)]
