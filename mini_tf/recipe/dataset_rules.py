"""What an objective's dataset asks of the section `data`: which columns there may be, and what can hold such rows."""

from mini_tf.recipe.corpora import has_pairs
from mini_tf.recipe.data import Data, FilePair
from mini_tf.recipe.kind_settings import DatasetSettings
from mini_tf.recipe.kinds import Rule, Rules


def dataset_rules(data: Data, dataset: DatasetSettings, objective: str, own_source_tokenizer: bool = False) -> Rules:
    """Where the data cannot be read as the objective reads them; all of it depends on which objective that is."""
    for rule in (Rule(*rule) for rule in _rules(data, dataset, objective, own_source_tokenizer)):
        yield rule._replace(depends=("objective", *rule.depends))


def _rules(data: Data, dataset: DatasetSettings, objective: str, own_source_tokenizer: bool) -> Rules:
    if own_source_tokenizer and not dataset.SOURCE:
        yield "tokenizer.source", "only pairs have a source side; leave it out"
    if dataset.SOURCE and not data.pairs and {"source", "target"} <= {*dataset.REQUIRED}:
        what = (
            f"{objective} reads pairs; give {{source: FILE, target: FILE}}, or a table and data.fields {{source: COLUMN, target: COLUMN}}"
        )
        yield Rule("data.train", what, ("data.fields",))
        return
    if dataset.STREAM and data.pairs:
        what = f"{objective} reads texts, not pairs of a source and a target; use objective seq2seq"
        yield Rule("data.train", what, ("data.fields",))
        return
    yield from reading_rules(data, dataset, objective)
    if dataset.STREAM:
        return
    if data.pack != "concat":
        yield "data.pack", f"{dataset.UNIT} stand one a row, whatever pack says; leave {data.pack} out"
    if data.split.tail:
        yield "data.split", f"{data.split} cuts a stream of characters; of {dataset.UNIT} give a share such as 5%"
    if data.val is not None and isinstance(data.train, FilePair) != isinstance(data.val, FilePair) and not has_pairs(data.val):
        what = "must be given as data.train is: two files {source: F, target: G}, or a table with data.fields"
        yield Rule("data.val", what, ("data.train",))


def reading_rules(data: Data, dataset: DatasetSettings, objective: str) -> Rules:
    """Corpora that do not hold what the dataset reads, and columns that it does not read, or not so."""
    for key, corpus in (("data.train", data.train), ("data.val", data.val)):
        if isinstance(corpus, FilePair) and data.fields:
            yield Rule("data.fields", "two files of lines have no columns; leave it out", (key,))
        if not dataset.SOURCE and (isinstance(corpus, FilePair) or (has_pairs(corpus) and not dataset.PAIR_COLUMNS)):
            yield key, f"{objective} reads {'texts' if dataset.STREAM else 'the rows of a table'}, not pairs; {dataset.COLUMNS_HINT}"
    for key, given in (("data.fields", data.fields), ("data.field_numbers", data.field_numbers)):
        for name in sorted(set(given) - {*dataset.REQUIRED, *dataset.OPTIONAL}):
            yield key, f"no such role {name!r}; {dataset.COLUMNS_HINT}"
    if named := [name for name in dataset.TOGETHER if name in data.fields]:
        if len(named) < len(dataset.TOGETHER):
            yield "data.fields", f"only {', '.join(named)} is named; {dataset.COLUMNS_HINT}"
        elif others := [name for name in dataset.OPTIONAL if name in data.fields and name not in named]:
            yield "data.fields", f"{others[0]} and {named[0]} are two ways to say the same; {dataset.COLUMNS_HINT}"
