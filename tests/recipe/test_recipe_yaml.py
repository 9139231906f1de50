"""Only plain YAML is read, and every fault has its line; hostile files: tests/faults/test_faults_recipe.py."""

from pathlib import Path

import pytest

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


def test_a_key_has_at_most_200_characters() -> None:
    assert parse(f"{'k' * 200}: 1\n", "r.yaml").value.keys() == {"k" * 200}
    with pytest.raises(RecipeFault, match=r"r\.yaml:1: a key must be a word, got 'kkk"):
        parse(f"{'k' * 201}: 1\n", "r.yaml")


def test_all_that_is_not_allowed_is_named_at_once() -> None:
    found = faults("a: &x 1\nb: *x\nc: !!str d\na: 2\n")
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "4"]


def test_a_byte_order_mark_and_windows_line_ends_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes("\ufeffa: 1\r\nb: 2\r\n".encode())
    assert parse(load(tmp_path / "r.yaml", "r.yaml"), "r.yaml").plain() == {"a": "1", "b": "2"}
