"""What a session records, keeps and measures on its way, held to formulas and to the files it leaves."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUIET, TINY, lines, minitf, record, trained

from mini_tf.drawing.terminal import sparkline
from mini_tf.jobs import assembling, session
from mini_tf.jobs.messages import StepLines
from mini_tf.objectives.next_token import PART, NextToken
from mini_tf.trained.evaluating import evaluate_trained, evaluation_data
from mini_tf.trained.opening import open_trained
from mini_tf.training.evaluation import evaluate
from mini_tf.training.loop import Progress, Report, train
from mini_tf.training.schedule import Horizon

WORSE = {3: 20.0, 6: 0.0, 9: 10.0, 10: 30.0}
"""What is added to the loss of each evaluation on the way, so that it does not depend on the model which is the best.
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints have a count of their own, and rotation keeps two and the best."""
    added = iter(WORSE.values())

    def made_worse(*given: Any, **more: Any) -> dict[str, float]:
        scores, tokens = evaluate(*given, **more), given[5]
        return scores if tokens is None else scores | {"loss": scores["loss"] + next(added)}

    due = ("train.steps=10", "eval.every_steps=3", "eval.tokens=96", "log.every_steps=1")
    kept = ("checkpoint.every_steps=4", "checkpoint.keep_last=2", "checkpoint.keep_best=1", "model.d_model=8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mini_tf.jobs.parts.evaluate", made_worse)
        return trained(tmp_path_factory.mktemp("session") / "run", *due, *kept)


def test_why_compilation_and_graphs_were_given_up_is_in_run_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = assembling.decide_setup

    def train_without_graphs(training: Any, start: Progress) -> Iterator[Report]:
        training.warn("CUDA graphs are off: no room")
        return train(training, start)

    monkeypatch.setattr(assembling, "decide_setup", lambda *given: decide(*given).decided("compile", True, "measured"))
    monkeypatch.setattr(assembling, "compile_failure", lambda *given: "no compiler")
    monkeypatch.setattr(session, "train", train_without_graphs)
    auto = record(trained(tmp_path / "run", "train.steps=1"))["auto"]
    assert auto["compile"] is False
    assert auto["fallbacks"] == {
        "compile": "torch.compile does not work here: no compiler",
        "graphs": "CUDA graphs are off: no room",
    }


def evaluated(run: Path) -> dict[int, dict[str, Any]]:
    return {line["step"]: line for line in lines(run) if "val.loss" in line}


def test_what_is_better_than_all_before_is_saved_though_no_checkpoint_is_due_and_so_is_the_end(run: Path) -> None:
    losses = {step: line["val.loss"] for step, line in evaluated(run).items()}
    assert [*losses] == [*WORSE]
    assert losses[9] > losses[6] < losses[3]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [f"step-{step:08d}" for step in (6, 8, 10)]
    manifests = [json.loads((path / "MANIFEST.json").read_text()) for path in (run / "checkpoints").iterdir()]
    assert {manifest["step"]: manifest["score"] for manifest in manifests} == {6: losses[6], 8: None, 10: losses[10]}
    assert record(run)["best"] == {"step": 6, "loss": losses[6]}
    assert record(run)["model"]["step"] == 6


def test_the_figures_of_a_run_are_those_of_the_model_that_it_publishes_over_the_whole_held_out_text(run: Path) -> None:
    found = record(run)["metrics"]
    for step in (None, "best"):
        model = open_trained(run, step, device="cpu")
        whole = evaluate_trained(model, evaluation_data(model, None, "val"))
        assert whole["targets"] > 96
        assert {name: found[f"val.{name}"] for name in whole if name != "targets"} == pytest.approx(
            {name: value for name, value in whole.items() if name != "targets"}, rel=1e-5
        )
    assert found["val.loss"] != evaluated(run)[6]["val.loss"]  # of a part


def test_the_training_loss_of_an_evaluation_is_the_mean_of_the_steps_since_the_one_before(run: Path) -> None:
    losses = {line["step"]: line["loss"] for line in lines(run)}
    for first, last in ((1, 3), (4, 6), (7, 9), (10, 10)):
        expected = np.mean([losses[step] for step in range(first, last + 1)])
        assert evaluated(run)[last]["train.loss"] == pytest.approx(expected)
    assert record(run)["metrics"]["train.loss"] == pytest.approx(losses[10])


def test_a_line_tells_how_many_epochs_and_tokens_were_read(run: Path) -> None:
    model = open_trained(run, device="cpu")
    store = evaluation_data(model, None, "train")
    windows = (len(store) - 1) // 48 - 1  # the last one is given up, so that epochs can begin elsewhere
    for line in lines(run):
        assert line["epoch"] == round(line["step"] * 8 / windows, 4)
        assert line["tokens"] == line["step"] * 8 * 48


def test_the_weights_that_an_objective_declares_count_in_training_and_in_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one step too small to change anything."""
    short = ("train.steps=1", "model.d_model=8", "log.every_steps=1", "optimizer.lr=1e-12")
    [single] = lines(trained(tmp_path / "single", *short))
    monkeypatch.setattr(NextToken, "weights", {PART: 2.0})
    [double] = lines(trained(tmp_path / "double", *short))
    for name in ("loss", "val.loss", "grad_norm"):
        assert double[name] == pytest.approx(2 * single[name])


def test_steps_are_recorded_at_every_line_of_the_log_and_as_often_as_asked(tmp_path: Path) -> None:
    """Of 62 steps every third has a line, and the first and the tenth."""
    small = ("model.d_model=8", "train.batch_size=2", "train.context=16", "data.split=2%", "eval.tokens=16")
    steps = [
        line["step"]
        for line in lines(
            trained(tmp_path / "run", *small, "train.steps=62", "log.every_steps=5", "eval.every_steps=62")
        )
    ]
    assert steps == sorted({1, *range(3, 63, 3), *range(5, 63, 5), 62})


def test_an_extension_is_evaluated_at_its_own_end(tmp_path: Path) -> None:
    due = ("model.d_model=8", "train.steps=2", "eval.every_steps=null", "checkpoint.every_steps=3")
    run = trained(tmp_path / "run", *due)
    assert minitf("pretrain", TINY, *QUIET, *due, "-d", run, "--extend", "5").exit_code == 0
    assert [*evaluated(run)] == [2, 7]


@pytest.mark.parametrize("killed_after", [3, 4], ids=["between-evaluations", "before-its-sample-was-written"])
def test_a_continued_run_leaves_the_samples_of_its_evaluations_and_no_others(killed_after: int, tmp_path: Path) -> None:
    due = ("train.steps=5", "eval.every_steps=4", "checkpoint.every_steps=3", "checkpoint.keep_last=9", "log.samples=1")
    run = trained(tmp_path / "run", *due, "model.d_model=8", "generate.max_new_tokens=3")
    written = {path.name: path.read_bytes() for path in (run / "samples").iterdir()}
    assert sorted(written) == ["step-00000004.txt", "step-00000005.txt"]
    shutil.rmtree(run / "samples")
    for step in range(killed_after + 1, 6):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
    (run / "run.json").write_text(json.dumps({**record(run), "state": "running"}))
    trained(run, *due, "model.d_model=8", "generate.max_new_tokens=3")
    assert {path.name: path.read_bytes() for path in (run / "samples").iterdir()} == written


@pytest.mark.parametrize(
    ("horizon", "step", "seconds", "told"),
    [
        (Horizon(steps=100), 14, 30.0, ""),  # ten steps are the fewest that tell anything
        (Horizon(steps=100), 15, 30.0, "ETA 2:50"),
        (Horizon(steps=100), 25, 30.0, "ETA 1:15"),
        (Horizon(steps=100), 99, 104.0, "ETA 0:01"),
        (Horizon(steps=100), 99, 103.0, ""),
        (Horizon(steps=100), 100, 30.0, ""),
        (Horizon(steps=2005), 25, 30.0, "ETA 33:00"),
        (Horizon(steps=8005), 25, 30.0, "ETA 2:13:00"),
        (Horizon(seconds=100.0), 25, 30.0, "ETA 1:10"),
    ],
)
def test_the_time_left_is_what_the_steps_of_this_process_extrapolate_to(
    horizon: Horizon, step: int, seconds: float, told: str
) -> None:
    """Begun at step 5, ten seconds after the run's own beginning."""
    lines = StepLines(Progress(step=5, seconds=10.0), horizon)
    *_, last = lines.line(
        Report(step=step, seconds=seconds, tokens=9, loss=1.0, losses={}, metrics={}, lr=0.1, grad_norm=1.0), ""
    ).split(" | ")
    assert (last if last.startswith("ETA") else "") == told


def test_the_last_step_is_saved_though_the_time_ran_out_while_it_was_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that evaluations alone move; a checkpoint is not due, and the first evaluation stays the best."""
    seconds, added = [0.0], iter((0.0, 10.0, 20.0, 0.0))

    def slow(*given: Any, **more: Any) -> dict[str, float]:
        seconds[0] += 4.0
        scores = evaluate(*given, **more)
        return scores | {"loss": scores["loss"] + next(added)}

    monkeypatch.setattr("mini_tf.jobs.parts.evaluate", slow)
    monkeypatch.setattr("mini_tf.jobs.session.train", lambda *given: train(*given, lambda: seconds[0]))
    due = ("train.steps=null", "train.time=10s", "eval.every_steps=2", "checkpoint.every_steps=100", "model.d_model=8")
    settled = ("runtime.precision=fp32", "runtime.compile=false", "train.micro_batch_size=8")
    run = trained(tmp_path / "run", *due, *settled)
    assert [*evaluated(run)] == [2, 4, 6]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000002", "step-00000006"]


def test_the_log_has_the_time_of_every_line_and_the_closing_lines_say_which_loss_is_which(tmp_path: Path) -> None:
    asked = ("train.steps=9", "eval.every_steps=3", "eval.tokens=96", "log.every_steps=1", "-d", tmp_path / "run")
    done = minitf("pretrain", TINY, *QUIET, *asked)
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \S", line) for line in log)
    said = done.stderr.splitlines()
    rest = iter(line.partition(" ")[2] for line in log)  # which has what only -v shows, too
    assert all(line in rest for line in said)
    [on_the_way] = [line for line in said if line.startswith("evaluation: ")]
    assert (
        on_the_way
        == "evaluation: every 3 steps, on a fixed sample of 144 of 1,763 validation tokens; at the end, on all of them"
    )
    final = record(tmp_path / "run")["metrics"]["val.loss"]
    [closing] = [line for line in said if line.startswith("done: ")]
    assert closing.startswith(f"done: val.loss {final:.4f}, ")
    assert "on all 1,763 validation tokens" in closing
    sampled = [line["val.loss"] for line in lines(tmp_path / "run") if "val.loss" in line]
    assert (
        f"last evaluation: validation loss {sampled[-1]:.2f}, mean training loss since the previous evaluation"
        in done.stderr
    )
    assert f"validation loss {sampled[0]:.2f} █" in done.stderr


def test_figures_of_pace_stand_in_every_line_of_a_step(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *QUIET, "train.steps=6", "-d", tmp_path / "run")
    steps = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert len(steps) == 6
    assert all(
        re.match(r"step \d+/6 \| loss \d+\.\d{4} (\| val[^|]+)*\| lr [\d.e-]+ \| [\d.e+]+k? tok/s", line)
        for line in steps
    )


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_extending_warns_where_the_rate_had_fallen(schedule: str, tmp_path: Path) -> None:
    run, asked = tmp_path / "run", ("train.steps=4", f"schedule={{kind: {schedule}, warmup: 0}}")
    trained(run, *asked)
    done = minitf("pretrain", TINY, *QUIET, *asked, "-d", run, "--extend", "2")
    assert done.exit_code == 0
    assert ("--extend restarts the schedule (cosine): the learning rate rises from" in done.stderr) is (
        schedule == "cosine"
    )


def test_a_curve_in_a_line_falls_from_the_highest_block_to_the_lowest() -> None:
    assert sparkline([4.0, 3.0, 2.0, 1.0]) == "█▆▃▁"
    assert sparkline([1.0] * 3) == "▁▁▁"
    assert sparkline([]) == ""
    assert sparkline([float(n) for n in range(1000)], width=8) == "▁▂▃▄▅▆▇█"
