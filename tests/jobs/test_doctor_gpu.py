"""What `minitf doctor` says about GPUs: kernels are really tried, and what fails is named."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import minitf

from mini_tf.training.machine import hardware
from mini_tf.training.machine.hardware import KERNELS, driver_version, failing_attention_kernels

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_of_attention_are_tried_forward_and_backward(dtype: torch.dtype) -> None:
    """A CPU has two of the four."""
    failing = failing_attention_kernels(CPU, dtype)
    assert failing.keys() == {"memory-efficient", "cuDNN"}
    assert all(reason and "\n" not in reason for reason in failing.values())


def test_a_kernel_with_infinite_gradients_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention", lambda q, k, v, is_causal: (q + k + v) / (q * 0)
    )
    assert failing_attention_kernels(CPU, torch.float32) == dict.fromkeys(KERNELS, "its gradients are not finite")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version:"
                "  gcc 12.3.0\n"
            ),
            "535.183.01",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n", "570.86.15"),
        ("something else", "unknown"),
    ],
)
def test_the_version_of_the_driver_is_read_from_the_kernel(text: str, version: str, tmp_path: Path) -> None:
    assert driver_version(tmp_path / "version") == "unknown"
    (tmp_path / "version").write_text(text)
    assert driver_version(tmp_path / "version") == version


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that this torch cannot use."""
    properties = SimpleNamespace(name="NVIDIA H100", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr("mini_tf.training.machine.device.has_triton", lambda: True)


@pytest.mark.usefixtures("one_gpu")
def test_doctor_says_of_a_gpu_what_works_and_why_other_things_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "failing_attention_kernels", lambda device, dtype: {"cuDNN": "cuDNN version too old"})
    facts = json.loads(minitf("doctor", "--json").stdout)["result"]
    assert facts["cuda:0"] == "NVIDIA H100, 80.0 GiB, 70.0 GiB free, compute capability 9.0"
    assert (
        facts["attention cuda:0"]
        == "flash, memory-efficient, math, not cuDNN (cuDNN version too old); forward and backward in bf16"
    )
    assert {"driver", "CUDA"} <= facts.keys()
    assert facts["compile"].startswith("does not work on cuda: "), "tried without an option where there is a GPU"
    assert f"compile: {facts['compile']}" in facts["problems"]


@pytest.mark.usefixtures("one_gpu")
def test_a_gpu_that_cannot_be_used_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    facts = json.loads(minitf("doctor", "--json").stdout)["result"]
    assert facts["cuda:0"] == "does not work: CUDA error: all CUDA-capable devices are busy or unavailable"
    assert f"cuda:0: {facts['cuda:0']}" in facts["problems"]
