"""What needs a GPU: every model computes on it what it computes on a CPU; a run trains, resumes and is used there.

Left out by default: `pytest -m gpu -n 4`. Each command is a process of its own, as a user's is.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import ROOT, TINY
from test_models_contract import every_model

from mini_tf.nn.model import ModelSettings
from mini_tf.nn.tokens import Tokens
from mini_tf.testing.tiny.models import random_ids, source_for, tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here"),
]
GPU = torch.device("cuda:0")


def command(*words: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    call = [sys.executable, "-m", "mini_tf", *map(str, words)]
    return subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def minitf(*words: str | Path) -> str:
    """What a command that must succeed says on stdout."""
    process = command(*words)
    told, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return told


def trained(folder: Path, *more: str) -> dict[str, float]:
    minitf("pretrain", TINY, "runtime.device=cuda", "log.samples=0", *more, "-d", folder)
    record = json.loads((folder / "run.json").read_text())
    assert record["auto"]["device"].startswith("cuda")
    metrics: dict[str, float] = record["metrics"]
    return metrics


MODELS = [pytest.param(settings, id=f"{i}-{word}") for i, (word, settings) in enumerate(every_model())]


@pytest.mark.parametrize("settings", MODELS)
def test_a_model_computes_on_a_gpu_what_it_computes_on_a_cpu(settings: ModelSettings) -> None:
    """Scores and gradients, in float64."""
    model, ids = tiny_model(settings), random_ids()
    source = source_for(model)

    def computed(device: torch.device) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        model.to(device).zero_grad()
        scores = model.logits(model(Tokens(ids.to(device)), None if source is None else source.to(device)).y)
        scores.logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
        grads = {name: p.grad.cpu().clone() for name, p in model.named_parameters() if p.grad is not None}
        return scores.detach().cpu(), grads

    expected, gradients = computed(torch.device("cpu"))
    found, others = computed(GPU)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-7, atol=1e-7, msg=lambda told, name=name: f"{name}: {told}")


@pytest.mark.parametrize("asked", ["runtime.precision=fp32", "runtime.precision=bf16", "runtime.precision=fp16", "runtime.compile=true"])
def test_every_precision_trains_and_what_a_run_recorded_is_measured_again(asked: str, tmp_path: Path) -> None:
    recorded = trained(tmp_path / "run", asked, "train.steps=20")
    again = json.loads(minitf("evaluate", tmp_path / "run", "--device", "cuda", "--json"))["metrics"]
    assert again["loss"] == pytest.approx(recorded["val.loss"], abs=1e-3)
    on_cpu = json.loads(minitf("evaluate", tmp_path / "run", "--device", "cpu", "--json"))["metrics"]
    assert on_cpu["loss"] == pytest.approx(recorded["val.loss"], abs=1e-2)


def test_greedy_text_and_attention_are_those_of_the_cpu(tmp_path: Path) -> None:
    trained(tmp_path / "run", "runtime.precision=fp32", "train.steps=60")
    for words in (
        ("generate", tmp_path / "run", "a b", "--greedy", "--max-new-tokens", "24"),
        ("generate", tmp_path / "run", "a b", "--seed", "3", "--max-new-tokens", "24"),
    ):
        assert minitf(*words, "--device", "cuda") == minitf(*words, "--device", "cpu")
    minitf("inspect-attention", tmp_path / "run", "a b c", "--device", "cuda", "-o", tmp_path / "heads.png")
    assert (tmp_path / "heads.png").stat().st_size > 0


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    words = ("pretrain", TINY, "runtime.device=cuda", "log.samples=0", "train.steps=400", "checkpoint.every_steps=20", "-d")
    minitf(*words, tmp_path / "whole")
    for kills in range(2):
        process = command(*words, tmp_path / "killed")
        saved = f"step-{100 * (kills + 1):08d}"
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            folders = sorted(path.name for path in (tmp_path / "killed" / "checkpoints").glob("step-*"))
            if folders and folders[-1] >= saved:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    minitf(*words, tmp_path / "killed")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
