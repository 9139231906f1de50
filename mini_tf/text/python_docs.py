"""The built-in corpus `python-docs`: English prose about programming, from the Python that is running; no download.

It is the help topics of `pydoc_data` and the docstrings of the standard library, read with `ast` and never imported. Code,
tables, lists of options and signatures are left out, paragraphs are joined into lines, and no paragraph stands twice.
"""

import ast
import inspect
import json
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from mini_tf.errors import Unavailable
from mini_tf.text.drafts import write_whole

VERSION = 1
"""To be raised when the extraction changes: it is part of the cached file's name."""
FEWEST_CHARACTERS = 100_000
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__", "config"}
PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...", "\xa0": " "})
MARKUP = re.compile(
    r":\w+:`~?([^`<]+)(?:<[^`]*>)?`|``([^`]*)``|`([^`']*)`_*|`([^`']*)'|\*\*([^*]+)\*\*|(?<!\w)\*(\w[^*\n]*)\*(?!\w)|\[\d+\]|\|(?=\w)"
)
BULLET = re.compile(r"^(?:[-*+o]|\d{1,2}[.)]|\(\w\))\s+")
COMMON = re.compile(
    r"\b(?:the|a|an|of|to|in|is|are|be|and|or|not|for|if|it|this|that|with|as|on|by|from|at|which|when|will|can|may|must|has|have|was|"
    r"no|any|all|other|same|its|they|them|then|than|but|so|only|used|you|your|one|two|there|their|these)\b",
    re.IGNORECASE,
)
"""Every fifth word of an English sentence is one of these; of a list of names hardly any is."""
NOT_PROSE = re.compile(r">>>|\.\.\. |::=|^[=+|~^#$%-]{2,}|[=+|~^_-]{4,}|[{}\\|]|\w\(\w*=|http|Copyright|^\.\. |->|==|\w\.\w+\.\w|@")


def corpus(folder: Path) -> Path:
    """The corpus as a jsonl file in `folder`, one help topic or docstring a document; made in a few seconds if absent."""
    version = "{}.{}.{}".format(*sys.version_info[:3])
    path = folder / f"python-docs-{VERSION}-{version}.jsonl"
    if path.exists():
        return path
    kept = list(_without_repeats(_texts()))
    if sum(map(len, kept)) < FEWEST_CHARACTERS:
        raise Unavailable(
            "data.train: python-docs: this Python comes without its library's sources", hint="give a text file: data.train=FILE"
        )
    write_whole(path, "".join(json.dumps({"text": text}) + "\n" for text in kept))
    return path


def prose(text: str) -> list[str]:
    """The paragraphs of a documentation text that are English sentences, each as one line."""
    found = []
    # Lone surrogates, as in examples of codecs, fit in no file.
    text = text.translate(PLAIN).encode("utf-8", "ignore").decode()
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if not lines:
            continue
        line = BULLET.sub("", " ".join(" ".join(lines).split()))
        line = MARKUP.sub(lambda match: next((group for group in match.groups() if group), ""), line)
        line = " ".join(line.split())
        if _is_prose(line) and not _is_ragged(lines):
            found.append(line)
    return found


def _is_prose(line: str) -> bool:
    words = line.split()
    letters = sum(c.isalpha() or c in " ,'" for c in line)
    return (
        len(words) >= 6
        and line.isascii()
        and line[0].isupper()
        and line[-1] in ".!?:"
        and letters >= 0.92 * len(line)
        and not NOT_PROSE.search(line)
        and len(COMMON.findall(line)) >= 0.2 * len(words)
    )


def _is_ragged(lines: list[str]) -> bool:
    """Columns, or lines set deeper than the one before: a table, code or a list of options."""
    return any(re.search(r"\S {3,}\S", line) for line in lines) or len({len(line) - len(line.lstrip()) for line in lines[1:]}) > 1


def _texts() -> Iterator[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(library.rglob("*.py")):
        if SKIPPED.isdisjoint(file.relative_to(library).parts[:-1]):
            yield from _topics(file) if file.match("pydoc_data/topics.py") else _docstrings(file)


def _parsed(file: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in the library's own sources
            return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None


def _topics(file: Path) -> Iterator[str]:
    for node in ast.walk(_parsed(file) or ast.Module([], [])):
        if isinstance(node, ast.Dict):
            yield from (value.value for value in node.values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def _docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(_parsed(file) or ast.Module([], [])):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield text


def _without_repeats(texts: Iterator[str]) -> Iterator[str]:
    """The prose of each text, without paragraphs that stood before."""
    seen: set[str] = set()
    for text in texts:
        fresh = [p for p in dict.fromkeys(prose(text)) if p not in seen]
        seen.update(fresh)
        if fresh:
            yield "\n".join(fresh)
