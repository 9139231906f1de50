"""`minitf runs compare` at equal cost: on run folders written by hand, whose figures are known, and on a real run."""

import itertools
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import TINY, minitf, refused, trained
from scipy import stats
from torch_flops import torch_flops

from mini_tf.recipe.reading import read
from mini_tf.run.comparison.cost_curves import cost_to_reach, value_at
from mini_tf.run.comparison.groups import RunGroup, _difference, is_among
from mini_tf.scores.intervals import difference_interval, mean_interval, t_quantile, wilson_interval

Losses = Mapping[int, float]


def written(
    folder: Path, losses: Losses, flops: int | None = 10, seed: int = 0, second_per_step: float = 1.0, **fields: Any
) -> Path:
    """A finished run with these validation losses by step."""
    folder.mkdir(parents=True)
    record = {
        "format": 1, "state": "done", "recipe": "made", "seed": seed, "flops_per_step": flops,
        "step": max(losses, default=0),
        "loss_unit": "nats per byte", "metrics": {}, "hashes": {"data": "d"}, "host": "here",
        "auto": {"device": "cpu", "threads": 1},
        "model": {"step": 1, "score": 1.0, "sha256": f"weights of {folder.name}"},
        "decides": {"train.seed": seed, "train.seeds": 1, "model.d_model": 8},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record | fields))
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": s, "val.loss": v}) + "\n" for s, v in losses.items())
    )
    (folder / "timing.jsonl").write_text(
        "".join(json.dumps({"step": s, "seconds": s * second_per_step}) + "\n" for s in losses)
    )
    return folder


def another(width: int = 16, seed: int = 0) -> dict[str, Any]:
    return {"decides": {"train.seed": seed, "train.seeds": 1, "model.d_model": width}}


def compared(*words: str | Path) -> dict[str, Any]:
    done = minitf("runs", "compare", *words, "--json")
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def test_the_quantile_of_t_is_scipys() -> None:
    for freedom in (1, 2, 3, 4, 5, 8, 9, 30, 101, 1000):
        assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-12)


def test_the_cost_of_a_group_is_the_mean_and_only_two_groups_have_a_difference() -> None:
    members: Any = [SimpleNamespace(total=lambda axis, cost=cost: cost, fold=None, seed=0) for cost in (3.0, 6.0)]
    group = RunGroup("x", members)
    assert group.total("steps") == 4.5
    assert _difference([group] * 3, [[1.0, 2.0]] * 3) == (None, False)


def test_intervals_are_scipys() -> None:
    first, second = [3.1, 2.9, 3.4, 3.0], [2.7, 2.6, 3.1, 2.9]
    expected = stats.t.interval(0.95, 3, stats.tmean(first), stats.sem(first))
    found = mean_interval(first)
    assert found.half is not None
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx(expected)
    equal_spread = difference_interval(first, [value + 1 for value in first])  # whose degrees of freedom are an integer
    low, high = stats.ttest_ind([value + 1 for value in first], first, equal_var=False).confidence_interval(0.95)
    assert equal_spread.half is not None
    assert (1 - equal_spread.half, 1 + equal_spread.half) == pytest.approx((low, high))
    welch = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    rounded = difference_interval(first, second)
    assert rounded.half is not None
    assert 1.0 <= 2 * rounded.half / (welch.high - welch.low) < 1.1
    assert mean_interval([1.0]) == (1.0, None, 1)
    assert difference_interval([1.0, 1.0], [2.0, 2.0]) == (1.0, 0.0, 2)


@pytest.mark.parametrize(("successes", "n"), [(0, 7), (7, 7), (30, 50), (699, 1000)])
def test_the_interval_of_a_share_is_wilsons(successes: int, n: int) -> None:
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((expected.low, expected.high))


def test_values_and_costs_are_those_of_the_broken_line_through_the_evaluations() -> None:
    draw = random.Random(0)
    for _ in range(50):
        costs = sorted(draw.sample(range(1, 100), 6))
        points = [(float(cost), draw.uniform(1, 5)) for cost in costs]
        fine = [costs[0] + n / 1000 * (costs[-1] - costs[0]) for n in range(1001)]
        line = [_on_the_line(points, cost) for cost in fine]
        assert [value_at(points, cost) for cost in fine] == pytest.approx(line)
        target = draw.uniform(min(line), max(line))
        for lower in (True, False):
            reached = cost_to_reach(points, target, lower)
            first = next(
                (cost for cost, value in zip(fine, line, strict=True) if (value <= target) == lower or value == target),
                None,
            )
            assert first == pytest.approx(reached, abs=0.11)
        assert cost_to_reach(points, min(line) - 1, True) is None
        assert value_at(points, costs[0] - 0.5) is None
        assert value_at(points, costs[-1] + 0.5) is None


def _on_the_line(points: Sequence[tuple[float, float]], cost: float) -> float:
    for (low, before), (high, after) in itertools.pairwise(points):
        if low <= cost <= high:
            return before + (after - before) * (cost - low) / (high - low)
    raise AssertionError(cost)


def test_metrics_are_compared_at_the_largest_cost_that_all_runs_have(tmp_path: Path) -> None:
    """100 FLOPs: run a ends there, run b is half way between steps 2 and 3; but b's steps take longer."""
    a = written(tmp_path / "a", {5: 4.0, 10: 2.0})
    b = written(tmp_path / "b", {1: 5.0, 2: 3.0, 3: 1.0, 4: 0.5}, flops=40, second_per_step=2.0, **another())
    result = compared(a, b)
    whole = next(one for one in result["equal"]["flops"] if one["share"] == 1.0)
    assert (whole["budget"], whole["metric"]) == (100, "val.loss")
    assert [mean["mean"] for mean in whole["means"]] == [2.0, 2.0]
    quarter = next(one for one in result["equal"]["flops"] if one["share"] == 0.5)
    assert [None if mean is None else mean["mean"] for mean in quarter["means"]] == [4.0, pytest.approx(4.5)]
    whole = next(one for one in result["equal"]["time"] if one["share"] == 1.0)
    assert (whole["budget"], [mean["mean"] for mean in whole["means"]]) == (8, [pytest.approx(2.8), 0.5])
    reach = result["reach"]["flops"]
    assert (reach["metric"], reach["value"], [cost["mean"] for cost in reach["costs"]]) == ("val.loss", 2.0, [100, 100])
    assert compared(a, b, "--reach", "val.loss=3.0")["reach"]["time"]["factors"] == [1.0, 7.5 / 4]
    assert compared(a, b, "--reach", "val.loss=4.0")["reach"]["flops"]["at_first"] == [True, False]
    assert "≤ 50" in minitf("runs", "compare", a, b, "--reach", "val.loss=4.0").stdout
    assert compared(a, b, "--reach", "val.loss=1")["reach"]["time"]["costs"][0] is None
    assert compared(a, b, "--at", "steps")["equal"].keys() == {"steps"}
    shown = minitf("runs", "compare", a, b, "--at", "flops").stdout
    assert "at equal FLOPs" in shown
    assert "at equal training time" not in shown


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path: Path) -> None:
    """And a run of several seeds is one group of its seed runs; differences are paired by seed."""
    ones = [written(tmp_path / f"a{seed}", {10: 2.0 + seed / 10}, seed=seed, **another(8, seed)) for seed in range(3)]
    several = written(tmp_path / "several", {}, **another(16))
    for number, loss in enumerate([1.5, 1.5, 1.8]):
        written(several / f"seed-{number + 1}", {10: loss}, seed=number, **another(16, number))
    result = compared(*ones, several)
    named = [("a0 (3 seeds)", [0, 1, 2]), ("several (3 seeds)", [0, 1, 2])]
    assert [(group["name"], group["seeds"]) for group in result["groups"]] == named
    by_seed = compared(*ones, *(several / f"seed-{number}" for number in (1, 2, 3)))
    assert [(group["name"], group["seeds"]) for group in by_seed["groups"]] == named
    [whole] = [one for one in result["equal"]["flops"] if one["share"] == 1.0]
    expected = stats.ttest_rel([1.5, 1.5, 1.8], [2.0, 2.1, 2.2]).confidence_interval(0.95)
    assert whole["paired"]
    assert whole["difference"]["mean"] == pytest.approx(-0.5)
    assert whole["difference"]["half"] == pytest.approx((expected.high - expected.low) / 2)
    assert whole["means"][0]["half"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3))
    assert "±" in minitf("runs", "compare", *ones, several).stdout


def test_runs_of_one_seed_and_of_other_data_are_not_one_group(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / "a", {1: 2.0}),
        written(tmp_path / "again", {1: 2.0}),
        written(tmp_path / "c", {1: 2.0}, seed=1, hashes={}),
    ]
    assert len(compared(*runs)["groups"]) == 3


def test_the_folds_of_a_run_are_one_group_and_an_extended_run_is_another(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", {}, decides={"model.d_model": 8})
    for fold, loss in ((1, 2.0), (2, 3.0)):
        written(
            whole / f"fold-{fold}", {10: loss}, decides={"model.d_model": 8, "data.split": {"folds": 2, "fold": fold}}
        )
    longer = written(tmp_path / "longer", {10: 2.0}, seed=1, extensions=[[6, 4]], **another(16, 1))
    runs = (
        whole,
        written(tmp_path / "a", {10: 2.0}, **another()),
        longer,
        written(tmp_path / "b", {10: 2.0}, seed=2, **another(16, 2)),
    )
    assert [group["name"] for group in compared(*runs)["groups"]] == ["whole (2 folds)", "a (2 seeds)", "longer"]


def test_what_cannot_be_compared_is_said_in_a_line(tmp_path: Path) -> None:
    a = written(tmp_path / "a", {5: 4.0, 10: 2.0})
    old = written(
        tmp_path / "old", {5: 3.0}, flops=None, host="elsewhere", auto={"device": "cuda", "threads": 8}, **another()
    )
    done = minitf("runs", "compare", a, old)
    assert done.exit_code == 0
    assert "no comparison at equal FLOPs: run.json of old has no flops_per_step" in done.stderr
    assert "training times are not comparable, as runs differ in host, device, threads" in done.stderr
    unfinished = written(tmp_path / "unfinished", {}, state="running", **another(32))
    (unfinished / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "lo')
    done = minitf("runs", "compare", a, unfinished)
    assert (done.exit_code, "at equal" in done.stdout) == (0, False)
    (old / "timing.jsonl").unlink()
    assert "timing.jsonl of old is incomplete" in minitf("runs", "compare", a, old).stderr
    refused(
        minitf("runs", "compare", a, old, "--reach", "val.bleu"),
        "no metric that all runs have",
        "val.loss",
        exit_code=2,
    )
    for bad in ("low", "nan"):
        refused(
            minitf("runs", "compare", a, old, "--reach", f"val.loss={bad}"), f"{bad!r} is not a number", exit_code=2
        )
    (old / "run.json").write_text("{")
    refused(minitf("runs", "compare", a, old), "run.json is damaged", exit_code=5)


def test_times_that_are_not_all_recorded_are_not_compared_and_perplexity_is_left_to_the_loss(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", {5: 4.0, 10: 2.0}), written(tmp_path / "b", {5: 4.0, 10: 3.0}, **another())
    (a / "timing.jsonl").write_text('{"step": 10, "seconds": 10}\n')
    for run in (a, b):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        (run / "metrics.jsonl").write_text(
            "".join(json.dumps(line | {"val.perplexity": 9.0, "val.f1": 0.5}) + "\n" for line in lines)
        )
    equal = compared(a, b)["equal"]
    assert equal["time"] == []
    assert {one["metric"] for one in equal["flops"]} == {"val.loss", "val.f1"}


def test_losses_in_other_units_are_not_compared_at_equal_cost(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", {5: 4.0}), written(tmp_path / "b", {5: 3.0}, loss_unit="nats per label", **another())
    assert compared(a, b)["equal"] == {"flops": [], "time": []}


@pytest.mark.parametrize(("unit", "comparable"), [("nats per token", False), ("nats per byte", True)])
def test_losses_per_token_are_comparable_with_one_tokenizer_alone(unit: str, comparable: bool, tmp_path: Path) -> None:
    hashes = [{"data": "d", "tokenizer": tokenizer} for tokenizer in ("one", "one", "other")]
    runs = [
        written(tmp_path / f"r{n}", {5: 4.0}, loss_unit=unit, hashes=each, **another(n))
        for n, each in enumerate(hashes)
    ]
    assert compared(*runs[:2])["equal"]["flops"]
    assert bool(compared(*runs[1:])["equal"]["flops"]) == comparable
    assert is_among("val.loss.part", ("val.loss",))
    assert not is_among("val.lossless", ("val.loss",))


def test_only_what_objectives_have_in_common_is_compared(tmp_path: Path) -> None:
    """Losses and bits per byte of masked and of next tokens are not."""
    a, b = (written(tmp_path / kind, {5: 4.0}, decides={"objective.kind": kind}) for kind in ("masked", "next_token"))
    for run in (a, b):
        (run / "metrics.jsonl").write_text(
            '{"step": 5, "val.loss": 4.0, "val.loss.part": 3.0, "val.bits_per_byte": 2.0, "val.f1": 0.5}\n'
        )
    assert {one["metric"] for one in compared(a, b)["equal"]["flops"]} == {"val.f1"}
    assert "val.bits_per_byte: not comparable, since objectives" in minitf("runs", "compare", a, b).stderr
    (b / "metrics.jsonl").write_text('{"step": 5, "val.loss": 4.0}\n')
    assert "the evaluations of these runs have no comparable metric" in minitf("runs", "compare", a, b).stderr


def test_the_unit_of_a_run_of_several_seeds_is_that_of_its_runs(tmp_path: Path) -> None:
    """Its own run.json has none."""
    one = written(tmp_path / "one", {10: 2.0}, **another(8))
    for name, unit in (("several", "nats per byte"), ("others", "nats per label")):
        folder = written(tmp_path / name, {}, loss_unit="", **another(16))
        for seed in range(2):
            written(folder / f"seed-{seed + 1}", {10: 1.5}, seed=seed, loss_unit=unit, **another(16, seed))
    assert compared(one, tmp_path / "several")["equal"]["flops"]
    assert compared(tmp_path / "several", tmp_path / "others")["equal"]["flops"] == []


def test_runs_initialized_from_a_run_are_found_by_their_weights(tmp_path: Path) -> None:
    """Also by way of another run, and the damaged folder beside them does not matter."""
    a, b = written(tmp_path / "a", {5: 4.0}), written(tmp_path / "b", {5: 4.0}, **another())
    task = {"recipe": "task", "figures": ["val.f1"]}
    for seed, f1 in enumerate([0.5, 0.7]):
        found = {"hashes": {"init": "weights of a"}, "metrics": {"val.f1": f1, "val.loss": 1.0}, **another(8, seed)}
        written(tmp_path / f"from a {seed}", {2: 1.0}, seed=seed, **task, **found)
    written(
        tmp_path / "further",
        {4: 1.0},
        hashes={"init": "weights of b"},
        recipe="further",
        metrics={"val.loss": 2.0},
        **another(16),
    )
    far = {"hashes": {"init": "weights of further"}, "metrics": {"val.f1": 0.9, "val.loss": 1.0}}
    written(tmp_path / "far", {2: 1.0}, **task, **far, **another(16))
    written(tmp_path / "not done", {2: 1.0}, state="stopped", **task, **far, **another(16))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("[]")
    result = compared(a, b)["downstream"]
    assert {one["name"]: one["metric"] for one in result} == {"task": "val.f1", "further": "val.loss"}
    [one] = [one for one in result if one["name"] == "task"]
    assert [mean["mean"] for mean in one["means"]] == [pytest.approx(0.6), 0.9]
    assert [mean["n"] for mean in one["means"]] == [2, 1]
    assert one["runs"][1][0]["costs"]["flops"] == 10 * (4 + 2)
    assert [Path(folder).name for folder in one["runs"][1][0]["chain"]] == ["further", "far"]
    shown = minitf("runs", "compare", a, b).stdout
    assert "runs initialized from these" in shown
    assert "task val.f1" in shown


def test_a_picture_is_drawn_against_the_cost(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", {5: 4.0, 10: 2.0}), written(tmp_path / "b", {5: 3.0}, **another())
    for at in ("flops", "time", "steps"):
        done = minitf("runs", "compare", a, b, "--at", at, "-o", tmp_path / f"{at}.svg")
        assert done.exit_code == 0, done.stderr
    assert len({(tmp_path / f"{at}.svg").read_bytes() for at in ("flops", "time", "steps")}) == 3


@pytest.mark.parametrize(
    "options", [["model.n_layers=1"], ["train.batch_tokens=200", "data.pack=none"]], ids=["rows", "tokens"]
)
def test_a_run_records_the_flops_of_a_step(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the counter: of all the first steps, which differ in size with train.batch_tokens."""
    from mini_tf.jobs import parts as of_runs
    from mini_tf.jobs.assembling import build, load_data
    from mini_tf.jobs.parts import training_of
    from mini_tf.training.flops import TRAINING_PASSES
    from mini_tf.training.machine.device import resolve_setup
    from mini_tf.training.optimizer import build as build_optimizer

    n_steps, texts = 8, tmp_path / "short.txt"
    texts.write_text("\n\n".join(f"{n} " * (n % 20 + 1) for n in range(100)))
    monkeypatch.setattr(of_runs, "FLOPS_STEPS", n_steps)
    run = trained(tmp_path / "run", "train.steps=2", f"data.train={texts}", *options)
    recorded = json.loads((run / "run.json").read_text())
    recipe = read(str(run / "resolved.yaml")).recipe
    parts = build(recipe, load_data(recipe, _Silent()), resolve_setup(recipe.runtime, recorded["auto"]))  # type: ignore[arg-type]
    training = training_of(parts, (), build_optimizer(recipe.optimizer, parts.trainable, parts.setup.compute_dtype))
    batches = [batch for step in range(n_steps) for batch in training.feed.micro_batches(step)]
    counted = torch_flops(lambda: [parts.task(batch, None) for batch in batches])
    assert recorded["flops_per_step"] == TRAINING_PASSES * counted // n_steps


class _Silent:
    log = crash = None

    def say(self, line: str) -> None:
        pass

    detail = warn = say


def test_the_flops_stay_those_of_the_first_start(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=2")
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"flops_per_step": 7}))
    assert minitf("pretrain", TINY, "-d", run, "--extend", "1", *record["command"][3:-2]).exit_code == 0
    assert json.loads((run / "run.json").read_text())["flops_per_step"] == 7
