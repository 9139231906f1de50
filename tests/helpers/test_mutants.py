"""What mutation testing reckons, matches and leaves out; mutants are made and run by `python -m tests.mutants`
alone.
"""

from pathlib import Path

import pytest
from mutants.forked import Tree
from mutants.reach import _around, _is_field, _kinship, _statement
from mutants.report import Reasons, wilson
from mutants.run import _by_file
from mutants.sample import Mutant, _left_out

SOURCE = """from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from os import path
LARGEST = 3
class Small:
    size: "int | None" = 1
    def double(self, by: "int | None" = 2) -> "int | None":
        if (
            self.size == by
        ):
            return 4
        return None
    @overload
    def double(self, by: int = 5) -> int: ...
"""


@pytest.mark.parametrize(("found", "n"), [(95, 100), (100, 100), (0, 7), (450, 900)])
def test_the_interval_ends_where_the_share_seen_is_196_standard_errors_from_the_true_one(found: int, n: int) -> None:
    low, high = wilson(found, n)
    assert low == 0 if found == 0 else low < found / n
    assert high == 1 if found == n else high > found / n
    for end in {low, high} - {0, 1}:
        assert abs(found / n - end) == pytest.approx(1.959964 * (end * (1 - end) / n) ** 0.5, rel=1e-6)


def mutant(before: str, after: str, file: str = "mini_tf/nn/layers/norm.py") -> Mutant:
    return Mutant(file, 1, before, after, 0, "")


def test_a_reason_is_matched_by_file_and_text_whatever_the_spaces() -> None:
    reasons = Reasons(
        [{"file": "mini_tf/nn/layers/norm.py", "before": "a < b", "after": "a <= b", "reason": "never equal"}]
    )
    assert reasons.of(mutant("a < b", "a <=  b")) == "never equal"
    assert reasons.of(mutant("a < b", "a > b")) is None
    assert reasons.of(mutant("a < b", "a <= b", file="mini_tf/nn/layers/head.py")) is None
    assert reasons.idle([mutant("a < b", "a <= b")]) == []
    assert reasons.idle([mutant("a < c", "a <= c")]) == reasons.entries


def test_what_the_type_checker_alone_reads_is_left_out_and_defaults_are_not() -> None:
    lines = SOURCE.splitlines()
    ranges = _left_out(SOURCE)

    def out(text: str) -> list[bool]:
        positions = [(n, line.index(text)) for n, line in enumerate(lines, 1) if text in line]
        return [any(low <= place < high for low, high in ranges) for place in positions]

    assert out("from os") == [True]
    assert out("| None") == [True, True]
    assert out("= 1") == out("= 2") == out("== by") == out("= 3") == [False]
    assert out("= 5") == [True]
    assert all(any(low <= (7, column) < high for low, high in ranges) for column in (26, 46))


@pytest.mark.parametrize(
    ("line", "statement", "inside"),
    [
        (4, range(4, 5), False),
        (6, range(6, 7), False),
        (7, range(7, 8), False),
        (9, range(8, 11), True),
        (11, range(11, 12), True),
    ],
)
def test_a_fault_is_tried_where_the_statement_it_is_in_is_run(line: int, statement: range, inside: bool) -> None:
    assert _statement(SOURCE, line) == (statement, inside)


@pytest.mark.parametrize(("line", "around"), [(4, range(1, 15)), (6, range(5, 15)), (7, range(7, 13))])
def test_a_default_is_tried_where_its_function_or_class_is_run_and_a_constant_where_its_file_is(
    line: int, around: range
) -> None:
    assert _around(SOURCE, line) == around


def test_the_record_of_keys_is_asked_where_a_field_has_a_value() -> None:
    assert [line for line in range(1, 13) if _is_field(SOURCE, line)] == [6]


def test_tests_named_after_the_file_go_before_those_of_its_package_and_those_before_others() -> None:
    files = ("tests/test_nn_norm.py::test_a", "tests/test_nn_head.py::test_a", "tests/test_cost.py::test_a")
    worth = [_kinship("mini_tf/nn/layers/norm.py", name) for name in files]
    assert worth == sorted(worth, reverse=True)
    assert len(set(worth)) == 3


def test_tests_of_one_file_run_behind_each_other_with_the_most_promising_file_first() -> None:
    tests = [("tests/b.py::x", 1.0), ("tests/a.py::y", 2.0), ("tests/b.py::z", 3.0), ("tests/a.py::w", 4.0)]
    assert list(_by_file(tests)) == ["tests/b.py::x", "tests/b.py::z", "tests/a.py::y", "tests/a.py::w"]


def test_a_fault_is_in_the_copy_alone_and_what_was_compiled_of_the_file_goes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    compiled = tmp_path / "work" / "minitf" / "__pycache__" / "code.cpython-311.pyc"
    root.mkdir()
    (root / "code.py").write_text("a = 1\n")
    compiled.parent.mkdir(parents=True)
    tree = Tree(root, tmp_path / "work", ["code.py"])
    compiled.touch()
    tree.write("code.py", b"a = 2\n")
    assert (root / "code.py").read_text() == "a = 1\n"
    assert (tree.path / "code.py").read_text() == "a = 2\n"
    assert not compiled.exists()
    tree.restore("code.py")
    assert (tree.path / "code.py").read_text() == "a = 1\n"
