"""Beam search against all texts that there are: on small vocabularies, with scores that are any function of what stands
before.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from mini_tf.generation import beam as module
from mini_tf.generation.beam import BeamSettings, Hypothesis, beam_search, repeated_ngrams, topk_by_id
from mini_tf.system.errors import RunFault

END = 0
Text = tuple[int, ...]
Language = Callable[[int, Text], Tensor]


@cache
def language(seed: int, n_words: int) -> Language:
    """Scores (V,) of what follows a text of a source: drawn for each one, so that nothing but following them finds the
    best; the same for all tests.
    """

    @cache
    def scores(source: int, text: Text) -> Tensor:
        generator = torch.Generator().manual_seed(hash((seed, source, text)) % 2**62)
        drawn = 0.7 * torch.randn(n_words, dtype=torch.float64, generator=generator)
        drawn[END] -= 1.0  # else most texts end at once
        return drawn

    return scores


def only(told: Language, source: int) -> Language:
    """What is told of one source, of which there are no others."""
    return lambda _, text: told(source, text)


class Told:
    """Texts as rows of the search, with the check that it keeps rows of one source beside each other."""

    def __init__(self, language: Language, n_sources: int) -> None:
        self.language, self.sources = language, list(range(n_sources))
        self.texts: list[Text] = []
        self.selections = self.decoded = 0

    def decode(self, ids: Tensor) -> Tensor:
        self.texts = (
            [(*text, id) for text, id in zip(self.texts, ids.tolist(), strict=True)]
            if self.texts
            else [()] * len(self.sources)
        )
        self.decoded += len(self.texts)
        per_source = len(self.texts) // len(self.sources)
        assert len(self.texts) == per_source * len(self.sources)
        return torch.stack(
            [self.language(self.sources[row // per_source], text) for row, text in enumerate(self.texts)]
        )

    def select(self, rows: Tensor, sources: Tensor | None) -> None:
        assert rows.tolist() != list(range(len(self.texts)))
        self.selections += 1
        self.texts = [self.texts[row] for row in rows.tolist()]
        self.sources = self.sources if sources is None else [self.sources[number] for number in sources.tolist()]


def found(language: Language, beam: BeamSettings, limits: Sequence[int]) -> list[list[Hypothesis]]:
    return beam_search(Told(language, len(limits)), torch.full((len(limits),), END), limits, beam)


def allowed(text: Text, beam: BeamSettings, n_words: int) -> list[int]:
    """What may follow a text, by the words of the definition."""
    n = beam.no_repeat_ngram
    grams = {text[i : i + n] for i in range(len(text) - n + 1)} if n else set()
    no_word = {*beam.ends, *beam.banned}
    words = [word for word in range(n_words) if word not in no_word and (*text, word)[-n:] not in grams]
    return [*words, *beam.ends] if len(text) >= beam.min_new_tokens or not words else words


def all_texts(language: Language, beam: BeamSettings, limit: int, source: int = 0) -> Iterator[Hypothesis]:
    """Every text that ends within the limit, and those that come to it."""

    def from_here(text: Text, logprob: float) -> Iterator[Hypothesis]:
        logprobs = language(source, text).log_softmax(0).tolist()
        for word in allowed(text, beam, len(logprobs)):
            whole, total = (*text, word), logprob + logprobs[word]
            if word in beam.ends or len(whole) == limit:
                ids = list(text if word in beam.ends else whole)
                yield Hypothesis(ids, total, total / ((5 + len(whole)) / 6) ** beam.length_penalty, word in beam.ends)
            else:
                yield from from_here(whole, total)

    return from_here((), 0.0)


def best_of_all(language: Language, beam: BeamSettings, limit: int, source: int = 0) -> list[Hypothesis]:
    """Of a text that may end in several ways, the best way."""
    ranked = sorted(all_texts(language, beam, limit, source), key=lambda one: one.score)
    distinct = {(tuple(one.ids), one.ended): one for one in ranked}
    return sorted(distinct.values(), key=lambda one: -one.score)[: beam.n_best]


def greedy(language: Language, beam: BeamSettings, limit: int, source: int = 0) -> Hypothesis:
    """The likeliest word at every step."""
    text: Text = ()
    logprob = 0.0
    while len(text) < limit:
        logprobs = language(source, text).log_softmax(0).tolist()
        word = max(allowed(text, beam, len(logprobs)), key=lambda word: logprobs[word])
        logprob += logprobs[word]
        if word == END:
            return Hypothesis(list(text), logprob, beam.score(logprob, len(text) + 1), True)
        text = (*text, word)
    return Hypothesis(list(text), logprob, beam.score(logprob, len(text)), False)


def assert_same(ours: Sequence[Hypothesis], theirs: Sequence[Hypothesis]) -> None:
    assert [(one.ids, one.ended) for one in ours] == [(one.ids, one.ended) for one in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert (a.logprob, a.score) == pytest.approx((b.logprob, b.score), abs=1e-10)


ALL = 10_000
"""More hypotheses than there are texts."""


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, -0.5])
def test_a_beam_that_holds_all_texts_finds_what_brute_force_finds_where_greedy_often_does_not(
    length_penalty: float,
) -> None:
    differs, cases = 0, [(n_words, limit, seed) for n_words in (4, 5, 6) for limit in (3, 4) for seed in range(4)]
    for n_words, limit, seed in cases:
        told = language(seed, n_words)
        beam = BeamSettings((END,), ALL, 5, length_penalty)
        expected = best_of_all(told, beam, limit)
        assert_same(found(told, beam, [limit])[0], expected)
        differs += greedy(told, beam, limit).ids != expected[0].ids
    assert differs >= 0.3 * len(cases)


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, -2.0, 5.0])
@pytest.mark.parametrize(("min_new_tokens", "no_repeat_ngram"), [(0, 0), (3, 0), (0, 1), (2, 2)])
def test_a_beam_of_one_is_greedy(length_penalty: float, min_new_tokens: int, no_repeat_ngram: int) -> None:
    ended = set()
    for seed in range(12):
        told = language(seed, 6)
        beam = BeamSettings((END,), 1, 1, length_penalty, min_new_tokens, no_repeat_ngram)
        expected = greedy(told, beam, 12)
        assert_same(found(told, beam, [12])[0], [expected])
        ended.add(expected.ended)
    assert ended == {True, False} or no_repeat_ngram == 1


@pytest.mark.parametrize(
    "rules",
    [
        {"min_new_tokens": 2},
        {"min_new_tokens": 4},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2},
        {"no_repeat_ngram": 3},
        {"banned": (2, 3)},
        {"min_new_tokens": 2, "no_repeat_ngram": 1, "banned": (1,)},
        {"min_new_tokens": 4, "no_repeat_ngram": 1, "banned": (1, 2)},
    ],
    ids=str,
)
def test_what_is_ruled_out_is_never_written_and_all_else_is_compared(rules: dict[str, object]) -> None:
    changed = 0
    for seed in range(8):
        told, limit = language(seed, 5), 5
        beam = replace(BeamSettings((END,), ALL, 20, 0.6), **rules)  # type: ignore[arg-type]
        [ours] = found(told, beam, [limit])
        assert_same(ours, best_of_all(told, beam, limit))
        changed += [one.ids for one in ours] != [
            one.ids for one in best_of_all(told, BeamSettings((END,), ALL, 20, 0.6), limit)
        ]
    assert changed >= 3


def test_a_text_that_can_go_on_in_no_other_way_may_end_before_its_least_length() -> None:
    """Two words, each of them once: after them nothing is left but the end."""
    [ours] = found(language(0, 3), BeamSettings((END,), 8, 8, min_new_tokens=6, no_repeat_ngram=1), [6])
    assert sorted(one.ids for one in ours) == [[1, 2], [2, 1]]
    assert all(one.ended for one in ours)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_row_of_tokens_occurs_twice(n: int) -> None:
    texts = [(1, 2, 1, 2, 3, 1, 2), (1, 1, 1, 1, 1, 1, 1), (1, 2, 3, 4, 5, 6, 1), (3, 1, 2, 3, 2, 3, 1)]
    rows, ids = repeated_ngrams(torch.tensor(texts), n)
    expected = {
        (row, word)
        for row, text in enumerate(texts)
        for word in range(8)
        if (*text, word)[-n:] in {text[i : i + n] for i in range(len(text) - n + 1)}
    }
    assert set(zip(rows.tolist(), ids.tolist(), strict=True)) == expected


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_sources_of_a_batch_are_searched_as_each_alone(size: int) -> None:
    """Of different limits, so that they are done at different steps."""
    limits = [9, 1, 4, 12, 2, 9]
    for seed in range(5):
        told = language(seed, 7)
        beam = BeamSettings((END,), size, size, 0.6, no_repeat_ngram=2)
        together = found(told, beam, limits)
        for source, limit in enumerate(limits):
            [alone] = found(only(told, source), beam, [limit])
            assert_same(together[source], alone)


def by_hand(told: Language, beam: BeamSettings, limit: int) -> list[Hypothesis]:
    """The definition of the search, for one source, word by word, without the bound."""
    live: list[tuple[Text, float]] = [((), 0.0)]
    finished: list[Hypothesis] = []
    following, greedily = True, ()  # the greedy hypothesis, which is followed also where it is not among the best
    for length in range(1, limit + 1):
        logprobs = {text: told(0, text).log_softmax(0).tolist() for text, _ in live}
        extended = {text: [((*text, word), logprob + logprobs[text][word]) for word in allowed(text, beam,
            len(logprobs[text]))]
                    for text, logprob in live}  # fmt: skip
        candidates = [one for text, _ in live[: beam.num_beams] for one in extended[text]]
        candidates.sort(key=lambda candidate: -candidate[1])
        best = candidates[: beam.num_beams]
        live = [(text, logprob) for text, logprob in candidates if text[-1] != END][: beam.num_beams]
        if following:
            likeliest = max(extended[greedily], key=lambda candidate: candidate[1])
            greedily, following = likeliest[0], greedily != likeliest[0] and likeliest[0][-1] != END
            if likeliest not in best and not following:
                best.append(likeliest)
            if likeliest not in live and following:
                live.append(likeliest)
        for text, logprob in best:
            if text[-1] == END:
                finished.append(Hypothesis(list(text[:-1]), logprob, beam.score(logprob, length), True))
    finished += [Hypothesis(list(text), logprob, beam.score(logprob, limit), False) for text, logprob in live]
    return sorted(finished, key=lambda one: -one.score)[: beam.n_best]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 3.0, -0.5, -3.0])
@pytest.mark.parametrize(("size", "kept"), [(2, 1), (3, 2), (5, 5)])
def test_the_search_is_its_definition_and_stopping_early_changes_nothing(
    size: int, kept: int, length_penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {True: 0, False: 0}
    for seed in range(6):
        told, beam = language(seed, 6), BeamSettings((END,), size, kept, length_penalty, no_repeat_ngram=3)
        expected = by_hand(told, beam, 10)
        for bounded in (True, False):
            with monkeypatch.context() as patch:
                if not bounded:
                    patch.setattr(module.BeamSettings, "least_logprob", lambda *_: -math.inf)
                rows = Told(told, 1)
                [ours] = beam_search(rows, torch.tensor([END]), [10], beam)
            assert_same(ours, expected)
            work[bounded] += rows.decoded
    assert work[True] <= work[False]
    if (size, kept) == (2, 1) and abs(length_penalty) < 1:
        assert work[True] < work[False]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 4.0, -0.5, -4.0])
def test_no_beam_finds_less_than_greedy_decoding(length_penalty: float) -> None:
    limits, better = [12, 5, 9, 1, 12, 7, 12, 12], 0
    for seed, rules in enumerate([{}, {"min_new_tokens": 4}, {"no_repeat_ngram": 1}, {"banned": (2, 3)}]):
        told, settings = language(seed, 8), BeamSettings((END,), 1, 1, length_penalty, **rules)
        greedily = [one for [one] in found(told, settings, limits)]
        for size in (2, 3, 4, 8):
            best = [one for [one] in found(told, replace(settings, num_beams=size), limits)]
            assert all(one.score >= other.score - 1e-12 for one, other in zip(best, greedily, strict=True))
            better += sum(one.score > other.score + 1e-9 for one, other in zip(best, greedily, strict=True))
    assert better > 8


def test_a_live_hypothesis_is_followed_while_it_can_be_better_than_the_finished() -> None:
    """Two texts end at once, though what follows the third word is far more probable than both."""

    def told(_: int, text: Text) -> Tensor:
        first, later = [0.3, 0.2, 0.0, 0.5], [0.0, 0.0, 0.0, 1.0]
        probabilities = first if not text else [1.0, 0.0, 0.0, 0.0] if text == (1,) or len(text) == 5 else later
        return torch.tensor(probabilities, dtype=torch.float64).clamp(min=1e-9).log()

    [[best]] = found(told, BeamSettings((END,), 2), [8])
    assert (best.ids, best.ended) == ([3] * 5, True)
    assert best.logprob == pytest.approx(math.log(0.5), abs=1e-6)


def test_a_text_that_has_ended_is_followed_no_farther() -> None:
    """The greedy one ends before the limit where it is not among the best."""
    beam = BeamSettings((END,), 3, 3)
    for seed in range(12):
        [ours] = found(told := language(seed, 4), beam, [5])
        assert not any(END in one.ids for one in ours)
        assert_same(ours, by_hand(told, beam, 5))


def test_a_text_ends_at_each_of_several_end_tokens() -> None:
    """Which are one text, whose better end counts."""
    for seed in range(6):
        told, beam = language(seed, 6), BeamSettings((END, 2), ALL, 12, 0.6)
        assert_same(found(told, beam, [4])[0], best_of_all(told, beam, 4))
    [[short]] = found(language(0, 6), BeamSettings((END, 2), 4, min_new_tokens=3), [5])
    assert len(short.ids) >= 3


def test_the_bound_holds_for_every_text_that_a_hypothesis_may_become() -> None:
    for penalty in (0.0, 0.6, 1.0, 10.0, -0.5, -10.0):
        beam = BeamSettings((END,), length_penalty=penalty)
        for length, limit in ((0, 5), (4, 5), (3, 40)):
            reached = [beam.score(-2.0 - lost, n) for n in range(length + 1, limit + 1) for lost in (0.0, 0.1, 5.0)]
            assert beam.least_logprob(max(reached), length, limit) == pytest.approx(-2.0, abs=1e-12)


def test_the_best_are_sorted_and_no_two_are_the_same_text() -> None:
    for seed in range(10):
        [ours] = found(language(seed, 8), BeamSettings((END,), 6, 6, 0.6), [7])
        assert len(ours) == 6
        assert [one.score for one in ours] == sorted((one.score for one in ours), reverse=True)
        assert len({(*one.ids, one.ended) for one in ours}) == 6
        [best] = found(language(seed, 8), BeamSettings((END,), 6, 1, 0.6), [7])
        assert_same(best, ours[:1])


def test_a_score_is_divided_by_the_length_of_wu_et_al() -> None:
    """Their equation 14: lp = (5 + |Y|)^alpha / (5 + 1)^alpha."""
    assert BeamSettings((END,), length_penalty=0.6).score(-3.0, 10) == pytest.approx(
        -3.0 / ((5 + 10) ** 0.6 / (5 + 1) ** 0.6), abs=1e-12
    )
    assert BeamSettings((END,)).score(-3.0, 10) == -3.0


def test_of_equals_the_lower_row_and_then_the_lower_id_comes_first() -> None:
    equal = BeamSettings((END,), 3, 3)
    [ours] = found(lambda _, text: torch.zeros(50, dtype=torch.float64), equal, [2])
    assert [one.ids for one in ours] == [[], [1], [1, 1]]  # by score, then as they were finished
    scores = torch.tensor(
        [[1.0, 5, 5, 0, 5, 5], [3, 3, 9, 3, 3, 3], [0, 1, 2, 3, 4, 5], [-torch.inf, 1, -torch.inf, 2, -torch.inf, 0]]
    )
    for n in range(1, 8):
        values, ids = topk_by_id(scores, n)
        expected = [sorted(range(6), key=lambda id, row=row: (-row[id], id))[:n] for row in scores.tolist()]  # type: ignore[misc]
        finite = [[id for id in row if scores[number, id] > -torch.inf] for number, row in enumerate(expected)]
        assert [
            [id for id, value in zip(*row, strict=True) if value > -torch.inf]
            for row in zip(ids.tolist(), values.tolist(), strict=True)
        ] == finite


def test_rows_are_told_to_change_positions_only_when_they_do() -> None:
    """Greedy rows never change positions; they leave when they are done."""
    rows = Told(language(1, 9), 4)
    beam_search(rows, torch.full((4,), END), [6, 6, 6, 6], BeamSettings((END,), 1, 1, min_new_tokens=6))
    assert rows.selections == 0
    rows = Told(language(1, 9), 4)
    beam_search(rows, torch.full((4,), END), [6, 6, 3, 6], BeamSettings((END,), 1, 1, min_new_tokens=6))
    assert rows.selections == 1
    assert rows.sources == [0, 1, 3]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused_whenever_they_come(broken: float) -> None:
    def breaks(_: int, text: Text) -> Tensor:
        scores = torch.zeros(5)
        scores[3] = broken if len(text) == 2 else 0.0
        return scores

    assert len(found(breaks, BeamSettings((END,), 2), [2])[0]) == 1
    with pytest.raises(RunFault, match="logits are not finite"):
        found(breaks, BeamSettings((END,), 2, min_new_tokens=5), [5])


def test_no_source_at_all_is_no_search() -> None:
    assert found(language(0, 4), BeamSettings((END,)), []) == []
