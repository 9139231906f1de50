"""The section `data` of a recipe: where text or pairs come from, and how they are divided."""

import re
from collections.abc import Iterator, Mapping, Set
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError

from mini_tf.recipe.corpora import find_corpus, has_pairs
from mini_tf.recipe.kinds import Kind, OneOrMore, Rule, Rules, Section
from mini_tf.recipe.values import real_number, show

NonEmptyText = Annotated[str, Field(min_length=1)]
Corpus = NonEmptyText | Annotated[tuple[NonEmptyText, ...], OneOrMore()]

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    **dict.fromkeys((".conll", ".bio", ".iob"), "conll"),
    ".conllu": "conllu",
}
"""How a file is read, by the end of its name; all others are text."""


class Split(Section):
    """The held-out part of a text; a recipe writes `5%` (of the documents) or `tail 10%` (of the raw characters)."""

    share: float = Field(gt=0, lt=1)
    tail: bool = False
    """The last characters of all files as one stream, without separators."""

    def __str__(self) -> str:
        percent = f"{(Decimal(repr(self.share)) * 100).normalize():f}%"
        share = percent if len(percent) <= 12 else repr(self.share)
        return f"tail {share}" if self.tail else share


def _split(value: Any) -> Split:
    if isinstance(value, Split):
        return value
    found = re.fullmatch(r"(tail\s+)?(\S+)", str(value)) if isinstance(value, str) else None
    share = real_number(found[2], (Field(lt=1).metadata[0],)) if found else None
    if found is None or share is None or not 0 < share < 1:
        raise PydanticCustomError("value", "{m}", {"m": f"must be a share such as 5%, or tail 10%, got {show(value)}"})
    return Split(share=share, tail=found[1] is not None)


SplitText = Annotated[
    Split, PlainValidator(_split), PlainSerializer(str), WithJsonSchema({"type": "string", "pattern": r"^(tail\s+)?[0-9.]+%?$"})
]


class FilePair(Section):
    """Two sides of a text in files of their own, whose lines belong together one by one."""

    source: Corpus
    """What is read: a path, a glob, or a list of them."""
    target: Corpus
    """What is written, in as many lines."""


_CORPUS: TypeAdapter[Any] = TypeAdapter(Corpus)


def _corpus_or_pair(value: Any, either: Any) -> Any:
    """A mapping is a pair and nothing else a pair, so that a fault is told of the one that was meant."""
    if isinstance(value, FilePair):
        return value
    return either(FilePair.model_validate(value) if isinstance(value, dict) else _CORPUS.validate_python(value, strict=True))


CorpusOrFilePair = Annotated[Corpus | FilePair, WrapValidator(_corpus_or_pair)]


class Data(Section):
    train: CorpusOrFilePair = "python-docs"
    """A built-in corpus, a path, a glob, or a list of them; - is stdin. {source: F, target: G}: pairs, line by line."""
    val: CorpusOrFilePair | None = None
    """Held-out text in the same forms; by default a part of `train` is kept (`split`)."""
    split: SplitText = Split(share=0.05)
    """The held-out share of documents, or `tail 10%`: the last part of the raw characters, without separators."""
    home: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Where the files can be downloaded and in which format; printed if one is missing. A later level that names other files drops it."""
    fields: dict[str, str] = {}
    """Columns or keys to read: {text: review, label: stars}; of pairs {source: en, target: de}; without a header by number, from 0."""
    field_numbers: dict[str, Annotated[int, Field(ge=0, le=10**6)]] = {}
    """Columns of files without a header, by number from 0; data.fields by number become these where other files are given later."""
    header: Literal["auto"] | bool = "auto"
    """Whether csv and tsv files name their columns in the first line; where numbers are asked for they do not."""
    errors: Literal["strict", "replace"] = "strict"
    """Bytes that are not UTF-8: strict refuses the file, replace reads each as U+FFFD and says how many."""
    pack: Literal["docs", "concat", "none"] = "concat"
    """docs: several documents a row that do not see each other; concat: they do; none: one document a row."""

    @classmethod
    def inherited(cls, below: Mapping[str, Any], given: Set[str]) -> dict[str, Any]:
        if not given & {"train", "val"}:
            return dict(below)
        kept = {key: node for key, node in below.items() if key != "home"}
        columns = kept["fields"].value if "fields" in kept and "fields" not in given else None
        if isinstance(columns, dict) and columns and all(str(column.value).isdigit() for column in columns.values()):
            kept["field_numbers"] = kept.pop("fields")
        return kept

    def uses(self) -> Iterator[Kind]:
        for among in (self.train, self.val):
            yield from filter(None, map(find_corpus, among if isinstance(among, tuple) else [among]))

    def rules(self) -> Rules:
        if self.train == self.val == "-":
            yield Rule("val", "train reads stdin already; give a file", ("train",))
        if isinstance(self.val, FilePair) and not self.pairs:
            yield Rule("val", "is a pair of files, but data.train is text; give text, or pairs on both sides", ("train", "fields"))
        for key in ("train", "val"):
            among = getattr(self, key)
            for name in filter(has_pairs, dict.fromkeys(among) if isinstance(among, tuple) and len(among) > 1 else ()):
                yield key, f"{name} has pairs of its own and cannot stand in a list"
            for role in ("source", "target") if isinstance(among, FilePair) else ():
                side = getattr(among, role)
                if "-" in ((side,) if isinstance(side, str) else side):
                    yield f"{key}.{role}", "- (stdin) cannot be one side of pairs; give a file"

    @property
    def pairs(self) -> bool:
        """Whether documents are pairs of a source and a target."""
        return isinstance(self.train, FilePair) or has_pairs(self.train) or bool({"source", "target"} & set(self.fields))
