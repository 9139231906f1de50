"""The contract of datasets: reading, splitting, encoding, storing, packing and statistics.

A dataset is tested on rows: at least twelve, all different, each a mapping as in a line of a jsonl file, with roles as
column names.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.split import Examples
from mini_tf.data.store import in_memory
from mini_tf.recipe.data import Data, Split
from mini_tf.recipe.dataset_rules import reading_rules
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case, checks_of
from mini_tf.testing.tiny.datasets import DatasetFixture, Row

MANY_ROWS = 32
"""With fewer rows an epoch may have no room to begin at another place."""


def reads_every_row_with_its_location(fixture: DatasetFixture) -> None:
    n_rows, n_read = len(fixture.rows), len(fixture.examples)
    assert n_read == n_rows, f"{n_rows} rows must give as many examples, not {n_read}"
    for number, example in enumerate(fixture.examples, 1):
        assert example.where.endswith(f"rows.jsonl:{number}"), (
            f"the location of example {number} must end in file:{number}: {example.where!r}"
        )


def refuses_a_row_without_a_required_column(fixture: DatasetFixture) -> None:
    for role in fixture.dataset.REQUIRED:
        rows = [
            {name: cell for name, cell in row.items() if name != role} | {"another": "x", "third": "y"}
            for row in fixture.rows
        ]
        fault = _fault(lambda rows=rows: fixture.read(rows))  # type: ignore[misc]
        assert fault is not None, f"rows without the column {role!r} must be a DataFault"
        assert fault.where, f"the DataFault of rows without the column {role!r} must have a location"


def refuses_an_invalid_cell(fixture: DatasetFixture) -> None:
    for role in fixture.dataset.REQUIRED:
        rows = [*fixture.rows[:2], {**fixture.rows[2], role: {"a": ["mapping"]}}]
        fault = _fault(lambda rows=rows: fixture.read(rows))  # type: ignore[misc]
        assert fault is not None, f"a mapping in the column {role!r} must be a DataFault"
        message = f"the DataFault of a mapping in {role!r} must have the location of the row: {fault.where}"
        assert "rows.jsonl:3" in str(fault.where), message


def reads_columns_by_the_names_in_a_recipe(fixture: DatasetFixture) -> None:
    roles = _roles_of_all(fixture)
    renamed = [{f"other {name}" if name in roles else name: cell for name, cell in row.items()} for row in fixture.rows]
    examples = fixture.read(renamed, fields={role: f"other {role}" for role in roles})
    assert fixture.known(examples) == fixture.known(fixture.examples), "data.fields must map roles to columns"
    refused = [*reading_rules(Data(fields={"no such role": "x"}), fixture.dataset, "any")]
    assert refused, "a role that is neither in REQUIRED nor in OPTIONAL must be refused"


def reads_columns_by_number_without_a_header(fixture: DatasetFixture) -> None:
    """Files with a header are read by name, even if the recipe has column numbers."""
    roles = _roles_of_all(fixture)
    rows = [["not read", *(_cell(row[role]) for role in roles)] for row in fixture.rows]
    numbers = {role: number for number, role in enumerate(roles, 1)}
    named = [["beside", *roles], *rows]
    fault = _fault(lambda: fixture.read_table(named, fields={role: role for role in roles}))
    if fault is not None and "rows.csv:2" in str(fault.where):
        return  # a dataset with cells that are not texts need not read csv
    by_name = fixture.read_table(named, fields={role: role for role in roles})
    assert len(by_name) == len(rows), f"{len(rows)} rows of a csv file must give as many examples, not {len(by_name)}"
    for settings in ({"fields": {role: str(number) for role, number in numbers.items()}}, {"field_numbers": numbers}):
        fault = _fault(lambda settings=settings: fixture.read_table(rows, **settings))  # type: ignore[misc]
        assert fault is None, f"{settings} must map roles to columns: {fault}"
        assert fixture.known(fixture.read_table(rows, **settings)) == fixture.known(by_name), (
            f"{settings} must map roles to columns"
        )
    wrong_numbers = {role: number + 7 for role, number in numbers.items()}
    examples = fixture.read_table(named, field_numbers=wrong_numbers)
    assert fixture.known(examples) == fixture.known(by_name), "column numbers must be ignored for a file with a header"


def _roles_of_all(fixture: DatasetFixture) -> list[str]:
    """The columns that every row has."""
    roles = (*fixture.dataset.REQUIRED, *fixture.dataset.OPTIONAL)
    return [role for role in roles if all(role in row for row in fixture.rows)]


def _cell(value: Any) -> str:
    """A cell as in csv: a list of words is one text."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def stores_examples_unchanged(fixture: DatasetFixture) -> None:
    for example in fixture.examples if fixture.dataset.KEEPS_EXAMPLES else ():
        as_json = fixture.dataset.to_json(example)
        restored = fixture.dataset.of_json(json.loads(json.dumps(as_json)), example.where)
        same = fixture.known([restored]) == fixture.known([example]) and fixture.dataset.to_json(restored) == as_json
        assert same, f"of_json(to_json(example)) must be the example: {example!r}"
    if fixture.dataset.KEEPS_EXAMPLES:
        stored = [*fixture.dataset.examples(fixture.store)]
        assert fixture.known(stored) == fixture.known(fixture.examples), "a store must hold the examples in their order"


def splits_by_the_key_of_an_example(fixture: DatasetFixture) -> None:
    """Deterministic and disjoint, and additional examples do not move others to another split."""
    dataset, n = fixture.dataset, len(fixture.examples)
    assert n >= 12, "the contract needs twelve rows at least"

    def splits(examples: list[Any]) -> dict[str, set[str]]:
        division = dataset.split(_in_memory(examples), None, Split(share=0.3))
        by_key: dict[str, set[str]] = {}
        for split, example in division.read():
            by_key.setdefault(dataset.split_key(example), set()).add(split)
        return by_key

    whole = splits(fixture.examples)
    assert whole == splits(fixture.examples), "splitting must be deterministic"
    assert set().union(*whole.values()) == {"train", "val"}, "both splits must have examples"
    assert all(len(names) == 1 for names in whole.values()), "a key must not be in both splits"
    twice = splits(fixture.read([*fixture.rows, *fixture.rows]))
    assert twice == whole, "duplicates must be in the same split"


def excludes_training_examples_from_validation(fixture: DatasetFixture) -> None:
    train, val = fixture.examples[:8], fixture.examples[6:]
    division = fixture.dataset.split(_in_memory(train), _in_memory(val), Split(share=0.3))
    validation = [fixture.dataset.content_key(example) for split, example in division.read() if split == "val"]
    message = "examples of data.train must be removed from data.val"
    assert validation == [fixture.dataset.content_key(example) for example in fixture.examples[8:]], message
    fault = _fault(lambda: fixture.dataset.split(_in_memory(train), _in_memory(train[:3]), Split(share=0.3)))
    assert fault is not None, "validation data that are all in data.train must be a DataFault"


def encodes_examples_independently(fixture: DatasetFixture) -> None:
    together = fixture.dataset.encode(fixture.examples, fixture.used, fixture.labels)
    alone = [fixture.dataset.encode([example], fixture.used, fixture.labels)[0] for example in fixture.examples]
    widths = set()
    for batched, single in zip(together, alone, strict=True):
        for name in batched._fields:
            both = getattr(batched, name), getattr(single, name)
            assert _same(name, *both), f"{name} of an example must not depend on the batch: {both}"
        assert batched.ids.size > 0, "an example must have ids"
        assert batched.ids.max() < fixture.used.target.vocabulary.size, "ids must be those of the tokenizer"
        message = "labels must be one per id and one for the final separator"
        assert batched.labels is None or batched.labels.shape == (len(batched.ids) + 1,), message
        message = "an example must have a source if and only if SOURCE is declared"
        assert (batched.source is not None) == fixture.dataset.SOURCE, message
        widths.add(None if batched.row_labels is None else batched.row_labels.shape)
    assert len(widths) == 1, f"row_labels must have one shape: {widths}"


def encodes_nothing_of_a_label(fixture: DatasetFixture) -> None:
    """Texts and ids are those of the rows without labels, as `predict` reads them."""
    dataset = fixture.dataset
    if not dataset.LABELS:
        return
    unlabelled = fixture.read_unlabelled(fixture.rows)
    both = [dataset.encode(examples, fixture.used, fixture.labels) for examples in (fixture.examples, unlabelled)]
    for example, other, *encoded in zip(fixture.examples, unlabelled, *both, strict=True):
        assert [*dataset.texts(example)] == [*dataset.texts(other)], (
            f"the texts must not depend on the label: {dataset.texts(example)}"
        )
        for name in ("ids", "source"):
            labelled, plain = (getattr(row, name) for row in encoded)
            assert np.array_equal(labelled, plain), (
                f"{name} must not depend on the label: {labelled}, without a label {plain}"
            )


def stores_what_it_encodes(fixture: DatasetFixture) -> None:
    memory = in_memory(fixture.dataset.encode(fixture.examples, fixture.used, fixture.labels), fixture.used)
    for name in ("ids", "starts", "labels", "row_labels"):
        same = _same(name, getattr(fixture.store, name), getattr(memory, name))
        assert same, f"{name} in files must equal those in memory"
    texts = [" ".join(fixture.dataset.texts(example)) for example in fixture.examples]
    assert fixture.store.raw_bytes == sum(len(text.encode()) for text in texts), "raw_bytes must be those of the texts"
    fixture.store.check()


def packs_rows_independently(fixture: DatasetFixture) -> None:
    for context in (16, 512):
        packing = fixture.packing(context)
        numbers = np.arange(packing.n_rows)
        keys = numbers.astype(np.uint64)
        whole = packing.take(numbers, 0, keys)
        for number in numbers:
            alone = packing.take(numbers[number : number + 1], 0, keys[number : number + 1])
            for name, row in _real(alone, 0).items():
                same = np.array_equal(row, _real(whole, int(number))[name], equal_nan=name.endswith("labels"))
                assert same, f"context {context}: {name} of row {number} must not depend on the batch"


def keeps_rows_within_the_context(fixture: DatasetFixture) -> None:
    for context in (16, 512):
        packing = fixture.packing(context)
        rows = packing.take(np.arange(packing.n_rows), 0, np.arange(packing.n_rows).astype(np.uint64))
        read = rows.ids.shape[1] - packing.shape.lookahead
        assert read <= context, f"rows of context {context} must have at most that many tokens, not {read}"
        assert rows.source is None or rows.source.ids.shape[1] <= context, f"sources must have at most {context} tokens"
        longest = packing.lengths.max()
        assert longest <= context, f"lengths must be at most the context {context}: {longest}"
        assert len(packing.lengths) == packing.n_rows, "lengths must have one entry per row"


def cuts_a_stream_elsewhere_in_other_epochs(fixture: DatasetFixture) -> None:
    """Else a token always has the same context. `documents` are those of the rows of the same epoch."""
    if not fixture.dataset.STREAM:
        return
    for pack in ("concat", "docs"):
        packing = fixture.packing(16, 1, pack)
        numbers, contents = np.arange(packing.n_rows), set()
        if len(numbers) < MANY_ROWS:
            return
        for epoch in range(4):
            rows = packing.take(numbers, epoch, numbers.astype(np.uint64))
            contents.add(rows.ids.tobytes())
            assert np.array_equal(rows.keys, numbers), "rows must have the keys that are given"
            for number in numbers if pack == "docs" else ():
                assert rows.segments is not None
                n_documents = len(set(rows.segments[number, :-1].tolist()) - {0})
                documents = packing.documents(numbers[number : number + 1], epoch)
                message = f"row {number} of epoch {epoch} has {n_documents} documents, not {documents}"
                assert n_documents == len(documents), message
        assert len(contents) > 1, "epochs must cut the stream at different places"


def reads_every_example_in_evaluation(fixture: DatasetFixture) -> None:
    packing = fixture.packing()
    batches = [*packing.eval_rows(5)]
    assert sum(map(len, batches)) == len(packing.eval_row_tokens), "evaluation must read every row once"
    assert packing.n_too_long == 0, "n_longer must be 0 if all rows fit into the context"
    numbers = np.concatenate([packing.documents(np.arange(packing.n_rows), 0)])
    assert [*numbers] == [*range(len(fixture.examples))], "an epoch must read every example"
    keys = np.concatenate([rows.keys for rows in batches])
    message = "the key of a row must not depend on the batch"
    assert [*keys] == [*np.concatenate([rows.keys for rows in packing.eval_rows(3)])], message
    few = sum(map(len, packing.eval_rows(5, tokens=1)))
    assert few == 1, f"tokens=1 must end the evaluation after one row, not after {few}"


def describes_its_data(fixture: DatasetFixture) -> None:
    text = TokenizedData(fixture.store, fixture.store, fixture.used, [], {}, fixture.labels)
    assert [*fixture.dataset.summary(text)], "summary must return a line"
    packings = {"train": fixture.packing(), "val": fixture.packing()}
    lines, facts = fixture.dataset.stats(text, packings)
    assert lines, "stats must return lines"
    assert json.dumps(facts), "stats must return JSON values"
    message = "opened must contain the number of examples"
    assert str(len(fixture.examples)) in fixture.dataset.size_summary(text), message
    if fixture.labels is not None:
        labels = fixture.dataset.read_labels({"labels": json.loads(json.dumps(fixture.labels.to_json()))})
        assert labels == fixture.labels, "read_labels must restore the labels of config.json"


CONTRACT = checks_of(__name__)


def cases(dataset: Dataset, rows: Sequence[Row]) -> list[Case]:
    """All checks for a dataset with these rows."""
    return [Case(check.__name__, partial(_tried, check, dataset, rows)) for check in CONTRACT]


def _tried(check: Callable[[DatasetFixture], None], dataset: Dataset, rows: Sequence[Row]) -> None:
    with DatasetFixture.temporary(dataset, rows) as fixture:
        check(fixture)


def _in_memory(examples: Sequence[Any]) -> Examples:
    return Examples.of(lambda: iter(examples))


def _same(name: str, part: Any, other: Any) -> bool:
    """Whether both are None, or equal arrays; labels may be NaN."""
    if part is None or other is None:
        return part is other
    return np.array_equal(part, other, equal_nan=name.endswith("labels"))


def _fault(doing: Callable[[], object]) -> DataFault | None:
    try:
        doing()
    except DataFault as fault:
        return fault
    return None


def _real(rows: Rows, row: int) -> dict[str, np.ndarray]:
    """One row without padding."""
    width = rows.ids.shape[1] if rows.segments is None else int((rows.segments[row] != 0).sum())
    parts = {name: part[row, :width] for name, part in (("ids", rows.ids), ("labels", rows.labels)) if part is not None}
    parts |= {} if rows.row_labels is None else {"row_labels": rows.row_labels[row]}
    return parts | (
        {} if rows.source is None else {f"source {name}": part for name, part in _real(rows.source, row).items()}
    )
