"""From a recipe's data to stores of ids, whatever a row of it is: the one way, through the cache.

Ids are found again by the contents of files and the settings that they are read with. What a run keeps of its data is a hash of the
ids themselves and of what labels mean, so what changes neither is the same data: another name, a column that is not read, a remark.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mini_tf.data.datasets import Dataset, TokenizedData
from mini_tf.data.encoding import write
from mini_tf.data.labels import Labels
from mini_tf.data.raw import Files, RawData
from mini_tf.data.store import Store, Tokenizers, open_store
from mini_tf.recipe import sections
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.system.cache import CacheEntry, build_or_load, find_entry, hash_of
from mini_tf.system.errors import DataFault
from mini_tf.system.progress import ProgressCallback, show_progress

FORMAT = 6
Say = Callable[[str], None]
_IDS = (".ids", ".starts", ".labels", ".row_labels")


def open_text(
    data: sections.Data,
    tokenizer: sections.Tokenizer,
    objective: ObjectiveSettings,
    say: Say = lambda line: None,
    used: Tokenizers | None = None,
) -> TokenizedData:
    """Both sides of a recipe's data as ids, out of the cache or made now. used: a trained run's own tokenizers.

    Raises DataFault where a file, a line, a label or a tokenizer is unfit, or a side has nothing to predict.
    """
    dataset: Dataset = objective.dataset()
    raw = RawData(dataset, data)
    used = used or raw.tokenizers(tokenizer, objective.TOKENS)

    def build(folder: Path) -> dict[str, Any]:
        division = raw.division
        with show_progress("collecting the labels"):
            labels = dataset.labels_of(example for side, example in division.read() if side == "train")
        with show_progress(f"encoding {division.characters:,} characters") as reached:
            facts = write(folder, dataset, division.read(), used, labels, dataset.separated(data), _summed(reached, division.characters))
        notes = [*raw.division.notes, *facts["notes"]]
        return facts | {"labels": None if labels is None else labels.to_json(), "notes": notes}

    return _opened(build_or_load("tokens", _key(raw.hash, used), build, say), dataset, used, say)


def reopen(
    data: sections.Data, used: Tokenizers, objective: ObjectiveSettings, hashes: Mapping[str, str], say: Say = lambda line: None
) -> TokenizedData:
    """The data of a trained run by its own tokenizers; what was read from stdin, out of the cache by the recorded `hashes`.

    Raises DataFault where stdin's text is not in the cache any more. Files are read as they are now: compare the hashes.
    """
    names = [name for corpus in (data.train, data.val) for name in ([corpus] if isinstance(corpus, str) else corpus or ())]
    if "-" not in names:
        return open_text(data, sections.Tokenizer(), objective, say, used)
    found = find_entry("tokens", lambda one: _hash(one) == hashes["data"])
    if found is None:
        raise DataFault("this run read its text from stdin, and the text is not in the cache any more", hint="--data FILE names another")
    return _opened(found, objective.dataset(), used, say)


def encode(
    data: sections.Data,
    used: Tokenizers,
    objective: ObjectiveSettings,
    labels: Labels | None,
    say: Say = lambda line: None,
    note: Say = lambda line: None,
) -> Store:
    """All of data.train as ids, nothing held out; labels: those of the run. note: is called with what is notable of the data."""
    dataset: Dataset = objective.dataset()
    files = Files(dataset, data, data.train, "--data", labels)
    known = hash_of({"all": files.hash, "labels": None if labels is None else labels.to_json()})

    def build(folder: Path) -> dict[str, Any]:
        with show_progress("reading and encoding"):
            facts = write(folder, dataset, (("val", example) for example in files.read()), used, labels, dataset.separated(data))
        return facts | {"notes": [*files.notes, *facts["notes"]]}

    found = build_or_load("tokens", _key(known, used), build, say)
    for line in found.facts["notes"]:
        note(line)
    return _open(found, "val", used, "--data")


def _summed(reached: ProgressCallback, whole: int) -> Callable[[int], None]:
    """Takes how much more was done, and tells the share of `whole` that is done."""
    done = 0

    def more(some: int) -> None:
        nonlocal done
        done += some
        reached(min(1.0, done / max(whole, 1)))

    return more


def _key(known: str, used: Tokenizers) -> str:
    return hash_of({"format": FORMAT, "data": known, "tokenizers": [one.hash for one in used]})


def _hash(found: CacheEntry) -> str:
    """Of the ids and labels of both sides, and of what the labels mean."""
    ids = {name: sha for name, (_, sha) in found.files.items() if name.endswith(_IDS)}
    return hash_of([ids, found.facts["labels"]] if found.facts["labels"] else ids)


def _opened(found: CacheEntry, dataset: Dataset, used: Tokenizers, say: Say) -> TokenizedData:
    train, val = (_open(found, side, used, f"data.{side}") for side in ("train", "val"))
    hashes = {"data": _hash(found), "tokenizer": used.target.hash}
    hashes |= {} if used.source is used.target else {"source_tokenizer": used.source.hash}
    labels = None if found.facts["labels"] is None else Labels.of_json(found.facts["labels"])
    notes = [*dict.fromkeys(note for one in used for note in one.notes), *found.facts["notes"]]
    text = TokenizedData(train, val, used, notes, hashes, labels)
    say(f"text: {dataset.opened(text)}")
    return text


def _open(found: CacheEntry, side: str, used: Tokenizers, key: str) -> Store:
    """One side; DataFault where there is nothing in it."""
    stores = found.facts["stores"]
    numbers = [stores[name] for name in (side, f"{side}.source") if name in stores] or [{"tokens": 0, "raw_bytes": 0}]
    smallest = min(numbers, key=lambda one: one["tokens"])
    if smallest["tokens"] < 2 or not smallest["raw_bytes"]:
        what = "there is no text in it" if key != "data.val" else "nothing is held out"
        more = "give more text" if key == "--data" else "give more text, or a larger data.split"
        raise DataFault(f"{key}: {what} ({smallest['tokens']} tokens; at least 2 are needed)", hint=more)
    source = None
    if (name := f"{side}.source") in stores:
        source = open_store(found.folder, name, stores[name], used.source.vocabulary)
    return open_store(found.folder, side, stores[side], used.target.vocabulary, source)
