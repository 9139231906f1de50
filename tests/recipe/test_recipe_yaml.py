"""Only plain YAML is read, every fault has its line, and no file makes the reader hang."""

import os
from pathlib import Path

import pytest
from hang import ending

from mini_tf.recipe.parsing.yaml_tree import load, parse
from mini_tf.system.errors import RecipeFault


def faults(text: str) -> tuple[str, ...]:
    with pytest.raises(RecipeFault) as refused:
        parse(text, "r.yaml")
    return refused.value.faults


def test_scalars_stay_as_they_were_written_and_know_their_line() -> None:
    tree = parse("a: 1e-3\nb:\n  - yes\n  - '010'\nc: {d: 0x10}\n", "r.yaml")
    assert tree.plain() == {"a": "1e-3", "b": ["yes", "010"], "c": {"d": "0x10"}}
    assert tree.value["b"].value[1].where == "r.yaml:4"
    assert [leaf.value.quoted for leaf in tree.leaves()] == [False, False, True, False]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: &x 1\n", "r.yaml:1: anchors and aliases are not allowed ('x')"),
        ("b: 1\na: *x\n", "r.yaml:2: anchors and aliases are not allowed ('x')"),
        ("&a [*a]", "r.yaml:1: anchors and aliases are not allowed ('a')"),
        ("a: !!python/name:os.system x", "r.yaml:1: tags are not allowed"),
        ("a: !!binary aGk=", "r.yaml:1: tags are not allowed"),
        ("a: !x {b: 1}", "r.yaml:1: tags are not allowed"),
        ("a: 1\nb: 2\na: 3\n", "r.yaml:3: key 'a' given twice (lines 1 and 3)"),
        ("<<: {a: 1}", "r.yaml:1: merge keys (<<) are not allowed; use extends"),
        ("a: 1\n---\nb: 2\n", "r.yaml:2: a second document starts here"),
        ("model:\n  _target_: torch.nn.Linear\n", "r.yaml:2: _target_: a recipe cannot name Python code"),
        ("class_path: x", "r.yaml:1: class_path: a recipe cannot name Python code"),
        ("? [a, b]\n: 1\n", "r.yaml:1: a key must be a word"),
        ("a: [1\nb: 2", "not YAML:"),
        ("a: 1\n\tb: 2", "not YAML:"),
        ("", "r.yaml: is empty"),
        ("# only a comment\n", "r.yaml: is empty"),
        ("a: 1\nb: \x00", "r.yaml:2: the character '\\x00' is not allowed"),
        ('a: "\\0"', "r.yaml:1: the character '\\x00' is not allowed"),
        ("a: \x1b[31m", "r.yaml:1: the character '\\x1b' is not allowed"),
        ("[" * 3000, "r.yaml:1: nested deeper than 16"),
        ("a: " + "{b: " * 40, "r.yaml:1: nested deeper than 16"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(text: str, fault: str) -> None:
    assert fault in faults(text)[0]


def test_a_key_has_at_most_200_characters() -> None:
    assert parse(f"{'k' * 200}: 1\n", "r.yaml").value.keys() == {"k" * 200}
    with pytest.raises(RecipeFault, match=r"r\.yaml:1: a key must be a word, got 'kkk"):
        parse(f"{'k' * 201}: 1\n", "r.yaml")


def test_all_that_is_not_allowed_is_named_at_once() -> None:
    found = faults("a: &x 1\nb: *x\nc: !!str d\na: 2\n")
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "4"]


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    assert "anchors and aliases" in faults(bomb)[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.mkdir(), "it is a folder, not a plain file"),
        (os.mkfifo, "it is a pipe, not a plain file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a plain file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.write_bytes(b"#" * (1 << 20) + b"#"), "larger than 1 MiB"),
        (lambda path: path.write_bytes(b"a: 1\nb: \xff\n"), "r.yaml:2: byte 8 is not UTF-8"),
    ],
)
def test_what_is_no_recipe_file_is_refused_at_once(tmp_path: Path, make, reason: str) -> None:
    make(tmp_path / "r.yaml")
    with ending(), pytest.raises(RecipeFault, match=reason):
        load(tmp_path / "r.yaml", "r.yaml")


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes("\ufeffa: 1\r\nb: 2\r\n".encode())
    assert parse(load(tmp_path / "r.yaml", "r.yaml"), "r.yaml").plain() == {"a": "1", "b": "2"}
