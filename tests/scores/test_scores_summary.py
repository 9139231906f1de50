"""ROUGE is what counting words, pairs and common subsequences by hand gives, and the best of several references
counts.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from rouge_score.rouge_scorer import RougeScorer

from mini_tf.scores.text_scores import summary_scores

OURS = ["the cat sat on the mat", "a dog", "one two two three"]
THEIRS = ["on the mat sat the big cat", "no cat", "two one two three four"]


def f_measure(shared: int, ours: int, theirs: int) -> float:
    return 2 * shared / (ours + theirs) if shared else 0.0


def rouge_n(ours: str, theirs: str, n: int) -> float:
    a, b = (Counter(zip(*(text.split()[i:] for i in range(n)), strict=False)) for text in (ours, theirs))
    return f_measure((a & b).total(), a.total(), b.total())


def rouge_l(ours: str, theirs: str) -> float:
    a, b = ours.split(), theirs.split()

    @cache
    def longest(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        return max(longest(i + 1, j), longest(i, j + 1), 1 + longest(i + 1, j + 1) if a[i] == b[j] else 0)

    return f_measure(longest(0, 0), len(a), len(b))


def by_hand(ours: str, theirs: str) -> dict[str, float]:
    return {"rouge1": rouge_n(ours, theirs, 1), "rouge2": rouge_n(ours, theirs, 2), "rougeL": rouge_l(ours, theirs)}


def mean(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


def test_rouge_is_the_mean_of_what_counting_by_hand_gives() -> None:
    scores = summary_scores(OURS, [[one] for one in THEIRS])
    assert scores == pytest.approx(mean([by_hand(a, b) for a, b in zip(OURS, THEIRS, strict=True)]))
    assert len({round(score, 6) for score in scores.values()}) == 3


def test_each_figure_takes_the_best_of_several_references() -> None:
    references = ["mat the on sat cat the", "the cat sat", "the cat sat"]
    found = [by_hand(OURS[0], one) for one in references]
    assert summary_scores(OURS[:1], [references]) == pytest.approx(
        {name: max(one[name] for one in found) for name in found[0]}
    )
    assert found[0]["rouge1"] > found[1]["rouge1"]
    assert found[0]["rougeL"] < found[1]["rougeL"]


def test_case_stops_and_endings_do_not_count() -> None:
    scores = summary_scores(["The Training, (runs)!"], [["the trains run"]])
    assert scores == pytest.approx({"rouge1": 1, "rouge2": 1, "rougeL": 1})


def test_a_text_without_words_scores_nothing() -> None:
    assert summary_scores(["", "a b"], [["a b"], ["?!"]]) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


ASCII = (
    "Don't stop; the 3.5 runs_of trains' (training) x-y ~ $5 ^ `a` \tA\nB ''",
    "The trains' run: 3.5 -- A b, don t STOP y_x",
)


def test_english_is_scored_by_the_words_of_rouge_score() -> None:
    """Also beside quotes and dashes that are not ASCII."""
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for ours, theirs in (
        ASCII,
        ("\u201cDon\u2019t stop\u201d \u2013 he runs\u2026", "don't stop, he runs \u2b50\ufe0f"),
    ):
        expected = {name: score.fmeasure for name, score in scorer.score(theirs, ours).items()}
        assert summary_scores([ours], [[theirs]]) == pytest.approx(expected)
        assert expected["rouge2"] > 0


@pytest.mark.parametrize(
    ("ours", "theirs", "spaced"),
    [
        ("Кошка сидела, на крыше.", "На крыше: сидела КОШКА!", ("кошка сидела на крыше", "на крыше сидела кошка")),
        ("猫坐在3号垫子上。", "猫在垫子上睡觉", ("猫 坐 在 3 号 垫 子 上", "猫 在 垫 子 上 睡 觉")),
        ("ネコはGPU上", "ネコ、GPU", ("ネ コ は gpu 上", "ネ コ gpu")),
        ("हिन्दी पढ़ो ।", "हिन्दी लिखो", ("हिन्दी पढ़ो", "हिन्दी लिखो")),
        ("Cafe\u0301 Straße", "café strasse", ("café straße", "café strasse")),
        ("ที่นี่ ok", "ที่", ("ท ี ่ น ี ่ ok", "ท ี ่")),
        ("한국어 문장", "한국어", ("한국어 문장", "한국어")),
    ],
)
def test_words_of_other_scripts_count_like_those_of_english(ours: str, theirs: str, spaced: tuple[str, str]) -> None:
    expected = by_hand(*spaced)
    assert summary_scores([ours], [[theirs]]) == pytest.approx(expected)
    assert 0 < expected["rouge1"] <= 1
    assert summary_scores([ours], [[ours]])["rougeL"] == 1
