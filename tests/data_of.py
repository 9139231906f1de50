"""Data as the objective of their dataset opens them, without a recipe around it."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.store import Store, Tokenizers
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenized import Report, encode_data, open_data
from mini_tf.recipe import sections
from mini_tf.recipe.corpora import CorpusSettings
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.safe_files import write_atomically

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


WHOLE, ROWS = CorpusSettings.corpus, 24


def short_corpus(corpus: CorpusSettings, folder: Path) -> Path:
    """One row in 24 of a built-in corpus, in place of the whole, which takes most of the time of a command."""
    whole = WHOLE(corpus, folder)
    short = folder / f"short-{ROWS}-{whole.name}"
    if not short.exists():
        write_atomically(short, "".join(whole.read_text().splitlines(keepends=True)[::ROWS]))
    return short
