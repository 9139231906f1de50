"""Two nodes, as two launchers of torch that meet on the loopback interface; launchers and processes are forks."""

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

import pytest
from commands import QUIET, TINY, minitf
from processes import forked

SHORT = (TINY, *QUIET, "train.steps=2", "train.batch_size=4", "train.micro_batch_size=2", "runtime.reduce=tree")


def test_two_nodes_train_to_the_bytes_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # takes half a second

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = LaunchConfig(
        min_nodes=2, max_nodes=2, nproc_per_node=1, run_id="two-nodes", start_method="fork", max_restarts=0,
        rdzv_backend="c10d", rdzv_endpoint=f"127.0.0.1:{port}", local_addr="127.0.0.1", monitor_interval=0.1,
        rdzv_configs={"join_timeout": 600, "last_call_timeout": 1},
    )  # fmt: skip

    def node(n: int) -> None:
        os.chdir(tmp_path)
        [done] = elastic_launch(config, minitf)("pretrain", *SHORT, "-d", "two").values()
        (tmp_path / f"done-{n}").write_text(json.dumps(done))

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    nodes = [forked(0, 1, partial(node, n)) for n in range(2)]
    alone = minitf("pretrain", *SHORT, "-d", tmp_path / "one")
    ends = [os.waitstatus_to_exitcode(os.waitpid(node, 0)[1]) for node in nodes]
    assert [alone.exit_code, *ends] == [0, 0, 0]
    done = sorted(json.loads((tmp_path / f"done-{n}").read_text()) for n in range(2))
    assert [exit_code for exit_code, _, _ in done] == [0, 0], done
    assert [stdout for _, stdout, _ in done] == ["", f"{tmp_path / 'two'}\n"]  # rank 0 alone prints
    assert "2 processes" in done[1][2]
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
