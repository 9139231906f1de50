"""The docstrings of Python's standard library, and a filter for paragraphs of prose.

Files are parsed with `ast`, never imported. Code, tables, lists of options and signatures are not prose.
"""

import ast
import inspect
import re
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from mini_tf.system.errors import Unavailable

PYTHON = "{}.{}.{}".format(*sys.version_info[:3])
"""Version of the running Python; part of the file names of corpora made from its documentation."""
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
"""At least a fifth of the words of an English sentence are among these; hardly any of a list of names."""
NOT_PROSE = re.compile(
    r">>>|\.\.\. |::=|^[=+|~^#$%-]{2,}|[=+|~^_-]{4,}|[{}\\|]|\w\(\w*=|http|Copyright|^\.\. |->|==|\w\.\w+\.\w|@"
)
BLANK_LINE = re.compile(r"\n\s*\n")


def library() -> Path:
    """The folder of the standard library; some installations have only compiled files there."""
    return Path(sysconfig.get_paths()["stdlib"])


def without_sources(corpus: str, hint: str) -> Unavailable:
    """The fault if the sources are missing, or too few."""
    fault = f"data.train: {corpus}: this Python is installed without the source files of its standard library"
    return Unavailable(fault, hint=hint)


def python_files(folder: Path) -> Iterator[Path]:
    """All Python files below `folder` except tests and installed packages, sorted."""
    for file in sorted(folder.rglob("*.py")):
        if SKIPPED.isdisjoint(file.relative_to(folder).parts[:-1]):
            yield file


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file; empty if it cannot be read or is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences in the library's sources
            return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], [])


def docstrings(file: Path) -> Iterator[str]:
    """The docstrings of a file: module, classes and functions, outer before inner."""
    nodes: deque[ast.AST] = deque([parsed(file)])
    while nodes:  # like ast.walk, but without expressions, which contain no definitions and are most of a tree
        node = nodes.popleft()
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            nodes.extend(getattr(node, part, ()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            yield from [text] if text else []


def prose(text: str, technical: bool = False) -> list[str]:
    """The paragraphs of a docstring that are English sentences, each as one line.

    `technical`: also those that begin with an identifier, or contain more identifiers and symbols.
    """
    lines = []
    for paragraph in BLANK_LINE.split(inspect.cleandoc(text)):
        line = plain(paragraph)
        if line and _is_prose(line, technical) and not _is_ragged(paragraph.splitlines()):
            lines.append(line)
    return lines


def plain(paragraph: str) -> str:
    """A paragraph as one line without markup; "" if it is empty."""
    # Lone surrogates, as in examples of codecs, cannot be encoded as UTF-8.
    text = paragraph.translate(PLAIN).encode("utf-8", "ignore").decode()
    line = BULLET.sub("", " ".join(text.split()))
    line = MARKUP.sub(lambda match: next((group for group in match.groups() if group), ""), line)
    return " ".join(line.split())


def _is_prose(line: str, technical: bool) -> bool:
    words = line.split()
    return (
        len(words) >= 6
        and line.isascii()
        and (line[0].isupper() or (technical and (line[0].isalpha() or line[0] in "_'")))
        and line[-1] in ".!?:"
        and letter_ratio(line) >= (0.85 if technical else 0.92)
        and not NOT_PROSE.search(line)
        and len(COMMON.findall(line)) >= 0.2 * len(words)
    )


def letter_ratio(line: str) -> float:
    """Letters per character; blanks, commas and apostrophes count as letters."""
    return (sum(map(str.isalpha, line)) + sum(map(line.count, " ,'"))) / len(line)


def _is_ragged(lines: list[str]) -> bool:
    """Whether a paragraph has columns or different indents: a table, code or a list of options."""
    lines = [line for line in lines if line.strip()]
    return (
        any(re.search(r"\S {3,}\S", line) for line in lines)
        or len({len(line) - len(line.lstrip()) for line in lines[1:]}) > 1
    )
