"""The built-in corpora: prose that is prose, and a grammar whose entropy is what it says."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import grammar_entropy
import pytest

from mini_tf.data.corpora import _documentation as documentation
from mini_tf.data.corpora import grammar, python_docs
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import DataFile, find_files
from mini_tf.data.formats.text_documents import read
from mini_tf.system.cache import cache_folder


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return list(grammar.documents(seed=1, n=5000))


def test_the_entropy_of_the_grammar_is_the_mean_surprise_of_its_sentences(sentences: list[str]) -> None:
    surprise = [-grammar_entropy.log_probability(sentence) for sentence in sentences]
    mean = sum(surprise) / len(surprise)
    error = math.sqrt(sum((s - mean) ** 2 for s in surprise)) / len(surprise)
    assert abs(mean - grammar_entropy.entropy_per_document()) < 4 * error < 0.1
    entropies = grammar_entropy.entropy_per_document(), grammar_entropy.entropy_per_token()
    assert f"{entropies[0]:.4f} nats per sentence and {entropies[1]:.4f} nats per token" in str(grammar.__doc__)
    words = sum(len(sentence.split()) for sentence in sentences)
    assert sum(surprise) / words == pytest.approx(grammar_entropy.entropy_per_token(), rel=0.005)


def test_probabilities_sum_to_one_at_every_place_of_the_grammar() -> None:
    waiting, seen = [grammar.State()], set()
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        options = grammar.transitions(here)
        assert not options or sum(p for p, _, _ in options) == pytest.approx(1)
        assert len({word for _, word, _ in options}) == len(options)
        waiting += [there for _, _, there in options]
    assert len(seen) > 1000


def test_short_contexts_do_not_see_what_the_grammar_knows(sentences: list[str]) -> None:
    # Entropies estimated from counts are too low, so these bounds are stricter than the true ones.
    words = [["<", "<", *sentence.split()] for sentence in sentences]
    unigrams = Counter(word for sentence in words for word in sentence[2:])
    bigrams = Counter(pair for sentence in words for pair in pairwise(sentence[:-1]))
    trigrams = Counter(triple for s in words for triple in zip(s, s[1:], s[2:], strict=False))
    n = unigrams.total()
    unigram = -sum(c / n * math.log(c / n) for c in unigrams.values())
    trigram = -sum(c / n * math.log(c / bigrams[a, b]) for (a, b, _), c in trigrams.items())
    assert grammar_entropy.entropy_per_token() < 0.6 * unigram
    assert grammar_entropy.entropy_per_token() < 0.8 * trigram


def test_what_the_grammar_never_says_has_no_probability() -> None:
    said = "the dogs near the green river bark softly with their bone and today those dogs rest ."
    assert grammar_entropy.log_probability(said) > -math.inf
    for wrong in (
        said.replace("bark", "barks"),
        said.replace("their", "its"),
        said.removesuffix(" ."),
        said + " .",
        "",
    ):
        assert grammar_entropy.log_probability(wrong) == -math.inf


def test_the_grammar_says_the_same_for_the_same_seed(sentences: list[str]) -> None:
    assert list(grammar.documents(1, 10)) == sentences[:10] != list(grammar.documents(2, 10))
    assert sentences[0] == "every bird near the empty river sings softly with its nest and tonight that bird rests ."


def test_the_grammars_corpus_is_a_sentence_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    monkeypatch.setattr(grammar, "N_SENTENCES", 100)
    assert [d.text for d in read(find_files("grammar"), Columns())] == list(grammar.documents(0, 100))


def test_prose_is_kept_and_code_tables_and_signatures_are_not() -> None:
    text = """open(file, mode='r') -> file object

    Open the file and return what
    reads it, as the "mode" says.

        f = open("a file that is there with a name to read")

    ========= ===============================================
    Character Meaning of the character in this table.
    --------- -----------------------------------------------

    >>> print("This is an example of what it is.")

    * It is an error if ``file`` is not there, and :class:`OSError` is raised.
    """
    assert documentation.prose(text) == [
        'Open the file and return what reads it, as the "mode" says.',
        "It is an error if file is not there, and OSError is raised.",
    ]


def test_pythons_documentation_is_a_megabyte_of_english_without_repeats() -> None:
    """As it lies in the cache, which all tests share."""
    path = python_docs.Settings().corpus(cache_folder())
    documents = read([DataFile(path, "jsonl", "python-docs")], Columns())
    paragraphs = [paragraph for document in documents for paragraph in document.text.split("\n")]
    assert 0.9e6 < sum(map(len, paragraphs)) < 1.5e6
    assert len(set(paragraphs)) == len(paragraphs)
    assert all(p.isascii() and p.isprintable() for p in paragraphs)
    frequent = [word for word, _ in Counter(" ".join(paragraphs).lower().split()).most_common(5)]
    assert frequent[0] == "the"
    assert python_docs.Settings().corpus(path.parent) == path
