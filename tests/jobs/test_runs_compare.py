"""`minitf runs compare`, and that list, show and compare say the same of real runs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import ROOT, minitf, record, refused, tiny_model, trained

FEW = ("train.context=16", "train.batch_size=4", "data.split=2%")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bytes, longer: of 4 and 6 steps; tokens: with another tokenizer. To be read only."""
    folder = tmp_path_factory.mktemp("compare") / "outputs"
    trained(folder / "bytes", "train.steps=4", *FEW, "eval.every_steps=2", "log.every_steps=1")
    trained(folder / "longer", "train.steps=6", *FEW, "eval.every_steps=2", "log.every_steps=1")
    trained(folder / "tokens", "train.steps=4", *FEW, "tokenizer={kind: bpe, vocab_size: 300}", "eval.every_steps=2")
    return folder


def compared(*words: str | Path) -> dict[str, object]:
    done = minitf("runs", "compare", *words, "--json")
    assert done.exit_code == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)["result"]
    return result


def test_figures_stand_side_by_side_with_their_difference_and_the_keys_that_differ(runs: Path) -> None:
    one, other = runs / "bytes", runs / "longer"
    shown = minitf("runs", "compare", one, other).stdout
    losses = [record(run)["metrics"]["val.loss"] for run in (one, other)]  # type: ignore[index]
    assert re.search(
        rf"^val\.loss +{losses[0]:.4f} +{losses[1]:.4f} +{losses[1] - losses[0]:+.4f}$", shown, re.MULTILINE
    )
    assert re.search(r"^train\.steps +4 +6$", shown, re.MULTILINE)
    result = compared(one, other)
    sizes = [model["vocabulary"] for model in result["models"]]  # type: ignore[attr-defined]
    assert re.search(rf"^vocabulary +{sizes[0]} +{sizes[1]}$", shown, re.MULTILINE)
    assert result["keys"] == {"train.steps": [4, 6]}
    assert result["figures"]["val.loss"] == losses  # type: ignore[index]
    assert result["same_unit"] is True


def test_the_vocabulary_is_that_of_the_tokenizer_and_what_a_run_started_from_is_named(
    runs: Path, tmp_path: Path
) -> None:
    started = trained(tmp_path / "started", "train.steps=1", f"model.init_from={runs / 'bytes'}")
    facts = compared(started, runs / "tokens")["models"]
    assert [one["model.init_from"] for one in facts] == [str(runs / "bytes"), None]  # type: ignore[attr-defined]
    sizes = [
        len(json.loads((run / "tokenizer.json").read_text())["model"]["vocab"]) for run in (started, runs / "tokens")
    ]
    assert [one["vocabulary"] for one in facts] == sizes  # type: ignore[attr-defined]
    shown = minitf("runs", "compare", started, runs / "tokens").stdout
    assert re.search(r"^model\.init_from +bytes$", shown, re.MULTILINE)


def test_damaged_lines_of_metrics_are_counted(runs: Path, tmp_path: Path) -> None:
    """A partial last line is none: a process was killed while it wrote it."""
    run = Path(shutil.copytree(runs / "bytes", tmp_path / "run"))
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    for inserted, message in (([b"[1]\n", b'{"step": 2\n'], "warning: {}: 2 damaged lines are left out\n"), ([], "")):
        (run / "metrics.jsonl").write_bytes(b"".join([*lines[:2], *inserted, *lines[2:], b'{"step": 9, "lo']))
        expected = message.format(run / "metrics.jsonl")
        for command in (("compare", runs / "longer", run), ("show", run)):
            assert [
                line for line in minitf("runs", *command).stderr.splitlines(keepends=True) if "damaged" in line
            ] == [expected][: bool(message)]


def test_losses_in_other_units_are_not_subtracted(runs: Path) -> None:
    done = minitf("runs", "compare", runs / "bytes", runs / "tokens")
    assert "not comparable, since objectives, units or tokenizers differ" in done.stderr
    [loss] = re.findall(r"^val\.loss.*$", done.stdout, re.MULTILINE)
    [bits] = re.findall(r"^val\.bits_per_byte.*$", done.stdout, re.MULTILINE)
    assert (len(loss.split()), len(bits.split())) == (3, 4)
    assert "nats per byte" in done.stdout
    assert "nats per token" in done.stdout


def test_the_picture_and_the_numbers_go_into_files_and_nothing_is_drawn(runs: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("c.png", "c.svg", "c.json")]
    done = minitf(
        "runs",
        "compare",
        *(runs / name for name in ("bytes", "longer", "tokens")),
        *(x for file in files for x in ("-o", file)),
    )
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert files[0].read_bytes().startswith(b"\x89PNG")
    drawn = ElementTree.parse(files[1]).getroot()
    assert drawn.tag.endswith("svg")
    assert len(json.loads(files[2].read_text())["runs"]) == 3


def test_list_show_and_compare_say_the_same(runs: Path) -> None:
    listed = {one["name"]: one for one in json.loads(minitf("runs", "list", runs, "--json").stdout)["result"]}
    for fact in compared(runs / "bytes", runs / "tokens")["runs"]:  # type: ignore[attr-defined]
        shown = json.loads(minitf("runs", "show", runs / fact["name"], "--json").stdout)["result"]
        assert fact == listed[fact["name"]]
        assert fact.items() <= shown.items()
    assert listed["bytes"]["parameters"] == 33_056
    assert [listed[name]["loss_unit"] for name in ("bytes", "tokens")] == ["nats per byte", "nats per token"]


def test_units_are_those_of_characters_and_of_labels_too(tmp_path: Path, classifier: Path, regressor: Path) -> None:
    run = trained(tmp_path / "run", "train.steps=1", tiny_model("encoder"), "tokenizer.kind=char")
    units = [record(one)["loss_unit"] for one in (run, classifier, regressor)]
    assert units == ["nats per character", "nats per label", "unexplained variance"]


def test_one_run_and_an_unknown_one_are_refused(runs: Path) -> None:
    refused(
        minitf("runs", "compare", runs / "bytes"),
        "one run given, at least two needed",
        "minitf runs compare",
        exit_code=2,
    )
    refused(minitf("runs", "compare", runs / "bytes", "nowhere"), "no such run: nowhere", exit_code=5)


def test_comparing_needs_no_torch(runs: Path) -> None:
    code = f"""import sys
from mini_tf.cli.app import main
try: main(["runs", "compare", {str(runs / "bytes")!r}, {str(runs / "longer")!r}])
finally: assert "torch" not in sys.modules"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
