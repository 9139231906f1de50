"""Names of data files. Imports nothing."""

import os

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    **dict.fromkeys((".conll", ".bio", ".iob"), "conll"),
    ".conllu": "conllu",
}
"""File format by suffix; all others are txt."""


def suffix_of(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def is_data_name(name: str) -> bool:
    """Whether a name has the suffix of a text or of a table."""
    return suffix_of(name) in (".txt", *FORMATS)
