"""Runs on part of the training examples: nested subsets beside the same validation data, and their learning curve."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import EXACT, minitf, refused, trained
from tiny_tasks import OPINIONS, opinions

from mini_tf.data.split import DataSplit, ExampleHasher, Examples, hold_out, hold_out_fold, limit_training
from mini_tf.drawing.curves import labelled_sizes
from mini_tf.run import finding, manifest
from mini_tf.run.comparison.cost_curves import RunCurves
from mini_tf.run.comparison.groups import KEY, grouped, learning_curves
from mini_tf.run.manifest import Manifest

HASHER = ExampleHasher(lambda example: str(example), lambda example: 1)
SMALL = (
    *EXACT, "model={kind: encoder, d_model: 8, n_layers: 1, n_heads: 2}", "tokenizer.kind=byte", "log.samples=0",
    "train={steps: 2, batch_size: 4, context: 48}", "objective=classify", "data.split=25%",
    "objective.labels=[good, bad]",
)  # fmt: skip
ROWS = [row for row in OPINIONS if row["label"] in ("good", "bad")][:40]
SIZES = (6, 12)


def parts(split: DataSplit) -> tuple[list[int], list[int]]:
    """The training and the validation examples."""
    found = [*split.read()]
    return tuple([example for side, example in found if side == name] for name in ("train", "val"))  # type: ignore[return-value]


@pytest.mark.parametrize("examples", [list(range(200)), [*range(100), *range(100)]], ids=["distinct", "twice"])
def test_a_smaller_subset_is_part_of_a_larger_one_and_validation_data_stay(examples: Sequence[int]) -> None:
    whole = hold_out(Examples.of(lambda: iter(examples)), HASHER, 0.2)
    everything, val = parts(whole)
    before: list[int] = []
    for n in (1, 7, 40, 120):
        limited = limit_training(whole, HASHER, n)
        train, same = parts(limited)
        assert (len(train), same, limited.characters) == (n, val, n + len(val))
        assert {*before} <= {*train} <= {*everything}
        rest = iter(everything)
        assert all(one in rest for one in train)  # in the order of the file
        before = train
    short = limit_training(whole, HASHER, 1000)
    assert parts(short) == (everything, val)
    assert short.notes == (f"data.max_train_samples 1,000: there are {len(everything)} training examples",)


def test_a_subset_is_independent_of_the_split() -> None:
    """By the hash of the split, small subsets of all folds but one would be the same examples, of that one fold."""
    folds = [hold_out_fold(Examples.of(lambda: iter(range(600))), HASHER, 3, fold) for fold in (1, 2, 3)]
    held_out = [{*parts(one)[1]} for one in folds]
    train = parts(limit_training(folds[0], HASHER, 100))[0]
    assert 30 <= len({*train} & held_out[1]) <= 70
    assert len({*train} & held_out[1]) + len({*train} & held_out[2]) == 100


def test_later_parts_of_a_document_go_with_its_first_one() -> None:
    documents = [(number, part) for number in range(30) for part in range(3)]
    hasher = ExampleHasher(lambda one: str(one[0]), lambda one: 1, lambda one: one[1] == 0)
    found = [
        *limit_training(DataSplit.in_one_part(lambda: (("train", one) for one in documents), 90), hasher, 10).read()
    ]
    numbers = [number for _, (number, _) in found]
    assert len({*numbers}) == 10
    assert len(numbers) == 30


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds on each number of examples, and one run on all."""
    folder = tmp_path_factory.mktemp("runs")
    data = f"data.train={opinions(folder / 'opinions.jsonl', ROWS)}"
    limited = [
        trained(folder / f"n{n}", *SMALL, data, f"data.max_train_samples={n}", "train.seeds=2", recipe="bert-nano")
        for n in SIZES
    ]
    return [*limited, trained(folder / "all", *SMALL, data, recipe="bert-nano")]


def test_compare_draws_the_main_metric_over_the_number_of_examples(runs: list[Path], tmp_path: Path) -> None:
    [curve] = json.loads(minitf("runs", "compare", *runs, "--json").stdout)["result"]["learning_curves"]
    n_all = manifest.read(runs[2]).train_examples
    assert (curve["name"], curve["metric"]) == ("bert-nano", "val.accuracy")
    assert [point["train_examples"] for point in curve["points"]] == [*SIZES, n_all]
    for point, run in zip(curve["points"], runs, strict=True):
        assert point["values"] == [
            manifest.read(one).metrics["val.accuracy"] for one in finding.member_folders(run) or [run]
        ]
    shown = minitf("runs", "compare", *runs).stdout
    mean = np.mean(curve["points"][0]["values"])
    assert "val.accuracy by training examples  bert-nano\n" in shown
    assert f" 6  {mean:.4f} ± " in shown
    assert minitf("runs", "compare", *runs, "-o", tmp_path / "curve.png").exit_code == 0
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"


def recorded(folder: Path, n: int, accuracy: float, **changes: Any) -> Path:
    """A run folder that has only its record."""
    decides = {"train.seed": 0, "model.d_model": 8, KEY: n}
    fields = {
        "state": "done",
        "recipe": "r",
        "decides": decides,
        "train_examples": n,
        "metrics": {"val.accuracy": accuracy, "val.loss": 1.0},
    }
    folder.mkdir()
    (folder / "run.json").write_text(Manifest(**{**fields, "figures": ["val.accuracy"], **changes}).model_dump_json())
    return folder


def curves_of(*runs: Path) -> list[tuple[str, list[tuple[int, list[float]]]]]:
    found = learning_curves(grouped([RunCurves.read(run) for run in runs]))
    return [(curve.metric, [(n, [*values]) for n, values in curve.values]) for curve in found]


def test_a_learning_curve_has_the_finished_runs_of_one_recipe_from_one_model(tmp_path: Path) -> None:
    """Runs that start from other weights (model.init_from) have a curve of their own, whatever else is equal."""
    ours = [recorded(tmp_path / f"a{n}", n, n / 100, hashes={"init": "aa"}) for n in (10, 20)]
    others = [recorded(tmp_path / f"b{n}", n, n / 50, hashes={"init": "bb"}) for n in (10, 20)]
    scratch = recorded(tmp_path / "c", 30, 0.9)
    stopped = recorded(tmp_path / "d", 40, 0.9, hashes={"init": "aa"}, state="stopped")
    wide = recorded(
        tmp_path / "e", 30, 0.9, hashes={"init": "aa"}, decides={"train.seed": 0, "model.d_model": 16, KEY: 30}
    )
    expected = [("val.accuracy", [(10, [0.1]), (20, [0.2])]), ("val.accuracy", [(10, [0.2]), (20, [0.4])])]
    assert curves_of(*ours, *others, scratch, stopped, wide) == expected


def test_a_learning_curve_is_of_a_metric_that_all_its_runs_have(tmp_path: Path) -> None:
    first = recorded(tmp_path / "a", 20, 0.5, metrics={"val.loss": 2.0})
    seeds = [{"train.seed": seed, "model.d_model": 8, KEY: 10} for seed in (1, 2)]
    runs = [
        recorded(tmp_path / f"b{n}", 10, 0.1, decides=one, seed=n, metrics={"val.loss": 3.0 + n})
        for n, one in enumerate(seeds)
    ]
    assert curves_of(first, *runs) == [("val.loss", [(10, [3.0, 4.0]), (20, [2.0])])]
    assert curves_of(first, recorded(tmp_path / "c", 10, 0.1, metrics={})) == []


def test_the_folds_of_a_run_count_as_one_number_of_examples(tmp_path: Path) -> None:
    """Their own numbers differ by one; that of the run is that of its first fold."""
    sets = []
    for n in (10, 20):
        split = {"folds": 2, "fold": None}
        sets.append(recorded(tmp_path / f"n{n}", n, 0.0, decides={"data.split": split, KEY: n}, metrics={}))
        for fold in (1, 2):
            decides = {"data.split": split | {"fold": fold}, KEY: n}
            recorded(sets[-1] / f"fold-{fold}", n + fold - 1, n / 100 + fold, decides=decides)
    assert curves_of(*sets) == [("val.accuracy", [(10, [1.1, 2.1]), (20, [1.2, 2.2])])]


def test_a_learning_curve_is_named_by_the_keys_that_distinguish_it(tmp_path: Path) -> None:
    runs = []
    for name, lr, width in (("a", 1, 8), ("b", 2, 16)):
        for n in (10, 20):
            decides = {"optimizer.lr": lr, "model.d_model": width, "train.batch_size": 4, KEY: n}
            runs.append(recorded(tmp_path / f"{name}{n}", n, 0.5, decides=decides))
    runs += [
        recorded(tmp_path / f"c{n}", n, 0.5, recipe="other", decides={"train.batch_size": 4, KEY: n}) for n in (10, 20)
    ]
    found = learning_curves(grouped([RunCurves.read(run) for run in runs]))
    assert [curve.name for curve in found] == [
        "r model.d_model=8 optimizer.lr=1",
        "r model.d_model=16 optimizer.lr=2",
        "other",
    ]


def test_runs_on_one_number_of_examples_have_no_learning_curve(runs: list[Path]) -> None:
    assert (
        json.loads(minitf("runs", "compare", runs[0] / "seed-1", runs[0] / "seed-2", "--json").stdout)["result"][
            "learning_curves"
        ]
        == []
    )


def test_a_subset_is_another_run_on_the_same_validation_data(runs: list[Path]) -> None:
    said = [minitf("evaluate", run, "--device", "cpu", "--json").stdout for run in runs]
    assert len({json.loads(one)["metrics"]["targets"] for one in said}) == 1
    assert len({manifest.read(run).run_id for run in runs}) == 3


def test_documents_of_one_stream_cannot_be_selected() -> None:
    done = minitf("recipe", "check", "quickstart", "data.split=tail 10%", "data.max_train_samples=5")
    refused(done, "tail 10% splits one stream, of which it cannot take documents; use a share", exit_code=3)
    refused(
        minitf("recipe", "check", "quickstart", "data.max_samples=5"),
        "did you mean data.max_train_samples?",
        exit_code=3,
    )


def test_sizes_that_are_close_to_each_other_share_a_label() -> None:
    assert labelled_sizes([87, 100, 110, 200, 1000, 1050, 60_000]) == [60_000, 1050, 200, 110]
    assert labelled_sizes([50, 200, 800]) == [800, 200, 50]
