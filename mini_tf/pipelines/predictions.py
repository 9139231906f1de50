"""What a model that learnt to classify, tag or regress says of new texts; but for rounding no answer depends on what is asked beside it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.batch import Batch
from mini_tf.data.datasets import Dataset, Reader
from mini_tf.data.examples import Example
from mini_tf.data.formats.cells import Cell
from mini_tf.data.formats.documents import Row
from mini_tf.data.store import Tokenizers, in_memory
from mini_tf.objectives import Judge
from mini_tf.recipe.sections import Data
from mini_tf.scores.classes import confusion
from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import pack

FORMS = ("classes", "numbers", "tags")
"""The forms of data whose answers can be told as labels."""
ROWS = 32
"""Rows that the model reads at once."""


class Prediction(NamedTuple):
    """label: a class, a number, or a tag for each word; scores: the probability of every class, or of each tag that is named."""

    label: str | float | list[str]
    scores: dict[str, float] | list[float]


class Predictor:
    """Answers examples with a trained model. judged: examples have their true labels, and `scores` then says how good the answers were.

    UsageFault where the model does not answer with labels.
    """

    def __init__(self, trained: Trained, judged: bool = False) -> None:
        self.trained, self.form = trained, trained.recipe.objective.DATASET
        if self.form not in FORMS or trained.labels is None:
            kind = trained.recipe.objective.kind
            hint = f"use `minitf generate {trained.folder.name}`" if trained.recipe.objective.PREDICTS_TOKENS else None
            raise UsageFault(f"{trained.folder.name} was trained on {kind}, whose answers are no labels", hint=hint)
        self.dataset: Dataset = trained.recipe.objective.dataset()
        self.labels, self.task = trained.labels, trained.task()
        self.judge = trained.objective.judge() if judged else None
        self._n_answered = 0

    def reader(self, data: Data) -> Reader:
        """How the rows of tables are read whose columns `data` names; without labels unless they are judged."""
        return self.dataset.reader(data, labelled=self.judge is not None, labels=self.labels)

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """An answer for each example, one or more; DataFault where the tokenizer leaves nothing of a text, or a true label is unknown."""
        used = Tokenizers(self.trained.source_tokenizer, self.trained.tokenizer)
        store = in_memory(self.dataset.encode(examples, used, self.labels), used)
        rows = pack(self.trained.recipe, store, self.trained.tokenizer, self.trained.objective).eval_rows(ROWS)
        setup, objective, found = self.trained.setup, self.trained.objective, list[Tensor]()
        with torch.no_grad(), torch.random.fork_rng(devices=[setup.device] if setup.device.type == "cuda" else []):
            torch.manual_seed(seed_of("evaluate"))  # a model may draw noise of its own
            for part in rows:
                assert part.examples is not None
                # To the judge all examples are of one text, in which each has a number of its own.
                batch = objective.prepare(replace(part, examples=part.examples + self._n_answered))
                with setup.autocast():
                    answers = self.task(batch.to(setup.device), None).answers
                if self.judge is not None:
                    self.judge.add(batch, answers)
                found.append(answers.cpu())
        self._n_answered += len(examples)
        return self._told(torch.cat(found), examples)

    def scores(self) -> dict[str, float]:
        """The figures of all answers so far, as evaluation gives them; ValueError where there are none."""
        if self.judge is None:
            raise ValueError("judged: must be True for scores")
        return self.judge.scores()

    def _told(self, answers: Tensor, examples: Sequence[Example]) -> list[Prediction]:
        """From what the head gives, a line for each text or word, to labels."""
        if self.form == "numbers":
            return [Prediction(answer * self.labels.scale + self.labels.mean, {}) for answer in answers.squeeze(-1).tolist()]
        names, probabilities = self.labels.names, answers.softmax(-1)
        chosen = probabilities.argmax(-1)
        if self.form == "classes":
            every = [dict(zip(names, row, strict=True)) for row in probabilities.tolist()]
            return [Prediction(names[n], scores) for n, scores in zip(chosen.tolist(), every, strict=True)]
        lengths = [len(example.texts) for example in examples]
        sure = probabilities.amax(-1).split(lengths)
        return [Prediction([names[n] for n in tags.tolist()], p.tolist()) for tags, p in zip(chosen.split(lengths), sure, strict=True)]


def read_line(reader: Reader, line: str, where: str) -> Any:
    """The example of a line: a text, or an object of JSON, told by its first character; DataFault where it is neither.

    In JSON a text is called as its column is, or by its role: text, text_pair; the words of tagged text `words` too.
    """
    columns, needed = reader.columns, len(reader.columns.names)
    if not line.lstrip().startswith("{"):
        if needed > 1:
            lacking = "a second text" if reader.roles[1] == "text_pair" else "a label to be judged by"
            raise DataFault(f"{where}: a line of plain text has not {lacking}", hint=_written(reader), where=(where,))
        return reader.example(Row([line], where, [None for _ in columns.optional]))
    try:
        given = strict_json.parse(line)
    except ValueError as error:
        hint = f"a text that begins with {{ is written in JSON too: {_written(reader)}"
        raise DataFault(f"{where}: not valid JSON: {error}", hint=hint, where=(where,)) from None
    names = [*columns.names, *columns.optional]
    found = [_key(given, name or role, role, reader.dataset.kind) for name, role in zip(names, reader.roles, strict=True)]
    for key, role in zip(found[:needed], reader.roles[:needed], strict=True):
        if key is None:
            raise DataFault(f"{where}: there is no {role!r}", hint=_written(reader), where=(where,))
    cells: list[Cell] = [None if key is None else given[key] for key in found]
    return reader.example(Row(cells[:needed], where, cells[needed:]))


def _key(given: dict[str, Cell], column: str, role: str, form: str) -> str | None:
    """The key that holds a role."""
    known = (column, role, "words") if form == "tags" else (column, role)
    return next((key for key in known if key in given), None)


def _written(reader: Reader) -> str:
    """How a line of JSON is written for this reader."""
    roles = reader.roles[: len(reader.columns.names)]
    return "write {" + ", ".join(f'"{role}": ...' for role in roles) + "}"


def number_of(example: Example) -> int:
    """The line, or the row of a parquet file, that an example stands in."""
    found = re.search(r"[0-9]+$", example.where)
    assert found is not None
    return int(found[0])


class Confusion:
    """Another judge, which also counts which class is taken for which: `counts` (C, C), a row a true class."""

    def __init__(self, judge: Judge, n_classes: int) -> None:
        self.judge, self.n_classes = judge, n_classes
        self.counts = np.zeros((n_classes, n_classes), np.int64)

    def add(self, batch: Batch, answers: Tensor) -> None:
        self.judge.add(batch, answers)
        if len(batch.labels):  # a row of one endless word asks for nothing
            self.counts += confusion(batch.labels.cpu().numpy(), answers.argmax(-1).cpu().numpy(), self.n_classes)

    def scores(self) -> dict[str, float]:
        return self.judge.scores()
