"""Rules between the section `data` and the objective's dataset."""

import os
from glob import has_magic
from pathlib import Path
from shlex import quote

from mini_tf.recipe.corpora import has_pairs, is_mixture, sources_of
from mini_tf.recipe.data import FORMATS, Data, FilePair
from mini_tf.recipe.kind_settings import DatasetSettings
from mini_tf.recipe.kinds import Rule, Rules
from mini_tf.recipe.sections import Train
from mini_tf.system import hub


def dataset_rules(data: Data, dataset: DatasetSettings, objective: str, own_source_tokenizer: bool = False) -> Rules:
    """Broken rules between the data and the objective's dataset; all depend on the objective."""
    for rule in (Rule(*rule) for rule in _rules(data, dataset, objective, own_source_tokenizer)):
        yield rule._replace(depends=("objective", *rule.depends))


def _rules(data: Data, dataset: DatasetSettings, objective: str, own_source_tokenizer: bool) -> Rules:
    if own_source_tokenizer and not dataset.SOURCE:
        yield "tokenizer.source", "the objective has no source; remove it"
    is_paired = data.pairs or _may_be_tables(data.train)
    if dataset.SOURCE and not is_paired and {"source", "target"} <= {*dataset.REQUIRED}:
        way = (
            "use {source: FILE, target: FILE}, or a table (csv, tsv, jsonl, parquet) with columns source and target, or"
            " data.fields {source: COLUMN, target: COLUMN}"
        )
        if isinstance(data.train, tuple) and len(data.train) == 2:
            source, target = data.train
            way = f"of these two files: {quote(f'data.train={{source: {source}, target: {target}}}')}"
        message = f"{objective} needs pairs; {way}"
        yield Rule("data.train", message, ("data.fields",))
        return
    if dataset.STREAM and data.pairs and "text" not in data.fields:
        message = f"{objective} needs text, not pairs of source and target; use objective seq2seq"
        yield Rule("data.train", message, ("data.fields",))
        return
    yield from reading_rules(data, dataset, objective)
    for key, corpus in (("data.train", data.train), ("data.val", data.val)):
        if is_mixture(corpus) and not dataset.STREAM:
            yield key, f"a mixture is of running text, and {objective} reads {dataset.UNIT}; give plain names"
    if dataset.STREAM:
        return
    if data.pack != "concat":
        yield "data.pack", f"{dataset.UNIT} are always one per row; remove pack {data.pack}"
    if data.split.tail:
        yield "data.split", f"{data.split} splits a stream of characters; for {dataset.UNIT} use a share such as 5%"
    if (
        data.val is not None
        and isinstance(data.train, FilePair) != isinstance(data.val, FilePair)
        and not has_pairs(data.val)
    ):
        message = "must have the form of data.train: two files {source: F, target: G}, or a table"
        yield Rule("data.val", message, ("data.train",))


def _may_be_tables(corpus: object) -> bool:
    """Whether all files have the suffix of a table with columns; folders and patterns are looked into later."""
    names = corpus if isinstance(corpus, tuple) else (corpus,)
    return all(isinstance(name, str) and (_is_table(name) or os.path.isdir(name) or has_magic(name)) for name in names)


def _is_table(name: str) -> bool:
    file_format = FORMATS.get(Path(name).suffix.lower())
    return file_format in ("jsonl", "csv", "tsv", "parquet") and not name.startswith(hub.PREFIX)


def mixture_rules(data: Data, train: Train) -> Rules:
    """Broken rules of a mixture and of budgets in words, with keys of the whole recipe."""
    if data.streaming and train.words is not None:
        yield Rule("train.words", "needs the words of all documents; use data.streaming: false", ("data.streaming",))
    sources = sources_of(data.train)
    if not sources:
        return
    if train.batch_tokens is not None:
        yield Rule("train.batch_tokens", "a mixture has rows by source; use train.batch_size", ("data.train",))
    if train.stream:
        yield Rule("train.stream", "a mixture is not one stream of text; use stream: false", ("data.train",))
    if train.time is not None and any(source.epochs for source in sources):
        message = (
            "does not say how many rows there are, of which a source has epochs; use train.steps, tokens or epochs"
        )
        yield Rule("train.time", message, ("data.train",))


def streaming_rules(data: Data, train: Train, dataset: DatasetSettings, objective: str) -> Rules:
    """Broken rules of `data.streaming`, with keys of the whole recipe."""
    if not data.streaming:
        return
    way = "use data.streaming: false"
    if not dataset.STREAM:
        message = f"rows of {objective} are whole {dataset.UNIT}, which cannot be streamed; {way}"
        yield Rule("data.streaming", message, ("objective",))
        return
    if "-" in (data.train if isinstance(data.train, tuple) else (data.train,)):
        yield Rule("data.streaming", "stdin cannot be read in parts; save it as a file", ("data.train",))
    of_whole, by_tokens = data.split.tail or data.split.folds is not None, train.batch_tokens is not None
    documents = "needs all documents of a corpus; give"
    for is_broken, key, message in (
        (of_whole, "data.split", f"{data.split} {documents} a share such as 5%"),
        (data.max_train_samples is not None, "data.max_train_samples", f"{documents} fewer files"),
        (data.pack == "none", "data.pack", "none needs the lengths of all documents; use concat or docs"),
        (by_tokens, "train.batch_tokens", "streamed rows have train.context tokens each; use train.batch_size"),
        (train.stream, "train.stream", "needs the rows of a corpus in order; use train.stream: false"),
    ):
        if is_broken:
            yield Rule(key, f"{message}, or {way}", ("data.streaming",))


def reading_rules(data: Data, dataset: DatasetSettings, objective: str) -> Rules:
    """Broken rules about corpora and columns that the dataset cannot read."""
    for key, corpus in (("data.train", data.train), ("data.val", data.val)):
        if isinstance(corpus, FilePair) and data.fields:
            yield Rule("data.fields", "parallel files have no columns; remove it", (key,))
        if not dataset.SOURCE and (
            isinstance(corpus, FilePair)
            or (has_pairs(corpus) and not dataset.PAIR_COLUMNS and "text" not in data.fields)
        ):
            yield key, f"{objective} needs {'text' if dataset.STREAM else 'a table'}, not pairs; {dataset.COLUMNS_HINT}"
    for key, names in (("data.fields", data.fields), ("data.field_numbers", data.field_numbers)):
        for name in sorted(set(names) - {*dataset.REQUIRED, *dataset.OPTIONAL}):
            yield key, f"unknown column role {name!r}; {dataset.COLUMNS_HINT}"
    if named := [name for name in dataset.TOGETHER if name in data.fields]:
        if len(named) < len(dataset.TOGETHER):
            yield "data.fields", f"only {', '.join(named)} is given; {dataset.COLUMNS_HINT}"
        elif others := [name for name in dataset.OPTIONAL if name in data.fields and name not in named]:
            yield "data.fields", f"{others[0]} and {named[0]} exclude each other; {dataset.COLUMNS_HINT}"
