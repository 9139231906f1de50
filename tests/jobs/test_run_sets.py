"""A recipe from several seeds: ordinary runs, the median run's model, and the same bytes however often it is killed."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commands import EXACT, TINY, minitf, refused, trained

from mini_tf.cli.terminal.gate_checks import check_gates
from mini_tf.jobs import run_sets
from mini_tf.jobs.set_metrics import main_metric, median_run, spread
from mini_tf.recipe import reading
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.metrics import Gate
from mini_tf.run import manifest
from mini_tf.run.folder import Run
from mini_tf.run.task_arguments import task_recipes
from mini_tf.system.errors import UsageFault

SHORT = (
    *(*EXACT, "log.samples=0", "train.steps=4", "train.context=16", "train.batch_size=4", "data.split=2%"),
    *("checkpoint.every_steps=2", "eval.tokens=20", "log.every_steps=1"),
)
SEEDS = (*SHORT, "train.seeds=3", "train.seed=1")
TURNS = ("objective.kind=instruct", "data.fields={prompt: a, response: b}")
FOLDERS = ("seed-1", "seed-2", "seed-3")


MOMENTS = (
    ("start", 1, True),
    ("record", 3, True),  # inside the first seed, after a checkpoint
    ("finish", 1, False),
    ("finish", 1, True),  # between the first seed and the second
    ("write_metrics", 1, True),
    ("save", 4, False),
    ("copy_model", 1, False),
    ("copy_model", 1, True),
    ("finish", 4, False),
)
"""Call of a method of Run, or of run_sets, by its number, and whether after it."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds that nobody interrupted; beside it what each of MOMENTS would have left of them at a kill."""
    folder = tmp_path_factory.mktemp("seeds") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        for moment in MOMENTS:
            at_call(*moment, partial(shutil.copytree, folder, cut_at(folder, *moment)), patch)
        return trained(folder, *SEEDS)


def cut_at(whole: Path, deed: str, number: int, after: bool) -> Path:
    return whole.with_name(f"{deed}-{number}-{after}")


def product(folder: Path) -> dict[str, bytes]:
    """All that is promised to be the same, by its path in the folder."""
    kept = ("metrics.jsonl", "*.safetensors", "tokenizer.json", "config.json", "resolved.yaml")
    return {str(path.relative_to(folder)): path.read_bytes() for name in kept for path in sorted(folder.rglob(name))}


def assert_same(one: Path, other: Path) -> None:
    ours, theirs = product(one), product(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def figures(folder: Path) -> dict[str, float]:
    return {name: value for name, value in manifest.read(folder).metrics.items() if value is not None}


def test_each_seed_is_the_ordinary_run_of_its_recipe(whole: Path, tmp_path: Path) -> None:
    for number, name in enumerate(FOLDERS):
        alone = trained(tmp_path / name, *SHORT, f"train.seed={1 + number}")
        assert_same(whole / name, alone)
        assert manifest.read(whole / name).run_id == manifest.read(alone).run_id
    assert manifest.read(whole).run_id not in {manifest.read(whole / name).run_id for name in FOLDERS}
    assert len({(whole / name / "model.safetensors").read_bytes() for name in FOLDERS}) == 3


def test_the_run_has_the_median_and_the_spread_of_every_figure(whole: Path) -> None:
    measured, alone = figures(whole), [figures(whole / name) for name in FOLDERS]
    assert (
        {name for name in measured if f"{name}.mean" in measured}
        == alone[0].keys()
        > {"val.loss", "val.accuracy", "minutes"}
    )
    for name in alone[0]:
        values = np.array([one[name] for one in alone])
        assert measured[name] == np.median(values)
        expected = {"mean": values.mean(), "std": values.std(ddof=1), "min": values.min(), "max": values.max()}
        assert {what: measured[f"{name}.{what}"] for what in expected} == pytest.approx(expected)
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    timeless = [{name: value for name, value in one.items() if name != "minutes"} for one in alone]
    [median] = [number for number, line in enumerate(lines) if line.pop("median", False)]
    assert (whole / "model.safetensors").read_bytes() == (whole / FOLDERS[median] / "model.safetensors").read_bytes()
    assert lines == [{"seed": 1 + number} | one for number, one in enumerate(timeless)]


def test_the_run_is_used_as_any_other_and_is_the_median_run(whole: Path) -> None:
    losses = {name: figures(whole / name)["val.loss"] for name in FOLDERS}
    median = sorted(losses, key=lambda name: losses[name])[1]
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (whole / name).read_bytes() == (whole / median / name).read_bytes()
    evaluated = minitf("evaluate", whole, *("--device", "cpu"), "--json")
    assert json.loads(evaluated.stdout)["metrics"]["loss"] == pytest.approx(losses[median], rel=1e-6)
    assert minitf("generate", whole, "Once", "--max-new-tokens", "3").exit_code == 0
    assert minitf("inspect", "model", whole).exit_code == 0
    assert yaml.safe_load((whole / "resolved.yaml").read_text())["train"]["seeds"] == 3
    shown = minitf("runs", "show", whole)
    assert f"\nmedian of each metric over 3 seeds (model.safetensors is from {median}):\n" in shown.stdout
    result = json.loads(minitf("runs", "show", whole, "--json").stdout)
    assert [one["seed"] for one in result["result"]["seeds"]] == [1, 2, 3]
    assert result["metrics"] == manifest.read(whole).metrics


def test_the_end_is_told_in_a_table_and_a_sentence(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *SEEDS, "-d", tmp_path / "run", "--assert", "val.loss.mean<0.1")
    measured = figures(tmp_path / "run")
    assert (done.exit_code, done.stdout) == (8, f"{tmp_path / 'run'}\n")
    assert f"val.loss.mean is {measured['val.loss.mean']:.6g}, but must be < 0.1\n" in done.stderr
    told = done.stderr.splitlines()[-7:]
    assert [line.split("  ")[:2] for line in told[:3]] == [
        [name, f"train.seed {1 + i}"] for i, name in enumerate(FOLDERS)
    ]
    [median] = [line for line in told[:3] if line.endswith("  <- median")]
    assert f"val.loss {measured['val.loss']:.4f}, " in median
    assert (
        told[3]
        == f"median over 3 seeds: val.loss {measured['val.loss']:.4f} (mean {measured['val.loss.mean']:.4f}, standard"
        f" deviation {measured['val.loss.std']:.4f}, {measured['val.loss.min']:.4f} to"
        f" {measured['val.loss.max']:.4f})"
    )
    assert told[5] == f"next: minitf evaluate '{tmp_path}/run'; minitf generate '{tmp_path}/run'".replace("'", "")


@pytest.mark.parametrize(
    ("objective", "measured", "main"),
    [
        ("next_token", {"val.loss": 1.0, "val.perplexity": 2.7, "val.accuracy": 0.5}, "val.loss"),
        ("seq2seq", {"val.loss": 1.0, "val.perplexity": 2.7, "val.accuracy": 0.5}, "val.loss"),
        ("seq2seq", {"val.loss": 1.0, "val.perplexity": 2.7, "val.accuracy": 0.5, "val.chrf": 30.0}, "val.chrf"),
        (
            "instruct",
            {"val.loss": 1.0, "val.perplexity": 2.7, "val.accuracy": 0.5, "val.chrf": 30.0, "val.rougeL": 0.3},
            "val.chrf",
        ),
        ("classify", {"val.loss": 1.0, "val.accuracy": 0.5}, "val.accuracy"),
        ("tag", {"val.loss": 1.0, "val.accuracy": 0.9, "val.entity_f1": 0.4}, "val.entity_f1"),
        ("tag", {"val.loss": 1.0, "val.accuracy": 0.9, "val.f1_macro": 0.4}, "val.accuracy"),
        ("regress", {"val.loss": 1.0, "val.rmse": 0.5, "val.pearson": 0.9}, "val.loss"),
    ],
)
def test_the_main_figure_is_that_of_the_task(objective: str, measured: dict[str, float], main: str) -> None:
    assert main_metric(measured, settings_of("objectives", objective)()) == main  # type: ignore[arg-type]


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 10])
def test_the_median_run_has_as_many_below_as_above_or_one_fewer(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    for _ in range(20):
        losses = generator.integers(0, 6, seeds) / 4  # with ties
        runs = [{"val.loss": float(loss)} for loss in losses]
        chosen = median_run(runs, "val.loss")
        assert chosen == list(losses).index(sorted(losses)[(seeds - 1) // 2])
        assert spread(runs)["val.loss"] == losses[chosen]


def test_what_is_not_finite_ranks_last_and_has_no_mean() -> None:
    runs = [{"val.loss": None}, {"val.loss": 2.0}, {"val.loss": 1.0}]
    assert median_run(runs, "val.loss") == 1
    assert spread(runs) == {"val.loss": None}
    assert (
        median_run([{"val.accuracy": None, "val.loss": 1.0}, {"val.accuracy": 0.2, "val.loss": 1.0}], "val.accuracy")
        == 0
    )
    assert (
        spread([{"val.loss": 1.0, "val.f1.rare": 0.0}, {"val.loss": 1.0}])
        .keys()
        .isdisjoint({"val.f1.rare", "val.f1.rare.mean"})
    )


def test_the_figure_of_a_class_that_is_called_as_a_statistic_is_kept() -> None:
    runs = [{"val.f1": f1, "val.f1.max": of_class} for f1, of_class in ((0.5, 0.9), (0.7, 0.8), (0.6, 0.2))]
    assert spread(runs)["val.f1.max"] == 0.8
    assert spread(runs)["val.f1.max.max"] == 0.9


def test_a_baseline_has_one_value_for_all_seeds_and_one_for_each_fold() -> None:
    """Equal metrics of a model have a spread all the same: 0."""
    runs = [{"val.loss": 1.5, "baseline.loss": 2.0, "baseline.ngram.loss": 3.0 + n} for n in range(3)]
    statistics = ("mean", "std", "min", "max")
    loss = {"val.loss": 1.5, "val.loss.mean": 1.5, "val.loss.std": 0.0, "val.loss.min": 1.5, "val.loss.max": 1.5}
    ngram = dict(
        zip(
            ("baseline.ngram.loss", *(f"baseline.ngram.loss.{name}" for name in statistics)),
            (4, 4, 1, 3, 5),
            strict=True,
        )
    )
    assert spread(runs) == {"baseline.loss": 2.0} | loss | ngram
    assert spread(runs, seeds=False)["baseline.loss.std"] == 0.0


# Killed and stopped.


def at_call(deed: str, number: int, after: bool, happens: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Let it happen before or after the given call of one of Run's methods, or of run_sets, counted from 1."""
    done, calls = getattr(owner(deed), deed), [0]

    def counted(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == number and not after:
            happens()
        result = done(*given, **named)
        if calls[0] == number and after:
            happens()
        return result

    patch.setattr(owner(deed), deed, counted)


def owner(deed: str) -> Any:
    return Run if hasattr(Run, deed) else run_sets


@pytest.mark.parametrize(("deed", "number", "after"), MOMENTS)
def test_seeds_that_are_killed_and_started_again_end_with_the_same_bytes(
    deed: str, number: int, after: bool, whole: Path
) -> None:
    cut = cut_at(whole, deed, number, after)
    finished = {name: os.stat(cut / name / "model.safetensors").st_mtime_ns for name in FOLDERS if is_done(cut / name)}
    done = minitf("pretrain", TINY, *SEEDS, "-d", cut)
    assert done.exit_code == 0, done.stderr
    assert_same(cut, whole)
    assert {name: os.stat(cut / name / "model.safetensors").st_mtime_ns for name in finished} == finished


def is_done(folder: Path) -> bool:
    return (folder / "run.json").exists() and manifest.read(folder).state == "done"


def test_a_signal_stops_inside_a_seed_and_the_same_command_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_call("record", 6, True, lambda: signal.raise_signal(signal.SIGTERM), patch)
        stopped = minitf("pretrain", TINY, *SEEDS, "-d", folder)
    assert (stopped.exit_code, stopped.stdout) == (143, f"{folder}\n")
    record = manifest.read(folder)
    assert (record.state, record.exit_code, record.error) == ("stopped", 143, "stopped in seed-2")
    assert [path.name for path in sorted(folder.glob("seed-*"))] == ["seed-1", "seed-2"]
    assert minitf("pretrain", TINY, *SEEDS, "-d", folder).exit_code == 0
    assert_same(folder, whole)


@pytest.mark.parametrize(
    ("deed", "after"), [("plot_losses", False), ("finish", False), ("finish", True), ("write_metrics", True)]
)
def test_a_signal_behind_the_last_step_of_a_seed_begins_no_other(
    deed: str, after: bool, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_call(deed, 1, after, lambda: signal.raise_signal(signal.SIGTERM), patch)
        stopped = minitf("pretrain", TINY, *SEEDS, "-d", folder)
    assert (stopped.exit_code, stopped.stdout) == (143, f"{folder}\n")
    record = manifest.read(folder)
    assert (record.state, record.exit_code, record.error) == ("stopped", 143, "stopped before seed-2")
    assert manifest.read(folder / "seed-1").state == "done"
    assert not (folder / "seed-2").exists()
    assert minitf("pretrain", TINY, *SEEDS, "-d", folder).exit_code == 0
    assert_same(folder, whole)


# Other ends and refusals.


def test_a_finished_run_says_so_and_mends_a_model_that_was_damaged(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    again = minitf("pretrain", TINY, *SEEDS, "-d", folder, "--assert", "val.loss.max>0")
    assert (again.exit_code, again.stdout, again.stderr.count("already complete")) == (0, f"{folder}\n", 1)
    assert again.stderr.endswith("(3 seeds); --fresh starts a new run\n")
    shutil.move(folder / "seed-1", tmp_path / "seed-1")
    for command in (("pretrain", TINY, *SEEDS, "-d", folder), ("pretrain", folder)):
        assert minitf(*command).stderr.endswith("(3 seeds), but it has lost seed-1; --fresh starts a new run\n")
    shutil.move(tmp_path / "seed-1", folder / "seed-1")
    (folder / "model.safetensors").write_bytes(b"lost")
    assert minitf("evaluate", folder).exit_code == 5
    assert minitf("pretrain", TINY, *SEEDS, "-d", folder).exit_code == 0
    assert_same(folder, whole)


@pytest.mark.parametrize("which", [("--step", "best"), ("--average", "2")])
def test_where_its_checkpoints_are_is_told(which: tuple[str, str], whole: Path) -> None:
    refused(
        minitf("evaluate", whole, *which),
        f"has no checkpoint; use one of its runs: {whole / 'seed-1'}, ...",
        exit_code=5,
    )


def test_fresh_starts_over_beside_it(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    done = minitf("pretrain", TINY, *SEEDS, "-d", tmp_path / "run", "--fresh")
    assert done.stdout == f"{tmp_path / 'run.2'}\n"
    assert_same(tmp_path / "run.2", whole)


def test_several_seeds_are_another_run_than_one(whole: Path) -> None:
    refused(minitf("pretrain", TINY, *SHORT, "train.seed=1", "-d", whole), "train.seeds: 3 -> 1", exit_code=5)


def test_extending_is_for_the_seeds_one_by_one(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    refused(minitf("pretrain", TINY, *SEEDS, "-d", tmp_path / "run", "--extend", "2"), "seed-1", exit_code=2)
    one = tmp_path / "run" / "seed-1"
    refused(minitf("pretrain", TINY, *SEEDS, "-d", tmp_path / "new", "--stop-at", "2"), "3 seeds", exit_code=2)
    assert minitf("pretrain", one, "-d", one, "--extend", "2").exit_code == 0
    assert manifest.read(one).step == 6


def test_a_dry_run_is_that_of_one_seed_so_many_times(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *SEEDS, "--dry-run", "--json", "-d", tmp_path / "run")
    measured = json.loads(done.stdout)["metrics"]
    assert measured["seconds"] == pytest.approx(
        sum(value for name, value in measured.items() if name.startswith("seconds."))
    )
    assert measured["seconds.training"] == pytest.approx(3 * 4 * measured["seconds_per_step"])
    assert f"{measured['minutes']:.1f} minutes in total for 3 seeds; nothing was saved\n" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_seed_that_diverges_is_named_and_those_before_stay(whole: Path, tmp_path: Path) -> None:
    largest = [
        max(json.loads(line)["loss"] for line in (whole / name / "metrics.jsonl").read_text().splitlines())
        for name in FOLDERS
    ]
    calm = next(i for i in range(2) if largest[i] < largest[i + 1])
    above = f"train.stop_above={(largest[calm] + largest[calm + 1]) / 2}"
    folder = tmp_path / "run"
    diverged = minitf("pretrain", TINY, *SHORT, "train.seeds=2", f"train.seed={1 + calm}", above, "-d", folder)
    assert diverged.exit_code == 7
    assert f"seed-2 (train.seed {2 + calm}): " in diverged.stderr.splitlines()[-1]
    assert (manifest.read(folder).state, manifest.read(folder / "seed-2").state) == ("diverged", "diverged")
    assert product(folder / "seed-1")["model.safetensors"] == product(whole / FOLDERS[calm])["model.safetensors"]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1


def test_a_refused_start_leaves_nothing_and_takes_no_seed_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    refused(minitf("pretrain", TINY, *SEEDS, "runtime.device=cuda:99", "-d", folder), "cuda:99", exit_code=9)
    assert not folder.exists()
    with monkeypatch.context() as patch:
        at_call("write_metrics", 1, False, partial(_raise, UsageFault("refused after a seed")), patch)
        assert minitf("pretrain", TINY, *SEEDS, "-d", folder).exit_code == 2
    assert manifest.read(folder / "seed-1").state == "done"
    assert manifest.read(folder).state == "failed"


def _raise(error: Exception) -> None:
    raise error


# Gates, and the command for tasks.


@pytest.mark.parametrize(
    ("overrides", "figure", "words"),
    [
        (("train.seeds=2",), "val.accuracy.mean", ""),
        ((), "val.accuracy.std", "std needs several seeds or folds"),
        (("train.seeds=2",), "val.accuracy.median", "not a metric of training"),
        ((), "val.acuracy", "not a metric of training; did you mean val.accuracy?"),
        (("train.seeds=2",), "val.acuracy.mean", "did you mean val.accuracy.mean?"),
        (("objective.kind=classify",), "baseline.majority.acuracy", "did you mean baseline.majority.accuracy?"),
        (("objective.kind=classify",), "baseline.accuracy.mean", "not a metric of training"),
        (("objective.kind=classify", "data.split={folds: 3}"), "baseline.accuracy.mean", ""),
        ((), "val.f1_macro", "it belongs to classify and multi_label and tag, and the objective is next_token"),
        ((), "val.rougeL", "it belongs to instruct and seq2seq, and the objective is next_token"),
        ((*TURNS, "eval.translations=0"), "val.rougeL", "eval.translations is 0: no text is generated"),
        (TURNS, "val.rougeL", ""),
        ((), "val.bits_per_byte", ""),
        (("model.kind=encoder",), "val.bits_per_byte", "not a metric of training"),
        (("objective.kind=regress",), "val.accuracy", "not a metric of training"),
        (("objective={kind: tag, labels: [O, B-x, I-x]}",), "val.f1_macro", "not a metric of training"),
        (("objective={kind: tag, labels: [NOUN, VERB]}",), "val.f1_macro", ""),
        (("objective={kind: tag, labels: [O, B-x, I-x]}",), "val.entity_f1.y", "there is no class 'y'"),
        (("objective={kind: tag, labels: [O, B-x, I-x]}",), "val.entity_f1.x", ""),
        ((), "val.f1.", "not a metric of training"),
        (("objective.kind=classify",), "val.f1.mean", ""),
        (("objective.kind=classify", "train.seeds=2"), "val.f1.positive.min", ""),
        (("objective.kind=classify",), "val.entity_f1", "it belongs to tag, and the objective is classify"),
    ],
)
def test_a_gate_is_refused_where_a_run_can_never_meet_it(overrides: tuple[str, ...], figure: str, words: str) -> None:
    recipe = reading.read(TINY, overrides).recipe
    if not words:
        check_gates([Gate(figure, "<", 1)], "training", recipe)
        return
    with pytest.raises(UsageFault) as refusal:
        check_gates([Gate(figure, "<", 1)], "training", recipe)
    assert words in f"{refusal.value.message}; {refusal.value.hint}"


def test_finetune_without_a_recipe_names_those_for_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"stars": "objective: {kind: classify}", "short": "objective: seq2seq", "plain": "train: {steps: 1}"}
    files = {name: tmp_path / f"{name}.yaml" for name in written}
    for name, text in written.items():
        files[name].write_text(text)
    monkeypatch.setattr("mini_tf.recipe.arguments.presets", lambda: files)
    assert task_recipes() == ["stars", "short"]
    told = "no recipe given; use a recipe file, or a shipped recipe for a task: stars, short"
    for arguments in ((), ("model.d_model=32",)):
        refused(minitf("finetune", *arguments), told, exit_code=2)


def test_finetune_is_pretrain_where_there_is_a_recipe(whole: Path, tmp_path: Path) -> None:
    done = minitf("finetune", TINY, *SHORT, "train.seed=1", "-d", tmp_path / "tuned", "--assert", "val.loss<9")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'tuned'}\n"), done.stderr
    assert_same(tmp_path / "tuned", whole / "seed-1")
