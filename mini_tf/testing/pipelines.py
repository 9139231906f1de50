"""The contract of pipelines: the declared command and metrics, and results that do not depend on the batch.

A pipeline is tested with an objective that names it, rows of that objective's dataset (see `testing.datasets`), and a
tiny untrained model; for the command `generate` also with prompts.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from mini_tf.data.batch import Rows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.store import in_memory
from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.inspection._texts import untruncated_input
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import Pipeline, pipeline_of
from mini_tf.recipe.kind_settings.objectives import ObjectiveSettings
from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS
from mini_tf.recipe.metrics import metrics_of
from mini_tf.testing import Case, checks_of
from mini_tf.testing.tiny.datasets import DatasetFixture, Row
from mini_tf.testing.tiny.objectives import undeclared
from mini_tf.testing.tiny.pipelines import PipelineFixture
from mini_tf.trained.framing import prompt_tokenizer, text_affixes
from mini_tf.training.evaluation import ClassPredictions, ClassProbabilities, evaluate, pack

N_OVERFITTED = 8
"""Examples that a model learns by heart."""
SHARES = ("accuracy", "f1", "precision", "recall", "exact", "auc", "matthews", "pearson", "spearman", "jaccard")
"""Words in the names of metrics that are at most 1."""
ALWAYS = ("targets", "loss.")
"""Metrics of every evaluation that need no declaration."""


def implements_its_command(fixture: PipelineFixture) -> None:
    methods = {"generate": "generator", "predict": "predictor"}
    unknown = fixture.settings.UNSUPPORTED_OPTIONS.keys() - GENERATE_OPTIONS
    assert not unknown, f"UNSUPPORTED_OPTIONS: generate has no options {unknown}"
    for command, name in methods.items():
        has = getattr(type(fixture.pipeline), name) is not getattr(Pipeline, name)
        assert has == (command == fixture.settings.COMMAND), (
            f"COMMAND must be {command} if and only if the pipeline defines {name}"
        )


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
    message = "output lines must not contain newlines"
    assert not any("\n" in line for output in by_line for line in output.lines), message


def predicts_the_same_in_any_batch(fixture: PipelineFixture) -> None:
    if fixture.settings.COMMAND != "predict":
        return
    predictor = fixture.pipeline.predictor(fixture.trained)
    examples = fixture.data.examples[:7]
    together = predictor.predict(examples)
    alone = [predictor.predict([example])[0] for example in examples]
    batched, single = (
        json.dumps([_rounded(list(prediction)) for prediction in predictions]) for predictions in (together, alone)
    )
    assert batched == single, f"a prediction must not depend on the batch: {batched} {single}"
    assert len(together) == len(examples), "there must be a prediction for each example"
    assert isinstance(predictor.unread, InputWarnings), "a predictor must count input that the model does not read"


def reads_a_text_as_it_is_inspected(fixture: PipelineFixture) -> None:
    """The same special tokens around it, and the same masks in it."""
    if fixture.settings.COMMAND is None:
        return
    trained, seen = fixture.trained, list[list[int]]()

    def record(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.extend(example.ids[0].tolist() for example in inputs if isinstance(example, Tokens))

    predicts = fixture.settings.COMMAND == "predict"
    for example in fixture.data.examples[:3] if predicts else [prompt for prompt in fixture.prompts if prompt.strip()]:
        seen.clear()
        hook = register_module_forward_pre_hook(record)
        try:
            read = fixture.pipeline.predictor(trained).predict([example]) if predicts else fixture.outputs([example])
        finally:
            hook.remove()
        assert read, "there must be an output"
        texts = fixture.data.dataset.texts(example) if predicts else [example]
        (before, behind), tokenizer = text_affixes(trained), prompt_tokenizer(trained)
        inspected = [untruncated_input(trained, text).ids for text in texts]
        inside = [ids[len(before) : len(ids) - len(behind)] for ids in inspected]
        expected = [id for ids in inside for id in (tokenizer.vocabulary.separator, *ids)][1:]
        expected = [*before, *expected, *behind]
        message = "a text must stand between the special tokens of text_affixes"
        assert len(texts) > 1 or expected == inspected[0], message
        assert seen[0] == expected, (
            f"{texts} is inspected as {expected}, but read as {seen[0]}; see FRAMING and READS_MASKS"
        )


def scores_texts_the_same_in_any_batch(fixture: PipelineFixture) -> None:
    """By each kind of TEXT_SCORES; the score is that of the text, also beside longer ones, and the sum of its tokens'
    scores.
    """
    has = type(fixture.pipeline).text_scorer is not Pipeline.text_scorer
    message = "TEXT_SCORES must be declared if and only if the pipeline defines text_scorer"
    assert has == bool(fixture.settings.TEXT_SCORES), message
    unknown = {*fixture.settings.BABYLM_BACKENDS} - {*fixture.settings.TEXT_SCORES}
    assert not unknown, f"BABYLM_BACKENDS must be TEXT_SCORES: {unknown} are not"
    texts = ["the old man", "a", "the old man", "no dog ever saw the old man sleep"]
    for kind in fixture.settings.TEXT_SCORES:
        scorer = fixture.pipeline.text_scorer(kind)
        together = scorer.texts(texts)
        alone = [scorer.texts([text])[0] for text in texts]
        near = all(math.isclose(score, other, abs_tol=1e-4) for score, other in zip(together, alone, strict=True))
        assert near, f"a score must not depend on the batch: {together} {alone}"
        assert together[0] == together[2], f"equal texts must have equal scores: {together}"
        assert all(score <= 0 for score in together), f"a score must be a log-probability: {together}"
        sums = [float(np.nansum(scores.log_p)) for scores in scorer.tokens(texts)]
        assert np.allclose(sums, together, atol=1e-4), f"a score must be the sum of its tokens': {together} {sums}"


def measures_the_declared_metrics(fixture: PipelineFixture) -> None:
    declared, generated = (*fixture.settings.METRICS,), (*fixture.settings.GENERATION_METRICS,)
    known = {*declared, *generated, *fixture.objective.METRICS}
    settings = fixture.settings
    unknown = {*settings.MAIN_METRICS, *settings.SUMMARY_METRICS, *settings.LOWER_IS_BETTER} - known
    assert not unknown, f"MAIN_METRICS, SUMMARY_METRICS and LOWER_IS_BETTER must be declared metrics: {unknown} are not"
    trained, accumulator = fixture.trained, fixture.pipeline.metric_accumulator()
    assert accumulator is None or declared, "METRICS must declare the metrics of the accumulator"
    if "confusion" in fixture.settings.PLOTS:
        assert isinstance(accumulator, ClassPredictions), "PLOTS: confusion needs a ClassPredictions accumulator"
    if "calibration" in fixture.settings.PLOTS:
        assert isinstance(accumulator, ClassProbabilities), "PLOTS: calibration needs a ClassProbabilities accumulator"
    packing = pack(trained.recipe, fixture.data.store, trained.tokenizer, trained.objective)
    metrics = evaluate(trained.task(), trained.objective, packing, trained.setup, 4, accumulator=accumulator)
    assert all(math.isfinite(value) for value in metrics.values()), f"metrics must be finite: {metrics}"
    scores = {} if accumulator is None else accumulator.scores()
    if isinstance(accumulator, ClassProbabilities):
        log_loss = -float(
            np.log(accumulator.probabilities[np.arange(len(accumulator.truth)), accumulator.truth]).mean()
        )
        message = f"the loss must be the mean of -log p of the true classes, {log_loss:g}, not {metrics['loss']:g}"
        assert math.isclose(metrics["loss"], log_loss, rel_tol=1e-4), message
    whole = fixture.pipeline.evaluate(trained, fixture.data.store)
    unknown_scores = undeclared(scores | whole, (*declared, *metrics_of(fixture.objective), *ALWAYS))
    assert not unknown_scores, f"METRICS must declare {unknown_scores}"
    measured = len(undeclared(whole, declared)) < len(whole)
    assert measured or not declared, f"no metric of METRICS is measured: {[*whole]}"
    if accumulator is not None and fixture.settings.COMMAND == "predict":
        predictor = fixture.pipeline.predictor(trained, labelled=True)
        for example in fixture.data.examples:
            predictor.predict([example])
        single = predictor.scores()
        near = all(math.isclose(single[name], value, abs_tol=1e-5) for name, value in scores.items())
        assert near, f"metrics of single predictions must equal those of the evaluation: {single} {scores}"


def predicts_the_given_labels_of_an_overfitted_model(fixture: PipelineFixture) -> None:
    """Not another one, nor that of a neighbor; its main metric is then 1, if it is a share, and no share is above 1."""
    roles = [role for role in fixture.data.dataset.LABELS if role in fixture.data.rows[0]]
    if fixture.settings.COMMAND != "predict" or len(roles) != 1:
        return
    examples, labels = fixture.data.examples[:N_OVERFITTED], [row[roles[0]] for row in fixture.data.rows[:N_OVERFITTED]]
    store = in_memory(fixture.data.dataset.encode(examples, fixture.data.used, fixture.data.labels), fixture.data.used)
    trained = fixture.overfitted(store)
    pipeline = pipeline_of(trained)
    predicted = [prediction.label for prediction in pipeline.predictor(trained).predict(examples)]
    in_order = store.labels is not None  # a label of each token, or of the text
    right = [_same_label(*pair, in_order, 0.1 * _spread(labels)) for pair in zip(predicted, labels, strict=True)]
    assert all(right), (
        f"a model that has learned its training data must predict their labels: {predicted}, not {labels}"
    )
    metrics = pipeline.evaluate(trained, store)
    shares = {name: value for name, value in metrics.items() if any(word in name for word in SHARES)}
    assert all(-1 <= value <= 1 for value in shares.values()), f"shares and correlations must be at most 1: {shares}"
    main = [
        name
        for name in fixture.settings.MAIN_METRICS
        if name in shares and name not in fixture.settings.LOWER_IS_BETTER
    ]
    assert all(shares[name] == 1 for name in main), (
        f"of predictions that are all right the main metric must be 1: {metrics}"
    )


def _same_label(predicted: Any, label: Any, in_order: bool, tolerance: float) -> bool:
    if isinstance(label, list | tuple):
        first, second = ([*map(str, labels)] for labels in (predicted, label))
        return first == second if in_order else sorted(first) == sorted(second)
    return abs(predicted - label) <= tolerance if isinstance(predicted, float) else str(predicted) == str(label)


def _spread(labels: Sequence[Any]) -> float:
    numbers = [float(label) for label in labels if isinstance(label, int | float)]
    return max(numbers) - min(numbers) if numbers else 0.0


def averages_models_if_declared(fixture: PipelineFixture) -> None:
    """An ensemble (`train.ensemble`) of equal models is that model, and the order of its models does not matter."""
    if not fixture.settings.ENSEMBLES:
        return
    pipeline, trained, examples = fixture.pipeline, fixture.trained, fixture.data.examples[:7]
    other = replace(trained, model=fixture.initialized(1))
    alone = pipeline.evaluate(trained, fixture.data.store)
    equal = pipeline.evaluate(replace(trained, members=(trained, trained)), fixture.data.store)
    near = equal.keys() == alone.keys() and all(math.isclose(equal[name], alone[name], abs_tol=1e-5) for name in alone)
    assert near, f"an ensemble of equal models must have the metrics of one: {equal} {alone}"
    orders = [replace(trained, members=members) for members in ((trained, other), (other, trained))]
    first, second = (
        json.dumps([_rounded(list(p)) for p in pipeline.predictor(ensemble).predict(examples)]) for ensemble in orders
    )
    assert first == second, f"the order of the models must not matter: {first} {second}"


def generates_texts_with_references(fixture: PipelineFixture) -> None:
    if not fixture.settings.GENERATION_METRICS:
        return
    chunks = list[None]()
    generated = [*fixture.pipeline.generate_with_references(fixture.data.store, 5, lambda: chunks.append(None))]
    assert len(generated) == 5, f"five examples must give five texts, not {len(generated)}"
    assert chunks, "each_chunk must be called"
    message = "each text must come with references"
    assert all(isinstance(text, str) and references for text, references in generated), message
    unknown = fixture.pipeline.scores(iter(generated)).keys() - {*fixture.settings.GENERATION_METRICS}
    assert not unknown, f"GENERATION_METRICS must declare {unknown}"


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
            description: dict[str, Any] = dataset.describe_row(
                text, rows, trained.objective.prepare(rows), row, training
            )
            assert dataset.row_table(description, "a row"), "table must return lines"
            return _unpadded(json.loads(json.dumps(description)))

        whole = packing.take(numbers, 0, keys)
        together = [shown(whole, row) for row in range(len(numbers))]
        alone = [shown(packing.take(numbers[row : row + 1], 0, keys[row : row + 1]), 0) for row in range(len(numbers))]
        assert json.dumps(together) == json.dumps(alone), f"a row must not depend on the batch: {together} {alone}"


CONTRACT = checks_of(__name__)


def cases(objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str] = ()) -> list[Case]:
    """All checks for the pipeline of an objective; prompts: for the command `generate`."""
    return [Case(check.__name__, partial(_tried, check, objective, rows, prompts)) for check in CONTRACT]


def _tried(
    check: Callable[[PipelineFixture], None], objective: ObjectiveSettings, rows: Sequence[Row], prompts: Sequence[str]
) -> None:
    with DatasetFixture.temporary(objective.dataset(), rows) as data:
        check(PipelineFixture(objective, data, prompts))


def _unpadded(shown: dict[str, Any]) -> dict[str, Any]:
    """Without the amount of padding, which depends on the other rows."""
    return {
        name: _unpadded(value) if isinstance(value, dict) else value
        for name, value in shown.items()
        if name != "padding"
    }


def _rounded(value: Any) -> Any:
    """Numbers rounded to 3 significant digits."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
