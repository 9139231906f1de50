"""Scores of BabyLM's tasks against the formulas of its evaluation pipeline, written with scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import PolynomialFeatures

from mini_tf.scores import babylm_scores
from mini_tf.scores.babylm_scores import (
    bootstrap_interval,
    choice_score,
    explained_share,
    first_share,
    preference_score,
    reading_scores,
)


def test_accuracy_is_the_mean_over_files_of_the_means_of_subtasks_and_ties_count_their_share() -> None:
    groups = [("a", "a_0"), ("a", "a_0"), ("a", "a_1"), ("b", "b_0")]
    score = choice_score(groups, [[-1.0, -2.0], [-3.0, -2.0], [-1.0, -1.0, -1.0, -4.0], [-1.0, -1.0]])
    assert score.value == pytest.approx(((1 / 2 + 1 / 3) / 2 + 1 / 2) / 2)
    assert score.official == pytest.approx(((1 / 2 + 1) / 2 + 1) / 2)
    assert (score.n, score.ties) == (4, 2)
    assert score.subtasks == pytest.approx({"a_0": 1 / 2, "a_1": 1 / 3, "b_0": 1 / 2})


def test_wrong_answers_that_are_equal_are_no_tie() -> None:
    score = choice_score([("a", "a")], [[-2.0, -1.0, -1.0]])
    assert (score.value, score.official, score.ties) == (0, 0, 0)


def test_the_bootstrap_interval_of_a_share_is_about_that_of_the_binomial_distribution() -> None:
    outcomes = np.array([1.0] * 300 + [0.0] * 100)
    low, high = bootstrap_interval([outcomes], lambda groups: float(groups[0].mean()))
    exact = stats.binomtest(300, 400).proportion_ci(0.95)
    assert (low, high) == pytest.approx((exact.low, exact.high), abs=0.01)
    assert (low, high) == bootstrap_interval([outcomes], lambda groups: float(groups[0].mean()))


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an interval: 1,000 take seconds."""
    monkeypatch.setattr(babylm_scores, "SAMPLES", 50)


@pytest.mark.usefixtures("few_samples")
def test_preferences_are_correlated_by_rank_with_the_probability_among_the_answers() -> None:
    ratios, scores = [0.9, 0.2, 0.5, 0.7], [[-9.0, -11.0], [-30.0, -29.0], [-2.0, -1.7], [-8.0, -8.5]]
    p = [np.exp(one) / (np.exp(one) + np.exp(other)) for one, other in scores]
    assert [first_share(of_item) for of_item in scores] == pytest.approx(p)
    assert preference_score(ratios, scores).value == pytest.approx(stats.spearmanr(p, ratios).statistic)


def r_squared(y: np.ndarray, columns: list[np.ndarray], further: list[np.ndarray]) -> float:
    """Of a linear model with the columns, their products in pairs, and the further ones."""
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(np.stack(columns, axis=1))
    x = np.column_stack([products, *further])
    return float(LinearRegression().fit(x, y).score(x, y))


@pytest.mark.usefixtures("few_samples")
def test_surprisal_explains_a_share_of_what_linear_models_leave_unexplained() -> None:
    rng = np.random.default_rng(0)
    n = 120
    columns = {name: rng.normal(5, 2, n) for name in ("Subtlex_log10", "length", "context_length", "prev_length")}
    columns |= {"surprisal": rng.normal(8, 3, n), "prev_surprisal": rng.normal(8, 3, n)}
    times = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound", "self_paced_reading_time")
    columns |= {time: 100 + columns["surprisal"] * (k + 1) + rng.normal(0, 9, n) for k, time in enumerate(times)}
    own, spillover = list(columns)[:3], [*list(columns)[:4], "prev_surprisal"]

    def share(time: str, controls: list[str], rows: np.ndarray) -> float:
        y, by = columns[time][rows], [columns[name][rows] for name in controls]
        without, with_it = r_squared(y, by, []), r_squared(y, by, [columns["surprisal"][rows]])
        return (with_it - without) / (1 - without)

    missing = rng.random(n) < 0.1
    columns["prev_surprisal"][missing] = columns["prev_length"][missing] = np.nan
    scores, everywhere = reading_scores(columns), np.arange(n)
    expected = np.mean([share(time, own, everywhere) for time in times[:4]])
    assert scores["eye_tracking"].value == pytest.approx(expected)
    assert scores["self_paced"].value == pytest.approx(share(times[4], spillover, everywhere[~missing]))
    assert (scores["eye_tracking"].n, scores["self_paced"].n) == (n, n - missing.sum())
    assert all(score.low < score.value < score.high for score in scores.values())


def test_too_few_reading_times_give_no_number() -> None:
    y = np.arange(4.0)
    assert np.isnan(explained_share(y, y**2, [y, y]))
    assert np.isnan(explained_share(np.full(9, 3.0), np.arange(9.0), [np.arange(9.0) % 2]))
