"""Ensembles of seeds and folds: their predictions are the means of those of their models, recomputed one by one."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commands import EXACT, minitf, refused, trained
from tiny_tasks import OPINIONS, opinions

from mini_tf.pipelines._class_pipeline import ClassPipeline
from mini_tf.run import finding, manifest
from mini_tf.run.identity import read_recipe
from mini_tf.run.manifest import Decision
from mini_tf.trained.ensembles import one_of_ensemble
from mini_tf.trained.evaluating import decision_notes
from mini_tf.trained.opening import open_trained

SMALL = (
    *EXACT, "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}", "log.samples=0", "optimizer.lr=1e-2",
    "train={steps: 4, batch_size: 8, context: 48, ensemble: mean}", "tokenizer={kind: bpe, vocab_size: 280}",
)  # fmt: skip
ROWS = OPINIONS[:48]
TEXTS = [str(row["text"]) for row in ROWS[:6]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opinions(tmp_path_factory.mktemp("data") / "opinions.jsonl", ROWS)


def of_seeds(data: Path) -> tuple[str, ...]:
    return (
        *SMALL,
        "objective={kind: classify, label_smoothing: 0.2}",
        f"data.train={data}",
        "data.split=25%",
        "train.seeds=3",
    )


@pytest.fixture(scope="module")
def seeds(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("seeds") / "run", *of_seeds(data), recipe="bert-nano")


@pytest.fixture(scope="module")
def folds(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of numbers, whose mean and scale each fold takes from its own training part."""
    section = f"data={{train: '{data}', fields: {{text: text, label: stars}}, split: {{folds: 2}}}}"
    return trained(tmp_path_factory.mktemp("folds") / "run", *SMALL, "objective=regress", section, recipe="bert-nano")


def predicted(run: Path, texts: list[str] = TEXTS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in minitf("predict", run, *texts, "--device", "cpu").stdout.splitlines()]


def evaluated(run: Path, *ways: str | Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(minitf("evaluate", run, *ways, "--device", "cpu", "--json").stdout)["metrics"]
    return found


def test_the_probabilities_of_an_ensemble_are_the_means_of_those_of_its_seeds(seeds: Path) -> None:
    each = [predicted(one) for one in finding.member_folders(seeds)]
    for together, alone in zip(predicted(seeds), zip(*each, strict=True), strict=True):
        mean = {name: np.mean([one["scores"][name] for one in alone]) for name in together["scores"]}
        assert together["scores"] == pytest.approx(mean, abs=1e-6)
        assert together["label"] == max(mean, key=lambda name: mean[name])


def test_loss_and_accuracy_are_those_of_the_mean_probabilities(seeds: Path, data: Path) -> None:
    found = predicted(seeds, [str(row["text"]) for row in ROWS])
    truth = [str(row["label"]) for row in ROWS]
    measured = evaluated(seeds, "--data", data)
    losses = [-math.log(one["scores"][name]) for one, name in zip(found, truth, strict=True)]
    right = [one["label"] == name for one, name in zip(found, truth, strict=True)]
    assert measured["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert measured["accuracy"] == pytest.approx(np.mean(right))
    assert measured["targets"] == len(ROWS)
    each = [evaluated(one, "--data", data) for one in finding.member_folders(seeds)]
    assert measured["loss"] <= np.mean([one["loss"] for one in each]) + 1e-6  # Jensen


def test_the_run_records_the_metrics_of_its_ensemble_and_evaluate_finds_them_again(seeds: Path) -> None:
    metrics, measured = manifest.read(seeds).metrics, evaluated(seeds)
    for name in ("loss", "accuracy", "f1_macro"):
        assert metrics[f"val.{name}.ensemble"] == pytest.approx(measured[name])
    log = (seeds / "log.txt").read_text()
    assert f"ensemble of 3 seeds: val.accuracy {measured['accuracy']:.4f}, val.loss {measured['loss']:.4f}" in log


def test_metrics_of_an_ensemble_whose_models_were_fitted_on_these_data_are_called_optimistic() -> None:
    of_use, of_none = Decision(bias={"a": 1.0}), Decision(figures={"ece": (0.1, 0.2)})
    for fitted, expected in (([of_use, of_none, None], 1), ([of_none, None, None], 0)):
        trained: Any = SimpleNamespace(members=[SimpleNamespace(decision=one) for one in fitted])
        assert len(decision_notes(trained, fitted_on=True)) == expected
        assert decision_notes(trained, fitted_on=False) == []


def _median(run: Path) -> int:
    return [one.name for one in finding.member_folders(run)].index(manifest.read(run).model_run or "")


def test_other_commands_and_a_seeds_own_folder_have_one_model(seeds: Path, tmp_path: Path) -> None:
    assert minitf("inspect", "model", seeds).exit_code == 0
    median = finding.member_folders(seeds)[_median(seeds)]
    assert (seeds / "model.safetensors").read_bytes() == (median / "model.safetensors").read_bytes()
    assert manifest.read(median).decides["train.ensemble"] is None
    done = minitf("predict", seeds, "--step", "best", TEXTS[0])
    refused(done, f"use one of its runs: {seeds / 'seed-1'}", exit_code=5)
    copy = Path(shutil.copytree(seeds, tmp_path / "copy"))
    shutil.copytree(copy / "seed-3", copy / "seed-4")
    refused(minitf("predict", copy, TEXTS[0]), "has 4 of the 3 runs whose predictions are averaged", exit_code=5)
    shutil.rmtree(copy / "seed-3")
    refused(minitf("predict", copy, TEXTS[0]), "has 2 of the 3 runs whose predictions are averaged", exit_code=5)


def test_an_export_says_that_it_has_one_model_of_an_ensemble(seeds: Path, folds: Path, tmp_path: Path) -> None:
    median = finding.member_folders(seeds)[_median(seeds)]
    alone, together = evaluated(median)["accuracy"], evaluated(seeds)["accuracy"]
    of_seeds = f"{median.name}: val.accuracy {alone:.4f}, and {together:.4f} of the ensemble"
    of_folds = manifest.read(folds).model_run
    for run, n, line in ((seeds, 3, of_seeds), (folds, 2, of_folds)):
        said, folder = f"one of the {n} models of the ensemble is written, that of {line}", tmp_path / str(n)
        assert said in minitf("export", run, "-o", folder, "--to", "safetensors").stderr.splitlines()
        assert f"Note: {said}.\n" in (folder / "README.md").read_text()
    apart = Path(shutil.copytree(seeds, tmp_path / "apart"))  # several seeds, and no ensemble of them
    file = apart / "resolved.yaml"
    file.write_text(file.read_text().replace("ensemble: mean", "ensemble: null"))
    assert one_of_ensemble(apart) is one_of_ensemble(median) is None


def test_numbers_of_folds_are_averaged_in_their_unit(folds: Path, data: Path) -> None:
    each = [predicted(one) for one in finding.member_folders(folds)]
    for together, *alone in zip(predicted(folds), *each, strict=True):
        assert together["label"] == pytest.approx(np.mean([one["label"] for one in alone]), rel=1e-5)
    numbers = [one["label"] for one in predicted(folds, [str(row["text"]) for row in ROWS])]
    measured = evaluated(folds, "--data", data, "--fields", "{text: text, label: stars}")
    errors = np.array(numbers) - [float(row["stars"]) for row in ROWS]
    assert measured["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-4)


def test_an_ensemble_of_folds_has_no_validation_data_of_its_own(folds: Path) -> None:
    fault = "is an ensemble of all folds, each of which was trained on most of data.train"
    hint = f"{folds / 'fold-1'} on the validation data of its fold"
    refused(minitf("evaluate", folds), fault, "--data FILE", hint, exit_code=5)
    model = finding.model_folder(folds)
    assert open_trained(folds).recipe == read_recipe(model) != read_recipe(folds)
    assert not any("ensemble" in name for name in manifest.read(folds).metrics)


@pytest.mark.parametrize("temperatures", [(None, None, None), (0.5, None, 3.0)])
def test_the_mean_is_of_the_probabilities_each_with_the_temperature_of_its_model(
    temperatures: tuple[float | None, ...],
) -> None:
    pipeline: Any = object.__new__(ClassPipeline)
    models: Any = [SimpleNamespace(decision=None if one is None else Decision(temperature=one)) for one in temperatures]
    logits = [torch.randn(5, 3, generator=torch.Generator().manual_seed(n)) * 4 for n in range(3)]
    each = [torch.softmax(one.double() / (own or 1), -1).numpy() for one, own in zip(logits, temperatures, strict=True)]
    found = pipeline.average(logits, models)
    assert np.exp(found.double().numpy()) == pytest.approx(np.mean(each, axis=0), rel=1e-5)
    shifted = [one + 100 * n for n, one in enumerate(logits)]  # of one row alike
    assert pipeline.average(shifted, models).numpy() == pytest.approx(found.numpy(), abs=1e-4)


def test_an_ensemble_says_how_well_temperatures_of_its_models_calibrate_it(seeds: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(seeds, tmp_path / "run"))
    assert "calibrated" not in json.loads(minitf("evaluate", run, "--json").stdout)["result"]
    record = finding.member_folders(run)[1] / "run.json"
    content = json.loads(record.read_text())
    content["model"]["decision"] = {"temperature": 0.5}
    record.write_text(json.dumps(content))
    assert json.loads(minitf("evaluate", run, "--json").stdout)["result"]["calibrated"].keys() == {"ece"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.seeds=3",), "predictions of next_token cannot be averaged; remove it, or use an objective that"),
        (("objective=classify", "model.kind=encoder"), "averages the predictions of several runs; use train.seeds=5"),
    ],
)
def test_what_has_no_mean_is_refused_by_name(overrides: tuple[str, ...], message: str) -> None:
    done = minitf("recipe", "check", "quickstart", "train.ensemble=mean", *overrides)
    refused(done, f"train.ensemble=mean: {message}", exit_code=3)


def test_a_gate_may_name_the_ensemble_where_there_is_one(seeds: Path, data: Path) -> None:
    ways = ("bert-nano", *of_seeds(data), "-d", seeds)
    assert minitf("finetune", *ways, "--assert", "val.accuracy.ensemble>=0").exit_code == 0
    assert minitf("finetune", *ways, "--assert", "val.accuracy.ensemble<0").exit_code == 8
    done = minitf("finetune", *ways, "train.ensemble=null", "--assert", "val.loss.ensemble<0")
    refused(done, "there is no ensemble", exit_code=2)
