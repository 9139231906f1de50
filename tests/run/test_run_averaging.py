"""The mean of checkpoints is that of their files, in every bit what double precision gives; what is unfit is refused,
never left out.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import change, flip, minitf, refused, trained
from safetensors.torch import load_file
from strangers import FOLDER

from mini_tf.run import tensors
from mini_tf.run.checkpoint import MANIFEST, MODEL
from mini_tf.run.disk import FileHashes
from mini_tf.run.loading import average
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.testing.kinds import kinds_in
from mini_tf.trained.evaluating import evaluate_trained, evaluation_data
from mini_tf.trained.opening import open_trained

KEPT = ("train.steps=5", "train.context=16", "checkpoint.every_steps=1", "eval.every_steps=1", "eval.tokens=200")
SCORES = {1: 2.0, 2: 1.0, 3: 4.0, 4: 3.0, 5: 5.0}
"""Validation losses that these runs are said to have had, so that neither the last nor the first are the best."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that keeps five checkpoints, the two best of them for their loss."""
    kept = (*KEPT, "checkpoint.keep_last=5", "checkpoint.keep_best=2", "model.d_model=8")
    folder = trained(tmp_path_factory.mktemp("averaging") / "run", *kept)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [f"step-{step:08d}" for step in SCORES]
    for step, score in SCORES.items():
        say(folder, step, score=score)
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def say(folder: Path, step: int, **changes: Any) -> None:
    """Change what a checkpoint's manifest says."""
    change(checkpoint(folder, step) / MANIFEST, **changes)


def rewrite(run: Path, step: int, weights: dict[str, torch.Tensor]) -> None:
    """Other weights in a checkpoint, which its manifest vouches for."""
    path = checkpoint(run, step) / MODEL
    path.write_bytes(b"".join(tensors.Serialized(weights)))
    files = json.loads((path.parent / MANIFEST).read_text())["files"]
    say(run, step, files=files | {MODEL: {"sha256": FileHashes().sha256(path), "bytes": path.stat().st_size}})


def mean(run: Path, *steps: int) -> dict[str, np.ndarray]:
    """By the files themselves."""
    files = [load_file(checkpoint(run, step) / MODEL) for step in steps]
    return {name: np.mean([file[name].numpy().astype(np.float64) for file in files], axis=0) for name in files[0]}


def equal(found: dict[str, torch.Tensor], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name].numpy(), expected[name]) for name in found
    )


@pytest.mark.parametrize(
    ("which", "steps"), [(1, [5]), (2, [5, 4]), ("3", [5, 4, 3]), (5, [5, 4, 3, 2, 1]), ("best", [2, 1])]
)
def test_the_mean_is_that_of_the_files(run: Path, which: int | str, steps: list[int]) -> None:
    found = average(run, which)
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert equal(found, {name: array.astype(np.float32) for name, array in mean(run, *steps).items()})
    if len(steps) > 1:
        assert not equal(found, load_file(checkpoint(run, steps[0]) / MODEL))


def test_the_mean_of_one_is_the_last_checkpoint_bit_for_bit(run: Path) -> None:
    alone, last = (
        open_trained(run, device="cpu", **asked).model.weights() for asked in ({"average": 1}, {"step": "last"})
    )
    assert alone.keys() == last.keys()
    assert all(torch.equal(alone[name], last[name]) for name in last)
    commands = [("evaluate", run, *asked, "--json") for asked in (("--average", "1"), ("--step", "last"))]
    assert minitf(*commands[0]).stdout == minitf(*commands[1]).stdout


def test_commands_use_the_mean(run: Path) -> None:
    opened = open_trained(run, "last", "cpu")
    text = evaluation_data(opened, None, "val")
    losses = [evaluate_trained(opened, text)["loss"]]
    for option, steps in (("3", [5, 4, 3]), ("best", [1, 2])):
        opened.model.load_weights({name: torch.from_numpy(array).float() for name, array in mean(run, *steps).items()})
        losses.append(evaluate_trained(opened, text)["loss"])
        done = minitf("evaluate", run, "--average", option, "--device", "cpu", "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["metrics"]["loss"] == losses[-1]
    assert len(set(losses)) == 3
    generated = minitf("generate", run, "A", "--average", "3", "--max-new-tokens", "4")
    assert generated.exit_code == 0, generated.stderr


def test_sums_are_taken_in_double_precision_and_what_is_no_floating_number_is_the_newest(copy: Path) -> None:
    parts = {3: [1.0, 256.0], 4: [1 + 2**-7, 1.0], 5: [1 + 2**-7, 1.0]}  # in bfloat16 256 + 1 is 256
    for step, (small, large) in parts.items():
        rewrite(
            copy,
            step,
            {
                "w": torch.tensor([small, large], dtype=torch.bfloat16),
                "n": torch.tensor([step]),
                "b": torch.tensor([step > 3]),
            },
        )
    found = average(copy, 3)
    assert torch.equal(found["w"], torch.tensor([1 + 2**-7 * 2 / 3, 86.0], dtype=torch.float64).to(torch.bfloat16))
    assert (found["n"].tolist(), found["n"].dtype, found["b"].tolist()) == ([5], torch.int64, [True])
    assert average(copy, "3").keys() == {"w", "n", "b"}


def test_of_a_model_with_buffers_only_parameters_are_averaged(tmp_path: Path) -> None:
    """Buffers are those of the newest of the checkpoints that are averaged, which need not be the best."""
    kept = (*KEPT, "train.steps=4", "checkpoint.keep_last=4", "checkpoint.keep_best=2", "model.d_model=8")
    with kinds_in(FOLDER):
        run = trained(tmp_path / "run", "model.attention=redrawn", *kept)
        for step, score in {1: 5.0, 2: 1.0, 3: 2.0, 4: 5.0}.items():
            say(run, step, score=score)
        averages = {which: open_trained(run, device="cpu", average=which).model.weights() for which in (2, "best")}
    for which, steps in ((2, (3, 4)), ("best", (2, 3))):
        files = [load_file(checkpoint(run, step) / MODEL) for step in steps]
        buffers = {name for name in averages[which] if name.endswith(".drawn")}
        assert len(buffers) == 2
        for name, tensor in averages[which].items():
            first, last = (file[name] for file in files)
            assert torch.equal(tensor, last if name in buffers else ((first.double() + last) / 2).float())
            assert not torch.equal(first, last)


def test_checkpoints_of_other_shapes_have_no_mean(copy: Path) -> None:
    rewrite(copy, 4, {name: tensor[..., :1] for name, tensor in load_file(checkpoint(copy, 4) / MODEL).items()})
    with pytest.raises(RunFault, match="does not match the model of its recipe"):
        average(copy, 2)
    refused(minitf("evaluate", copy, "--average", "2"), "step-00000004", "does not match the model", exit_code=5)
    rewrite(copy, 5, load_file(checkpoint(copy, 5) / MODEL) | {"other": torch.zeros(3)})
    refused(minitf("evaluate", copy, "--average", "1"), "step-00000005", "other is not expected", exit_code=5)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: flip(path / MODEL), "is damaged: model.safetensors: wrong checksum"),
        (lambda path: (path / MODEL).unlink(), "is damaged: model.safetensors: No such file"),
        (lambda path: (path / MANIFEST).write_text("{"), "is damaged: MANIFEST.json: not a manifest"),
        (lambda path: say(path.parents[1], 2, run="another"), "belongs to another run"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_not_left_out(
    copy: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(checkpoint(copy, 2))
    for which in (4, "best"):
        with pytest.raises(RunFault, match=message) as refusal:
            average(copy, which)
        assert "step-00000002" in refusal.value.message
    average(copy, 3)


def test_a_checkpoint_that_is_not_finite_is_refused(copy: Path) -> None:
    weights = load_file(checkpoint(copy, 4) / MODEL)
    name = next(iter(weights))
    rewrite(copy, 4, weights | {name: weights[name] * torch.nan})
    refused(
        minitf("generate", copy, "A", "--average", "2"),
        "step-00000004",
        f"{name} contains values that are not finite",
        exit_code=5,
    )


def test_only_a_number_from_1_or_best_is_taken(run: Path) -> None:
    message = "must be the number of last checkpoints, at least 1, or `best`"
    for which in ("0", "-1", "1.5", "", "last", "BEST", "٢", "9" * 5000):
        with pytest.raises(UsageFault, match=message):
            average(run, which)
    refused(minitf("evaluate", run, "--average=\x1b[31m2"), "--average", message, exit_code=2)


def test_more_than_are_kept_are_refused_with_what_keeps_more(run: Path) -> None:
    for command in (("evaluate", run), ("generate", run, "A")):
        refused(minitf(*command, "--average", "6"), "keeps 5 checkpoints", "a larger checkpoint.keep_last", exit_code=2)


def test_a_step_and_a_mean_are_refused_together(run: Path) -> None:
    for command in (("evaluate", run), ("generate", run, "A")):
        done = minitf(*command, "--step", "3", "--average", "2")
        refused(done, "--step 3 and --average 2 exclude each other", exit_code=2)


def test_the_best_are_as_many_as_the_recipe_keeps(copy: Path) -> None:
    recipe = copy / "resolved.yaml"
    text = recipe.read_text()
    assert text.count("keep_best: 2") == 1
    for keep_best, steps in ((1, [2]), (3, [2, 1, 4]), (9, [2, 1, 4, 3, 5])):
        recipe.write_text(text.replace("keep_best: 2", f"keep_best: {keep_best}"))
        assert equal(
            average(copy, "best"), {name: array.astype(np.float32) for name, array in mean(copy, *steps).items()}
        )
    recipe.write_text(text.replace("keep_best: 2", "keep_best: 0"))
    refused(
        minitf("evaluate", copy, "--average", "best"),
        "no checkpoint with a validation metric",
        "checkpoint.keep_best",
        exit_code=2,
    )
    recipe.write_text(text)
    for step in SCORES:
        say(copy, step, score=None)
    with pytest.raises(UsageFault, match="no checkpoint with a validation metric"):
        average(copy, "best")


def test_a_run_without_checkpoints_is_refused(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    for which in ("1", "best"):
        refused(minitf("evaluate", copy, "--average", which), "has no checkpoint", exit_code=5)


def test_checkpoints_that_a_killed_run_did_not_remove_are_not_averaged(copy: Path) -> None:
    """Of the last two, and step 2, which has the best score."""
    resolved = (copy / "resolved.yaml").read_text()
    (copy / "resolved.yaml").write_text(
        resolved.replace("keep_last: 5", "keep_last: 2").replace("keep_best: 2", "keep_best: 1")
    )
    mean = average(copy, 3)
    parts = [load_file(checkpoint(copy, step) / MODEL) for step in (5, 4, 2)]
    for name, tensor in mean.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(
                tensor, torch.stack([part[name].double() for part in parts]).mean(0).to(tensor.dtype), rtol=0, atol=0
            )
    with pytest.raises(UsageFault, match=r"--average 4: .* keeps 3 checkpoints"):
        average(copy, 4)
