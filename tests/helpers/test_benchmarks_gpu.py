"""The benchmark of GPUs, in miniature on a CPU: its processes, their limits, what is kept, and its tables."""

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import quality
from benchmarks.gpu import correctness, decoding, reports, running, steps, tables, time_to_loss
from benchmarks.gpu.running import Job, Part, Results
from benchmarks.measuring import Record
from benchmarks.shapes import SHAPES
from rich.console import Console

from mini_tf.recipe.arguments import presets


def results_of(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What was reported, by keys; of a key the last."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    return {line.pop("key"): line for line in lines}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("name", ["tiny", "tiny-encoder"])
def test_all_sides_of_a_step_have_equal_losses_and_are_timed(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(steps.BACKENDS, "cpu", "eager")
    steps.measure(name, None, rounds=2, seconds=0.0)
    found = results_of(capsys)
    assert [*found] == [f"{name}:{side}" for side in reports.sides_of(name, False)]
    own, plain, compiled = found.values()
    n = 1 if SHAPES[name].masked else 3
    assert own["losses"][:n] == pytest.approx(plain["losses"][:n], abs=1e-5)
    assert compiled["losses"] == pytest.approx(plain["losses"], abs=1e-5)
    assert all(len(side["rounds_ms"]) == 2 and side["ms"] > 0 for side in found.values())
    assert "micro-batch size 4" in own["choice"]


def test_a_side_that_computes_something_else_is_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = steps.losses_of

    def other_for_compiled(side: str, *arguments: Any) -> Any:
        return (loss + 1 for loss in right(side, *arguments)) if side.endswith("compiled") else right(side, *arguments)

    monkeypatch.setitem(steps.BACKENDS, "cpu", "eager")
    monkeypatch.setattr(steps, "losses_of", other_for_compiled)
    steps.measure("tiny", None, rounds=1, seconds=0.0)
    found = results_of(capsys)
    assert "not equal work" in found["tiny:plain torch compiled"]["failed"]
    assert found["tiny:plain torch"]["ms"] > 0
    assert found["tiny:minitf"]["ms"] > 0


def test_all_sides_generate_the_same_tokens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding.measure("tiny", 2, 20, rounds=2)
    found = results_of(capsys)
    assert [*found] == ["tiny x 2:minitf", "tiny x 2:minitf without graphs", "tiny x 2:plain torch, cached"]
    assert all(side["same"] == 20 and side["value"] > 0 for side in found.values())
    monkeypatch.setattr(decoding, "equal_tokens", lambda ours, theirs: 3)
    decoding.measure("tiny", 2, 20, rounds=1)
    assert "from token 3 on" in results_of(capsys)["tiny x 2:minitf"]["failed"]


def test_equal_tokens_are_counted_up_to_the_first_difference_in_any_text() -> None:
    assert decoding.equal_tokens([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == 3
    assert decoding.equal_tokens([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 7, 6]]) == 1
    assert decoding.equal_tokens([], []) == 0


def test_a_recipe_is_trained_used_and_drawn_and_a_fault_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first recipe does not exist; the second is trained all the same."""
    used = list[str]()
    right = correctness.minitf

    def recorded(*words: str) -> dict[str, Any]:
        used.append(words[0])
        return right(*words)

    monkeypatch.setattr(correctness, "minitf", recorded)
    correctness.measure(2, ["no-such-recipe:fp32", "gpt-char-fast:fp32"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "no-such-recipe" in lines[0]["failed"]
    assert 0 < lines[1]["loss"] < 6
    assert used == ["pretrain", "evaluate", "generate", "inspect-attention"]


def test_a_loss_counts_only_if_it_is_finite_and_near_that_of_a_cpu() -> None:
    for known, tolerance in ((4.0, 0.12), (0.2, 0.05)):
        assert "failed" not in correctness.compared(known + 0.9 * tolerance, known)
        assert f"{known:.4f}" in correctness.compared(known - 1.1 * tolerance, known)["failed"]
    assert "nan" in correctness.compared(float("nan"), 3.0)["failed"]
    assert correctness.compared(3.0, None) == {"cpu_loss": None}


def test_every_shipped_recipe_is_checked_in_both_precisions_against_a_loss() -> None:
    names = {*presets()}
    assert set(correctness.known_losses()) == names
    assert {tuple(case.split(":")) for case in correctness.cases(("bf16", "fp16"))} >= {
        (name, p) for name in names for p in ("bf16", "fp16")
    }


SCRIPT = """
import json, os, sys, time
for key in sys.argv[2:]:
    open(sys.argv[1], "a").write(key)
    if key in "xr":
        if key == "r": print(json.dumps({"key": key, "failed": "spoiled"}), flush=True)
        os._exit(7 if key == "x" else 3)
    if key == "s": time.sleep(60)
    print(json.dumps({"key": key, "value": 1.0, **({"failed": "no such luck"} if key == "f" else {})}), flush=True)
"""


def job(log: Path, keys: str, **more: Any) -> Job:
    """Reports a result for each letter; x ends the process, r after a failure, s says nothing, f fails."""
    return Job([sys.executable, "-c", SCRIPT, str(log)], tuple(keys), divisible=True, **more)


def test_what_fails_or_ends_is_noted_and_the_rest_goes_on(tmp_path: Path) -> None:
    file, log = tmp_path / "result.json", tmp_path / "log"
    results = Results(Record(file), lambda line: None)
    running.run(Part("p", [job(log, "axbfrc")]), results, 1, time.monotonic() + 600)
    assert [*json.loads(file.read_text())["measurements"]] == ["a", "b", "c"]
    assert {key: why.split(":")[0] for key, why in results.faults.items()} == {
        "x": "exit code 7",
        "f": "no such luck",
        "r": "spoiled",
    }
    assert log.read_text() == "axbfrc"
    running.run(Part("p", [job(log, "abcd")]), Results(Record(file), lambda line: None), 1, time.monotonic() + 600)
    assert log.read_text() == "axbfrc" + "d"  # results that are there are not measured again


def test_a_process_without_results_is_ended(tmp_path: Path) -> None:
    results = Results(Record(None), lambda line: None)
    running.run(Part("p", [job(tmp_path / "log", "s", silence=0.5)]), results, 1, time.monotonic() + 600)
    assert results.faults == {"s": "no result for 0.5 s"}


def test_nothing_starts_after_the_time_limit(tmp_path: Path) -> None:
    results = Results(Record(None), lambda line: None)
    running.run(Part("p", [job(tmp_path / "log", "ab")]), results, 1, time.monotonic() - 1)
    assert results.faults == dict.fromkeys("ab", "the time limit came before it")
    assert not (tmp_path / "log").exists()


def test_jobs_of_a_part_run_side_by_side(tmp_path: Path) -> None:
    """Each waits for the other's file."""
    script = (
        "import sys, time, json, pathlib\npathlib.Path(sys.argv[1]).touch()\nwhile not"
        " pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\nprint(json.dumps({'key': sys.argv[3], 'value': 1.0}))"
    )
    names = [str(tmp_path / "a"), str(tmp_path / "b")]
    jobs = [Job([sys.executable, "-c", script, *pair, key], (key,)) for pair, key in ((names, "a"), (names[::-1], "b"))]
    results = Results(Record(None), lambda line: None)
    running.run(Part("p", jobs, workers=2), results, 1, time.monotonic() + 100)
    assert set(results.record.measurements) == {"a", "b"}


def test_ratios_are_of_tokens_a_second_and_of_a_time_that_reaches_the_loss() -> None:
    results = {
        "12x768:minitf": {"value": 6.0}, "12x768:nanoGPT compiled": {"value": 5.0},
        "12x768:plain torch": {"value": 4.0},
        "minitf": {"value": 20.0, "loss": 1.46},
        "nanoGPT": {"value": 100.0, "loss": 1.5},
    }  # fmt: skip
    assert [*tables.ratios(results, 1.47)] == [
        ("12x768", "nanoGPT compiled", 1.2, 1.05), ("12x768", "plain torch", 1.5, None), ("loss", "nanoGPT", 5.0, 5.0),
    ]  # fmt: skip
    assert [ratio.group for ratio in tables.ratios(results, 1.4)] == ["12x768", "12x768"]


def test_the_tables_say_what_failed_and_what_was_not_measured() -> None:
    record = Record(None)
    record.measurements |= {
        "card": {"value": 7e14, "gpu": "A card"},
        "6x384:minitf": {"value": 5e5, "ms": 8.0, "flops": 1e14, "rounds_ms": [8.0, 8.2]},
    }
    record.measurements["bert-nano:bf16"] = {"loss": 5.01, "cpu_loss": 5.0, "seconds": 4.0}
    record.content |= {
        "failed": {"bert-nano:fp16": {"failed": "loss nan", "loss": float("nan")}},
        "not_measured": {"nanoGPT": "no checkout given"},
    }
    stream = io.StringIO()
    tables.show(Console(file=stream, width=200), record, 1.47)
    for said in (
        "A card",
        "700 TFLOP/s",
        "14.3 %",
        "10.1 %",
        "+0.0100",
        "bert-nano:fp16: FAILED: loss nan",
        "nanoGPT: no checkout given",
    ):
        assert said in stream.getvalue()


@pytest.mark.slow
def test_the_command_writes_every_result_and_repeats_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "result.json"
    words = ["generation", "--device", "cpu", "--tiny", "--out", str(out)]
    assert command.main(words) == 0
    content = json.loads(out.read_text())
    sides = ["minitf", "minitf without graphs", "plain torch, cached"]
    assert [*content["measurements"]] == ["card", *(f"tiny x 2:{side}" for side in sides)]
    assert str(out) in capsys.readouterr().out.replace("\n", "")
    monkeypatch.setattr(running, "attempt", lambda *_: pytest.fail("measured again"))
    assert command.main(words) == 0
    out.write_text(json.dumps(content | {"versions": content["versions"] | {"torch": "1.0"}}))
    assert command.main(words) == 2
    assert "its results are of torch 1.0" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tiny", "steps"], "no part 'steps'; there is correctness, step"),
        (["--device", "cuda", "--text", "no.txt"], "no.txt: not there"),
        (["--device", "cpu", "--tiny", "--minutes", "0"], "must be more than 0"),
    ],
)
def test_parts_and_files_that_do_not_exist_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    assert said in capsys.readouterr().err


def test_without_a_gpu_the_command_says_so_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["--device", "cuda", "--out", str(tmp_path / "result.json")]) == 9
    said = "--device cuda: torch finds no GPU here; --device cpu --tiny tries every part in miniature\n"
    assert capsys.readouterr() == ("", said)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_the_time_to_a_loss_is_of_a_whole_process_and_a_fault_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(__file__).parents[1] / "data" / "tiny.txt"
    time_to_loss.measure("minitf", text, tiny=True)
    [(key, figures)] = results_of(capsys).items()
    assert key == "minitf"
    assert figures["value"] > 0
    assert 0 < figures["loss"] < 6
    monkeypatch.setattr(quality, "MINITF", [sys.executable, "-c", "raise SystemExit(3)"])
    time_to_loss.measure("minitf", text, tiny=True)
    assert "exit code 3 of" in results_of(capsys)["minitf"]["failed"]
