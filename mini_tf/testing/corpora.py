"""The contract of a corpus that comes along: the same bytes each time, in the format and with the columns that it declares."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.documents import read
from mini_tf.data.formats.tables import rows_of
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.testing import Case, cases_of


def is_made_once_and_the_same_each_time(settings: CorpusSettings) -> None:
    """In two folders; a file that is there is taken as it is. The name of the file has the version in it."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        path, twin = settings.corpus(Path(one)), settings.corpus(Path(other))
        assert path.name == f"{settings.word}-{settings.VERSION}.{settings.FORMAT}" == twin.name, f"unexpected name: {path.name}"
        assert path.read_bytes() == twin.read_bytes(), "the same corpus must have the same bytes"
        path.write_text("kept")
        assert settings.corpus(Path(one)).read_text() == "kept", "a file that is there must stay"


def has_the_columns_that_it_declares(settings: CorpusSettings) -> None:
    """In every row, in their order, as text; they are read as any such file is."""
    rows = list(settings.rows())
    assert rows, "a corpus must have rows"
    for row in rows:
        assert tuple(row) == settings.COLUMNS, f"a row has {[*row]}, COLUMNS are {settings.COLUMNS}"
        assert all(isinstance(cell, str) and cell.strip() for cell in row.values()), f"a cell is no text: {row}"
    with TemporaryDirectory() as folder:
        source = DataFile(settings.corpus(Path(folder)), settings.FORMAT, settings.word)
        if settings.FORMAT == "txt":
            found = [{"text": document.text} for document in read([source], Columns())]
        else:
            read_back = rows_of(source, Columns(settings.COLUMNS))
            found = [dict(zip(settings.COLUMNS, map(str, row.cells), strict=True)) for row in read_back]
    assert found == [dict(row) for row in rows], "the file must hold what rows() gives"


def declares_columns_that_are_read(settings: CorpusSettings) -> None:
    """A text, or pairs of a source and a target; its settings can be written as JSON, since it has none."""
    assert "text" in settings.COLUMNS or {"source", "target"} <= {*settings.COLUMNS}, f"nothing reads {settings.COLUMNS}"
    assert settings.FORMAT == "jsonl" or (settings.FORMAT, settings.COLUMNS) == ("txt", ("text",)), f"{settings.FORMAT} has no columns"
    assert json.loads(settings.model_dump_json()) == {}, "a recipe writes a corpus by its word alone; settings cannot be given"


CONTRACT: tuple[Callable[[CorpusSettings], None], ...] = (
    is_made_once_and_the_same_each_time,
    has_the_columns_that_it_declares,
    declares_columns_that_are_read,
)
"""Every function that a corpus must bear."""


def cases(settings: CorpusSettings) -> list[Case]:
    """Everything that a corpus must do."""
    return cases_of(CONTRACT, settings)
