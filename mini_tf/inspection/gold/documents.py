"""Documents with gold labels of words, from a corpus such as `world` or a table with the same columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from mini_tf.data.formats.columns import Columns, labels_of, words_of
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.tables import Row, rows_of
from mini_tf.system.errors import DataFault
from mini_tf.trained.evaluating import other_data
from mini_tf.trained.opening import Trained

HINT = "--data world, or a table with these columns"


@dataclass(frozen=True)
class LabelledDocument:
    """labels: by column, one for each word or, of a listed column, any number; a column may be missing."""

    words: list[str]
    labels: dict[str, list[str]]
    where: str

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def indices(self, column: str) -> list[int]:
        """Labels that are indices of words, -1 for none. Raises DataFault for others."""
        found = []
        for number, label in enumerate(self.labels[column], 1):
            at = (
                int(label)
                if label.removeprefix("-").isascii() and label.removeprefix("-").isdigit() and len(label) < 9
                else -2
            )
            if not -1 <= at < len(self.words):
                raise DataFault(
                    f"{self.where}: {column!r}, word {number}: {label!r} must be the index of a word, 0 to"
                    f" {len(self.words) - 1}, or -1",
                    where=(self.where,),
                )
            found.append(at)
        return found


def labelled_documents(
    trained: Trained,
    data: str | None,
    needed: Sequence[str],
    optional: Sequence[str],
    limit: int,
    listed: Sequence[str] = (),
) -> list[LabelledDocument]:
    """The first `limit` documents. data: in the syntax of data.train; None: the run's data.val, else its data.train.

    listed: columns of indices of words, as many as there are, one of which is needed. Raises DataFault if a needed
    column is missing, or the number of labels differs from that of the words.
    """
    own = trained.recipe.data
    value, key = (
        (own.val or own.train, "data.val" if own.val else "data.train")
        if data is None
        else (other_data(trained, data).train, "--data")
    )
    found: list[LabelledDocument] = []
    for file in find_files(value, key):
        if file.format == "txt":
            what = f"columns {', '.join(needed)}" if needed else f"column {' or '.join(listed)}"
            raise DataFault(f"{key}: {file.name} has no {what}", hint=HINT, where=(file.name,))
        rows = rows_of(file, Columns(("text", *needed), own.header, own.errors, (*optional, *listed)))
        try:
            found += [_document(row, [*needed, *optional, *listed], listed) for row in islice(rows, limit - len(found))]
        except DataFault as fault:
            if fault.hint is not None and "columns" in fault.hint:  # columns have no other names here
                fault.hint = HINT
            raise
    return found


def _document(row: Row, columns: Sequence[str], listed: Sequence[str]) -> LabelledDocument:
    words = words_of(row.cells[0], row.where, "text")
    labels = {}
    for column, cell in zip(columns, [*row.cells[1:], *row.optional], strict=True):
        if cell is None and column not in columns[: len(row.cells) - 1]:
            continue
        labels[column] = labels_of(cell, row.where, column)
        if column not in listed and len(labels[column]) != len(words):
            what = f"{len(words)} words, but {len(labels[column])} labels in {column!r}; the numbers must be equal"
            raise DataFault(f"{row.where}: {what}", where=(row.where,))
    if listed and not labels.keys() & {*listed}:
        raise DataFault(f"{row.where} has no column {' or '.join(listed)}", hint=HINT, where=(row.where,))
    return LabelledDocument(words, labels, row.where)
