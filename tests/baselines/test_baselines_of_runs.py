"""Baselines beside the metrics of runs: printed, recorded, cached, left out, and as bounds of --assert."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import DATA, QUIET, TINY, compared, minitf, refused, trained
from shared import once
from tiny_tasks import classifier

from mini_tf import scores
from mini_tf.baselines import BaselineSettings, Measured, NoBaseline
from mini_tf.jobs.baselines import Baselines, baseline_metrics, verdict
from mini_tf.recipe.kinds import settings_of
from mini_tf.run import manifest


@pytest.fixture(autouse=True)
def with_baselines() -> Iterator[None]:
    with compared():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny classifier with baselines; tests only read it."""

    def make(folder: Path) -> Path:
        with compared():
            return classifier(folder, "train.steps=2")

    return once(tmp_path_factory, "compared-classifier", make)


def test_a_run_records_its_baselines_and_the_name_of_the_best_one(run: Path) -> None:
    record = manifest.read(run)
    figures = record.metrics
    assert record.baseline in (
        "TF-IDF of words + logistic regression",
        "TF-IDF of words and characters + logistic regression",
    )
    each = {kind: figures[f"baseline.{kind}.accuracy"] for kind in ("majority", "tfidf_logistic", "tfidf_characters")}
    assert figures["baseline.accuracy"] == max(each.values()) == 1  # a word tells the class  # type: ignore[type-var]
    assert each["majority"] < 0.6  # type: ignore[operator]
    assert {name.removeprefix("val.") for name in figures} >= {"accuracy", "f1_macro", "matthews"}
    assert not [name for name in figures if name.startswith("baseline.f1.")]  # of single classes


def test_evaluate_prints_them_beside_the_model_from_the_cache(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Measured:
        raise AssertionError("measured again")

    for kind in ("majority", "tfidf_logistic", "tfidf_characters"):
        monkeypatch.setattr(settings_of("baselines", kind), "measure", never)
    done = minitf("evaluate", run, "--json")
    metrics, recorded = json.loads(done.stdout)["metrics"], manifest.read(run)
    assert {name: value for name, value in metrics.items() if name.startswith("baseline.")} == {
        name: value for name, value in recorded.metrics.items() if name.startswith("baseline.")
    } | {"baseline.name": recorded.baseline}
    line, further = (line for line in done.stderr.splitlines() if "baseline" in line)
    assert (
        line
        == f"baseline: {recorded.baseline} has accuracy 1.0000 (the model: {metrics['accuracy']:.4f}): the model does"
        " not beat it"
    )
    assert further.startswith("further baselines: TF-IDF of words")
    assert "the most frequent class, accuracy 0." in further
    table = minitf("evaluate", run).stdout
    assert table.startswith("loss ")
    assert "baseline" not in table


def test_other_data_and_the_training_split(run: Path, tmp_path: Path) -> None:
    """Other data are compared with baselines of the run's training data; training data with none."""
    (tmp_path / "other.jsonl").write_text(
        '{"text": "a nice room", "label": "good"}\n{"text": "a dull room", "label": "good"}\n'
    )
    other = json.loads(minitf("evaluate", run, "--data", tmp_path / "other.jsonl", "--json").stdout)["metrics"]
    assert other["baseline.tfidf_logistic.accuracy"] == 0.5
    seen = "of these documents are also in the training data"
    assert seen not in minitf("evaluate", run, "--data", tmp_path / "other.jsonl").stderr
    fitted = json.loads(minitf("evaluate", run, "--split", "train", "--json").stdout)["metrics"]
    assert not [name for name in fitted if name.startswith("baseline.")]


@pytest.mark.parametrize("split", ["10%", "tail 10%"])
def test_data_that_the_model_was_trained_on_are_named(tmp_path: Path, split: str) -> None:
    run = trained(tmp_path / "run", "train.steps=1", f"data.split={split}")
    said = minitf("evaluate", run, "--data", DATA / "tiny.txt").stderr
    assert re.search(r"\d+ of \d+ of these documents are also in the training data: metrics of the model", said)
    assert "also in the training data" not in minitf("evaluate", run).stderr
    (tmp_path / "new.txt").write_text("Nothing of this text was in the other.")
    assert "also in the training data" not in minitf("evaluate", run, "--data", tmp_path / "new.txt").stderr


def test_a_bound_may_be_a_baseline(run: Path) -> None:
    assert (
        minitf(
            "evaluate", run, "--assert", "val.accuracy>baseline.accuracy-1.5", "--assert", "loss<baseline.loss+9"
        ).exit_code
        == 0
    )
    done = minitf("evaluate", run, "--assert", "val.accuracy>baseline.accuracy")
    assert done.exit_code == 8
    assert "but must be > baseline.accuracy (1)" in done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("val.accuracy>baseline.acuracy", "did you mean baseline.accuracy?"),
        ("val.accuracy>baselin.accuracy", "did you mean baseline.accuracy?"),
        ("val.acuracy>0.5", "did you mean val.accuracy?"),
        ("val.accuracy>baseline.majority.bleu", "not a metric of training"),
        ("val.accuracy>baseline.accuracy.mean", "not a metric of training"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_one_before_training(given: str, told: str, tmp_path: Path) -> None:
    done = minitf("finetune", "sst2-nano", "--assert", given, "train.seeds=2", "-d", tmp_path / "run")
    refused(done, given.partition(">")[2] if "baseli" in given else "val.acuracy", told, exit_code=2)
    assert not (tmp_path / "run").exists()


def test_baselines_that_are_left_out_are_no_bound(tmp_path: Path) -> None:
    bound = ("--assert", "val.loss<baseline.loss")
    refused(minitf("pretrain", TINY, "eval.baseline=false", *bound), "eval.baseline is false: remove it", exit_code=2)
    folder = trained(tmp_path / "run", "train.steps=1", "eval.baseline=false")
    assert manifest.read(folder).baseline is None
    assert not [name for name in manifest.read(folder).metrics if name.startswith("baseline.")]
    assert "baseline" not in minitf("evaluate", folder).stderr


def test_a_language_model_is_compared_in_bits_per_byte_and_its_id_does_not_change(tmp_path: Path) -> None:
    with_it = minitf(
        "pretrain",
        TINY,
        *QUIET,
        "train.steps=1",
        "-d",
        tmp_path / "with",
        "--assert",
        "val.loss<baseline.loss+9",
        "--json",
    )
    metrics = json.loads(with_it.stdout)["metrics"]
    assert with_it.exit_code == 0
    assert metrics["baseline.bits_per_byte"] == metrics["baseline.ngram.bits_per_byte"] < metrics["val.bits_per_byte"]
    assert "-gram model (Kneser-Ney) has bits_per_byte" in with_it.stderr
    assert metrics["baseline.name"].endswith("-gram model (Kneser-Ney)")
    without = trained(tmp_path / "without", "train.steps=1", "eval.baseline=false")
    assert manifest.read(without).run_id == manifest.read(tmp_path / "with").run_id
    assert (without / "model.safetensors").read_bytes() == (tmp_path / "with" / "model.safetensors").read_bytes()


def test_several_seeds_have_one_baseline(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", "train.steps=1", "train.seeds=2")
    record = manifest.read(folder)
    assert record.baseline == manifest.read(folder / "seed-1").baseline
    assert record.metrics["baseline.loss"] == manifest.read(folder / "seed-2").metrics["baseline.loss"]
    assert not [name for name in record.metrics if name.startswith("baseline.") and name.endswith((".mean", ".std"))]
    assert "baseline" not in (folder / "metrics.jsonl").read_text()


def test_a_missing_package_is_said_in_one_line_and_a_bound_on_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = scores.version
    monkeypatch.setattr(scores, "version", lambda package: None if package == "scikit-learn" else version(package))
    done = minitf("finetune", "sst2-nano", "--assert", "val.accuracy>baseline.accuracy", "-d", tmp_path / "refused")
    refused(done, "scikit-learn", "minitf[scores]", exit_code=9)
    folder = classifier(tmp_path, "train.steps=1")
    log = (folder / "log.txt").read_text()
    assert (
        "no baseline tfidf_logistic, tfidf_characters: scikit-learn is not installed: pip install 'minitf[scores]'"
        in log
    )
    assert manifest.read(folder).baseline == "the most frequent class"


def test_a_baseline_that_fails_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(settings: BaselineSettings, data: Any) -> Measured:
        raise NoBaseline("no such data") if type(settings).__module__.endswith("majority") else OSError("disk full")

    for kind in ("majority", "tfidf_logistic", "tfidf_characters"):
        monkeypatch.setattr(settings_of("baselines", kind), "measure", fails)
        monkeypatch.setattr(settings_of("baselines", kind), "VERSION", -1)  # nothing is cached of it
    folder = classifier(tmp_path, "train.steps=1")
    assert manifest.read(folder).state == "done"
    log = (folder / "log.txt").read_text()
    assert "no baseline majority: no such data" in log
    assert "no baseline tfidf_logistic: disk full" in log


# Without runs

OF_TEXTS = Baselines(
    {
        "ngram": Measured("3-gram model", {"loss": 2.0, "bits_per_byte": 1.5}, "from 5 of 9 training tokens"),
        "copied_source": Measured("copy", {"chrf": 10.0, "rouge1": 0.2}),
        "lead_sentence": Measured("lead", {"chrf": 30.0, "rouge1": 0.1}),
    },
    ("chrf", "loss"),
    ("a note",),
)


def test_the_best_is_ranked_by_the_main_metric_and_others_fill_in_what_it_has_not() -> None:
    model = {"val.chrf": 40.0, "val.rouge1": 0.3, "val.loss": 3.0, "val.bits_per_byte": 2.0}
    found = OF_TEXTS.metrics(model)
    assert {name: found[f"baseline.{name}"] for name in ("chrf", "rouge1", "loss")} == {
        "chrf": 30.0,
        "rouge1": 0.1,
        "loss": 2.0,
    }
    assert found["baseline.copied_source.chrf"] == 10.0
    assert "baseline.copied_source.rouge1" not in found  # which ranks nothing
    assert [*OF_TEXTS.lines(model)] == [
        "baseline: lead has chrf 30.0000 (the model: 40.0000)",
        "further baselines: copy, chrf 10.0000; 3-gram model, bits_per_byte 1.5000 (from 5 of 9 training tokens)",
        "a note",
    ]


def test_without_generated_texts_the_loss_ranks() -> None:
    line, *_ = OF_TEXTS.lines({"loss": 3.0, "bits_per_byte": None})
    assert (
        line
        == "baseline: 3-gram model has bits_per_byte 1.5000 (the model: not finite): the model does not beat it (from 5"
        " of 9 training tokens)"
    )
    assert OF_TEXTS.name({"loss": 3.0}) == "3-gram model"


@pytest.mark.parametrize(
    ("metric", "model", "beats"), [("loss", 0.9, True), ("accuracy", 0.9, False), ("accuracy", 1.1, True)]
)
def test_a_model_beats_a_baseline_if_it_is_better(metric: str, model: float, beats: bool) -> None:
    assert ("does not beat" in verdict("x", metric, 1.0, model)) is not beats
    assert "does not beat" in verdict("x", metric, 1.0, 1.0)


def test_the_names_that_may_be_asserted_are_those_of_the_model() -> None:
    named = baseline_metrics(settings_of("objectives", "classify")())  # type: ignore[arg-type]
    assert named["baseline.accuracy"] == ["scikit-learn", "scikit-learn"]  # of the best one: all are needed
    assert named["baseline.majority.accuracy"] == []
    assert "baseline.bits_per_byte" not in baseline_metrics(settings_of("objectives", "masked")())  # type: ignore[arg-type]
