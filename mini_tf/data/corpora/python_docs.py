"""The built-in corpus `python-docs`: English prose about programming, from the Python that is running; no download.

It is the help topics of `pydoc_data` and the docstrings of the standard library, without what is no prose; no paragraph
stands twice.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from mini_tf.data.corpora._documentation import PYTHON, docstrings, library, parsed, prose, python_files
from mini_tf.system.drafts import write_whole
from mini_tf.system.errors import Unavailable

VERSION = 1
"""To be raised when the extraction changes: it is part of the cached file's name."""
FEWEST_CHARACTERS = 100_000


def corpus(folder: Path) -> Path:
    """The corpus as a jsonl file in `folder`, one help topic or docstring a document; made in a few seconds if absent."""
    path = folder / f"python-docs-{VERSION}-{PYTHON}.jsonl"
    if path.exists():
        return path
    kept = list(_without_repeats(_texts()))
    if sum(map(len, kept)) < FEWEST_CHARACTERS:
        raise Unavailable(
            "data.train: python-docs: this Python comes without its library's sources", hint="give a text file: data.train=FILE"
        )
    write_whole(path, "".join(json.dumps({"text": text}) + "\n" for text in kept))
    return path


def _texts() -> Iterator[str]:
    for file in python_files(library()):
        yield from _topics(file) if file.match("pydoc_data/topics.py") else docstrings(file)


def _topics(file: Path) -> Iterator[str]:
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Dict):
            yield from (value.value for value in node.values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _without_repeats(texts: Iterator[str]) -> Iterator[str]:
    """The prose of each text, without paragraphs that stood before."""
    seen: set[str] = set()
    for text in texts:
        fresh = [p for p in dict.fromkeys(prose(text)) if p not in seen]
        seen.update(fresh)
        if fresh:
            yield "\n".join(fresh)
