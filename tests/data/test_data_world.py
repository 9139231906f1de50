"""The synthetic world: its labels are read again from the text and the lexicon, and hold in every sentence."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from typing import Any

import numpy as np
import pytest

from mini_tf.data.corpora import _lexicon, associative_recall, copy, corridor, world, world_facts, world_translation
from mini_tf.data.corpora._grammar_documents import ADVERBS, PREPOSITIONS, RECENT
from mini_tf.data.corpora._lexicon import SUPERSENSES, Lexeme, Sampler, lexicon
from mini_tf.data.corpora.world_translation import CASES, DETERMINERS, PAST, PLURAL
from mini_tf.recipe.corpora import find_corpus
from mini_tf.system.cache import hash_of
from mini_tf.system.errors import DataFault

SIZES = {"n_documents": 150, "seed": 3}
DEFAULT = lexicon(800, 4, 0.15)
SINGULAR = {"he": "m", "him": "m", "his": "m", "she": "f", "her": "f", "it": "n", "its": "n"}

PINNED = {
    "world": "53db437088810218",
    "world-facts": "c09688bbe9f934e3",
    "world-translation": "74812c435606eb3b",
    "corridor": "1d314a4d4e127e36",
    "copy": "6c2d660500608aff",
    "associative-recall": "5fa00063e9f1e79d",
}
"""Of 20 rows of each corpus, as VERSION has them."""


FUNCTION_WORDS = ("the", "that", "they", "them", "their", "today", "then", "is", ".")


@cache
def documents() -> list[dict[str, Any]]:
    """The columns as lists, indices as numbers."""
    return [
        {
            name: [int(one) for one in cell.split()] if name in ("heads", "antecedents", "cue") else cell.split()
            for name, cell in row.items()
        }
        for row in world.Settings(**SIZES).rows()
    ]


def sentences(document: dict[str, Any]) -> Iterator[range]:
    """The words of each sentence."""
    start = 0
    for n, word in enumerate(document["text"]):
        if word == ".":
            yield range(start, n + 1)
            start = n + 1


@cache
def nouns() -> dict[tuple[str, str], list[Lexeme]]:
    """By form (singular and plural) and supersense."""
    found = defaultdict(list)
    for words in DEFAULT.nouns.values():
        for one in words:
            for form in (one.stem, f"{one.stem}s"):
                found[form, one.supersense].append(one)
    return found


@pytest.mark.parametrize("word", PINNED)
def test_the_rows_are_the_same_on_every_machine(word: str) -> None:
    settings = find_corpus(word)
    rows = [*type(settings).model_validate({"n_documents": 20}).rows()]
    assert hash_of(rows)[:16] == PINNED[word]


def test_every_column_has_a_label_for_every_word() -> None:
    for document in documents():
        lengths = {len(cell) for name, cell in document.items() if name not in ("topic", "cue", "kinds")}
        assert lengths == {len(document["text"])}
        assert document["kinds"] == [",".join(sorted({*document["supersenses"]} - {"-"}))]


def test_two_or_three_nouns_of_different_senses_have_one_form() -> None:
    senses = dict[str, list[str]]()
    for noun in (noun for nouns in DEFAULT.nouns.values() for noun in nouns):
        senses.setdefault(noun.stem, []).append(noun.supersense)
    shared = [kinds for kinds in senses.values() if len(kinds) > 1]
    n = sum(map(len, senses.values()))
    assert {len(kinds) for kinds in shared} == {len(set(kinds)) for kinds in shared} == {2, 3}
    assert sum(map(len, shared)) == pytest.approx(0.15 * n, abs=5)


def test_the_heads_of_a_sentence_are_a_tree() -> None:
    for document in documents():
        for words in sentences(document):
            heads = {n: document["heads"][n] for n in words}
            assert [document["relations"][n] for n, head in heads.items() if head < 0] == ["root"]
            for n in words:
                seen = set()
                while heads[n] >= 0:
                    assert n not in seen
                    seen.add(n)
                    n = heads[n]
                    assert n in words


def number_by_form(document: dict[str, Any], n: int) -> str | None:
    """Of a noun or pronoun, by its ending or the pronoun itself."""
    word, tag = document["text"][n], document["tags"][n]
    if tag == "pron":
        return "sg" if word in SINGULAR else "pl"
    return ("pl" if word.endswith("s") else "sg") if tag == "noun" else None


def test_a_verb_agrees_with_its_subject_however_far_it_is() -> None:
    checked, apart = Counter[str](), 0
    stems = {one.stem for words in DEFAULT.verbs.values() for one in words}
    for document in documents():
        heads, tags = document["heads"], document["tags"]
        for n, relation in enumerate(document["relations"]):
            if relation != "nsubj":
                continue
            verb = heads[n]
            subject = heads[verb] if tags[n] == "rel" else n  # the noun of a relative clause
            word, number = document["text"][verb], number_by_form(document, subject)
            assert document["numbers"][verb] == number
            form = {"s": "sg", "d": "past"}.get(word[-1], "pl")
            assert form in (number, "past")
            assert word.removesuffix({"sg": "s", "past": "ed"}.get(form, "")) in stems
            checked[form] += 1
            apart += verb - subject > 2
        verbs = {n for n, tag in enumerate(tags) if tag == "verb"}
        assert verbs == {heads[n] for n, relation in enumerate(document["relations"]) if relation == "nsubj"}
    assert min(*checked.values(), apart) > 100


def test_determiners_agree_with_their_noun() -> None:
    numbers = {"a": "sg", "this": "sg", "some": "pl", "these": "pl"}
    for document in documents():
        for n, relation in enumerate(document["relations"]):
            if relation == "det" and document["text"][n] != "the":
                assert numbers[document["text"][n]] == number_by_form(document, document["heads"][n])


def test_the_antecedent_of_a_pronoun_is_the_nearest_agreeing_noun_of_an_earlier_sentence() -> None:
    further = n_pronouns = 0
    for document in documents():
        starts = [words.start for words in sentences(document)]
        for n, tag in enumerate(document["tags"]):
            assert (document["antecedents"][n] >= 0) == (tag == "pron")
            if tag != "pron":
                continue
            sentence = max(k for k, start in enumerate(starts) if start <= n)
            earlier = [k for k in range(starts[sentence]) if document["tags"][k] == "noun"]
            agreeing = [k for k in earlier if agreement(document, k) == SINGULAR.get(document["text"][n], "pl")]
            assert document["antecedents"][n] == max(agreeing) >= starts[max(0, sentence - RECENT)]
            further += max(agreeing) != max(earlier)
            n_pronouns += 1
    assert further / n_pronouns > 0.3  # otherwise the nearest noun would do


def agreement(document: dict[str, Any], n: int) -> str:
    """pl, or the gender by the lexicon."""
    if number_by_form(document, n) == "pl":
        return "pl"
    found = {one.gender for one in nouns()[document["text"][n], document["supersenses"][n]]}
    assert len(found) == 1
    return found.pop()


def test_the_verb_decides_the_sense_of_its_subject_and_object() -> None:
    frames = {one.stem: (one.supersense, one.object) for words in DEFAULT.verbs.values() for one in words}
    seen = defaultdict(set)
    for document in documents():
        for n, tag in enumerate(document["tags"]):
            word = document["text"][n]
            stem = word.removesuffix("s")
            senses = {kind for kind in SUPERSENSES if (word, kind) in nouns()}
            assert document["senses"][n] == (
                f"{stem}.{document['supersenses'][n]}" if tag == "noun" and len(senses) > 1 else "-"
            )
            if tag == "noun":
                assert document["supersenses"][n] in senses
                seen[stem].add(document["supersenses"][n])
                if (relation := document["relations"][n]) in ("nsubj", "obj"):
                    verb = re.sub("(s|ed)$", "", document["text"][document["heads"][n]])
                    assert frames[verb][relation == "obj"] == document["supersenses"][n]
    assert sum(len(kinds) > 1 for kinds in seen.values()) > 20
    assert max(map(len, seen.values())) == 3


def test_the_cue_at_the_beginning_decides_the_word_at_the_end() -> None:
    paired = dict(DEFAULT.cues)
    found = Counter()
    for document in documents():
        cue, answer = (document["text"][n] for n in document["cue"])
        assert answer == paired[cue]
        assert document["text"][-2:] == [answer, "."]
        assert cue == document["text"][2]
        found[cue] += 1
    assert len(found) == len(paired) == len({*paired.values()})


def test_another_seed_gives_other_documents_of_the_same_language() -> None:
    first, second = ({row["text"] for row in world.Settings(n_documents=300, seed=seed).rows()} for seed in (0, 1))
    assert not first & second
    vocabulary = {word for one in DEFAULT.lexemes() for word in (one.stem, f"{one.stem}s", f"{one.stem}ed")}
    closed = {*PREPOSITIONS, *ADVERBS, *DETERMINERS, *SINGULAR, *FUNCTION_WORDS, *sum(DEFAULT.cues, ())}
    assert {word for text in first | second for word in text.split()} <= vocabulary | closed
    assert lexicon(800, 4, 0.15) is DEFAULT


@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.3])
def test_the_exponent_of_the_frequencies_is_the_one_that_was_set(zipf: float) -> None:
    """Regression of log frequency on log rank among 30 words; the standard error is about 0.01."""
    sampler = Sampler(1)
    counts = Counter(sampler.pick_by_rank(range(30), zipf) for _ in range(40_000))
    slope, _ = np.polyfit(np.log(np.arange(1, 31)), np.log([counts[n] for n in range(30)]), 1)
    assert abs(slope + zipf) < 0.05


def test_the_nouns_of_the_text_have_the_exponent_within_their_supersense_and_topic() -> None:
    """Counted over all places of equal rank; the tolerance 0.1 is about four standard errors."""
    ranks = {(one.stem, one.supersense): rank for words in DEFAULT.nouns.values() for rank, one in enumerate(words, 1)}
    counts = Counter()
    for row in world.Settings(n_documents=400, zipf=1.2).rows():
        for word, supersense in zip(row["text"].split(), row["supersenses"].split(), strict=True):
            if supersense != "-":
                counts[ranks[word.removesuffix("s"), supersense]] += 1
    slope, _ = np.polyfit(np.log(sorted(counts)), np.log([counts[rank] for rank in sorted(counts)]), 1)
    assert abs(slope + 1.2) < 0.1


def translations(word: str) -> set[str]:
    """By the lexicon, without endings that the target adds."""
    closed = PREPOSITIONS | ADVERBS | DETERMINERS
    if word in closed:
        return {closed[word]}
    stems = {word, word.removesuffix("s"), word.removesuffix("ed")}
    return {one.target for one in DEFAULT.lexemes() if one.stem in stems}


def test_a_link_joins_a_word_and_its_translation_and_the_order_differs() -> None:
    crossing = several = 0
    for row in islice(world_translation.Settings(**SIZES).rows(), 60):
        source, target = row["source"].split(), row["target"].split()
        links = [tuple(map(int, link.split("-"))) for link in row["alignment"].split()]
        assert sorted(j for _, j in links) == [*range(len(target))]
        assert [word for n, word in enumerate(source) if n not in dict(links)] == [
            w for w in source if w in ("the", "that", ".")
        ]
        for i, j in links:
            found = translations(source[i])
            stem = next(stem for stem in found if target[j].startswith(stem))
            assert re.fullmatch(
                f"({PAST})?({PLURAL})?({'|'.join(filter(None, CASES.values()))})?", target[j].removeprefix(stem)
            )
            several += len(found) > 1
        crossing += sum(a < c and b > d for a, b in links for c, d in links) > 0
        assert target[-1].startswith(tuple(translations(verb_of(source))))
    assert min(crossing, several) > 30


def verb_of(source: list[str]) -> str:
    """The verb of the main clause: no other verb has a relative pronoun of its own before it."""
    stems = {one.stem for words in DEFAULT.verbs.values() for one in words}
    verbs = [n for n, word in enumerate(source) if {word, word.removesuffix("s"), word.removesuffix("ed")} & stems]
    relatives = [n for n, word in enumerate(source) if word == "that"]
    clauses = {min(n for n in verbs if n > relative) for relative in relatives}
    return source[next(n for n in verbs if n not in clauses)]


def facts_in(source: str) -> list[tuple[str, str, str]]:
    """(name, stem of the verb, noun) of every telling, by the form of the sentence."""
    found = []
    for sentence in source.split(" . "):
        words = sentence.removesuffix(" .").split()
        if words[:2] == ["it", "is"]:
            found.append((words[2], words[4].removesuffix("s"), words[6]))
        elif "by" in words:
            found.append((words[-1], words[3].removesuffix("ed"), words[1]))
        elif words[0] in DEFAULT.names:
            found.append((words[0], words[1].removesuffix("s"), words[3]))
    return found


def test_a_summary_has_every_fact_of_its_document_exactly_once_in_the_order_of_the_first_telling() -> None:
    n_told = n_facts = 0
    for row in world_facts.Settings(**SIZES).rows():
        told = facts_in(row["source"])
        assert facts_in(row["target"]) == [*dict.fromkeys(told)]
        assert 2 <= len(set(told)) <= 4
        assert row["source"].count(" .") == len(told) + 3
        n_told, n_facts = n_told + len(told), n_facts + len(set(told))
    assert 1.4 < n_told / n_facts < 1.6


def test_facts_are_read_from_every_form_and_from_nothing_else() -> None:
    corpus = world_facts.Settings(**SIZES)
    for row in corpus.rows():
        stated = corpus.facts(row["source"])
        assert [tuple(fact.removesuffix(" .").split()) for fact in stated] == [
            (name, f"{verb}s", "the", noun) for name, verb, noun in facts_in(row["source"])
        ]
        assert " ".join(corpus.facts(row["target"])) == row["target"]
    name = corpus.lexicon.names[0]
    said = f"{name} zegs the kulan . {name} zegs the kulan"
    assert corpus.facts(said) == [f"{name} zegs the kulan ."] * 2
    for other in (
        "",
        " . .",
        f"{name} zeged the kulan .",
        f"the kulan is zegs by {name} .",
        f"{name} zegs the old kulan .",
        "boy zegs the kulan .",
    ):
        assert corpus.facts(other) == []


def test_settings_that_give_too_few_different_documents_are_refused() -> None:
    few = world_facts.Settings(n_documents=3)
    for made in (["a", "b", "a"], ["a"]):
        with pytest.raises(
            DataFault, match=f"world-facts: only {len({*made})} different documents with these settings"
        ):
            list(few.different(cycle(made), str, "n_facts"))
    assert [*few.model_copy(update={"n_documents": 2}).different(cycle("aab"), str, "n_facts")] == ["a", "b"]


@pytest.mark.parametrize("kind", [world, world_facts, world_translation])
def test_every_corpus_of_different_documents_ends(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here at the first repetition."""
    monkeypatch.setattr(_lexicon, "MAX_REPEATS", 1)
    short = {
        world: {"n_sentences": 1, "cue": False},
        world_facts: {"n_facts": 1, "n_distractors": 0},
        world_translation: {},
    }
    with pytest.raises(DataFault, match="different documents with these settings; n_documents is 100000") as fault:
        list(kind.Settings(n_documents=10**5, n_lexemes=200, n_topics=1, zipf=3, **short[kind]).rows())
    assert "n_lexemes" in str(fault.value.hint)


def test_the_answer_of_a_corridor_is_its_cue_at_the_distance() -> None:
    cues = Counter()
    for row in corridor.Settings(distance=30, n_documents=200).rows():
        words, [answer] = row["text"].split(), map(int, row["answers"].split())
        assert words[answer] == words[answer - 30] == words[-1]
        assert words.count(words[answer]) == 2
        cues[words[answer]] += 1
    assert len(cues) == 8
    assert max(cues.values()) < 45  # 25 of each are expected


def test_a_repeated_filler_is_one_word_a_document_and_another_in_others() -> None:
    rows = corridor.Settings(distance=30, n_documents=200, n_fillers=10, repeat_filler=True).rows()
    fillers = [{*row["text"].split()[2:-2]} for row in rows]
    assert all(len(one) == 1 for one in fillers)
    assert len(set.union(*fillers)) == 10


def test_a_copy_has_every_word_at_the_distance_and_a_recall_the_value_of_its_key() -> None:
    for row in copy.Settings(distance=12, length=5, n_documents=50).rows():
        words, answers = row["text"].split(), [*map(int, row["answers"].split())]
        assert [words[n] for n in answers] == [words[n - 12] for n in answers] == words[1:6]
        assert answers == [*range(len(words) - 5, len(words))]
    distances = set()
    for row in associative_recall.Settings(distance=20, n_pairs=4, n_documents=50).rows():
        words, [answer] = row["text"].split(), map(int, row["answers"].split())
        values = dict(zip(words[:8:2], words[1:8:2], strict=True))
        assert answer == 21 == len(words) - 1
        assert (words[-3], words[-1]) == ("recall", values[words[-2]])
        distances.add(answer - words.index(words[-2]) - 1)
    assert distances == {20, 18, 16, 14}
