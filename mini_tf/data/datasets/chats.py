"""Chats: a prompt and its response, or messages: sep message sep message sep.

The targets (label 1) are the assistant's messages with their closing separators. A chat longer than the context loses
its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mini_tf.data import describing
from mini_tf.data.batch import Batch, Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.datasets._labelled import (
    LabelledDataset,
    encode_parts,
    join_by_separators,
    max_example_ids,
    rows_with_targets,
    stored_labels,
    text_of,
)
from mini_tf.data.examples import ASSISTANT, Example, Labels
from mini_tf.data.formats import columns
from mini_tf.data.formats.columns import Cell
from mini_tf.data.packing import Packing, Shape, Spans
from mini_tf.data.store import Encoded, Store, Tokenizers
from mini_tf.data.tokenization.vocabulary import between_characters
from mini_tf.recipe.corpora import has_pairs
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault


class Settings(LabelledDataset):
    REQUIRED = ()
    OPTIONAL = ("prompt", "response", "messages")
    TOGETHER = ("prompt", "response")
    PAIR_COLUMNS = {"prompt": "source", "response": "target"}
    COLUMNS_HINT = "needed: {prompt: COLUMN, response: COLUMN} or {messages: COLUMN}"
    LABELS = frozenset()
    FURTHER_TEXTS = frozenset({"input", "context", "system", "system_prompt"})
    SPLIT_UNIT = "prompts"
    TRUNCATES = "beginning"
    CAPTIONS = {"tokens_asked_for": "target tokens"}

    def named(self, data: Data, corpus: object) -> dict[str, str]:
        if not has_pairs(corpus):
            return dict(data.fields)
        roles = self.PAIR_COLUMNS.values()
        return {**self.PAIR_COLUMNS, **{role: name for role, name in data.fields.items() if role in roles}}

    def example(self, row: Mapping[str, Cell], where: str, names: Mapping[str, str], labelled: bool) -> Example:
        alternatives = list[str]()
        if "messages" in row and ("prompt" in row or "response" in row):
            hint = "data.fields={messages: COLUMN}, or {prompt: COLUMN, response: COLUMN}"
            raise DataFault.located(where, "has both messages and prompt or response", hint=hint)
        if "messages" in row:
            messages = columns.messages_of(row["messages"], where, names["messages"])
        elif "prompt" in row and "response" in row:
            response, *alternatives = columns.texts_of(row["response"], where, names["response"])
            messages = [("user", text_of(row["prompt"], where, names["prompt"])), (ASSISTANT, response)]
        else:
            hint = "name the columns, such as 'data.fields={prompt: instruction, response: output}'"
            raise DataFault.located(where, "needs prompt and response, or messages", hint=hint)
        last = max(number for number, (role, _) in enumerate(messages) if role == ASSISTANT)
        roles, texts = (list(part) for part in zip(*messages[: last + 1], strict=True))
        return Example(texts, roles, where, tuple(alternatives), len(messages) - len(texts))

    def source_and_references(self, example: Example) -> tuple[str, Sequence[str]]:
        """The message before the assistant's last one."""
        *before, answer = example.texts
        return before[-1] if before else "", [answer, *example.alternatives]

    def split_key(self, example: Example) -> str:
        return "\0".join(example.texts[:-1] or example.texts)

    def dropped(self, examples: Sequence[Example]) -> dict[str, int]:
        note = "{n:,} messages after the assistant's last one were dropped"
        return {note: sum(example.n_dropped for example in examples)}

    def encode(self, examples: Sequence[Example], tokenizers: Tokenizers, labels: Labels | None) -> list[Encoded]:
        encoded = []
        for example, messages in zip(examples, encode_parts(examples, tokenizers.target), strict=True):
            # The label of a message is at its tokens and at the separator that follows.
            is_target = [1.0 if role == ASSISTANT else np.nan for role in example.labels]
            by_message = [
                np.full(len(ids) + 1, label, np.float32) for ids, label in zip(messages, is_target, strict=True)
            ]
            encoded.append(Encoded(join_by_separators(messages, tokenizers.target), np.concatenate(by_message)))
        return encoded

    def packing(self, store: Store, shape: Shape) -> Packing:
        first = store.starts + 1
        last = first + store.lengths
        kept = between_characters(store.vocabulary, store.ids, np.maximum(first, last - max_example_ids(shape)), last)
        return rows_with_targets(store, shape, Spans.of(kept, last))

    def label_statistics(self, store: Store, labels: Labels) -> dict[str, float]:
        return {"tokens_asked_for": len(stored_labels(store))}

    def summary(self, data: TokenizedData) -> Iterator[str]:
        yield from super().summary(data)
        yield f"targets: {len(stored_labels(data.train)):,} of {len(data.train):,} training tokens"

    def describe_row(self, data: TokenizedData, rows: Rows, batch: Batch, row: int, training: bool) -> dict[str, Any]:
        return describing.describe_example_row(data.tokenizer, rows, batch, row)

    def row_table(self, row: Mapping[str, Any], head: str) -> list[str]:
        return describing.token_table(row, head)
