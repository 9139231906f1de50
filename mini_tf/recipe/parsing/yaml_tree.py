"""Parse strict YAML with line numbers: only mappings, lists and scalars, as written.

Works on parser events: anchors, aliases, merge keys, tags, duplicate keys, second documents and names of Python code
are errors. All errors are collected; a syntax error stops parsing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mini_tf.recipe.values import Scalar, show
from mini_tf.system.errors import RecipeFault
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import read_plain

MAX_REPORTED = 50
"""Largest number of errors reported for a recipe."""
CODE_KEYS = ("class_path", "_target_", "_component_", "import", "trust_remote_code")
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LONGEST_KEY = 200
_STACK = 100  # recursion depth that Python supports here and in the schema, whatever $MINITF_LIMITS allows
_LONG_KEY = 30
"""In characters, of up to 4 bytes: the two ways of writing differ from 128 on."""
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader, if built, is a hundred times as fast


@dataclass
class Node:
    """A value of a recipe and its location: "gpt.yaml:12" or an override.

    value: a Scalar, a list of nodes or a dict of nodes; before: the node of a lower level that it replaced.
    """

    value: Any
    where: str
    before: "Node | None" = field(default=None, repr=False)

    def plain(self) -> Any:
        """The value as nested lists and dicts of Scalar, for the schema."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def leaves(self) -> Iterator["Node"]:
        """All scalar nodes below this node."""
        if isinstance(self.value, Scalar):
            yield self
            return
        for child in self.value.values() if isinstance(self.value, dict) else self.value:
            yield from child.leaves()


def plain_yaml(text: str) -> Any:
    """The values of YAML that needs no checks, such as a shipped recipe."""
    loader = Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def to_yaml(plain: dict[str, Any]) -> str:
    """As YAML with keys in order, by libyaml where it writes what PyYAML does: it escapes emoji, and measures keys in
    bytes.
    """
    written = _dump(plain, _Dumper)
    return _dump(plain, yaml.SafeDumper) if "\\" in written or _has_long_key(plain) else written


def _dump(plain: dict[str, Any], dumper: Any) -> str:
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


def _has_long_key(value: Any) -> bool:
    if isinstance(value, dict):
        return any(len(str(key)) > _LONG_KEY or _has_long_key(part) for key, part in value.items())
    return isinstance(value, list) and any(map(_has_long_key, value))


def deepest() -> int:
    """The largest nesting depth of a file, and of files that extend each other."""
    return min(limits().recipe_depth, _STACK)


def recipe_fault(
    faults: Sequence[tuple[str, str]], more: int = 0, fault: type[RecipeFault] = RecipeFault
) -> RecipeFault:
    """One RecipeFault for all faults (location, message); lists MAX_REPORTED and counts the rest plus `more`."""
    reported = faults[:MAX_REPORTED]
    lines = [f"{location}: {message}" for location, message in reported]
    more += len(faults) - len(reported)
    rest = [f"and {more:,} more faults"] if more else []
    return fault(lines[0], where=list(dict.fromkeys(location for location, _ in reported)), faults=[*lines, *rest])


def load(path: Path, name: str) -> str:
    """The text of a recipe file; name: in messages. Pipes and devices are refused."""
    try:
        data = read_plain(path, limits().recipe_bytes)
    except OSError as error:
        raise RecipeFault(f"cannot read recipe {name}: {error.strerror}", where=[name]) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise recipe_fault([(f"{name}:{line}", f"byte {error.start} is not UTF-8")]) from None


def parse(text: str, name: str, location: str | None = None) -> Node:
    """Parse one YAML document into a tree; RecipeFault with one line per error.

    Errors and nodes are located at "name:line". With `location`, errors are located at `name` and all nodes at
    `location`: an override, which may only be printed once it is known to contain no secret.
    """
    return _Parser(text, name, location).parse()


class _Parser:
    """Processes events in order; collects errors, and raises at those after which parsing cannot continue."""

    def __init__(self, text: str, name: str, location: str | None) -> None:
        self.text, self.name, self.location = text, name, location
        self.faults: list[tuple[str, str]] = []
        self.secrets: dict[str, str] = {}
        self.deepest = deepest()

    def where(self, line: int) -> str:
        return f"{self.name}:{line}" if self.location is None else self.name

    def fault(self, line: int, message: str) -> None:
        self.faults.append((self.where(line), message))

    def secret(self, line: int) -> None:
        self.secrets[self.where(line)] = REASON

    def refusal(self) -> RecipeFault:
        """The collected errors; only those about secrets if there are any, since others could print them."""
        return recipe_fault(sorted(self.secrets.items(), key=_line_number) or self.faults)

    def located(self, value: Any, line: int) -> Node:
        return Node(value, self.location or self.where(line))

    def parse(self) -> Node:
        for number, line in enumerate(self.text.split("\n"), 1):
            if holds_secret(line):
                self.secret(number)
        if bad := UNPRINTABLE.search(self.text):
            message = f"the character {bad[0]!r} is not allowed in a recipe"
            self.fault(self.text.count("\n", 0, bad.start()) + 1, message)
            raise self.refusal()
        root: Node | None = None
        events: Iterator[Any] = iter(yaml.parse(self.text, Loader=Loader))
        try:
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    self.fault(_line_of(event), "a second document starts here; a recipe must be one document")
                    raise self.refusal()
                if isinstance(event, yaml.NodeEvent):
                    root = self.node(event, events, 0)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            if "nesting depth" in _problem(error):  # libyaml >= 0.2.6 reads ahead and has its own limit, over _STACK
                self.fault(mark.line + 1 if mark else 1, f"nested deeper than {self.deepest}")
                raise self.refusal() from None
            location = f"{mark.line + 1}:{mark.column + 1}" if mark else "1"
            self.faults.append(
                (
                    f"{self.name}:{location}" if self.location is None else self.name,
                    f"not YAML: {self._tab(mark) or _problem(error)}",
                )
            )
        if root is None and not self.faults:
            self.faults.append((self.name, "is empty"))
        if self.faults or self.secrets or root is None:
            raise self.refusal()
        return root

    def _tab(self, mark: Any) -> str:
        """The message for a line indented by a tab, which YAML's own message does not mention."""
        lines = self.text.split("\n")
        line = lines[mark.line] if mark and mark.line < len(lines) else ""
        return (
            "the line is indented by a tab; YAML requires spaces, two per level"
            if "\t" in line[: len(line) - len(line.lstrip())]
            else ""
        )

    def node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        line = _line_of(event)
        if depth > self.deepest:
            self.fault(line, f"nested deeper than {self.deepest}")
            raise self.refusal()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self.fault(
                line,
                f"anchors and aliases are not allowed ({show(event.anchor)}); write the value out, or quote the text",
            )
        elif event.tag is not None:
            self.fault(line, f"tags are not allowed ({show(event.tag)}); quote the text if it was meant as one")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self.node(event, events, depth + 1))
            return self.located(items, line)
        if isinstance(event, yaml.MappingStartEvent):
            return self.located(self.mapping(events, depth), line)
        text = "" if isinstance(event, yaml.AliasEvent) else event.value
        if bad := UNPRINTABLE.search(text):
            self.fault(line, f"the character {bad[0]!r} is not allowed in a recipe")
        return self.located(Scalar(text, quoted=not isinstance(event, yaml.AliasEvent) and bool(event.style)), line)

    def mapping(self, events: Iterator[Any], depth: int) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line_of(event)
            written = self.node(event, events, depth + 1).value
            key = str(written) if isinstance(written, Scalar) else ""
            if names_secret(key):
                self.secret(line)
            elif not is_word(key):
                self.fault(line, "a key must be a word" + (f", got {show(key)}" if key else ""))
            elif key == "<<" and not written.quoted:
                self.fault(line, "merge keys (<<) are not allowed; use extends")
            elif key in CODE_KEYS:
                self.fault(line, f"{key}: a recipe cannot name Python code")
            elif key in nodes:
                self.fault(line, f"key {show(key)} given twice (lines {lines[key]} and {line})")
            nodes[key] = self.node(next(events), events, depth + 1)
            lines[key] = line
            nodes[key].where = self.location or self.where(line)
        return nodes


def is_word(key: str) -> bool:
    """True for a valid key: printable, on one line, not empty."""
    return 0 < len(key) <= _LONGEST_KEY and key.isprintable()


def _line_number(fault: tuple[str, str]) -> int:
    return int(number) if (number := fault[0].rpartition(":")[2]).isdigit() else 0


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _problem(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    return ", ".join(part for part in parts if part) or str(error).splitlines()[0]


_NAMES = {
    *("password", "passwd", "passphrase", "pwd", "secret", "credential", "authorization", "bearer"),
    *("apikey", "hftoken", "apitoken", "authtoken", "accesstoken"),
}
"""Alone, or after another word: db_password."""
_SECRET_OWNERS = {
    *("access", "api", "auth", "oauth", "bearer", "refresh", "session", "secret", "private", "security", "login"),
    *("hub", "ssh"),
    *("hf", "huggingface", "openai", "anthropic", "wandb", "github", "gh", "gitlab", "slack", "aws"),
}
"""Words before "token" or "key" that make it a secret; most tokens in recipes are pieces of text."""
_FORMATS = (
    r"hf_[A-Za-z0-9]{30,}",
    r"sk-(?:proj|svcacct|admin|ant|or-v1)-[A-Za-z0-9_-]{16,}",
    r"sk-[0-9a-f]{32,}",
    r"sk-(?=[A-Za-z]*[0-9])(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{20,}",
    r"gh[opsur]_[A-Za-z0-9]{16,}",
    r"github_pat_[A-Za-z0-9_]{16,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{12,}",
    r"AIza[A-Za-z0-9_-]{30,}",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----",
)
"""Tokens of Hugging Face, OpenAI and similar services, GitHub, GitLab, Slack, AWS, Google; keys of ssh and TLS."""
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_FORMATS)})")
_PATH = re.compile(r"\s*(?:-|[a-z.]*\b(?:train|val|path)\s*[:=])\s*['\"]?[^\s:'\"#/]*/(?:[^#]|(?<!\s)#)*")
"""A line of a recipe, or an override, with file names, which may look like tokens."""
_URL = re.compile(r"://[^/\s:@'\"]{0,200}:[^/\s@'\"]{1,200}@")
REASON = "contains what looks like a secret; keep it in an environment variable, since recipes are copied and shared"


def names_secret(key: str) -> bool:
    """True for api_key, hf_token, accessToken, DB-PASSWORD; not for tokens, tokenizer, pad_token or d_key."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:200]).lower().replace("-", "_").strip("_")
    *before, last = (name if name.endswith("tokens") else name.removesuffix("s")).split("_")
    owner = before[-1] if before else ""
    return last in _NAMES or (last in ("token", "key") and owner in _SECRET_OWNERS) or (last == "token" and not owner)


def holds_secret(text: str) -> bool:
    """True for a line with a token of a well-known service and no file name, or with a password in a URL."""
    return _URL.search(text) is not None or (_TOKEN.search(text) is not None and _PATH.fullmatch(text) is None)


def without_secrets(argument: str) -> str:
    """A command-line argument with secrets replaced by ***, for messages."""
    name, equals, _ = argument.partition("=")
    if equals and names_secret(name.rpartition(".")[2].lstrip("-")):
        return f"{without_secrets(name)}=***"
    return _URL.sub("://***@", _TOKEN.sub("***", argument))
