"""Temperature and biases: the fits against independent searches, the honesty of their figures, and what becomes of them
in `predict` and `evaluate`.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_tasks
import torch
from commands import minitf, refused
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import f1_score, log_loss
from test_tag_decoding import batch_of

from mini_tf.data.batch import Batch
from mini_tf.data.examples import Example, Labels
from mini_tf.jobs import finishing
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.pipelines import _decision_rule, pipeline_of
from mini_tf.pipelines._class_pipeline import DecisionFitter, describe_bias, fit_bias, fit_temperature
from mini_tf.pipelines._decision_rule import NO_LABEL, DecisionRule, best_tags, rescaled, row_halves
from mini_tf.recipe.kinds import settings_of
from mini_tf.run import manifest
from mini_tf.run.manifest import Decision
from mini_tf.scores.entities import TagScheme, entity_scores
from mini_tf.scores.label_scores import calibration, class_scores, macro_f1
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import evaluate, pack

NAMES = ("a", "b", "c")


def drawn(n: int = 400, seed: int = 0, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that are `sharpness` times too sure, and the classes, of which the last one is rare."""
    random = np.random.default_rng(seed)
    logits = random.normal((1.0, 0.5, -1.5), size=(n, 3))
    truth = (logits + random.gumbel(size=(n, 3))).argmax(1)
    return log_softmax(logits * sharpness, axis=1), truth


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_the_temperature_minimises_the_log_loss(sharpness: float) -> None:
    given, truth = drawn(sharpness=sharpness)
    found = fit_temperature(given, truth)

    def loss(temperature: float) -> float:
        return float(-log_softmax(given / temperature, axis=1)[np.arange(len(truth)), truth].mean())

    best = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-8})
    assert found == pytest.approx(best.x, rel=1e-4)
    assert loss(found) <= min(map(loss, np.linspace(0.1, 10, 200)))
    # Logits do as well.
    assert fit_temperature((given * 2 + 5).astype(np.float32), truth) == pytest.approx(2 * found, rel=1e-3)
    assert found == pytest.approx(sharpness, rel=0.25)


def test_temperatures_are_bounded_where_none_is_the_best() -> None:
    given = np.log(np.array([[0.9, 0.1], [0.2, 0.8]]))
    assert fit_temperature(given, np.array([0, 1])) == pytest.approx(1 / 20)
    assert fit_temperature(given, np.array([1, 0])) == pytest.approx(20)


def test_macro_f1_is_that_of_scikit_learn() -> None:
    for truth, predicted in (np.random.default_rng(seed).integers(0, 6, (2, 9)) for seed in range(20)):
        present = np.union1d(truth, predicted)
        assert macro_f1(truth, predicted, 6) == pytest.approx(
            f1_score(truth, predicted, labels=present, average="macro", zero_division=0)
        )


def test_the_bias_of_two_classes_is_the_best_of_all_that_are_tried() -> None:
    given, truth = drawn(100, sharpness=1.0)
    given, truth = log_softmax(given[:, [0, 2]], axis=1), (truth == 2).astype(int)
    found = fit_bias(given, truth, np.ones(100, int), None)
    tried = [f1_score(truth, given[:, 1] - given[:, 0] > -bias, average="macro") for bias in np.arange(-9, 9.1, 0.25)]
    # In steps of 1, then of 0.25.
    assert macro_f1(truth, (given + found).argmax(1), 2) == pytest.approx(max(tried), abs=0.02)
    assert macro_f1(truth, (given + found).argmax(1), 2) > macro_f1(truth, given.argmax(1), 2)


def test_biases_of_many_classes_find_rare_ones_and_are_zero_where_nothing_is_wrong() -> None:
    given, truth = drawn(sharpness=1.0)
    found = fit_bias(given, truth, np.ones(400, int), None)
    assert macro_f1(truth, (given + found).argmax(1), 3) > macro_f1(truth, given.argmax(1), 3) + 0.02
    sure, classes = np.log(np.full((9, 3), 0.05) + 0.85 * np.eye(3)[np.arange(9) % 3]), np.arange(9) % 3
    assert fit_bias(sure, classes, np.ones(9, int), None).tolist() == [0] * 3


def taggings(n: int = 60, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of sentences whose tagger says O too often: log-probabilities, tags and lengths."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 7, n)
    scheme = TagScheme.of(["B-x", "I-x", "O"])
    truth = best_tags(random.normal((0, 0.3, 0.8), size=(lengths.sum(), 3)), lengths, scheme)
    logits = 1.5 * np.eye(3)[truth] + random.normal((0, 0, 2.5), size=(lengths.sum(), 3))
    return log_softmax(logits, axis=1), truth, lengths


def test_the_bias_of_o_is_the_best_of_all_that_are_tried() -> None:
    given, truth, lengths = taggings()
    names, scheme = ["B-x", "I-x", "O"], TagScheme.of(["B-x", "I-x", "O"])

    def f1(bias: float) -> float:
        tags = best_tags(given + np.array([0, 0, bias]), lengths, scheme)
        texts = [
            [[names[tag] for tag in text] for text in np.split(side, np.cumsum(lengths)[:-1])] for side in (truth, tags)
        ]
        return entity_scores(*texts, names)["entity_f1"]

    found = fit_bias(given, truth, lengths, scheme)
    assert found[:2].tolist() == [0, 0]
    coarse = max(range(-8, 9), key=lambda bias: (f1(bias), -abs(bias)))
    assert f1(found[2]) == max(f1(coarse + step) for step in np.arange(-0.75, 1, 0.25))
    assert found[2] < 0
    assert f1(found[2]) > f1(0) + 0.05
    assert fit_bias(given[:, :2], np.zeros(len(given), int), lengths, TagScheme.of(["B-x", "I-x"])).tolist() == [0, 0]


# Cross-fitting


def fitter_of(
    given: np.ndarray, truth: np.ndarray, fits: set[str], halves: np.ndarray
) -> tuple[DecisionFitter, list[np.ndarray]]:
    """A fitter that has seen these, and the predictions that it measures."""
    seen = list[np.ndarray]()

    def measure(truth: np.ndarray, predicted: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
        seen.append(predicted)
        return class_scores(truth, predicted, NAMES)

    fitter = DecisionFitter(DecisionRule(), measure, NAMES, frozenset(fits))
    fitter._truth, fitter._log_probabilities = [truth], [given]
    fitter._lengths, fitter._halves = [1] * len(truth), halves.tolist()
    return fitter, seen


def test_figures_are_those_of_each_half_with_the_values_of_the_other() -> None:
    given, truth = drawn()
    halves = np.random.default_rng(5).integers(0, 2, len(truth))
    fitter, seen = fitter_of(given, truth, {"temperature", "bias"}, halves)
    metrics = fitter.scores()
    crossed, predicted = np.empty_like(given), np.empty_like(truth)
    for half in (0, 1):
        fit, held_out = halves != half, halves == half
        temperature = fit_temperature(given[fit], truth[fit])
        crossed[held_out] = log_softmax(given[held_out] / temperature, axis=1)
        bias = fit_bias(rescaled(given[fit], temperature), truth[fit], np.ones(fit.sum(), int), None)
        predicted[held_out] = (crossed[held_out] + bias).argmax(1)
    figures = fitter.decision.figures
    for name, score in {
        "log_loss": lambda p: log_loss(truth, np.exp(p)),
        "ece": lambda p: calibration(np.exp(p), truth).error,
    }.items():
        assert figures[name] == pytest.approx((score(given), score(crossed)), rel=1e-6)
        assert figures[name][1] < figures[name][0]
    both = (macro_f1(truth, given.argmax(1), 3), macro_f1(truth, predicted, 3))
    assert figures["f1_macro"] == pytest.approx(both)
    assert both[1] > both[0]
    assert seen[-1].tolist() == predicted.tolist()
    assert metrics == {"loss": figures["log_loss"][1]} | class_scores(truth, predicted, NAMES)
    # The values that are kept are fitted on all data.
    assert fitter.decision.temperature == fit_temperature(given, truth)
    everything = fit_bias(rescaled(given, fitter.decision.temperature), truth, np.ones(len(truth), int), None)
    assert fitter.decision.bias == {name: value for name, value in zip(NAMES, everything, strict=True) if value}
    assert fitter.lines[0].startswith(
        f"temperature {fitter.decision.temperature:.3g}: log-loss {figures['log_loss'][0]:.4f} -> "
    )


def test_no_half_is_decided_with_its_own_labels() -> None:
    given, truth = drawn()
    halves = np.random.default_rng(5).integers(0, 2, len(truth))
    before, after = (
        fitter_of(given, one, {"bias"}, halves)
        for one in (truth, np.where((halves == 0) & (np.arange(400) % 9 == 0), 2, truth))
    )
    for fitter, _ in (before, after):
        fitter.scores()
        assert fitter.decision.bias
    (mine,), (other,) = before[1], after[1]
    assert mine[halves == 0].tolist() == other[halves == 0].tolist()
    assert mine[halves == 1].tolist() != other[halves == 1].tolist()


def test_what_is_of_no_use_on_the_other_half_is_not_applied() -> None:
    """The halves contradict each other, so whatever is fitted on one is wrong on the other."""
    random = np.random.default_rng(0)
    given, halves = log_softmax(random.normal(size=(80, 3)) * 3, axis=1), np.arange(80) % 2
    truth = np.where(halves == 0, given.argmax(1), given.argmin(1))
    fitter, seen = fitter_of(given, truth, {"temperature", "bias"}, halves)
    fitter.scores()
    assert (fitter.decision.temperature, fitter.decision.bias) == (1.0, {})
    assert seen[-1].tolist() == given.argmax(1).tolist()
    assert fitter.lines[0].startswith("no temperature, since it lowers no loss: log-loss ")
    assert fitter.lines[1].startswith("no bias, since it is of no use: macro F1 ")


def test_few_examples_fit_nothing() -> None:
    given, truth = drawn(30)
    for halves, told in (
        (np.arange(30) < 9, "needs 10 examples, and the smaller one has 9"),
        (np.arange(30) < 0, "has 0"),
    ):
        fitter, _ = fitter_of(given, truth, {"temperature", "bias"}, halves.astype(int))
        assert fitter.scores() == class_scores(truth, given.argmax(1), NAMES)
        assert fitter.decision == manifest.Decision()
        assert told in fitter.lines[0]
    broken = np.where(np.arange(30)[:, None] == 3, np.nan, given)
    fitter, _ = fitter_of(broken, truth, {"temperature"}, np.arange(30) % 2)
    fitter.scores()
    assert fitter.lines == ["nothing is fitted: some outputs are not finite"]


def test_halves_depend_on_the_tokens_alone() -> None:
    ids = torch.randint(0, 99, (400, 6), generator=torch.Generator().manual_seed(0))
    halves = row_halves(Batch(Tokens(ids), ids[:, 0]))
    assert 150 < sum(halves) < 250
    segments = torch.cat([torch.ones(400, 6), torch.zeros(400, 3)], dim=1).long()
    padded = Tokens(torch.cat([ids, torch.full((400, 3), 7)], dim=1), TokenPositions.packed(segments))
    assert row_halves(Batch(padded, ids[:, 0])) == halves
    assert row_halves(Batch(Tokens(ids.flip(0)), ids[:, 0])) == halves[::-1]


def test_a_long_sentence_is_in_one_half() -> None:
    recipe = SimpleNamespace(objective=settings_of("objectives", "tag")(calibrate=True))
    labels = Labels(("B-x", "I-x", "O"), (1, 1, 1))
    fitter: Any = pipeline_of(SimpleNamespace(recipe=recipe, labels=labels, decision=None)).decision_fitter()  # type: ignore[arg-type]
    batch = batch_of([4, 4, 4, 7], [3, 2, 1, 4], torch.zeros(10, dtype=torch.long))
    fitter.add(batch, torch.zeros(10, 3))
    assert fitter.lengths.tolist() == [6, 4]
    assert fitter.halves.tolist() == [row_halves(batch)[0], row_halves(batch)[3]]


# Thresholds


def decided(
    p: list[list[float]], thresholds: dict[str | None, float], names: tuple[str, ...] = NAMES, tags: bool = False
) -> list[str | None]:
    common = thresholds.get(None, 0.0)
    needed = np.array([thresholds.get(name, common) for name in names])
    scheme = TagScheme.of(names) if tags else None
    rule = DecisionRule(scheme, thresholds=needed, has_own_threshold=np.array([name in thresholds for name in names]))
    found = rule.decide(np.log(np.array(p)), np.array([len(p)]) if tags else np.ones(len(p), int))
    return [None if n == NO_LABEL else names[n] for n in found]


def test_a_class_with_a_threshold_is_the_label_where_it_reaches_it_and_only_there() -> None:
    p = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.55, 0.35]]
    assert decided(p, {"b": 0.3}) == ["b", "b", "b"]
    assert decided(p, {"b": 0.6}) == ["a", "b", "c"]
    assert decided(p, {"b": 0.3, "a": 0.5}) == ["a", "b", "b"], "of two that reach it the more probable one"
    assert decided(p, {None: 0.6}) == ["a", "b", None]
    assert decided(p, {None: 0.6, "c": 0.35}) == ["a", "b", "c"]
    assert decided(p, {"a": 1.0, "b": 1.0, "c": 1.0}) == [None, None, None]


def test_thresholds_of_tags_leave_their_sequence_legal() -> None:
    names = ("B-x", "I-x", "O")
    p = [[0.3, 0.1, 0.6], [0.1, 0.3, 0.6], [0.05, 0.25, 0.7]]
    assert decided(p, {}, names, True) == ["O", "O", "O"]
    assert decided(p, {"O": 0.65}, names, True) == ["B-x", "I-x", "O"]
    assert decided(p, {None: 0.65}, names, True) == [None, None, "O"]
    assert decided(p, {"I-x": 0.3}, names, True) == ["B-x", "I-x", "O"], "the tag before it follows"


# Runs


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose labels are in part wrong, so that there is something to fit."""
    folder = tmp_path_factory.mktemp("fitted")
    rows = [row | {"label": "good"} if n % 5 == 0 else row for n, row in enumerate(tiny_tasks.OPINIONS)]
    file = tiny_tasks.opinions(folder / "noisy.jsonl", rows)
    fits = "objective={kind: classify, calibrate: true, logit_adjustment: fit}"
    return tiny_tasks.task(
        folder, f"data={{train: '{file}', split: 40%}}", fits, "eval.every_steps=10", "checkpoint.keep_last=9"
    )


@pytest.fixture
def changed(fitted: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run with another decision."""

    def change(**decision: Any) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(fitted, folder, dirs_exist_ok=True)
        record = json.loads((folder / "run.json").read_text())
        record["model"] = {name: value for name, value in record["model"].items() if name != "decision"}
        record["model"] |= {"decision": decision} if decision else {}
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    return change


def predicted(*arguments: str | Path) -> list[dict[str, Any]]:
    done = minitf("predict", *arguments)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_training_records_what_the_published_model_is_fitted_to(fitted: Path) -> None:
    record = manifest.read(fitted)
    trained = open_trained(fitted, device="cpu")
    fitter = pipeline_of(trained).decision_fitter()
    assert fitter is not None
    packing = pack(trained.recipe, evaluation_data(trained, None, "val"), trained.tokenizer, trained.objective)
    metrics = evaluate(trained.task(), trained.objective, packing, trained.setup, 4, accumulator=fitter)
    assert record.decision is not None
    assert record.decision.figures.keys() == {"log_loss", "ece", "f1_macro"}
    assert record.decision.temperature == pytest.approx(fitter.decision.temperature, rel=1e-3)
    assert record.decision.bias == pytest.approx(fitter.decision.bias)
    # The metrics of the run are cross-fitted.
    assert record.metrics["val.f1_macro"] == pytest.approx(metrics["f1_macro"])
    assert record.metrics["val.loss"] == pytest.approx(
        record.decision.figures["log_loss"][record.decision.temperature != 1]
    )
    assert trained.decision == record.decision
    for line in fitter.lines:
        assert line.partition(":")[0] in (fitted / "log.txt").read_text()


def test_a_run_that_ends_before_it_is_recorded_is_fitted_again(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    again = ("finetune", fitted / "resolved.yaml", "-d", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(finishing, "_closing_lines", killed)
        assert minitf(*again).exit_code == 130
    assert minitf(*again).exit_code == 0
    assert manifest.read(tmp_path / "run").model == manifest.read(fitted).model
    assert minitf(*again, "--extend", "10").exit_code == 0
    extended = manifest.read(tmp_path / "run")
    assert extended.decision is not None
    assert extended.step == 40


def test_runs_show_has_what_was_fitted(changed: Callable[..., Path]) -> None:
    shown = minitf("runs", "show", changed(temperature=2.0, bias={"bad": -1.5})).stdout
    assert "temperature 2.0000, bias of bad -1.5000" in shown
    assert "temperature" not in minitf("runs", "show", changed()).stdout


def test_predictions_and_metrics_follow_the_decision(changed: Callable[..., Path], tmp_path: Path) -> None:
    texts = [row["text"] for row in tiny_tasks.OPINIONS[:12]]
    plain = predicted(changed(), *texts)
    run = changed(temperature=2.0, bias={"bad": 3.5}, figures={"f1_macro": [0.25, 0.75]})
    found = predicted(run, *texts)
    for before, after in zip(plain, found, strict=True):
        logits = {name: math.log(p) / 2 for name, p in before["scores"].items()}
        total = sum(map(math.exp, logits.values()))
        assert after["scores"] == pytest.approx({name: math.exp(one) / total for name, one in logits.items()}, rel=1e-4)
        assert after["label"] == max(logits, key=lambda name: logits[name] + 3.5 * (name == "bad"))
    file = tiny_tasks.opinions(tmp_path / "all.jsonl", tiny_tasks.OPINIONS[:12])
    right = np.mean([one["label"] == row["label"] for one, row in zip(found, tiny_tasks.OPINIONS, strict=False)])
    done = minitf("evaluate", run, "--data", file, "--json", "--calibration", tmp_path / "c.svg")
    assert json.loads(done.stdout)["metrics"]["accuracy"] == pytest.approx(right)
    assert ">with temperature 2<" in (tmp_path / "c.svg").read_text()
    confidence = np.mean([max(one["scores"].values()) for one in found])
    drawn = json.loads(done.stdout)["result"]["calibration"]
    assert drawn["temperature"] == 2
    assert sum(n * c for n, c in zip(drawn["counts"], drawn["confidence"], strict=True) if n) / 12 == pytest.approx(
        confidence, rel=1e-4
    )
    assert "optimistic" not in done.stderr
    told = (
        "the temperature and bias were fitted on these data, so the metrics are optimistic; cross-fitted: f1_macro"
        " 0.2500 -> 0.7500"
    )
    assert told in minitf("evaluate", run).stderr
    assert "optimistic" not in minitf("evaluate", run, "--split", "train").stderr


def test_the_bias_of_an_ensemble_is_the_mean_over_all_members() -> None:
    """A member without a decision has the bias 0; temperatures are part of the averaged probabilities."""
    members = [
        Decision(temperature=3.0, bias={"good": 1.0, "bad": -3.0}),
        None,
        Decision(bias={"good": 0.5}),
        Decision(),
    ]
    assert Decision.of_ensemble(members) == Decision(bias={"good": 1.5 / 4, "bad": -3.0 / 4})
    assert Decision.of_ensemble([None, None]) is None


def test_a_decision_belongs_to_its_weights(changed: Callable[..., Path]) -> None:
    plain = predicted(changed(), "a nice soup")
    run = changed(temperature=2.0)
    step = manifest.read(run).model["step"]  # type: ignore[index]
    other = next(int(one.name[5:]) for one in sorted((run / "checkpoints").glob("step-*")) if int(one.name[5:]) != step)
    assert open_trained(run, step, device="cpu").decision is not None
    done = minitf("predict", run, "--step", str(other), "a nice soup")
    assert f"the temperature fitted for model.safetensors (step {step}) is not applied to these weights" in done.stderr
    assert open_trained(run, average=2, device="cpu").decision is None
    assert predicted(run, "a nice soup")[0]["scores"] != plain[0]["scores"]
    (run / "model.safetensors").unlink()
    assert minitf("finetune", run / "resolved.yaml", "-d", run).exit_code == 0
    assert open_trained(run, device="cpu").decision is not None, "restored with its model"


@pytest.mark.parametrize(
    "decision", [{"temperature": 0}, {"temperature": "warm"}, {"bias": [1]}, {"bias": {"good": None}}]
)
def test_a_damaged_decision_is_refused(decision: dict[str, Any], changed: Callable[..., Path]) -> None:
    refused(minitf("predict", changed(**decision), "text"), "run.json is damaged: model", exit_code=5)


def test_the_run_of_several_seeds_has_the_decision_of_its_model(tmp_path: Path) -> None:
    file = tiny_tasks.opinions(tmp_path / "all.jsonl")
    fits = "objective={kind: classify, calibrate: true}"
    run = tiny_tasks.task(tmp_path, f"data={{train: '{file}', split: 40%}}", fits, "train.steps=2", "train.seeds=2")
    seeds = [manifest.read(run / f"seed-{n}") for n in (1, 2)]
    whole = manifest.read(run)
    assert whole.decision is not None
    assert whole.model in [one.model for one in seeds]
    assert open_trained(run, device="cpu").decision == whole.decision


def test_the_most_probable_classes_are_listed_in_order(fitted: Path, tagger: Path) -> None:
    (one,) = predicted(fitted, "--top", "2", "a nice soup")
    ranked = sorted(one["scores"].items(), key=lambda item: -item[1])
    assert one["top"] == [{"label": label, "score": score} for label, score in ranked[:2]]
    assert len(predicted(fitted, "--top", "9", "a nice soup")[0]["top"]) == 3
    (one,) = predicted(tagger, "--top", "2", "Anna saw Oslo")
    assert [len(word) for word in one["top"]] == [2, 2, 2]
    assert [word[0]["label"] for word in one["top"]] == one["label"]
    assert [word[0]["score"] for word in one["top"]] == one["scores"]
    assert "top" not in predicted(tagger, "Anna saw Oslo")[0]


def test_thresholds_of_predict(fitted: Path, tagger: Path, regressor: Path) -> None:
    (plain,) = predicted(fitted, "a nice soup")
    assert predicted(fitted, "--threshold", "1", "a nice soup")[0] == plain | {"label": None}
    assert predicted(fitted, "--threshold", "0.001", "a nice soup") == [plain]
    assert predicted(fitted, "--threshold", "bad=0", "--threshold", "1", "a nice soup")[0]["label"] == "bad"
    assert predicted(tagger, "--threshold", "1", "Anna saw Oslo")[0]["label"] == [None] * 3
    for run, given, told in (
        (fitted, ("--threshold", "god=0.5"), "--threshold god=0.5: no such class 'god'; did you mean good?"),
        (fitted, ("--threshold", "good=high"), "--threshold good=high: must be a probability from 0 to 1"),
        (fitted, ("--threshold", "1.5"), "--threshold 1.5: must be a probability from 0 to 1"),
        (fitted, ("--threshold", "nan"), "must be a probability from 0 to 1"),
        (fitted, ("--threshold", "0.5", "--threshold", "0.6"), "--threshold 0.6: a second threshold of all classes"),
        (regressor, ("--top", "2"), "--top needs classes or tags, but run was trained with the objective regress"),
        (regressor, ("--threshold", "0.5"), "--threshold needs classes or tags"),
    ):
        refused(minitf("predict", run, *given, "text"), told, exit_code=2)


def test_metrics_with_thresholds_are_those_of_the_labels_that_predict_prints(fitted: Path, tmp_path: Path) -> None:
    """A text without a label is a wrong prediction, and none of any class."""
    rows = tiny_tasks.OPINIONS[:30]
    file, truth = tiny_tasks.opinions(tmp_path / "some.jsonl", rows), [row["label"] for row in rows]
    for given in (("0.45",), ("0.4", "bad=0.3")):
        ways = [word for one in given for word in ("--threshold", one)]
        labels = [one["label"] for one in predicted(fitted, "-i", file, *ways)]
        done = minitf("evaluate", fitted, "--data", file, *ways, "--json")
        answer = json.loads(done.stdout)
        right = np.mean([label == true for label, true in zip(labels, truth, strict=True)])
        classes = {*truth} | {label for label in labels if label is not None}
        both = {name: sum(a == b == name for a, b in zip(labels, truth, strict=True)) for name in classes}
        f1 = [2 * both[name] / (labels.count(name) + truth.count(name)) for name in classes]
        assert answer["metrics"]["accuracy"] == pytest.approx(right)
        assert answer["metrics"]["f1_macro"] == pytest.approx(np.mean(f1))
        n_without = labels.count(None)
        assert (f"{n_without} of 30 predictions have no label" in done.stderr) == bool(n_without)
        assert np.sum(answer["result"]["confusion"]["counts"]) == 30 - n_without
        asserted = minitf("predict", fitted, "-i", file, *ways, "--assert", f"accuracy>={right - 1e-9}")
        assert asserted.exit_code == 0, asserted.stderr
    refused(
        minitf("evaluate", fitted, "--threshold", "god=0.5"), "no such class 'god'; did you mean good?", exit_code=2
    )


def test_words_without_a_tag_are_wrong_and_of_no_entity(tagger: Path, regressor: Path, tmp_path: Path) -> None:
    ways = ("--data", tiny_tasks.names(tmp_path / "n.conll", tiny_tasks.NAMES[:4]), "--threshold", "1", "--json")
    metrics = json.loads(minitf("evaluate", tagger, *ways).stdout)["metrics"]
    assert (metrics["accuracy"], metrics["entity_f1"]) == (0, 0)
    assert entity_scores([["B-x", "I-x", "O", "B-x"]], [["B-x", None, None, "B-x"]])["accuracy"] == 0.5
    refused(minitf("evaluate", regressor, "--threshold", "0.5"), "--threshold needs classes or tags", exit_code=2)


def test_the_loss_is_that_of_the_probabilities_that_predict_prints(
    changed: Callable[..., Path], tmp_path: Path
) -> None:
    rows = tiny_tasks.OPINIONS[:30]
    file = tiny_tasks.opinions(tmp_path / "some.jsonl", rows)
    runs = {
        "raw": Path(shutil.copytree(changed(), tmp_path / "raw")),
        "scaled": changed(temperature=2.0, bias={"bad": 3.5}),
    }
    scores = {name: [one["scores"] for one in predicted(run, "-i", file)] for name, run in runs.items()}
    loss, error = {}, {}
    for name, given in scores.items():
        loss[name] = np.mean([-math.log(p[row["label"]]) for p, row in zip(given, rows, strict=True)])
        p = np.array([list(one.values()) for one in given])
        error[name] = calibration(p, np.array([list(given[0]).index(str(row["label"])) for row in rows])).error
    done = minitf("evaluate", runs["scaled"], "--data", file, "--json")
    answer = json.loads(done.stdout)
    assert answer["metrics"]["loss"] == pytest.approx(loss["scaled"], rel=1e-5)
    found = answer["result"]["calibrated"]
    assert found["log_loss"] == pytest.approx([loss["raw"], loss["scaled"]], rel=1e-4)
    assert found["ece"] == pytest.approx([error["raw"], error["scaled"]], rel=1e-4)
    assert f"temperature 2: loss {loss['raw']:.4f} -> {loss['scaled']:.4f}, expected calibration error" in done.stderr


def test_biases_in_words_are_the_largest_ones_and_steer_no_terminal() -> None:
    assert describe_bias({}) == ""
    assert describe_bias({"a": 0.25, "b": -2.0}) == "bias b -2, a +0.25"
    assert describe_bias({f"c{n}": n for n in range(1, 11)}).endswith("c3 +3 and 2 more")
    assert "\x1b" not in describe_bias({"\x1b[2J": 1.0})


def test_a_class_in_the_record_that_the_run_lacks_has_no_part() -> None:
    recipe = SimpleNamespace(objective=settings_of("objectives", "classify")())
    decision = manifest.Decision(bias={"b": 1.0, "z": 9.0})
    pipeline: Any = pipeline_of(SimpleNamespace(recipe=recipe, labels=Labels(NAMES, (1, 1, 1)), decision=decision))  # type: ignore[arg-type]
    assert pipeline.rule.bias.tolist() == [0.0, 1.0, 0.0]
    assert pipeline.decision_fitter() is None
    assert pipeline.predictions(torch.tensor([[0.5, 0.0, 0.2]]), [Example(["x"], [], "x")])[0].label == "b"
    assert _decision_rule.log_loss(np.log(np.array([[0.5, 0.5], [0.25, 0.75]])), np.array([0, 1])) == pytest.approx(
        (math.log(2) - math.log(0.75)) / 2
    )
