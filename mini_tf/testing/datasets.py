"""The contract of a dataset: columns refused and read, examples kept, divided, encoded, stored, cut into rows, and told of.

A dataset is tried on rows of its own: at least twelve, all different, each a mapping as a line of jsonl holds it, whose columns are
called by their roles.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.encoding import write
from mini_tf.data.labels import Labels
from mini_tf.data.packing import Packing, Shape
from mini_tf.data.store import Store, Tokenizers, in_memory, open_store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe.data import Data, Split
from mini_tf.recipe.dataset_rules import reading_rules
from mini_tf.recipe.sections import SingleTokenizer
from mini_tf.system.errors import DataFault
from mini_tf.testing import Case

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Trial:
    """A dataset with rows of its own, in a folder of its own."""

    dataset: Dataset
    rows: Sequence[Row]
    folder: Path

    def file(self, rows: Iterable[Row], name: str = "rows.jsonl") -> str:
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    def read(self, rows: Iterable[Row], **settings: Any) -> list[Any]:
        """The examples of rows, as a recipe with these keys of `data` reads them."""
        return self._read(self.file(rows), settings)

    def read_table(self, rows: Iterable[Sequence[str]], **settings: Any) -> list[Any]:
        """The examples of a csv file of these rows."""
        path = self.folder / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        return self._read(str(path), settings)

    def _read(self, corpus: str, settings: Mapping[str, Any]) -> list[Any]:
        data = Data(train=corpus, **settings)
        return list(self.dataset.read(self.dataset.find(corpus, "data.train"), data, corpus))

    @cached_property
    def examples(self) -> list[Any]:
        return self.read(self.rows)

    def known(self, examples: Iterable[Any]) -> list[tuple[str, ...]]:
        """All that is known of examples but their places."""
        return [(self.dataset.whole(one), self.dataset.known_by(one), *self.dataset.texts(one)) for one in examples]

    @cached_property
    def used(self) -> Tokenizers:
        sides = (True, False) if self.dataset.SOURCE else (False,)
        texts = [text for side in sides for one in self.examples for text in self.dataset.texts(one, side)]
        one = Tokenizer.train(SingleTokenizer(kind="byte"), texts)
        return Tokenizers(one, one)

    @cached_property
    def labels(self) -> Labels | None:
        return self.dataset.labels_of(iter(self.examples))

    @cached_property
    def store(self) -> Store:
        """All examples, written into files and opened."""
        folder = self.folder / "store"
        folder.mkdir()
        facts = write(folder, self.dataset, (("val", one) for one in self.examples), self.used, self.labels, True)["stores"]
        source = open_store(folder, "val.source", facts["val.source"], self.used.source.vocabulary) if "val.source" in facts else None
        return open_store(folder, "val", facts["val"], self.used.target.vocabulary, source)

    def packing(self, context: int = 512, lookahead: int = 1, pack: Any = "none") -> Packing:
        return self.dataset.packing(self.store, Shape(context, lookahead, pack))


def reads_every_row_and_says_where_it_stands(trial: Trial) -> None:
    assert len(trial.examples) == len(trial.rows), f"{len(trial.rows)} rows must give as many examples, not {len(trial.examples)}"
    for number, one in enumerate(trial.examples, 1):
        assert one.where.endswith(f"rows.jsonl:{number}"), f"example {number} must say where it stands (file:{number}), not {one.where!r}"


def refuses_a_row_without_a_column_it_needs(trial: Trial) -> None:
    for role in trial.dataset.REQUIRED:
        rows = [{name: cell for name, cell in row.items() if name != role} | {"another": "x", "third": "y"} for row in trial.rows]
        fault = _fault(lambda rows=rows: trial.read(rows))  # type: ignore[misc]
        assert fault is not None, f"rows without the column {role!r} must be a DataFault"
        assert fault.where, f"the DataFault of rows without the column {role!r} must say where"


def refuses_a_cell_that_it_cannot_read(trial: Trial) -> None:
    for role in trial.dataset.REQUIRED:
        rows = [*trial.rows[:2], {**trial.rows[2], role: {"a": ["mapping"]}}]
        fault = _fault(lambda rows=rows: trial.read(rows))  # type: ignore[misc]
        assert fault is not None, f"a mapping in the column {role!r} must be a DataFault"
        assert "rows.jsonl:3" in str(fault.where), f"the DataFault of a mapping in {role!r} must say where: {fault.where}"


def reads_columns_by_the_names_that_a_recipe_gives(trial: Trial) -> None:
    roles = [role for role in (*trial.dataset.REQUIRED, *trial.dataset.OPTIONAL) if all(role in row for row in trial.rows)]
    renamed = [{f"other {name}" if name in roles else name: cell for name, cell in row.items()} for row in trial.rows]
    found = trial.read(renamed, fields={role: f"other {role}" for role in roles})
    assert trial.known(found) == trial.known(trial.examples), "data.fields must say which columns hold the roles"
    refused = [*reading_rules(Data(fields={"no such role": "x"}), trial.dataset, "any")]
    assert refused, "a role that is none of REQUIRED and OPTIONAL must be refused"


def reads_columns_by_number_where_a_file_does_not_name_them(trial: Trial) -> None:
    """And by their names where it does, whatever numbers a recipe gives for files that do not."""
    roles = [role for role in (*trial.dataset.REQUIRED, *trial.dataset.OPTIONAL) if all(role in row for row in trial.rows)]
    rows = [["not read", *(_cell(row[role]) for role in roles)] for row in trial.rows]
    numbers = {role: number for number, role in enumerate(roles, 1)}
    named = [["beside", *roles], *rows]
    fault = _fault(lambda: trial.read_table(named, fields={role: role for role in roles}))
    if fault is not None and "rows.csv:2" in str(fault.where):
        return  # a dataset whose cells are more than texts need not read csv
    told = trial.read_table(named, fields={role: role for role in roles})
    assert len(told) == len(rows), f"{len(rows)} rows of a csv file must give as many examples, not {len(told)}"
    for settings in ({"fields": {role: str(number) for role, number in numbers.items()}}, {"field_numbers": numbers}):
        fault = _fault(lambda settings=settings: trial.read_table(rows, **settings))  # type: ignore[misc]
        assert fault is None, f"{settings} must say which columns hold the roles: {fault}"
        assert trial.known(trial.read_table(rows, **settings)) == trial.known(told), f"{settings} must say which columns hold the roles"
    of_another = {role: number + 7 for role, number in numbers.items()}
    found = trial.read_table(named, field_numbers=of_another)
    assert trial.known(found) == trial.known(told), "numbers must not be asked for in a file that names its columns"


def _cell(value: Any) -> str:
    """A cell as csv holds it: lists of words as one text."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def keeps_examples_as_they_were_written(trial: Trial) -> None:
    for one in trial.examples if trial.dataset.KEEPS_EXAMPLES else ():
        kept = trial.dataset.of_json(json.loads(json.dumps(trial.dataset.to_json(one))), one.where)
        assert trial.known([kept]) == trial.known([one]), f"of_json(to_json(example)) must be the example: {one!r}"
    if trial.dataset.KEEPS_EXAMPLES:
        found = [*trial.dataset.examples(trial.store)]
        assert trial.known(found) == trial.known(trial.examples), "a store must keep the examples in their order"


def holds_out_by_what_an_example_is_known_by(trial: Trial) -> None:
    """The same each time, never on both sides, and what is added changes nobody's side."""
    dataset, n = trial.dataset, len(trial.examples)
    assert n >= 12, "the contract needs twelve rows at least"

    def sides(examples: list[Any]) -> dict[str, set[str]]:
        division = dataset.divide(lambda: iter(examples), None, Split(share=0.3))
        found: dict[str, set[str]] = {}
        for side, one in division.read():
            found.setdefault(dataset.known_by(one), set()).add(side)
        return found

    whole = sides(trial.examples)
    assert whole == sides(trial.examples), "the same examples must be divided in the same way"
    assert set().union(*whole.values()) == {"train", "val"}, "both sides must have examples"
    assert all(len(found) == 1 for found in whole.values()), "what examples are known by must not stand on both sides"
    twice = sides(trial.read([*trial.rows, *trial.rows]))
    assert twice == whole, "an example that stands twice must stand on the side where it stood"


def leaves_out_of_the_held_out_side_what_is_learnt(trial: Trial) -> None:
    train, val = trial.examples[:8], trial.examples[6:]
    division = trial.dataset.divide(lambda: iter(train), lambda: iter(val), Split(share=0.3))
    held_out = [trial.dataset.whole(one) for side, one in division.read() if side == "val"]
    assert held_out == [trial.dataset.whole(one) for one in trial.examples[8:]], "what stands in data.train must be left out of data.val"
    fault = _fault(lambda: trial.dataset.divide(lambda: iter(train), lambda: iter(train[:3]), Split(share=0.3)))
    assert fault is not None, "held-out data that all stand in data.train must be a DataFault"


def encodes_each_example_by_itself(trial: Trial) -> None:
    together = trial.dataset.encode(trial.examples, trial.used, trial.labels)
    alone = [trial.dataset.encode([one], trial.used, trial.labels)[0] for one in trial.examples]
    widths = set()
    for one, single in zip(together, alone, strict=True):
        for name in one._fields:
            both = getattr(one, name), getattr(single, name)
            same = (both[0] is None) == (both[1] is None) and (both[0] is None or np.array_equal(*both, equal_nan=name.endswith("labels")))
            assert same, f"{name} of an example must not depend on what is encoded beside it: {both}"
        assert one.ids.size > 0, "an example must have ids"
        assert one.ids.max() < trial.used.target.vocabulary.size, "ids must be those of the tokenizer"
        assert one.labels is None or one.labels.shape == (len(one.ids) + 1,), "labels: one of each id and of the separator behind them"
        assert (one.source is not None) == trial.dataset.SOURCE, "an example has a source where the dataset declares SOURCE"
        widths.add(None if one.row_labels is None else one.row_labels.shape)
    assert len(widths) == 1, f"row_labels must have one shape: {widths}"


def stores_what_it_encodes(trial: Trial) -> None:
    memory = in_memory(trial.dataset.encode(trial.examples, trial.used, trial.labels), trial.used)
    for name in ("ids", "starts", "labels", "row_labels"):
        kept, there = getattr(trial.store, name), getattr(memory, name)
        same = (kept is None) == (there is None) and (kept is None or np.array_equal(kept, there, equal_nan=name.endswith("labels")))
        assert same, f"{name} in files must be those in memory"
    texts = [" ".join(trial.dataset.texts(one)) for one in trial.examples]
    assert trial.store.raw_bytes == sum(len(text.encode()) for text in texts), "raw_bytes must be those of the texts"
    trial.store.check()


def reads_each_row_whatever_is_read_beside_it(trial: Trial) -> None:
    for context in (16, 512):
        packing = trial.packing(context)
        numbers = np.arange(packing.n_rows)
        keys = numbers.astype(np.uint64)
        whole = packing.take(numbers, 0, keys)
        for number in numbers:
            alone = packing.take(numbers[number : number + 1], 0, keys[number : number + 1])
            for name, row in _real(alone, 0).items():
                same = np.array_equal(row, _real(whole, int(number))[name], equal_nan=name.endswith("labels"))
                assert same, f"context {context}: {name} of row {number} must not depend on the rows beside it"


def keeps_rows_within_the_context(trial: Trial) -> None:
    for context in (16, 512):
        packing = trial.packing(context)
        rows = packing.take(np.arange(packing.n_rows), 0, np.arange(packing.n_rows).astype(np.uint64))
        read = rows.ids.shape[1] - packing.shape.lookahead
        assert read <= context, f"rows of context {context} must read no more than that, not {read}"
        assert rows.source is None or rows.source.ids.shape[1] <= context, "so must rows of sources"
        assert packing.lengths.max() <= context, f"lengths must be at most the context {context}: {packing.lengths.max()}"
        assert len(packing.lengths) == packing.n_rows, "lengths must have one of each row"


def reads_every_example_in_evaluation(trial: Trial) -> None:
    packing = trial.packing()
    batches = [*packing.eval_rows(5)]
    assert sum(map(len, batches)) == len(packing.held_out_tokens), "evaluation must read every row once"
    assert packing.n_longer == 0, "of rows that fit into the context none is longer"
    numbers = np.concatenate([packing.documents(np.arange(packing.n_rows), 0)])
    assert [*numbers] == [*range(len(trial.examples))], "an epoch must read every example"
    keys = np.concatenate([rows.keys for rows in batches])
    assert [*keys] == [*np.concatenate([rows.keys for rows in packing.eval_rows(3)])], "the key of a row must not depend on the batch"
    few = sum(map(len, packing.eval_rows(5, tokens=1)))
    assert few == 1, f"`tokens` must end evaluation with the row that has the first token, not after {few}"


def tells_what_it_holds(trial: Trial) -> None:
    text = TokenizedData(trial.store, trial.store, trial.used, [], {}, trial.labels)
    assert [*trial.dataset.summary(text)], "summary must have a line"
    packings = {"train": trial.packing(), "val": trial.packing()}
    lines, facts = trial.dataset.stats(text, packings)
    assert lines, "stats must have lines"
    assert json.dumps(facts), "and be JSON"
    assert str(len(trial.examples)) in trial.dataset.opened(text), "opened must say how many there are"
    if trial.labels is not None:
        kept = trial.dataset.read_labels({"labels": json.loads(json.dumps(trial.labels.to_json()))})
        assert kept == trial.labels, "read_labels must read what config.json keeps"


CONTRACT: tuple[Callable[[Trial], None], ...] = (
    reads_every_row_and_says_where_it_stands,
    refuses_a_row_without_a_column_it_needs,
    refuses_a_cell_that_it_cannot_read,
    reads_columns_by_the_names_that_a_recipe_gives,
    reads_columns_by_number_where_a_file_does_not_name_them,
    keeps_examples_as_they_were_written,
    holds_out_by_what_an_example_is_known_by,
    leaves_out_of_the_held_out_side_what_is_learnt,
    encodes_each_example_by_itself,
    stores_what_it_encodes,
    reads_each_row_whatever_is_read_beside_it,
    keeps_rows_within_the_context,
    reads_every_example_in_evaluation,
    tells_what_it_holds,
)
"""Every function that a dataset must bear."""


def cases(dataset: Dataset, rows: Sequence[Row]) -> list[Case]:
    """Everything that a dataset must do with these rows of it."""
    return [Case(check.__name__, partial(_tried, check, dataset, rows)) for check in CONTRACT]


def _tried(check: Callable[[Trial], None], dataset: Dataset, rows: Sequence[Row]) -> None:
    with ExitStack() as files:
        check(Trial(dataset, rows, Path(files.enter_context(TemporaryDirectory()))))


def _fault(doing: Callable[[], object]) -> DataFault | None:
    try:
        doing()
    except DataFault as fault:
        return fault
    return None


def _real(rows: Rows, row: int) -> dict[str, np.ndarray]:
    """One row without its padding."""
    width = rows.ids.shape[1] if rows.segments is None else int((rows.segments[row] != 0).sum())
    found = {name: part[row, :width] for name, part in (("ids", rows.ids), ("labels", rows.labels)) if part is not None}
    found |= {} if rows.row_labels is None else {"row_labels": rows.row_labels[row]}
    return found | ({} if rows.source is None else {f"source {name}": part for name, part in _real(rows.source, row).items()})
