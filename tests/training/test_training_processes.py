"""Training and evaluation by several processes, as threads of this one, give what one process gives."""

import math
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_evaluate import PACKING, Asked
from test_evaluate import Guess as Judge
from test_training_loop import CONTEXT, Guess, training_of, weights_of
from threads import in_threads
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.data.packing import Shape
from mini_tf.data.windows import Windows
from mini_tf.jobs.session import Session
from mini_tf.nn.state import State
from mini_tf.objectives import LossSums
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.reduction import REDUCTIONS
from mini_tf.parallel.sharding import Sharding
from mini_tf.run.following import Follower, follow
from mini_tf.run.manifest import Manifest
from mini_tf.system.errors import RunFault
from mini_tf.training.divergence import Tolerance, gradient_problem
from mini_tf.training.evaluation import evaluate
from mini_tf.training.loop import DivergedStep, Report, train
from mini_tf.training.machine.device import Setup
from mini_tf.training.schedule import Horizon
from mini_tf.training.signals import StopRequest
from mini_tf.training.training import Training

FACTS = {"metrics": {"val.loss": 1.5}, "hashes": {"data": "x"}, "extensions": [[4, 2]]}
MANIFEST = {"state": "running", "seed": 3, **FACTS}
TASKS = [Guess() for _ in range(4)]
"""One for each thread, since torch's generator of random numbers is shared."""


def together(group: ProcessGroup, task: nn.Module, kind: str, micro: int) -> Training:
    training = training_of(task, micro=micro, clip=0.5)
    reduction = REDUCTIONS[kind]([p.tensor for p in training.optimizer.parameters.values()], group)
    return replace(training, reduction=reduction, feed=replace(training.feed, assigned=reduction.assigned))


def facts(report: Report) -> list[Any]:
    """All but the seconds."""
    sums = [report.step, report.tokens, report.loss, report.losses, report.metrics]
    return [*sums, report.lr, report.grad_norm, report.skips]


def trained(size: int, kind: str, micro: int) -> list[tuple[list[Any], list[Tensor]]]:
    tasks = [Guess() for _ in range(size)]

    def work(group: ProcessGroup) -> tuple[list[Any], list[Tensor]]:
        task = tasks[group.rank]
        return [facts(report) for report in train(together(group, task, kind, micro))], weights_of(task)

    return in_threads(size, work)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_a_tree_trains_to_the_bits_of_one_process(size: int, micro: int) -> None:
    """Micro-batches of 4 of 8 rows are fewer than four processes."""
    [(reports, weights)] = trained(1, "tree", micro)
    for found, own in trained(size, "tree", micro):
        assert found == reports
        assert all(map(torch.equal, own, weights))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("micro", [1, 4])
def test_a_sum_trains_as_one_process_and_all_have_the_same_bits(size: int, micro: int) -> None:
    [(reports, weights)] = trained(1, "sum", micro)
    several = trained(size, "sum", micro)
    for found, own in several:
        assert found == several[0][0]
        assert all(map(torch.equal, own, several[0][1]))
        for a, b in zip(own, weights, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        for line, expected in zip(found, reports, strict=True):
            assert line[2] == pytest.approx(expected[2], rel=1e-5)
            assert line[6] == pytest.approx(expected[6], rel=1e-4)
            assert (line[0], line[1], line[4]) == (expected[0], expected[1], expected[4])


def test_the_clock_of_rank_0_ends_training_for_all() -> None:
    """Others may be far ahead or behind; rank 0 looks at its clock twice a step, of which each takes a second."""

    def work(group: ProcessGroup) -> list[float]:
        training = together(group, TASKS[group.rank], "sum", 2)
        training = replace(training, schedule=replace(training.schedule, horizon=Horizon(seconds=4.5)))
        time = [0.0]

        def clock() -> float:
            time[0] += 0.5 if group.is_rank_0 else (0.01, 100.0)[group.rank - 1]
            return time[0]

        return [report.seconds for report in train(training, clock=clock)]

    assert in_threads(3, work) == [[1.0, 2.0, 3.0, 4.0]] * 3  # the fifth would begin at 4.5


@pytest.mark.parametrize("rank", range(3))
def test_a_loss_that_is_not_finite_on_one_process_ends_all(rank: int) -> None:
    messages, reports = list[str](), list[Any]()

    class Broken(Guess):
        def forward(self, batch: Batch, state: State | None = None) -> Any:
            sums = super().forward(batch, state)
            sums.parts["small"] = sums.parts["small"] * math.nan
            return sums

    tasks = [Broken() if other == rank else Guess() for other in range(3)]

    def work(group: ProcessGroup) -> None:
        with pytest.raises(DivergedStep) as fault:
            list(train(together(group, tasks[group.rank], "sum", 1)))
        messages.append(fault.value.message)
        reports.append(fault.value.report.step)

    in_threads(3, work)
    first = [*range(8)][8 * rank // 3]
    assert len({*messages}) == 1
    assert messages[0].startswith(
        f"step 1: the loss 'small' is nan, but must be finite (micro-batch {first + 1} of 8, rows "
    )
    assert reports == [1] * 3


def test_a_step_is_skipped_by_all_where_one_process_has_a_bad_loss() -> None:
    class Once(Guess):
        bad = True

        def forward(self, batch: Batch, state: State | None = None) -> Any:
            sums = super().forward(batch, state)
            sums.parts["small"], self.bad = sums.parts["small"] * (math.inf if self.bad else 1.0), False
            return sums

    tasks = [Guess(), Once()]

    def work(group: ProcessGroup) -> list[Any]:
        training = replace(together(group, tasks[group.rank], "sum", 1), tolerance=Tolerance(most_skips=1))
        return [[report.skips, report.skipped] for report in train(training)], weights_of(training.task)

    (first, weights), (other, others) = in_threads(2, work)
    assert first == other == [[1, True], *[[1, False]] * 5]
    assert all(map(torch.equal, weights, others))


def test_a_gradient_is_named_by_all_whoever_has_the_rows_that_are_not_finite() -> None:
    bad = torch.tensor([1.0, math.nan])
    gradients = [
        {"a": torch.zeros(2), "b": bad, "c": None, "d": torch.zeros(0)},
        {"a": bad, "b": torch.zeros(2), "c": None, "d": bad[:1]},
    ]
    problems = in_threads(2, lambda group: gradient_problem(gradients[group.rank], math.nan, group))
    assert [problem.parameters for problem in problems] == [("a", "b")] * 2
    assert {problem.message for problem in problems} == {"the gradient norm is nan (in a, b), but must be finite"}


class Shown(Judge):
    """With outputs, and a count of its calls."""

    n_calls = 0

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        self.n_calls += 1
        sums = super().forward(batch, state)
        return sums._replace(outputs=self.table[batch.inputs.ids.flatten()])


class Outputs:
    """What an accumulator gets, in order."""

    def __init__(self) -> None:
        self.rows = list[Any]()

    def add(self, batch: Batch, outputs: Tensor) -> None:
        self.rows.append([batch.inputs.ids.tolist(), outputs.tolist()])

    def scores(self) -> dict[str, float]:
        return {"rows": float(len(self.rows))}


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
@pytest.mark.parametrize("tokens", [None, 4 * CONTEXT])
def test_an_evaluation_that_is_divided_gives_the_bits_of_one_process(
    size: int, batch_size: int, tokens: int | None
) -> None:
    """Rank 0 has all outputs, and all call the model and what comes before a batch equally often."""
    alone = Outputs()
    task = Shown()
    whole = evaluate(task, Asked(), PACKING, Setup(), batch_size, tokens, accumulator=alone)

    def work(group: ProcessGroup) -> tuple[Any, ...]:
        outputs, own, calls = Outputs(), Shown(), list[int]()
        how = (Asked(), PACKING, Setup(), batch_size, tokens)
        found = evaluate(own, *how, lambda: calls.append(1), outputs, sharding=Sharding(group))
        plain = evaluate(Judge(), *how, sharding=Sharding(group))
        return found, outputs.rows, own.n_calls, len(calls), plain

    for rank, (found, rows, n_calls, n_before, plain) in enumerate(in_threads(size, work)):
        assert found == whole
        assert plain == {name: value for name, value in whole.items() if name != "rows"}
        assert rows == (alone.rows if rank == 0 else [])
        assert n_calls == n_before == math.ceil(task.n_calls / size)


def test_processes_may_agree_before_each_batch_of_an_evaluation() -> None:
    """As on a stop signal: none of them works by itself then."""

    def work(group: ProcessGroup) -> list[Any]:
        seen = list[Any]()
        agree = lambda: seen.append(group.all_gather(group.rank))  # noqa: E731
        evaluate(Judge(), Asked(), PACKING, Setup(), 2, None, agree, sharding=Sharding(group))
        return seen

    assert in_threads(2, work) == [[[0, 1]] * 3] * 2


def test_a_stream_is_evaluated_whole_by_each_process() -> None:
    """The state of a row is that of the row before."""

    class Streamed(Shown):
        def start(self, rows: int) -> State:
            return {"n": torch.zeros(rows)}

        def carry(self, state: State | None) -> State | None:
            return state

        def forward(self, batch: Batch, state: State | None = None) -> LossSums:
            assert state is not None
            return super().forward(batch, state)._replace(state=state)

    packing = Windows(PACKING.store, Shape(CONTEXT, 1, streams=2))

    def work(group: ProcessGroup) -> Any:
        task = Streamed()
        return evaluate(task, Asked(), packing, Setup(), 2, sharding=Sharding(group)), task.n_calls

    [alone] = in_threads(1, work)
    assert in_threads(2, work) == [alone] * 2


@pytest.mark.parametrize("size", [1, 3])
def test_a_run_is_opened_by_rank_0_and_followed_by_the_others(size: int, tmp_path: Path) -> None:
    run: Any = SimpleNamespace(folder=tmp_path, manifest=Manifest.model_validate(MANIFEST), status="continued")
    first, *others = in_threads(size, lambda group: follow(group, lambda: run))
    assert first is run
    for other in others:
        assert isinstance(other, Follower)
        assert (other.folder, other.manifest, other.status) == (tmp_path, run.manifest, "continued")
        other.start()
        other.write("a", "b")
        other.log("line")
        other.finish("done")
        other.close()
        other.update(state="stopped")
        assert other.manifest.state == "stopped"
    assert run.manifest.state == MANIFEST["state"]
    assert [*tmp_path.iterdir()] == []


def test_a_process_that_does_not_see_the_folder_of_a_run_says_so(tmp_path: Path) -> None:
    run: Any = SimpleNamespace(folder=tmp_path / "not-here", manifest=Manifest.model_validate(MANIFEST), status="new")

    def work(group: ProcessGroup) -> str:
        if group.is_rank_0:
            return "" if follow(group, lambda: run) is run else "another"
        with pytest.raises(RunFault) as fault:
            follow(group, lambda: run)
        return fault.value.message

    assert in_threads(2, work) == ["", f"rank 1 cannot see {tmp_path / 'not-here'}, which rank 0 has opened"]


def test_a_stop_signal_of_one_process_stops_all_with_its_exit_code() -> None:
    def work(group: ProcessGroup) -> list[Any]:
        stop, session = StopRequest(), SimpleNamespace(group=group)
        before = Session.agree(session, stop), stop.exit_code  # type: ignore[arg-type]
        if group.rank == 1:
            stop.request(signal.SIGHUP)
        return [before, Session.agree(session, stop), stop.exit_code]  # type: ignore[arg-type]

    assert in_threads(3, work) == [[(False, 0), True, 129]] * 3
