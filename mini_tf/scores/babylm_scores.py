"""Scores of BabyLM's tasks: accuracy of choices, correlation with people, and how far surprisal explains reading times.

Intervals are of 1,000 bootstrap samples, percentiles 2.5 and 97.5, drawn within each subtask (Efron and Tibshirani
1993). Formulas: BabyLM's evaluation pipeline of 2025; the choice among equal scores is ours.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from mini_tf.scores.intervals import CONFIDENCE
from mini_tf.scores.label_scores import number_scores

SAMPLES = 1000
EYE_TRACKING, SELF_PACED = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound"), "self_paced_reading_time"
CONTROLS, SPILLOVER = ("Subtlex_log10", "length", "context_length"), ("prev_length", "prev_surprisal")
"""What explains reading times beside the surprisal of the word: of itself, and of the word before it."""
METRICS = ("accuracy", "spearman", "variance")


class TaskScore(NamedTuple):
    """The score of a task with n items, its 95 % interval, and that of each subtask.

    measure: one of METRICS; variance is the share that surprisal explains of what other facts leave unexplained. ties:
    items whose right answer has the same score as another one. official: with these counted as right.
    """

    measure: str
    value: float
    low: float
    high: float
    n: int
    ties: int = 0
    official: float | None = None
    subtasks: Mapping[str, float] = {}


def choice_score(groups: Sequence[tuple[str, str]], scores: Sequence[list[float]]) -> TaskScore:
    """Accuracy: the mean over files of the means over their subtasks; a tie of m answers counts 1 / m.

    groups: file and subtask of each item. scores: those of its answers, the right one first.
    """
    is_best = np.array([of_item[0] == max(of_item) for of_item in scores])
    n_best = np.array([of_item.count(max(of_item)) for of_item in scores])
    right = np.where(is_best, 1 / n_best, 0.0)
    members: dict[tuple[str, str], list[int]] = {}
    for number, name in enumerate(groups):
        members.setdefault(name, []).append(number)
    names = [*members]
    n_subtasks = Counter(file for file, _ in names)
    weights = np.array([1 / (len(n_subtasks) * n_subtasks[file]) for file, _ in names])

    def mean(outcomes: Sequence[np.ndarray]) -> float:
        return float(weights @ np.array([values.mean() for values in outcomes]))

    outcomes, first = ([values[members[name]] for name in names] for values in (right, is_best.astype(float)))
    ties = int((is_best & (n_best > 1)).sum())
    subtasks = {subtask: float(values.mean()) for (_, subtask), values in zip(names, outcomes, strict=True)}
    interval = bootstrap_interval(outcomes, mean)
    return TaskScore("accuracy", mean(outcomes), *interval, len(scores), ties, mean(first), subtasks)


def preference_score(ratios: Sequence[float], scores: Sequence[Sequence[float]]) -> TaskScore:
    """Spearman's correlation of people's preferences for the first answer and the model's: its probability among the
    answers. NaN without scikit-learn.
    """
    rows = np.array([[ratio, first_share(of_item)] for ratio, of_item in zip(ratios, scores, strict=True)])

    def correlation(sample: Sequence[np.ndarray]) -> float:
        return number_scores(sample[0][:, 0], sample[0][:, 1]).get("spearman", np.nan)

    return TaskScore("spearman", correlation([rows]), *bootstrap_interval([rows], correlation), len(rows))


def first_share(scores: Sequence[float]) -> float:
    """The probability of the first answer among all, from log-probabilities."""
    p = np.exp(np.array(scores) - max(scores))
    return float(p[0] / p.sum())


def reading_scores(columns: Mapping[str, np.ndarray]) -> dict[str, TaskScore]:
    """Of eye tracking the mean over its four times, of self-paced reading with spillover of the previous word.

    columns (N,): reading times, CONTROLS, SPILLOVER and `surprisal`, NaN where missing.
    """
    names = [*columns]
    rows = np.stack([columns[name] for name in names], axis=1)

    def explained(times: Sequence[str], controls: Sequence[str], sample: Sequence[np.ndarray]) -> float:
        of = {name: sample[0][:, number] for number, name in enumerate(names)}
        shares = [explained_share(of[time], of["surprisal"], [of[name] for name in controls]) for time in times]
        return float(np.mean(shares))

    scores = {}
    for name, times, controls in (
        ("eye_tracking", EYE_TRACKING, CONTROLS),
        ("self_paced", (SELF_PACED,), (*CONTROLS, *SPILLOVER)),
    ):
        statistic = partial(explained, times, controls)
        n = int(np.isfinite(np.stack([columns[column] for column in (*times, *controls)])).all(axis=0).sum())
        scores[name] = TaskScore("variance", statistic([rows]), *bootstrap_interval([rows], statistic), n)
    return scores


def explained_share(y: np.ndarray, x: np.ndarray, controls: Sequence[np.ndarray]) -> float:
    """(R² with x - R² without) / (1 - R² without), of linear models with the controls and their products in pairs.

    It is the squared partial correlation of y and x. Rows with NaN are left out; NaN if too few are left.
    """
    table = np.stack([y, x, *controls, *(control * other for control, other in combinations(controls, 2))], axis=1)
    table = table[np.isfinite(table).all(axis=1)]
    design = np.column_stack([np.ones(len(table)), table[:, 2:]])
    if len(table) < design.shape[1] + 2:
        return np.nan
    scale = np.abs(design).max(axis=0)
    design = design / np.where(scale == 0, 1, scale)
    rest = table[:, :2] - design @ np.linalg.lstsq(design, table[:, :2], rcond=None)[0]
    variances = (rest**2).sum(axis=0)
    return float((rest[:, 0] @ rest[:, 1]) ** 2 / variances.prod()) if variances.all() else np.nan


def bootstrap_interval(
    groups: Sequence[np.ndarray], statistic: Callable[[Sequence[np.ndarray]], float]
) -> tuple[float, float]:
    """The interval of a statistic of groups of rows, which are drawn with replacement within each group."""
    rng = np.random.Generator(np.random.Philox(key=0))
    samples = (statistic([rows[rng.integers(len(rows), size=len(rows))] for rows in groups]) for _ in range(SAMPLES))
    values = np.array([value for value in samples if np.isfinite(value)])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail]) if len(values) else (np.nan, np.nan)
    return float(low), float(high)
