"""The built-in translation task: a function from source to target, with the alignment, order and agreement that it
claims.
"""

import hashlib
import json
import re
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from mini_tf.data.corpora import translate_toy as toy

SHA256 = "aace993e5c10da1f4dd9f3e88f53ac3b98387cfdd034ad1c1bbc3c0dc253a86d"
"""Of the corpus as VERSION has it."""
PARTICLES = {"not": "ne", "will": "vel", "did": "ta", "a": "un", "some": "un", "this": "hit", "these": "hit"}
NO_PARTNER = {"the", "of", "that", "do", "does"}
LEMMAS = {
    **PARTICLES,
    **{word: stem for word, (stem, _) in toy.NOUNS.items()},
    **toy.ADJECTIVES,
    **toy.PRONOUNS,
    **toy.VERBS,
    **toy.PREPOSITIONS,
    **toy.MANNERS,
    **toy.TIMES,
}
Aligned = tuple[list[str], list[str], set[tuple[int, int]]]
"""The words of a source, those of its target, and the links."""
GENDERS = {stem: gender for stem, gender in toy.NOUNS.values()}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return [
        json.loads(line) for line in toy.Settings().corpus(tmp_path_factory.mktemp("cache")).read_text().splitlines()
    ]


@pytest.fixture(scope="module")
def pairs(rows: list[dict[str, str]]) -> list[Aligned]:
    """Read back from the file."""
    return [
        (
            row["source"].split(" "),
            row["target"].split(" "),
            {(int(i), int(j)) for i, j in re.findall(r"(\d+)-(\d+)", row["alignment"])},
        )
        for row in rows
    ]


def lemma(word: str) -> str:
    """A word of the source without -s; "" if it has no partner."""
    return next((form for form in (word, word.removesuffix("s")) if form in LEMMAS), "")


@cache
def stem(word: str) -> str:
    """The longest stem of the dictionary that a word of the target begins with; all else must be a known ending."""
    found = max((one for one in LEMMAS.values() if word.startswith(one)), key=len)
    assert word[len(found) :] in {"", "en", "a", "an", "o", "on", "i", "in", "u", "um", "e", "em"}
    return found


def test_the_corpus_is_the_same_on_every_machine(tmp_path: Path) -> None:
    path = toy.Settings().corpus(tmp_path)
    assert path.name == "translate-toy-2.jsonl"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256, "the grammar changed: raise VERSION"
    path.write_text("kept")
    assert toy.Settings().corpus(tmp_path).read_text() == "kept"


def test_the_corpus_is_8000_different_short_sentences_of_lower_case_words(rows: list[dict[str, str]]) -> None:
    assert len(rows) == len({row["source"] for row in rows}) == 8000
    for row in rows:
        assert list(row) == ["source", "target", "alignment"]
        assert re.fullmatch(r"[a-z]+( [a-z]+){1,15}", row["source"])
        assert re.fullmatch(r"[a-z]+( [a-z]+){1,14}", row["target"])
        assert re.fullmatch(r"\d+-\d+( \d+-\d+)*", row["alignment"])


def test_a_source_has_one_translation_and_one_alignment() -> None:
    """However often it is drawn; what a sentence says could be ambiguous, as who is near the river."""
    known: dict[str, toy.AlignedPair] = {}
    drawn = [toy.render(sentence) for sentence in islice(toy.sentences(seed=5), 8_000)]
    assert all(known.setdefault(pair.source, pair) == pair for pair in drawn)
    assert len(known) < 0.98 * len(drawn)


def test_every_word_but_a_few_small_ones_is_linked_to_its_translation_in_the_dictionary(pairs: list[Aligned]) -> None:
    assert len(set(LEMMAS.values())) == len(LEMMAS) - 2  # "a" and "some", "this" and "these"
    for source, target, links in pairs:
        for i, j in links:
            assert stem(target[j]) == LEMMAS[lemma(source[i])], (source[i], target[j])
        assert Counter(j for _, j in links) == Counter(range(len(target)))
        partners = Counter(i for i, _ in links)
        for i, word in enumerate(source):
            assert partners[i] == (word not in NO_PARTNER)


def test_words_move_as_the_docstring_says(pairs: list[Aligned]) -> None:
    shifts = Counter()
    for source, target, links in pairs:
        at = {i: min(j for k, j in links if k == i) for i, _ in links}
        for i, word in enumerate(source):
            if word in toy.TIMES:
                assert at[i] == 0
            elif word in toy.ADJECTIVES:
                assert at[i] == at[i + 1] + 1
            elif word in toy.PREPOSITIONS:
                noun = next(k for k in range(i, len(source)) if lemma(source[k]) in toy.NOUNS)
                assert at[i] - at[noun] == 1 + (source[noun - 1] in toy.ADJECTIVES)
            elif word == "of":
                owner = next(k for k in range(i, len(source)) if lemma(source[k]) in toy.NOUNS)
                assert at[i - 1] > at[owner]
        verb = main_verb(target)
        i = next(i for i, j in links if j == verb)
        shifts[verb - i] += 1
    assert len([shift for shift, n in shifts.items() if n >= 100]) >= 10


def main_verb(target: list[str]) -> int:
    """The last word that is no particle of tense or negation."""
    return max(j for j, word in enumerate(target) if word not in {"ne", "ta", "vel"})


def test_verbs_agree_with_a_subject_that_stands_elsewhere(pairs: list[Aligned]) -> None:
    """The subject is the first noun or pronoun of the source; of a relative clause, the noun before "that"."""
    seen = Counter()
    for source, target, links in pairs:
        subject = next(word for word in source if lemma(word) in toy.NOUNS | toy.PRONOUNS)
        ending = {"i": "u", "we": "um", "they": "em"}.get(subject, "em" if subject.endswith("s") else "e")
        verb = target[main_verb(target)]
        assert verb.removeprefix(stem(verb)) == ending
        seen[ending] += 1
        for i in (i for i, word in enumerate(source) if word == "that"):
            verb = target[min(j for k, j in links if k == i + 1 + (source[i + 1] == "did"))]
            assert verb.removeprefix(stem(verb)) == ("em" if source[i - 1].endswith("s") else "e")
            seen["relative"] += 1
    assert min(seen[ending] for ending in ("u", "um", "e", "em")) > 1000
    assert seen["relative"] > 500


def test_adjectives_and_determiners_agree_with_gender_and_number_of_their_noun(pairs: list[Aligned]) -> None:
    seen = Counter()
    for _, target, _ in pairs:
        for j, word in enumerate(target):
            described = stem(word) in toy.ADJECTIVES.values()
            if described or stem(word) in {"un", "hit"}:
                noun = target[j - 1 if described else j + 1]
                plural = noun.removeprefix(stem(noun)) == "en"
                assert word.removeprefix(stem(word)) == "aoi"[GENDERS[stem(noun)]] + "n" * plural
                seen[GENDERS[stem(noun)], plural] += 1
    assert len(seen) == 6
    assert min(seen.values()) > 1000


def test_the_example_of_the_docstring_is_what_the_grammar_says() -> None:
    king = toy.NounPhrase("king", False, "the", "wise", owner=toy.NounPhrase("sailor", False, "a"))
    follow = toy.VerbPhrase("follow", toy.NounPhrase("bird", True, "this"), "past", negated=True)
    pair = toy.render(toy.ToySentence(king, follow, place=("near", toy.NounPhrase("river", False)), time="today"))
    assert f"    {pair.source}\n    {pair.target}\n" in str(toy.__doc__)
    assert pair.alignment == "1-4 2-3 4-1 5-2 6-11 7-10 8-9 9-7 10-8 11-6 13-5 14-0"
