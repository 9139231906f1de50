"""Recipes that are mistaken or hostile: each is refused in a few plain words, and nothing is created or changed."""

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import TINY, Done, minitf, trained
from hang import ending

from mini_tf.recipe.keys import keys
from mini_tf.recipe.parsing.yaml_tree import names_secret
from mini_tf.recipe.reading import dump, read
from mini_tf.system.errors import RecipeFault

SMALL = "model: decoder\ntrain: {steps: 100}\n"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
Make = Callable[[Path], Any]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, and an end for what would wait for ever."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with ending():
        yield


class Case(NamedTuple):
    """`words` stand in the message, or, where `exit_code` is 0, in the complete recipe that is shown."""

    words: tuple[str, ...]
    overrides: tuple[str, ...]
    make: Make
    exit_code: int


def case(
    name: str,
    words: str | tuple[str, ...],
    *overrides: str,
    recipe: str | bytes | Make = SMALL,
    more: str = "",
    exit_code: int = 3,
) -> Any:
    """A row of the table; `recipe`: what r.yaml holds, or puts in its place; `more`: its last lines."""
    if callable(recipe):
        make = recipe
    else:
        content = (recipe if isinstance(recipe, bytes) else recipe.encode()) + (f"{more}\n".encode() if more else b"")
        make = partial(Path.write_bytes, data=content)
    return pytest.param(Case((words,) if isinstance(words, str) else words, overrides, make, exit_code), id=name)


def accepted(name: str, shown: str, *overrides: str, more: str = "") -> Any:
    return case(name, shown, *overrides, more=more, exit_code=0)


def beside(text: str, **others: str | bytes | Make) -> Make:
    """r.yaml with this text, and other files beside it."""

    def write(path: Path) -> None:
        path.write_text(text)
        for name, content in others.items():
            if callable(content):
                content(path.parent / name)
            else:
                (path.parent / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What is there, and when each was changed."""
    found = {path: os.lstat(path) for path in sorted(folder.rglob("*"))}
    return {str(path): (state.st_mode, state.st_size, state.st_mtime_ns) for path, state in found.items()}


def assert_plain(done: Done) -> None:
    """Short lines for a person: no traceback, nothing that steers the terminal, no screens full."""
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    assert "a bug in minitf" not in done.stderr
    assert STEERING.search(done.stderr) is None
    assert len(lines) <= 51
    assert max(map(len, lines), default=0) < 700


BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
CHAIN = {f"c{i}": f"extends: c{i + 1}\n" for i in range(40)}

NOT_READABLE = [
    ("missing", lambda path: None, "no such file"),
    ("folder", lambda path: path.mkdir(), "a folder without a resolved.yaml"),
    ("pipe", os.mkfifo, "it is a pipe, not a plain file"),
    ("endless", lambda path: path.symlink_to("/dev/zero"), "it is a device, not a plain file"),
    ("terminal", lambda path: path.symlink_to("/dev/tty"), "cannot read recipe r.yaml"),
    ("loop", lambda path: path.symlink_to(path), "cannot read recipe r.yaml: Too many levels of symbolic links"),
    ("run-of-a-pipe", lambda path: (path.mkdir(), os.mkfifo(path / "resolved.yaml")), "it is a pipe, not a plain file"),
    ("too-large", lambda path: path.write_bytes(b"#" * (1 << 20) + b"#"), "larger than 1 MiB"),
    (
        "nul",
        lambda path: path.write_bytes(b"model: decoder\n\x00"),
        "r.yaml:2: the character '\\x00' is not allowed in a recipe",
    ),
    ("not-utf8", lambda path: path.write_bytes(b"model: decoder\na: \xff\n"), "r.yaml:2: byte 18 is not UTF-8"),
    ("binary", lambda path: path.write_bytes(bytes(range(256))), "is not UTF-8"),
]

EXTENDED = [
    ("missing", lambda path: None, "r.yaml:1: extends: no such recipe 'low'"),
    ("folder", lambda path: path.mkdir(), "cannot read recipe low: it is a folder, not a plain file"),
    ("pipe", os.mkfifo, "cannot read recipe low: it is a pipe, not a plain file"),
    ("not-utf8", lambda path: path.write_bytes(b"\n\xff\n"), "low:2: byte 1 is not UTF-8"),
]

TABLE = [
    *(case(f"R1-{name}", words, recipe=make) for name, make, words in NOT_READABLE),
    case("R2-syntax", "r.yaml:3:4: not YAML", more="a: @x"),
    case("R2-unclosed", "not YAML", more="a: [1,"),
    case("R2-tab", "not YAML", more="a: 1\n\tb: 2"),
    case("R2-empty", "r.yaml: is empty", recipe=""),
    case("R2-only-a-comment", "r.yaml: is empty", recipe="# nothing\n"),
    case("R2-list", "r.yaml:1: a recipe must be a mapping of sections, got a list", recipe="- a\n"),
    case("R2-text", "r.yaml:1: a recipe must be a mapping of sections, got 'abc'", recipe="abc\n"),
    case("R2-two-documents", "r.yaml:3: a second document starts here", more="---\na: 1"),
    case("R3-anchor", "r.yaml:3: anchors and aliases are not allowed ('x')", more="a: &x 1"),
    case("R3-alias", "r.yaml:3: anchors and aliases are not allowed ('x')", more="a: *x"),
    case("R3-merge-key", "r.yaml:3: merge keys (<<) are not allowed; use extends", more="<<: {a: 1}"),
    case("R3-self-reference", "anchors and aliases are not allowed ('a')", recipe="&a [*a]\n"),
    case("R3-alias-bomb", "r.yaml:1: anchors and aliases are not allowed ('a0')", recipe=BOMB),
    case("R3-override", "command line: model: anchors and aliases are not allowed", "model={a: &x 1}"),
    case("R4-python", "r.yaml:3: tags are not allowed", more="a: !!python/object/apply:os.system [id]"),
    case("R4-binary", "r.yaml:3: tags are not allowed", more="a: !!binary aGk="),
    case("R4-own", "r.yaml:3: tags are not allowed ('!x')", more="a: !x {b: 1}"),
    case("R4-override", "command line: model: tags are not allowed", "model={a: !!str 1}"),
    case("R5-top", "r.yaml:3: key 'train' given twice (lines 2 and 3)", more="train: {steps: 1}"),
    case("R5-within", "r.yaml:4: key 'lr' given twice (lines 3 and 4)", more="optimizer: {lr: 1,\n  lr: 2}"),
    case("R6-nested", "r.yaml:3: nested deeper than 16", more="a: " + "[" * 3000 + "]" * 3000),
    case(
        "R6-nested-override", "command line: model: nested deeper than 16", "model=" + "{a: " * 5000 + "1" + "}" * 5000
    ),
    case("R6-two-dots", "a key must be words joined by single dots", "train..seed=1"),
    case("R6-list-as-a-key", "r.yaml:3: a key must be a word", more="? [a, b]\n: 1"),
    case("R6-escaped-nul", "r.yaml:3: the character '\\x00' is not allowed", more='a: "\\0"'),
    case("R6-dots", "a key must be words joined by single dots", ".".join("a" * 3000) + "=1"),
    case("R6-long-number", "the number is too long", more=f"optimizer: {{lr: {'9' * 5000}}}"),
    case("R6-long-override", "the number is too long", f"train.seed={'9' * 5000}"),
    case(
        "R6-exponent", "optimizer.lr: must be a finite number, got '1e999999999'", more="optimizer: {lr: 1e999999999}"
    ),
    case("R6-long-key", "r.yaml:3: a key must be a word, got 'kkk", more=f"optimizer: {{{'k' * 900}: 1}}"),
    case("R6-long-override-key", "a key must be words", f"{'k' * 100_000}=1"),
    case("R6-many-keys", "and 2,950 more faults", more="".join(f"k{i}: 1\n" for i in range(3000))),
    case("R6-many-kinds", "and 1,950 more faults", f"model={{kind: decoder, attention: [{', '.join('x' * 2000)}]}}"),
    case("R6-long-list", ": must have at most 64 entries, got 20,000", f"generate.stop=[{', '.join('a' * 20_000)}]"),
    case(
        "R6-many-layers",
        "attention: must have at most 1,024",
        f"model={{kind: decoder, attention: [{', '.join(['window'] * 2000)}]}}",
    ),
    case(
        "R6-short-list",
        "optimizer.betas=[0, 0, 0]: must be a list of 2 shares such as 0.05 or 5%, got a list of 3",
        "optimizer.betas=[0, 0, 0]",
    ),
    case("R6-entry", "must be a list of texts, got a mapping as entry 2", "generate.stop=[a, {b: c}]"),
    case("R6-long-word", "(100002 characters)", recipe=SMALL.replace("decoder", "d" * 100_000)),
    case("R6-control-in-a-key", "r.yaml:3: the character '\\x1b' is not allowed", more='"a\x1b[31m": 1'),
    case("R6-escaped-control-in-a-key", "r.yaml:3: the character '\\x1b' is not allowed", more='"\\e[31m": 1'),
    case("R6-newline-in-a-key", "r.yaml:3: a key must be a word, got 'a\\nb'", more='"a\\nb": 1'),
    case("R6-bidi-in-a-key", "r.yaml:3: a key must be a word, got '\\u202elr'", more="optimizer: {\u202elr: 1}"),
    case(
        "R6-bidi-in-a-value", "optimizer.lr: must be a finite number, got '\\u202e1'", more="optimizer: {lr: \u202e1}"
    ),
    case("R6-control-override", "generate.prompt: the character '\\x1b' is not allowed", "generate.prompt=\x1b[2J"),
    case("R6-nul-override", "the character '\\x00' is not allowed", "generate.prompt=a\x00b"),
    case("R6-surrogate-override", "command line: data.train: the value is not UTF-8", "data.train=\udcff.txt"),
    case(
        "R7-unknown",
        "r.yaml:3: optimizer.learing_rate: no such key; did you mean optimizer.lr?",
        more="optimizer: {learing_rate: 1}",
    ),
    case(
        "R7-foreign",
        "r.yaml:3: optimizer.learning_rate: no such key; did you mean optimizer.lr?",
        more="optimizer: {learning_rate: 1}",
    ),
    case("R7-section", "r.yaml:3: optimiser: no such key; did you mean optimizer?", more="optimiser: {lr: 1}"),
    accepted("R8-exponent", "lr: 0.001\n", more="optimizer: {lr: 1e-3}"),
    accepted("R8-capital", "steps: 30000\n", "train.steps=3E4"),
    accepted("R8-underscores", "steps: 1000\n", "train.steps=1_000"),
    *(
        case(
            f"R9-{number}",
            f"r.yaml:3: optimizer.lr: must be a finite number, got '{number}'",
            more=f"optimizer: {{lr: {number}}}",
        )
        for number in (".nan", ".inf", "-.inf", "yes", "2024-01-31", "010")
    ),
    *(
        case(
            f"R9-steps-{number}",
            f"train.steps={number}: must be a whole number, got '{number}'",
            f"train.steps={number}",
        )
        for number in ("010", "1.5", "true", "12:30:45", "0x10")
    ),
    case(
        "R9-quoted",
        "optimizer.lr: must be a finite number, got the text '1e-3'; remove the quotes",
        more='optimizer: {lr: "1e-3"}',
    ),
    case(
        "R10-all-at-once",
        (
            "r.yaml:1: model.n_heads: 3 does not divide d_model 128",
            "r.yaml:2: train.context: must be at least 1, got 0",
            "r.yaml:3: schedule.warmup: 100 steps are not fewer than the 100 of the run",
            "command line: optimizer.lr=-1: must be greater than 0, got -1",
        ),
        "optimizer.lr=-1",
        recipe="model: {kind: decoder, n_heads: 3}\ntrain: {steps: 100, context: 0}\nschedule: {warmup: 100}\n",
    ),
    case(
        "R11-micro-batches",
        "train.micro_batch_size=3: 3 does not divide batch_size 8; use 2",
        "train.micro_batch_size=3",
        "train.batch_size=8",
    ),
    *(
        case(
            f"R12-{word}",
            f"r.yaml:2: {word}: a recipe cannot name Python code",
            recipe=f"model:\n  {word}: os.system\ntrain: {{steps: 1}}\n",
        )
        for word in ("class_path", "_target_", "_component_", "import", "trust_remote_code")
    ),
    case("R12-deep", "r.yaml:3: _target_: a recipe cannot name Python code", more="expect: {a: [{_target_: x}]}"),
    case("R12-override", "a recipe cannot name Python code", "model._target_=os.system"),
    case(
        "R12-inside-an-override",
        "command line: model: class_path: a recipe cannot name Python code",
        "model={class_path: x}",
    ),
    case("R12-private-file", "model.attention: no such kind '__init__'", "model={kind: decoder, attention: __init__}"),
    case("R12-path", "no such kind '../../etc/passwd'", "model=../../etc/passwd"),
    case("R15-value", "command line: optimizer.lr=abc: must be a finite number, got 'abc'", "optimizer.lr=abc"),
    case("R15-key", "command line: optimizer.lrr=1: no such key; did you mean optimizer.lr?", "optimizer.lrr=1"),
    case("R15-syntax", "command line: model: not YAML", "model={a: [1"),
    case("R15-extends", "extends is only allowed in a recipe file", "extends=quickstart"),
    case("R15-no-override", "'abc' is not KEY=VALUE", "abc", exit_code=2),
]


def judged(row: Case, *command: str) -> None:
    row.make(Path("r.yaml"))
    before = listing(Path.cwd().parent)
    done = minitf(*command, "r.yaml", *row.overrides)
    assert done.exit_code == row.exit_code, done.stderr
    assert_plain(done)
    if row.exit_code:
        assert done.stdout == ""
        assert [words for words in row.words if words not in done.stderr] == []
    else:
        assert row.words[0] in done.stdout
    assert listing(Path.cwd().parent) == before


@pytest.mark.parametrize("row", TABLE)
def test_a_recipe_is_refused_in_plain_words_and_nothing_is_written(row: Case) -> None:
    judged(row, "recipe", "show")


@pytest.mark.parametrize("row", TABLE[::7])
def test_a_recipe_is_judged_the_same_by_the_command_that_trains(row: Case) -> None:
    judged(row, "pretrain", "--print-config")


@pytest.mark.parametrize("row", [row for row in TABLE if row.values[0].exit_code and not row.id.startswith("R1-")][::7])
def test_the_envelope_of_a_refusal_tells_its_code_its_positions_and_its_message(row: Case) -> None:
    row.make(Path("r.yaml"))
    answer = json.loads(minitf("recipe", "check", "r.yaml", *row.overrides, "--json").stdout)
    assert (answer["ok"], answer["exit_code"]) == (False, row.exit_code)
    told = [answer["error"]["message"], *answer["error"].get("faults", [])]
    assert [words for words in row.words if not any(words in line for line in told)] == []
    assert len(told) <= 52


@pytest.mark.parametrize(
    ("command", "exit_code", "words"),
    [
        pytest.param(["recipe", "check", "z" * 100_000], 2, "(100000 characters)", id="R6-long-name"),
        pytest.param(["recipe", "check", "z" * 100_000 + ".yaml"], 3, "(100005 characters)", id="R6-long-file-name"),
        pytest.param(
            ["recipe", "check", "a\nb.yaml"],
            3,
            "cannot read recipe a\\nb.yaml: no such file",
            id="R6-newline-in-a-name",
        ),
        pytest.param(["recipe", "check", "\udcff\x1b[2J\u202e.yaml"], 3, "no such file", id="R6-not-utf8-in-a-name"),
        pytest.param(["recipe", "check", ""], 3, "a folder without a resolved.yaml", id="R1-no-name"),
        pytest.param(["recipe", "show", "--why", "z" * 100_000], 2, "no such key 'zzz", id="R6-long-why"),
        pytest.param(["recipe", "keys", "\x1b[2J\n"], 2, "no such section", id="R6-control-in-a-section"),
        pytest.param(
            ["recipe", "init", "r.yaml"], 2, "r.yaml already exists; give another name", id="R14-init-over-a-recipe"
        ),
        pytest.param(["recipe", "init", "/dev/zero"], 2, "already exists", id="R14-init-over-a-device"),
        pytest.param(
            ["recipe", "init", "no/r.yaml"],
            6,
            "cannot write no/r.yaml: No such file or directory",
            id="R14-init-nowhere",
        ),
        pytest.param(
            ["recipe", "init", "x.yaml", "--from", "z" * 100_000], 2, "no such preset 'zzz", id="R6-long-preset"
        ),
    ],
)
def test_arguments_that_are_no_recipe_are_refused_in_plain_words(
    command: list[str], exit_code: int, words: str, tmp_path: Path
) -> None:
    Path("r.yaml").write_text(SMALL)
    before = listing(tmp_path)
    done = minitf(*command)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert words in done.stderr
    assert_plain(done)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("files", "words"),
    [
        *(pytest.param({"low": make}, words, id=f"R1-{name}") for name, make, words in EXTENDED),
        pytest.param({"low": SMALL + "a: &x 1\n"}, "low:3: anchors and aliases are not allowed", id="R3-anchor"),
        pytest.param(
            {"low": SMALL + "optimizer: {lr: x}\n"},
            "low:3: optimizer.lr: must be a finite number, got 'x'",
            id="R15-value",
        ),
        pytest.param({"low": "- a\n"}, "low:1: a recipe must be a mapping of sections", id="R2-list"),
        pytest.param({"low": "extends: r.yaml\n"}, "low:1: extends: r.yaml extends itself", id="R1-circle"),
        pytest.param(
            {"low": lambda path: path.symlink_to("r.yaml")},
            "r.yaml:1: extends: low extends itself",
            id="R1-circle-by-a-link",
        ),
        pytest.param(
            {"low": "extends: c0\n", **CHAIN}, "c14:1: extends: more than 16 recipes extend each other", id="R6-chain"
        ),
    ],
)
def test_what_a_recipe_extends_is_judged_as_it_is_itself(files: dict[str, Any], words: str, tmp_path: Path) -> None:
    beside("extends: low\n" + SMALL, **files)(Path("r.yaml"))
    before = listing(tmp_path)
    done = minitf("pretrain", "r.yaml")
    assert (done.exit_code, done.stdout) == (3, "")
    assert words in done.stderr
    assert_plain(done)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "value", ["9" * 5000, "9" * 18, "{a: {b: [1]}}", "[[1], {a: 2}]", "\u202e"], ids=lambda value: f"R9-{value[:12]!r}"
)
def test_no_key_takes_a_value_of_another_kind_for_its_own(value: str) -> None:
    """Whatever a key is given: it is one of its values, or there is one line in words of ours. A key of each type."""
    Path("r.yaml").write_text(SMALL)
    lines: list[str] = []
    for name in {key.type: key.name for key in keys()}.values():
        try:
            read("r.yaml", [f"{name}={value}"])
        except RecipeFault as refused:
            lines += refused.faults
    assert len(lines) > 50
    assert [
        line for line in lines if len(line) > 700 or re.search(r"\n|Input should|should have|validation|instance", line)
    ] == []


@pytest.mark.parametrize(
    ("limits", "recipe", "exit_code", "words"),
    [
        pytest.param("recipe_bytes=40", SMALL, 0, "", id="R1-enough"),
        pytest.param(
            "recipe_bytes=20", SMALL, 3, "cannot read recipe r.yaml: it is larger than 20 bytes", id="R1-lowered"
        ),
        pytest.param("recipe_bytes=2M", SMALL + "#" * (1 << 20), 0, "", id="R1-raised"),
        pytest.param("recipe_depth=1", SMALL, 3, "r.yaml:2: nested deeper than 1", id="R6-lowered"),
        pytest.param(
            "recipe_depth=20", SMALL + "a: " + "[" * 18 + "]" * 18, 3, "r.yaml:3: a: no such key", id="R6-raised"
        ),
        pytest.param(
            "recipe_depth=9M",
            SMALL + "a: " + "[" * 9000 + "]" * 9000,
            3,
            "nested deeper than 100",
            id="R6-raised-too-far",
        ),
        pytest.param("recipe_bits=3", SMALL, 2, "MINITF_LIMITS: no such limit 'recipe_bits'", id="R1-unknown"),
        pytest.param(
            "recipe_bytes=-1", SMALL, 2, "MINITF_LIMITS: recipe_bytes must be a whole number", id="R1-negative"
        ),
        pytest.param("\x1b[2J", SMALL, 2, "MINITF_LIMITS: no such limit", id="R1-control"),
    ],
)
def test_limits_belong_to_the_environment(
    limits: str, recipe: str, exit_code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINITF_LIMITS", limits)
    Path("r.yaml").write_text(recipe)
    done = minitf("recipe", "check", "r.yaml")
    assert done.exit_code == exit_code, done.stderr
    assert words in done.stderr
    assert_plain(done)
    assert len(done.stderr.splitlines()) == (exit_code != 0)


SECRET = "hunter2Zebra"
KEYS = {
    "hf": "hf_" + "AbCd1234" * 4,
    "sk": "sk-" + "proj-" + "AbCd1234" * 4,
    "aws": "AKIA" + "ABCD1234" * 2,
    "github": "ghp_" + "AbCd1234" * 4,
    "url": f"https://someone:{SECRET}@example.org/corpus.txt",
}
"""Put together here, so that nobody who looks for secrets finds one in this file."""


def hidden(
    name: str, place: str, *overrides: str, recipe: str = SMALL, secret: str = SECRET, exit_code: int = 3
) -> Any:
    return pytest.param(recipe, overrides, place, secret, exit_code, id=f"R13-{name}")


@pytest.mark.parametrize(
    ("recipe", "overrides", "place", "secret", "exit_code"),
    [
        *(
            hidden(name, "r.yaml:3: ", recipe=SMALL + f"hub: {{api_key: {name[:1]}{SECRET}}}\n")
            for name in ("*anchor", "&alias", "!tag", "@syntax", "plain")
        ),
        *(
            hidden(word, "r.yaml:3: ", recipe=SMALL + f"{word}: {SECRET}\n")
            for word in ("hf_token", "HF_TOKEN", "passwords", "accessToken", "db-password")
        ),
        hidden("block", "r.yaml:3: ", recipe=SMALL + f"secret: |\n  one\n  {SECRET}\n"),
        hidden("mapping", "r.yaml:3: ", recipe=SMALL + f"credentials: {{{SECRET}: {SECRET}, {SECRET}: 1}}\n"),
        hidden("before-another-fault", "r.yaml:3: ", recipe=SMALL + f"password: {SECRET}\na: [1\n"),
        hidden("override", "command line: hub.token: ", f"hub.token={SECRET}"),
        hidden("beside-an-override", "command line: password: ", "train.seed=x", f"password={SECRET}"),
        hidden("inside-an-override", "command line: model: ", f"model={{kind: decoder, api_key: {SECRET}}}"),
        hidden("unreadable-override", "command line: model: ", f"model={{a: @, api_key: {SECRET}}}"),
        hidden("no-override", "'api-key=***' is not KEY=VALUE", f"api-key={SECRET}", exit_code=2),
        *(
            hidden(f"value-{name}", "r.yaml:3: ", recipe=SMALL + f"data: {{train: ['{key}']}}\n", secret=key)
            for name, key in KEYS.items()
        ),
        *(
            hidden(f"override-{name}", "command line: data.train: ", f"data.train={key}", secret=key)
            for name, key in KEYS.items()
        ),
        hidden("comment", "r.yaml:3: ", recipe=SMALL + f"# mine: {KEYS['hf']}\n", secret=KEYS["hf"]),
        hidden("key", "r.yaml:3: ", recipe=SMALL + f"{KEYS['sk']}: 1\n", secret=KEYS["sk"]),
        hidden("key-of-an-override", "command line: ", f"{KEYS['hf']}=1", secret=KEYS["hf"]),
        hidden("recipe", "'***' is not KEY=VALUE", KEYS["sk"], secret=KEYS["sk"], exit_code=2),
    ],
)
def test_a_secret_is_refused_and_never_repeated(
    recipe: str, overrides: tuple[str, ...], place: str, secret: str, exit_code: int, tmp_path: Path
) -> None:
    Path("r.yaml").write_text(recipe)
    before = listing(tmp_path)
    for command in (("recipe", "check", "--json"), ("pretrain", "--debug", "-d", "run")):
        done = minitf(*command, "r.yaml", *overrides)
        assert done.exit_code == exit_code
        assert place in done.stderr
        assert secret not in done.stdout + done.stderr
        assert SECRET not in done.stdout + done.stderr
    assert listing(tmp_path) == before
    if exit_code == 3 and "{a: @" not in "".join(overrides):
        assert "contains what looks like a secret; keep it in an environment variable" in done.stderr


@pytest.mark.parametrize(
    "override",
    [
        "generate.prompt=the password is",
        'generate.prompt="token: secret"',
        "data.train=sk-slovak-wikipedia-2023-articles.txt",
        "data.train=hf_openwebtextsample.jsonl",
        "data.train=hf_wikitext103rawvalid.txt",
        "data.train=en-sk-OpenSubtitles2018.txt",
        "data.train=corpora/sk-wikipedia20240601.txt",
        f"data.train=corpora/{KEYS['hf']}/a.txt",
        f"tokenizer.path=models/{KEYS['sk']}/tokenizer.json",
        "data.train=data/risk-management-of-large-companies2023.txt",
        "data.train=hf:someone/hf_wikitext103",
        "data.train=http://localhost:8080/a@b.txt",
        "data.train=0123456789abcdef0123456789abcdef01234567.txt",
        "train.tokens=5k",
    ],
    ids=lambda override: f"R13-{override}",
)
def test_words_and_paths_are_no_secrets(override: str) -> None:
    Path("r.yaml").write_text(SMALL)
    done = minitf("recipe", "check", "r.yaml", override)
    assert done.exit_code == 0, done.stderr


def test_no_key_of_a_recipe_sounds_like_a_secret() -> None:
    """R13: nor do the names that other tools have for pieces of text."""
    assert [key.name for key in keys() if any(map(names_secret, key.name.split(".")))] == []
    assert not any(
        map(names_secret, ("pad_token", "eos_token", "add_bos_token", "tokens", "max_tokens", "author", "tokenizer"))
    )
    assert not any(
        map(names_secret, ("separator_token", "audio_token", "user_token", "token_type", "key", "d_key", "num_keys"))
    )


@pytest.mark.parametrize(
    "name",
    ["openai_key", "hftoken", "bearer", "HFToken", "ssh-key", "refresh_token", "token", "githubToken", "API_KEYS"],
)
def test_a_key_that_sounds_like_a_secret_is_one(name: str) -> None:
    """R13"""
    assert names_secret(name)


@pytest.mark.parametrize("key", ["data.train", "data.val", "tokenizer.path"])
def test_a_folder_may_be_called_like_a_secret(key: str) -> None:
    """R13: what was started can be read again, wherever it lies."""
    folder = Path(KEYS["hf"])
    folder.mkdir()
    recipe = read(
        overrides=[f"{key}={folder.absolute()}/a", *(["data.train=[/x/b, /x/c]"] if key != "data.train" else [])]
    ).recipe
    Path("resolved.yaml").write_text(dump(recipe))
    assert KEYS["hf"] in Path("resolved.yaml").read_text()
    assert read("resolved.yaml").recipe == recipe
    Path("r.yaml").write_text(
        f"data: {{train: {SECRET}}}\ntokenizer:\n  path: https://me:{SECRET}@example.org/{KEYS['hf']}/a\n"
    )
    with pytest.raises(RecipeFault, match=r"r\.yaml:3: contains what looks like a secret"):
        read("r.yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps."""
    return trained(tmp_path_factory.mktemp("runs") / "run", "train.steps=2", "eval.tokens=100")


QUICK = ("train.steps=2", "eval.tokens=100", "runtime.device=cpu", "runtime.threads=1", "log.samples=0")


def in_a_folder(home: Path, run: Path, name: str) -> Path:
    """A place that is no place for a run."""
    made = {
        "root": Path("/"),
        "home": home,
        "file": home / "file",
        "link": home / "link",
        "data": home / "data",
        "below-a-file": home / "file" / "x",
    }
    (home / "file").write_text("mine")
    (home / "link").symlink_to(run)
    (home / "data").mkdir()
    (home / "data" / "corpus.txt").write_text("mine")
    return made[name]


@pytest.mark.parametrize(
    ("name", "exit_code", "words"),
    [
        pytest.param("root", 5, "cannot be a run folder", id="R14-root"),
        pytest.param("home", 5, "cannot be a run folder", id="R14-home"),
        pytest.param("file", 5, "cannot be a run folder", id="R14-file"),
        pytest.param("link", 5, "cannot be a run folder", id="R14-link"),
        pytest.param(
            "data", 5, "is not empty and not a minitf run folder; choose another folder with -d", id="R14-data-folder"
        ),
        pytest.param("below-a-file", 6, "cannot create", id="R14-below-a-file"),
    ],
)
def test_a_run_never_takes_a_place_that_is_not_its_own(
    name: str, exit_code: int, words: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    place = in_a_folder(home, run, name)
    before = listing(tmp_path) | listing(run)
    done = minitf("pretrain", TINY, *QUICK, "-d", place)
    assert (done.exit_code, done.stdout) == (exit_code, ""), done.stderr
    assert words in done.stderr
    assert_plain(done)
    assert listing(tmp_path) | listing(run) == before


def test_a_recipe_is_read_where_there_is_no_home(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: a container may have neither."""
    monkeypatch.delenv("HOME")
    done = minitf("pretrain", TINY, *QUICK, "-d", run)
    assert (done.exit_code, done.stdout) == (0, f"{run}\n"), done.stderr


@pytest.mark.parametrize(
    ("override", "words"),
    [
        pytest.param("train.steps=3", "was started with another recipe: train.steps: 2 -> 3", id="R17-steps"),
        pytest.param("optimizer.lr=1", "was started with another recipe: optimizer.lr: 0.01 -> 1.0", id="R17-C12-rate"),
        pytest.param("train.seed=1", "was started with another recipe: train.seed: 0 -> 1", id="R17-seed"),
        pytest.param("model.d_ff=32", "was started with another recipe: model.d_ff:", id="R17-model"),
        pytest.param("log.every_steps=3", None, id="R17-log"),
        pytest.param("checkpoint.keep_last=5", None, id="R17-keep"),
        pytest.param("generate.temperature=0.5", None, id="R17-samples"),
    ],
)
def test_a_run_goes_on_only_with_the_recipe_that_decides_its_result(
    override: str, words: str | None, run: Path
) -> None:
    before = listing(run)
    done = minitf("pretrain", TINY, *QUICK, override, "-d", run)
    assert done.exit_code == (0 if words is None else 5), done.stderr
    assert (words or "already complete") in done.stderr
    assert_plain(done)
    assert listing(run) == before
