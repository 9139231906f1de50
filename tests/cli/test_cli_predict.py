"""`minitf predict`: a filter from lines or tables to lines of JSON."""

import csv
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_tasks
from commands import evaluated, minitf, refused
from hang import ending
from processes import Command
from safetensors.torch import load_file, save_file
from test_cli_prompt_loop import Typist
from tiny_tasks import NAMES, ODD, OPINIONS
from torch import Tensor

from mini_tf.cli.app import main
from mini_tf.run import tensors


def predicted(*arguments: str | Path, stdin: str = "") -> list[dict[str, Any]]:
    done = minitf("predict", *arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_way_to_give_texts_gives_the_same_lines(classifier: Path, tmp_path: Path) -> None:
    texts = [row["text"] for row in OPINIONS[:40]]
    lines = "".join(f"{text}\n" for text in texts)
    found = predicted(classifier, *texts)
    assert [one["line"] for one in found] == list(range(1, 41))
    assert all(
        one.keys() == {"line", "label", "scores"} and one["scores"].keys() == {"good", "bad", ODD} for one in found
    )
    (tmp_path / "lines.txt").write_text(lines)
    tiny_tasks.opinions(tmp_path / "rows.jsonl", OPINIONS[:40])
    in_json = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    for other in (
        predicted(classifier, stdin=lines),
        predicted(classifier, "--batch-size", "7", stdin=lines),
        predicted(classifier, "-i", "-", stdin=in_json),
        predicted(classifier, "-i", tmp_path / "lines.txt"),
        predicted(classifier, "-i", tmp_path / "rows.jsonl"),
        predicted(classifier, "-i", tmp_path / "lines.txt", "--json"),
    ):
        assert [(one["line"], one["label"]) for one in other] == [(one["line"], one["label"]) for one in found]
        for one, same in zip(other, found, strict=True):
            assert one["scores"] == pytest.approx(same["scores"], abs=1e-5)


def test_empty_lines_are_skipped_and_counted(classifier: Path) -> None:
    done = minitf("predict", classifier, "--batch-size", "2", stdin="fine\n\na dull film\n \n")
    assert done.exit_code == 0
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 3]
    assert done.stderr.count("2 empty lines were skipped") == 1
    refused(minitf("predict", classifier, ""), "argument 1: 'text' is empty")


def test_predictions_of_classes_are_those_that_evaluation_counts(classifier: Path, tmp_path: Path) -> None:
    file = tiny_tasks.opinions(tmp_path / "all.jsonl")
    labels = [one["label"] for one in predicted(classifier, "-i", file)]
    right = np.mean([label == row["label"] for label, row in zip(labels, OPINIONS, strict=True)])
    assert evaluated(classifier, "--data", file)["accuracy"] == pytest.approx(right, abs=1e-12)


def test_predictions_of_tags_are_those_that_evaluation_counts(tagger: Path, tmp_path: Path) -> None:
    rows = [*NAMES[:10], (NAMES[0][0] * 9, NAMES[0][1] * 9), *NAMES[10:]]  # one of them longer than the context
    file = tiny_tasks.names(tmp_path / "all.conll", rows)
    found = predicted(tagger, "-i", file)
    assert [one["words"] for one in found] == [words for words, _ in rows]
    assert [one["line"] for one in found][:2] == [1, 12]
    assert all(len(one["label"]) == len(one["scores"]) == len(one["words"]) for one in found)
    pairs = [
        (given, true)
        for one, (_, tags) in zip(found, rows, strict=True)
        for given, true in zip(one["label"], tags, strict=True)
    ]
    assert evaluated(tagger, "--data", file)["accuracy"] == pytest.approx(
        np.mean([given == true for given, true in pairs]), abs=1e-12
    )


def test_predictions_of_numbers_are_those_that_evaluation_counts(regressor: Path, tmp_path: Path) -> None:
    file = tiny_tasks.opinions(tmp_path / "all.jsonl")
    given = np.array([one["label"] for one in predicted(regressor, "-i", file)])
    figures, true = evaluated(regressor, "--data", file), np.array([row["stars"] for row in OPINIONS])
    assert figures["rmse"] == pytest.approx(np.sqrt(np.mean((given - true) ** 2)), rel=1e-5)
    assert figures["pearson"] == pytest.approx(np.corrcoef(given, true)[0, 1], abs=1e-5)


def with_weights(run: Path, copy: Path, change: Callable[[str, Tensor], Tensor]) -> Path:
    """A copy of a run whose model has other weights, also by its record."""
    shutil.copytree(run, copy)
    weights = {name: change(name, tensor) for name, tensor in load_file(copy / "model.safetensors").items()}
    save_file(weights, copy / "model.safetensors")
    record = json.loads((copy / "run.json").read_text())
    record["model"]["sha256"] = hashlib.sha256((copy / "model.safetensors").read_bytes()).hexdigest()
    (copy / "run.json").write_text(json.dumps(record))
    return copy


def test_weights_and_outputs_that_overflow_are_refused(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms may hide it: they return 0 for a hidden state whose square overflows."""
    large = with_weights(classifier, tmp_path / "large", lambda name, tensor: tensor.sign() * 3e38)
    for command in (("predict", large, "a fine film"), ("evaluate", large), ("export", large, "-o", tmp_path / "out")):
        refused(minitf(*command), "contains values up to 3e+38: hidden states overflow", exit_code=5)
    monkeypatch.setattr(tensors, "LARGEST_WEIGHT", math.inf)
    head = with_weights(
        classifier,
        tmp_path / "head",
        lambda name, tensor: tensor.sign() * 3e38 if name == "head.linear.weight" else tensor,
    )
    refused(minitf("predict", head, "a fine film"), "not finite", "--step N", exit_code=5)
    refused(minitf("evaluate", head), f"the loss of {head} is nan: its outputs are not finite", "--step N", exit_code=5)


def test_a_table_is_read_by_its_columns_and_needs_no_labels(classifier: Path, tmp_path: Path) -> None:
    for name, rows in (("own.csv", [["text", "n"]]), ("other.csv", [["review", "n"]])):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([*rows, *([row["text"], n] for n, row in enumerate(OPINIONS[:5]))])
    own = predicted(classifier, "-i", tmp_path / "own.csv")
    assert [one["line"] for one in own] == [2, 3, 4, 5, 6]
    assert predicted(classifier, "-i", tmp_path / "other.csv", "--fields", "{text: review}") == own
    done = minitf("predict", classifier, "-i", tmp_path / "other.csv")  # as such columns are often called
    assert [json.loads(line) for line in done.stdout.splitlines()] == own
    assert done.stderr == f"{tmp_path / 'other.csv'}: columns read: text = 'review'; --fields selects others\n"
    (tmp_path / "strange.csv").write_text("a,b\nx,y\n")
    refused(minitf("predict", classifier, "-i", tmp_path / "strange.csv"), "strange.csv:1: no column 'text'")


def test_what_cannot_be_answered_is_refused_behind_the_answers_before_it(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a nice room\n\n{\n\na nice song\n")
    for batch in ("1", "2", "9"):
        done = minitf("predict", classifier, "-i", tmp_path / "lines.txt", "--batch-size", batch)
        assert done.exit_code == 4
        assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1]
        assert "lines.txt:3: not valid JSON" in done.stderr
    done = minitf("predict", classifier, "--json", stdin="fine\n{\n")
    assert [json.loads(line).get("ok") for line in done.stdout.splitlines()] == [None, False]
    refused(minitf("predict", classifier, stdin='{"\\u001b[2J": 1}\n'), "'text' is missing")
    refused(minitf("predict", classifier, ""), "argument 1: 'text' is empty")


def test_assert_holds_predictions_to_the_labels_of_the_input(classifier: Path, tmp_path: Path) -> None:
    file = tiny_tasks.opinions(tmp_path / "all.jsonl")
    figures = evaluated(classifier, "--data", file)
    held = ("--assert", f"accuracy>={figures['accuracy'] - 1e-6}", "--assert", f"f1.good>={figures['f1.good'] - 1e-6}")
    done = minitf("predict", classifier, "-i", file, *held)
    assert done.exit_code == 0, done.stderr
    assert f"accuracy {figures['accuracy']:.6g}" in done.stderr
    assert len(done.stdout.splitlines()) == len(OPINIONS)
    missed = minitf("predict", classifier, "-i", file, "--assert", "matthews>1")
    assert (missed.exit_code, len(missed.stdout.splitlines())) == (8, len(OPINIONS))
    refused(minitf("predict", classifier, "text", "--assert", "accuracy>0"), "has no label")
    refused(minitf("predict", classifier, "text", "--assert", "loss<1"), "not a metric of predict", exit_code=2)
    refused(minitf("predict", classifier, "text", "--assert", "f1.nice<1"), "there is no class 'nice'", exit_code=2)
    unknown = tiny_tasks.opinions(tmp_path / "unknown.jsonl", [OPINIONS[0], OPINIONS[1] | {"label": "nice"}])
    done = minitf("predict", classifier, "-i", unknown, "--assert", "accuracy>0")
    assert (done.exit_code, len(done.stdout.splitlines())) == (4, 1)
    assert "unknown.jsonl:2: the label 'nice' is not one of" in done.stderr
    refused(minitf("predict", classifier, "--assert", "accuracy>0"), "there is no text")


def test_texts_come_from_one_place(classifier: Path, tmp_path: Path) -> None:
    refused(minitf("predict", classifier, "text", "-i", tmp_path / "x"), "both texts and --input", exit_code=2)
    refused(minitf("predict", classifier, "-i", tmp_path / "none.csv"), "none.csv: no such file")
    refused(minitf("predict", classifier, "-i", tmp_path / "none.txt"), "none.txt: No such file")
    assert predicted(classifier, stdin="") == []


def test_a_pipe_is_answered_line_by_line_until_nobody_reads(classifier: Path) -> None:
    asked, asking = os.pipe()
    answered, answering = os.pipe()

    def leave_the_other_ends() -> None:
        os.close(asking)
        os.close(answered)

    process = Command(
        ["predict", str(classifier)],
        os.environ,
        stdin=asked,
        stdout=answering,
        stderr=subprocess.PIPE,
        prepare=leave_the_other_ends,
    )
    os.close(asked)
    os.close(answering)
    with ending(), open(asking, "w") as stdin:
        with open(answered) as stdout:
            for number, text in enumerate(("a nice soup", "a dull walk"), 1):
                print(text, file=stdin, flush=True)
                assert json.loads(stdout.readline())["line"] == number
        print("a nice song", file=stdin, flush=True)
        assert process.wait() == 141
    with process.output[2] as stderr:
        stderr.seek(0)
        assert stderr.read() == ""


def test_processes_of_a_launcher_check_no_assertions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a part of the predictions."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    done = minitf("predict", "outputs/none", "a text", "--assert", "accuracy>0.5")
    refused(
        done, "several processes do not combine with --assert, which needs all predictions in one process", exit_code=2
    )


def at_terminal(*arguments: str | Path) -> list[str]:
    """What `minitf predict` prints where stdout is a terminal of 60 columns, from an empty stdin."""
    screen = Typist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        patch.setattr(sys, "stdout", screen)
        with pytest.raises(SystemExit) as leaving:
            main(["predict", *map(str, arguments)])
    assert leaving.value.code == 0
    return screen.getvalue().splitlines()


def test_a_terminal_gets_a_table_and_json_where_it_is_asked_for(classifier: Path) -> None:
    texts = ("a nice soup", "a dull walk\nof a very long sentence that does not fit at all")
    json_lines = predicted(classifier, *texts)
    header, *rows = at_terminal(classifier, *texts)
    assert header.split() == ["line", "label", "probability", "text"]
    assert [row.split()[:3] for row in rows] == [
        [str(one["line"]), one["label"], f"{one['scores'][one['label']]:.4f}"] for one in json_lines
    ]
    assert [row[header.index("text") :] for row in rows] == ["a nice soup", "a dull walk↵of a very lon…"]
    assert max(map(len, rows)) == 60
    assert [json.loads(line) for line in at_terminal(classifier, *texts, "--json")] == json_lines
    assert at_terminal(classifier) == []


def test_a_table_has_thresholds_the_most_probable_classes_words_and_numbers(
    classifier: Path, tagger: Path, regressor: Path
) -> None:
    [one] = predicted(classifier, "a nice soup", "--top", "2")
    _, row = at_terminal(classifier, "a nice soup", "--top", "2", "--threshold", "1")
    most_probable = ", ".join(f"{of['label']} {of['score']:.2f}" for of in one["top"])
    assert row.split()[:2] == ["1", "-"]
    assert most_probable in row
    [tags] = predicted(tagger, "Maria flew home")
    _, *rows = at_terminal(tagger, "Maria flew home")
    assert [row.split()[-3:] for row in rows] == [
        [tag, f"{p:.4f}", word] for word, tag, p in zip(tags["words"], tags["label"], tags["scores"], strict=True)
    ]
    assert [row.split()[0] for row in rows][:1] == ["1"]
    [number] = predicted(regressor, "a nice soup")
    assert at_terminal(regressor, "a nice soup")[1].split() == ["1", f"{number['label']:.6g}", "a", "nice", "soup"]
