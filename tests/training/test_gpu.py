"""What needs a GPU: every model computes on it what it computes on a CPU; a run trains, resumes and is used there.

Left out by default: `pytest -m gpu -n 4`. Each command is a process of its own, as a user's is.
"""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import ROOT, TINY, lines
from test_models_contract import every_model

from mini_tf.nn.cuda_graphs import CUDAGraphs, NotCapturable
from mini_tf.nn.model import ModelSettings
from mini_tf.nn.tokens import Tokens
from mini_tf.testing.tiny.models import random_ids, source_for, tiny_model
from mini_tf.training.machine.device import Setup

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU here")]
GPU = torch.device("cuda:0")


def command(*words: str | Path, **variables: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    call = [sys.executable, "-m", "mini_tf", *map(str, words)]
    return subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def minitf(*words: str | Path, **variables: str) -> str:
    """What a command that must succeed says on stdout."""
    process = command(*words, **variables)
    told, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return told


def refusal(*words: str | Path) -> tuple[int, str]:
    """Exit code and last line of a command that must fail."""
    process = command(*words)
    _, complaint = process.communicate()
    assert "Traceback" not in complaint
    return process.returncode, complaint.splitlines()[-1]


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
        torch.testing.assert_close(
            others[name], gradient, rtol=1e-7, atol=1e-7, msg=lambda told, name=name: f"{name}: {told}"
        )


@pytest.mark.parametrize(
    "asked", ["runtime.precision=fp32", "runtime.precision=bf16", "runtime.precision=fp16", "runtime.compile=true"]
)
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


@pytest.mark.parametrize("compiled", ["false", "true"])
def test_a_killed_run_goes_on_to_the_same_bytes(compiled: str, tmp_path: Path) -> None:
    words = ("pretrain", TINY, "runtime.device=cuda", f"runtime.compile={compiled}", "log.samples=0", "train.steps=400")
    words += ("checkpoint.every_steps=20", "-d")
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


CAPTURED = {
    "fp32": ("runtime.precision=fp32",),
    "bf16": ("runtime.precision=bf16", "model.dropout_rate=0.2"),
    "fp16-overflows": ("runtime.precision=fp16", "optimizer.lr=1e-3"),
    "muon": ("runtime.precision=fp32", "optimizer.kind=muon", "optimizer.weight_decay=0.1"),
    "micro-batches": ("runtime.precision=fp32", "train.micro_batch_size=2", "model.dropout_rate=0.2"),
    "compiled": ("runtime.compile=true", "runtime.precision=bf16"),
}


@pytest.mark.parametrize("words", CAPTURED.values(), ids=CAPTURED)
def test_captured_steps_have_the_losses_of_eager_ones(words: tuple[str, ...], tmp_path: Path) -> None:
    """Over 20 steps; numbers that are tensors in a graph differ in their last bits."""
    losses = {}
    for graphs in ("true", "false"):
        run = tmp_path / graphs
        asked = ("runtime.device=cuda", "log.samples=0", "train.steps=20", f"runtime.graphs={graphs}", *words)
        process = command("pretrain", TINY, *asked, "-d", run)
        _, complaints = process.communicate()
        assert process.returncode == 0, complaints
        assert "CUDA graphs are off, steps" not in complaints
        losses[graphs] = [line["loss"] for line in lines(run) if "loss" in line]
    assert len(losses["true"]) == 20
    assert losses["true"] == pytest.approx(losses["false"], rel=2e-3)


def test_a_step_that_waits_for_the_gpu_is_noticed_before_it_is_captured() -> None:
    graphs, x = CUDAGraphs(GPU), torch.ones(3, device=GPU)
    with pytest.raises(NotCapturable, match="waits for the GPU"), graphs.rehearsing():
        x.sum().item()
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_capture_that_failed_keeps_no_memory() -> None:
    before = torch.cuda.memory_reserved()

    def waits() -> float:
        return torch.ones(2**28, device=GPU).sum().item()

    with pytest.raises(NotCapturable):
        CUDAGraphs(GPU).record(waits)
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - before < 2**28


def test_dropout_works_after_a_capture_that_failed() -> None:
    graphs, x = CUDAGraphs(GPU), torch.ones(1000, device=GPU)

    def waits() -> float:
        return torch.nn.functional.dropout(x).sum().item()

    stream = torch.cuda.current_stream()
    with pytest.raises(NotCapturable):
        graphs.record(waits)
    assert torch.cuda.current_stream() == stream
    assert 0 < int(torch.nn.functional.dropout(x).count_nonzero()) < 1000
    result, replay = graphs.record(lambda: torch.nn.functional.dropout(x))
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        replay()
        masks.append(result.clone())
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("settings", MODELS)
def test_gradients_of_deterministic_kernels_are_equal_to_the_bit(settings: ModelSettings) -> None:
    """In bf16, whose fused kernels add in any order by default; no operation is without a deterministic kernel."""
    setup = Setup(device=GPU, precision="bf16")
    setup.make_deterministic()
    try:
        model, ids = tiny_model(settings).float().to(GPU), random_ids().to(GPU)
        source = source_for(model)

        def gradients() -> dict[str, torch.Tensor]:
            model.zero_grad()
            torch.manual_seed(0)
            with setup.autocast():
                scores = model.logits(model(Tokens(ids), None if source is None else source.to(GPU)).y)
            scores.float().logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
            return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

        first = gradients()
        for name, gradient in gradients().items():
            assert torch.equal(gradient, first[name]), name
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_second_start_takes_compiled_code_from_disk(tmp_path: Path) -> None:
    """Files of torch and Triton are as before it."""
    environment = {"MINITF_CACHE": str(tmp_path / "cache")}
    words = ("pretrain", TINY, "runtime.device=cuda", "runtime.compile=true", "log.samples=0", "train.steps=5", "-d")
    minitf(*words, tmp_path / "first", **environment)
    kept = {
        path for folder in ("torch", "triton") for path in (tmp_path / "cache" / folder).rglob("*") if path.is_file()
    }
    assert kept
    minitf(*words, tmp_path / "second", **environment)
    assert {path for path in kept if not path.exists()} == set()
    code = {path for path in (tmp_path / "cache" / "torch").rglob("*.py")}
    assert code <= kept
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_doctor_says_which_kernels_work_and_that_compilation_does() -> None:
    facts = json.loads(minitf("doctor", "--json"))["result"]
    assert facts["cuda:0"].startswith(torch.cuda.get_device_name(0))
    assert "math" in facts["attention cuda:0"].split("not ")[0]
    assert facts["compile"] == "works on cuda"
    assert facts["CUDA"] == f"{torch.version.cuda} (torch's)"


def test_more_processes_than_gpus_are_told_the_way_out(tmp_path: Path) -> None:
    n = torch.cuda.device_count()
    exit_code, line = refusal("pretrain", TINY, "--nproc", str(n + 1), "-d", tmp_path / "run")
    assert exit_code == 9
    assert f"{n + 1} processes need a GPU each" in line
    assert line.endswith("use runtime.device=cpu")


def test_lack_of_memory_names_a_micro_batch_with_which_the_run_goes_on(tmp_path: Path) -> None:
    large = ("train.batch_size=16384", "train.context=1024", "train.steps=1", "model.d_model=1024")
    device = ("runtime.device=cuda", "runtime.compile=false", "runtime.precision=fp32", "log.samples=0")
    words = ("pretrain", TINY, *device, *large, "-d", tmp_path / "run")
    exit_code, line = refusal(*words, "train.micro_batch_size=16384")
    assert exit_code == 6
    assert "out of memory at step 1, with micro-batches of 16384 rows" in line
    advised = re.search(r"train\.micro_batch_size=\d+", line)
    assert advised is not None
    minitf(*words, advised[0])
