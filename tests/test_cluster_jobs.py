"""The job files for Slurm and Kubernetes: sound syntax, options that torchrun has, and numbers that agree."""

import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

FOLDER = Path(__file__).parents[1] / "mini_tf" / "jobs" / "cluster"
SLURM, KUBERNETES = FOLDER / "slurm.sh", FOLDER / "kubernetes.yaml"
PROGRAMS = {"scontrol": r"test $1-$2 = show-hostnames && printf '%s\n' a7 a8", "srun": """printf '%s\n' ${MINITF_CACHE##*/} "$@\""""}
"""Stand-ins of Slurm's programs; srun prints the cache's folder and its own arguments."""


def of_torchrun(words: list[str]) -> Namespace:
    """What torchrun reads from its command line; it ends the test where an option is not its own."""
    given: Namespace = get_args_parser().parse_args(words)
    assert (given.module, given.training_script, given.max_restarts) == (True, "mini_tf", 0)
    return given


def test_the_slurm_script_starts_torchrun_on_each_node(tmp_path: Path) -> None:
    subprocess.run(["bash", "-n", str(SLURM)], check=True)
    for name, body in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o700)
    variables = {"SLURM_JOB_NODELIST": "a[7-8]", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_ID": "41"}
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **variables}
    command = ["bash", str(SLURM), "my recipe.yaml", "-n", "mine"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    cache, kill, program, *words = done.stdout.splitlines()
    assert (cache, kill, program) == (".minitf-cache", "--kill-on-bad-exit=1", "torchrun")
    given = of_torchrun(words)
    assert (given.nnodes, given.nproc_per_node, given.rdzv_backend) == ("2", "8", "c10d")
    assert (given.rdzv_endpoint, given.rdzv_id) == ("a7:29500", "41")
    assert given.training_script_args == ["pretrain", "my recipe.yaml", "-n", "mine"]


def test_slurm_allots_what_the_script_uses() -> None:
    lines = [line.removeprefix("#SBATCH --") for line in SLURM.read_text().splitlines() if line.startswith("#SBATCH --")]
    options = dict(line.partition("=")[::2] for line in lines)
    assert options["ntasks-per-node"] == "1"  # torchrun starts the processes of a node
    assert options["array"].endswith("%1")  # two runs of one folder would exclude each other
    warned = int(options["signal"].removeprefix("TERM@"))
    assert f"TORCH_ELASTIC_SHUTDOWN_TIMEOUT={warned - 30} " in SLURM.read_text()


@pytest.fixture(name="objects")
def objects_of_the_file() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES.read_text())}


def test_the_kubernetes_job_starts_torchrun_in_each_pod(objects: dict[str, Any]) -> None:
    job, service = objects["Job"], objects["Service"]
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    [container] = pod["containers"]
    assert container["command"] == ["torchrun"]
    given = of_torchrun([word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in container["args"]])
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(given.nnodes)
    assert int(given.nproc_per_node) == container["resources"]["limits"]["nvidia.com/gpu"]
    assert given.node_rank == 1
    assert given.master_addr == f"{name}-0.{service['metadata']['name']}"
    assert given.master_port == service["spec"]["ports"][0]["port"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert given.training_script_args[0] == "pretrain"
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    patience = {one["name"]: one["value"] for one in container["env"]}["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]
    assert int(patience) < pod["terminationGracePeriodSeconds"]


def test_only_pods_of_the_job_reach_each_other(objects: dict[str, Any]) -> None:
    labels = objects["Job"]["spec"]["template"]["metadata"]["labels"]
    policy, own = objects["NetworkPolicy"]["spec"], {"podSelector": {"matchLabels": labels}}
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["Service"]["spec"]["clusterIP"] == "None"
    assert policy["podSelector"] == own["podSelector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [{"from": [own]}]
    others = [rule for rule in policy["egress"] if rule["to"] != [own]]
    assert [{port["port"] for port in rule["ports"]} for rule in others] == [{53}]
    assert objects["Job"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
