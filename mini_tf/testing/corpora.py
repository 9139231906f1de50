"""The contract of included corpora: bytes that the settings alone determine, and the declared format and columns."""

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import DataFile
from mini_tf.data.formats.tables import rows_of
from mini_tf.data.formats.text_documents import read
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.testing import Case, cases_of, checks_of
from mini_tf.testing.kinds import depend_on_hash_seed


def is_written_once_and_deterministic(settings: CorpusSettings) -> None:
    """Equal in two folders; an existing file is not overwritten. Its name has the version, and a hash of settings."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        path, other_path = settings.corpus(Path(folder)), settings.corpus(Path(other))
        name = f"{settings.word}-{settings.VERSION}{'' if settings == type(settings)() else '-*'}.{settings.FORMAT}"
        assert fnmatch(path.name, name), f"unexpected name: {path.name}, not {name}"
        assert path.name == other_path.name, "the same corpus must have the same name"
        assert path.read_bytes() == other_path.read_bytes(), "the same corpus must have the same bytes"
        path.write_text("existing")
        assert settings.corpus(Path(folder)).read_text() == "existing", "an existing file must not be overwritten"


def rows_do_not_depend_on_hashes(*settings: CorpusSettings) -> None:
    """In another process a set of texts has another order: sort it."""
    different = depend_on_hash_seed(settings)
    assert not different, f"PYTHONHASHSEED must not change the rows: it does for {different}"


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
    """A text, or pairs of source and target."""
    assert "text" in settings.COLUMNS or {"source", "target"} <= {*settings.COLUMNS}, (
        f"no dataset reads {settings.COLUMNS}"
    )
    assert settings.FORMAT == "jsonl" or (settings.FORMAT, settings.COLUMNS) == ("txt", ("text",)), (
        f"{settings.FORMAT} has no columns"
    )


def has_settings_that_change_it(settings: CorpusSettings) -> None:
    """Another value of any setting gives another file, with another name; a recipe's form gives the same settings."""
    assert type(settings).model_validate_json(settings.model_dump_json()) == settings, "settings must survive JSON"
    contents = {settings.file_name: [*settings.rows()]}
    for name in type(settings).model_fields:
        other = next(_with_another(settings, name), None)
        assert other is not None, f"no other value of {name} is valid"
        assert other.file_name not in contents, f"{name} must change the file's name"
        rows = [*other.rows()]
        assert rows not in contents.values(), f"{name} must change the rows"
        contents[other.file_name] = rows


def _with_another(settings: CorpusSettings, name: str) -> Iterator[CorpusSettings]:
    """The settings with other values of one of them, as far as they are valid."""
    value: Any = getattr(settings, name)
    others = (not value,) if isinstance(value, bool) else (2 * value, value + 1, value / 2, value - 1)
    for other in (candidate for candidate in others if candidate != value):
        with suppress(ValidationError):
            yield type(settings).model_validate(settings.model_dump() | {name: other})


CONTRACT = checks_of(__name__)


def cases(settings: CorpusSettings) -> list[Case]:
    """All checks for a corpus."""
    return cases_of(CONTRACT, settings)
