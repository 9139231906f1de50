"""The table of `minitf inspect answers`: recall by distance, and two controls."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import View
from mini_tf.inspection.gold.answers import Answer, Prediction, of_other_documents, predictions, questions_of
from mini_tf.inspection.gold.documents import LabelledDocument
from mini_tf.inspection.gold.word_states import with_random_weights
from mini_tf.trained.opening import Trained

MAX_ROWS = 8
"""Of distances; more different ones are divided into ranges."""
SHOWN = ("distance", "tokens", "answers", "cue lost", "accuracy", "random", "shuffled", "log p")
HEADERS = (*SHOWN, "random log p")
"""Of the JSON output."""
LEGEND = (
    "distance: words from the cue to the answer; tokens: their mean number; cue lost: answers whose cue is before the"
    " model's context; accuracy: share of the answers predicted right in every token; log p: mean log-probability of an"
    " answer in nats; random: before training; shuffled: with answers of other documents"
)


def view(trained: Trained, documents: Sequence[LabelledDocument]) -> View:
    """Raises UsageFault if the model predicts no tokens of a text, or fewer than two documents have answers."""
    questions = questions_of(trained, documents)
    others = of_other_documents(questions.answers)
    own, random = (predictions(one, questions) for one in (trained, with_random_weights(trained)))
    found = [*zip(questions.answers, own, random, others, strict=True)]
    groups = _ranges({one.words for one in questions.answers if one.words is not None})
    chosen = [(name, [row for row in found if row[0].words in group]) for name, group in groups]
    unknown = [row for row in found if row[0].words is None]
    records = [_record(name, rows) for name, rows in [*chosen, *([("none", unknown)] if unknown else [])]]
    overall = _record("all", found)
    n_words = len({one.word for one in questions.answers})
    summary = f"{n_words} different answers: guessing has accuracy {1 / n_words:.3f}, log p {-math.log(n_words):.3f}."
    if overall["cue_lost"]:
        context = f"the model reads the {trained.model.context} tokens of its context, up to the answer"
        summary += f" {overall['cue_lost']} of {len(found)} answers have lost their cue: {context}."
    result = {
        "documents": len(documents),
        "different_answers": n_words,
        "chance": 1 / n_words,
        "distances": records,
        "all": overall,
    }
    shown = [[*one.values()][: len(SHOWN)] for one in ([*records, overall] if len(records) > 1 else records)]
    pictures = [partial(table, SHOWN, shown), partial(sentence, f"{LEGEND}."), partial(sentence, summary)]
    return View(result, pictures, metrics={f"answers.{name}": overall[name] for name in ("accuracy", "log_p")})


def _ranges(distances: set[int]) -> list[tuple[str, set[int]]]:
    """Distances in at most MAX_ROWS ranges, which hold as many different ones."""
    parts = np.array_split(sorted(distances), min(len(distances), MAX_ROWS)) if distances else []
    return [(f"{part[0]}" if len(part) == 1 else f"{part[0]}-{part[-1]}", {*part.tolist()}) for part in parts]


def _record(name: str, rows: Sequence[tuple[Answer, Prediction, Prediction, Answer]]) -> dict[str, Any]:
    tokens = [answer.tokens for answer, *_ in rows if answer.tokens is not None]
    values = (
        name,
        float(np.mean(tokens)) if tokens else None,
        len(rows),
        sum(answer.lost for answer, *_ in rows),
        float(np.mean([own.ids == answer.ids for answer, own, _, _ in rows])),
        float(np.mean([random.ids == answer.ids for answer, _, random, _ in rows])),
        float(np.mean([own.ids == other.ids for _, own, _, other in rows])),
        float(np.mean([own.log_p for _, own, _, _ in rows])),
        float(np.mean([random.log_p for _, _, random, _ in rows])),
    )
    return dict(zip((header.replace(" ", "_") for header in HEADERS), values, strict=True))
