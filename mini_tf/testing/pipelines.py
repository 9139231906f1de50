"""The contract of a pipeline: it does what it declares, whatever is asked beside it, and measures the figures that it names.

A pipeline is tried with an objective that names it and rows of that objective's dataset (as in `testing.datasets`), on a tiny model
with weights as they were drawn. Of the command `generate` it is given prompts besides.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.pipelines import GenerateOptions, Output, Pipeline, pipeline_of
from mini_tf.recipe.kind_settings import GENERATE_OPTIONS, ObjectiveSettings
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Data, Generate, Runtime, Train
from mini_tf.testing import Case
from mini_tf.testing import datasets as of_datasets
from mini_tf.testing.datasets import Row
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import ClassProbabilities, evaluate, pack
from mini_tf.training.machine.device import settle

FEW: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 0, "temperature": 0.0, "num_beams": 2}


@dataclass(frozen=True, eq=False)
class Trial:
    """A pipeline on a model that has learnt nothing."""

    objective: ObjectiveSettings
    data: of_datasets.Trial
    prompts: Sequence[str]

    @property
    def settings(self) -> Any:
        return self.objective.pipeline()

    @cached_property
    def trained(self) -> Trained:
        models: Any = kinds_of("models")
        settings = next(one for one in models.values() if self.objective.direction(one))
        model = settings(d_model=16, n_layers=1, n_heads=2)
        recipe = Recipe.model_construct(
            **{name: field.get_default(call_default_factory=True) for name, field in Recipe.model_fields.items() if not field.is_required()}
        )
        sections = {"data": Data(train=self.data.file(self.data.rows)), "train": Train(steps=1, context=128), "generate": Generate(**FEW)}
        recipe = recipe.model_copy(update={"model": model, "objective": self.objective, **sections})
        used, labels = self.data.used, self.data.labels
        architecture = Architecture.of(recipe, used.target, used.source, labels)
        setup = settle(Runtime(device="cpu", compile=False))
        one = architecture.initialize(0).eval()
        return Trained(self.data.folder, recipe, used.target, used.source, one, {}, labels, architecture.objective, 0, setup)

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.trained)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = (), **options: Any) -> list[Output]:
        return [*self.pipeline.generation(GenerateOptions({"batch_size": 3}, 128, **options)).outputs(prompts, places)]


def implements_its_command(trial: Trial) -> None:
    asked = {"generate": "generation", "predict": "prediction"}
    strange = trial.settings.WITHOUT.keys() - GENERATE_OPTIONS
    assert not strange, f"WITHOUT: generate has no such options: {strange}"
    for command, name in asked.items():
        has = getattr(type(trial.pipeline), name) is not getattr(Pipeline, name)
        assert has == (command == trial.settings.COMMAND), f"COMMAND must be {command} where there is {name}, and only there"


def generates_the_same_in_any_batch(trial: Trial) -> None:
    if trial.settings.COMMAND != "generate":
        return
    together = trial.outputs(trial.prompts)
    assert len(together) == len(trial.prompts), "there must be an answer for each prompt"
    for prompt, answer in zip(trial.prompts, together, strict=True):
        [alone] = trial.outputs([prompt])
        told, other = json.dumps(_rounded(answer.result)), json.dumps(_rounded(alone.result))
        assert told == other, f"an answer must not depend on what is asked beside it: {told} {other}"
    told_of = list[InputWarnings]()
    trial.outputs(trial.prompts, unread=told_of.append)
    assert len(told_of) == 1, "options.unread must be called once, however many prompts there are"
    places = [f"stdin:{number}" for number, _ in enumerate(trial.prompts, 1)]
    by_line = trial.outputs(trial.prompts, places, by_line=True)
    assert all(answer.lines for answer in by_line), "a line must give a line"
    assert not any("\n" in line for answer in by_line for line in answer.lines), "lines must have no newline in them"


def predicts_the_same_in_any_batch(trial: Trial) -> None:
    if trial.settings.COMMAND != "predict":
        return
    predictor = trial.pipeline.prediction(trial.trained)
    examples = trial.data.examples[:7]
    together = predictor.predict(examples)
    alone = [predictor.predict([one])[0] for one in examples]
    told, other = (json.dumps([_rounded(list(one)) for one in found]) for found in (together, alone))
    assert told == other, f"a prediction must not depend on what is asked beside it: {told} {other}"
    assert len(together) == len(examples), "there must be a prediction for each example"
    assert isinstance(predictor.unread, InputWarnings), "a predictor must count what the model does not read"


def measures_what_it_declares(trial: Trial) -> None:
    declared, written = (*trial.settings.FIGURES,), (*trial.settings.WRITTEN,)
    known = {*declared, *written, *trial.objective.METRICS}
    unknown = {*trial.settings.MAIN, *trial.settings.SPOKEN} - known
    assert not unknown, f"MAIN and SPOKEN must be figures that are measured, and {unknown} are not"
    trained, accumulator = trial.trained, trial.pipeline.metric_accumulator()
    assert (accumulator is not None) == bool(declared), "there must be a metric accumulator where there are FIGURES, and only there"
    if "calibration" in trial.settings.PICTURES:
        assert isinstance(accumulator, ClassProbabilities), "PICTURES: a calibration is drawn of an accumulator that is ClassProbabilities"
    packing = pack(trained.recipe, trial.data.store, trained.tokenizer, trained.objective)
    figures = evaluate(trained.task(), trained.objective, packing, trained.setup, 4, accumulator=accumulator)
    assert all(math.isfinite(value) for value in figures.values()), f"figures must be finite: {figures}"
    own = {} if accumulator is None else accumulator.scores()
    strange = [name for name in own if not any(name.startswith(one) if one.endswith(".") else name == one for one in declared)]
    assert not strange, f"FIGURES: does not declare {strange}"
    if accumulator is not None and trial.settings.COMMAND == "predict":
        predictor = trial.pipeline.prediction(trained, judged=True)
        for one in trial.data.examples:
            predictor.predict([one])
        found = predictor.scores()
        near = all(math.isclose(found[name], value, abs_tol=1e-5) for name, value in own.items())
        assert near, f"predictions one by one must have the figures of an evaluation: {found} {own}"


def writes_texts_beside_their_references(trial: Trial) -> None:
    if not trial.settings.WRITTEN:
        return
    looks = list[None]()
    written = [*trial.pipeline.written(trial.data.store, 5, lambda: looks.append(None))]
    assert len(written) == 5, f"of five examples five texts must be written, not {len(written)}"
    assert looks, "each_chunk must be called"
    assert all(isinstance(text, str) and references for text, references in written), "a text stands beside its references"
    strange = trial.pipeline.scores(iter(written)).keys() - {*trial.settings.WRITTEN}
    assert not strange, f"WRITTEN: does not declare {strange}"


def samples_are_text_and_the_same_twice(trial: Trial) -> None:
    first, second = (trial.pipeline.sample(trial.data.store) for _ in range(2))
    assert first == second, "the same model must give the same sample"
    assert first is None or first.endswith("\n"), "a sample is a text that ends in a newline"


def shows_the_same_row_in_any_batch(trial: Trial) -> None:
    """What `data show` says of it."""
    trained, dataset, store = trial.trained, trial.objective.dataset(), trial.data.store
    text = TokenizedData(store, store, trial.data.used, [], {}, trial.data.labels)
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    numbers = np.arange(min(3, packing.n_rows))
    keys = numbers.astype(np.uint64)
    for training in (True, False):

        def shown(rows: Rows, row: int, training: bool = training) -> dict[str, Any]:
            found: dict[str, Any] = dataset.shown(text, rows, trained.objective.prepare(rows), row, training)
            assert dataset.table(found, "a row"), "table must have lines"
            return _unpadded(json.loads(json.dumps(found)))

        whole = packing.take(numbers, 0, keys)
        together = [shown(whole, row) for row in range(len(numbers))]
        alone = [shown(packing.take(numbers[row : row + 1], 0, keys[row : row + 1]), 0) for row in range(len(numbers))]
        assert together == alone, f"a row must be shown as it is read, whatever rows are beside it: {together} {alone}"


CONTRACT: tuple[Callable[[Trial], None], ...] = (
    implements_its_command,
    generates_the_same_in_any_batch,
    predicts_the_same_in_any_batch,
    measures_what_it_declares,
    writes_texts_beside_their_references,
    samples_are_text_and_the_same_twice,
    shows_the_same_row_in_any_batch,
)
"""Every function that a pipeline must bear."""


def cases(objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str] = ()) -> list[Case]:
    """Everything that the pipeline of an objective must do; prompts: for one of the command `generate`."""
    return [Case(check.__name__, partial(_tried, check, objective, rows, prompts)) for check in CONTRACT]


def _tried(check: Callable[[Trial], None], objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str]) -> None:
    with ExitStack() as files:
        folder = Path(files.enter_context(TemporaryDirectory()))
        check(Trial(objective, of_datasets.Trial(objective.dataset(), rows, folder), prompts))


def _unpadded(shown: dict[str, Any]) -> dict[str, Any]:
    """Without how much padding there is, which rows beside it decide."""
    return {name: _unpadded(one) if isinstance(one, dict) else one for name, one in shown.items() if name != "padding"}


def _rounded(value: Any) -> Any:
    """What JSON says, without the last digits of numbers."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
