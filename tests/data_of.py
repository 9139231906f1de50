"""Data as the objective of their dataset opens them, without a recipe around it."""

import ast
import csv
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from mini_tf.data.corpora import _documentation
from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.store import Store, Tokenizers
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenized import Report, encode_data, open_data
from mini_tf.recipe import sections
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kinds import settings_of

READ_BY = {
    "text": "next_token",
    "pairs": "seq2seq",
    "classes": "classify",
    "label_sets": "multi_label",
    "text_pairs": "contrastive",
    "numbers": "regress",
    "tags": "tag",
    "chats": "instruct",
}
"""An objective of each dataset."""


def objective_for(dataset: str, **settings: Any) -> Any:
    return settings_of("objectives", READ_BY[dataset])(**settings)


def dataset_of(name: str, **settings: Any) -> Dataset:
    made: Dataset = objective_for(name, **settings).dataset()
    return made


def both(source: Tokenizer, target: Tokenizer | None = None) -> Tokenizers:
    """One tokenizer for both sides, or one for each."""
    return Tokenizers(source, target or source)


def opened(
    data: sections.Data,
    tokenizer: sections.Tokenizer,
    dataset: str = "text",
    say: Report = lambda line: None,
    used: Tokenizers | None = None,
    **settings: Any,
) -> TokenizedData:
    """Both sides; settings: of the objective."""
    return open_data(data, tokenizer, objective_for(dataset, **settings), say, used)


def encoded(
    data: sections.Data,
    used: Tokenizers,
    dataset: str = "text",
    labels: Labels | None = None,
    say: Report = lambda line: None,
) -> Store:
    """All of data.train, nothing held out."""
    return encode_data(data, used, objective_for(dataset), labels, say, say)


def write_table(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Rows as a file of its suffix: jsonl, parquet, csv or tsv."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        with file.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, list(rows[0]), delimiter="\t" if file.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return file


WHOLE, PARSED = CorpusSettings.corpus, _documentation.parsed


def shorten_corpora(patch: pytest.MonkeyPatch) -> None:
    """Built-in corpora have their first rows only, and are made of fewer files; else they take most of a command."""
    patch.setattr(CorpusSettings, "corpus", _short_corpus)
    patch.setattr(_documentation, "parsed", lambda file: PARSED(file) if file.name[0] in "ac" else ast.Module([], []))


def _short_corpus(corpus: CorpusSettings, folder: Path) -> Path:
    kind = type(corpus)
    rows, most = kind.rows, max(getattr(corpus, "n_documents", 7200) // 24, 1)
    short = folder / f"first-{most}"
    short.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "rows", lambda made: islice(rows(made), most))
        return WHOLE(corpus, short)
