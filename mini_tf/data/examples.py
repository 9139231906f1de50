"""Labelled examples out of the rows of tables, whichever columns hold them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mini_tf.data.formats.documents import Columns, Row, rows_of
from mini_tf.data.formats.sources import Source, find
from mini_tf.data.forms import FORMS, Example
from mini_tf.data.labels import Labels
from mini_tf.data.pairs import FIELDS
from mini_tf.recipe import sections
from mini_tf.recipe.data import BUILT_IN_PAIRS
from mini_tf.system.errors import DataFault


def find_tables(spec: object, key: str) -> list[Source]:
    """The files behind data.train or data.val of examples; DataFault where one is missing, or no table."""
    tables = find(spec, key)
    for table in tables:
        if table.format == "txt":
            hint = "its name must end in one of these"
            if table.name == "stdin":
                hint = "a pipe has no name to tell by: save it as a file"
            raise DataFault(f"{key}: {table.name} is no table (jsonl, csv, tsv, parquet, conll)", hint=hint, where=(table.name,))
    return tables


@dataclass(frozen=True)
class Reader:
    """roles: what the columns hold, first `columns.names`, then `columns.optional`. answered: what is asked for must be there."""

    form: str
    roles: tuple[str, ...]
    columns: Columns
    answered: bool = True

    @classmethod
    def of(cls, data: sections.Data, form: str, corpus: object = None, answered: bool = True, labels: Labels | None = None) -> "Reader":
        """The columns are called by their roles unless data.fields says otherwise.

        corpus: what is read, as a recipe writes it; built-in pairs are prompts and responses. labels: of a trained run, which knows
        whether there are two texts.
        """
        kind, named = FORMS[form], dict(data.fields)
        if corpus in BUILT_IN_PAIRS or corpus in [(name,) for name in BUILT_IN_PAIRS]:
            named = {"prompt": "source", "response": "target"} | {role: name for role, name in named.items() if name in FIELDS}
        needed = [role for role in kind.REQUIRED if answered or role != "label"]
        needed += [role for role in kind.OPTIONAL if role in named or (role == "text_pair" and labels is not None and labels.n_texts == 2)]
        others = [role for role in kind.OPTIONAL if not named and role not in needed]
        columns = Columns(tuple(named.get(role, role) for role in needed), data.header, data.errors, tuple(others))
        return cls(form, (*needed, *others), columns, answered)

    def read(self, files: Iterable[Source]) -> Iterator[Example]:
        """All examples of tables, one after another; DataFault at the first that is none."""
        return (self.example(row) for file in files for row in rows_of(file, self.columns))

    def example(self, row: Row) -> Example:
        """The example of a row."""
        needed = len(row.cells)
        cells = dict(zip(self.roles[:needed], row.cells, strict=True))
        cells |= {role: cell for role, cell in zip(self.roles[needed:], row.optional, strict=True) if cell is not None}
        return FORMS[self.form].read(cells, row.where, self.names, self.answered)

    @property
    def names(self) -> dict[str, str]:
        """What the file calls each role's column."""
        return {role: name or role for role, name in zip(self.roles, [*self.columns.names, *self.columns.optional], strict=True)}
