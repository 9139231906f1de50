"""Strict YAML with line numbers: mappings, lists and scalars as they were written, and nothing else of the language.

Works on the parser's events, before anything is built: no anchors, aliases, merge keys, tags, duplicate keys or second
documents, and no names of Python code. Every fault is collected; a syntax error ends the reading.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mini_tf.recipe.parsing.secrets import REASON, holds_secret, names_secret
from mini_tf.recipe.values import Written, show
from mini_tf.system.errors import RecipeFault
from mini_tf.system.limits import limits
from mini_tf.system.plain_file import read_plain

MAX_REPORTED = 50
"""Faults told of one recipe."""
CODE_KEYS = ("class_path", "_target_", "_component_", "import", "trust_remote_code")
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LONGEST_KEY = 200
_STACK = 100  # levels that Python's own stack surely holds, here and in the schema, whatever $MINITF_LIMITS says
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


def deepest() -> int:
    """How many levels may stand in each other, in a file and of files that extend each other."""
    return min(limits().recipe_depth, _STACK)


def recipe_fault(faults: Sequence[tuple[str, str]], more: int = 0, fault: type[RecipeFault] = RecipeFault) -> RecipeFault:
    """All faults, each a (place, message), in one refusal; of very many only the first are told, and that there are `more`."""
    told = faults[:MAX_REPORTED]
    lines = [f"{place}: {message}" for place, message in told]
    more += len(faults) - len(told)
    rest = [f"and {more:,} more faults"] if more else []
    return fault(lines[0], where=list(dict.fromkeys(place for place, _ in told)), faults=[*lines, *rest])


def load(path: Path, name: str) -> str:
    """The text of a recipe file; `name` is what messages call it. Never waits on a pipe nor reads a device."""
    try:
        data = read_plain(path, limits().recipe_bytes)
    except OSError as error:
        raise RecipeFault(f"cannot read recipe {name}: {error.strerror}", where=[name]) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise recipe_fault([(f"{name}:{line}", f"byte {error.start} is not UTF-8")]) from None


def parse(text: str, name: str, place: str | None = None) -> Node:
    """The tree of one YAML document; RecipeFault with a line each for all that is not allowed in it.

    Faults and nodes stand at "name:line". Where a `place` is given, faults stand at `name` and all nodes at `place`: an
    override, which messages may repeat only once it is known to hold no secret.
    """
    return _Reader(text, name, place).read()


class _Reader:
    """Takes events one after another; collects faults, and raises at those that leave nothing to go on with."""

    def __init__(self, text: str, name: str, place: str | None) -> None:
        self.text, self.name, self.place = text, name, place
        self.faults: list[tuple[str, str]] = []
        self.secrets: dict[str, str] = {}
        self.deepest = deepest()

    def where(self, line: int) -> str:
        return f"{self.name}:{line}" if self.place is None else self.name

    def fault(self, line: int, message: str) -> None:
        self.faults.append((self.where(line), message))

    def secret(self, line: int) -> None:
        self.secrets[self.where(line)] = REASON

    def refusal(self) -> RecipeFault:
        """Of what stands beside a secret nothing is told, for a message could repeat it."""
        return recipe_fault(sorted(self.secrets.items(), key=_line_number) or self.faults)

    def made(self, value: Any, line: int) -> Node:
        return Node(value, self.place or self.where(line))

    def read(self) -> Node:
        for number, line in enumerate(self.text.split("\n"), 1):
            if holds_secret(line):
                self.secret(number)
        if bad := UNPRINTABLE.search(self.text):
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
            self.faults.append(
                (f"{self.name}:{place}" if self.place is None else self.name, f"not YAML: {self._tab(mark) or _problem(error)}")
            )
        if root is None and not self.faults:
            self.faults.append((self.name, "is empty"))
        if self.faults or self.secrets or root is None:
            raise self.refusal()
        return root

    def _tab(self, mark: Any) -> str:
        """What is said where a line is indented by a tab, which YAML's own words do not name."""
        lines = self.text.split("\n")
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        return (
            "the line is indented by a tab; YAML requires spaces, two per level" if "\t" in line[: len(line) - len(line.lstrip())] else ""
        )

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        line = _line_of(event)
        if depth > self.deepest:
            self.fault(line, f"nested deeper than {self.deepest}")
            raise self.refusal()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self.fault(line, f"anchors and aliases are not allowed ({show(event.anchor)}); write the value out, or quote the text")
        elif event.tag is not None:
            self.fault(line, f"tags are not allowed ({show(event.tag)}); quote the text if it was meant as one")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, depth + 1))
            return self.made(items, line)
        if isinstance(event, yaml.MappingStartEvent):
            return self.made(self.mapping(events, depth), line)
        text = "" if isinstance(event, yaml.AliasEvent) else event.value
        if bad := UNPRINTABLE.search(text):
            self.fault(line, f"the character {bad[0]!r} is not allowed in a recipe")
        return self.made(Written(text, quoted=not isinstance(event, yaml.AliasEvent) and bool(event.style)), line)

    def mapping(self, events: Iterator[Any], depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line_of(event)
            written = self.node(event, events, depth + 1).value
            key = str(written) if isinstance(written, Written) else ""
            if names_secret(key):
                self.secret(line)
            elif not is_word(key):
                self.fault(line, "a key must be a word" + (f", got {show(key)}" if key else ""))
            elif key == "<<" and not written.quoted:
                self.fault(line, "merge keys (<<) are not allowed; use extends")
            elif key in CODE_KEYS:
                self.fault(line, f"{key}: a recipe cannot name Python code")
            elif key in found:
                self.fault(line, f"key {show(key)} given twice (lines {lines[key]} and {line})")
            found[key] = self.node(next(events), events, depth + 1)
            lines[key] = line
            found[key].where = self.place or self.where(line)
        return found


def is_word(key: str) -> bool:
    """True for what may be a key: not empty, on one line, nothing in it that is not seen."""
    return 0 < len(key) <= _LONGEST_KEY and key.isprintable()


def _line_number(fault: tuple[str, str]) -> int:
    return int(number) if (number := fault[0].rpartition(":")[2]).isdigit() else 0


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _problem(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error).splitlines()[0]
