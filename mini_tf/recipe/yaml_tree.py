"""Strict YAML with line numbers: mappings, lists and scalars as they were written, and nothing else of the language.

Works on the parser's events, before anything is built: no anchors, aliases, merge keys, tags, duplicate keys or second
documents, and no names of Python code. Every fault is collected; a syntax error ends the reading.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mini_tf.errors import RecipeFault
from mini_tf.recipe.values import Written, show

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
CODE_KEYS = ("class_path", "_target_", "_component_", "import", "trust_remote_code")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C where it was built: a hundred times faster


@dataclass
class Node:
    """A part of a recipe and where it stands: "gpt.yaml:12", or the override it came from.

    `value` is Written, a list of nodes or a dict of nodes; `before` is what it replaced, of a level below.
    """

    value: Any
    where: str
    before: "Node | None" = field(default=None, repr=False)

    def plain(self) -> Any:
        """The same as lists and dicts of Written, as the schema takes it."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def leaves(self) -> Iterator["Node"]:
        """Every scalar below this node."""
        if isinstance(self.value, Written):
            yield self
            return
        for child in self.value.values() if isinstance(self.value, dict) else self.value:
            yield from child.leaves()


def load(path: Path, name: str) -> str:
    """The text of a recipe file; `name` is what messages call it. Never waits on a pipe nor reads a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise RecipeFault(f"cannot read recipe {name}: {error.strerror}", where=[name]) from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise RecipeFault(f"cannot read recipe {name}: it is {what}", where=[name])
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise RecipeFault(f"cannot read recipe {name}: it is larger than 1 MiB", where=[name])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RecipeFault(f"{name}:{line}: byte {error.start} is not UTF-8", where=[f"{name}:{line}"]) from None


def parse(text: str, name: str, numbered: bool = True) -> Node:
    """The tree of one YAML document; RecipeFault with a line each for all that is not allowed in it.

    With `numbered`, places are "name:line"; else `name` is the place of every node.
    """
    return _Reader(text, name, numbered).read()


class _Reader:
    """Takes events one after another; collects faults, and raises at those that leave nothing to go on with."""

    def __init__(self, text: str, name: str, numbered: bool) -> None:
        self.text, self.name, self.numbered = text, name, numbered
        self.faults: list[str] = []

    def where(self, line: int) -> str:
        return f"{self.name}:{line}" if self.numbered else self.name

    def fault(self, line: int, message: str) -> None:
        self.faults.append(f"{self.where(line)}: {message}")

    def refusal(self) -> RecipeFault:
        return RecipeFault(self.faults[0], where=[fault.split(": ")[0] for fault in self.faults], faults=self.faults)

    def read(self) -> Node:
        if bad := _UNPRINTABLE.search(self.text):
            self.fault(self.text.count("\n", 0, bad.start()) + 1, f"the character {bad[0]!r} is not allowed in a recipe")
            raise self.refusal()
        root: Node | None = None
        events: Iterator[Any] = iter(yaml.parse(self.text, Loader=_Loader))
        try:
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    self.fault(_line_of(event), "a second document begins here; a recipe is one")
                    raise self.refusal()
                if isinstance(event, yaml.NodeEvent):
                    root = self.node(event, events, 0)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1"
            self.faults.append(f"{self.name}{':' + place if self.numbered else ''}: not YAML: {_problem(error)}")
        if root is None and not self.faults:
            self.faults.append(f"{self.name}: is empty")
        if self.faults or root is None:
            raise self.refusal()
        return root

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        line = _line_of(event)
        if depth > MAX_DEPTH:
            self.fault(line, f"nested deeper than {MAX_DEPTH}")
            raise self.refusal()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self.fault(line, f"anchors and aliases are not allowed ({event.anchor!r}); write the value out, or quote the text")
        elif event.tag is not None:
            self.fault(line, f"tags are not allowed ({event.tag!r}); quote the text if it was meant as one")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, depth + 1))
            return Node(items, self.where(line))
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self.mapping(events, depth), self.where(line))
        text = "" if isinstance(event, yaml.AliasEvent) else event.value
        if bad := _UNPRINTABLE.search(text):
            self.fault(line, f"the character {bad[0]!r} is not allowed in a recipe")
        return Node(Written(text, quoted=not isinstance(event, yaml.AliasEvent) and bool(event.style)), self.where(line))

    def mapping(self, events: Iterator[Any], depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line_of(event)
            written = self.node(event, events, depth + 1).value
            key = str(written)
            if not isinstance(written, Written):
                self.fault(line, "a key must be a word")
            elif key == "<<" and not written.quoted:
                self.fault(line, "merge keys (<<) are not allowed; use extends")
            elif key in CODE_KEYS:
                self.fault(line, f"{key}: a recipe cannot name Python code")
            elif key in found:
                self.fault(line, f"key {show(key)} given twice (lines {lines[key]} and {line})")
            found[key] = self.node(next(events), events, depth + 1)
            lines[key] = line
            found[key].where = self.where(line)
        return found


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _problem(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error).splitlines()[0]
