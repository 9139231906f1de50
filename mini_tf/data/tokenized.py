"""Opens a recipe's data as stores of ids, for any dataset, through the cache.

The cache key is the contents of the files and the settings that they are read with. The data hash that a run records is
a hash of the ids and the labels, so a change that leaves both as they are (a renamed file, an unread column, a comment)
does not change it.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.examples import Labels
from mini_tf.data.formats.hub_datasets import needs_network
from mini_tf.data.raw import Files, RawData, refuse_absent
from mini_tf.data.split import DataSplit, Part, SplitName, as_split
from mini_tf.data.store import Store, Tokenizers, Writer, join_stores, open_store
from mini_tf.data.streamed_text import HeldOut, StreamedText, StreamSample
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.parallel.dividing import ALONE, Team
from mini_tf.parallel.group import ProcessGroup, refuse_different
from mini_tf.recipe import sections
from mini_tf.recipe.corpora import names_in, sources_of
from mini_tf.recipe.data import FilePair
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.system.cache import CacheEntry, build_or_load, cache_folder, draft, find_entry, hash_of, load, publish
from mini_tf.system.errors import DataFault
from mini_tf.system.hub import PREFIX
from mini_tf.system.progress import adding_up, show_progress

BATCH = 4 << 20
"""Characters per batch. A batch ends with a part, so that it does not depend on the number of processes."""
SplitPart = Part[tuple[SplitName, Any]]
FORMAT = 8
Report = Callable[[str], None]
HELD_OUT = "held_out.hashes"
_IDS = (".ids", ".starts", ".labels", ".row_labels")


def write_stores(
    folder: Path,
    dataset: Dataset,
    parts: Sequence[SplitPart],
    tokenizers: Tokenizers,
    labels: Labels | None,
    separated: bool,
    advance: Callable[[int], None] = lambda characters: None,
    team: Team = ALONE,
) -> dict[str, Any]:
    """Encode all examples into files in `folder`; returns the facts needed to open the stores, and the notes.

    advance: called with the characters of a batch. team: the processes that encode, each consecutive parts, into stores
    of its own, which are then joined.
    """

    roles = ("source", "target") if dataset.SOURCE else ("target",)

    def new_coverages() -> dict[str, Coverage]:
        return {role: Coverage(getattr(tokenizers, role)) for role in roles}

    def encode() -> dict[str, Any]:
        """Facts of the stores of this process, and counts for the notes."""
        (share := folder / f"share-{team.rank}").mkdir()
        coverages, writers, dropped = new_coverages(), dict[str, Writer](), Counter[str]()
        with ExitStack() as files:
            for batch, size, source in _batches(team.assigned(parts, lambda part: part.size), dataset):
                examples = [example for _, example in batch]
                encoded = dataset.encode(examples, tokenizers, labels)
                for role, coverage in coverages.items():
                    texts = [" ".join(dataset.texts(example, role == "source")) for example in examples]
                    coverage.sample(texts)
                    for (split, example), text, encoding in zip(batch, texts, encoded, strict=True):
                        name, ids = (split, encoding.ids) if role == "target" else (f"{split}.source", encoding.source)
                        assert ids is not None
                        if name not in writers:
                            writers[name] = Writer(files, share, name, getattr(tokenizers, role).vocabulary, separated)
                        coverage.count_unknown(text, ids)
                        writers[name].add(text, ids, dataset.is_first_part(example), source)
                for (split, example), encoding in zip(batch, encoded, strict=True):
                    as_json = json.dumps(dataset.to_json(example)) if dataset.KEEPS_EXAMPLES else None
                    writers[split].label(encoding, as_json)
                dropped.update(dataset.dropped(examples))
                advance(size)
            stores = {name: writer.close() for name, writer in writers.items()}
        counts = {role: coverage.to_json() for role, coverage in coverages.items()}
        return {"stores": stores, "dropped": dropped, "coverage": counts}

    def join() -> dict[str, Any]:
        coverages, dropped = new_coverages(), Counter[str]()
        for share in shares:
            dropped.update(share["dropped"])
            for role, coverage in coverages.items():
                coverage.add(share["coverage"][role])
        notes = [*dict.fromkeys(note for coverage in coverages.values() for note in coverage.notes())]
        notes += [message.format(n=n) for message, n in dropped.items() if n]
        stores = join_stores(folder, [(folder / f"share-{n}", share["stores"]) for n, share in enumerate(shares)])
        return {"stores": stores, "notes": notes}

    shares = team.on_all(encode)
    return team.on_first(join)


def _batches(parts: Sequence[SplitPart], dataset: Dataset) -> Iterator[tuple[list[tuple[SplitName, Any]], int, int]]:
    """Batches of about BATCH characters, each with its number of characters, and its source."""
    for part in parts:
        batch, size = list[tuple[SplitName, Any]](), 0
        for split, example in part.read():
            batch.append((split, example))
            size += dataset.size(example)
            if size >= BATCH:
                yield batch, size, part.source
                batch, size = [], 0
        if batch:
            yield batch, size, part.source


def open_data(
    data: sections.Data,
    tokenizer: sections.Tokenizer,
    objective: ObjectiveSettings,
    report: Report = lambda line: None,
    tokenizers: Tokenizers | None = None,
    group: ProcessGroup = ALONE.group,
) -> TokenizedData:
    """Both splits of a recipe's data as ids, from the cache or encoded now.

    tokenizers: those of a trained run; default: the recipe's. group: processes that all open the data. A tokenizer is
    trained once, and each reads and encodes a share of the files, for all that see the same cache folder.

    Raises DataFault if a file, a line, a label or a tokenizer is invalid, or if a split has no targets, RunFault if
    another process has other files.
    """
    dataset: Dataset = objective.dataset()
    raw = RawData(dataset, data, Team.of(group, cache_folder()))
    with group.local_rank_0_first():  # a built-in corpus is written into the cache
        refuse_absent([*raw.files.values()], data.fields)
        trains = tokenizers is None and raw.trains_tokenizers(tokenizer)
        content = raw.hash
    refuse_different(group, {"data": content})
    if any(group.all_gather(trains)):
        _ = raw.data_split  # by all processes at once
    with group.local_rank_0_first():
        used = tokenizers or raw.tokenizers(tokenizer, objective.TOKENS)

    def build(folder: Path) -> dict[str, Any]:
        data_split = raw.data_split
        with group.independently():
            labels = _fit_labels(dataset, data, data_split)
        several = f" in {raw.team.size} processes" if raw.team.size > 1 else ""
        with show_progress(f"encoding {data_split.characters:,} characters{several}") as reached:
            advance = adding_up(reached, raw.team.average(data_split.characters))
            separated = dataset.separated(data)
            facts = write_stores(folder, dataset, data_split.parts, used, labels, separated, advance, raw.team)
        if (sample := raw.sample) is not None:
            raw.team.on_first(lambda: sample.held_out.tofile(folder / HELD_OUT))
        as_json = None if labels is None else labels.to_json()
        return facts | {"labels": as_json, "notes": [*data_split.notes, *facts["notes"]]}

    entry = _build_or_load(raw.team, _key(content, used), build, report)
    names = {split: [source.label for source in sources_of(getattr(data, split))] for split in ("train", "val")}
    names["val"] = names["train"] if data.val is None else names["val"]
    return _opened(entry, dataset, used, report, raw.column_notes, raw.sample, names)


def _build_or_load(team: Team, key: str, build: Callable[[Path], dict[str, Any]], report: Report) -> CacheEntry:
    """`build_or_load` by all processes; several call `build` with the folder of the first.

    Several do not wait for another run that builds the same: it may be one of processes that wait for these.
    """
    if team.group.world_size == 1:
        return build_or_load("tokens", key, build, report)
    refuse_different(team.group, {"tokenizer": key})
    with team.group.independently():
        entry = load("tokens", key, report)
    if all(team.group.all_gather(entry is not None)):
        assert entry is not None
        return entry
    with draft("tokens", key) as temporary:
        folder = temporary.with_name(team.on_first(lambda: temporary.name))  # machines may have other paths to it
        facts = build(folder)
        _, files = team.on_first(lambda: publish(folder, "tokens", key, facts)[1:])
        return CacheEntry(cache_folder() / "tokens" / key, facts, files)


def _fit_labels(dataset: Dataset, data: sections.Data, data_split: DataSplit) -> Labels | None:
    """The labels of the training split; a DataFault names the limit on it, if there is one."""
    try:
        with show_progress("collecting the labels"):
            return dataset.fit_labels(example for split, example in data_split.read() if split == "train")
    except DataFault as fault:
        if data.max_train_samples is None or fault.where:
            raise
        message = f"data.max_train_samples {data.max_train_samples:,}: {fault.message}"
        raise DataFault(message, hint="raise it, or list the classes in objective.labels") from fault


def reopen(
    data: sections.Data,
    tokenizers: Tokenizers,
    objective: ObjectiveSettings,
    hashes: Mapping[str, str],
    report: Report = lambda line: None,
) -> TokenizedData:
    """The data of a trained run, encoded by its own tokenizers. Data from stdin are found in the cache by `hashes`.

    Raises DataFault if data read from stdin or from the hub are no longer in the cache: a run may be a stranger's, and
    its names ask for no connection. Files are read as they are now: compare the hashes.
    """
    corpora = {"data.train": data.train, "data.val": data.val}
    names = [(key, name) for key, corpus in corpora.items() for name in _names(corpus)]
    for key, name in names:
        if name.startswith(PREFIX) and needs_network(name, key):
            hint = f"--data {name} downloads it and evaluates on it"
            raise DataFault(f"the run read {name} from the hub, and it is not in the cache", hint=hint, where=(name,))
    if "-" not in (name for _, name in names):
        return open_data(data, sections.Tokenizer(), objective, report, tokenizers)
    entry = find_entry("tokens", lambda entry_: _hash(entry_) == hashes["data"])
    if entry is None:
        fault = "the run read its data from stdin, and it is no longer in the cache"
        raise DataFault(fault, hint="--data FILE evaluates on a file")
    return _opened(entry, objective.dataset(), tokenizers, report)


def _names(corpus: object) -> list[str]:
    """The names of the files of a corpus; those of a built-in one are none."""
    corpus = names_in(corpus)
    if isinstance(corpus, FilePair):
        return [*_names(corpus.source), *_names(corpus.target)]
    return [corpus] if isinstance(corpus, str) else [*corpus] if isinstance(corpus, list | tuple) else []


def encode_data(
    data: sections.Data,
    tokenizers: Tokenizers,
    objective: ObjectiveSettings,
    labels: Labels | None,
    report: Report = lambda line: None,
    note: Report = lambda line: None,
    needed: Collection[str] = (),
) -> Store:
    """All of data.train as one store. labels: those of the run. note: called with each note about the data. needed:
    optional roles of data.fields whose columns must be there.
    """
    dataset: Dataset = objective.dataset()
    files = Files(dataset, data, names_in(data.train), "--data", labels)
    refuse_absent([files], needed)
    content = hash_of({"all": files.hash, "labels": None if labels is None else labels.to_json()})

    def build(folder: Path) -> dict[str, Any]:
        with show_progress("reading and encoding"):
            parts = as_split(files.examples(), "val")
            facts = write_stores(folder, dataset, parts, tokenizers, labels, dataset.separated(data))
        return facts | {"notes": [*files.notes, *facts["notes"]]}

    entry = build_or_load("tokens", _key(content, tokenizers), build, report)
    for line in dict.fromkeys([*files.column_notes, *entry.facts["notes"]]):
        note(line)
    return _open(entry, "val", tokenizers, "--data")


def _key(content: str, tokenizers: Tokenizers) -> str:
    return hash_of({"format": FORMAT, "data": content, "tokenizers": [tokenizer.hash for tokenizer in tokenizers]})


def _hash(entry: CacheEntry) -> str:
    """Hash of the ids and labels of both splits, and of the meaning of the labels."""
    ids = {name: sha for name, (_, sha) in entry.files.items() if name.endswith(_IDS)}
    return hash_of([ids, entry.facts["labels"]] if entry.facts["labels"] else ids)


def _opened(
    entry: CacheEntry,
    dataset: Dataset,
    tokenizers: Tokenizers,
    report: Report,
    column_notes: Sequence[str] = (),
    sample: StreamSample | None = None,
    source_names: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> TokenizedData:
    """sample: that of a corpus that is streamed, which is then the training data. source_names: by split."""
    train = _open(entry, "train", tokenizers, "data.train", source_names.get("train", ()))
    val = _open(entry, "val", tokenizers, "data.val", source_names.get("val", ()))
    hashes = {"data": _hash(entry), "tokenizer": tokenizers.target.hash}
    if sample is not None:
        held_out = HeldOut(np.frombuffer((entry.folder / HELD_OUT).read_bytes(), np.uint64))
        streamed = StreamedText(sample.shards, tokenizers.target, held_out, sample.n_bytes, len(train))
        train = replace(train, streamed=streamed)
        hashes["data"] = hash_of([hashes["data"], sample.shards.hash])
    hashes |= {} if tokenizers.source is tokenizers.target else {"source_tokenizer": tokenizers.source.hash}
    labels = None if entry.facts["labels"] is None else Labels.of_json(entry.facts["labels"])
    notes = [*(note for tokenizer in tokenizers for note in tokenizer.notes), *column_notes, *entry.facts["notes"]]
    data = TokenizedData(train, val, tokenizers, [*dict.fromkeys(notes)], hashes, labels)
    report(f"data: {dataset.size_summary(data)}")
    return data


def _open(entry: CacheEntry, split: str, tokenizers: Tokenizers, key: str, source_names: Sequence[str] = ()) -> Store:
    """The store of one split; DataFault if it is empty."""
    stores = entry.facts["stores"]
    sizes = [stores[name] for name in (split, f"{split}.source") if name in stores] or [{"tokens": 0, "raw_bytes": 0}]
    smallest = min(sizes, key=lambda store: store["tokens"])
    if smallest["tokens"] < 2 or not smallest["raw_bytes"]:
        message = "no text" if key != "data.val" else "no validation data"
        hint = "provide more text" if key == "--data" else "provide more text, or a larger data.split"
        raise DataFault(f"{key}: {message} ({smallest['tokens']} tokens; at least 2 are needed)", hint=hint)
    source = None
    if (name := f"{split}.source") in stores:
        source = open_store(entry.folder, name, stores[name], tokenizers.source.vocabulary)
    return open_store(entry.folder, split, stores[split], tokenizers.target.vocabulary, source, source_names)
