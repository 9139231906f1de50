"""The recipe section `data`: files, columns, validation split and packing."""

import re
from collections.abc import Iterator, Mapping, Set
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, WithJsonSchema, WrapValidator

from mini_tf.recipe.corpora import (
    CORPUS,
    MAX_SOURCES,
    NAME,
    Corpus,
    CorpusSettings,
    DataSource,
    find_corpus,
    has_pairs,
    is_mixture,
    names_in,
    read_sources,
    sources_of,
)
from mini_tf.recipe.corpora import FilePair as FilePair
from mini_tf.recipe.corpora import NonEmptyText as NonEmptyText
from mini_tf.recipe.kinds import Kind, Rule, Rules, Section
from mini_tf.recipe.parsing.data_names import FORMATS as FORMATS
from mini_tf.recipe.parsing.schema_faults import invalid
from mini_tf.recipe.values import fit, real_number, show
from mini_tf.system.errors import UsageFault

LABEL_COLUMNS = (
    *("labels", "class", "category", "stars", "rating"),
    *("sentiment", "target", "intent", "topic", "score"),
)
"""Common names of columns with labels, beside `label`."""
MAX_FOLDS = 1000


class Split(Section):
    """The validation split: `5%` (of the documents), `tail 10%` (the last part of the characters), or {folds: 5}."""

    share: float = Field(0.05, gt=0, lt=1)
    tail: bool = False
    """Split off the last characters of all files as one stream, without separators."""
    folds: int | None = Field(None, ge=2, le=MAX_FOLDS)
    """Cross-validation: number of parts, each of which is the validation data of one run."""
    fold: int | None = Field(None, ge=1)
    """The part that is the validation data of this run, from 1."""

    @property
    def is_set(self) -> bool:
        """Whether it stands for several runs, one per fold."""
        return self.folds is not None and self.fold is None

    def __str__(self) -> str:
        if self.folds is not None:
            return f"{self.folds} folds" if self.fold is None else f"fold {self.fold} of {self.folds}"
        percent = f"{(Decimal(repr(self.share)) * 100).normalize():f}%"
        share = percent if len(percent) <= 12 else repr(self.share)
        return f"tail {share}" if self.tail else share


def _split(value: Any) -> Split:
    if isinstance(value, Split):
        return value
    if isinstance(value, dict):
        return _folds(value)
    match = re.fullmatch(r"(tail\s+)?(\S+)", str(value)) if isinstance(value, str) else None
    share = real_number(match[2], (Field(lt=1).metadata[0],)) if match else None
    if match is None or share is None or not 0 < share < 1:
        message = f"must be a share such as 5%, tail 10%, or {{folds: 5}}, got {show(value)}"
        raise invalid(message)
    return Split(share=share, tail=match[1] is not None)


def _folds(value: dict[str, Any]) -> Split:
    """{folds: N} for one run per fold, {folds: N, fold: K} for one of these runs."""
    numbers = {key: fit(number, int) for key, number in value.items()}
    folds, fold = numbers.get("folds"), numbers.get("fold")
    message = ""
    if numbers.keys() - {"folds", "fold"} or "folds" not in numbers:
        message = (
            "must be a share such as 5%, tail 10%, or {folds: 5}, got a mapping of"
            f" {', '.join(map(str, numbers)) or 'nothing'}"
        )
    elif type(folds) is not int or not 2 <= folds <= MAX_FOLDS:
        message = f"folds must be a whole number from 2 to {MAX_FOLDS}, got {show(folds)}"
    elif fold is not None and (type(fold) is not int or not 1 <= fold <= folds):
        message = f"fold must be a whole number from 1 to folds {folds}, got {show(fold)}"
    if message:
        raise invalid(message)
    return Split(folds=folds, fold=fold)


def _written(split: Split) -> Any:
    if split.folds is None:
        return str(split)
    return {key: number for key in ("folds", "fold") if (number := getattr(split, key)) is not None}


_FORMS: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "pattern": r"^(tail\s+)?[0-9.]+%?$"},
        {
            "type": "object",
            "properties": {
                "folds": {"type": "integer", "minimum": 2, "maximum": MAX_FOLDS},
                "fold": {"type": "integer", "minimum": 1},
            },
            "required": ["folds"],
            "additionalProperties": False,
        },
    ]
}
SplitForm = Annotated[Split, PlainValidator(_split), PlainSerializer(_written), WithJsonSchema(_FORMS)]


_CORPUS: TypeAdapter[Any] = TypeAdapter(Corpus)
Mixture = Annotated[tuple[DataSource, ...], Field(min_length=1, max_length=MAX_SOURCES)]


def _corpus_or_file_pair(value: Any, either: Any) -> Any:
    """Validate the form that was used, so that errors are about it: a mapping is a built-in corpus or a FilePair, a
    list with mappings is a mixture.
    """
    if is_mixture(value):
        return read_sources(value)
    if isinstance(value, FilePair | CorpusSettings):
        return value
    if isinstance(value, dict):
        return FilePair.model_validate(value) if FilePair.fits(value) else CORPUS.read(value)
    return _CORPUS.validate_python(value, strict=True)


CorpusOrFilePair = Annotated[
    Corpus | FilePair | Mixture | Annotated[CorpusSettings, CORPUS], WrapValidator(_corpus_or_file_pair)
]


class Data(Section):
    train: CorpusOrFilePair = "python-docs"
    """Training data: a built-in corpus, also with settings {kind: world, seed: 1}; a path, a glob, a list, - (stdin),
    hf:ORG/NAME/CONFIG:SPLIT, parallel files {source: F, target: G}, or a mixture [{path: F, weight: 2}, ...].
    """
    val: CorpusOrFilePair | None = None
    """Validation data, in the same forms; default: a part of `train` (see split)."""
    split: SplitForm = Split()
    """Validation share of the documents; `tail 10%`: the last part of the characters; {folds: 5}: cross-validation."""
    max_train_samples: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """Train on this many examples (documents), a random subset by hash: a smaller one is part of a larger one."""
    home: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Where to download the files, printed if one is missing; dropped if a later level names other files."""
    fields: dict[str, str] = {}
    """Columns to read: {text: review, label: stars}, {source: en, target: de}; without a header by number from 0."""
    field_numbers: dict[str, Annotated[int, Field(ge=0, le=10**6)]] = {}
    """Column numbers of files without a header; numeric data.fields move here if a later level names other files."""
    header: Literal["auto"] | bool = "auto"
    """Whether the first line of csv and tsv files is a header; auto: detected, false if fields are numbers."""
    errors: Literal["strict", "replace"] = "strict"
    """Bytes that are not UTF-8: strict raises an error, replace reads each as U+FFFD and prints their number."""
    pack: Literal["docs", "concat", "none"] = "concat"
    """concat packs documents into rows; docs does too, without attention between documents; none: one per row."""
    streaming: bool = False
    """Read training rows from the files in every step, without an encoded copy on disk: txt, jsonl, parquet."""

    @classmethod
    def inherited(cls, below: Mapping[str, Any], keys: Set[str]) -> dict[str, Any]:
        if not keys & {"train", "val"}:
            return dict(below)
        inherited = {key: node for key, node in below.items() if key != "home"}
        columns = inherited["fields"].value if "fields" in inherited and "fields" not in keys else None
        if isinstance(columns, dict) and columns and all(str(column.value).isdigit() for column in columns.values()):
            inherited["field_numbers"] = inherited.pop("fields")
        return inherited

    def uses(self) -> Iterator[Kind]:
        for corpus in map(names_in, (self.train, self.val)):
            yield from filter(None, map(find_corpus, corpus if isinstance(corpus, tuple) else [corpus]))

    def rules(self) -> Rules:
        yield from self._mixture_rules()
        if self.train == self.val == "-":
            yield Rule("val", "data.train already reads stdin; give a file", ("train",))
        if self.max_train_samples is not None and self.split.tail:
            message = f"{self.split} splits one stream, of which it cannot take documents; use a share"
            yield Rule("max_train_samples", message, ("split",))
        if self.val is not None and self.split.folds is not None:
            message = "with folds each part of data.train is validation data in turn; remove it, or data.split"
            yield Rule("val", message, ("split",))
        if isinstance(self.val, FilePair) and not self.pairs:
            message = "is a pair of files, and data.train is not; give both in one form"
            yield Rule("val", message, ("train", "fields"))
        for key in ("train", "val"):
            corpus = names_in(getattr(self, key))
            for name in filter(
                has_pairs, dict.fromkeys(corpus) if isinstance(corpus, tuple) and len(corpus) > 1 else ()
            ):
                yield key, f"{name} is a corpus of pairs and cannot be part of a list; give it alone"
            for role in ("source", "target") if isinstance(corpus, FilePair) else ():
                files = getattr(corpus, role)
                if "-" in ((files,) if isinstance(files, str) else files):
                    yield f"{key}.{role}", "- (stdin) cannot be one of two parallel files; give a file"

    def _mixture_rules(self) -> Rules:
        for key in ("train", "val"):
            sources = sources_of(getattr(self, key))
            labels = [source.label for source in sources]
            for label in dict.fromkeys(label for label in labels if labels.count(label) > 1):
                yield key, f"two sources have the name {show(label)}; give them other names with name: ..."
            for label in (label for label in labels if not re.fullmatch(NAME, label)):
                yield key, f"{show(label)} is no name of a source (letters, digits, _ and -); give one with name: ..."
            for source in sources:
                if source.weight is not None and source.epochs is not None:
                    yield key, f"{source.label} has a weight and epochs; keep one of them"
                if key == "val" and (source.weight or source.epochs):
                    yield key, f"{source.label}: validation data are read once; remove weight and epochs"
        if is_mixture(self.train) or is_mixture(self.val):
            if self.split.tail:
                yield Rule("split", f"{self.split} splits one stream, which a mixture is not; use a share", ("train",))
            if self.streaming:
                yield Rule("streaming", "reads one corpus, and not the sources of a mixture; use false", ("train",))
            if self.max_train_samples is not None:
                yield Rule("max_train_samples", "does not apply to a mixture; give smaller files", ("train",))

    @property
    def pairs(self) -> bool:
        """Whether examples are pairs of a source and a target."""
        return (
            isinstance(self.train, FilePair) or has_pairs(self.train) or bool({"source", "target"} & set(self.fields))
        )


def check_evaluated(data: str | None, split: str | None, fields: str | None) -> None:
    """UsageFault for options on the data of an evaluation that contradict each other."""
    if data is not None and split == "train":
        raise UsageFault(
            f"--data {data} has no training split: all of it is evaluated", hint="give one of --data and --split"
        )
    if data is None and fields is not None:
        raise UsageFault(
            f"--fields {fields}: used without --data", hint="--data FILE names the file with these columns"
        )
