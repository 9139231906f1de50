"""Cross-validation: every example is validated once, each fold is an ordinary run, and kill -9 changes no byte."""

import json
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import EXACT, change, compared, minitf, refused, trained
from data_of import dataset_of
from test_run_sets import assert_same, at_call, cut_at, figures
from tiny_tasks import OPINIONS, opinions

from mini_tf.data.examples import Example
from mini_tf.data.split import ExampleHasher, Examples, hold_out_fold
from mini_tf.jobs.set_metrics import same_baseline
from mini_tf.recipe.data import Split
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.reading import read
from mini_tf.run import finding, manifest
from mini_tf.run.comparison.cost_curves import RunCurves
from mini_tf.run.comparison.groups import grouped
from mini_tf.system.errors import DataFault
from mini_tf.trained.opening import read_recipe_and_tokenizers

SMALL = (
    *EXACT, "model={kind: encoder, d_model: 8, n_layers: 1, n_heads: 2}", "tokenizer.kind=char", "log.samples=0",
    "optimizer.lr=1e-2",
    "train={steps: 4, batch_size: 8, context: 48}", "eval.every_steps=2", "objective=classify",
)  # fmt: skip
FOLDS = 3
ROWS = [row for row in OPINIONS if row["label"] in ("good", "bad")][:32]
HASHER = ExampleHasher(lambda example: str(example), lambda example: 1)


MOMENTS = (("record", 5, True), ("copy_model", 1, True))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opinions(tmp_path_factory.mktemp("data") / "opinions.jsonl", ROWS)


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folds that nobody interrupted; beside it what each of MOMENTS would have left of them at a kill."""
    ways, folder = (*SMALL, f"data.train={data}", "data.split={folds: 3}"), tmp_path_factory.mktemp("folds") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        for moment in MOMENTS:
            at_call(*moment, partial(shutil.copytree, folder, cut_at(folder, *moment)), patch)
        return trained(folder, *ways, recipe="bert-nano")


def held_out(examples: list[int], folds: int) -> list[list[int]]:
    """The validation examples of each fold."""
    splits = [hold_out_fold(Examples.of(lambda: iter(examples)), HASHER, folds, fold) for fold in range(1, folds + 1)]
    return [[example for split, example in one.read() if split == "val"] for one in splits]


@pytest.mark.parametrize(("n", "folds"), [(10, 2), (10, 3), (10, 10), (101, 5), (7, 4)])
def test_every_example_is_validated_once_beside_its_copies_and_folds_are_of_one_size(n: int, folds: int) -> None:
    examples = [*range(n), *range(0, n, 3)]  # some twice
    parts = held_out(examples, folds)
    assert Counter(example for part in parts for example in part) == Counter(examples)
    assert not any({*one} & {*other} for i, one in enumerate(parts) for other in parts[:i])
    sizes = [len({*part}) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert [sorted(part) for part in held_out(examples[::-1], folds)] == [
        sorted(part) for part in parts
    ]  # whatever the order


def test_folds_have_their_share_of_every_class_and_copies_stay_together() -> None:
    """Also a text with two labels, and whatever the order of the examples."""
    rows = [{"text": f"text {n}", "label": "rare" if n % 10 == 0 else "pos" if n % 3 else "neg"} for n in range(100)]
    rows += [rows[n] for n in range(0, 100, 7)] + [{"text": "text 1", "label": "rare"}]
    examples, dataset = [Example([row["text"]], [row["label"]], "x") for row in rows], dataset_of("classes")
    counts = []
    for fold in range(1, 5):
        held = [
            dataset.split(Examples.of(lambda given=given: iter(given)), None, Split(folds=4, fold=fold))
            for given in (examples, examples[::-1])
        ]  # type: ignore[misc]
        train, val = ({one.texts[0] for split, one in held[0].read() if split == part} for part in ("train", "val"))
        assert not train & val
        assert val == {one.texts[0] for split, one in held[1].read() if split == "val"}
        counts.append(
            Counter(row["label"] for row in {row["text"]: row for row in rows[:100]}.values() if row["text"] in val)
        )
    assert [sum(one[label] for one in counts) for label in ("rare", "pos", "neg")] == [10, 60, 30]
    for label in ("rare", "pos", "neg"):
        assert max(one[label] for one in counts) - min(one[label] for one in counts) <= 1


def test_too_few_different_examples_are_refused() -> None:
    with pytest.raises(DataFault, match="2 different examples; at least 3 are needed, one for each fold"):
        held_out([1, 2, 1, 2], 3)


def test_each_fold_is_the_ordinary_run_of_its_recipe(whole: Path, data: Path, tmp_path: Path) -> None:
    for fold in range(1, FOLDS + 1):
        split = f"data.split={{folds: {FOLDS}, fold: {fold}}}"
        alone = trained(tmp_path / f"fold-{fold}", *SMALL, f"data.train={data}", split, recipe="bert-nano")
        assert_same(whole / f"fold-{fold}", alone)
    ids = [manifest.read(one).run_id for one in (whole, *finding.member_folders(whole))]
    assert len({*ids}) == 1 + FOLDS


def test_the_run_has_the_spread_over_folds_and_the_model_of_the_median_one(whole: Path) -> None:
    folders = finding.member_folders(whole)
    measured, alone = figures(whole), [figures(one) for one in folders]
    for name in alone[0]:
        values = np.array([one[name] for one in alone])
        expected = {"mean": values.mean(), "std": values.std(ddof=1), "min": values.min(), "max": values.max()}
        assert {what: measured[f"{name}.{what}"] for what in expected} == pytest.approx(expected)
        assert measured[name] == np.median(values)
    accuracies = [one["val.accuracy"] for one in alone]
    median = folders[accuracies.index(sorted(accuracies)[1])]
    assert (whole / "model.safetensors").read_bytes() == (median / "model.safetensors").read_bytes()
    assert finding.model_folder(whole) == median
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["fold"] for line in lines] == [1, 2, 3]
    shown = minitf("runs", "show", whole)
    assert f"\nmedian of each metric over 3 folds (model.safetensors is from {median.name}):\n" in shown.stdout


def test_it_is_evaluated_on_what_its_model_did_not_train_on(whole: Path) -> None:
    median = figures(finding.model_folder(whole))
    evaluated = json.loads(minitf("evaluate", whole, "--device", "cpu", "--json").stdout)["metrics"]
    assert {name: evaluated[name] for name in ("loss", "accuracy")} == pytest.approx(
        {name: median[f"val.{name}"] for name in ("loss", "accuracy")}, rel=1e-6
    )


@pytest.mark.parametrize(("deed", "number", "after"), MOMENTS)
def test_folds_that_are_killed_and_started_again_end_with_the_same_bytes(
    deed: str, number: int, after: bool, whole: Path, data: Path
) -> None:
    cut = cut_at(whole, deed, number, after)
    arguments = ("bert-nano", *SMALL, f"data.train={data}", "data.split={folds: 3}", "-d", cut)
    done = minitf("finetune", *arguments)
    assert done.exit_code == 0, done.stderr
    assert_same(cut, whole)
    assert "already complete" in minitf("finetune", *arguments).stderr


def test_folds_of_seeds_have_the_means_over_their_seeds(data: Path, tmp_path: Path) -> None:
    ways = (*SMALL, "train.steps=2", f"data.train={data}", "train.seeds=2")
    run = trained(tmp_path / "run", *ways, "data.split={folds: 2}", recipe="bert-nano")
    alone = trained(tmp_path / "alone", *ways, "data.split={folds: 2, fold: 2}", recipe="bert-nano")
    assert_same(run / "fold-2", alone)
    of_seeds = [
        [figures(seed)["val.loss"] for seed in finding.member_folders(fold)] for fold in finding.member_folders(run)
    ]
    assert np.shape(of_seeds) == (2, 2)
    measured = figures(run)
    assert measured["val.loss.mean"] == pytest.approx(np.mean(of_seeds))
    assert measured["val.loss.std"] == pytest.approx(np.mean(of_seeds, axis=1).std(ddof=1))
    assert not any(".mean." in name for name in measured)
    [group] = grouped([RunCurves.read(run)])
    assert (group.name, group.keys) == ("run (2 folds, 2 seeds)", [(1, 0), (1, 1), (2, 0), (2, 1)])
    evaluated = json.loads(minitf("evaluate", run, "--device", "cpu", "--json").stdout)["metrics"]
    assert evaluated["loss"] == pytest.approx(
        figures(finding.model_folder(run) / manifest.read(finding.model_folder(run)).model_run or "")["val.loss"]
    )  # type: ignore[operator]


def test_folds_of_ensembles_are_judged_by_their_ensembles(data: Path, tmp_path: Path) -> None:
    ensembles = ("train.seeds=2", "train.ensemble=mean", "data.split={folds: 2}")
    ways = (*SMALL, "train.steps=1", f"data.train={data}", *ensembles)
    with compared():
        run = trained(tmp_path / "run", *ways, recipe="bert-nano")
    each, log = [figures(fold) for fold in finding.member_folders(run)], (run / "log.txt").read_text()
    kinds = [
        [one[f"baseline.{kind}.accuracy"] for one in each]
        for kind in ("majority", "tfidf_logistic", "tfidf_characters")
    ]
    baseline = max(kinds, key=sum)
    for n, one in enumerate(each):
        numbers = (one["val.accuracy.ensemble"], one["val.loss.ensemble"], one["val.f1_macro.ensemble"], baseline[n])
        words = "fold-{}  val.accuracy {:.4f}, val.loss {:.4f}, val.f1_macro {:.4f} (ensemble); baseline {:.4f}"
        assert words.format(n + 1, *numbers) in log
    ensembles = [one["val.accuracy.ensemble"] for one in each]
    assert f"median over 2 folds: val.accuracy.ensemble {min(ensembles):.4f} (mean {np.mean(ensembles):.4f}" in log
    means = (np.mean(baseline), np.mean(ensembles))
    assert "has accuracy {:.4f} (the model: {:.4f})".format(*means) in log.partition("baseline, mean over folds: ")[2]
    assert f"next: minitf evaluate {run} --data FILE; minitf predict {run}\n" in log


def test_the_baseline_of_folds_is_one_and_the_same_in_all_of_them() -> None:
    """In the first fold another one is the best; its other metrics are not mixed with those of the other folds."""
    by_fold = [(0.9, 0.7), (0.5, 0.8), (0.6, 0.75)]
    each = [
        {"val.accuracy": 0.5, "baseline.accuracy": max(a, b), "baseline.f1_macro": 0.1 if a > b else 0.2}
        | {"baseline.majority.accuracy": a, "baseline.tfidf_logistic.accuracy": b}
        for a, b in by_fold
    ]
    classify = settings_of("objectives", "classify")()
    name, found = same_baseline(each, ["most", "TF-IDF", "TF-IDF"], "val.accuracy", classify)  # type: ignore[arg-type]
    assert name == "TF-IDF"
    assert [one["baseline.accuracy"] for one in found] == [0.7, 0.8, 0.75]
    assert not any("baseline.f1_macro" in one for one in found)
    name, kept = same_baseline(each[1:], ["TF-IDF", "TF-IDF"], "val.accuracy", classify)  # type: ignore[arg-type]
    assert (name, kept) == ("TF-IDF", each[1:])
    assert same_baseline([{"val.accuracy": 0.5}], [None], "val.accuracy", classify) == (None, [{"val.accuracy": 0.5}])  # type: ignore[arg-type]


def test_a_set_of_folds_is_held_to_one_baseline(whole: Path, data: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    change(run / "run.json", state="running")
    for folder, (most, words) in zip(finding.member_folders(run), ((0.7, 0.6), (0.2, 0.9), (0.3, 0.8)), strict=True):
        of_kinds = {"baseline.majority.accuracy": most, "baseline.tfidf_logistic.accuracy": words}
        metrics = manifest.read(folder).metrics | of_kinds | {"baseline.accuracy": max(most, words)}
        change(folder / "run.json", metrics=metrics, baseline="most" if most > words else "TF-IDF")
    done = minitf("finetune", "bert-nano", *SMALL, f"data.train={data}", "data.split={folds: 3}", "-d", run)
    assert done.exit_code == 0, done.stderr
    assert manifest.read(run).baseline == "TF-IDF"
    assert figures(run)["baseline.accuracy.mean"] == pytest.approx((0.6 + 0.9 + 0.8) / 3)


def test_folds_of_one_data_set_are_one_group_and_pairs_of_folds_are_compared(whole: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(whole, tmp_path / "other"))
    for one in (other, *finding.member_folders(other)):
        fields = json.loads((one / "run.json").read_text())
        fields["decides"]["optimizer.lr"] = 0.5
        (one / "run.json").write_text(json.dumps(fields))
    assert [group.name for group in grouped([RunCurves.read(whole), RunCurves.read(other)])] == [
        "whole (3 folds)",
        "other (3 folds)",
    ]
    compared = json.loads(minitf("runs", "compare", whole, other, "--at", "steps", "--json").stdout)["result"]
    assert compared["groups"][0]["folds"] == [1, 2, 3]
    assert all(row["paired"] and row["difference"]["mean"] == 0 for row in compared["equal"]["steps"])


# What a fold sees.


def test_tokenizer_and_classes_of_a_fold_know_nothing_of_its_validation_part(
    whole: Path, data: Path, tmp_path: Path
) -> None:
    letters = "αβγδεζηθικλμνξοπ"
    rows = [{"text": f"a nice soup {letter}", "label": "good" if n % 2 else "bad"} for n, letter in enumerate(letters)]
    file = opinions(tmp_path / "letters.jsonl", rows)
    run = trained(
        tmp_path / "run", *SMALL, "train.steps=1", f"data.train={file}", "data.split={folds: 2}", recipe="bert-nano"
    )
    known = [{letter for letter in letters if letter in _vocabulary(fold)} for fold in finding.member_folders(run)]
    assert [len(one) for one in known] == [8, 8]
    assert known[0] | known[1] == {*letters}


def _vocabulary(run: Path) -> dict[str, int]:
    _, tokenizer, _ = read_recipe_and_tokenizers(run)
    vocabulary: dict[str, int] = json.loads(tokenizer.to_json())["model"]["vocab"]
    return vocabulary


def test_a_class_that_is_only_in_one_fold_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    rows = [*ROWS, {"text": "a strange soup", "label": "rare"}]
    data = f"data.train={opinions(tmp_path / 'rare.jsonl', rows)}"
    ways = ("bert-nano", *SMALL, "train.steps=1", data, "data.split={folds: 3}")
    refused(minitf("finetune", *ways, "-d", tmp_path / "run"), " of 3: ", "'rare'", "objective.labels", exit_code=4)
    assert not (tmp_path / "run").exists()
    done = minitf("finetune", *ways, "objective.labels=[good, bad, rare]", "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("data.split={folds: 1}", "folds must be a whole number from 2 to 1000, got 1"),
        ("data.split={folds: 5, fold: 6}", "fold must be a whole number from 1 to folds 5, got 6"),
        ("data.split={fold: 6}", "must be a share such as 5%, tail 10%, or {folds: 5}, got a mapping of fold"),
        (
            "data.split={folds: 5, share: 5%}",
            "must be a share such as 5%, tail 10%, or {folds: 5}, got a mapping of folds, share",
        ),
    ],
)
def test_what_is_no_number_of_folds_is_refused(split: str, message: str) -> None:
    refused(minitf("recipe", "check", "quickstart", split), message, exit_code=3)


def test_validation_data_are_refused_beside_folds() -> None:
    done = minitf("recipe", "check", "quickstart", "data.val=python-docs", "data.split={folds: 5}")
    refused(done, "with folds each part of data.train is validation data in turn", exit_code=3)


@pytest.mark.parametrize(
    ("written", "text"), [({"folds": 5}, "5 folds"), ({"folds": 5, "fold": 2}, "fold 2 of 5"), ("tail 10%", "tail 10%")]
)
def test_a_split_is_written_as_it_is_read(written: Any, text: str) -> None:
    given = json.dumps(written) if isinstance(written, dict) else written
    recipe = read("quickstart", [f"data.split={given}"]).recipe
    assert recipe.model_dump(mode="json")["data"]["split"] == written
    assert str(recipe.data.split) == text


def test_statistics_of_folds_are_gates(whole: Path, data: Path) -> None:
    arguments = (*SMALL, f"data.train={data}", "data.split={folds: 3}", "-d", whole)
    assert minitf("finetune", "bert-nano", *arguments, "--assert", "val.accuracy.min>=0").exit_code == 0
    assert minitf("finetune", "bert-nano", *arguments, "--assert", "val.accuracy.std<0").exit_code == 8
