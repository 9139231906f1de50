"""The contract of corpora over every kind, each cut short, and against kinds that break it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from mini_tf.data.corpora import _documentation as documentation
from mini_tf.data.corpora import docs_summaries, grammar, python_docs, translate_toy
from mini_tf.recipe.corpora import CorpusSettings, built_in_corpora, find_corpus, has_pairs
from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import cases_of, run_all
from mini_tf.testing import corpora as contract
from mini_tf.testing.kinds import kinds_in

SMALL = {"n_documents": 40}
"""Settings of the corpora that have any."""
LIBRARY = '''"""Boats and all that belongs to them.

A boat is something that floats on the water of a river or a lake.
"""
def sail(wind):
    """Let the wind move the boat for an hour.

    It may be moved by the wind or by its crew, but not by both of them.
    """
'''


@pytest.fixture
def _short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small grammars, and a standard library of one file."""
    (tmp_path / "boats.py").write_text(LIBRARY)
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    monkeypatch.setattr(grammar, "N_SENTENCES", 50)
    monkeypatch.setattr(translate_toy, "N_PAIRS", 50)
    monkeypatch.setattr(docs_summaries, "MIN_PAIRS", 2)
    monkeypatch.setattr(python_docs, "MIN_CHARACTERS", 100)


ALONE = [holds for holds in contract.CONTRACT if holds is not contract.rows_do_not_depend_on_hashes]
"""What is checked kind by kind; two processes check the rest for many kinds at once."""
OF_THE_LIBRARY = ("docs-summaries", "python-docs")
"""Corpora of the whole standard library, which takes several seconds."""


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("word", built_in_corpora())
def test_every_corpus(word: str) -> None:
    corpus = find_corpus(word)
    assert corpus is not None
    assert corpus.word == word
    run_all(cases_of(ALONE, type(corpus).model_validate(SMALL) if type(corpus).model_fields else corpus))


def hashed(words: Iterable[str]) -> list[CorpusSettings]:
    return [corpus for corpus in map(find_corpus, words) if corpus is not None]


def test_no_corpus_depends_on_the_hash_seed() -> None:
    contract.rows_do_not_depend_on_hashes(*hashed(word for word in built_in_corpora() if word not in OF_THE_LIBRARY))


@pytest.mark.slow
def test_no_corpus_of_the_library_depends_on_the_hash_seed() -> None:
    contract.rows_do_not_depend_on_hashes(*hashed(OF_THE_LIBRARY))


UNSORTED = """
from mini_tf.recipe.corpora import CorpusSettings

class Settings(CorpusSettings):
    VERSION = "1"

    def rows(self):
        yield from ({"text": word} for word in {f"word {number}" for number in range(20)})
"""


def test_a_corpus_that_depends_on_the_order_of_a_set_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "others" / "data" / "corpora"
    folder.mkdir(parents=True)
    (folder / "unsorted.py").write_text(UNSORTED)
    with kinds_in(tmp_path / "others"), pytest.raises(AssertionError, match=r"it does for \['unsorted'\]"):
        contract.rows_do_not_depend_on_hashes(settings_of("data.corpora", "unsorted")())  # type: ignore[arg-type]


def test_a_corpus_is_named_alone_or_in_a_list_of_one_and_says_whether_it_is_pairs() -> None:
    old, world = (
        ("docs-summaries", "grammar", "python-docs", "translate-toy"),
        ("world", "world-facts", "world-translation"),
    )
    assert built_in_corpora() == ("associative-recall", "copy", "corridor", *old, *world)
    pairs = ["docs-summaries", "translate-toy", "world-facts", "world-translation"]
    assert [word for word in built_in_corpora() if has_pairs(word)] == pairs
    assert has_pairs(("translate-toy",))
    for other in ("./grammar", "translate_toy", ("grammar", "translate-toy"), None, ()):
        assert find_corpus(other) is None


class Short(CorpusSettings):
    """A corpus of two texts; the ones below differ from it in one thing."""

    VERSION = "1"

    def rows(self) -> Iterator[dict[str, str]]:
        yield from ({"text": text} for text in ("one", "two"))


class Remembers(Short):
    times: ClassVar[list[int]] = []

    def rows(self) -> Iterator[dict[str, str]]:
        self.times.append(1)
        yield {"text": "again " * len(self.times)}


class Unnamed(Short):
    COLUMNS = ("source", "target")


class Unread(Short):
    COLUMNS = ("words",)


class Idle(Short):
    seed: int = 0


BROKEN: dict[str, tuple[type[Short], str]] = {
    "is_written_once_and_deterministic": (Remembers, "the same corpus must have the same bytes"),
    "has_the_declared_columns": (Unnamed, r"a row has \['text'\], COLUMNS are \('source', 'target'\)"),
    "declares_supported_columns": (Unread, r"no dataset reads \('words',\)"),
    "has_settings_that_change_it": (Idle, "seed must change the rows"),
}


@pytest.mark.parametrize("holds", ALONE, ids=lambda holds: holds.__name__)
def test_one_that_breaks_the_contract_is_told_and_the_same_without_the_fault_is_not(
    holds: Callable[[CorpusSettings], None],
) -> None:
    fault, told = BROKEN[holds.__name__]
    holds(Short())
    with pytest.raises(AssertionError, match=told):
        holds(fault())
