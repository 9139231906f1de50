"""BabyLM's tasks, measured with a model that scores texts: scores, and predictions as its leaderboard takes them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mini_tf.data.formats.babylm_files import READING_TIMES, WORD_FACTS, Item
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.scores.babylm_scores import TaskScore, choice_score, first_share, preference_score, reading_scores

READING = "reading"


class Measured(NamedTuple):
    """Scores by task; predictions by task and subtask, as BabyLM's script `collate_preds` joins them."""

    scores: dict[str, TaskScore]
    predictions: dict[str, dict[str, dict[str, list[dict[str, Any]]]]]


def measure(tasks: Mapping[str, Sequence[Item]], scorer: TextScorer) -> Measured:
    """Score all items. A word's surprisal is -log p(word | text before it): an encoder sees nothing behind it."""
    measured = Measured({}, {})
    for task, items in tasks.items():
        flat = [(*pair, item.where) for item in items for pair in zip(item.texts, item.starts, strict=True)]
        texts, starts, places = zip(*flat, strict=True)
        values = iter(scorer.texts(texts, places, starts, cut=True, ahead=task != READING))
        scores = [[next(values) for _ in item.texts] for item in items]
        if task == READING:
            measured.scores.update(_reading(items, scores))
        elif "ratio" in items[0].numbers:
            measured.scores[task] = preference_score([item.numbers["ratio"] for item in items], scores)
        else:
            measured.scores[task] = choice_score([(item.file, item.subtask) for item in items], scores)
        measured.predictions[task] = _predictions(items, scores)
    return measured


def _reading(items: Sequence[Item], scores: Sequence[list[float]]) -> dict[str, TaskScore]:
    columns = {name: np.array([item.numbers[name] for item in items]) for name in (*READING_TIMES, *WORD_FACTS)}
    columns["surprisal"] = np.array([-of_item[0] for of_item in scores])
    columns["prev_surprisal"] = np.array([-of_item[1] if len(of_item) > 1 else np.nan for of_item in scores])
    return {f"{READING}.{name}": score for name, score in reading_scores(columns).items()}


def _predictions(items: Sequence[Item], scores: Sequence[list[float]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Of equal scores the first is predicted, as by BabyLM's script."""
    by_subtask: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for item, of_item in zip(items, scores, strict=True):
        rows = by_subtask.setdefault(item.subtask, {"predictions": []})["predictions"]
        if item.subtask == READING:
            rows.append({"id": len(rows), "pred": -of_item[0], "prev_pred": -of_item[1] if len(of_item) > 1 else None})
            continue
        answer = {"id": f"{item.subtask}_{len(rows)}", "pred": item.answers[of_item.index(max(of_item))]}
        rows.append(answer | ({"prob": first_share(of_item)} if "ratio" in item.numbers else {}))
    return by_subtask
