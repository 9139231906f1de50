"""`--tensorboard`: event files hold what metrics.jsonl has, each point once, however often a run was interrupted."""

import json
import math
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import QUIET, TINY, minitf, refused

SHORT = (
    *(*QUIET, "train.steps=9", "train.context=16", "train.batch_size=4", "data.split=2%"),
    *("eval.every_steps=3", "checkpoint.every_steps=3", "log.every_steps=1"),
)


def points(run: Path) -> list[tuple[str, int, float]]:
    """(name, step, value) of every scalar in the event files, read by the format of TFRecord."""
    from tensorboardX.proto.event_pb2 import Event

    def records(data: bytes) -> Iterator[bytes]:
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield data[12 : 12 + length]
            data = data[16 + length :]

    events = (
        Event.FromString(one) for file in sorted((run / "tensorboard").iterdir()) for one in records(file.read_bytes())
    )
    return [(value.tag, event.step, value.simple_value) for event in events for value in event.summary.value]


def recorded(run: Path) -> list[tuple[str, int, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(name, line["step"], value) for line in lines for name, value in line.items() if name != "step"]


def same(found: list[tuple[str, int, float]], expected: list[tuple[str, int, float]]) -> bool:
    """Event files keep four bytes a number."""
    pairs = zip(sorted(found), sorted(expected), strict=True)
    return all(a[:2] == b[:2] and math.isclose(a[2], b[2], rel_tol=1e-6) for a, b in pairs)


def test_every_figure_of_metrics_is_a_point(tmp_path: Path) -> None:
    done = minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert same(points(tmp_path / "run"), recorded(tmp_path / "run"))
    assert {"loss", "val.loss", "lr"} <= {name for name, _, _ in points(tmp_path / "run")}


def test_a_run_that_goes_on_has_each_point_once(tmp_path: Path) -> None:
    """From an older checkpoint than what event files hold; and extended, asked for then alone."""
    run = tmp_path / "run"
    assert minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", run).exit_code == 0
    whole = recorded(run)
    shutil.rmtree(run / "checkpoints" / "step-00000009")
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"state": "running"}))
    assert minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", run).exit_code == 0
    assert recorded(run) == whole
    assert same(points(run), whole)


def test_a_run_killed_after_its_last_step_gets_the_points_that_were_lost(tmp_path: Path) -> None:
    """They are buffered for seconds; the same command has no step left to train."""
    run = tmp_path / "run"
    assert minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", run).exit_code == 0
    (events,) = (run / "tensorboard").iterdir()
    events.write_bytes(events.read_bytes()[: events.stat().st_size // 2])
    (run / "run.json").write_text(json.dumps(json.loads((run / "run.json").read_text()) | {"state": "running"}))
    assert minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", run).exit_code == 0
    assert same(points(run), recorded(run))


def test_without_it_there_is_none(tmp_path: Path) -> None:
    assert minitf("pretrain", TINY, *SHORT, "-d", tmp_path / "run").exit_code == 0
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_without_the_package_it_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    done = minitf("pretrain", TINY, *SHORT, "--tensorboard", "-d", tmp_path / "run")
    refused(done, "--tensorboard needs tensorboardX", "pip install 'minitf[tensorboard]'", exit_code=9)
    assert not (tmp_path / "run").exists()
