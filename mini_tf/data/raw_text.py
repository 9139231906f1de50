"""A recipe's text before it is ids: its files and how they are divided, known by their content; and the tokenizer learnt from it."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import tokenizers

from mini_tf.data.formats.documents import PART, Columns, read, read_raw
from mini_tf.data.formats.lines import bad_bytes
from mini_tf.data.formats.sources import Source, find
from mini_tf.data.split import Division, divide, keep_apart, side_by_side
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.system.cache import cached

TRAINERS = 2
"""Counts up where trainers.py learns another tokenizer from the same text."""
LARGEST_SAMPLE = 16 * PART
"""Characters a tokenizer that chooses its tokens is trained on at most, evenly spread over the text."""


@dataclass(frozen=True, eq=False)
class RawText:
    """hash: of the content of all files and the settings that divide them; division: reads them, when it is first called for."""

    hash: str
    separated: bool
    division: Callable[[], Division]

    @classmethod
    def of(cls, data: sections.Data) -> "RawText":
        """The files that `data` names; DataFault where there are none, or one cannot be read."""
        columns = Columns.of(data.fields, data.header, data.errors)
        train = find(data.train, "data.train")
        val = find(data.val, "data.val") if data.val is not None else []
        content = {
            "train": [source.digest() for source in train],
            "val": [source.digest() for source in val],
            "fields": data.fields,
            "header": data.header,
            "split": str(data.split),
            **reading_of(columns),
        }
        return cls(hash_of(content), not data.split.tail, cache(partial(_divide, data, train, val, columns)))

    def learn_tokenizer(self, settings: sections.SideTokenizer) -> Tokenizer:
        """The tokenizer that the training side and these settings always lead to; out of the cache, or learnt now."""

        def texts() -> Iterator[str]:
            return (document.text for side, document in self.division().read() if side == "train")

        return learn_tokenizer(settings, self.hash, lambda: (texts(), self.division().characters))


def learn_tokenizer(settings: sections.SideTokenizer, content: object, read: Callable[[], tuple[Iterable[str], int]]) -> Tokenizer:
    """The tokenizer that texts and settings always lead to; out of the cache, or learnt now.

    content: what the texts are known by. read: gives them, and about how many characters they have. Of a huge text every n-th
    document is enough, unless each character becomes a token.
    """
    key = hash_of([TRAINERS, content, tokenizers.__version__, settings.kind, settings.vocab_size if settings.chooses_size else 0])

    def build(folder: Path) -> dict[str, Any]:
        texts, characters = read()
        stride = 1 + characters // LARGEST_SAMPLE if settings.chooses_size else 1
        Tokenizer.train(settings, (text for n, text in enumerate(texts) if n % stride == 0)).save(folder / "tokenizer.json")
        return {}

    return Tokenizer.load(cached("tokenizers", key, build, lambda line: None)[0])


def _divide(data: sections.Data, train: list[Source], val: list[Source], columns: Columns) -> Division:
    reader = read_raw if data.split.tail else read
    documents = partial(reader, train, columns)
    if not val:
        division = divide(documents, data.split)
    else:
        division = (side_by_side if data.split.tail else keep_apart)(documents, partial(reader, val, columns))
    return replace(division, notes=(*division.notes, *replaced([*train, *val], columns)))


def reading_of(columns: Columns) -> dict[str, str]:
    """What the hash of a text has to know of how it is read, besides data.fields and data.header; nothing where that is as it long was."""
    reading = {"errors": columns.errors} if columns.errors != "strict" else {}
    return reading | ({"numbers": "from 0"} if any(name and name.isdecimal() for name in columns.names) else {})


def replaced(sources: list[Source], columns: Columns) -> Iterator[str]:
    """A note where bytes were read as U+FFFD."""
    texts = [source for source in sources if source.format != "parquet"]  # which knows no such bytes
    if columns.errors == "replace" and (n := sum(bad_bytes(source.path, source.name) for source in texts)):
        yield f"{n:,} bytes are not UTF-8; each is read as U+FFFD"


def hash_of(content: object) -> str:
    """SHA-256, as hexadecimal, of what JSON can say; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
