"""The built-in pairs of a docstring's explanation and its summary, out of a small package and of Python's own
library.
"""

import json
import re
from pathlib import Path

import pytest
from data_of import dataset_of

from mini_tf.data.corpora import _documentation as documentation
from mini_tf.data.corpora import docs_summaries
from mini_tf.data.corpora.docs_summaries import DocstringSummary, pair_of, pairs
from mini_tf.recipe.sections import Data
from mini_tf.system.cache import cache_folder
from mini_tf.system.errors import Unavailable

MODULE = '''"""Boats and all that belongs to them.

A boat is something that floats on the water of a river or a lake.

    >>> Boat("a boat that is there for the eyes of a reader and not of a model")

It is not the task of this module to build one.
"""

import nothing_of_this_name


class Boat:
    """Something that floats.
    It may be moved by the wind
    or by its crew, but not by both.
    """

    def __init__(self) -> None:
        """A boat without a crew."""

    async def sail(self, wind):
        """Let the ``wind`` move the
        boat
        for an hour.

        `wind` may be none at all, and the boat then stays where it is. The arguments are:

        wind -- the wind that is there to move the boat
        crew -- the people that are in it on this day

        ====== ================================
        Sail   Wind that it is made for.
        ====== ================================
        """

        def inner():
            """Return to the harbour of this boat.

            The way is the same as the one that was sailed before.
            """


def rudder(angle):
    """rudder(angle) -> Boat

    Turn the boat by an angle that is given in degrees.
    """


def short():
    """This summary is far longer than what explains it below.

    It is so for a test.
    """


def two():
    """This is one sentence. This is another one.

    They are not a summary, as there are two of them in a line.
    """
'''
EXPECTED = [
    DocstringSummary(
        "A boat is something that floats on the water of a river or a lake. It is not the task of this module to build"
        " one.",
        "Boats and all that belongs to them.",
    ),
    DocstringSummary("It may be moved by the wind or by its crew, but not by both.", "Something that floats."),
    DocstringSummary(
        "wind may be none at all, and the boat then stays where it is.", "Let the wind move the boat for an hour."
    ),
    DocstringSummary("The way is the same as the one that was sailed before.", "Return to the harbour of this boat."),
]


@pytest.fixture(scope="module")
def made() -> Path:
    """Of the Python that is running, as it lies in the cache, which all tests share."""
    return docs_summaries.Settings().corpus(cache_folder())


@pytest.fixture(scope="module")
def rows(made: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in made.read_text(encoding="utf-8").splitlines()]


def package(folder: Path, **modules: str) -> Path:
    for name, source in modules.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def test_a_package_gives_its_summaries_with_what_they_sum_up_and_is_not_imported(tmp_path: Path) -> None:
    assert list(pairs(package(tmp_path, boats=MODULE))) == EXPECTED


def test_files_come_by_name_and_no_source_comes_twice(tmp_path: Path) -> None:
    again = '"""Something that swims.\n\nIt may be moved by the wind or by its crew, but not by both.\n"""\n'
    sunk = '"""Boats that have sunk.\n\nThey are below the water, and there is no way to bring them up.\n"""\n'
    one = package(
        tmp_path / "one",
        boats=MODULE,
        a__first=sunk,
        copy=again,
        tests__boats=again.replace("wind", "sea"),
        broken="def (",
    )
    sunk = DocstringSummary("They are below the water, and there is no way to bring them up.", "Boats that have sunk.")
    assert list(pairs(one)) == [sunk, *EXPECTED]
    assert next(iter(pairs(package(tmp_path / "two", a=again, boats=MODULE)))).target == "Something that swims."


@pytest.mark.parametrize(
    ("first", "target"),
    [
        ("Move the boat", "Move the boat"),
        ("Call :meth:`~boats.sail` with a *wind*.", "Call boats.sail with a wind."),
        ("Moves boats", None),
        ("move(boat, wind)", None),
        ("move = boat with a wind", None),
        ("Internal: move the boat.", None),
        ("Move the boat {quickly} now.", None),
        ("Move the boat as follows:", None),
        ("Move the boat 12 34 56 78 90.", None),
        ("Bewegt ein größeres Boot.", None),
        ("", None),
    ],
)
def test_a_summary_is_a_sentence_of_three_words_or_a_title_and_no_signature(first: str, target: str | None) -> None:
    body = "The wind is what moves a boat, and a boat has to be there for the wind to move."
    assert pair_of(f"{first}\n\n{body}") == (None if target is None else DocstringSummary(body, target))


def test_an_explanation_says_nothing_of_lists_that_are_not_there() -> None:
    summary = "Move the boat.\n\n"
    kept = "The boat is moved by the wind that is there."
    for left_out in (
        "Args: wind: The wind that is there for the boat.",
        "Optional arguments: the wind and the crew that is in the boat.",
        "wind -- the wind that is there to move the boat.",
        "THE BOAT IS PROVIDED AS IT IS, AND THERE IS NO WARRANTY FOR IT.",
        "to be moved by the wind that is there.",
        "There are three of the winds that move it:",
        "Move the boat.",
    ):
        assert pair_of(f"{summary}{left_out}\n\n{kept}") == DocstringSummary(kept, "Move the boat."), left_out
        assert pair_of(f"{summary}{kept}\n\n{left_out}") == DocstringSummary(kept, "Move the boat."), left_out
    noted = "Note: the wind is there for all of the boats on a lake."
    assert pair_of(summary + noted) == DocstringSummary(noted, "Move the boat.")


def test_pythons_documentation_gives_about_two_thousand_summaries(rows: list[dict[str, str]]) -> None:
    assert 1_200 < len(rows) < 3_500
    known = {row["target"]: row["source"] for row in rows}
    assert known["Generic (shallow and deep) copying operations."].startswith(
        "For module specific errors, copy.Error is raised."
    )
    words = [len(row["source"].split()) / len(row["target"].split()) for row in rows]
    assert sorted(words)[len(words) // 2] > 2, "most explanations are longer than twice their summary"


def test_every_pair_is_a_line_of_prose_and_a_shorter_one_that_it_does_not_begin_with(
    rows: list[dict[str, str]],
) -> None:
    assert len({row["source"] for row in rows}) == len(rows)
    for row in rows:
        source, target = row["source"], row["target"]
        assert list(row) == ["source", "target"]
        assert len(source) >= len(target)
        assert 3 <= len(target.split()) <= 40
        assert not source.startswith(target)
        for side in (source, target):
            assert side.isascii()
            assert side.isprintable()
            assert side == " ".join(side.split())
            assert not re.search(r">>>|->|==|[{}|]|https?:", side), side
        assert not re.search(r"\. [A-Z]", target), target


def test_a_python_without_its_librarys_sources_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "library").mkdir()
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "library")})
    with pytest.raises(Unavailable, match="docs-summaries: this Python is installed without the source files"):
        dataset_of("pairs").find("docs-summaries", "data.train")
    assert not list((tmp_path / "cache").iterdir())


def test_a_recipe_names_the_pairs_and_gives_no_columns(
    made: Path, rows: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(made.parent))
    data = Data(train="docs-summaries")
    assert data.pairs
    read = dataset_of("pairs").read(dataset_of("pairs").find(data.train, "data.train"), data, data.train)
    assert [(pair.source, pair.target, pair.alignment) for pair in read] == [
        (row["source"], row["target"], None) for row in rows
    ]
