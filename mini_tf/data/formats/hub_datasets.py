"""Datasets of Hugging Face's hub, or folders in their form, through the package datasets: hf:ORG/NAME/CONFIG:SPLIT.

Rows are streamed once into a jsonl file of the cache, one at a time, and read from there: no corpus is held in memory,
and later runs need no network. A folder is streamed again when one of its files has changed. Only files of data are
read: dataset scripts are refused, and so are datasets whose files need other code, such as images.
"""

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.data.formats.parquet import open_parquet
from mini_tf.system.cache import cache_folder, hash_of
from mini_tf.system.errors import DataFault, Unavailable
from mini_tf.system.hub import PREFIX
from mini_tf.system.progress import show_progress
from mini_tf.system.safe_files import temporary_path

BUILDERS = ("json", "csv", "parquet", "arrow", "text")
"""The forms of files that are read, by the package's name of their reader."""
OLDEST = (4, 8)
"""The first version of datasets that runs no scripts and reads columns of unknown types as they are written."""
_NAME = re.compile(r"(?P<path>\w[\w.-]{0,95}/\w[\w.-]{0,95})(/(?P<config>\w[\w.-]*))?", re.ASCII)


class HubDataset(NamedTuple):
    """A dataset by name: path is a folder, or organization/name on the hub; config: None is the only one."""

    name: str
    path: str
    is_folder: bool
    config: str | None
    split: str


def parse(name: str, key: str) -> HubDataset:
    """The dataset of hf:ORG/NAME[/CONFIG][:SPLIT], or hf:FOLDER[/CONFIG][:SPLIT]; DataFault if it is neither.

    The split is by default `train`, for another key than data.train `validation`.
    """
    rest, split = name.removeprefix(PREFIX), "train" if key == "data.train" else "validation"
    folder = os.path.expanduser(rest)
    if not os.path.isdir(folder) and (match := re.fullmatch(r"(.*):([\w.-]+)", rest)):
        rest, split = match[1], match[2]
        folder = os.path.expanduser(rest)
    if rest[:1] in ("/", ".", "~"):
        above, config = os.path.split(folder)
        if os.path.isdir(folder):
            return HubDataset(name, os.path.abspath(folder), True, None, split)
        if os.path.isdir(above):
            return HubDataset(name, os.path.abspath(above), True, config, split)
        raise DataFault(f"{key}: {folder[:200]}: no such folder", where=(name,))
    parts = _NAME.fullmatch(rest)
    if parts is None:
        fault = f"{key}: {name[:80]!r} is not a dataset"
        raise DataFault(fault, hint="write hf:ORGANIZATION/NAME, /CONFIG and :SPLIT behind it, or hf:./FOLDER")
    return HubDataset(name, parts["path"], False, parts["config"], split)


def spooled(name: str, key: str) -> Path:
    """The rows of a dataset as a jsonl file in the cache, which is written if it is not there.

    Raises Unavailable without the package or the network, and DataFault if the dataset has no such config or split.
    """
    dataset = parse(name, key)
    path = _in_cache(dataset)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        temporary = temporary_path(path)
        with show_progress(f"reading {name}"), temporary.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(dataset, key))
        os.replace(temporary, path)
    return path


def needs_network(name: str, key: str) -> bool:
    """Whether `spooled` would ask the hub."""
    dataset = parse(name, key)
    return not dataset.is_folder and not _in_cache(dataset).exists()


def _in_cache(dataset: HubDataset) -> Path:
    state = _state(dataset.path) if dataset.is_folder else None
    return cache_folder() / "datasets" / f"{hash_of([dataset[1:], state])}.jsonl"


def _state(folder: str) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files of a folder."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in paths]


def _rows(dataset: HubDataset, key: str) -> Iterator[dict[str, Any]]:
    with _translated(dataset, key):
        builder = _builder(dataset, key)
        streams = builder.as_streaming_dataset()
        if dataset.split not in streams:
            hint = f"write {PREFIX}...:SPLIT"
            fault = f"{key}: {dataset.name} has no split {dataset.split}; it has {', '.join(streams)}"
            raise DataFault(fault, hint=hint)
        stream = streams[dataset.split].decode(False)
        features = stream.features or {}
        rows = stream
        if dataset.is_folder and _form(builder) == "parquet":
            rows = _parquet_rows(builder.config.data_files[dataset.split], dataset.name)
        for row in rows:
            yield dict(cell for column, value in row.items() for cell in _cells(column, value, features.get(column)))


def _builder(dataset: HubDataset, key: str) -> Any:
    """The reader of the dataset's files; DataFault unless it is one of BUILDERS."""
    try:
        import datasets
    except ImportError:
        fault = f"{key}: {dataset.name} needs the package datasets"
        raise Unavailable(fault, hint="pip install 'minitf[hf]'") from None
    if tuple(map(int, datasets.__version__.split(".")[:2])) < OLDEST:
        fault = f"{key}: {dataset.name} needs datasets {'.'.join(map(str, OLDEST))} or later, which runs no scripts"
        raise Unavailable(fault, hint="pip install -U datasets")
    builder = datasets.load_dataset_builder(dataset.path, dataset.config)
    if (form := _form(builder)) not in BUILDERS:
        raise DataFault(f"{key}: {dataset.name} has files of the form {form}; {', '.join(BUILDERS)} are read")
    return builder


def _form(builder: Any) -> str:
    """The package's name of the reader of its files."""
    return type(builder).__module__.removeprefix("datasets.packaged_modules.").split(".")[0]


def _parquet_rows(files: Sequence[str], name: str) -> Iterator[dict[str, Any]]:
    """The rows of local files by our reader, in bounded memory: the package reads a row group at once."""
    for file in files:
        with open_parquet(Path(file), name) as table:
            table.check(table.names)
            for _, cells in (row for group in range(len(table.groups)) for row in table.rows(group, table.names)):
                yield dict(zip(table.names, cells, strict=True))


@contextmanager
def _translated(dataset: HubDataset, key: str) -> Iterator[None]:
    """Turn exceptions of the package, of its network and of the files into one line; its warnings are not shown."""
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    except (DataFault, Unavailable):
        raise
    except Exception as error:  # of the network, of the hub, of a file
        reason = " ".join(str(error).split("\nExample of usage")[0].split())[:300]
        # No such config, or a script.
        is_wrong = isinstance(error, ValueError | RuntimeError) and not isinstance(error, OSError)
        if dataset.is_folder or is_wrong:
            raise DataFault(f"{key}: {dataset.name}: {reason}", where=(dataset.name,)) from error
        hint = f"download it on another machine, copy the folder, and write {PREFIX}FOLDER"
        message = f"{key}: {dataset.name} is not available: {type(error).__name__}: {reason}"
        raise Unavailable(message, hint=hint, where=(dataset.name,)) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _cells(column: str, value: Any, feature: Any) -> Iterator[tuple[str, Any]]:
    """The cells of a column: labels by name, fields of a struct as column.field; without what JSON lacks."""
    if isinstance(value, Mapping):
        fields = feature if isinstance(feature, Mapping) else {}
        for name, item in value.items():
            yield from _cells(f"{column}.{name}", item, fields.get(name))
    elif _is_plain(plain := _named(value, feature)):
        yield column, plain


def _named(value: Any, feature: Any) -> Any:
    """A value with the names of labels in place of their numbers, and None for a number that is not finite."""
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
        return [_named(item, inner) for item in value]
    if isinstance(value, int) and hasattr(feature, "int2str"):
        return feature.int2str(value) if 0 <= value < feature.num_classes else None
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, str | int | float | bool)
