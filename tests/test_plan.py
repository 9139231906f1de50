"""`minitf plan`: shapes without data count as real tensors do, exchanges are those of simulated devices, and a plan is
its formulas, written out here.
"""

import json
import math
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from commands import DATA, EXACT, TINY, minitf, refused, tiny_model

from mini_tf.cli.terminal.console import Console
from mini_tf.data.opening import open_data
from mini_tf.distributed import reduction
from mini_tf.distributed.group import ProcessGroup
from mini_tf.jobs.assembling import build
from mini_tf.jobs.cluster.demand import Demand, demand_of
from mini_tf.jobs.cluster.plan import Cluster, Plan
from mini_tf.jobs.cluster.traffic import REDUCTIONS, SHARDS, Sent, recursive_doubling, ring, ring_all_reduce
from mini_tf.jobs.cost.steps import MemoryUse, median_step, memory_of
from mini_tf.jobs.parts import training_of
from mini_tf.recipe.reading import read
from mini_tf.system.processes import Place
from mini_tf.training.machine.device import resolve_setup
from mini_tf.training.optimizer import build as build_optimizer

PAIRS = (
    f"data={{train: {DATA / 'reversed.tsv'}, fields: {{source: source, target: target}}, split: 10%}}",
    tiny_model("encoder_decoder"),
)
CASES: dict[str, tuple[str, ...]] = {
    "decoder": (),
    "half": ("runtime.precision=bf16", "train.micro_batch_size=4"),
    "masked": (tiny_model("encoder"), "objective.kind=masked", "optimizer={kind: muon, lr: 0.02}", "train.micro_batch_size=2"),
    "pairs": (*PAIRS, "train.batch_tokens=300", "train.micro_batch_size=4"),
    "frozen": ("train.freeze=[embedding.*]", "model.tied=false", "train.micro_batch_size=8"),
}
QUIET = Console(quiet=True)
HARDWARE = ("--device-flops", "1T", "--bandwidth", "1G")


@pytest.mark.parametrize("name", CASES)
def test_shapes_without_data_count_as_the_tensors_of_a_real_step(name: str) -> None:
    recipe = read(TINY, [*EXACT, "runtime.precision=fp32", "train.micro_batch_size=1", *CASES[name]]).recipe
    parts = build(recipe, open_data(recipe.data, recipe.tokenizer, recipe.objective), resolve_setup(recipe.runtime))
    training = training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, parts.setup.compute_dtype))
    batches = training.feed.micro_batches(median_step(training))
    demand = demand_of(recipe, QUIET)
    assert demand.memory == memory_of(parts, training)
    assert demand.flops == parts.flops_per_step
    assert demand.tokens == sum(batch.counts["tokens"] for batch in batches)
    assert demand.micro_batches == len(batches)
    assert demand.parameters == sum(p.numel() for p in parts.model.parameters())
    assert demand.steps == 60


def test_flops_are_those_of_the_published_formula() -> None:
    """Narayanan et al. 2021, equation 3, without recomputed activations: 3 in place of 4 passes."""
    demand = demand_of(read(TINY, ["model.d_model=64", "model.n_layers=3"]).recipe, QUIET, vocabulary=1000)
    b, s, layers, h, v = 8, 48, 3, 64, 1000
    assert demand.flops == pytest.approx(72 * b * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)), rel=1e-12)


def test_another_vocabulary_changes_the_tied_embedding_alone() -> None:
    recipe = read(TINY, []).recipe
    own, other = demand_of(recipe, QUIET), demand_of(recipe, QUIET, vocabulary=5000)
    rows = 5000 - open_data(recipe.data, recipe.tokenizer, recipe.objective).tokenizer.vocabulary.size
    assert other.parameters - own.parameters == 32 * rows
    assert other.memory.gradients - own.memory.gradients == 4 * 32 * rows


def test_a_model_that_no_machine_here_could_hold_is_planned() -> None:
    demand = demand_of(read(TINY, ["model={kind: decoder, d_model: 65536, n_layers: 2, n_heads: 64}"]).recipe, QUIET)
    assert demand.parameters > 1e11
    assert demand.memory.optimizer == pytest.approx(2 * demand.memory.weights, rel=1e-9)
    block = 12 * 65536**2
    assert demand.gathered == pytest.approx(8 * block, rel=0.01)  # the embedding of bytes is small


# What devices send, by simulation.


def simulated_ring(values: list[list[float]], gather: bool) -> tuple[list[list[float]], int, int]:
    """Reduce-scatter, then all-gather if asked, a part per device: results, and parts and messages that one sends."""
    n, parts, sent = len(values), [list(own) for own in values], 0
    for turn in range(n - 1):
        moved = [(rank, (rank - turn) % n, parts[rank][(rank - turn) % n]) for rank in range(n)]
        for rank, part, value in moved:
            parts[(rank + 1) % n][part] += value
        sent += 1
    for turn in range(n - 1 if gather else 0):
        moved = [(rank, (rank + 1 - turn) % n, parts[rank][(rank + 1 - turn) % n]) for rank in range(n)]
        for rank, part, value in moved:
            parts[(rank + 1) % n][part] = value
        sent += 1
    return parts, sent, sent


def simulated_doubling(values: list[list[float]]) -> tuple[list[list[float]], int, int]:
    n, whole, messages, distance = len(values), [list(own) for own in values], 0, 1
    while distance < n:
        whole = [[a + b for a, b in zip(whole[rank], whole[rank ^ distance], strict=True)] for rank in range(n)]
        messages, distance = messages + 1, 2 * distance
    return whole, messages * len(values[0]), messages


@pytest.mark.parametrize("n", [2, 4, 8])
def test_bytes_and_messages_are_those_of_simulated_devices(n: int) -> None:
    values = [[float(10 * rank + part) for part in range(n)] for rank in range(n)]
    total = [sum(own[part] for own in values) for part in range(n)]
    size = 4 * n  # bytes
    reduced, parts, messages = simulated_ring(values, gather=True)
    assert reduced == [total] * n
    assert ring_all_reduce(size, n) == Sent(4 * parts, messages)
    scattered, parts, messages = simulated_ring(values, gather=False)
    assert [scattered[rank][(rank + 1) % n] for rank in range(n)] == [total[(rank + 1) % n] for rank in range(n)]
    assert ring(size, n) == Sent(4 * parts, messages)
    doubled, numbers, messages = simulated_doubling(values)
    assert doubled == [total] * n
    assert recursive_doubling(size, n) == Sent(4 * numbers, messages)


# Plans of a made-up demand.

DEMAND = Demand(
    precision="bf16", parameters=1000, flops=64 * 10**6, tokens=640, batch_size=64, micro_batch_size=4, micro_batches=16,
    memory=MemoryUse(weights=4000, gradients=3600, optimizer=8000, activations=500), gathered=700,
    sizes={"a": 400, "b": 300, "c": 200, "d": 100}, steps=10,
)  # fmt: skip
FAST = Cluster(flops=1e9, bandwidth=1e6, utilization=0.5, latency=1e-5, memory=9000.0)
ALL = [(reduce, shard) for reduce in REDUCTIONS for shard in SHARDS]


def plan(n: int, reduce: str = "sum", shard: str = "none", cluster: Cluster = FAST, demand: Demand = DEMAND) -> Plan:
    return Plan(demand, cluster, n, reduce, shard)


def by_hand(n: int, reduce: str, shard: str) -> tuple[float, float, float]:
    """Seconds of compute and of a step, and bytes of memory, of DEMAND on FAST.

    The optimizer state is divided by whole parameters: 400 + 100 and 300 + 200, or 400 alone.
    """
    w, g, o, a, k = 4000, 3600, 8000, 500, 16 // n
    compute = 64e6 / n / (1e9 * 0.5)

    def send(size: float, messages: float) -> float:
        return size / 1e6 + messages * 1e-5

    part = (n - 1) / n
    reduced = send(math.log2(n) * g, math.log2(n)) if reduce == "tree" else send(2 * part * g, 2 * (n - 1))
    behind = 2 / 3 * compute / k
    exposed = max(0.0, reduced - behind) if reduce == "overlap" else reduced
    if shard == "none":
        return compute, compute + exposed, w + g + o + a
    if shard == "optimizer":
        return compute, compute + exposed + send(part * w, n - 1), w + g + o * (0.5 if n == 2 else 0.4) + a
    traffic = k * (2 * send(part * w, n - 1) + send(part * g, n - 1))
    return compute, max(compute, traffic) if reduce == "overlap" else compute + traffic, (w + g + o) / n + a + 700


@pytest.mark.parametrize(("reduce", "shard"), ALL)
@pytest.mark.parametrize("n", [2, 8, 16])
def test_a_plan_is_its_formulas(n: int, reduce: str, shard: str) -> None:
    made = plan(n, reduce, shard)
    compute, step, memory = by_hand(n, reduce, shard)
    assert made.compute == pytest.approx(compute)
    assert made.step == pytest.approx(step)
    assert made.memory_bytes == pytest.approx(memory)
    assert made.fits == (memory <= 9000)
    assert made.efficiency == pytest.approx(64e6 / 5e8 / (n * step))
    assert made.run == pytest.approx(10 * step)


def test_overlap_hides_some_traffic_and_not_more_than_there_is() -> None:
    slow = replace(FAST, bandwidth=1e5)
    assert 0 < plan(8, "overlap", cluster=slow).hidden < plan(8, "overlap", cluster=slow).communication
    fast = replace(FAST, bandwidth=1e9, latency=0.0)
    assert plan(8, "overlap", cluster=fast).hidden == pytest.approx(plan(8, "overlap", cluster=fast).communication)
    assert plan(32, "overlap", cluster=fast).hidden == 0  # idle devices have no backward pass


@pytest.mark.parametrize(("reduce", "shard"), ALL)
def test_one_device_exchanges_nothing_and_is_its_own_measure(reduce: str, shard: str) -> None:
    one = plan(1, reduce, shard)
    assert (one.exchanges, one.communication, one.hidden, one.efficiency, one.idle) == ([], 0.0, 0.0, 1.0, 0)
    assert one.memory_bytes == DEMAND.memory.total


@pytest.mark.parametrize(("reduce", "shard"), ALL)
def test_an_endless_bandwidth_leaves_the_computation_alone(reduce: str, shard: str) -> None:
    endless = replace(FAST, bandwidth=math.inf, latency=0.0)
    assert [plan(n, reduce, shard, endless).efficiency for n in (1, 2, 4, 8, 16)] == pytest.approx([1.0] * 5)
    assert plan(32, reduce, shard, endless).efficiency == pytest.approx(0.5)  # 16 micro-batches


@pytest.mark.parametrize(("reduce", "shard"), ALL)
def test_more_devices_are_never_more_efficient_nor_need_more_memory_each_and_a_slower_network_is_never_faster(
    reduce: str, shard: str
) -> None:
    plans = [plan(2**k, reduce, shard) for k in range(8)]
    assert sorted((one.efficiency for one in plans), reverse=True) == [one.efficiency for one in plans]
    assert sorted((one.memory_bytes for one in plans[1:]), reverse=True) == [one.memory_bytes for one in plans[1:]]
    networks = [replace(FAST, bandwidth=1e6 / factor, latency=1e-5 * factor) for factor in (1, 2, 5, 100)]
    steps = [plan(8, reduce, shard, network).step for network in networks]
    assert sorted(steps) == steps
    assert steps[0] < steps[-1]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("micro_batches", [1, 6, 7, 16])
def test_the_busiest_device_and_the_idle_ones_are_those_of_real_processes(micro_batches: int, reduce: str) -> None:
    assert REDUCTIONS.keys() == reduction.REDUCTIONS.keys()
    for n in (1, 2, 4, 8, 16, 32):
        groups = [ProcessGroup(Place(rank, n)) for rank in range(n)]
        each = [len(reduction.REDUCTIONS[reduce]({}, group).own(micro_batches)) for group in groups]
        made = plan(n, reduce, demand=replace(DEMAND, micro_batches=micro_batches))
        assert made.idle == each.count(0)
        assert min(made.passes, micro_batches) == max(each)


# The command.


def planned(*arguments: str) -> dict[str, Any]:
    done = minitf("plan", TINY, *HARDWARE, "train.micro_batch_size=1", *arguments, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_command_prints_the_plans_as_json_and_what_they_assume() -> None:
    found = planned("--devices", "1..20", "--shard", "optimizer", "--device-memory", "1G", "--latency", "0", "--utilization", "0.5")
    result = found["result"]
    assert [one["devices"] for one in result["plans"]] == [1, 2, 4, 8, 16]
    assert found["metrics"] == result["plans"][-1]
    assert result["cluster"] == {"flops": 1e12, "bandwidth": 1e9, "utilization": 0.5, "latency": 0.0, "memory": 1e9}
    demand, two = result["demand"], result["plans"][1]
    assert two["seconds_per_step.compute"] == pytest.approx(demand["flops"] / 2 / 5e11)
    gradients, weights = demand["memory"]["gradients"], demand["memory"]["weights"]
    assert two["seconds_per_step.communication"] == pytest.approx((gradients + weights / 2) / 1e9)
    assert 0.5 <= two["memory_bytes.optimizer"] / demand["memory"]["optimizer"] < 0.55
    assert all(one["fits"] for one in result["plans"])
    assert [line.partition(":")[0] for line in result["assumptions"][1:]] == ["compute", "traffic", "memory", "efficiency"]
    [idle] = result["warnings"]
    assert idle.startswith("16 devices: 8 of 16 devices have no micro-batch")
    assert idle.endswith("at most 8 devices can have one, with train.micro_batch_size=1")


def test_the_largest_micro_batch_of_which_every_device_has_one_is_named() -> None:
    [idle] = planned("--devices", "3", "train.micro_batch_size=4")["result"]["warnings"]
    assert idle.endswith("a step of 8 rows has 2 micro-batches of 4 rows; with train.micro_batch_size=2 there are 4")


def test_a_reader_sees_each_number_with_its_formula_and_a_model_that_does_not_fit() -> None:
    done = minitf("plan", TINY, *HARDWARE, "--devices", "4", "--device-memory", "100k", "runtime.reduce=overlap", "-q")
    assert done.exit_code == 0, done.stderr
    for words in (
        "33,056 parameters, 384 tokens per step",
        "89.9 MFLOP, 2 of 8 micro-batches per device, 1 TFLOP/s x 40%",
        "(2 (N-1)/N x gradients), 6 messages",
        "of 100 kB, does not fit",
        "4 devices: does not fit",
        "nothing was measured",
        "(bf16 assumed for runtime.precision auto)",
        "1 row (assumed for train.micro_batch_size auto)",
    ):
        assert words in " ".join(done.stdout.split()), words


def test_a_range_is_a_table() -> None:
    done = minitf("plan", TINY, *HARDWARE, "--devices", "1..4", "-q", "train={time: 1m}")
    assert done.exit_code == 0, done.stderr
    header, *rows = done.stdout.splitlines()[:4]
    assert header.split() == ["devices", "compute", "s", "traffic", "s", "step", "s", "tokens/s", "eff.", "%", "hours", "GB"]
    assert [row.split()[0] for row in rows] == ["1", "2", "4"]


DEVICES = {"--devices": "2", "--device-flops": "1T", "--bandwidth": "1G"}
BAD: dict[str, tuple[dict[str, str], str]] = {
    "devices": ({"--devices": "0"}, "--devices 0: must be a whole number from 1 to 1,048,576, or a range such as 1..4096"),
    "range": ({"--devices": "8..4"}, "--devices 8..4: FIRST must be at least 1, LAST at least FIRST"),
    "bandwidth": ({"--bandwidth": "fast"}, "--bandwidth fast: must be a number above 0, such as 25G"),
    "flops": ({"--device-flops": "-1T"}, "--device-flops -1T: must be a number above 0, such as 312T"),
    "memory": ({"--device-memory": "0"}, "--device-memory 0: must be a number above 0, such as 80G"),
    "utilization": ({"--utilization": "1.5"}, "--utilization 1.5: must be a number above 0 and at most 1, such as 40%"),
    "latency": ({"--latency": "-1"}, "--latency -1: must be a number of at least 0, such as 10e-6"),
    "power": ({"--devices": "6"}, "--devices 6: runtime.reduce tree needs a power of two; use 4 or 8"),
}
PERCEIVER = ("model={kind: perceiver, d_model: 32, n_layers: 1, n_heads: 2}", "objective.kind=masked")
TWO_STAGES = (
    "model={kind: encoder, d_model: 32, n_layers: 1, n_heads: 2}",
    "objective={kind: replaced_token, generator_steps: 10, tying: none, generator_width: 1, generator_depth: 1}",
)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_option_is_refused_in_one_line(name: str) -> None:
    options, words = BAD[name]
    tree = ("runtime.reduce=tree", "train.micro_batch_size=1")
    refused(minitf("plan", TINY, *tree, *chain(*(DEVICES | options).items()), "-q"), words, exit_code=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (PERCEIVER, "model.kind: perceiver: shapes inside this model depend on the data; `minitf cost` measures it on this machine"),
        (TWO_STAGES, "objective.kind: replaced_token: no formula is known for the FLOPs of this recipe"),
    ],
)
def test_what_depends_on_more_than_shapes_is_refused_in_one_line(changes: tuple[str, ...], words: str) -> None:
    refused(minitf("plan", TINY, *changes, *chain(*DEVICES.items()), "-q"), words, exit_code=3)
