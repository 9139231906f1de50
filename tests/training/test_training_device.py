"""What `auto` comes to, and what is refused."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mini_tf.recipe.sections import Runtime
from mini_tf.system.errors import Unavailable
from mini_tf.training.machine import device, hardware, malloc, memory
from mini_tf.training.machine.device import Setup, available_cores, available_precisions, on_gpu, resolve_setup
from mini_tf.training.machine.memory import free_bytes, largest_micro_batch, saved_bytes

CPU = torch.device("cpu")


@pytest.fixture
def only_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_old_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)


@pytest.mark.parametrize("available", [False, True])
def test_a_gpu_is_used_if_it_is_named_or_if_auto_finds_one(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    used = {name: on_gpu(Runtime(device=name)) for name in ("auto", "cpu", "cuda", "cuda:1")}
    assert used == {"auto": available, "cpu": False, "cuda": True, "cuda:1": True}


def test_the_memory_of_a_gpu_is_told_in_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="GPU", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 29, 80 << 30))
    description = hardware.describe_gpu(torch.device("cuda:0"))
    assert description == "GPU, 80.0 GiB, 1.5 GiB free, compute capability 9.0"


def test_freed_blocks_of_a_mebibyte_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[tuple[int, int]] = []
    monkeypatch.setattr(malloc, "_set_malloc", lambda *option: options.append(option))
    malloc.return_freed_memory()
    assert options == [(-3, 1024 * 1024)]  # M_MMAP_THRESHOLD of glibc


@pytest.mark.usefixtures("only_cpu")
def test_auto_on_a_cpu_is_safe_until_something_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_cores", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    setup = resolve_setup(Runtime())
    assert (setup.device, setup.precision, setup.compile) == (CPU, "fp32", False)
    assert (setup.threads, setup.reasons["threads"]) == (2, "2 cores available")
    assert setup.reasons.keys() == {"device", "precision", "compile", "threads"}
    assert setup.undecided == {"precision", "compile", "threads", "micro_batch_size"}
    assert resolve_setup(Runtime(precision="fp32", threads=1, compile=False)).undecided == {"micro_batch_size"}


@pytest.mark.usefixtures("only_cpu")
def test_threads_are_not_tried_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    setup = resolve_setup(Runtime())
    assert setup.threads == 1
    assert "threads" not in setup.undecided


@pytest.mark.usefixtures("only_cpu")
def test_compiling_that_is_asked_for_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("CXX", "my-c++ --fast")
    with pytest.raises(Unavailable, match=r"^runtime\.compile: no compiler my-c\+\+$") as fault:
        resolve_setup(Runtime(compile=True))
    assert fault.value.exit_code == 9
    again = resolve_setup(Runtime(), {"compile": True})
    assert again.compile is False
    assert again.reasons["compile"].startswith("no compiler my-c++, unlike at the first start: ")
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == "my-c++" else None)
    assert resolve_setup(Runtime(compile=True)).compile is True


@pytest.mark.usefixtures("only_cpu")
def test_a_cache_folder_in_which_torch_cannot_compile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch does not quote the names of files for the C++ compiler."""
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/my name/torch")
    with pytest.raises(
        Unavailable, match=r"^runtime\.compile: torch cannot compile in a folder with a space in its name \(TORCH"
    ):
        resolve_setup(Runtime(compile=True))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/me/torch")
    assert resolve_setup(Runtime(compile=True)).compile is True


def test_a_gpu_with_bf16_uses_it_untried_and_compiling_needs_triton_and_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.delenv("CC", raising=False)
    setup = resolve_setup(Runtime())
    assert (setup.precision, setup.compile, setup.undecided) == ("bf16", False, {"compile"})
    monkeypatch.setattr(device, "has_triton", lambda: False)
    with pytest.raises(Unavailable, match="Triton does not support this GPU"):
        resolve_setup(Runtime(compile=True))
    monkeypatch.setattr(device, "has_triton", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Unavailable, match="no compiler gcc or clang"):
        resolve_setup(Runtime(compile=True))


@pytest.mark.usefixtures("only_cpu")
def test_a_missing_device_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        Unavailable, match=r"runtime\.device: 'cuda' is not available on this machine; available: cpu$"
    ) as fault:
        resolve_setup(Runtime(device="cuda"))
    assert fault.value.exit_code == 9


@pytest.mark.usefixtures("two_old_gpus")
def test_a_device_number_that_is_too_high_and_a_precision_without_hardware_are_refused() -> None:
    with pytest.raises(Unavailable, match="'cuda:2' is not available on this machine; available: cpu, cuda:0, cuda:1"):
        resolve_setup(Runtime(device="cuda:2"))
    with pytest.raises(Unavailable, match="cuda:1 does not support bf16; it supports fp32, fp16"):
        resolve_setup(Runtime(device="cuda:1", precision="bf16"))
    assert resolve_setup(Runtime()).precision == "fp32"


@pytest.mark.parametrize(("n_gpus", "way_out"), [(0, ""), (1, "start one process, or "), (3, "start 3 processes, or ")])
def test_more_processes_than_gpus_are_refused_on_all_with_the_way_out(
    n_gpus: int, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the second machine of two with four processes each. Processes of a machine with MPS alone have none."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: n_gpus == 0)
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    for local_rank in range(4):
        monkeypatch.setenv("RANK", str(4 + local_rank))
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        with pytest.raises(Unavailable) as fault:
            resolve_setup(Runtime())
        need = "runtime.device: 4 processes need a GPU each (NVIDIA or AMD)"
        assert fault.value.message == f"{need}, and this machine has {n_gpus}"
        assert fault.value.hint == f"{way_out}use runtime.device=cpu"
        assert resolve_setup(Runtime(device="cpu")).device == torch.device("cpu")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
        assert resolve_setup(Runtime(precision="fp32")).device == torch.device(f"cuda:{local_rank}")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)


@pytest.mark.usefixtures("only_cpu")
def test_fp16_is_refused_on_a_cpu() -> None:
    with pytest.raises(Unavailable, match="cpu does not support fp16; it supports fp32, bf16"):
        resolve_setup(Runtime(precision="fp16"))
    assert resolve_setup(Runtime(precision="bf16")).precision == "bf16"
    assert "fp16" not in available_precisions(CPU)


@pytest.mark.usefixtures("only_cpu")
def test_a_continued_run_keeps_what_its_first_start_found_unless_it_is_asked_otherwise() -> None:
    first = resolve_setup(Runtime()).settings
    assert first.keys() == {"device", "precision", "compile", "threads"}
    recorded = {"precision": "bf16", "threads": 1, "micro_batch_size": 4, "measured": {"precision": {"fp32": 1.0}}}
    again = resolve_setup(Runtime(), first | recorded)
    assert (again.precision, again.threads, again.micro_batch_size) == ("bf16", 1, 4)
    assert again.reasons["precision"] == again.reasons["micro_batch_size"] == "recorded in run.json"
    assert again.undecided == set()
    assert resolve_setup(Runtime(precision="fp32"), {"precision": "bf16"}).precision == "fp32"


@pytest.mark.usefixtures("only_cpu")
def test_the_way_out_of_a_recorded_setting_is_a_value_not_auto() -> None:
    with pytest.raises(
        Unavailable, match=r"'cuda:0' \(recorded in run\.json\) is not available on this machine; available: cpu$"
    ) as fault:
        resolve_setup(Runtime(), {"device": "cuda:0", "graphs": True})
    assert fault.value.hint == "use runtime.device=cpu"
    with pytest.raises(
        Unavailable, match=r"cpu does not support fp16 \(recorded in run\.json\); it supports fp32, bf16$"
    ) as fault:
        resolve_setup(Runtime(device="cpu"), {"device": "cuda:0", "precision": "fp16"})
    assert fault.value.hint == "runtime.precision=fp32"


@pytest.mark.usefixtures("only_cpu")
def test_threads_of_a_larger_machine_come_down_with_a_warning() -> None:
    setup = resolve_setup(Runtime(), {"threads": 4096})
    assert setup.threads == available_cores()
    assert "4096 at the first start: results may differ in the last bits" in setup.reasons["threads"]
    assert resolve_setup(Runtime(), {"threads": available_cores()}).reasons["threads"] == "recorded in run.json"


@pytest.mark.parametrize(
    ("text", "cores"), [("150000 100000", 1), ("400000 100000", 4), ("50000 100000", 1), ("max 100000", 1 << 20)]
)
def test_the_share_of_a_container_limits_the_cores(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert device._container_cores(tmp_path) == cores


def test_the_older_control_groups_are_read_too(tmp_path: Path) -> None:
    assert device._container_cores(tmp_path) == 1 << 20
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert device._container_cores(tmp_path) == 3


def test_a_setup_computes_in_its_precision_and_leaves_parameters_alone() -> None:
    layer = nn.Linear(2, 2)
    with Setup(precision="bf16").autocast():
        assert layer(torch.ones(1, 2)).dtype == torch.bfloat16
    with Setup().autocast():
        assert layer(torch.ones(1, 2)).dtype == torch.float32
    assert layer.weight.dtype == torch.float32


def test_saved_bytes_are_the_activations_without_the_parameters() -> None:
    model = nn.Sequential(nn.Linear(100, 50, bias=False), nn.Tanh(), nn.Linear(50, 10, bias=False))
    x = torch.ones(8, 100)
    torch.manual_seed(0)
    expected_draw = torch.rand(1)
    torch.manual_seed(0)
    x_and_tanh = 4 * 8 * (100 + 50)  # the latter is saved twice but held once
    assert saved_bytes(lambda: model(x), Setup(), model) == x_and_tanh
    assert torch.equal(torch.rand(1), expected_draw)


def test_nothing_of_a_measured_pass_stays_alive() -> None:
    """An output that its node saves, as tanh's is, would hold the node that holds it: memory lost until the process
    ends, and gradients added on the stream of that pass, which no CUDA graph may wait for.
    """
    model, alive = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), []

    def forward() -> None:
        bias = model(torch.ones(1, 4)).grad_fn.next_functions[0][0].next_functions[0][0]
        bias.register_prehook(alive.append)

    saved_bytes(forward, Setup(), model)
    model(torch.ones(1, 4)).sum().backward()
    assert not alive


def test_what_is_freed_on_the_way_is_counted_as_often_as_it_was_taken() -> None:
    """Else whatever takes the place of what was freed would count for nothing."""
    model = nn.Sequential(nn.Linear(100, 50, bias=False), nn.Linear(50, 10, bias=False))

    def forward() -> None:
        for _ in range(50):
            model(torch.ones(8, 100))

    assert saved_bytes(forward, Setup(), model) == 50 * 4 * 8 * (100 + 50)


def test_what_a_machine_has_left_is_what_may_be_had_without_swapping(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "MemTotal: 4000 kB\nMemFree: 1000 kB\nMemAvailable: 3000 kB\n"
    monkeypatch.setattr(Path, "read_text", lambda path: text if str(path) == "/proc/meminfo" else "")
    assert memory._machine_bytes() == 3000 * 1024


def test_half_of_a_machine_counts_as_left_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: "MemTotal: 4000 kB\n")
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert memory._machine_bytes() == 500 * 4096


def test_a_micro_batch_is_the_largest_divisor_that_fits() -> None:
    assert largest_micro_batch(12, row_bytes=10, free=1000) == 12
    assert largest_micro_batch(12, row_bytes=10, free=100) == 4
    assert [largest_micro_batch(12, row_bytes=10, free=free) for free in (239, 240)] == [6, 12]  # half of what is free
    assert largest_micro_batch(7, row_bytes=10, free=100) == 1
    assert largest_micro_batch(8, row_bytes=10**12, free=1) == 1
    assert 0 < free_bytes(CPU) < 1 << 50


@pytest.mark.parametrize(
    ("folder", "limit", "used", "cached"),
    [
        (".", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_the_memory_of_a_container_is_its_limit_less_what_cannot_be_given_up(
    tmp_path: Path, folder: str, limit: str, used: str, cached: str
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, text in ((limit, "1000"), (used, "700"), ("memory.stat", f"anon 400\n{cached} 300")):
        (tmp_path / folder / name).write_text(text + "\n")
    assert memory._container_bytes(tmp_path) == 600
    (tmp_path / folder / "memory.stat").write_text("anon 400\n")
    assert memory._container_bytes(tmp_path) == 300  # no file's pages are told of
    (tmp_path / folder / limit).write_text("200\n")
    assert memory._container_bytes(tmp_path) == 0  # lowered meanwhile
    (tmp_path / folder / limit).write_text("max\n")
    assert memory._container_bytes(tmp_path) == 1 << 62


def test_generators_are_seeded_as_by_torch() -> None:
    torch.manual_seed(2**63 + 5)
    expected = torch.rand(3)
    Setup().seed(2**63 + 5)
    assert torch.equal(torch.rand(3), expected)
    assert torch.initial_seed() == 2**63 + 5


@pytest.mark.parametrize(("name", "index"), [("cuda", 1), ("cuda:0", 0)])
def test_the_generator_of_the_gpu_of_a_run_is_seeded(name: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins for two GPUs, of which the second is the current one."""
    generators = [torch.Generator().manual_seed(i) for i in range(2)]
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    Setup(torch.device(name)).seed(7)
    assert [generator.initial_seed() for generator in generators] == [7 if i == index else i for i in range(2)]
