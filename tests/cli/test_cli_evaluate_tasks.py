"""`minitf evaluate` on runs of tasks: their figures, gates on them, pictures, and files of another layout."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tasks
from commands import minitf, refused, trained
from hostile import STEERING
from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef
from tiny_tasks import NAMES, ODD, OPINIONS

CLASSES = ["bad", "good", ODD]


def evaluated(*arguments: str | Path) -> dict[str, Any]:
    done = minitf("evaluate", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def labels_given(run: Path, file: Path) -> list[str]:
    done = minitf("predict", run, "-i", file)
    return [json.loads(line)["label"] for line in done.stdout.splitlines()]


def test_figures_and_confusions_of_classes_are_those_of_scikit_learn(classifier: Path, tmp_path: Path) -> None:
    file, picture = tiny_tasks.opinions(tmp_path / "all.jsonl"), tmp_path / "confusion.json"
    answer = evaluated(
        classifier, "--data", file, "--confusion", picture, "--calibration", tmp_path / "calibration.json"
    )
    metrics, true, given = answer["metrics"], [row["label"] for row in OPINIONS], labels_given(classifier, file)
    assert metrics["f1_macro"] == pytest.approx(f1_score(true, given, average="macro", zero_division=0))
    assert metrics["f1_micro"] == pytest.approx(f1_score(true, given, average="micro"))
    assert metrics["matthews"] == pytest.approx(matthews_corrcoef(true, given))
    by_class = f1_score(true, given, labels=CLASSES, average=None, zero_division=0)
    assert [metrics[f"f1.{name}"] for name in CLASSES] == pytest.approx(by_class.tolist())
    assert (metrics["targets"], metrics["split"]) == (len(OPINIONS), "data")
    assert json.loads(picture.read_text()) == answer["result"]["confusion"]
    assert answer["result"]["confusion"] == {
        "names": CLASSES,
        "counts": confusion_matrix(true, given, labels=CLASSES).tolist(),
    }
    calibration = json.loads((tmp_path / "calibration.json").read_text())
    assert sum(calibration["counts"]) == len(OPINIONS)
    right = sum(n * share for n, share in zip(calibration["counts"], calibration["accuracy"], strict=True) if n)
    assert right == pytest.approx(metrics["accuracy"] * len(OPINIONS))


def test_pictures_are_written_and_a_few_classes_are_shown_without_a_file(classifier: Path, tmp_path: Path) -> None:
    shown = minitf("evaluate", classifier)
    assert shown.exit_code == 0
    assert "share of the true class (hundredths)" in shown.stdout
    assert not set(shown.stdout) & (set(STEERING) - {"\n"}), "the name of a class steers nothing"
    assert len([line for line in shown.stdout.splitlines() if line.startswith("f1.")]) == 3, (
        "nor does it look like two figures"
    )
    png, svg = tmp_path / "confusion.png", tmp_path / "calibration.svg"
    done = minitf("evaluate", classifier, "--confusion", png, "--calibration", svg)
    assert done.exit_code == 0, done.stderr
    assert "share of the true class" not in done.stdout
    assert "run run, step 30, val</text>" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().startswith("<?xml")
    assert minitf("evaluate", classifier, "--confusion", png).exit_code == 0  # minitf has drawn it
    png.write_bytes(b"of another tool")
    refused(minitf("evaluate", classifier, "--confusion", png), f"--confusion {png}: exists", exit_code=2)
    assert minitf("evaluate", classifier, "--confusion", png, "--force").exit_code == 0
    refused(
        minitf("evaluate", classifier, "--calibration", "a.gif"), "--calibration a.gif: its suffix must be", exit_code=2
    )
    refused(
        minitf("evaluate", classifier, "--confusion", svg, "--calibration", svg, "--force"),
        "name the same file",
        exit_code=2,
    )


def test_confusions_of_tags_are_counted_by_word(tagger: Path, tmp_path: Path) -> None:
    rows = [*NAMES, (NAMES[0][0] * 9, NAMES[0][1] * 9)]
    file = tiny_tasks.names(tmp_path / "all.conll", rows)
    answer = evaluated(tagger, "--data", file, "--confusion", tmp_path / "tags.png")
    given = [tag for tags in labels_given(tagger, file) for tag in tags]
    true = [tag for _, tags in rows for tag in tags]
    names = ["B-LOC", "B-PER", "O"]
    assert answer["result"]["confusion"] == {
        "names": names,
        "counts": confusion_matrix(true, given, labels=names).tolist(),
    }
    assert {"entity_f1", "entity_precision", "entity_recall", "entity_f1.PER", "accuracy", "loss"} <= answer[
        "metrics"
    ].keys()
    assert evaluated(tagger)["result"] is None
    of_words = evaluated(tagger, "--data", file, "--calibration", tmp_path / "c.json")["result"]["calibration"]
    assert sum(of_words["counts"]) == len(true)


def test_plots_of_classes_are_refused_for_numbers(regressor: Path, tmp_path: Path) -> None:
    for option, needed in (("--calibration", "classes or tags"), ("--confusion", "classes or tags")):
        done = minitf("evaluate", regressor, option, tmp_path / "c.png")
        refused(done, f"{option} needs {needed}, but run was trained with the objective regress", exit_code=2)


def test_gates_hold_tasks_to_their_own_figures(classifier: Path, regressor: Path, tagger: Path) -> None:
    assert (
        minitf(
            "evaluate", classifier, "--assert", "f1_macro>=0", "--assert", "f1.good<=1", "--assert", "loss<9"
        ).exit_code
        == 0
    )
    missed = minitf("evaluate", classifier, "--assert", "matthews>1", "--assert", "f1.bad>1")
    assert missed.exit_code == 8
    assert "matthews is " in missed.stderr
    assert "f1.bad is " in missed.stderr
    assert (
        minitf(
            "evaluate", regressor, "--assert", "rmse<99", "--assert", "pearson<=1", "--assert", "spearman<=1"
        ).exit_code
        == 0
    )
    assert minitf("evaluate", tagger, "--assert", "entity_f1<=1", "--assert", "entity_f1.PER<=1").exit_code == 0
    for run, gate, told in (
        (classifier, "rmse<1", "not a metric of evaluate; available: loss, accuracy, f1_macro"),
        (regressor, "accuracy>0", "not a metric of evaluate"),
        (tagger, "perplexity>0", "not a metric of evaluate"),
        (tagger, "f1_macro>0", "not a metric of evaluate"),
        (tagger, "entity_f1.ORG>0", "there is no class 'ORG'"),
        (classifier, "f1.god>0", "there is no class 'god'"),
    ):
        refused(minitf("evaluate", run, "--assert", gate), told, exit_code=2)


def test_what_training_will_not_measure_is_told_once_the_labels_are_known(tmp_path: Path) -> None:
    tags, classes = tiny_tasks.names(tmp_path / "names.conll"), tiny_tasks.opinions(tmp_path / "opinions.jsonl")
    for file, kind, gate, told in (
        (tags, "tag", "val.f1_macro>0", "not a metric of training; available: val.loss, val.accuracy, val.entity_f1"),
        (tags, "tag", "val.entity_f1.ORG>0", "there is no class 'ORG'"),
        (classes, "classify", "val.f1.god>0", "there is no class 'god'"),
    ):
        for seeds in (1, 2):
            asked = (
                f"data={{train: '{file}', split: 20%}}",
                f"objective.kind={kind}",
                f"train.seeds={seeds}",
                "--assert",
                gate,
            )
            refused(
                minitf("pretrain", "bert-nano", *tiny_tasks.SMALL, *asked, "-d", tmp_path / "run"), told, exit_code=2
            )
    assert not (tmp_path / "run").exists()


def test_a_file_of_another_layout_is_read_by_fields(classifier: Path, tmp_path: Path) -> None:
    own = evaluated(classifier, "--data", tiny_tasks.opinions(tmp_path / "own.jsonl"))["metrics"]
    with (tmp_path / "bare.csv").open("w", newline="") as file:
        csv.writer(file).writerows([row["label"], "x", row["text"]] for row in OPINIONS)
    with (tmp_path / "headed.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["stars", "review"], *([row["label"], row["text"]] for row in OPINIONS)])
    for name, fields in (("bare.csv", "{text: 2, label: 0}"), ("headed.csv", "{text: review, label: stars}")):
        assert evaluated(classifier, "--data", tmp_path / name, "--fields", fields)["metrics"] == pytest.approx(own)
    refused(minitf("evaluate", classifier, "--fields", "{text: 2, label: 0}"), "used without --data", exit_code=2)
    done = minitf("evaluate", classifier, "--data", tmp_path / "bare.csv", "--fields", "{words: 2}")
    refused(done, "unknown column role 'words'", exit_code=3)
    (tmp_path / "bare.csv").write_text("good,x,a nice room\nnice,x,a nice room\n")
    refused(
        minitf("evaluate", classifier, "--data", tmp_path / "bare.csv", "--fields", "{text: 2, label: 0}"),
        "bare.csv:2: the label 'nice'",
    )


def test_a_run_of_two_files_is_judged_by_a_table_of_other_columns(tmp_path: Path) -> None:
    pairs = [(f"{n} cats", f"{n} neko") for n in range(40)]
    for side, name in enumerate(("en", "xx")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    nano = "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2}"
    data = f"data={{train: {{source: {tmp_path}/en, target: {tmp_path}/xx}}}}"
    small = (
        "train={steps: 2, batch_size: 4, context: 16}",
        "tokenizer={kind: char}",
        "eval.translations=0",
        "generate.max_new_tokens=6",
    )
    run = trained(tmp_path / "run", data, nano, *small, recipe="transformer-nano")
    (tmp_path / "t.csv").write_text("english,other\n" + "".join(f"{a},{b}\n" for a, b in pairs[:8]))
    (tmp_path / "en2").write_text("".join(f"{a}\n" for a, _ in pairs[:8]))
    (tmp_path / "xx2").write_text("".join(f"{b}\n" for _, b in pairs[:8]))
    table = evaluated(run, "--data", tmp_path / "t.csv", "--fields", "{source: english, target: other}")["metrics"]
    assert table == evaluated(run, "--data", f"{{source: {tmp_path}/en2, target: {tmp_path}/xx2}}")["metrics"]
    refused(minitf("evaluate", run, "--data", tmp_path / "t.csv"), "no column 'source'")
    two = ("--data", f"{{source: {tmp_path}/en2, target: {tmp_path}/xx2}}")
    fields = ("--fields", "{source: english, target: other}")
    refused(minitf("evaluate", run, *two, *fields), "--fields: parallel files have no columns; remove it", exit_code=3)


def test_what_cannot_be_other_data_is_told_by_its_option(classifier: Path) -> None:
    for data, said in {
        "": "--data : must be text, a list of texts",
        "{source: a, target: b}": "--data: classify needs a table, not pairs; ",
        "{source: }": "--data {source: }: source: must be text",
        "[a": "--data: not YAML",
    }.items():
        refused(minitf("evaluate", classifier, "--data", data), said, exit_code=3)


def test_figures_of_a_side_of_the_run_are_those_that_training_told(classifier: Path) -> None:
    record = json.loads((classifier / "run.json").read_text())["metrics"]
    figures = evaluated(classifier, "--step", "last")["metrics"]
    assert {name: figures[name] for name in ("accuracy", "f1_macro", "matthews")} == pytest.approx(
        {name: record[f"val.{name}"] for name in ("accuracy", "f1_macro", "matthews")}
    )
    assert evaluated(classifier, "--split", "train")["metrics"]["targets"] + figures["targets"] == len(OPINIONS)
    assert np.isfinite(figures["loss"])
