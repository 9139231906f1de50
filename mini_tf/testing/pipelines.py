"""The contract of pipelines: the declared command and metrics, and results that do not depend on the batch.

A pipeline is tested with an objective that names it, rows of that objective's dataset (see `testing.datasets`), and a
tiny untrained model; for the command `generate` also with prompts.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.nn.model import Model
from mini_tf.pipelines import GenerateOptions, Output, Pipeline, pipeline_of
from mini_tf.recipe.kind_settings import ObjectiveSettings
from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS
from mini_tf.recipe.kinds import kinds_of
from mini_tf.recipe.recipe import Recipe
from mini_tf.recipe.sections import Data, Generate, Runtime, Train
from mini_tf.testing import Case
from mini_tf.testing import datasets as dataset_contract
from mini_tf.testing.datasets import Row
from mini_tf.trained.architecture import Architecture
from mini_tf.trained.opening import Trained
from mini_tf.training.evaluation import ClassPredictions, ClassProbabilities, evaluate, pack
from mini_tf.training.machine.device import resolve_setup

FEW: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 0, "temperature": 0.0, "num_beams": 2}


class _Untrained(Trained):
    """A model without checkpoints: modules of the objective are initialized from a seed."""

    def task(self) -> nn.Module:
        torch.manual_seed(0)
        return self.objective.task(self.model).eval()


@dataclass(frozen=True, eq=False)
class PipelineFixture:
    """A pipeline on an untrained model."""

    objective: ObjectiveSettings
    data: dataset_contract.DatasetFixture
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
        setup = resolve_setup(Runtime(device="cpu", compile=False))
        one = architecture.initialize(0).eval()
        return _Untrained(self.data.folder, recipe, used.target, used.source, one, {}, labels, architecture.objective, 0, setup)

    def initialized(self, seed: int) -> Model:
        """Another model of this architecture."""
        one = self.trained
        return Architecture.of(one.recipe, one.tokenizer, one.source_tokenizer, one.labels).initialize(seed).eval()

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.trained)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = (), **options: Any) -> list[Output]:
        return [*self.pipeline.generator(GenerateOptions({"batch_size": 3}, 128, **options)).outputs(prompts, places)]


def implements_its_command(fixture: PipelineFixture) -> None:
    methods = {"generate": "generator", "predict": "predictor"}
    unknown = fixture.settings.UNSUPPORTED_OPTIONS.keys() - GENERATE_OPTIONS
    assert not unknown, f"UNSUPPORTED_OPTIONS: generate has no options {unknown}"
    for command, name in methods.items():
        has = getattr(type(fixture.pipeline), name) is not getattr(Pipeline, name)
        assert has == (command == fixture.settings.COMMAND), f"COMMAND must be {command} if and only if the pipeline defines {name}"


def generates_the_same_in_any_batch(fixture: PipelineFixture) -> None:
    if fixture.settings.COMMAND != "generate":
        return
    together = fixture.outputs(fixture.prompts)
    assert len(together) == len(fixture.prompts), "there must be an output for each prompt"
    for prompt, output in zip(fixture.prompts, together, strict=True):
        [alone] = fixture.outputs([prompt])
        batched, single = json.dumps(_rounded(output.result)), json.dumps(_rounded(alone.result))
        assert batched == single, f"an output must not depend on the batch: {batched} {single}"
    reports = list[InputWarnings]()
    fixture.outputs(fixture.prompts, on_unread=reports.append)
    assert len(reports) == 1, "options.on_unread must be called once, however many prompts there are"
    places = [f"stdin:{number}" for number, _ in enumerate(fixture.prompts, 1)]
    by_line = fixture.outputs(fixture.prompts, places, by_line=True)
    assert all(output.lines for output in by_line), "a line of input must give a line of output"
    assert not any("\n" in line for output in by_line for line in output.lines), "output lines must not contain newlines"


def predicts_the_same_in_any_batch(fixture: PipelineFixture) -> None:
    if fixture.settings.COMMAND != "predict":
        return
    predictor = fixture.pipeline.predictor(fixture.trained)
    examples = fixture.data.examples[:7]
    together = predictor.predict(examples)
    alone = [predictor.predict([one])[0] for one in examples]
    batched, single = (json.dumps([_rounded(list(one)) for one in found]) for found in (together, alone))
    assert batched == single, f"a prediction must not depend on the batch: {batched} {single}"
    assert len(together) == len(examples), "there must be a prediction for each example"
    assert isinstance(predictor.unread, InputWarnings), "a predictor must count input that the model does not read"


def scores_texts_the_same_in_any_batch(fixture: PipelineFixture) -> None:
    """By each kind of TEXT_SCORES; the score is that of the text, also beside longer ones."""
    has = type(fixture.pipeline).score_texts is not Pipeline.score_texts
    assert has == bool(fixture.settings.TEXT_SCORES), "TEXT_SCORES must be declared if and only if the pipeline defines score_texts"
    texts = ["the old man", "a", "the old man", "no dog ever saw the old man sleep"]
    for kind in fixture.settings.TEXT_SCORES:
        together = fixture.pipeline.score_texts(texts, kind=kind)
        alone = [fixture.pipeline.score_texts([text], kind=kind)[0] for text in texts]
        near = all(math.isclose(one, other, abs_tol=1e-4) for one, other in zip(together, alone, strict=True))
        assert near, f"a score must not depend on the batch: {together} {alone}"
        assert together[0] == together[2], f"equal texts must have equal scores: {together}"
        assert all(score <= 0 for score in together), f"a score must be a log-probability: {together}"


def measures_the_declared_metrics(fixture: PipelineFixture) -> None:
    declared, generated = (*fixture.settings.METRICS,), (*fixture.settings.GENERATION_METRICS,)
    known = {*declared, *generated, *fixture.objective.metrics}
    settings = fixture.settings
    unknown = {*settings.MAIN_METRICS, *settings.SUMMARY_METRICS, *settings.LOWER_IS_BETTER} - known
    assert not unknown, f"MAIN_METRICS, SUMMARY_METRICS and LOWER_IS_BETTER must be declared metrics: {unknown} are not"
    trained, accumulator = fixture.trained, fixture.pipeline.metric_accumulator()
    assert (accumulator is not None) == bool(declared), "there must be a metric accumulator if and only if METRICS are declared"
    if "confusion" in fixture.settings.PLOTS:
        assert isinstance(accumulator, ClassPredictions), "PLOTS: confusion needs a ClassPredictions accumulator"
    if "calibration" in fixture.settings.PLOTS:
        assert isinstance(accumulator, ClassProbabilities), "PLOTS: calibration needs a ClassProbabilities accumulator"
    packing = pack(trained.recipe, fixture.data.store, trained.tokenizer, trained.objective)
    metrics = evaluate(trained.task(), trained.objective, packing, trained.setup, 4, accumulator=accumulator)
    assert all(math.isfinite(value) for value in metrics.values()), f"metrics must be finite: {metrics}"
    own = {} if accumulator is None else accumulator.scores()
    undeclared = [name for name in own if not any(name.startswith(one) if one.endswith(".") else name == one for one in declared)]
    assert not undeclared, f"METRICS must declare {undeclared}"
    if accumulator is not None and fixture.settings.COMMAND == "predict":
        predictor = fixture.pipeline.predictor(trained, labelled=True)
        for one in fixture.data.examples:
            predictor.predict([one])
        found = predictor.scores()
        near = all(math.isclose(found[name], value, abs_tol=1e-5) for name, value in own.items())
        assert near, f"metrics of single predictions must equal those of the evaluation: {found} {own}"


def averages_models_if_declared(fixture: PipelineFixture) -> None:
    """An ensemble (`train.ensemble`) of equal models is that model, and the order of its models does not matter."""
    if not fixture.settings.ENSEMBLES:
        return
    pipeline, one, examples = fixture.pipeline, fixture.trained, fixture.data.examples[:7]
    other = replace(one, model=fixture.initialized(1))
    alone = pipeline.evaluate(one, fixture.data.store)
    equal = pipeline.evaluate(replace(one, members=(one, one)), fixture.data.store)
    near = equal.keys() == alone.keys() and all(math.isclose(equal[name], alone[name], abs_tol=1e-5) for name in alone)
    assert near, f"an ensemble of equal models must have the metrics of one: {equal} {alone}"
    orders = [replace(one, members=members) for members in ((one, other), (other, one))]
    first, second = (json.dumps([_rounded(list(p)) for p in pipeline.predictor(ensemble).predict(examples)]) for ensemble in orders)
    assert first == second, f"the order of the models must not matter: {first} {second}"


def generates_texts_with_references(fixture: PipelineFixture) -> None:
    if not fixture.settings.GENERATION_METRICS:
        return
    chunks = list[None]()
    generated = [*fixture.pipeline.generate_with_references(fixture.data.store, 5, lambda: chunks.append(None))]
    assert len(generated) == 5, f"five examples must give five texts, not {len(generated)}"
    assert chunks, "each_chunk must be called"
    assert all(isinstance(text, str) and references for text, references in generated), "each text must come with references"
    undeclared = fixture.pipeline.scores(iter(generated)).keys() - {*fixture.settings.GENERATION_METRICS}
    assert not undeclared, f"GENERATION_METRICS must declare {undeclared}"


def samples_are_deterministic_text(fixture: PipelineFixture) -> None:
    first, second = (fixture.pipeline.sample(fixture.data.store) for _ in range(2))
    assert first == second, "the same model must give the same sample"
    assert first is None or first.endswith("\n"), "a sample must end in a newline"


def shows_the_same_row_in_any_batch(fixture: PipelineFixture) -> None:
    """As in `data show`."""
    trained, dataset, store = fixture.trained, fixture.objective.dataset(), fixture.data.store
    text = TokenizedData(store, store, fixture.data.used, [], {}, fixture.data.labels)
    packing = pack(trained.recipe, store, trained.tokenizer, trained.objective)
    numbers = np.arange(min(3, packing.n_rows))
    keys = numbers.astype(np.uint64)
    for training in (True, False):

        def shown(rows: Rows, row: int, training: bool = training) -> dict[str, Any]:
            found: dict[str, Any] = dataset.describe_row(text, rows, trained.objective.prepare(rows), row, training)
            assert dataset.row_table(found, "a row"), "table must return lines"
            return _unpadded(json.loads(json.dumps(found)))

        whole = packing.take(numbers, 0, keys)
        together = [shown(whole, row) for row in range(len(numbers))]
        alone = [shown(packing.take(numbers[row : row + 1], 0, keys[row : row + 1]), 0) for row in range(len(numbers))]
        assert together == alone, f"a row must not depend on the batch: {together} {alone}"


CONTRACT: tuple[Callable[[PipelineFixture], None], ...] = (
    implements_its_command,
    generates_the_same_in_any_batch,
    predicts_the_same_in_any_batch,
    scores_texts_the_same_in_any_batch,
    measures_the_declared_metrics,
    averages_models_if_declared,
    generates_texts_with_references,
    samples_are_deterministic_text,
    shows_the_same_row_in_any_batch,
)
"""All checks for a pipeline."""


def cases(objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str] = ()) -> list[Case]:
    """All checks for the pipeline of an objective; prompts: for the command `generate`."""
    return [Case(check.__name__, partial(_tried, check, objective, rows, prompts)) for check in CONTRACT]


def _tried(check: Callable[[PipelineFixture], None], objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str]) -> None:
    with ExitStack() as files:
        folder = Path(files.enter_context(TemporaryDirectory()))
        check(PipelineFixture(objective, dataset_contract.DatasetFixture(objective.dataset(), rows, folder), prompts))


def _unpadded(shown: dict[str, Any]) -> dict[str, Any]:
    """Without the amount of padding, which depends on the other rows."""
    return {name: _unpadded(one) if isinstance(one, dict) else one for name, one in shown.items() if name != "padding"}


def _rounded(value: Any) -> Any:
    """Numbers rounded to 3 significant digits."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
