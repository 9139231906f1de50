"""The contract of noises over every kind; the distributions of each; and against noises that break the contract."""

from typing import Any

import numpy as np
import pytest

from mini_tf.noises import NoiseSettings, NoisyText, corrupt
from mini_tf.noises.infill import Settings as Infill
from mini_tf.noises.spans import Settings as Spans
from mini_tf.noises.spans import partition
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import noises as contract
from mini_tf.testing import run_all

KINDS: dict[str, Any] = {word: settings_of("noises", word) for word in listing("noises")}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((word, {}) for word in KINDS),
    *((word, {"rate": rate}) for word in KINDS for rate in (0.6, 1.0)),
    ("infill", {"rate": 0.9, "mean_length": 0.5}),
    ("spans", {"rate": 0.5, "mean_length": 1.0}),
]
# 99.9% quantiles of the chi-square distribution
CHI_SQUARE = {5: 20.52, 8: 26.12, 9: 27.88}


@pytest.mark.parametrize(("word", "given"), VARIANTS, ids=str)
def test_every_noise_keeps_to_the_contract(word: str, given: dict[str, Any]) -> None:
    own_rate = contract.replaces_or_removes_the_share_of_the_tokens.__name__
    cases = contract.cases(KINDS[word](**given))
    run_all(case for case in cases if case.name != own_rate or given.keys() != {"rate"})


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    assert expected.min() >= 5
    return float(((counts - expected) ** 2 / expected).sum())


def poisson(mean: float, up_to: int) -> np.ndarray:
    """The probabilities of 0, 1, ..., `up_to` - 1, and of all above."""
    p = np.exp(-mean) * np.cumprod([1.0, *(mean / k for k in range(1, up_to))])
    return np.append(p, 1 - p.sum())


@pytest.mark.parametrize(("mean", "up_to"), [(3.0, 9), (1.0, 5)])
def test_span_lengths_of_infilling_are_poisson(mean: float, up_to: int) -> None:
    """The last span of a text is cut to what is left, so a long text is needed, and one length of many is wrong."""
    text = NoisyText.of(40_000)
    lengths = Infill(rate=0.3, mean_length=mean).apply(text, np.random.default_rng(1))
    spans = lengths.lengths[lengths.marked]
    counts = np.bincount(np.minimum(spans, up_to), minlength=up_to + 1)
    assert chi_square(counts, poisson(mean, up_to) * len(spans)) < CHI_SQUARE[up_to]


def test_starts_of_infilled_spans_are_uniform() -> None:
    starts = []
    for seed in range(2000):
        text = Infill(rate=0.05, mean_length=3).apply(NoisyText.of(100), np.random.default_rng(seed))
        starts += [int(text.tokens[offset]) for offset in text.offsets[:-1][text.marked & (text.lengths > 0)]]
    counts = np.histogram(starts, bins=9, range=(0, 90))[0]
    assert chi_square(counts, np.full(9, len([start for start in starts if start < 90]) / 9)) < CHI_SQUARE[8]


def test_every_token_is_equally_often_masked_and_deleted() -> None:
    for word in ("mask", "delete"):
        kept = np.zeros(10)
        for seed in range(1000):
            text = KINDS[word](rate=0.3).apply(NoisyText.of(10), np.random.default_rng(seed))
            kept[text.tokens[text.offsets[:-1][~text.marked]]] += 1
        assert chi_square(kept, np.full(10, 700.0)) < CHI_SQUARE[9]


def reference_spans(length: int, rate: float, mean: float, rng: np.random.Generator) -> np.ndarray:
    """An independent form of T5's mask of noise tokens: the cuts are the permuted ones of a vector of n - 1 flags."""
    n_noise = min(max(int(np.round(length * rate)), 1), length - 1)
    n_spans = max(int(np.round(n_noise / mean)), 1)

    def segments(n: int, k: int) -> list[int]:
        cut = np.zeros(n - 1, int)
        cut[rng.permutation(n - 1)[: k - 1]] = 1
        number = np.concatenate([[0], np.cumsum(cut)])
        return [int((number == one).sum()) for one in range(k)]

    noise, other = segments(n_noise, n_spans), segments(length - n_noise, n_spans)
    return np.concatenate([np.repeat([False, True], pair) for pair in zip(other, noise, strict=True)])


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 2.0), (0.3, 1.4), (0.9, 3.0)])
def test_corrupted_spans_are_those_of_t5(rate: float, mean: float) -> None:
    for length in (*range(2, 60), 128):
        text = Spans(rate=rate, mean_length=mean).apply(NoisyText.of(length), np.random.default_rng(length))
        n = min(max(round(length * rate), 1), length - 1)
        assert int(text.lengths[text.marked].sum()) == n
        assert int(text.marked.sum()) == min(max(round(n / mean), 1), length - n)
        assert not text.marked[0]
        assert text.marked[-1]
        if n / mean + n <= length:  # else the reference asks for more spans than there are tokens between them
            # The order of the draws is the same: first the spans, then what is between them.
            expected = reference_spans(length, rate, mean, np.random.default_rng(length))
            assert np.array_equal(np.repeat(text.marked, text.lengths), expected)


@pytest.mark.parametrize(("word", "mean"), [("infill", 3.0), ("infill", 0.8), ("spans", 3.0), ("spans", 1.5)])
def test_marks_have_their_mean_length_and_are_spread_over_the_text(word: str, mean: float) -> None:
    """Over 100,000 tokens, within four standard errors; infilled marks of any length are early as often as late."""
    places: dict[int, list[float]] = {0: [], 1: [], 2: []}
    too_long, apart, rng = [], True, np.random.default_rng(3)
    noise = KINDS[word](rate=0.3, mean_length=mean)
    for length in rng.integers(60, 141, 1000).tolist():
        text = noise.apply(NoisyText.of(length), rng)
        marks = np.flatnonzero(text.marked)
        too_long.append(float(text.lengths[marks].sum() - mean * len(marks)))
        apart &= bool((np.diff(marks) > 1).all())
        for mark in marks.tolist():
            places[min(2, int(text.lengths[mark]))].append((mark + 0.5) / len(text))
    assert apart, "there must be a token between two marks"
    # Of short infilled spans the empty ones are fewer, as the text must not grow; a last one is cut.
    if word == "spans" or mean > 2:
        assert abs(np.mean(too_long)) < 4 * np.std(too_long) / len(too_long) ** 0.5 + (word == "infill")
    for found in places.values() if word == "infill" else ():
        assert len(found) > 100
        assert abs(np.mean(found) - 0.5) < 4 * np.std(found) / len(found) ** 0.5


def test_every_partition_is_equally_probable() -> None:
    rng = np.random.default_rng(0)
    found = [tuple(partition(6, 3, rng).tolist()) for _ in range(3000)]
    assert {sum(one) for one in found} == {6}
    counts = np.array([found.count(one) for one in set(found)])
    assert len(counts) == 10
    assert chi_square(counts, np.full(10, 300.0)) < CHI_SQUARE[9]


def sentences_of(text: NoisyText, starts: np.ndarray) -> list[list[int]]:
    """The tokens of a text without marks, divided where a sentence begins."""
    found: list[list[int]] = [[]]
    for token in text.tokens.tolist():
        if found[-1] and starts[token]:
            found.append([])
        found[-1].append(token)
    return found


def test_permuted_sentences_stay_whole_and_each_order_is_equally_probable() -> None:
    starts = np.isin(np.arange(10), [0, 1, 7])
    whole = [[0], [1, 2, 3, 4, 5, 6], [7, 8, 9]]
    orders = []
    for seed in range(1200):
        text = KINDS["permute_sentences"]().apply(NoisyText.of(10, starts), np.random.default_rng(seed))
        found = sentences_of(text, starts)
        assert sorted(found) == whole
        orders.append(tuple(whole.index(one) for one in found))
    counts = np.array([orders.count(one) for one in set(orders)])
    assert len(counts) == 6
    assert chi_square(counts, np.full(6, 200.0)) < CHI_SQUARE[5]


def test_a_mark_opens_no_sentence() -> None:
    """Neither one in place of a sentence's first token, which is no longer seen, nor an empty one before it."""
    starts = np.isin(np.arange(9), [0, 3, 6])
    text = NoisyText.of(9, starts).with_marks(np.array([3, 6]), np.array([1, 0]))
    assert text.marked.tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0, 0]
    first, second = [0, 1, 2, 3, 4, 5], [6, 7, 8]
    found = set()
    for seed in range(40):
        permuted = KINDS["permute_sentences"]().apply(text, np.random.default_rng(seed))
        found.add((tuple(permuted.tokens.tolist()), tuple(permuted.marked.astype(int).tolist())))
    assert found == {
        ((*first, *second), (0, 0, 0, 1, 0, 0, 1, 0, 0, 0)),
        ((*second, *first), (0, 0, 0, 0, 0, 0, 1, 0, 0, 1)),
    }


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
def test_a_share_of_the_sentences_is_shuffled_and_each_equally_often(rate: float) -> None:
    """Of k shuffled sentences k - 1 move on average, with a variance of 1."""
    starts, n_texts = np.arange(48) % 4 == 0, 1500
    moved, rng = np.zeros((n_texts, 12)), np.random.default_rng(2)
    for number in range(n_texts):
        text = KINDS["permute_sentences"](rate=rate).apply(NoisyText.of(48, starts), rng)
        moved[number] = [one[0] != 4 * n for n, one in enumerate(sentences_of(text, starts))]
    assert moved.sum(1).max() <= 12 * rate
    assert abs(moved.sum(1).mean() - (12 * rate - 1)) < 4 / n_texts**0.5
    share = (12 * rate - 1) / 12
    assert chi_square(moved[:, :10].sum(0), np.full(10, share * n_texts)) < CHI_SQUARE[9]


def test_a_rotated_text_begins_at_any_token_equally_often() -> None:
    firsts = []
    for seed in range(1000):
        text = KINDS["rotate"]().apply(NoisyText.of(10), np.random.default_rng(seed))
        first = int(text.tokens[0])
        assert text.tokens.tolist() == [*range(first, 10), *range(first)]
        firsts.append(first)
    assert chi_square(np.bincount(firsts, minlength=10), np.full(10, 100.0)) < CHI_SQUARE[9]


def test_a_share_of_the_texts_is_rotated() -> None:
    rotated = [
        KINDS["rotate"](rate=0.25).apply(NoisyText.of(50), np.random.default_rng(seed)).tokens[0] != 0
        for seed in range(1000)
    ]
    assert 200 < sum(rotated) < 300


def test_spans_over_permuted_sentences_and_earlier_marks_keep_their_tokens() -> None:
    starts = np.arange(12) % 4 == 0
    noises = [KINDS["permute_sentences"](), KINDS["mask"](rate=0.3), Infill(rate=0.6, mean_length=4.0)]
    for seed in range(20):
        text = corrupt(noises, NoisyText.of(12, starts), np.random.default_rng(seed))
        assert sorted(text.tokens.tolist()) == [*range(12)]
        assert len(text) <= 12


def test_noises_are_applied_in_their_order() -> None:
    """Where all tokens are marked first there is no sentence left to shuffle."""
    text = NoisyText.of(12, np.arange(12) % 4 == 0)
    shuffle = KINDS["permute_sentences"]()
    mask = KINDS["mask"](rate=1.0)
    shuffled, kept = (
        {tuple(corrupt(noises, text, np.random.default_rng(seed)).tokens.tolist()) for seed in range(30)}
        for noises in ((shuffle, mask), (mask, shuffle))
    )
    assert len(shuffled) == 6
    assert kept == {tuple(range(12))}


class Broken(NoiseSettings):
    """Leaves everything as it is; the ones below differ from it in one thing."""

    rate: float = 0.5


class IgnoresItsRate(Broken):
    MARKS = True

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text.with_marks(np.array([0]), np.array([min(1, len(text))]))


class RoundsDown(Broken):
    MARKS = True

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        chosen = np.sort(rng.permutation(len(text))[: int(self.rate * len(text))])
        return text.with_marks(chosen, np.ones_like(chosen))


class LosesALastToken(Broken):
    DELETES = True

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text.select(np.flatnonzero(rng.random(len(text)) >= self.rate)[: -1 if self.rate else None])


class DrawsAnew(Broken):
    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text.select(
            np.roll(np.arange(len(text)), np.random.randint(1000)) if self.rate else np.arange(len(text))
        )


class Doubles(Broken):
    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text if not self.rate or len(text) < 3 else text.select(np.array([0, 0, 1]))


class DeletesWithoutSayingSo(Broken):
    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text if not self.rate or len(text) < 3 else text.select(np.array([0, 1]))


class SaysThatItMarks(Broken):
    MARKS = True

    def apply(self, text: NoisyText, rng: np.random.Generator) -> NoisyText:
        return text


@pytest.mark.parametrize(
    ("fault", "holds", "told"),
    [
        (IgnoresItsRate, contract.rate_0_changes_nothing, "at rate 0 "),
        (DrawsAnew, contract.apply_is_pure, "numpy's global generator|the same generator must give the same"),
        (Doubles, contract.tokens_are_neither_invented_nor_doubled, "no token may occur twice"),
        (DeletesWithoutSayingSo, contract.tokens_are_neither_invented_nor_doubled, "DELETES must be declared"),
        (DeletesWithoutSayingSo, contract.noises_follow_each_other, "every token must be in a mark or in the text"),
        (RoundsDown, contract.replaces_or_removes_the_share_of_the_tokens, "that share of its tokens, not -0.4"),
        (LosesALastToken, contract.replaces_or_removes_the_share_of_the_tokens, r"of its tokens, not \+1"),
        (SaysThatItMarks, contract.declarations_are_true, "MARKS is declared, but nothing is marked"),
    ],
)
def test_a_noise_that_breaks_the_contract_is_found_out(fault: Any, holds: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        holds(fault())
