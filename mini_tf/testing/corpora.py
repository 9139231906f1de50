"""The contract of included corpora: deterministic bytes, and the declared format and columns."""

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


def is_written_once_and_deterministic(settings: CorpusSettings) -> None:
    """Equal in two folders; an existing file is not overwritten. The file name contains the version."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        path, other_path = settings.corpus(Path(one)), settings.corpus(Path(other))
        assert path.name == f"{settings.word}-{settings.VERSION}.{settings.FORMAT}" == other_path.name, f"unexpected name: {path.name}"
        assert path.read_bytes() == other_path.read_bytes(), "the same corpus must have the same bytes"
        path.write_text("existing")
        assert settings.corpus(Path(one)).read_text() == "existing", "an existing file must not be overwritten"


def has_the_declared_columns(settings: CorpusSettings) -> None:
    """In every row, in order, as text, also when read back from the file."""
    rows = list(settings.rows())
    assert rows, "a corpus must have rows"
    for row in rows:
        assert tuple(row) == settings.COLUMNS, f"a row has {[*row]}, COLUMNS are {settings.COLUMNS}"
        assert all(isinstance(cell, str) and cell.strip() for cell in row.values()), f"cells must be text: {row}"
    with TemporaryDirectory() as folder:
        source = DataFile(settings.corpus(Path(folder)), settings.FORMAT, settings.word)
        if settings.FORMAT == "txt":
            read_rows = [{"text": document.text} for document in read([source], Columns())]
        else:
            table = rows_of(source, Columns(settings.COLUMNS))
            read_rows = [dict(zip(settings.COLUMNS, map(str, row.cells), strict=True)) for row in table]
    assert read_rows == [dict(row) for row in rows], "the file must hold what rows() gives"


def declares_supported_columns(settings: CorpusSettings) -> None:
    """A text, or pairs of source and target; a corpus has no settings."""
    assert "text" in settings.COLUMNS or {"source", "target"} <= {*settings.COLUMNS}, f"no dataset reads {settings.COLUMNS}"
    assert settings.FORMAT == "jsonl" or (settings.FORMAT, settings.COLUMNS) == ("txt", ("text",)), f"{settings.FORMAT} has no columns"
    assert json.loads(settings.model_dump_json()) == {}, "a corpus must have no settings"


CONTRACT: tuple[Callable[[CorpusSettings], None], ...] = (
    is_written_once_and_deterministic,
    has_the_declared_columns,
    declares_supported_columns,
)
"""All checks for a corpus."""


def cases(settings: CorpusSettings) -> list[Case]:
    """All checks for a corpus."""
    return cases_of(CONTRACT, settings)
