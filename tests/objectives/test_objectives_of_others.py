"""Objectives of an outside package, one file each: one with a network of its own, and one whose loss is no
cross-entropy.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUIET, TINY, cut_off, minitf, refused, tiny_model, trained
from safetensors.torch import load_file
from strangers import FOLDER

from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import objectives as contract
from mini_tf.testing import run_all
from mini_tf.testing.kinds import kinds_in
from mini_tf.trained.evaluating import evaluate_trained, evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import evaluate


@pytest.fixture(scope="module", autouse=True)
def others() -> Iterator[None]:
    with kinds_in(FOLDER):
        yield


@pytest.mark.parametrize("kind", ["margin", "replaced"])
def test_an_objective_in_one_file_of_its_own_keeps_to_the_contract(kind: str) -> None:
    assert kind in listing("objectives")
    run_all(contract.cases(settings_of("objectives", kind)()))  # type: ignore[arg-type]


SMALL = (tiny_model("encoder"), "model.d_model=8", "objective=replaced", "train.context=16", "eval.tokens=64")
DUE = ("train.steps=6", "eval.every_steps=2", "checkpoint.every_steps=1", "checkpoint.keep_last=4", "log.every_steps=1")
OWN = "objective.safetensors"


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("replaced") / "run", *SMALL, *DUE)


def bytes_of(run: Path) -> dict[str, bytes]:
    last = max((run / "checkpoints").iterdir())
    files = [
        run / "metrics.jsonl",
        run / "model.safetensors",
        *(last / name for name in (OWN, "model.safetensors", "optimizer.safetensors")),
    ]
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in files}


def test_a_second_network_is_trained_and_kept_in_checkpoints_beside_the_model(detector: Path) -> None:
    for step in (detector / "checkpoints").iterdir():
        assert {path.name for path in step.iterdir()} >= {OWN, "model.safetensors"}
        assert OWN in json.loads((step / "MANIFEST.json").read_text())["files"]
    first, last = (load_file(sorted((detector / "checkpoints").iterdir())[n] / OWN) for n in (0, -1))
    assert all(name.startswith("generator.") for name in first)
    assert all(not torch.equal(tensor, last[name]) for name, tensor in first.items())
    moments = load_file(max((detector / "checkpoints").iterdir()) / "optimizer.safetensors")
    assert {f"objective.{name}.exp_avg" for name in first} <= moments.keys()
    assert not any("generator" in name for name in load_file(detector / "model.safetensors"))


def test_a_run_with_a_second_network_that_is_cut_off_continues_to_the_same_bytes(
    detector: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(detector, tmp_path / "run"))
    cut_off(copy, 5, 6)
    trained(copy, *SMALL, *DUE)
    assert bytes_of(copy) == bytes_of(detector)
    damaged = copy / "checkpoints" / "step-00000006" / OWN
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    refused(
        minitf("evaluate", copy, "--step", "6"),
        "step-00000006 is damaged: objective.safetensors: wrong checksum",
        exit_code=5,
    )


def test_what_evaluation_recorded_of_two_networks_is_measured_again(detector: Path) -> None:
    found = json.loads((detector / "run.json").read_text())["metrics"]
    model = open_trained(detector, device="cpu")
    whole = evaluate_trained(model, evaluation_data(model, None, "val"))
    assert {name for name in whole} == {"loss", "loss.generator", "loss.replaced", "accuracy", "recall", "targets"}
    assert whole["loss"] == pytest.approx(whole["loss.generator"] + 50 * whole["loss.replaced"])
    for name in ("loss", "accuracy", "recall"):
        assert whole[name] == pytest.approx(found[f"val.{name}"], rel=1e-5)


def test_the_best_checkpoint_stays_where_only_it_has_the_network_of_the_published_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = iter((0.0, 1e3, 2e3, 0.0))

    def made_worse(*given: Any, **more: Any) -> dict[str, float]:
        scores = evaluate(*given, **more)
        return scores | {"loss": scores["loss"] + next(added)}

    monkeypatch.setattr("mini_tf.jobs.parts.evaluate", made_worse)
    run = trained(tmp_path / "run", *SMALL, *DUE, "checkpoint.keep_last=1", "checkpoint.keep_best=0")
    record = json.loads((run / "run.json").read_text())
    assert record["model"]["step"] == 2
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-00000006", "step-00000002"}
    model = open_trained(run, device="cpu")
    assert evaluate_trained(model, evaluation_data(model, None, "val"))["loss"] == pytest.approx(
        record["metrics"]["val.loss"], rel=1e-5
    )


def test_an_average_of_checkpoints_is_of_the_model_and_is_measured_with_the_newest_second_network(
    detector: Path,
) -> None:
    model = open_trained(detector, device="cpu", average=3)
    files = [load_file(path / "model.safetensors") for path in sorted((detector / "checkpoints").iterdir())[-3:]]
    for name, tensor in model.model.weights().items():
        torch.testing.assert_close(tensor, torch.stack([file[name] for file in files]).mean(0))
    own = load_file(max((detector / "checkpoints").iterdir()) / OWN)
    assert all(
        torch.equal(tensor, own[f"generator.{name}"]) for name, tensor in model.task().generator.weights().items()
    )  # type: ignore[union-attr, operator]


def test_a_second_network_does_not_change_how_the_model_is_initialized(tmp_path: Path) -> None:
    folders = [
        trained(tmp_path / width, *SMALL, "train.steps=1", "optimizer.lr=1e-10", f"objective.generator_width={width}")
        for width in "48"
    ]
    first, second = (load_file(folder / "model.safetensors") for folder in folders)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=0, atol=1e-9)


def test_a_step_that_diverged_is_done_again_with_the_second_network_as_it_was(tmp_path: Path) -> None:
    late = (
        "train.steps=60",
        "optimizer.lr=3",
        "optimizer.clip=0",
        "train.stop_above=60",
        "schedule.kind=constant",
        "schedule.warmup=5",
    )
    done = minitf("pretrain", TINY, *QUIET, *SMALL, *late, "-d", tmp_path / "run")
    assert done.exit_code == 7, done.stderr
    kept, result = tmp_path / "run" / "diverged", minitf("inspect", "crash", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in kept.iterdir()} == {"facts.json", "model.safetensors", "state.safetensors", OWN}
    assert json.loads((kept / "facts.json").read_text())["step"] > 1
    assert json.loads(result.stdout)["result"]["reproduced"] is True


def test_memory_and_parameters_of_a_second_network_are_counted(detector: Path) -> None:
    done = minitf("cost", detector / "resolved.yaml", "--json", "--seconds", "0.01")
    assert done.exit_code == 0, done.stderr
    checkpoint = max((detector / "checkpoints").iterdir())
    counted = sum(
        tensor.numel() for name in ("model.safetensors", OWN) for tensor in load_file(checkpoint / name).values()
    )
    metrics = json.loads(done.stdout)["metrics"]
    assert metrics["parameters"] == counted
    assert metrics["memory_bytes.weights"] == metrics["memory_bytes.gradients"] == 4 * counted


def test_a_model_whose_logits_are_no_tokens_writes_nothing(detector: Path) -> None:
    refused(
        minitf("generate", detector, "the"),
        "was trained with the objective replaced, which generates no text",
        exit_code=2,
    )
    assert not (detector / "samples").exists() or not [*(detector / "samples").iterdir()]
    told = (
        "--assert val.perplexity: not a metric of training; available: val.loss, val.accuracy, val.recall,"
        " val.loss.generator"
    )
    refused(minitf("pretrain", detector / "resolved.yaml", "--assert", "val.perplexity<9"), told, exit_code=2)


def test_a_loss_that_is_no_cross_entropy_has_no_perplexity_but_its_model_writes(tmp_path: Path) -> None:
    small = ("objective=margin", "model.d_model=8", "train.context=16", "train.steps=2", "generate.max_new_tokens=3")
    run = trained(tmp_path / "run", *small, "log.samples=1", "eval.every_steps=2")
    [path] = (run / "samples").iterdir()
    assert path.read_text()
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert {name for name in last if name.startswith("val.")} == {"val.loss", "val.accuracy"}
    assert minitf("generate", run, "the").exit_code == 0
