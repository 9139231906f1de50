"""What the running Python says about itself: the docstrings of its standard library, and which paragraphs of a text are prose.

Files are read with `ast` and never imported. Code, tables, lists of options and signatures are no prose.
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
"""Part of the names of files made from its documentation."""
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
BLANK_LINE = re.compile(r"\n\s*\n")


def library() -> Path:
    """The folder of the standard library; on some machines only compiled files are in it."""
    return Path(sysconfig.get_paths()["stdlib"])


def without_sources(corpus: str, hint: str) -> Unavailable:
    """What is said where there are none, or too few."""
    return Unavailable(f"data.train: {corpus}: this Python comes without its library's sources", hint=hint)


def python_files(folder: Path) -> Iterator[Path]:
    """All files below `folder` but tests and what was installed beside the library, sorted."""
    for file in sorted(folder.rglob("*.py")):
        if SKIPPED.isdisjoint(file.relative_to(folder).parts[:-1]):
            yield file


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file; an empty one where it cannot be read or is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old escapes in the library's own sources
            return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module([], [])


def docstrings(file: Path) -> Iterator[str]:
    """Of its module, classes and functions, from the outside in; none where the file is not Python."""
    nodes: deque[ast.AST] = deque([parsed(file)])
    while nodes:  # as ast.walk, but without expressions, which hold no definition and are most of a tree
        node = nodes.popleft()
        nodes.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield text


def prose(text: str, technical: bool = False) -> list[str]:
    """The paragraphs of a documentation text that are English sentences, each as one line.

    `technical`: also those that begin with a name of the program, or hold more of its names and signs.
    """
    found = []
    for paragraph in BLANK_LINE.split(inspect.cleandoc(text)):
        line = plain(paragraph)
        if line and _is_prose(line, technical) and not _is_ragged(paragraph.splitlines()):
            found.append(line)
    return found


def plain(paragraph: str) -> str:
    """A paragraph as one line without its markup; "" where there is nothing in it."""
    # Lone surrogates, as in examples of codecs, fit in no file.
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
        and share_of_letters(line) >= (0.85 if technical else 0.92)
        and not NOT_PROSE.search(line)
        and len(COMMON.findall(line)) >= 0.2 * len(words)
    )


def share_of_letters(line: str) -> float:
    """Of the characters; blanks, commas and apostrophes count as letters."""
    return sum(c.isalpha() or c in " ,'" for c in line) / len(line)


def _is_ragged(lines: list[str]) -> bool:
    """Columns, or lines set deeper than the one before: a table, code or a list of options."""
    lines = [line for line in lines if line.strip()]
    return any(re.search(r"\S {3,}\S", line) for line in lines) or len({len(line) - len(line.lstrip()) for line in lines[1:]}) > 1
