"""Figures of classes and numbers are what counting gives, whatever is missing: classes, variety, or scikit-learn."""

import sys

import numpy as np
import pytest

from mini_tf.scores.label_scores import calibration, class_scores, confusion, number_scores

NAMES = ["a", "b", "c", "d"]


def drawn(n: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted classes, alike in two of three cases."""
    random = np.random.default_rng(seed)
    truth, other = random.integers(0, classes, (2, n))
    return truth, np.where(random.random(n) < 2 / 3, truth, other)


def counted_f1(truth: np.ndarray, predicted: np.ndarray, one: int) -> float:
    pairs = list(zip(truth.tolist(), predicted.tolist(), strict=True))
    hits = sum(pair == (one, one) for pair in pairs)
    misses = sum((a == one) != (b == one) for a, b in pairs)
    return 2 * hits / (2 * hits + misses)


@pytest.mark.parametrize("seed", range(3))
def test_f1_is_what_counting_hits_and_misses_gives(seed: int) -> None:
    truth, predicted = drawn(50, 4, seed)
    scores = class_scores(truth, predicted, NAMES)
    by_class = {f"f1.{name}": counted_f1(truth, predicted, i) for i, name in enumerate(NAMES)}
    assert {name: score for name, score in scores.items() if name.startswith("f1.")} == pytest.approx(by_class)
    assert scores["f1_macro"] == pytest.approx(sum(by_class.values()) / 4)
    assert scores["f1_micro"] == pytest.approx(scores["accuracy"])
    assert scores["accuracy"] == pytest.approx(sum(a == b for a, b in zip(truth, predicted, strict=True)) / 50)


@pytest.mark.parametrize("seed", range(5))
def test_matthews_of_two_classes_is_the_correlation_of_zeros_and_ones(seed: int) -> None:
    truth, predicted = drawn(40, 2, seed)
    table = confusion(truth, predicted, 2)
    (tn, fp), (fn, tp) = table.tolist()
    by_counts = (tp * tn - fp * fn) / np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    matthews = class_scores(truth, predicted, NAMES[:2])["matthews"]
    assert matthews == pytest.approx(by_counts)
    assert matthews == pytest.approx(np.corrcoef(truth, predicted)[0, 1])


def test_matthews_of_several_classes_is_the_correlation_of_their_indicators() -> None:
    """Gorodkin 2004: covariances are summed over the classes."""
    truth, predicted = drawn(60, 4, 0)
    x, y = (np.eye(4)[side] - np.eye(4)[side].mean(axis=0) for side in (truth, predicted))
    assert class_scores(truth, predicted, NAMES)["matthews"] == pytest.approx(
        (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())
    )


def test_a_class_that_neither_side_has_is_left_out_of_the_mean_and_one_never_right_is_zero() -> None:
    scores = class_scores(np.array([0, 0, 2]), np.array([0, 3, 2]), NAMES)
    assert "f1.b" not in scores
    assert scores["f1.d"] == 0.0
    assert scores["f1_macro"] == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_the_first_class_counts_where_it_is_only_predicted() -> None:
    scores = class_scores(np.array([1, 1, 2]), np.array([0, 1, 2]), NAMES)
    assert scores["f1.a"] == 0.0
    assert scores["f1_macro"] == pytest.approx((0 + 2 / 3 + 1) / 3)


def test_one_class_alone_has_no_correlation_and_no_warning() -> None:
    for truth, predicted in (([1, 1], [1, 1]), ([1, 1], [0, 1]), ([0, 1], [1, 1]), ([1], [0])):
        assert class_scores(np.array(truth), np.array(predicted), NAMES)["matthews"] == 0.0


def test_confusion_counts_every_pair_once_in_the_row_of_the_truth() -> None:
    truth, predicted = drawn(80, 3, 1)
    table = confusion(truth.astype(np.int8), predicted.astype(np.int8), 4)
    expected = [[sum((truth == i) & (predicted == j)) for j in range(4)] for i in range(4)]
    assert table.tolist() == expected
    assert table[:3].sum() == 80


def test_calibration_is_what_each_bin_holds_and_the_error_their_weighted_distance() -> None:
    random = np.random.default_rng(0)
    probabilities, truth = random.dirichlet([0.6] * 3, 200), random.integers(0, 3, 200)
    found = calibration(probabilities, truth, bins=7)
    best, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    error = 0.0
    for m in range(7):
        held = [i for i in range(200) if m / 7 < best[i] <= (m + 1) / 7]
        assert found.counts[m] == len(held)
        if not held:
            assert np.isnan(found.confidence[m])
            assert np.isnan(found.accuracy[m])
            continue
        assert found.confidence[m] == pytest.approx(np.mean(best[held]))
        assert found.accuracy[m] == pytest.approx(np.mean(right[held]))
        error += len(held) / 200 * abs(np.mean(best[held]) - np.mean(right[held]))
    assert (found.counts == 0).any()
    assert found.error == pytest.approx(error)


def test_a_bin_owns_its_upper_edge_and_certainty_stands_in_the_last() -> None:
    for confidence, place in ((0.7, 6), (0.3, 2), (0.1, 0), (1.0, 9), (0.70001, 7)):
        others = [(1 - confidence) / 20] * 20
        assert calibration(np.array([[confidence, *others]]), np.array([0])).counts.tolist() == [
            int(i == place) for i in range(10)
        ]


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal values share the mean of their positions."""
    return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])


@pytest.mark.parametrize("seed", range(5))
def test_correlations_and_error_are_what_the_formulas_give(seed: int) -> None:
    random = np.random.default_rng(seed)
    truth = random.integers(0, 6, 30).astype(np.float32)
    predicted = (truth / 2 + random.integers(-2, 3, 30)).astype(np.float32)
    scores = number_scores(truth, predicted)

    def correlation(a: np.ndarray, b: np.ndarray) -> float:
        a, b = a - a.mean(), b - b.mean()
        return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))

    assert len(set(truth)) < len(truth)
    assert scores["pearson"] == pytest.approx(correlation(truth.astype(float), predicted.astype(float)))
    assert scores["spearman"] == pytest.approx(correlation(ranks(truth), ranks(predicted)))
    assert scores["rmse"] == pytest.approx(
        float(np.mean([(a - b) ** 2 for a, b in zip(truth, predicted, strict=True)])) ** 0.5
    )


@pytest.mark.parametrize("predicted", [[2.0, 2.0, 2.0], [1.0, np.nan, 2.0], [1.0, np.inf, 2.0]])
def test_constant_or_infinite_numbers_have_no_correlation_and_no_warning(predicted: list[float]) -> None:
    scores = number_scores(np.array([1.0, 2.0, 4.0]), np.array(predicted))
    assert np.isnan([scores["pearson"], scores["spearman"]]).all()
    assert isinstance(scores["pearson"], float)
    one = number_scores(np.array([1.0]), np.array([3.0]))
    assert one["rmse"] == 2.0
    assert np.isnan(one["pearson"])


def test_numbers_that_hardly_differ_are_correlated_without_a_warning() -> None:
    assert number_scores(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1 + 3e-16, 1.0])).keys() == {
        "pearson",
        "spearman",
        "rmse",
    }


def test_without_scikit_learn_accuracy_and_rmse_are_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, predicted = drawn(50, 4, 0)
    whole, numbers = class_scores(truth, predicted, NAMES), number_scores(truth, predicted)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert class_scores(truth, predicted, NAMES) == {"accuracy": whole["accuracy"]}
    assert number_scores(truth, predicted) == {"rmse": numbers["rmse"]}
