"""The contract of datasets over every kind, and against datasets that break it."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mini_tf.data.split import Part
from mini_tf.data.store import join_stores
from mini_tf.data.tokenized import write_stores
from mini_tf.data.windows import Windows
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import datasets as contract
from mini_tf.testing import run_all

WORDS = [
    *("a", "dog", "barks", "loud", "while", "seven", "grey", "cats", "sleep", "under"),
    *("the", "old", "oak", "tree", "all", "day", "long"),
]
TEXTS = [" ".join([*WORDS[n:], *WORDS[:n]]) for n in range(len(WORDS))]
ROWS: dict[str, list[dict[str, Any]]] = {
    "text": [{"text": text} for text in TEXTS],
    "pairs": [{"source": text, "target": [text.upper(), text], "alignment": "0-0"} for text in TEXTS],
    "classes": [{"text": text, "text_pair": text[:9], "label": "ab"[n % 2]} for n, text in enumerate(TEXTS)],
    "label_sets": [{"text": text, "labels": [["a"], ["b", "a"], [], ["c d"]][n % 4]} for n, text in enumerate(TEXTS)],
    "text_pairs": [{"text": text, "positive": text[::-1]} for text in TEXTS],
    "numbers": [{"text": text, "label": n / 3} for n, text in enumerate(TEXTS)],
    "tags": [{"text": text, "label": ["O" if len(word) < 4 else "B-x" for word in text.split()]} for text in TEXTS],
    "chats": [{"prompt": text, "response": [text[::-1], text]} for text in TEXTS],
}


def with_rows(dataset: str, *values: Any) -> Any:
    """Parameters of a test of this dataset, which is skipped, with a reason, if there are no rows of it."""
    return pytest.param(
        *values, marks=[] if dataset in ROWS else [pytest.mark.skip(reason=f"ROWS has no rows of {dataset}")]
    )


KINDS = [with_rows(kind, kind) for kind in listing("data.datasets")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_dataset(kind: str) -> None:
    run_all(contract.cases(settings_of("data.datasets", kind)(), ROWS[kind]))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_stores_of_consecutive_shares_are_joined_to_the_bytes_of_one(kind: str, tmp_path: Path) -> None:
    """As several processes write them. A share may be empty, or have no example of a split."""
    data = contract.DatasetFixture(settings_of("data.datasets", kind)(), ROWS[kind], tmp_path)  # type: ignore[arg-type]
    of_splits = [("val" if number % 5 == 1 else "train", one) for number, one in enumerate(data.examples)]

    def write(name: str, first: int, last: int) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        part: Any = Part(lambda: iter(of_splits[first:last]))
        return dict(write_stores(tmp_path / name, data.dataset, [part], data.used, data.labels, True)["stores"])

    whole = write("whole", 0, len(WORDS))
    shares = [(tmp_path / f"{n}", write(f"{n}", *both)) for n, both in enumerate(pairwise([0, 1, 1, 7, len(WORDS)]))]
    (tmp_path / "joined").mkdir()
    assert join_stores(tmp_path / "joined", shares) == whole
    found, expected = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("joined", "whole")
    )
    assert found == expected
    assert not any(folder.exists() for folder, _ in shares)


def test_conversations_of_messages_keep_the_contract() -> None:
    turns = [[{"role": "user", "content": text}, {"role": "assistant", "content": text[5:]}] for text in TEXTS]
    chats: Any = settings_of("data.datasets", "chats")()
    for case in contract.cases(chats, [{"messages": messages} for messages in turns]):
        case.run()


Classes: Any = settings_of("data.datasets", "classes")


class Forgets(Classes):
    def to_json(self, example: Any) -> list[Any]:
        return [example.texts[:1], example.labels, ()]


class TellsNoPlace(Classes):
    def example(self, *given: Any) -> Any:
        return super().example(*given)._replace(where="somewhere")


class KnowsNothing(Classes):
    def split_key(self, example: Any) -> str:
        return example.where


class Mixes(Classes):
    def encode(self, examples: Sequence[Any], *given: Any) -> Any:
        return super().encode(sorted(examples), *given)


class ReadsBeyond(Classes):
    def packing(self, store: Any, shape: Any) -> Any:
        return super().packing(store, type(shape)(512, shape.lookahead))


class KnowsNoNumbers(Classes):
    def reader(self, data: Any, *given: Any, **more: Any) -> Any:
        return super().reader(data.model_copy(update={"field_numbers": {}}), *given, **more)


class LosesARow(Classes):
    def read(self, *given: Any) -> Any:
        return [*super().read(*given)][1:]


class WritesTheLabel(Classes):
    def example(self, *given: Any) -> Any:
        one = super().example(*given)
        return one._replace(texts=[*one.texts[:-1], f"{one.texts[-1]} {''.join(one.labels)}"])


class EncodesTheLabel(Classes):
    def encode(self, examples: Sequence[Any], *given: Any) -> Any:
        encoded = super().encode(examples, *given)
        return [
            one._replace(ids=one.ids[int("b" in example.labels) :])
            for one, example in zip(encoded, examples, strict=True)
        ]


class CutsAlwaysAtTheSamePlace(settings_of("data.datasets", "text")):  # type: ignore[misc]
    def packing(self, store: Any, shape: Any) -> Any:
        class OneEpoch(Windows):
            def take(self, rows: Any, epoch: int, keys: Any) -> Any:
                return super().take(rows, 0, keys)

            def documents(self, rows: Any, epoch: int) -> Any:
                return super().documents(rows, 0)

        return OneEpoch(store, shape)


class CountsDocumentsOfTheFirstEpoch(settings_of("data.datasets", "text")):  # type: ignore[misc]
    def packing(self, store: Any, shape: Any) -> Any:
        class OneEpoch(Windows):
            def documents(self, rows: Any, epoch: int) -> Any:
                return super().documents(rows, 0)

        return OneEpoch(store, shape)


BREAKS: dict[type[Any], str] = {
    WritesTheLabel: "encodes_nothing_of_a_label",
    EncodesTheLabel: "encodes_nothing_of_a_label",
    CutsAlwaysAtTheSamePlace: "cuts_a_stream_elsewhere_in_other_epochs",
    CountsDocumentsOfTheFirstEpoch: "cuts_a_stream_elsewhere_in_other_epochs",
    Forgets: "stores_examples_unchanged",
    TellsNoPlace: "reads_every_row_with_its_location",
    KnowsNothing: "splits_by_the_key_of_an_example",
    Mixes: "encodes_examples_independently",
    ReadsBeyond: "keeps_rows_within_the_context",
    KnowsNoNumbers: "reads_columns_by_number_without_a_header",
    LosesARow: "reads_every_row_with_its_location",
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_dataset_that_breaks_the_contract_is_caught(broken: type[Any]) -> None:
    rows = ROWS["text" if broken.STREAM else "classes"]
    [case] = [case for case in contract.cases(broken(), rows) if case.name == BREAKS[broken]]
    with pytest.raises(AssertionError):
        case.run()
