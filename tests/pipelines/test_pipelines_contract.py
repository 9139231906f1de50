"""The contract of pipelines over every kind, with every objective that names one, and against pipelines that break
it.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_datasets_contract import ROWS, TEXTS, with_rows

from mini_tf.pipelines import Prediction
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import Case, run_all
from mini_tf.testing import pipelines as contract
from mini_tf.trained.evaluating import run_data

PROMPTS = [TEXTS[3], "", "a dog", TEXTS[1][:20]]
OBJECTIVES: dict[str, Any] = {word: settings_of("objectives", word)() for word in listing("objectives")}


@pytest.mark.parametrize(
    "word", [with_rows(one.DATASET, word) for word, one in OBJECTIVES.items() if one.PIPELINE is not None]
)
def test_every_pipeline(word: str) -> None:
    objective = OBJECTIVES[word]
    prompts = [f"{prompt} [MASK]" for prompt in PROMPTS] if "mask" in objective.TOKENS else PROMPTS
    run_all(contract.cases(objective, ROWS[objective.DATASET], prompts))


def test_a_pipeline_that_fills_or_continues_does_both() -> None:
    run_all(contract.cases(OBJECTIVES["hybrid"], ROWS["text"], PROMPTS))


def test_every_pipeline_is_named_by_an_objective() -> None:
    assert {objective.PIPELINE for objective in OBJECTIVES.values()} - {None} == {*listing("pipelines")}


Classify: Any = settings_of("objectives", "classify")
Classification: Any = settings_of("pipelines", "text_classification")


class Broken(Classification):
    """A pipeline whose predictions are changed by `spoil`."""

    def build(self, bundle: Any) -> Any:
        built = super().build(bundle)
        right = built.predictions
        built.predictions = lambda outputs, examples: self.spoil(right(outputs, examples))
        return built

    def spoil(self, found: list[Prediction]) -> list[Prediction]:
        return found


class DependsOnItsNeighbours(Broken):
    def spoil(self, found: list[Prediction]) -> list[Prediction]:
        return [one._replace(label=f"{one.label} of {len(found)}") for one in found]


class DeclaresNoFigures(Classification):
    METRICS = {"accuracy": ()}
    SUMMARY_METRICS = ()


class SpeaksOfOthers(Classification):
    SUMMARY_METRICS = ("bleu",)


class HasNoCommand(Classification):
    COMMAND = None


class HasNoProbabilities(Classification):
    PLOTS = {"calibration": False}

    def build(self, bundle: Any) -> Any:
        built = super().build(bundle)
        accumulator = built.metric_accumulator()
        built.metric_accumulator = lambda: SimpleNamespace(add=accumulator.add, scores=accumulator.scores)
        return built


class Inverts(Broken):
    def spoil(self, found: list[Prediction]) -> list[Prediction]:
        return [one._replace(label={"a": "b", "b": "a"}[one.label]) for one in found]


class ShiftsByOne(Broken):
    def spoil(self, found: list[Prediction]) -> list[Prediction]:
        return [*found[1:], *found[:1]]


class Changed(Classification):
    """A pipeline whose metrics are changed by `score`."""

    def build(self, bundle: Any) -> Any:
        built = super().build(bundle)
        measure = built.measure
        built.measure = lambda *given: self.score(measure(*given))
        return built

    def score(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics


class DoublesF1(Changed):
    def score(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics | {"f1_macro": 2 * metrics["f1_macro"]}


class HasATooWarmLoss(Classification):
    """Its loss is not that of its probabilities."""

    def build(self, bundle: Any) -> Any:
        built = super().build(bundle)
        built.rule = replace(built.rule, temperature=0.5)
        accumulator = built.metric_accumulator()
        scores = accumulator.scores
        accumulator.scores = lambda: {name: value for name, value in scores().items() if name != "loss"}
        built.metric_accumulator = lambda: accumulator
        return built


class AddsAMetric(Classification):
    """In `evaluate`, from the training data of its run."""

    METRICS = Classification.METRICS | {"n_training": ()}

    def build(self, bundle: Any) -> Any:
        built = super().build(bundle)
        evaluate = built.evaluate
        built.evaluate = lambda trained, *given: (
            evaluate(trained, *given) | {"n_training": float(run_data(trained)["train"].n_documents)}
        )
        return built


class AddsOneUndeclared(AddsAMetric):
    METRICS = Classification.METRICS


class IsFramedAsADocument(Classification):
    FRAMING = "continued"


BREAKS: dict[type[Any], str] = {
    Inverts: "predicts_the_given_labels_of_an_overfitted_model",
    ShiftsByOne: "predicts_the_given_labels_of_an_overfitted_model",
    DoublesF1: "predicts_the_given_labels_of_an_overfitted_model",
    HasATooWarmLoss: "measures_the_declared_metrics",
    AddsOneUndeclared: "measures_the_declared_metrics",
    DependsOnItsNeighbours: "predicts_the_same_in_any_batch",
    DeclaresNoFigures: "measures_the_declared_metrics",
    SpeaksOfOthers: "measures_the_declared_metrics",
    HasNoProbabilities: "measures_the_declared_metrics",
    HasNoCommand: "implements_its_command",
    IsFramedAsADocument: "reads_a_text_as_it_is_inspected",
}


def case_of(pipeline: type[Any], name: str) -> Case:
    """A check of classification with this pipeline."""

    class Objective(Classify):
        @classmethod
        def pipeline(cls) -> Any:
            return pipeline()

    [case] = [case for case in contract.cases(Objective(), ROWS["classes"]) if case.name == name]
    return case


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_pipeline_that_breaks_the_contract_is_caught(broken: type[Any]) -> None:
    with pytest.raises(AssertionError):
        case_of(broken, BREAKS[broken]).run()


def test_a_pipeline_may_measure_more_and_read_the_data_of_its_run() -> None:
    case_of(AddsAMetric, "measures_the_declared_metrics").run()


class ShowsTheFirstRow(settings_of("data.datasets", "classes")):  # type: ignore[misc]
    def describe_row(self, text: Any, rows: Any, batch: Any, row: int, training: bool) -> Any:
        return super().describe_row(text, rows, batch, 0, training)


def test_a_row_that_is_shown_in_place_of_another_is_caught() -> None:
    class Objective(Classify):
        def dataset(self) -> Any:
            return ShowsTheFirstRow()

    [case] = [
        case for case in contract.cases(Objective(), ROWS["classes"]) if case.name == "shows_the_same_row_in_any_batch"
    ]
    with pytest.raises(AssertionError, match="a row must not depend on the batch"):
        case.run()
