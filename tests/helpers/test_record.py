"""The record of behaviour says what differs and only that, and it leaves no kind and no command out."""

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import typer
from commands import DATA, minitf
from record.__main__ import main
from record.commands import COMMANDS
from record.compare import differences, leaves, other_machine
from record.making import fact, tensors
from record.runs import RUNS, needed
from safetensors.numpy import save, save_file

from mini_tf.cli.app import app

METRICS = [{"step": 5, "loss": 2.5, "lr": 0.1}, {"step": 10, "loss": 2.25, "lr": 0.05}]


def said(line: str, stdout: str = "", stderr: str = "", exit_code: int = 0) -> dict[str, Any]:
    return {"line": line, "exit_code": exit_code, "stdout": stdout, "stderr": stderr}


def text(content: str) -> dict[str, str]:
    return {"sha256": f"hash of {content}", "text": content}


def metrics(*lines: dict[str, float]) -> dict[str, str]:
    return text("".join(json.dumps(line) + "\n" for line in lines))


def weights(**hashes: str) -> dict[str, Any]:
    return {"sha256": f"hash of {hashes}", "tensors": hashes}


def record() -> dict[str, Any]:
    """A small one, written by hand."""
    files = {
        "metrics.jsonl": metrics(*METRICS),
        "model.safetensors": weights(head="a", stack="b", norm="c"),
        "loss.svg": {},
    }
    progress = "data: not in the cache (03ba69b1865d)\nstep 5/9 | loss 2.5 | 3.1k tok/s | ETA 0:03\n"
    return {
        "commit": "c0ffee", "machine": {"torch": "2.13.0", "processor": "one"},
        "runs": {"text": {"said": [said("pretrain text.yaml", "<dir>/outputs/text-0dab39\n", progress)],
            "files": files}},
        "commands": {
            "greedy": {"said": [said("generate text", "the king\nthe dog\n")], "files": {}},
            "missed": {"said": [said("evaluate text --json", '{"ok": false, "loss": 2.25, "minutes": 0.1}\n', "no\n",
                8)], "files": {}},
        },
    }  # fmt: skip


def found(after: dict[str, Any], partial: bool = False) -> list[str]:
    return [f"{name}: {what}" for name, what in differences(record(), after, partial)]


def test_a_record_does_not_differ_from_itself() -> None:
    assert found(record()) == []


def test_ids_times_and_store_hashes_are_no_differences_and_what_stands_beside_them_is() -> None:
    after = record()
    ours = after["runs"]["text"]["said"][0]
    ours["stdout"] = "<dir>/outputs/text-ffffff\n"
    ours["stderr"] = "data: not in the cache (aaaaaaaaaaaa)\nstep 5/9 | loss 2.5 | 2k tok/s\n"
    after["commands"]["missed"]["said"][0]["stdout"] = '{"ok": false, "loss": 2.25, "minutes": 7.5e-2}\n'
    assert found(after) == []
    ours["stderr"] = "data: not in the cache (aaaaaaaaaaaa)\nstep 5/9 | loss 2.6 | 3k tok/s\n"
    after["commands"]["missed"]["said"][0]["stdout"] = '{"ok": false, "loss": 2.5, "minutes": 7.5e-2}\n'
    assert found(after) == [
        (
            "run text: `pretrain text.yaml`: stderr line 2: 'step 5/9 | loss 2.5 | N tok/s' -> 'step 5/9 | loss 2.6 | N"
            " tok/s'"
        ),
        "command missed: `evaluate text --json`: stdout line 1: loss 2.25 -> 2.5",
    ]


def test_the_first_line_of_metrics_that_differs_is_told_by_its_values() -> None:
    after = record()
    after["runs"]["text"]["files"]["metrics.jsonl"] = metrics(
        METRICS[0], {"step": 10, "loss": 2.5, "lr": 0.05, "grad_norm": 1.0}
    )
    assert found(after) == ["run text: metrics.jsonl: line 2: loss 2.25 -> 2.5, grad_norm absent -> 1.0"]
    after["runs"]["text"]["files"]["metrics.jsonl"] = metrics(METRICS[0])
    assert found(after) == ['run text: metrics.jsonl: line 2: is gone: \'{"step": 10, "loss": 2.25, "lr": 0.05}\'']


def test_tensors_that_differ_or_have_another_name_are_told() -> None:
    after = record()
    after["runs"]["text"]["files"]["model.safetensors"] = weights(head="a", stack="B", scale="c")
    assert found(after) == ["run text: model.safetensors: 1 of 2 tensors differ: stack; gone: norm; new: scale"]
    after["runs"]["text"]["files"]["model.safetensors"] = {
        **weights(head="a", stack="b", norm="c"),
        "sha256": "in another order",
    }
    assert found(after) == ["run text: model.safetensors: equal tensors, other bytes"]


def test_a_file_more_or_less_is_told() -> None:
    after = record()
    after["runs"]["text"]["files"] = {"samples/step-1.txt": text("Once"), **after["runs"]["text"]["files"]}
    del after["runs"]["text"]["files"]["loss.svg"]
    assert found(after) == ["run text: loss.svg: is gone", "run text: samples/step-1.txt: is new"]


def test_what_a_command_prints_and_its_exit_code_are_compared() -> None:
    after = record()
    after["commands"]["greedy"]["said"] = [
        said("generate text", "the king\nthe fox\nand\n", "warning: cut\n", exit_code=2)
    ]
    assert found(after) == [
        "command greedy: `generate text`: exit code 0 -> 2",
        "command greedy: `generate text`: stdout line 2: 'the dog' -> 'the fox' (2 of 3 lines differ)",
        "command greedy: `generate text`: stderr line 1: is new: 'warning: cut'",
    ]
    after["commands"]["greedy"] = record()["commands"]["greedy"]
    after["commands"]["missed"]["said"].append(said("evaluate text"))
    assert found(after) == ["command missed: 1 command lines -> 2"]


def test_a_difference_far_behind_in_a_long_line_is_shown() -> None:
    after = record()
    before, long = record(), "x" * 5000
    before["commands"]["greedy"]["said"][0]["stdout"] = f"{long}king{long}"
    after["commands"]["greedy"]["said"][0]["stdout"] = f"{long}dog{long}"
    [(name, what)] = differences(before, after)
    assert name == "command greedy"
    assert "xxxking" in what
    assert "xxxdog" in what
    assert len(what) < 400


def test_what_only_one_record_has_is_told_unless_a_part_was_made() -> None:
    after = record()
    after["commands"]["new"] = after["commands"].pop("greedy")
    assert found(after) == ["command greedy: only in the record before", "command new: only in the record after"]
    assert found(after, partial=True) == []


def test_values_of_a_line_of_json_are_named_by_their_keys() -> None:
    assert leaves('{"a": {"b": [1, {"c": null}]}, "d": {}, "e": []}') == {
        "a.b.0": "1",
        "a.b.1.c": "null",
        "d": "{}",
        "e": "[]",
    }
    assert leaves("a line") == leaves("[1]") == leaves("{broken") == {}


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    """Two files that are equal records."""
    files = tmp_path / "before.json", tmp_path / "after.json"
    for file in files:
        file.write_text(json.dumps(record()))
    return files


def test_two_records_are_compared_by_exit_code_and_lines(
    written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--compare", *map(str, written)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "0 of 1 runs and 0 of 2 commands differ"
    after = record()
    after["commands"]["missed"]["said"][0] |= {
        "exit_code": 1,
        "stdout": '{"ok": false, "\\u001b[2J": 1, "loss": 2.25, "minutes": 1}\n',
    }
    written[1].write_text(json.dumps(after))
    assert main(["--compare", *map(str, written)]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        "command missed: `evaluate text --json`: exit code 8 -> 1",
        r"command missed: `evaluate text --json`: stdout line 1: \x1b[2J absent -> 1",
        "0 of 1 runs and 1 of 2 commands differ",
    ]


def test_of_one_run_few_lines_are_told_and_how_many_more_there_are(
    written: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    after = record()
    after["runs"]["text"]["files"] |= {f"samples/{number}.txt": text("Once") for number in range(8)}
    written[1].write_text(json.dumps(after))
    assert main(["--compare", *map(str, written)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [f"run text: samples/{number}.txt: is new" for number in range(5)]
    assert lines[5:7] == ["run text: 3 more", "1 of 1 runs and 0 of 2 commands differ"]


def test_a_record_of_another_machine_is_refused_before_anything_is_trained(
    written: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("record.__main__.make", lambda *_: pytest.fail("trained"))
    assert main(["--compare", str(written[0])]) == 2
    assert "another machine: processor: one -> " in capsys.readouterr().out
    here = {"torch": "2.13.0", "processor": "one"}
    assert other_machine(here, copy.deepcopy(here)) == []
    assert other_machine(here, {"torch": "2.14.0", "processor": "one", "cores": 2}) == [
        "cores: None -> 2",
        "torch: 2.13.0 -> 2.14.0",
    ]


def test_a_record_is_not_overwritten(written: tuple[Path, Path]) -> None:
    before = written[0].read_bytes()
    with pytest.raises(SystemExit) as leaving:
        main([str(written[0])])
    assert leaving.value.code == 2
    assert written[0].read_bytes() == before


def test_tensors_are_told_apart_by_type_shape_and_bytes() -> None:
    """Against the library that writes the files."""
    row = numpy.arange(6, dtype=numpy.float32)
    given = {"one": row.reshape(2, 3), "same": row.reshape(2, 3), "flat": row, "other": row.reshape(2, 3) + 1}
    told = tensors(save(given, {"format": "np"}))
    assert told.keys() == given.keys()
    assert told["one"] == told["same"]
    assert len({*told.values()}) == 3
    assert told["one"].startswith("F32 [2, 3] ")


def test_the_run_id_in_a_file_of_tensors_is_no_difference(tmp_path: Path) -> None:
    facts = []
    for number, (run_id, run) in enumerate(
        [("0dab39ffffff", "text"), ("c0ffeec0ffee", "text"), ("0dab39ffffff", "stream")]
    ):
        file = tmp_path / f"{number}.safetensors"
        save_file({"map": numpy.ones((2, 2))}, file, {"model": json.dumps({"run": run, "run_id": run_id})})
        facts.append(fact(file, tmp_path))
    one, other_id, other_run = facts
    assert one == other_id
    assert one["sha256"] != other_run["sha256"]
    assert one["tensors"] == other_run["tensors"]


def test_the_hash_of_a_model_is_that_of_its_file(tmp_path: Path) -> None:
    file = DATA / "formats" / "1" / "model.safetensors"
    assert fact(file, tmp_path)["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_paths_play_no_part_in_a_file_and_pictures_are_only_there(tmp_path: Path) -> None:
    positions = tmp_path / "a", tmp_path / "b"
    for place in positions:
        place.mkdir()
        (place / "links.txt").write_text(f"train: {place}/tiny.txt\n")
        (place / "loss.svg").write_bytes(place.name.encode())
    one, other = ({name: fact(place / name, place) for name in ("links.txt", "loss.svg")} for place in positions)
    assert one == other
    assert one["links.txt"]["text"] == "train: <dir>/tiny.txt\n"
    assert one["loss.svg"] == {}


def test_a_run_brings_those_that_it_begins_with() -> None:
    assert needed("predict tag") == {"tag", "spans"}
    assert needed("generate chats '{}'") == {"chats", "stream"}
    assert needed("recipe list") == set()


def test_every_kind_is_in_some_run() -> None:
    """Of models, mixers, positions, objectives, tokenizers, optimizers, schedules and corpora; a new one wants a place
    in a run.
    """
    lines = (line for command in COMMANDS.values() for line in command.lines)  # corpora are in commands
    written = set(re.findall(r"\w+", " ".join([*(run.recipe for run in RUNS.values()), *lines])))
    keys = json.loads(minitf("recipe", "keys", "--json").stdout)["result"]
    listed = {
        name
        for key in keys
        if key["name"].endswith(".kind")
        for name in re.findall(r"\w+", key["type"].removeprefix("one of "))
    }
    assert {"muon", "unigram", "inverse_sqrt", "t5", "window", "instruct", "lora"} <= listed
    assert listed - written == set()


def test_every_command_is_given() -> None:
    def names(command: Any, before: str) -> Iterator[str]:
        if below := getattr(command, "commands", None):
            for name, one in below.items():
                yield from names(one, f"{before}{name} ")
        else:
            yield before

    given = [f"{line} " for one in COMMANDS.values() for line in one.lines] + [
        f"{line} " for run in RUNS.values() for line in run.lines
    ]
    assert [
        name for name in names(typer.main.get_command(app), "") if not any(line.startswith(name) for line in given)
    ] == []
