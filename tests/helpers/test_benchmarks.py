"""The benchmark suite: equal work is proved and not assumed, measurements are kept, and what is missing is said."""

import copy
import io
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import generation, loops, nproc, pretraining, summarisation, table, weights
from benchmarks.contest import ROOT, Contest, Side
from benchmarks.measuring import Record, key_of, measure
from benchmarks.own import first_batch, recipe_of, training_of
from benchmarks.plain import plain
from benchmarks.shapes import SHAPES
from benchmarks.step import in_process
from benchmarks.summary import FLOORS, Row, faults, rows
from commands import EXACT
from commands import minitf as run_minitf
from rich.console import Console

from mini_tf.training.loop import train

BOTH = ["tiny", "tiny-encoder"]


@pytest.mark.parametrize("name", BOTH)
def test_minitf_and_the_plain_loop_have_the_same_losses_from_the_same_weights(name: str) -> None:
    shape = SHAPES[name]
    reference, batch = plain(shape), first_batch(shape)
    expected = loops.expected_losses(shape, reference, batch)
    assert len(expected) == (1 if shape.masked else 3)
    assert list(islice(loops.minitf(shape, reference), len(expected))) == pytest.approx(expected, abs=1e-5)
    assert in_process("minitf", name, Path(), 0.0)["seconds"] > 0


@pytest.mark.parametrize("name", BOTH)
def test_the_check_of_equal_work_fails_where_any_one_weight_is_another(name: str) -> None:
    shape = SHAPES[name]
    reference, batch = plain(shape), first_batch(shape)
    expected = loops.expected_losses(shape, reference, batch)
    names = [parameter for parameter, _ in reference.named_parameters()]
    assert len(names) == (34 if shape.masked else 15)
    for changed in names:
        other = copy.deepcopy(reference)
        with torch.no_grad():
            other.get_parameter(changed).mul_(3.0)
        with pytest.raises(weights.UnequalWork, match="step 1"):
            weights.check_equal([next(loops.minitf(shape, other))], expected, changed)


@pytest.mark.parametrize("other", ["optimizer.lr=2e-3", "optimizer.betas=[0.5,0.95]"])
def test_the_check_of_equal_work_fails_where_the_optimizer_is_another(other: str) -> None:
    """The first loss cannot tell; the ones after it can."""
    shape = SHAPES["tiny"]
    reference, batch = plain(shape), first_batch(shape)
    model, training = training_of(recipe_of(shape, other), shape)
    weights.copy(reference, model, weights.MINITF_GPT)
    losses = [report.loss for report in islice(train(training), 3)]
    with pytest.raises(weights.UnequalWork, match=r"step [23]"):
        weights.check_equal(losses, loops.expected_losses(shape, reference, batch), other)


def test_a_loss_that_is_no_number_is_not_equal() -> None:
    with pytest.raises(weights.UnequalWork):
        weights.check_equal([float("nan")], [1.0], "nobody")


def test_minitf_writes_the_plain_models_tokens_alone_and_in_batches() -> None:
    for rows_ in ("1", "3"):
        assert generation.measure("minitf", "tiny", rows_, n_tokens=20, seconds=0.0)["value"] > 0


def test_generation_fails_where_other_tokens_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "minitf", lambda *_, **__: lambda m: [[7] * m])
    with pytest.raises(weights.UnequalWork, match="from token"):
        generation.measure("minitf", "tiny", "1", n_tokens=20, seconds=0.0)


def test_the_work_of_a_step_is_what_torch_counts() -> None:
    """On the plain model; of an encoder's tokens 15 % are judged, on average."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    for name, close in (("tiny", 1e-6), ("tiny-encoder", 0.05)):
        shape = SHAPES[name]
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
            plain(shape)(*first_batch(shape)).backward()
        assert shape.flops == pytest.approx(counted.get_total_flops(), rel=close)


COUNT = "import sys; open(sys.argv[1], 'a').write('x'); print('talk'); print('{\"value\": ' + sys.argv[2] + '}')"


def counting(name: str, file: Path, value: str = "1.5", **more: Any) -> Side:
    """A side that leaves an x in a file whenever it is measured."""
    return Side(name, [sys.executable, "-c", COUNT, str(file), value], **more)


def test_measurements_are_in_the_file_at_once_and_are_not_repeated(tmp_path: Path) -> None:
    file, told = tmp_path / "result.json", list[str]()
    contest = Contest("c", "u", [counting("a", tmp_path / "a", own=True), counting("b", tmp_path / "b")])
    measure(contest, 1, Record(file), 1, told.append)
    measure(contest, 3, Record(file), 1, told.append)
    measure(contest, 3, Record(file), 1, told.append)
    assert [(tmp_path / name).read_text() for name in "ab"] == ["xxx", "xxx"]
    assert [line.split(": ")[1][0] for line in told] == ["a", "b", "b", "a", "a", "b"]  # the sides take turns, in turns
    assert [found["value"] for found in json.loads(file.read_text())["measurements"].values()] == [1.5] * 6


def test_a_side_that_fails_is_told_not_kept_and_tried_again(tmp_path: Path) -> None:
    side = Side("a", [sys.executable, "-c", "raise SystemExit('no such luck')"], own=True)
    contest, record = Contest("c", "u", [side]), Record(tmp_path / "result.json")
    measure(contest, 1, record, 1, lambda line: None)
    assert record.measurements == {}
    [row] = rows(contest, record, 1, None)
    assert row.absent == "FAILED: exit code 1: no such luck"


def printed(contest: Contest, found: list[Row]) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=200)
    table.show(console, contest, found)
    table.show_unmeasured(console, [(contest, found)], ["on a GPU: there is none here"])
    return stream.getvalue()


def test_the_table_says_what_was_not_measured_and_why(tmp_path: Path) -> None:
    sides = [
        counting("ours", tmp_path / "a", own=True),
        counting("theirs", tmp_path / "b", missing="litgpt not installed"),
    ]
    contest, record = Contest("step [x]", "tokens/s", sides), Record(None)
    measure(contest, 1, record, 1, lambda line: None)
    text = printed(contest, rows(contest, record, 1, None))
    assert not (tmp_path / "b").exists()
    for said in (
        "not measured: litgpt not installed",
        "NOT MEASURED",
        "step [x]: theirs",
        "on a GPU: there is none here",
    ):
        assert said in text


def kept(contest: Contest, **figures: list[dict[str, Any]]) -> list[Row]:
    """The rows of a contest whose sides measured this."""
    record = Record(None)
    for side in contest.sides:
        for run, one in enumerate(figures[side.name]):
            record.measurements[f"{side.command[0]}  # run {run}"] = one
    return rows(contest, record, 3, 100.0)


OURS, THEIRS = Side("ours", ["ours"], own=True), Side("theirs", ["theirs"])


def test_ratios_are_of_neighbours_and_their_median_counts() -> None:
    """The machine slows down threefold meanwhile; a ratio of medians over unequal runs would not see 2."""
    ours, theirs = kept(
        Contest("c", "tokens/s", [OURS, THEIRS]),
        ours=[{"value": v, "flops": 50.0} for v in (60.0, 40.0, 20.0)],
        theirs=[{"value": v} for v in (30.0, 20.0)],
    )
    assert (ours.median, ours.spread, ours.mfu, ours.ratio) == (40.0, 1.0, 0.5, None)
    assert theirs.ratio == 2.0


def test_where_less_is_better_ratios_turn_round() -> None:
    _, theirs = kept(Contest("c", "s", [OURS, THEIRS], more=False), ours=[{"value": 2.0}], theirs=[{"value": 6.0}])
    assert theirs.ratio == 3.0


def test_a_time_does_not_count_before_the_loss_is_reached() -> None:
    """The first own side that reaches it is the one that is compared, with a peer whatever that one's loss."""
    later = Side("later", ["later"], own=True)
    contest = Contest("c", "s", [OURS, later, THEIRS], more=False, reach=1.9)
    figures = {"ours": (1.0, 1.95), "later": (3.0, 1.85), "theirs": (12.0, 1.91)}
    found = kept(contest, **{name: [{"value": time, "loss": loss}] for name, (time, loss) in figures.items()})
    assert [row.counts for row in found] == [False, True, True]
    assert found[2].ratio == 4.0


def test_the_guard_tells_a_ratio_under_its_floor_and_one_that_is_missing() -> None:
    contest = Contest("step 4x128", "tokens/s", [OURS, Side("plain torch", ["plain"])])
    for value, n_faults in ((1.0, 0), (0.95, 0), (0.85, 1)):
        found = kept(contest, **{"ours": [{"value": value}], "plain torch": [{"value": 1.0}]})
        assert len(list(faults([(contest, found)]))) == n_faults
    [fault] = faults([(contest, rows(contest, Record(None), 1, None))])
    assert "no ratio to plain torch" in fault


def test_floors_are_of_sides_that_the_small_form_has() -> None:
    small = command.options_of(command.parse([]))
    there = {
        (contest.name, side.name) for contest in command.contests_of(command.SMALL, small) for side in contest.sides
    }
    assert there >= FLOORS.keys()


def test_without_peers_every_one_of_them_is_named_with_the_reason() -> None:
    """Whatever is asked for, a checkout of nanoGPT is not found by itself."""
    full = command.options_of(command.parse(["--full"]))
    sides = [side for contest in command.contests_of(command.BENCHMARKS, full) for side in contest.sides]
    nanogpt = [side for side in sides if side.name.startswith("nanoGPT")]
    assert len(nanogpt) > 8
    assert {side.missing for side in nanogpt} == {"no checkout given (--nanogpt FOLDER)"}


def test_what_measures_memory_is_small_itself() -> None:
    """A process's peak is counted from its parent's size on."""
    code = (
        "import sys, tests.benchmarks.__main__, tests.benchmarks.memory; print({'torch', 'numpy', 'mini_tf'} &"
        " set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == "set()\n"


def test_a_benchmark_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["steps"])
    assert "no benchmark 'steps'; there is step, masked" in capsys.readouterr().err


def test_the_cost_to_reach_a_value_is_interpolated_over_the_logarithm_of_the_cost() -> None:
    curve = [(10.0, 0.5), (1000.0, 0.7), (4000.0, 0.6), (8000.0, 0.9)]
    assert pretraining.cost_to_reach(0.4, curve) == 10.0  # the first point is not undercut
    assert pretraining.cost_to_reach(0.6, curve) == pytest.approx(100.0)
    assert pretraining.cost_to_reach(0.75, curve) == pytest.approx(4000.0 * 2**0.5)
    assert pretraining.factor(curve, [(cost / 4, value) for cost, value in curve]) == "4.00 (at 0.9000)"


def test_summaries_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One side, a step long; the same command measures what is missing."""
    given = list[str]()

    def minitf(*words: str) -> dict[str, Any]:
        given.append(words[0])
        done = run_minitf(*words, "-q", "--json")
        assert done.exit_code == 0, done.stderr
        metrics: dict[str, Any] = json.loads(done.stdout)["metrics"]
        return metrics

    tiny = (
        *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "tokenizer.vocab_size=300"),
        *("generate.max_new_tokens=3", *EXACT),
    )
    monkeypatch.setattr(summarisation, "minitf", minitf)
    monkeypatch.setattr(summarisation, "JUDGED", 3)
    monkeypatch.setattr(summarisation, "COMMON", (*summarisation.COMMON, *tiny))
    monkeypatch.setattr(summarisation, "SIDES", {"renormalized": summarisation.SIDES["renormalized"]})
    monkeypatch.setattr(
        sys, "argv", ["summarisation", str(tmp_path), "--seeds", "1", "--steps", "1", "--documents", "30"]
    )
    for _ in range(2):
        summarisation.main()
        assert given == ["pretrain", "evaluate", "inspect"]
    [(name, figures)] = json.loads((tmp_path / "summarisation.json").read_text()).items()
    assert name == "renormalized 30 1 0"
    assert {"loss", "facts.recall", "repetition.4"} <= set(figures)


def test_summaries_are_compared_seed_by_seed() -> None:
    sides = {
        "plain": [{"x": 1.0, "y": None}, {"x": 3.0, "y": 1.0}],
        "other": [{"x": 2.0, "y": 1.0}, {"x": 4.0, "y": 3.0}],
    }
    lines = [line.split() for line in summarisation.table(sides).splitlines()]
    assert lines[4:] == [
        ["x", "3.0000", "+-", "12.7062", "minus", "plain", "1.0000", "+-", "0.0000"],
        ["y", "2.0000", "+-", "12.7062", "minus", "plain", "2.0000"],
    ]


def test_every_number_of_processes_is_measured_with_every_sharding_on_the_same_threads() -> None:
    sides = [*nproc.sides_of([1, 4], ["none", "full"], "a", ["b=1"]), *nproc.sides_of([2], [], "a", [])]
    assert [side.name for side in sides] == ["1 none", "1 full", "4 none", "4 full", "2"]
    assert sides[3].command[-3:] == ["runtime.threads=1", "runtime.shard=full", "b=1"]
    assert sides[0].command[-3:-1] == ["runtime.threads=4", "runtime.shard=none"]


def test_throughput_of_processes_is_of_the_steps_after_the_warm_up(tmp_path: Path) -> None:
    """Of a run whose first steps are slow, and whose ratios differ from the ratio of the medians."""
    for name, lines in (
        ("metrics.jsonl", [{"step": n, "tokens": 100 * n, "loss": 9.0 - n} for n in range(1, 9)]),
        ("timing.jsonl", [{"step": n, "seconds": 50 + n / 2 if n > 3 else 15 * n} for n in range(1, 9)]),
    ):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert nproc.figures(tmp_path) == {"value": 200.0, "seconds": 2.0, "loss": 1.0}
    record, sides = Record(None), [Side(n, ["measure", n, "{run}"]) for n in ("1", "2")]
    for run, values in enumerate([(100, 150), (200, 340), (400, 720)]):
        for side, value in zip(sides, values, strict=True):
            record.add(key_of(side, run), {"value": value})
    _, one, two = nproc.table(sides, record, 4)
    assert one.split() == ["1", "200", "1.00", "(1.00", "to", "1.00)", "3"]
    assert two.split() == ["2", "340", "1.70", "(1.50", "to", "1.80)", "3"]
