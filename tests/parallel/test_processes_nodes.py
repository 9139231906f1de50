"""Two nodes, as two launchers of torch that meet on the loopback interface."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands import QUIET, TINY, minitf
from hang import outcome

SHORT = (TINY, *QUIET, "train.steps=6", "train.micro_batch_size=2", "runtime.reduce=tree", "eval.baseline=false")


def test_two_nodes_train_to_the_bytes_of_one_process(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--max-restarts=0"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two-nodes", "--local-addr=127.0.0.1"),
        "--rdzv-conf=join_timeout=600,last_call_timeout=1",
    ]
    command = [*launcher, "-m", "mini_tf", "pretrain", *SHORT, "-d", "two"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    nodes = [subprocess.Popen(command, cwd=tmp_path, env=environment, **streams) for _ in range(2)]
    alone = minitf("pretrain", *SHORT, "-d", tmp_path / "one")
    told = [outcome(node) for node in nodes]
    assert (alone.exit_code, *(node.returncode for node in nodes)) == (0, 0, 0), told
    assert "".join(out for out, _ in told) == f"{tmp_path / 'two'}\n"  # rank 0 alone prints
    assert "2 processes" in "".join(err for _, err in told)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
