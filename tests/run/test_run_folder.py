"""A run folder belongs to one recipe on one text, to one writer at a time, and continues as if nothing had happened."""

import json
import os
import re
import shutil
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import minitf, refused

from mini_tf.recipe.reading import read
from mini_tf.run import finding, location, manifest
from mini_tf.run.folder import Run
from mini_tf.run.identity import Identity
from mini_tf.run.loading import invalid_counters, load_model
from mini_tf.run.location import RunLocation, check_exact, copy_model, environment_changes, open_run, start_run
from mini_tf.run.metric_files import curve, read_lines
from mini_tf.run.tensors import CheckpointTensors, ExpectedTensors, specs
from mini_tf.system.errors import DataFault, Diverged, RunFault, StorageFault, UsageFault
from mini_tf.system.strict_json import show_json

TINY = Identity(
    recipe="tiny",
    text="model: {kind: decoder}\n",
    resolved="model: {kind: decoder, d_model: 8}\n",
    decides={"data.train": "files", "data.split": "5%", "train.steps": 100},
    hashes={"train": "aa", "tokenizer": "cc"},
    not_default={"train.steps": 100},
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fail_on_warning(line: str) -> None:
    raise AssertionError(line)


def tensors(step: int) -> CheckpointTensors:
    return CheckpointTensors({"w": torch.full((2, 3), float(step))}, {"w.exp_avg": torch.full((2, 3), step / 2)}, {})


def train(run: Run, first: int, last: int, every: int = 10) -> None:
    for step in range(first, last + 1):
        run.record({"step": step, "loss": 1 / step}, seconds=0.1)
        if step % every == 0:
            run.save(step, tensors(step), {"tokens": step * 64}, score=abs(step - 25.0))


def test_the_same_command_finds_the_same_folder() -> None:
    for status in ("new", "continued"):
        with open_run(RunLocation(), TINY) as run:
            assert run.status == status
            assert run.folder == Path("outputs").absolute() / TINY.default_name


def test_the_name_hashes_what_decides_the_result_and_contents_instead_of_paths() -> None:
    def name(*overrides: str, content: str = "aa") -> str:
        Path("r.yaml").write_text("data: {train: a.txt}\nmodel: {kind: decoder}\ntrain: {steps: 10}\n")
        return Identity.of(read("r.yaml", overrides), {"data": content}).default_name

    assert (
        name()
        == name("data.train=/elsewhere/b.txt")
        == name("log.every_steps=3", "runtime.device=cpu", "train.micro_batch_size=2")
    )
    assert len({name(), name("train.steps=20"), name("train.seed=1"), name(content="bb")}) == 4
    assert replace(TINY, recipe=".-x").default_name.startswith("x-")


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        (RunLocation(name="a b"), "outputs/a b"),
        (RunLocation(directory=Path("out dir/x")), "out dir/x"),
        (RunLocation(directory=Path("out dir"), name="x"), "out dir/x"),
    ],
)
def test_a_place_is_a_name_a_folder_or_both(place: RunLocation, folder: str) -> None:
    with open_run(place, TINY) as run:
        assert run.folder == Path(folder).absolute()
        assert (run.folder / "recipe.yaml").read_text() == TINY.text
        assert (run.folder / "resolved.yaml").read_text() == TINY.resolved


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "last", "a\nb", "x" * 300, "é" * 121, ".hidden", "-rf"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(UsageFault, match="is not a valid run name"):
        open_run(RunLocation(name=name), TINY)
    for command in (
        ("pretrain", "data.train=none.txt"),
        ("convert", "none", "a=b"),
        ("import", "none"),
    ):  # before any file is read
        refused(minitf(*command, f"--name={name}"), "is not a valid run name", exit_code=2)
    assert os.listdir() == []


def test_a_path_that_leaves_no_room_for_the_files_of_a_run_is_refused() -> None:
    for folder in ("x" * 241 + "/run", "/".join(["x" * 200] * 19)):  # the system's limits are 255 and 4,095 bytes
        with pytest.raises(UsageFault, match="the name or its path is too long"):
            open_run(RunLocation(directory=Path(folder)), TINY)
    assert os.listdir() == []


def test_an_interrupted_run_continues_as_if_nothing_had_happened() -> None:
    with open_run(RunLocation(name="whole"), TINY) as whole:
        train(whole, 1, 40)
    with open_run(RunLocation(name="parts"), TINY) as run:
        train(run, 1, 27)
        with open(run.folder / "metrics.jsonl", "a") as file:
            file.write('{"step": 28, "lo')
    with open_run(RunLocation(name="parts"), TINY) as run:
        saved = run.resume(fail_on_warning, ExpectedTensors(specs(tensors(0).model)))
        assert saved is not None
        assert (saved.step, saved.counters) == (20, {"tokens": 20 * 64})
        assert torch.equal(saved.optimizer["w.exp_avg"], tensors(20).optimizer["w.exp_avg"])
        train(run, 21, 40)
    for file in [
        "metrics.jsonl",
        *(f"checkpoints/step-00000040/{part}.safetensors" for part in ("model", "optimizer", "state")),
    ]:
        assert (run.folder / file).read_bytes() == (whole.folder / file).read_bytes()


def test_a_run_killed_before_its_first_checkpoint_starts_with_empty_metrics() -> None:
    with open_run(RunLocation(name="x"), TINY) as run:
        train(run, 1, 5)
    with open_run(RunLocation(name="x"), TINY) as run:
        assert run.resume(fail_on_warning) is None
        assert (run.folder / "metrics.jsonl").read_bytes() == b""
        assert run.manifest.step == 0


def test_other_data_or_another_recipe_under_the_same_name_is_refused_with_ways_out() -> None:
    with open_run(RunLocation(name="x"), TINY):
        pass
    before = Path("outputs/x/run.json").read_bytes()
    with pytest.raises(RunFault, match=r"was started with other contents of train") as caught:
        open_run(RunLocation(name="x"), replace(TINY, hashes={"train": "bb", "tokenizer": "cc"}))
    assert caught.value.hint is not None
    assert "--fresh" in caught.value.hint
    with pytest.raises(RunFault, match=r"was started with another recipe: train.steps: 100 -> 200"):
        open_run(
            RunLocation(name="x"),
            replace(TINY, decides={**TINY.decides, "train.steps": 200}, not_default={"train.steps": 200}),
        )
    added = {f"k{n}": 1 for n in range(7)}
    with pytest.raises(RunFault, match=r"k0: absent -> 1; .*k4: absent -> 1 \(and 2 more\)$"):
        open_run(
            RunLocation(name="x"),
            replace(TINY, decides={**TINY.decides, **added}, not_default={**TINY.not_default, **added}),
        )
    assert Path("outputs/x/run.json").read_bytes() == before


@pytest.mark.parametrize(
    "start", [RunLocation(name="x", fresh=True), RunLocation(directory=Path("outputs/x"), fresh=True)]
)
def test_fresh_starts_beside_the_folder_and_the_same_command_then_means_the_newest(start: RunLocation) -> None:
    with open_run(RunLocation(name="x"), TINY):
        pass
    with open_run(start, TINY) as second:
        assert (second.name, second.status) == ("x.2", "new")
    with open_run(replace(start, fresh=False), TINY) as again:
        assert (again.name, again.status) == ("x.2", "continued")


def test_a_fresh_start_of_another_recipe_is_found_by_that_recipe_alone() -> None:
    other = replace(TINY, hashes={"train": "bb"})
    for place, identity, name in [
        (RunLocation(name="v1"), TINY, "v1"),
        (RunLocation(name="v1", fresh=True), other, "v1.2"),
        (RunLocation(name="v1"), TINY, "v1"),
        (RunLocation(name="v1"), other, "v1.2"),
        (RunLocation(name="v1", fresh=True), TINY, "v1.3"),
    ]:
        with open_run(place, identity) as run:
            assert run.name == name


def test_a_second_writer_is_told_who_holds_the_folder() -> None:
    with open_run(RunLocation(), TINY) as run:
        with pytest.raises(RunFault, match=f"is in use by process {os.getpid()} on "):
            open_run(RunLocation(), TINY)
        assert finding.state_of(run.folder, run.manifest) == "running"
    assert finding.state_of(run.folder, manifest.read(run.folder)) == "killed"
    with open_run(RunLocation(), TINY) as again:
        assert again.status == "continued"


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        *((Diverged("loss is not finite"), "diverged", 7), (OSError(28, "full"), "failed", 6)),
        *((KeyError("x"), "failed", 1), (GeneratorExit(), "failed", 1), (KeyboardInterrupt(), "stopped", 130)),
    ],
)
def test_an_error_is_written_into_run_json(error: BaseException, state: str, code: int) -> None:
    with pytest.raises(type(error)), open_run(RunLocation(), TINY) as run:
        raise error
    fields = json.loads((run.folder / "run.json").read_text())
    assert (fields["format"], fields["state"], fields["exit_code"]) == (1, state, code)


def test_a_refused_start_leaves_no_folder_and_a_refusal_later_does() -> None:
    def refused(place: RunLocation, steps: int) -> Run:
        with suppress(DataFault), open_run(place, TINY) as run:
            train(run, 1, steps)
            raise DataFault("the text changed")
        return run

    Path("stood").mkdir()
    assert not refused(RunLocation(name="x"), 0).folder.exists()
    assert os.listdir(refused(RunLocation(directory=Path("stood")), 0).folder) == []
    assert manifest.read(refused(RunLocation(name="x"), 5).folder).state == "failed"


def test_model_safetensors_is_the_best_by_validation_loss_and_load_finds_each_step() -> None:
    with open_run(RunLocation(), TINY) as run:
        train(run, 1, 40)  # scores 15 5 5 15
        run.rotate(keep_last=1, keep_best=1)
        run.publish()
        assert run.manifest.best == {"step": 20, "loss": 5.0}
    for which, step in [(None, 20), ("best", 20), ("last", 40), (40, 40), ("40", 40)]:
        assert load_model(run.folder, which)["w"][0, 0] == step
    with pytest.raises(RunFault, match="has no checkpoint of step 10; it has 20, 40"):
        load_model(run.folder, 10)
    with pytest.raises(UsageFault, match="no such checkpoint: 'worst'; use a step number, `last` or `best`"):
        load_model(run.folder, "worst")


def test_a_worse_checkpoint_is_not_published_over_a_better_one() -> None:
    with open_run(RunLocation(), TINY) as run:
        train(run, 1, 20)
        run.publish()
        train(run, 21, 40)
        run.rotate(keep_last=1, keep_best=0)
        run.publish()
        assert run.manifest.model is not None
        assert run.manifest.model["step"] == 20
        run.publish("last")
    assert load_model(run.folder)["w"][0, 0] == 40


def scored(folder: str, scores: dict[int, float]) -> Path:
    """An interrupted run with a checkpoint for each score, the best of which is published."""
    with open_run(RunLocation(name=folder), TINY) as run:
        for step, score in scores.items():
            run.save(step, tensors(step), {}, score)
        run.publish()
    return run.folder


def lost(folder: Path, step: int, how: str) -> None:
    checkpoint = folder / "checkpoints" / f"step-{step:08d}"
    if how == "gone":
        shutil.rmtree(checkpoint)
    else:
        (checkpoint / "model.safetensors").write_bytes(b"")


LOST = pytest.mark.parametrize("how", ["gone", "damaged"])


@LOST
def test_where_the_best_checkpoint_was_the_newest_and_is_lost_the_best_before_it_takes_its_place(how: str) -> None:
    """The run stands at an earlier step now, which has not seen the lost one."""
    folder = scored("x", {10: 3.0, 20: 2.0, 30: 2.5, 40: 1.0})
    lost(folder, 40, how)
    warned: list[str] = []
    with open_run(RunLocation(name="x"), TINY) as run:
        saved = run.resume(warned.append)
        assert saved is not None
        assert (saved.step, run.manifest.step) == (30, 30)
    kept = manifest.read(folder)
    assert kept.best == {"step": 20, "loss": 2.0}
    assert kept.model is not None
    assert kept.model["step"] == 20
    assert load_model(folder)["w"][0, 0] == load_model(folder, "best")["w"][0, 0] == 20
    assert [line.startswith("step-00000040 is damaged (") for line in warned] == [True] * (how == "damaged")


@LOST
def test_where_an_earlier_best_checkpoint_is_lost_its_published_model_stays_and_best_means_the_next(how: str) -> None:
    """run.json still tells the lowest loss that this run has had."""
    folder = scored("x", {10: 3.0, 20: 1.0, 30: 2.0, 40: 2.5})
    lost(folder, 20, how)
    if how == "damaged":
        with pytest.raises(RunFault, match=r"step-00000020 is damaged: model\.safetensors: 0 bytes, not "):
            load_model(folder, "best")
    with open_run(RunLocation(name="x"), TINY) as run:
        assert run.resume(lambda line: None) is not None
        assert run.manifest.best == {"step": 20, "loss": 1.0}
        run.save(50, tensors(50), {}, 1.5)
        run.publish()
        assert run.manifest.best == {"step": 20, "loss": 1.0}
    assert load_model(folder)["w"][0, 0] == 20
    assert load_model(folder, "best")["w"][0, 0] == 50


def test_a_checkpoint_that_was_saved_before_run_json_told_of_it_is_found_to_be_the_best() -> None:
    folder = scored("x", {10: 3.0, 20: 2.0})
    before = (folder / "run.json").read_bytes()
    with open_run(RunLocation(name="x"), TINY) as run:
        run.save(30, tensors(30), {}, 1.0)
    (folder / "run.json").write_bytes(before)  # killed in between
    with open_run(RunLocation(name="x"), TINY) as run:
        run.resume(fail_on_warning)
        assert run.manifest.best == {"step": 30, "loss": 1.0}
    assert load_model(folder)["w"][0, 0] == 30


def test_a_step_that_was_repeated_with_other_last_bits_and_published_before_run_json_told_of_it_is_sound() -> None:
    with open_run(RunLocation(name="x"), TINY) as run:
        run.save(10, tensors(1), {})
        run.publish("last")
    before = (run.folder / "run.json").read_bytes()
    shutil.rmtree(run.folder / "checkpoints" / "step-00000010")
    with open_run(RunLocation(name="x"), TINY) as run:
        run.save(10, tensors(2), {})
        run.publish("last")
    (run.folder / "run.json").write_bytes(before)  # killed in between
    assert load_model(run.folder)["w"][0, 0] == 2


def test_of_equal_losses_the_first_stays_the_best() -> None:
    folder = scored("x", {10: 2.0, 20: 2.0})
    kept = manifest.read(folder)
    assert kept.best == {"step": 10, "loss": 2.0}
    assert kept.model is not None
    assert kept.model["step"] == 10
    assert load_model(folder, "best")["w"][0, 0] == 10


def test_what_was_fitted_for_weights_is_kept_as_long_as_they_are_published() -> None:
    folder = scored("x", {10: 2.0})
    with open_run(RunLocation(name="x"), TINY) as run:
        run.update(model={**(run.manifest.model or {}), "decision": {"temperature": 2.0}})
        (folder / "model.safetensors").unlink()
        run.publish()
        assert run.manifest.model is not None
        assert run.manifest.model["decision"] == {"temperature": 2.0}
        run.save(20, tensors(20), {}, 1.0)
        run.publish()
        assert run.manifest.model.keys() == {"step", "score", "sha256"}


@pytest.mark.parametrize(
    ("best", "valid"),
    [
        ({"step": 0, "loss": 2.0}, True),
        *((best, False) for best in ({"step": -1, "loss": 2.0}, {"step": 1}, {"loss": 2.0, "f1": 0.5})),
        ({"step": 1, "loss": 2.0, "f1": 0.5}, False),
    ],
)
def test_the_best_checkpoint_has_a_step_and_one_metric(best: dict[str, float], valid: bool) -> None:
    Path("run.json").write_text(json.dumps({"format": 1, "best": best}))
    with nullcontext() if valid else pytest.raises(RunFault, match=r"run.json is damaged: best"):
        assert manifest.read(Path()).best == best


def test_the_model_of_a_cross_validation_is_that_of_one_of_its_folds() -> None:
    for model_run, folder in (("fold-2", "fold-2"), ("seed-2", "."), (None, ".")):
        Path("run.json").write_text(json.dumps({"format": 1, "model_run": model_run}))
        assert finding.model_folder(Path()) == Path(folder)


def test_what_auto_found_is_kept_from_the_first_start() -> None:
    with open_run(RunLocation(), TINY) as run:
        assert run.record_auto({"threads": 2}) == {"threads": 2}
    with open_run(RunLocation(), TINY) as run:
        assert run.record_auto({"threads": 64}) == {"threads": 2}


def test_a_continuation_elsewhere_warns_or_is_refused_where_it_must_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    found, warned = {"device": "cpu", "threads": 2}, []
    with open_run(RunLocation(), TINY) as run:
        run.record_auto(found)
        check_exact(run, found, True, fail_on_warning)  # a new run has nothing to keep to
        train(run, 1, 10)
    with open_run(RunLocation(), TINY) as run:
        check_exact(run, found, True, fail_on_warning)
        assert environment_changes(run, {"device": "cuda:0", "threads": 2}) == ['device: "cpu" -> "cuda:0"']
        monkeypatch.setattr(location, "versions", lambda: {**run.manifest.versions, "torch": "9.9"})
        check_exact(run, found, False, warned.append)
        [line] = warned
        assert line == f'continuing, but not bit-exact: torch: "{torch.__version__}" -> "9.9"'
        with pytest.raises(RunFault, match="cannot be continued bit-exact: torch") as refused:
            check_exact(run, found, True, fail_on_warning)
        assert "checkpoint.resume=auto" in str(refused.value.hint)


def test_every_checkpoint_says_what_decided_its_last_bits() -> None:
    identity = replace(TINY, decides={"optimizer.kind": "adamw"})
    with open_run(RunLocation(), identity) as run:
        run.record_auto({"threads": 2})
        check_exact(run, {"threads": 2}, True, fail_on_warning)
        train(run, 1, 10)
    kept = json.loads((run.checkpoints.path(10) / "MANIFEST.json").read_text())["fingerprint"]
    assert (kept["threads"], kept["torch"], kept["optimizer"]) == (2, torch.__version__, "adamw 1")
    assert re.fullmatch(r".+ [0-9a-f]{8}", kept["processor"])
    with open_run(RunLocation(), identity) as run:
        assert environment_changes(run, {"threads": 3}) == ["threads: 2 -> 3"]
        check_exact(run, {"threads": 3}, False, lambda line: None)
        train(run, 11, 20)
        assert environment_changes(run, {"threads": 3}) == []  # it continues from a checkpoint of three threads now


def test_a_finished_run_is_extended_once_a_command_and_an_interrupted_extension_goes_on() -> None:
    with open_run(RunLocation(), TINY) as run:
        with pytest.raises(RunFault, match="is not finished"):
            run.extend(50)
        run.finish("done")
    with open_run(RunLocation(), TINY) as run:
        run.extend(50)
        start_run(run, TINY)
    with open_run(RunLocation(), TINY) as run:
        assert run.status == "continued"
        run.extend(50)
        assert run.manifest.extensions == [(0, 50)]
        with pytest.raises(RunFault, match="is already being extended by 50 steps, not 60"):
            run.extend(60)
        run.finish("done")
    with open_run(RunLocation(), TINY) as run:
        run.extend(30)
        start_run(run, TINY)
        assert run.manifest.extensions == [(0, 50), (0, 30)]


def test_metrics_keep_full_precision_and_say_what_was_not_finite() -> None:
    with open_run(RunLocation(), TINY) as run:
        run.record({"step": 1, "loss": 0.1 + 0.2})
        run.record({"step": 2, "loss": float("nan"), "val.loss": float("inf")})
        lines = list(read_lines(run.folder / "metrics.jsonl"))
    assert lines == [
        {"step": 1, "loss": 0.1 + 0.2},
        {"step": 2, "loss": None, "val.loss": None, "not_finite": {"loss": "nan", "val.loss": "inf"}},
    ]
    assert curve(run.folder / "metrics.jsonl", "loss") == [(1, 0.1 + 0.2)]


def test_a_curve_has_the_reports_in_which_step_and_value_are_finite_numbers(tmp_path: Path) -> None:
    values = ("2.5", "1e301", "1" + "0" * 400, "null", '"1"', "-1", "1e999", "-1e999", "NaN")
    (tmp_path / "m.jsonl").write_text(
        "".join(f'{{"step": {n}, "loss": {value}}}\n' for n, value in enumerate(values)) + '{"step": "9", "loss": 1}\n'
    )
    assert curve(tmp_path / "m.jsonl", "loss") == [(0, 2.5), (5, -1.0)]
    assert curve(tmp_path / "none.jsonl", "loss") == []


def test_lines_that_were_lost_since_the_checkpoint_are_named() -> None:
    with open_run(RunLocation(), TINY) as run:
        train(run, 1, 10)
    os.truncate(run.folder / "metrics.jsonl", 5)
    warnings: list[str] = []
    with open_run(RunLocation(), TINY) as run:
        run.resume(warnings.append)
    assert warnings == ["metrics.jsonl is shorter than it was at the checkpoint; earlier lines are lost"]


def test_names_of_metrics_stand_in_the_file_as_they_are_written() -> None:
    """So that the name of a class is found there by whoever searches for it."""
    with open_run(RunLocation(), TINY) as run:
        run.record({"step": 1, "val.f1.süß": 0.5})
        assert '"val.f1.süß"' in (run.folder / "metrics.jsonl").read_text(encoding="utf-8")


def test_the_last_sample_is_that_of_the_latest_step() -> None:
    with open_run(RunLocation(), TINY) as run:
        assert run.last_sample() == ""
        (run.folder / "samples").mkdir(exist_ok=True)
        for step in (9, 100, 20):
            (run.folder / "samples" / f"step-{step:08d}.txt").write_text(f"of {step}")
        assert run.last_sample() == "of 100"


def test_a_model_that_its_run_did_not_publish_is_not_taken_over() -> None:
    with open_run(RunLocation(name="other"), TINY) as other:
        train(other, 1, 10)
        other.publish()
    (other.folder / "model.safetensors").write_bytes(b"")
    with (
        open_run(RunLocation(name="x"), TINY) as run,
        pytest.raises(RunFault, match=r"other/model\.safetensors is missing or damaged"),
    ):
        copy_model(run, other.folder)


def test_two_counts_together_always_fit_into_64_bits() -> None:
    largest = (2**63 - 1) // 2
    assert invalid_counters({"tokens": largest}) == []
    assert invalid_counters({"tokens": largest + 1}) == ["tokens"]


def test_a_run_is_found_by_path_by_name_and_as_the_last() -> None:
    for at, name in enumerate(["first", "second", "third"]):
        with open_run(RunLocation(name=name), TINY) as run:
            pass
        os.utime(run.folder / "run.json", ns=(0, 10**9 * (5 if name == "second" else at)))
    assert finding.find("first") == finding.find("outputs/first") == Path("outputs/first").absolute()
    assert finding.find("last").name == "second"
    Path("first").mkdir()
    assert finding.find("first") == Path("outputs/first").absolute()
    Path("fourth").mkdir()
    with pytest.raises(RunFault, match="fourth is not a run folder"):
        finding.find("fourth")
    with pytest.raises(RunFault, match="no such run: secnod") as caught:
        finding.find("secnod")
    assert caught.value.hint == "did you mean second?"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_folder_that_is_removed_while_training_does_not_come_back(replaced: bool) -> None:
    run = open_run(RunLocation(name="x"), TINY)
    train(run, 1, 10)
    shutil.rmtree(run.folder)
    if replaced:
        run.folder.mkdir()
    sample, step = partial(run.write_sample, 10, "text"), partial(train, run, 11, 11)
    for action in (sample, step, partial(run.save, 20, tensors(20), {}), partial(run.update, step=1)):
        with pytest.raises(StorageFault, match="the run folder was removed or replaced"):
            action()
    with suppress(DataFault), run:
        raise DataFault("an error is written nowhere")
    assert sorted(Path("outputs").rglob("*")) == ([Path("outputs/x")] if replaced else [])


def test_what_a_bug_leaves_is_named_by_time_and_process() -> None:
    with open_run(RunLocation(), TINY) as run:
        assert re.fullmatch(rf"crash-\d{{8}}-\d{{6}}-{os.getpid()}\.txt", run.crash("Traceback").name)


def test_files_have_no_special_rights() -> None:
    with open_run(RunLocation(), TINY) as run:
        train(run, 1, 10)
        run.publish()
        run.write_sample(10, "text\ud800")
        run.log("a line")
        run.write("config.json", "{}")
    masked = os.umask(0)
    os.umask(masked)
    modes: dict[str, Any] = {str(path): path.stat().st_mode & 0o777 for path in run.folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o644 & ~masked}


def test_the_loss_is_drawn_with_the_same_bytes_each_time() -> None:
    with open_run(RunLocation(name="5 $ and $ {x"), TINY) as run:
        for step in range(1, 30):
            run.record({"step": step, "loss": 3 / step} | ({"val.loss": 4 / step} if step % 10 == 0 else {}))
        run.plot_losses()
        first = (run.folder / "loss.svg").read_bytes()
        run.plot_losses()
    assert first.startswith(b"<svg ")
    assert (run.folder / "loss.svg").read_bytes() == first


def test_no_file_of_json_has_a_number_that_other_readers_refuse() -> None:
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            show_json({"loss": number})
