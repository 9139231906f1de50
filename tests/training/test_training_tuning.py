"""What `auto` comes to by trying: decided by figures alone, within a small share of the run, without a trace, and
once.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUIET, TINY, minitf, tiny_model
from safetensors.torch import load_file
from torch import Tensor, nn
from toys import causal_mixers, mixer_settings

from mini_tf.jobs import assembling
from mini_tf.nn.mixer import AttentionDims, LayerSpec
from mini_tf.nn.state import State
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.system.errors import DataFault, StorageFault
from mini_tf.training.feed import Feed
from mini_tf.training.machine import hardware, tuning, tuning_cache
from mini_tf.training.machine.device import Setup, available_cores
from mini_tf.training.machine.hardware import contended
from mini_tf.training.machine.trial_passes import StepTimer
from mini_tf.training.machine.tuning import (
    BUSY,
    LONGEST,
    PROMISING,
    PROMISING_SHARE,
    ROUNDS,
    SHARE,
    SHORT,
    TOO_EXPENSIVE,
    TOO_SHORT,
    RunLength,
    choose,
    choose_compiling,
    tune,
)
from mini_tf.training.machine.tuning_cache import cached_tuning
from mini_tf.training.plan import RowPlan
from mini_tf.training.schedule import Horizon

ALL = frozenset({"precision", "threads", "micro_batch_size", "compile"})


@dataclass
class Machine:
    """A made-up one: seconds of a row as it starts, and by what each setting multiplies them. `tried`: all that was
    asked.
    """

    row: float
    bf16: float = 5.0
    threads: dict[int, float] = field(default_factory=lambda: {1: 1.8})
    passes: dict[int, float] = field(default_factory=dict)
    compiled: float = 0.8
    compiling: float = 30.0
    tried: list[tuple[Setup, int]] = field(default_factory=list)
    spent: float = 0.0

    def __call__(self, setup: Setup, rows: int, turn: int = 0) -> float:
        seconds = self.row * rows * (self.bf16 if setup.precision == "bf16" else 1.0)
        seconds *= self.threads.get(setup.threads, 1.0) * self.passes.get(setup.micro_batch_size, 1.0)
        if setup.compile:
            first = not any(earlier.compile for earlier, _ in self.tried)
            seconds = seconds * self.compiled + (self.compiling if first else 0.0)
        self.tried.append((setup, rows))
        self.spent += seconds
        return seconds


def setup(batch_size: int = 16, threads: int = 2, undecided: frozenset[str] = ALL) -> Setup:
    return Setup(threads=threads, micro_batch_size=batch_size, undecided=undecided)


def work(steps: int, batch_size: int = 16) -> RunLength:
    return RunLength(batch_size, Horizon(steps))


def test_fast_units_for_bf16_are_found_and_told_in_figures() -> None:
    found = tune(setup(), work(2000), Machine(1.502 / 16, bf16=574 / 1502))
    assert (found.precision, found.threads, found.micro_batch_size) == ("bf16", 2, 16)
    assert found.reasons["precision"] == "574 ms per step against 1,502 in fp32, measured"
    assert found.measured["precision"] == {"fp32": 1.502, "bf16": 0.574}
    assert found.undecided == set()
    assert found.record == {**found.settings, "measured": found.measured}


def test_a_machine_without_units_for_bf16_tries_no_step_in_it() -> None:
    machine = Machine(0.01, bf16=5.0)
    found = tune(setup(), work(20_000), machine, bf16_gain=lambda: 0.2)
    assert found.precision == "fp32"
    assert found.reasons["precision"] == "matrix products in bf16 are 5.0 times slower"
    assert not any(tried.precision == "bf16" for tried, _ in machine.tried)
    assert not found.provisional
    short = tune(setup(), work(100), Machine(0.01), lambda: True, bf16_gain=lambda: 0.2)
    assert (short.reasons["threads"], short.provisional) == (TOO_EXPENSIVE, False), "it need not be found out again"


def test_fast_products_in_slow_steps_are_tried_once_warm_and_no_further() -> None:
    machine = Machine(0.01, bf16=5.0)
    found = tune(setup(), work(20_000), machine)
    assert found.precision == "fp32"
    assert found.reasons["precision"] == "160 ms per step against 800 in bf16, measured"
    assert sum(tried.precision == "bf16" for tried, _ in machine.tried) == 2


def test_a_first_try_that_had_to_prepare_kernels_is_no_verdict() -> None:
    tries: list[float] = []

    def measure(setup: Setup, rows: int, turn: int) -> float:
        if setup.precision == "fp32":
            return 0.02 * rows
        tries.append((0.4 if not tries else 0.01) * rows)
        return tries[-1]

    assert tune(setup(), work(5000), measure).precision == "bf16"
    assert len(tries) > 4


@pytest.mark.parametrize("steps", [10, 155])
def test_a_run_under_five_seconds_tries_nothing_and_says_so(steps: int) -> None:
    machine = Machine(0.002, bf16=0.1, threads={1: 0.1})
    start = setup()
    found = tune(start, work(steps), machine)
    assert found.settings == start.settings
    assert found.reasons == dict.fromkeys(ALL, TOO_SHORT)
    assert found.measured == {}
    assert all(tried == start for tried, _ in machine.tried)
    assert machine.spent <= 0.02 * SHORT


def test_a_clock_that_runs_out_in_five_seconds_is_not_even_looked_at() -> None:
    """One of five seconds is."""
    machine = Machine(1.0)
    assert tune(setup(), RunLength(16, Horizon(seconds=4.9)), machine).reasons["precision"] == TOO_SHORT
    assert machine.tried == []
    tune(setup(), RunLength(16, Horizon(seconds=SHORT)), machine)
    assert machine.tried[0][1] == 1, "one row"


def test_a_first_row_that_took_long_is_looked_at_again_with_more_rows() -> None:
    rows: list[int] = []

    def measure(setup: Setup, n: int, turn: int) -> float:
        rows.append(n)
        return 0.03 if len(rows) == 1 else 0.0001 * n

    assert tune(setup(8), work(400, 8), measure).reasons["precision"] == TOO_SHORT
    assert rows == [1, 8, 8]


@pytest.mark.parametrize("row", [0.0005, 0.01, 0.3])
@pytest.mark.parametrize("steps", [50, 111, 403, 1000, 30_000])
@pytest.mark.parametrize(("bf16", "gain"), [(5.0, 0.2), (0.3, 1.4), (3.0, 1.4), (0.3, PROMISING), (3.0, PROMISING)])
@pytest.mark.parametrize("threads", [2, 64])
def test_all_tries_together_take_a_small_share_of_the_run(
    row: float, steps: int, bf16: float, threads: int, gain: float
) -> None:
    machine = Machine(row, bf16, threads={threads // 2: 1.5, 1: float(threads)}, passes={8: 1.4, 4: 1.4})
    tune(setup(threads=threads, undecided=ALL - {"compile"}), work(steps), machine, bf16_gain=lambda: gain)
    share = PROMISING_SHARE if gain == PROMISING else SHARE
    assert machine.spent <= max(min(LONGEST, share * row * 16 * steps), 3 * row)


def test_a_run_of_minutes_tries_bf16_on_few_rows_but_threads_and_passes_on_whole_ones_only() -> None:
    machine = Machine(1.5 / 16, bf16=0.4, threads={1: 0.5}, passes={8: 0.5})
    found = tune(setup(), RunLength(16, Horizon(seconds=100.0)), machine, bf16_gain=lambda: 1.4)
    assert found.precision == "bf16"
    assert (found.threads, found.micro_batch_size) == (2, 16)
    assert found.reasons["threads"] == found.reasons["micro_batch_size"] == TOO_EXPENSIVE
    assert not found.provisional
    assert found.reasons["precision"] == "600 ms per step against 1,500 in fp32, measured on 2 of 16 rows"
    assert {rows for tried, rows in machine.tried if tried.precision == "bf16"} == {2}
    long = Machine(1.5 / 16, bf16=0.4, threads={1: 0.5}, passes={8: 0.5})
    found = tune(setup(undecided=ALL - {"compile"}), work(20_000), long)
    assert (found.threads, found.micro_batch_size) == (1, 8)
    assert {rows for tried, rows in long.tried if tried.threads == 1 or tried.micro_batch_size < 16} == {16}


def test_a_run_of_seconds_tries_bf16_on_whole_batches_where_products_gain_enough() -> None:
    """Few rows would hide what it gains: their time is that of small operations."""

    def measure(setup: Setup, rows: int, turn: int) -> float:
        tried.append((setup.precision, rows))
        return 0.03 + rows * 0.001 if setup.precision == "bf16" else 0.02 + rows * 0.005

    for gain, expected in ((PROMISING, ("bf16", 16)), (PROMISING - 0.01, ("fp32", 2))):
        tried: list[tuple[str, int]] = []
        assert tune(setup(), work(118), measure, bf16_gain=lambda gain=gain: gain).precision == expected[0]
        assert {rows for precision, rows in tried if precision == "bf16"} == {expected[1]}


def test_other_programs_are_looked_for_only_where_something_is_to_be_compared() -> None:
    def look() -> bool:
        raise AssertionError("it takes a tenth of a second")

    assert tune(setup(), work(100), Machine(0.01), look, bf16_gain=lambda: 0.2).reasons["threads"] == TOO_EXPENSIVE


def test_threads_are_tried_in_the_small_share_whatever_bf16_was_worth() -> None:
    """A share of a tenth would suffice for them."""
    found = tune(setup(undecided=frozenset({"precision", "threads"})), work(400), Machine(0.01, bf16=1.0),
                 bf16_gain=lambda: PROMISING)  # fmt: skip
    assert found.reasons["threads"] == TOO_EXPENSIVE


def test_nothing_is_compiled_beside_other_programs() -> None:
    machine = Machine(0.01)
    found = tune(setup(undecided=frozenset({"compile"})), work(50_000), machine, lambda: True)
    assert (found.reasons["compile"], found.provisional) == (BUSY, True)
    assert not any(tried.compile for tried, _ in machine.tried)


@pytest.mark.parametrize(("speeds", "sizes"), [((3e11, 9e11), [128, 512]), ((3e11, 3e10), [128])])
def test_the_gain_of_bf16_is_a_ratio_of_speeds_in_turn(
    speeds: tuple[float, float], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small products suffice where they are much slower."""
    timed = []

    def best_of(n: int, device: torch.device, dtype: torch.dtype, seconds: float) -> float:
        timed.append((n, dtype))
        return speeds[dtype == torch.bfloat16] * (
            1 if len(timed) % 4 in (1, 2) else 0.5
        )  # the second pair is disturbed

    monkeypatch.setattr(hardware, "_best_of", best_of)
    assert hardware.bf16_gain() == pytest.approx(speeds[1] / speeds[0])
    assert timed == [(n, dtype) for n in sizes for _ in range(2) for dtype in (torch.float32, torch.bfloat16)]


def test_fewer_threads_are_at_worst_slower_by_as_much_as_they_are_fewer() -> None:
    assert tuning._others("threads", setup(threads=5)) == {2: 5 / 2, 1: 5.0}
    assert tuning._others("threads", setup(threads=7)) == {3: 7 / 3, 1: 7.0}


def test_one_thread_and_smaller_passes_are_taken_where_they_are_clearly_faster() -> None:
    found = tune(setup(), work(100_000), Machine(0.001, threads={1: 0.7}, passes={8: 0.97, 4: 0.8}))
    assert (found.threads, found.micro_batch_size) == (1, 4)
    assert found.reasons["threads"] == "11 ms per step against 16 with 2, measured"
    assert (
        found.reasons["micro_batch_size"]
        == "9 ms per step against 11 with micro-batches of 16, 11 with micro-batches of 8, measured"
    )


def test_what_is_only_a_little_faster_is_not_taken() -> None:
    unclear = "100 ms per step against 95 in bf16, measured, no clear gain"
    assert choose("precision", {"fp32": 0.1, "bf16": 0.095}) == ("fp32", unclear)
    assert choose("precision", {"fp32": 0.1, "bf16": 0.09})[0] == "bf16"
    several = "20 ms per step against 100 with 64, 50 with 32, measured"
    assert choose("threads", {64: 0.1, 32: 0.05, 1: 0.02}) == (1, several)


def test_a_clock_that_somebody_else_disturbs_decides_nothing() -> None:
    noise = itertools.cycle([1.0, 1.0, 3.0])

    def measure(setup: Setup, rows: int, turn: int) -> float:
        return 0.01 * rows * next(noise) * (0.3 if setup.precision == "bf16" else 1.0)

    start = setup()
    found = tune(start, work(50_000), measure)
    assert found.settings == start.settings
    assert set(found.reasons.values()) == {BUSY}


@pytest.mark.parametrize("looks", [[True], [False, True]])
def test_a_machine_on_which_others_are_at_work_decides_nothing_that_is_remembered(looks: list[bool]) -> None:
    start, crowd = setup(), iter(looks)
    found = tune(start, work(50_000), Machine(0.01, bf16=0.1), lambda: next(crowd))
    assert found.settings == start.settings
    assert found.provisional
    assert set(found.reasons.values()) == {BUSY}


def test_threads_that_share_their_cores_with_others_are_contended() -> None:
    cores = available_cores()
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cores)]
    try:
        assert any(contended(cores) for _ in range(20))
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_every_thread_is_busy_until_its_time_is_over() -> None:
    start = time.perf_counter()
    assert hardware._least_share(2, 0.02) > 0
    assert time.perf_counter() - start >= 0.02


def test_only_what_is_undecided_is_tried() -> None:
    machine = Machine(0.01, bf16=0.1, threads={1: 0.1}, passes={8: 0.5})
    found = tune(setup(undecided=frozenset({"micro_batch_size"})), work(50_000), machine)
    assert (found.precision, found.threads, found.compile, found.micro_batch_size) == ("fp32", 2, False, 8)
    assert {(tried.precision, tried.threads, tried.compile) for tried, _ in machine.tried} == {("fp32", 2, False)}


def test_a_single_row_leaves_no_passes_to_compare() -> None:
    assert tune(setup(1), work(50_000, 1), Machine(0.1)).reasons["micro_batch_size"] == "no alternative"


def test_compiling_is_tried_on_long_runs_and_kept_where_it_saves_more_than_it_costs() -> None:
    short = Machine(0.01, compiled=0.1)
    found = tune(setup(), work(5000), short)
    assert (found.compile, found.reasons["compile"]) == (False, "not measured for runs under 15 min")
    assert not any(tried.compile for tried, _ in short.tried)
    found = tune(setup(), work(50_000), Machine(0.01, compiled=0.8))
    assert (found.compile, found.reasons["compile"]) == (
        True, "128 ms per step against 160 without, measured; 30 s of compilation save 27 min",
    )  # fmt: skip
    assert found.measured["compile"] == {"false": 0.16, "true": 0.128, "cost": 30.0}
    assert tune(setup(), work(6000), Machine(0.01, compiled=0.99)).compile is False


@pytest.mark.parametrize(
    ("eager", "compiled", "run", "on", "reason"),
    [
        (0.1, 0.098, 900.0, False, "compiled 98 ms per step against 100 without, measured: not worth 20 s"),
        (0.1, 0.09, 150.0, True, "90 ms per step against 100 without, measured; 20 s of compilation save 15 s"),
        (0.05, 0.049, 60.0, False, "compiled 49 ms per step against 50 without, measured: not worth 20 s"),
    ],
)
def test_a_clear_gain_is_kept_since_the_cost_of_measuring_it_is_spent(
    eager: float, compiled: float, run: float, on: bool, reason: str
) -> None:
    assert choose_compiling(eager, compiled, 20.0, run) == (on, reason)


@pytest.mark.parametrize(("least", "words"), [(119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")])
def test_times_are_told_in_seconds_minutes_or_hours(least: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tuning.COMPILES_FROM, "cpu", least)
    assert tune(setup(), work(500), Machine(0.01)).reasons["compile"] == f"not measured for runs under {words}"


def test_a_run_that_was_long_until_something_faster_was_found_tries_no_compiling() -> None:
    """20 minutes in fp32, 8 in bf16."""
    machine = Machine(0.01, bf16=0.4)
    found = tune(setup(), work(7500), machine)
    assert (found.precision, found.reasons["compile"]) == ("bf16", "not measured for runs under 15 min")
    assert not any(tried.compile for tried, _ in machine.tried)


def test_a_compiler_that_is_missing_or_fails_means_no_compiling_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(setup: Setup, rows: int, turn: int) -> float:
        if setup.compile:
            raise ImportError("no such header\nand more")
        return 0.01 * rows

    found = tune(setup(), work(50_000), broken)
    fault = "torch.compile does not work here: ImportError: no such header"
    assert (found.compile, found.reasons["compile"]) == (False, fault)
    assert found.provisional, "a mended compiler is tried again"
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("CXX", "ccache-less-c++ -O9")
    found = tune(setup(), work(50_000), Machine(0.01))
    assert (found.compile, found.reasons["compile"]) == (False, "no compiler ccache-less-c++")


@pytest.mark.parametrize(
    "fault", [DataFault("a.jsonl: changed while it was read"), IndexError("no such row"), MemoryError("no room")]
)
@pytest.mark.parametrize("step", [0, ROUNDS - 1])
def test_a_fault_of_data_task_or_memory_is_not_the_compilers(fault: Exception, step: int) -> None:
    """It is raised as itself, if the same rows raise it without the compiler."""
    compiling = False

    def failing(setup: Setup, rows: int, turn: int) -> float:
        nonlocal compiling
        compiling |= setup.compile
        if compiling and turn == step:
            raise fault
        return 0.01 * rows

    with pytest.raises(type(fault), match=str(fault)):
        tune(setup(), work(50_000), failing)


def test_memory_that_suffices_without_compilation_decides_against_it() -> None:
    def hungry(setup: Setup, rows: int, turn: int) -> float:
        if setup.compile:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 0.01 * rows

    found = tune(setup(), work(50_000), hungry)
    fault = "compiled, a step runs out of memory with micro-batches of 16"
    assert (found.compile, found.reasons["compile"]) == (False, fault)
    assert found.fallbacks == {"compile": found.reasons["compile"]}


def test_what_a_recipe_compiles_is_measured_without_compilation() -> None:
    """Each value of the other settings would be compiled by itself."""
    machine = Machine(0.01, bf16=0.4)
    found = tune(replace(setup(undecided=ALL - {"compile"}), compile=True), work(50_000), machine)
    assert (found.compile, found.precision) == (True, "bf16")
    assert not any(tried.compile for tried, _ in machine.tried)


@pytest.mark.parametrize(("seconds", "compiled"), [(50, False), (70, True)])
def test_a_gpu_compiles_for_a_minute_whatever_uses_the_cpu(
    seconds: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "missing_compiler", lambda device: None)
    gpu = replace(setup(undecided=frozenset({"compile"})), device=torch.device("cuda:0"), precision="bf16")
    machine = Machine(0.01, bf16=1.0, compiled=0.7)
    found = tune(gpu, RunLength(16, Horizon(seconds=float(seconds))), machine, contended=lambda: True)
    assert found.compile is compiled
    assert any(tried.compile for tried, _ in machine.tried) is compiled


class LossSums:
    def __init__(self, loss: Tensor) -> None:
        self.parts, self.metrics, self.state = {"loss": loss}, {}, None


class MixerTask(nn.Module):
    """A mixer of any kind, asked for small outputs, behind dropout."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(11, 12)
        self.mixer = mixer_settings(kind).build(AttentionDims(12, 12, 4, 2, 6, 4), LayerSpec(0, 1))
        self.dropout = nn.Dropout(0.5)

    def forward(self, batch: "Ids", state: State | None) -> LossSums:
        x, places = self.embedding(batch.ids), TokenPositions(batch.ids.shape[1])
        return LossSums(self.dropout(self.mixer(x, x, Visibility(True, places, places)).y).square().sum())


@dataclass(frozen=True)
class Ids:
    ids: Tensor

    def to(self, device: torch.device) -> "Ids":
        return self


@dataclass
class Rows:
    """Rows without a text."""

    n: int = 0
    progress: Any = None

    def take(self, rows: object, epoch: int, keys: Tensor) -> "Rows":
        self.n = len(keys)
        return self

    def __len__(self) -> int:
        return self.n

    def slice(self, first: int, last: int) -> Ids:
        return Ids(torch.arange(first * 5, last * 5).reshape(-1, 5) % 11)


def feed(batch_size: int = 4) -> Feed:
    return Feed(RowPlan(20, batch_size, 0), Rows(), lambda ids: ids, 1)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("kind", "precision"), [*((kind, "fp32") for kind in causal_mixers()), ("softmax", "bf16")])
def test_a_trial_leaves_no_trace(kind: str, precision: str) -> None:
    task = MixerTask(kind).eval()
    before = {name: tensor.clone() for name, tensor in [*task.named_parameters(), *task.named_buffers()]}
    gradient = torch.ones(11, 12)
    task.embedding.weight.grad = gradient
    drawn, threads = torch.get_rng_state(), torch.get_num_threads()
    seconds = StepTimer(task, feed())(Setup(precision=precision, threads=threads + 1, micro_batch_size=2), 4)
    assert seconds > 0
    after = dict([*task.named_parameters(), *task.named_buffers()])
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert task.embedding.weight.grad is gradient
    assert torch.equal(gradient, torch.ones(11, 12))
    assert all(p.grad is None for p in task.mixer.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert (torch.get_num_threads(), task.training) == (threads, False)


@pytest.mark.parametrize(("rows", "passes"), [(4, [2, 2]), (2, [2]), (1, [1])])
def test_a_trial_reads_as_many_rows_as_it_is_told_in_passes_of_the_setup(rows: int, passes: list[int]) -> None:
    task, seen = MixerTask("softmax"), []
    task.register_forward_pre_hook(lambda module, given: seen.append(len(given[0].ids)))
    ticks = iter([1.0, 3.5])
    assert StepTimer(task, feed(), lambda: next(ticks))(Setup(micro_batch_size=2), rows) == 2.5
    assert seen == passes


@pytest.mark.parametrize("model", ["decoder", "stream"])
def test_a_run_that_measured_learns_what_one_learns_that_was_told_the_same(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, and its continuation takes what it found instead of measuring again."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    few = ("train.steps=8", "eval.tokens=100", "checkpoint.every_steps=8")
    changes = [f"{tiny_model('decoder')[:-1]}, dropout_rate: 0.1}}", *few]
    if model == "stream":
        changes = [f"{tiny_model('decoder')[:-1]}, attention: window}}", "train.stream=true", *few]
    monkeypatch.setattr(tuning, "SHORT", 0.0)
    monkeypatch.setattr(tuning, "SHARE", 1e9)
    monkeypatch.setattr(tuning, "PROMISING_SHARE", 1e9)
    monkeypatch.setattr(assembling, "bf16_gain", lambda: inf)
    monkeypatch.setattr(tuning, "NOISY", inf)
    monkeypatch.setattr(tuning, "LONGEST", inf)
    monkeypatch.setattr(assembling, "contended", lambda threads: False)
    recipe = ("pretrain", TINY, "log.samples=0", "eval.every_steps=8", *changes)
    measuring = minitf(*recipe, "-d", tmp_path / "measured")
    assert measuring.exit_code == 0, measuring.stderr
    auto = json.loads((tmp_path / "measured" / "run.json").read_text())["auto"]
    assert auto["measured"]["precision"].keys() == {"fp32", "bf16"}
    assert all(0 < seconds < inf for seconds in auto["measured"]["precision"].values())
    assert "ms per step against" in measuring.stderr
    told = [f"runtime.{name}={str(auto[name]).lower()}" for name in ("precision", "compile", "threads")]
    told.append(f"train.micro_batch_size={auto['micro_batch_size']}")
    explicit = minitf(*recipe, *told, "-d", tmp_path / "told")
    assert explicit.exit_code == 0, explicit.stderr
    assert "ms per step against" not in explicit.stderr
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("measured", "told"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    monkeypatch.setattr(tuning, "tune", None)
    more = minitf(*recipe, "-d", tmp_path / "measured", "--extend", "2")
    assert more.exit_code == 0, more.stderr
    assert "bit-exact" not in more.stderr
    assert "recorded in run.json" in more.stderr


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuning"


def find() -> Setup:
    return tune(setup(), work(2000), Machine(0.1, bf16=0.4))


def never() -> Setup:
    raise AssertionError("what is remembered is not measured again")


def ask(find: Callable[[], Setup], said: list[str] | None = None, steps: int = 2000, **shape: int) -> Setup:
    return cached_tuning(
        {"d_model": 8, **shape}, work(steps), setup(), find, [].append if said is None else said.append
    )


def test_what_was_found_once_is_remembered_with_its_reasons(cache: Path) -> None:
    first = ask(find)
    assert ask(never) == first
    assert ask(never, steps=2200) == first
    assert (first.precision, first.undecided) == ("bf16", set())
    assert len([*cache.glob("*/*.json")]) == 1


def test_another_shape_machine_or_length_is_another_question(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(find)
    asked = []

    def count() -> Setup:
        asked.append(1)
        return find()

    ask(count, d_model=9)
    ask(count, steps=4000)
    monkeypatch.setattr(tuning_cache, "available_cores", lambda: 77)
    ask(count)
    monkeypatch.setattr(tuning_cache, "processor", lambda capability: ["Another", "0"])
    ask(count)
    monkeypatch.setattr(tuning_cache, "missing_compiler", lambda device: "no compiler at all")
    ask(count)
    assert len(asked) == 5
    assert len([*cache.glob("*/*.json")]) == 6


def test_a_run_too_short_to_measure_has_the_precision_of_a_longer_one(cache: Path) -> None:
    def short() -> Setup:
        return tune(setup(), work(20), Machine(0.001, bf16=0.4))

    assert ask(short, steps=20).precision == "fp32"
    ask(find)
    for folder in cache.iterdir():
        (folder / "0.json").write_text("{")
    known = ask(never, steps=20)
    assert (known.precision, known.threads, known.undecided) == ("bf16", 2, set())
    assert known.reasons["precision"].endswith("measured in a run of another length")
    assert known.reasons["threads"] == TOO_SHORT
    assert ask(short, steps=20, d_model=9).precision == "fp32", "another model"


@pytest.mark.parametrize("make", [lambda length: Horizon(steps=length), lambda length: Horizon(seconds=float(length))])
def test_lengths_that_differ_by_more_than_the_root_of_two_are_never_one_question(
    make: Callable[[int], Horizon],
) -> None:
    asked = [tuning_cache._length(RunLength(16, make(length))) for length in (2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 135)]
    assert all(one != other for one, other in itertools.pairwise(asked))
    assert tuning_cache._length(RunLength(16, make(1024))) == tuning_cache._length(RunLength(16, make(1200)))


@pytest.mark.parametrize(("row", "reason"), [(0.1, BUSY), (100.0, TOO_EXPENSIVE)])
def test_what_a_busy_machine_hid_is_not_remembered(cache: Path, row: float, reason: str) -> None:
    noise = itertools.cycle([1.0, 1.0, 3.0])
    hundred_seconds = RunLength(16, Horizon(seconds=100.0 if reason == TOO_EXPENSIVE else 10_000.0))
    for _ in range(2):
        found = cached_tuning(
            {},
            hundred_seconds,
            setup(),
            lambda: tune(setup(), hundred_seconds, lambda s, rows, turn: row * rows * next(noise)),
            str,
        )
        assert found.reasons["precision"] == reason
    assert not cache.exists()


WRONG = {"threads": (4096, True, 0), "precision": ("fp16",), "compile": (1,), "micro_batch_size": (3,)}


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: "{",
        lambda kept: "[" * 100_000,
        lambda kept: json.dumps([]),
        lambda kept: json.dumps(kept | {"facts": {}}),
        lambda kept: json.dumps(kept | {"decided": {}}),
        *(
            lambda kept, key=key, value=value: json.dumps(kept | {"decided": kept["decided"] | {key: [value, "fast"]}})
            for key, values in WRONG.items()
            for value in values
        ),
        lambda kept: json.dumps(kept | {"decided": kept["decided"] | {"compile": [True, 7]}}),
    ],
)
def test_a_damaged_or_foreign_file_is_told_of_and_made_anew(cache: Path, change: Callable[[dict], str]) -> None:
    found = ask(find)
    [file] = cache.glob("*/*.json")
    file.write_text(change(json.loads(file.read_text())))
    said: list[str] = []
    assert ask(find, said) == found
    assert len(said) == 1
    assert said[0].startswith(f"tuning: {file} is damaged (")
    assert ask(never) == found


def test_a_reason_out_of_a_file_cannot_steer_the_terminal(cache: Path) -> None:
    ask(find)
    [file] = cache.glob("*/*.json")
    kept = json.loads(file.read_text())
    kept["decided"]["compile"][1] = "\x1b[2J"
    file.write_text(json.dumps(kept))
    assert ask(never).reasons["compile"] == "\\x1b[2J"


def test_a_cache_that_cannot_be_written_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    assert ask(find, said) == find()
    assert said[0].startswith("tuning: the result cannot be cached: ")

    def no_folder() -> Path:
        raise StorageFault("cannot create the cache folder: read-only")

    monkeypatch.setattr(tuning_cache, "cache_folder", no_folder)
    assert ask(find, said) == find()
    assert said[-1] == "tuning: cannot create the cache folder: read-only; the result is not cached"


def test_a_run_says_what_it_decided_in_one_line_without_saying_a_reason_twice() -> None:
    reasons = {"device": "no accelerator available", **dict.fromkeys(sorted(ALL), TOO_SHORT)}
    settings = f"fp32, compile off, 2 threads, micro-batch size 16 ({TOO_SHORT})"
    assert replace(setup(), reasons=reasons).describe() == f"device cpu (no accelerator available), {settings}"


def test_tiny_runs_of_the_tests_measure_nothing(cache: Path, tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *QUIET, "train.steps=5", "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert f"fp32, compile off ({TOO_SHORT})" in done.stderr
