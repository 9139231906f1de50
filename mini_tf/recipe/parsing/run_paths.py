"""Paths of files and checkpoints in a run folder, which are given in place of the run. Imports nothing heavy."""

import os
import re
from pathlib import Path

_WRITTEN = (".json", ".jsonl", ".safetensors", ".yaml")
"""Suffixes of files that stand for their run; other files in its folder are read as what they are."""


def run_around(path: Path) -> tuple[Path, int | None] | None:
    """The run folder above a file or a checkpoint that stands in place of a run, and the step of the checkpoint."""
    step = next((int(part[5:]) for part in path.parts if re.fullmatch(r"step-\d{1,12}", part)), None)
    if step is None and not (path.suffix in _WRITTEN and os.path.isfile(path)):
        return None
    above = Path(os.path.abspath(path)).parents  # the parents of ../a.json are .. and ., which does not hold it
    folder = next((folder for folder in above if os.path.isfile(folder / "run.json")), None)
    return None if folder is None else (folder if path.is_absolute() else Path(os.path.relpath(folder)), step)


def names_run(word: str) -> bool:
    """Whether a command finds a run by this word: `last`, a run's path, or its name in outputs."""
    folders = (Path(word), Path("outputs", word))
    return word == "last" or any(os.path.isfile(folder / "run.json") for folder in folders)
