"""Several processes train as one: the same bytes for 1, 2 and 4 of them, and nothing is lost when one dies."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from commands import EXACT, TINY, minitf
from processes import launched_by_forks, together
from record.runs import RUNS, write_files
from safetensors.torch import load_file
from toys import present

from mini_tf.generation import likelihoods
from mini_tf.jobs import killed_runs
from mini_tf.parallel import launching
from mini_tf.pipelines import _prediction, _references

COMPARED = ("streamed", "memory", "masked", "replaced", "pairs", "wide", "tag", "instruct")
"""Runs that divide their work among processes in different ways; the rules that others share are tested by threads."""
STREAM_NOTE = "train.stream: a row begins with the state of the row before, so each process evaluates all rows\n"
SHORT = (
    *("train.steps=2", "eval.every_steps=2", "checkpoint.every_steps=2", "eval.translations=3"),
    *("train.batch_size=4", "train.micro_batch_size=1", "schedule.warmup=1"),
)
SMALLER = {
    "pairs": ("data.split=0.1%", "train.batch_tokens=300", "generate.num_beams=2"),
    "classify": ("train.ensemble=mean",),
    **dict.fromkeys(("streamed", "memory", "masked", "replaced", "recurrent"), ("data.split=3%",)),
}


def lines_of(names: list[str], size: int, reduce: str, *more: str) -> list[list[str]]:
    more = (*more, f"runtime.reduce={reduce}")
    return [
        [*RUNS[name].lines[0].split(), *SHORT, *SMALLER.get(name, ()), *more, "-d", f"{reduce}-{size}/{name}"]
        for name in names
    ]


def run_together(folder: Path, size: int, lines: list[list[str]]) -> None:
    done = together(size, lines, folder)
    failed = {" ".join(lines[n]): [one.stderr for one in of_line if one.exit_code] for n, of_line in enumerate(done)}
    assert {name: told for name, told in failed.items() if told} == {}


def bytes_of(run: Path) -> dict[str, bytes]:
    """What must not depend on the number of processes: metrics, and all tensors of the last checkpoint."""
    files = [*run.rglob("metrics.jsonl"), *run.rglob("step-00000002/*.safetensors"), run / "model.safetensors"]
    assert len(files) >= 5, run
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of the record in one process."""
    folder = tmp_path_factory.mktemp("record")
    write_files(folder)
    for name in ("tag", "classify"):
        recipe = folder / f"{name}.yaml"
        recipe.write_text(re.sub(r"outputs/\w+", "tree-1/masked", recipe.read_text()))
    text = [*lines_of(["text"], 1, "tree")[0][:-1], "outputs/text"]
    run_together(folder, 1, [text, *lines_of([*COMPARED, "classify"], 1, "tree")])
    return folder


def test_every_run_of_the_record_ends_with_the_same_bytes_on_two_processes(alone: Path) -> None:
    run_together(alone, 2, lines_of([*COMPARED], 2, "tree"))
    assert [name for name in COMPARED if bytes_of(alone / "tree-1" / name) != bytes_of(alone / "tree-2" / name)] == []
    for file in (alone / "tree-2").rglob("run.json"):
        assert json.loads(file.read_text())["state"] == "done"


@pytest.mark.slow
def test_four_processes_sum_as_one_with_every_reduction(alone: Path) -> None:
    """`tree` to the bit. The other sums differ in their last bits."""
    names = {"sum": ["memory"], "overlap": ["pairs"]}
    equal = lines_of(["masked"], 4, "tree") + lines_of(["pairs"], 4, "tree", "runtime.shard=optimizer")
    run_together(alone, 4, equal + [line for reduce in names for line in lines_of(names[reduce], 4, reduce)])
    assert [
        name for name in ("masked", "pairs") if bytes_of(alone / "tree-1" / name) != bytes_of(alone / "tree-4" / name)
    ] == []
    for reduce in names:
        for name in names[reduce]:
            assert_close_metrics(alone / f"{reduce}-4" / name, alone / "tree-1" / name)
    more = ["--extend", "2"]  # each process reads its part of the optimizer's state
    run_together(alone, 2, [[*lines_of(["pairs"], 4, "tree", "runtime.shard=optimizer")[0], *more]])
    shutil.copytree(alone / "tree-1/pairs", alone / "tree-1/further")
    run_together(alone, 1, [[*lines_of(["pairs"], 1, "tree")[0][:-1], "tree-1/further", *more]])
    assert_close_metrics(alone / "tree-4/pairs", alone / "tree-1/further")


def assert_close_metrics(run: Path, other: Path) -> None:
    for line, expected in zip(metrics_of(run), metrics_of(other), strict=True):
        assert line == pytest.approx(expected, rel=2e-5, abs=1e-6), run


FULL = ("replaced", "instruct", "tag")
"""Runs that `runtime.shard: full` divides differently: two networks; an adapter and matrices that Muon needs whole;
labels. `recurrent` with these mixers is a stream, too.
"""
OUTSIDE = "model.attention=[{kind: favor, features: 24, redraw_every: 1}, {kind: expire_span, max_span: 20}]"
OUTSIDE = (
    OUTSIDE if len(present("attention", "favor", "expire_span")) == 2 else "model.attention={kind: window, window: 20}"
)
"""Mixers that call or read weights outside of a forward pass, or have a gate without rows."""


def test_two_processes_that_divide_everything_are_as_one_and_three_go_on(alone: Path) -> None:
    lines = lines_of([*FULL], 2, "sum", "runtime.shard=full")
    stream = ["model.n_layers=2", OUTSIDE]
    run_together(alone, 2, [*lines, *lines_of(["recurrent"], 2, "sum", "runtime.shard=full", *stream)])
    run_together(alone, 1, lines_of(["recurrent"], 1, "tree", *stream))
    for name in (*FULL, "recurrent"):
        two, one = alone / "sum-2" / name, alone / "tree-1" / name
        assert_close_metrics(two, one)
        final = [json.loads((run / "run.json").read_text())["metrics"] for run in (two, one)]
        assert final[0] | {"minutes": 0} == pytest.approx(final[1] | {"minutes": 0}, rel=2e-5, abs=1e-6), name
        for file in one.glob("checkpoints/step-00000002/*.safetensors"):
            saved, tensors = load_file(file), load_file(two / file.relative_to(one))
            assert {key: tensor.shape for key, tensor in saved.items()} == {
                key: tensor.shape for key, tensor in tensors.items()
            }
    shutil.copytree(alone / "sum-2/tag", alone / "sum-2/by-one")
    further = [*lines[FULL.index("tag")], "--extend", "2"]
    run_together(alone, 3, [further])  # of some micro-batches one process has one less, and calls the model once more
    run_together(alone, 1, [[*further[:-3], "sum-2/by-one", *further[-2:]]])
    assert_close_metrics(alone / "sum-2/tag", alone / "sum-2/by-one")


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


LONG = (TINY, *EXACT, "train.batch_size=4", "train.micro_batch_size=2", "runtime.reduce=tree", "log.samples=0",
    "train.steps=160",
        "checkpoint.every_steps=10", "model.dropout_rate=0.1", "eval.baseline=false")  # fmt: skip


def launched(folder: Path, *more: str, waits: bool = True) -> subprocess.Popen[str]:
    """A command of two processes. waits: until it has a checkpoint of a step that it did not begin with."""
    before = set(folder.glob("run/checkpoints/step-*"))
    started = subprocess.Popen(
        [sys.executable, "-m", "mini_tf", "pretrain", *LONG, "-d", "run", "--nproc", "2", *more],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while waits and not set(folder.glob("run/checkpoints/step-*")) - before and started.poll() is None:
        time.sleep(0.01)
    return started


def workers_of(launcher: int) -> list[int]:
    """The processes that a process has started, by rank."""
    ids = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found = {int(one): re.search(rb"\0RANK=(\d+)", Path(f"/proc/{one}/environ").read_bytes()) for one in ids}
    ranks = {int(rank[1]): one for one, rank in found.items() if rank}  # one that has just been forked has none yet
    return [ranks[rank] for rank in sorted(ranks)]


def is_alive(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_launcher_that_ends_leaves_a_run_that_one_process_completes(tmp_path: Path) -> None:
    whole = minitf("pretrain", *LONG, "-d", tmp_path / "whole")
    assert whole.exit_code == 0, whole.stderr

    started = launched(tmp_path, waits=False)
    while len(workers := workers_of(started.pid)) < 2:
        time.sleep(0.01)
    started.kill()  # while they load
    _, err = started.communicate(timeout=60)
    assert (
        err.splitlines()[-1]
        == "the launcher of the processes ended; the same command continues from the last checkpoint"
    )
    for _ in range(1000):
        if not any(map(is_alive, workers)):
            break
        time.sleep(0.02)
    assert not any(map(is_alive, workers))
    assert [*Path(tempfile.gettempdir()).glob(f".minitf.*.{started.pid}.*")] == []

    started = launched(tmp_path, "--json")
    assert listening(workers_of(started.pid)) <= {"127.0.0.1", "::1"}
    started.terminate()
    out, err = started.communicate(timeout=60)
    assert started.returncode == 143, err
    assert json.loads(out)["exit_code"] == 143

    done = minitf("pretrain", *LONG, "-d", tmp_path / "run")  # in one process
    assert done.exit_code == 0, done.stderr
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def listening(processes: list[int]) -> set[str]:
    """The addresses on which these processes accept connections."""
    sockets = {
        os.readlink(fd)
        for process in processes
        for fd in Path(f"/proc/{process}/fd").iterdir()
        if fd.is_symlink() and fd.exists()
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add("127.0.0.1" if fields[1].startswith("0100007F") else fields[1])
    return found


@pytest.mark.slow
def test_doctor_kills_a_process_and_compares_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "subprocess", launched_by_forks())
    monkeypatch.setattr(killed_runs, "PROCESSES_KILLED", 1)
    monkeypatch.setattr(killed_runs, "OVERRIDES", (*killed_runs.OVERRIDES, "train.steps=24"))
    done = minitf("doctor", "--nproc", "2", "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)["result"]
    assert len(result["kills"]) == 1
    assert set(result["differs"].values()) == {None}


DIVIDED = [
    ["generate", "outputs/text", "-i", "prompts.txt", "--batch-size", "2", "--seed", "4", "--max-new-tokens", "5"],
    ["predict", "tree-1/tag", "-i", "texts.txt", "--batch-size", "2"],
    ["predict", "tree-1/classify", "-i", "faulty.txt", "--batch-size", "2"],
    ["evaluate", "outputs/text", "--pairs", "minimal.jsonl"],
    *(["evaluate", run] for run in ("outputs/text", *(f"tree-1/{name}" for name in ("classify", "pairs", "memory")))),
]


def test_what_several_processes_answer_is_what_one_does(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Continuations, classes, metrics; fewer texts than three processes take at a time, and a line that is refused."""
    monkeypatch.chdir(alone)
    Path("prompts.txt").write_text("".join(f"The {n}\n" for n in range(7)))
    Path("texts.txt").write_text("".join(f"a nice film number {n}\n" for n in range(3)))
    Path("faulty.txt").write_text(
        "".join(json.dumps({"text": 3 if n == 12 else f"number {n}"}) + "\n" for n in range(20))
    )
    for module, name, small in (
        (_references, "CHUNK", 3),
        (_prediction, "BATCH_SIZE", 3),
        (likelihoods, "BATCH_TOKENS", 40),
    ):
        monkeypatch.setattr(module, name, small)
    lines = [[*line, "--json"] for line in DIVIDED]
    for line, of_line in zip(lines, together(3, lines, alone), strict=True):
        one = minitf(*line)
        assert [several.exit_code for several in of_line] == [one.exit_code] * 3, of_line[0].stderr
        assert of_line[0].stdout == one.stdout != ""
        assert of_line[0].stderr.replace(STREAM_NOTE, "") == one.stderr
        assert {several.stdout for several in of_line[1:]} == {""}
