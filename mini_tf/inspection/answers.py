"""Recall of words that the words before them determine: does the model predict them, and at what distance?

An answer is right if the most probable token is right in each place of its tokens, given the true text before it; an
encoder predicts all tokens of the answer at once, each masked. A text longer than the context is truncated to the
tokens that end at the answer; a model trained with `train.stream` processes all documents as one stream, as in
training, with its recurrent state.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from mini_tf.drawing.terminal import sentence, table
from mini_tf.generation import likelihoods
from mini_tf.inspection import LabelledViewSettings, View, ViewOutput
from mini_tf.inspection._gold import LabelledDocument, labelled_documents, with_random_weights
from mini_tf.inspection._texts import text_input
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.framing import text_affixes
from mini_tf.trained.opening import Trained

ANSWERS, CUE = "answers", "cue"
"""Columns: indices of the answers; index of one cue and of the word that it decides."""
NONE = "-"
_SEED = 0


class Answer(NamedTuple):
    """An answer of a document, by number, and its place: from the target `first` of a row on.

    words, tokens: distance to the cue, None if the word does not occur earlier; lost: the cue is not in the row.
    """

    document: int
    word: str
    ids: tuple[int, ...]
    row: likelihoods.Ids
    first: int
    words: int | None
    tokens: int | None
    lost: bool


class Prediction(NamedTuple):
    """log_p: of the answer, in nats; ids: the most probable tokens."""

    log_p: float
    ids: tuple[int, ...]


class Questions(NamedTuple):
    """The answers of documents, and the model's input and targets by row, in the order of a stream."""

    answers: list[Answer]
    rows: dict[likelihoods.Ids, likelihoods.Row]


def answers_of(document: LabelledDocument) -> list[tuple[int, int | None]]:
    """Each answer and its cue, as indices of words. Raises DataFault if an index is invalid."""
    column = ANSWERS if ANSWERS in document.labels else CUE
    if document.labels[column] == [NONE]:
        return []
    indices = document.indices(column)
    if column == ANSWERS:
        return [(answer, source_of(document.words, answer)) for answer in sorted({*indices}) if answer >= 0]
    if len(indices) != 2 or not 0 <= indices[0] < indices[1]:
        message = (
            f"{document.where}: {CUE!r} must be the index of a word and of a later one, or -, not"
            f" {' '.join(document.labels[CUE])!r}"
        )
        raise DataFault(message, where=(document.where,))
    return [(indices[1], indices[0])]


def source_of(words: Sequence[str], answer: int) -> int | None:
    """The earlier occurrence of an answer that shares the most words before it, of equal ones the first."""
    best, longest = None, 0
    for at in range(answer):
        n = 0
        while n <= at and words[at - n] == words[answer - n]:
            n += 1
        best, longest = (at, n) if n > longest else (best, longest)
    return best


def questions_of(trained: Trained, documents: Sequence[LabelledDocument]) -> Questions:
    """Raises UsageFault if the model predicts no tokens of a text, DataFault if an answer cannot be predicted."""
    mask, questions, streams = _mask_of(trained), Questions([], {}), trained.recipe.train.stream
    for number, document in enumerate(documents):
        input = text_input(trained.tokenizer, document.text, text_affixes(trained))
        pairs, starts = answers_of(document), np.cumsum([0, *(len(word) + 1 for word in document.words)]).tolist()
        words = [word for pair in pairs for word in pair if word is not None]
        places = {word: input.tokens_of(starts[word], starts[word + 1] - 1) for word in words}
        context = len(input.ids) if streams else trained.model.context
        if streams:  # a document without answers is part of the stream, too
            questions.rows[(number, 0)] = (tuple(input.ids), [])
        for answer, cue in pairs:
            word, tokens = document.words[answer], places[answer]
            ids, where = tuple(input.ids[token] for token in tokens), f"{document.where}: the answer {word!r}"
            if not ids or trained.tokenizer.vocabulary.unk in ids:
                message = f"{where} is unknown to the tokenizer of {trained.folder.name}"
                raise DataFault(message, where=(document.where,))
            shift = int(mask is None)  # the token before predicts
            start = max(0, tokens[-1] + 1 - shift - context)
            if tokens[0] < start + shift:
                message = f"{where} has no text before it within the model's context of {context} tokens"
                raise DataFault(message, where=(document.where,))
            key = (number, start if mask is None else answer)
            _, targets = questions.rows.get(key, ((), []))
            at = -1 if cue is None else next(iter(places[cue]), -1)
            distances = (None, None, False) if cue is None else (answer - cue, tokens[0] - at, at < start)
            questions.answers.append(Answer(number, word, ids, key, len(targets), *distances))
            row = input.ids[start : tokens[-1] if mask is None and not streams else start + context]
            if mask is not None:
                row = [mask if start + n in tokens else id for n, id in enumerate(row)]
            targets = [*targets, *((token - shift - start, id) for token, id in zip(tokens, ids, strict=True))]
            questions.rows[key] = tuple(row), targets
    return questions


def predictions(trained: Trained, questions: Questions) -> list[Prediction]:
    """What the model predicts in the place of each answer."""
    rows, by_row = questions.rows, dict[likelihoods.Ids, likelihoods.TargetPredictions]()

    def predict(keys: Sequence[likelihoods.Ids], hidden: torch.Tensor) -> None:
        labels = [[id for _, id in rows[key][1]] for key in keys]
        size = trained.tokenizer.vocabulary.size
        by_row.update(zip(keys, likelihoods.predict_targets(trained.model, hidden, labels, size), strict=True))

    if trained.recipe.train.stream:
        predict([*rows], _streamed(trained, [*rows.values()]))
    else:
        ascending = sorted(rows.items(), key=lambda item: len(item[1][0]))
        for batch in likelihoods.batches((key, *row) for key, row in ascending):
            hidden = likelihoods.hidden_at(trained.model, [(ids, targets) for _, ids, targets in batch])
            predict([key for key, _, _ in batch], hidden)
    predicted = []
    for answer in questions.answers:
        log_p, best = (part[answer.first : answer.first + len(answer.ids)] for part in by_row[answer.row][:2])
        predicted.append(Prediction(float(log_p.sum()), tuple(best.tolist())))
    return predicted


def of_other_documents(answers: Sequence[Answer]) -> list[Answer]:
    """For each answer one of another document, in a random order of the documents. UsageFault if there is only one."""
    by_document: dict[int, list[Answer]] = {}
    for answer in answers:
        by_document.setdefault(answer.document, []).append(answer)
    if len(by_document) < 2:
        message = f"2 or more documents with answers are needed, got {len(by_document)}"
        raise UsageFault(message, hint="give more documents: --limit N")
    order = np.random.default_rng(_SEED).permutation([*by_document]).tolist()
    other = dict(zip(order, [*order[1:], order[0]], strict=True))
    sources = []
    for answers_of_one in by_document.values():
        others = by_document[other[answers_of_one[0].document]]
        sources += [others[n % len(others)] for n in range(len(answers_of_one))]
    return sources


def _mask_of(trained: Trained) -> int | None:
    """The mask token of a masked language model, None for a causal one; UsageFault for others."""
    objective, mask = trained.recipe.objective, trained.tokenizer.vocabulary.mask
    causal = trained.recipe.model.causal
    predicts_tokens = "tokens" in objective.PREDICTS and "source" not in objective.SUPPORTS
    if not predicts_tokens or (mask is None and not causal):
        named = f"{trained.folder.name} has the objective {objective.kind}"
        message = f"{named}, which predicts no next or masked token of a text"
        raise UsageFault(message, hint="use a model of next_token or masked")
    return None if causal else mask


@torch.inference_mode()
def _streamed(trained: Trained, rows: Sequence[likelihoods.Row]) -> torch.Tensor:
    """The hidden states (T, D) at the targets of successive rows of a stream, in parts as long as the context."""
    ids, at, model = list[int](), list[int](), trained.model
    for row, targets in rows:
        at += [len(ids) + place for place, _ in targets]
        ids += row
    state, parts = model.start(1), []
    for part in torch.tensor([ids], device=trained.setup.device).split(model.context, dim=1):
        mixed = model(Tokens(part), state=state)
        state = model.carry(mixed.state)
        parts.append(mixed.y[0])
    return torch.cat(parts)[at]


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


class Settings(LabelledViewSettings):
    """Measure how often a model predicts the answer words that earlier words determine, by distance.

    The documents have the columns text and answers (indices of words from 0), as corridor, copy and associative-recall,
    or cue (indices of a word and of the one it decides), as world. Prints accuracy and log-probability, and two
    controls: random weights and answers of other documents. For models that predict the next or a masked token.
    """

    ALIASES = ("recall",)
    EXAMPLES = ("minitf inspect answers last --data corridor --limit 200",)

    def view(self, trained: Trained, output: ViewOutput) -> View:
        documents = labelled_documents(trained, self.data, (), (), self.limit, listed=(ANSWERS, CUE))
        return self.of_documents(trained, documents)

    def of_documents(self, trained: Trained, documents: Sequence[LabelledDocument]) -> View:
        """Raises UsageFault if the model predicts no tokens of a text, or fewer than two documents have answers."""
        questions = questions_of(trained, documents)
        others = of_other_documents(questions.answers)
        of_model, random = (predictions(model, questions) for model in (trained, with_random_weights(trained)))
        asked = [*zip(questions.answers, of_model, random, others, strict=True)]
        groups = _ranges({answer.words for answer in questions.answers if answer.words is not None})
        chosen = [(name, [row for row in asked if row[0].words in group]) for name, group in groups]
        unknown = [row for row in asked if row[0].words is None]
        records = [_record(name, rows) for name, rows in [*chosen, *([("none", unknown)] if unknown else [])]]
        overall = _record("all", asked)
        n_words = len({answer.word for answer in questions.answers})
        chance = f"accuracy {1 / n_words:.3f}, log p {-math.log(n_words):.3f}"
        summary = f"{n_words} different answers: guessing has {chance}."
        if overall["cue_lost"]:
            context = f"the model reads the {trained.model.context} tokens of its context, up to the answer"
            summary += f" {overall['cue_lost']} of {len(asked)} answers have lost their cue: {context}."
        result = {
            "documents": len(documents),
            "different_answers": n_words,
            "chance": 1 / n_words,
            "distances": records,
            "all": overall,
        }
        shown = [[*record.values()][: len(SHOWN)] for record in ([*records, overall] if len(records) > 1 else records)]
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
        _mean(tokens) if tokens else None,
        len(rows),
        sum(answer.lost for answer, *_ in rows),
        _mean([predicted.ids == answer.ids for answer, predicted, _, _ in rows]),
        _mean([random.ids == answer.ids for answer, _, random, _ in rows]),
        _mean([predicted.ids == other.ids for _, predicted, _, other in rows]),
        _mean([predicted.log_p for _, predicted, _, _ in rows]),
        _mean([random.log_p for _, _, random, _ in rows]),
    )
    return dict(zip((header.replace(" ", "_") for header in HEADERS), values, strict=True))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
