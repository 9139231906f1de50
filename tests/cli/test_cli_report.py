"""`minitf runs report`: the page of runs has what their folders have."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import minitf, refused, trained
from page_files import contents_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs that differ in the seed, with evaluations and samples."""
    folder, keys = (
        tmp_path_factory.mktemp("runs"),
        ("train.steps=4", "eval.every_steps=2", "eval.tokens=64", "log.samples=1"),
    )
    return [trained(folder / name, *keys, f"train.seed={seed}") for seed, name in enumerate(("one", "two"))]


def page_of(tmp_path: Path, *arguments: str | Path) -> dict[str, Any]:
    done = minitf("runs", "report", *arguments, "-o", tmp_path / "report.html", "--force")
    assert done.exit_code == 0, done.stderr
    return contents_of((tmp_path / "report.html").read_bytes())


def test_a_report_has_what_the_folders_of_the_runs_have(runs: list[Path], tmp_path: Path) -> None:
    contents = page_of(tmp_path, *runs, "--text", "the cat")
    assert (contents["title"], contents["opens"]) == ("Runs one, two", "/b1")
    by_step = contents["curves"][0]
    for run, scene in zip(runs, contents["scenes"], strict=True):
        record = json.loads((run / "run.json").read_text())
        tables = {table["title"]: table["rows"] for table in scene["tables"]}
        assert {row[0]: row[1] for row in tables["metrics"]} == {
            name: f"{value:.3f}" for name, value in record["metrics"].items()
        }
        settings = dict(tables["settings that differ from the defaults"])
        assert (settings["train.steps"], settings["model.d_model"]) == ("4", str(record["decides"]["model.d_model"]))
        assert settings.get("train.seed") == (None if run.name == "one" else "1")
        assert not settings.keys() & {"optimizer.eps", "model.norm_eps"}
        [line] = [line["y"] for line in by_step["lines"] if line["name"] == f"{run.name}, validation"]
        reports = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        recorded = {report["step"]: report["val.loss"] for report in reports if "val.loss" in report}
        assert {x: y for x, y in zip(by_step["x"], line, strict=True) if y is not None} == recorded
        assert [one["name"] for one in scene["maps"]] == ["L0H0", "L0H1", "L1H0", "L1H1"]
    assert {curve["title"] for curve in contents["curves"]} == {
        "loss by step",
        "loss by FLOPs",
        "loss by training time, s",
    }


def test_a_report_of_one_run_compares_nothing_and_draws_no_heads(runs: list[Path], tmp_path: Path) -> None:
    contents = page_of(tmp_path, runs[0])
    assert contents["title"] == "Run one"
    assert [curve["title"] for curve in contents["curves"]] == ["loss by step"]
    assert [table["headers"][0] for table in contents["tables"]] == ["run"]
    assert contents["scenes"][0]["maps"] == []


def test_a_run_without_heads_is_reported_without_maps(tmp_path: Path) -> None:
    model = "model={kind: decoder, d_model: 32, n_layers: 1, n_heads: 1, attention: sru, positions: none}"
    run = trained(tmp_path / "sru", "train.steps=1", model)
    done = minitf("runs", "report", run, "--text", "the cat", "-o", tmp_path / "report.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "sru has no attention heads: its layers are sru" in done.stderr
    assert contents_of((tmp_path / "report.html").read_bytes())["scenes"][0]["maps"] == []


def test_a_report_needs_a_file(runs: list[Path], tmp_path: Path) -> None:
    refused(minitf("runs", "report", runs[0]), "a report is a file", "-o report.html", exit_code=2)
    refused(minitf("runs", "report", runs[0], "-o", tmp_path / "a.png"), "its suffix must be .html", exit_code=2)
    (tmp_path / "old.html").write_text("of another tool")
    refused(minitf("runs", "report", runs[0], "-o", tmp_path / "old.html"), "exists; --force", exit_code=2)


def test_a_text_is_noted_where_it_is_cut_and_refused_if_not_utf_8(runs: list[Path], tmp_path: Path) -> None:
    done = minitf("runs", "report", runs[0], "--text", "the cat heard " * 60, "-o", tmp_path / "report.html")
    [note] = contents_of((tmp_path / "report.html").read_bytes())["notes"]
    assert note.startswith("one: the text has ")
    assert "is truncated to" in note
    assert note in done.stderr
    refused(minitf("runs", "report", runs[0], "--text", "\udcff", "-o", tmp_path / "b.html"), "not UTF-8", exit_code=2)
    assert not (tmp_path / "b.html").exists()


def test_a_sample_that_is_no_file_is_refused_and_not_waited_for(runs: list[Path], tmp_path: Path) -> None:
    shutil.copytree(runs[0], run := tmp_path / "run")
    os.mkfifo(run / "samples" / "step-00000009.txt")
    refused(minitf("runs", "report", run, "-o", tmp_path / "a.html"), "is a pipe, not a plain file", exit_code=6)
