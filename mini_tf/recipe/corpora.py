"""Values of data.train and data.val beside names of files.

world                                        a built-in corpus, also with settings: {kind: world, seed: 1}
{source: a.en, target: a.de}                 parallel files
[{path: a.txt, weight: 2}, {path: b.txt}]    the sources of a mixture
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter
from pydantic_core import core_schema

from mini_tf.recipe.kinds import Kind, KindOf, OneOrMore, Section, settings_of
from mini_tf.recipe.parsing.schema_faults import invalid
from mini_tf.recipe.parsing.yaml_tree import Node
from mini_tf.recipe.values import show
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import suggest
from mini_tf.system.safe_files import write_atomically


class CorpusSettings(Kind):
    """Base class of corpora, which are written to files in the cache."""

    PACKAGE = "data.corpora"

    VERSION: ClassVar[str]
    """Part of the file name; must change whenever the rows change."""
    COLUMNS: ClassVar[tuple[str, ...]] = ("text",)
    """Columns of each row."""
    FORMAT: ClassVar[str] = "jsonl"
    """File format: jsonl (an object per line) or txt (texts separated by blank lines)."""

    @property
    def word(self) -> str:
        return CORPUS.written(self.kind)

    @property
    def file_name(self) -> str:
        """Settings other than the defaults are part of it, as a hash."""
        settings = self.model_dump(mode="json", exclude_defaults=True)
        return f"{self.word}-{self.VERSION}{f'-{hash_of(settings)[:12]}' if settings else ''}.{self.FORMAT}"

    def rows(self) -> Iterable[Mapping[str, str]]:
        """The rows: the same for the same settings. Raises Unavailable if they cannot be made on this machine."""
        raise NotImplementedError

    def facts(self, text: str) -> list[str] | None:
        """The facts that a text states in any form, in its order, with repetitions; None: no facts are labelled."""
        return None

    def corpus(self, folder: Path) -> Path:
        """The file in `folder`; written if missing, which takes a few seconds."""
        path = folder / self.file_name
        if not path.exists():
            rows, plain = self.rows(), self.FORMAT == "txt"
            text = (
                "\n\n".join(row["text"] for row in rows) + "\n"
                if plain
                else "".join(json.dumps(row) + "\n" for row in rows)
            )
            write_atomically(path, text)
        return path


class CorpusOf(KindOf):
    """Marks a corpus, given as a mapping with `kind`. A name alone remains text, as the name of a file does."""

    def written(self, name: str) -> str:
        return name.replace("_", "-")

    def write(self, value: Any, info: core_schema.SerializationInfo) -> dict[str, Any]:
        return super().write(value, info) | {"kind": value.word}


CORPUS = CorpusOf(CorpusSettings.PACKAGE)


def built_in_corpora() -> tuple[str, ...]:
    """The names of built-in corpora; a file with such a name is given as ./grammar."""
    return CORPUS.words()


def find_corpus(named: object) -> CorpusSettings | None:
    """The corpus of data.train or data.val: its settings, its name, or a list of one name; None for files."""
    word = named[0] if isinstance(named, tuple | list) and len(named) == 1 else named
    if isinstance(word, CorpusSettings):
        return word
    if not isinstance(word, str) or word not in built_in_corpora():
        return None
    corpus = settings_of("data.corpora", word.replace("-", "_"))()
    assert isinstance(corpus, CorpusSettings)
    return corpus


def has_pairs(named: object) -> bool:
    """Whether `named` is a corpus with source and target columns."""
    corpus = find_corpus(named)
    return corpus is not None and "source" in corpus.COLUMNS


NonEmptyText = Annotated[str, Field(min_length=1)]
Corpus = NonEmptyText | Annotated[tuple[NonEmptyText, ...], OneOrMore()]
MAX_SOURCES = 100
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}"


class FilePair(Section):
    """Parallel files: line n of source and line n of target are an example."""

    source: Corpus
    """Source lines: a path, a glob, or a list of them."""
    target: Corpus
    """Target lines, as many as source lines."""

    @classmethod
    def fits(cls, mapping: Mapping[str, Any]) -> bool:
        """Whether a mapping is of this form, and not a built-in corpus with settings."""
        return not mapping or ("kind" not in mapping and bool(mapping.keys() & cls.model_fields.keys()))


class DataSource(Section):
    """A part of the training or validation data, which is sampled and measured by itself."""

    path: Corpus
    """A built-in corpus, a path, a folder, a glob or a list of them."""
    name: Annotated[str, Field(pattern=f"^{NAME}$")] | None = None
    """Name in tables and metrics: val.loss.NAME; null: that of the file, without its suffix."""
    weight: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Share of the rows, relative to the other weights; null: 1, or if no source has a weight, by size."""
    epochs: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Instead of weight: how often it is read in the run; the weights are for the other rows."""

    @property
    def label(self) -> str:
        if self.name is not None:
            return self.name
        first = self.path if isinstance(self.path, str) else self.path[0]
        corpus = find_corpus(first)
        return Path(first).stem if corpus is None else corpus.word


_SOURCES: TypeAdapter[Any] = TypeAdapter(tuple[DataSource, ...])


def is_mixture(value: Any) -> bool:
    """Whether a value of data.train or data.val is a list with mappings."""
    return isinstance(value, list | tuple) and any(isinstance(item, dict | DataSource) for item in value)


def read_sources(value: Any) -> tuple[DataSource, ...]:
    """Validate a list with mappings; plain names are sources, too."""
    if len(value) > MAX_SOURCES:
        raise invalid(f"has {len(value)} sources; at most {MAX_SOURCES} are possible")
    for key in (key for item in value if isinstance(item, dict) for key in item):
        if str(key) not in DataSource.model_fields:
            words = [*DataSource.model_fields]
            hint = suggest(str(key), words, f"a source has {', '.join(words)}")
            raise invalid(f"a source has no key {show(key)}; {hint}")
    items = [item if isinstance(item, dict | DataSource) else {"path": item} for item in value]
    return _SOURCES.validate_python(items)  # type: ignore[no-any-return]


def sources_of(corpus: object) -> tuple[DataSource, ...]:
    """The sources of a mixture; empty for other data."""
    return corpus if is_mixture(corpus) else ()  # type: ignore[return-value]


def names_in(corpus: object) -> Any:
    """A mixture as a plain list of names; other data as they are."""
    if not is_mixture(corpus):
        return corpus
    paths = (source.path for source in sources_of(corpus))
    return tuple(name for path in paths for name in ((path,) if isinstance(path, str) else path))


def files_in(node: Node) -> Iterator[Node]:
    """The names of files in data.train or data.val: of the sources of a mixture, their paths; of a corpus, none."""
    if isinstance(node.value, dict) and not FilePair.fits(node.value):
        return
    for item in node.value if isinstance(node.value, list) else [node]:
        is_source = item is not node and isinstance(item.value, dict)
        paths = item.value.get("path") if is_source else item
        yield from () if paths is None else paths.leaves()
