"""BabyLM's evaluation data: a folder per task, with the names and files of its pipelines of 2024 to 2026.

BLiMP and its supplement (Warstadt et al. 2020, arXiv:1912.00582), EWoK (Ivanova et al. 2024, arXiv:2405.09605), entity
tracking (Kim and Schuster 2023, arXiv:2305.02363), COMPS (Misra et al. 2023, arXiv:2210.01963), nonce words (WUG;
Weissweiler et al. 2023, arXiv:2310.15113; Hofmann et al. 2024, arXiv:2411.07990), reading times (de Varda et al. 2023).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.data.formats.columns import Columns, label_of, number_of, text_of
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.tables import column_names, parse_object, rows_of
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.system.errors import DataFault

KEY = "--babylm"
READING_TIMES = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound", "self_paced_reading_time")
WORD_FACTS = ("Subtlex_log10", "length", "context_length", "prev_length")
"""Frequency and length of a word, words before it, length of the previous word."""


class Item(NamedTuple):
    """Texts that are compared, the right one first; of reading times the text up to a word, and to the previous one.

    starts: characters of each text that are read and not scored. answers: what predictions call the texts. numbers: the
    share of people who prefer the first text (`ratio`), or READING_TIMES and WORD_FACTS, NaN if missing.
    """

    file: str
    subtask: str
    texts: tuple[str, ...]
    starts: tuple[int, ...]
    answers: tuple[str, ...]
    where: str
    numbers: Mapping[str, float] = {}


class TaskFiles(NamedTuple):
    """Names that the folder of a task may have, the suffix of its files, and how they are read."""

    folders: tuple[str, ...]
    read: Callable[[DataFile], Iterator[Item]]
    suffix: str = ".jsonl"


def read_babylm(folder: Path) -> tuple[dict[str, list[Item]], list[str]]:
    """The items of each task that the folder has, and notes on absent tasks and files that are not read.

    DataFault, with file and line, for a broken file, and if the folder has no task.
    """
    if not folder.is_dir():
        raise DataFault(f"{KEY} {folder}: no such folder", hint="name BabyLM's evaluation_data/full_eval or fast_eval")
    unread, tasks = {path.name: path for path in sorted(folder.iterdir())}, {}
    ignored: list[str] = []
    for name, files in TASKS.items():
        of_task = next((unread.pop(word) for word in files.folders if word in unread), None)
        if of_task is None:
            continue
        paths = sorted(of_task.iterdir())
        ignored += [str(path.relative_to(folder)) for path in paths if path.suffix != files.suffix]
        read = [file for path in paths if path.suffix == files.suffix for file in find_files(str(path), KEY)]
        tasks[name] = [item for file in read for item in files.read(file)]
        if not tasks[name]:
            raise DataFault.located(str(of_task), f"has no lines of {name} in {files.suffix} files")
    if not tasks:
        inner = next((word for word in ("full_eval", "fast_eval") if word in unread), None)
        hint = f"name {folder / inner}" if inner else f"a task has a folder, such as {TASKS['blimp'].folders[0]}"
        raise DataFault(f"{KEY} {folder}: has no task of BabyLM", hint=hint, where=(str(folder),))
    absent = [f"{name} ({files.folders[0]})" for name, files in TASKS.items() if name not in tasks]
    others = [*unread, *ignored]
    notes = {"absent": absent, "not read": others}
    return tasks, [f"{note} in {folder}: {', '.join(names)}" for note, names in notes.items() if names]


SENTENCES, GROUPS = ("sentence_good", "sentence_bad"), ("UID", "linguistics_term")


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable sentence, in BLiMP's format: Warstadt et al. 2020, arXiv:1912.00582.

    where: file and line. groups: the names of its paradigm and phenomenon by the columns of GROUPS that it has.
    """

    good: str
    bad: str
    where: str
    groups: dict[str, str]


def read_pairs(specs: Iterable[str], key: str = "--pairs") -> list[MinimalPair]:
    """The pairs of files or globs: jsonl, or another table by its suffix. DataFault with the file and the line."""
    pairs: list[MinimalPair] = []
    for file in (file for spec in specs for file in find_files(spec, key)):
        before = len(pairs)
        if file.format == "txt":
            hint = f'lines such as {{"{SENTENCES[0]}": "...", "{SENTENCES[1]}": "..."}}'
            fault = f"{key}: {file.name}: must be a table of pairs, with the suffix .jsonl"
            raise DataFault(fault, hint=hint, where=(file.name,))
        for row in rows_of(file, Columns((), header=True, optional=(*SENTENCES, *GROUPS))):
            for name, cell in zip(SENTENCES, row.optional, strict=False):
                if not isinstance(cell, str) or not cell.strip():
                    message = f"no {name}" if cell is None else f"{name} must be a sentence, not {str(cell)[:40]!r}"
                    raise DataFault.located(row.where, message, hint=f"a pair has {' and '.join(SENTENCES)}")
            good, bad, *names = row.optional
            groups = {name: str(cell) for name, cell in zip(GROUPS, names, strict=True) if cell not in (None, "")}
            pairs.append(MinimalPair(str(good), str(bad), row.where, groups))
        if len(pairs) == before:
            raise DataFault(f"{key}: {file.name} has no pairs", where=(file.name,))
    return pairs


def _stem(file: DataFile) -> str:
    return Path(file.path).stem


def _objects(file: DataFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of jsonl, each with its file and line."""
    for number, line in read_lines(file.path, file.name, "strict"):
        if not line.isspace():
            yield (where := f"{file.name}:{number}"), parse_object(line, where)


def _texts(row: Mapping[str, Any], where: str, *keys: str) -> list[str]:
    """The texts of these keys; DataFault if one is missing or empty."""
    for key in keys:
        if key not in row:
            raise DataFault.located(where, f"no {key}", hint=f"a line has {', '.join(keys)}")
        if not text_of(row[key], where, key).strip():
            raise DataFault.located(where, f"{key} is empty")
    return [text_of(row[key], where, key) for key in keys]


def _pairs(file: DataFile) -> Iterator[Item]:
    for pair in read_pairs([str(file.path)], KEY):
        texts, subtask = (pair.good, pair.bad), pair.groups.get("UID", _stem(file))
        yield Item(_stem(file), subtask, texts, (0, 0), texts, pair.where)


def _ewok(file: DataFile) -> Iterator[Item]:
    for where, row in _objects(file):
        domain, context, *targets = _texts(row, where, "Domain", "Context1", "Target1", "Target2")
        answers = tuple(f" {target}" for target in targets)
        texts = tuple(context + answer for answer in answers)
        yield Item(_stem(file), domain, texts, (len(context),) * 2, answers, where)


def _entities(file: DataFile) -> Iterator[Item]:
    for where, row in _objects(file):
        [prefix], options = _texts(row, where, "input_prefix"), row.get("options")
        options = options if isinstance(options, list) else []
        if len(options) < 2 or not all(isinstance(text, str) and text.strip() for text in options):
            raise DataFault.located(where, "options must be a list of at least two texts, the right one first")
        subtask = f"{_stem(file)}_{label_of(row.get('numops'), where, 'numops')}_ops"
        texts, starts = tuple(prefix + option for option in options), (len(prefix),) * len(options)
        yield Item(_stem(file), subtask, texts, starts, tuple(options), where)


def _comps(file: DataFile) -> Iterator[Item]:
    for where, row in _objects(file):
        *prefixes, phrase = _texts(row, where, "prefix_acceptable", "prefix_unacceptable", "property_phrase")
        texts = tuple(f"{prefix} {phrase}" for prefix in prefixes)
        subtask = _stem(file).removeprefix("comps_").replace("-", "_")
        yield Item(_stem(file), subtask, texts, tuple(len(prefix) + 1 for prefix in prefixes), texts, where)


def _nonce_words(task: str) -> Callable[[DataFile], Iterator[Item]]:
    def read(file: DataFile) -> Iterator[Item]:
        for where, row in _objects(file):
            [sentences], ratio = _texts(row, where, "sentences"), number_of(row.get("ratio"), where, "ratio")
            texts = tuple(sentences.split("\t"))
            if len(texts) < 2 or not all(text.strip() for text in texts):
                raise DataFault.located(where, "sentences must be at least two, with a tab between them")
            yield Item(task, task, texts, (0,) * len(texts), texts, where, {"ratio": ratio})

    return read


def _reading(file: DataFile) -> Iterator[Item]:
    names = ("item", "word", "prev_item", "prev_word", *READING_TIMES, *WORD_FACTS)
    available = column_names(file, Columns((), header=True))
    if missing := [name for name in names if name not in available]:
        raise DataFault.located(f"{file.name}:1", f"no column {missing[0]}", hint=f"it needs {', '.join(names)}")
    for row in rows_of(file, Columns(names, header=True)):
        context, word, *previous = (str(cell) for cell in row.cells[:4])
        if not word.strip():
            raise DataFault.located(row.where, "word is empty")
        pairs = [(context, word), *([(previous[0], previous[1])] if all(map(str.strip, previous)) else [])]
        glue = ["" if text[-1:].strip() == "" or last[:1].isspace() else " " for text, last in pairs]
        texts = tuple(text + space + last for (text, last), space in zip(pairs, glue, strict=True))
        numbers = {
            name: math.nan if str(cell).strip().lower() in ("", "na", "nan") else number_of(cell, row.where, name)
            for name, cell in zip(names[4:], row.cells[4:], strict=True)
        }
        starts = tuple(len(text) for text, _ in pairs)
        yield Item("reading", "reading", texts, starts, texts, row.where, numbers)


TASKS: dict[str, TaskFiles] = {
    "blimp": TaskFiles(("blimp_filtered", "blimp_fast", "blimp"), _pairs),
    "blimp_supplement": TaskFiles(("supplement_filtered", "supplement_fast", "supplement"), _pairs),
    "ewok": TaskFiles(("ewok_filtered", "ewok_fast", "ewok"), _ewok),
    "entity_tracking": TaskFiles(("entity_tracking", "entity_tracking_fast"), _entities),
    "comps": TaskFiles(("comps", "comps_fast"), _comps),
    "wug_adj": TaskFiles(("wug_adj_nominalization",), _nonce_words("wug_adj")),
    "wug_past": TaskFiles(("wug_past_tense",), _nonce_words("wug_past")),
    "reading": TaskFiles(("reading",), _reading, ".csv"),
}
"""By the names that BabyLM's leaderboard gives the tasks."""
SCORES = (*(task for task in TASKS if task != "reading"), "reading.eye_tracking", "reading.self_paced")
METRICS = tuple(f"babylm.{name}{end}" for name in SCORES for end in ("", "."))
"""Names in --assert; those with a final dot are completed by a way to score texts."""
