"""A run that compiles: its code is kept on disk, its bytes are those of a resumed run, and a compiler that fails costs
one line.

Compilers fail for real here: a program that is none, one that refuses every file, a cache that cannot be written.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from commands import ROOT, TINY, minitf, record
from torch import Tensor, nn

from mini_tf.data.batch import Batch
from mini_tf.jobs import assembling
from mini_tf.nn.state import State
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums
from mini_tf.system.errors import DataFault, Unavailable, compiler_reason, to_minitf_error
from mini_tf.training.machine import compiled as compiling
from mini_tf.training.machine import trial_passes, tuning
from mini_tf.training.machine.compiled import CompiledTask, varying_dims
from mini_tf.training.machine.device import EXPLICIT, RECORDED, Setup
from mini_tf.training.machine.trial_passes import compile_failure, sample_failure, without_failing_compiler

SMALLEST = (TINY, "model.n_layers=1", "model.d_model=16", "log.samples=0", "eval.baseline=false", "train.steps=2")
FIXED = ("runtime.device=cpu", "runtime.threads=1", "runtime.precision=fp32", "train.micro_batch_size=8")
COUNTED = """
import atexit, json, sys
def report():
    from torch._dynamo.utils import counters
    print(json.dumps({**counters["inductor"], **counters["aot_autograd"]}), file=sys.stderr)
atexit.register(report)
"""


def pretrain(
    folder: Path, *overrides: str, preparation: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    """`minitf pretrain` of the smallest run, in a process of its own, which reads its environment at imports."""
    line = ["pretrain", *SMALLEST, *FIXED, *overrides, "-d", str(folder)]
    code = f"{preparation}\nfrom mini_tf.cli.app import main\nmain({line!r})"
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=1200
    )


def failing_backend(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("c++: fatal error: no room")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles nothing, which `auto` tries whatever the length of the run and the load of the machine."""
    monkeypatch.setattr(compiling, "CompiledTask", partial(CompiledTask, backend=failing_backend))
    monkeypatch.setattr(tuning, "SHORT", 0)
    monkeypatch.setitem(tuning.COMPILES_FROM, "cpu", 0)
    monkeypatch.setattr(assembling, "contended", lambda cores: False)


@pytest.mark.usefixtures("refused")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_auto_trains_without_a_compiler_that_fails_and_records_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    done = minitf("pretrain", *SMALLEST, *FIXED, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    reason = "compile off (torch.compile does not work here: RuntimeError: c++: fatal error: no room)"
    assert [reason in line for line in done.stderr.splitlines() if "torch.compile" in line] == [True]
    assert record(tmp_path / "run")["auto"]["compile"] is False
    assert (tmp_path / "cache").exists()
    assert not (tmp_path / "cache" / "tuning").exists(), "a mended compiler is tried again"


@pytest.mark.usefixtures("refused")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compilation_that_is_demanded_and_fails_is_refused_in_one_line(tmp_path: Path) -> None:
    done = minitf("pretrain", *SMALLEST, *FIXED, "runtime.compile=true", "-d", tmp_path / "run")
    assert done.exit_code == 9, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "runtime.compile: torch.compile does not work here: RuntimeError: c++: fatal error: no room; `minitf doctor"
        " --compile` tries it on a small function; runtime.compile=false trains without it"
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "model.safetensors").exists()


class Sum(nn.Module):
    """A task whose loss is the weighted sum of the labels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        return LossSums({"loss": (batch.labels * self.weight * batch.inputs.ids.float().mean()).sum()}, {}, None)


class FailingSum(Sum):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, batch: Batch, state: State | None = None) -> LossSums:
        raise self.error


def batch(targets: int, length: int = 4) -> Batch:
    return Batch(Tokens(torch.ones(2, length).long()), torch.ones(targets), torch.arange(targets))


@dataclass(frozen=True)
class Feed:
    """The micro-batches of steps, given as one batch each."""

    batches: tuple[Batch, ...]
    assigned: object = None
    plan: Any = field(default_factory=lambda: SimpleNamespace(stream=False))

    def micro_batches(self, step: int) -> list[Batch]:
        return [self.batches[step % len(self.batches)]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("compiler", "cache", "reason"),
    [
        ("c++", "cache", "CppCompileError: c++: fatal error: no room"),
        ("/bin/false", "cache", "/bin/false"),
        ("g++", "file/cache", "Not a directory"),
    ],
)
def test_a_compiler_or_a_cache_that_fails_is_the_reason(
    compiler: str, cache: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    program = tmp_path / "c++"
    program.write_text(
        '#!/bin/sh\ncase "$1" in --version|-dumpversion) exec g++ "$@";; esac\necho "c++: fatal error: no room"'
        " >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / cache))
    own_compiler = {"cpp.cxx": (str(tmp_path / compiler),), "compile_threads": 1}  # else a pool of processes
    with torch._inductor.config.patch(own_compiler):
        failure = compile_failure(Sum(), Feed((batch(3),)), Setup(compile=True))  # type: ignore[arg-type]
    assert failure is not None
    assert reason in failure


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_shape_compiles_to_does_not_depend_on_earlier_shapes() -> None:
    """The number of targets varies in the sampled steps, the length of rows does not. By default the first shape is
    compiled for its sizes and the second for any, so that a resumed run computes with other kernels.
    """
    graphs: list[str] = []

    def backend(graph: Any, inputs: list[Any]) -> Any:
        values = [node.meta["example_value"] for node in graph.graph.nodes if node.op == "placeholder"]
        graphs.append(str([[n if type(n) is int else "any" for n in x.shape] for x in values if isinstance(x, Tensor)]))
        return graph.forward

    by_order = []
    for order in ([(5, 4), (7, 4), (9, 6)], [(9, 6), (7, 4), (5, 4)]):
        torch._dynamo.reset()
        compiled = CompiledTask(Sum(), varying_dims((batch(5), batch(7))), backend=backend)
        for targets, length in order:
            assert compiled(batch(targets, length)).parts["loss"].item() == targets
        by_order.append(sorted(graphs))
        graphs.clear()
    assert by_order[0] == by_order[1]
    assert len(by_order[0]) == 2
    assert ["[2, 4]" in graph for graph in by_order[0]] == [True, False]
    assert all("['any']" in graph for graph in by_order[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trial_changes_neither_gradients_nor_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "CompiledTask", partial(CompiledTask, backend="eager"))
    task = Sum().eval()
    task.weight.grad = torch.full((), 7.0)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert compile_failure(task, Feed((batch(3),)), Setup(compile=True)) is None  # type: ignore[arg-type]
    assert torch.equal(torch.rand(1), expected)
    assert task.weight.grad.item() == 7.0
    assert not task.training


def failing(error: Exception) -> Any:
    def compiled(self: Setup, task: nn.Module, feed: object = None) -> Any:
        if self.compile:
            raise error
        return task

    return compiled


def test_a_failing_backend_is_named_and_lack_of_memory_is_left_to_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error, reason in (
        (ValueError("no such pass\nand more"), "ValueError: no such pass"),
        (torch.OutOfMemoryError("CUDA out of memory"), None),
    ):
        monkeypatch.setattr(Setup, "compiled", failing(error))
        assert compile_failure(Sum(), Feed((batch(3),)), Setup(compile=True)) == reason  # type: ignore[arg-type]


def test_one_micro_batch_shows_whether_a_task_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    task, passed = Sum(), list[Batch]()

    class Several(Feed):
        def micro_batches(self, step: int) -> list[Batch]:
            return [*self.batches]

    def compiled(self: Setup, task: nn.Module, feed: object) -> Any:
        return lambda batch, state: passed.append(batch) or task(batch, state)

    monkeypatch.setattr(Setup, "compiled", compiled)
    assert compile_failure(task, Several((batch(3), batch(5))), Setup(compile=True)) is None  # type: ignore[arg-type]
    assert [len(tried.labels) for tried in passed] == [3]


def test_a_fault_of_data_or_task_is_not_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what the same rows raise without the compiler; lack of memory is left to the first step again."""
    monkeypatch.setattr(compiling, "CompiledTask", partial(CompiledTask, backend="eager"))
    task, faults = Sum(), [DataFault("train.jsonl: changed while it was read"), torch.OutOfMemoryError("no room")]

    class Unreadable(Feed):
        def micro_batches(self, step: int) -> list[Batch]:
            raise faults[0]

    with pytest.raises(DataFault, match="changed while it was read"):
        compile_failure(task, Unreadable(()), Setup(compile=True))  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="no such row"):
        compile_failure(FailingSum(IndexError("no such row")), Feed((batch(3),)), Setup(compile=True))  # type: ignore[arg-type]
    monkeypatch.setattr(Setup, "compiled", failing(ValueError("no such pass")))
    assert compile_failure(FailingSum(faults[1]), Feed((batch(3),)), Setup(compile=True)) == "ValueError: no such pass"  # type: ignore[arg-type]


@pytest.mark.parametrize("why", [EXPLICIT, RECORDED, "measured"])
def test_only_a_demanded_compilation_is_refused_if_it_fails(why: str) -> None:
    setup = Setup(compile=True, reasons={"compile": why})
    assert without_failing_compiler(setup, None) is setup
    if why == EXPLICIT:
        with pytest.raises(
            Unavailable, match=r"^runtime\.compile: torch\.compile does not work here: no room$"
        ) as fault:
            without_failing_compiler(setup, "no room")
        assert fault.value.hint is not None
        assert fault.value.hint.endswith("runtime.compile=false trains without it")
        return
    eager = without_failing_compiler(setup, "no room")
    assert eager.compile is False
    assert eager.reasons["compile"].startswith("torch.compile does not work here: no room")
    assert ("unlike at the first start" in eager.reasons["compile"]) is (why == RECORDED)
    assert eager.fallbacks == {"compile": eager.reasons["compile"]}


def test_the_reason_of_a_compiler_is_the_error_that_it_printed() -> None:
    inner = type(
        "CppCompileError",
        (RuntimeError,),
        {"output": "In file a.cpp:\na.cpp:3: error: no 'x'\n", "__module__": "torch._inductor.exc"},
    )("C++")
    outer = type("InductorError", (RuntimeError,), {"inner_exception": inner, "__module__": "torch._inductor.exc"})(
        "long"
    )
    assert compiler_reason(outer) == "CppCompileError: a.cpp:3: error: no 'x'"
    fault = to_minitf_error(outer)
    assert (fault.exit_code, fault.message) == (9, "torch.compile failed: CppCompileError: a.cpp:3: error: no 'x'")
    assert fault.hint == "runtime.compile=false, and the same command continues; results may differ in the last bits"


def test_if_one_process_cannot_compile_none_does(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[object] = []

    def all_gather(reason: object) -> list[object]:
        gathered.append(reason)
        return [reason, "CppCompileError: on the other one"]

    monkeypatch.setattr(assembling, "compile_failure", lambda task, feed, setup: None)
    monkeypatch.setattr(assembling, "Feed", lambda *given: None)
    parts: Any = SimpleNamespace(
        setup=Setup(compile=True, reasons={"compile": "measured"}), group=SimpleNamespace(all_gather=all_gather),
        task=None, plan=None, train=None,
        prepare=None,
    )  # fmt: skip
    setup = assembling.setup_that_compiles(parts)
    assert (setup.compile, gathered) == (False, [None])
    assert "on the other one" in setup.reasons["compile"]


def test_doctor_tries_to_compile_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(trial_passes, "sample_failure", lambda device: f"CppCompileError: no room for {device}")
    assert json.loads(minitf("doctor", "--json").stdout)["result"]["compile"].startswith(
        "not tried (--compile tries it); "
    )
    done = json.loads(minitf("doctor", "--compile", "--json").stdout)["result"]
    assert done["compile"] == "does not work on cpu: CppCompileError: no room for cpu"
    assert "compile: does not work on cpu: CppCompileError: no room for cpu" in done["problems"]


def test_a_missing_compiler_is_named_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("CXX", "no-c++")
    assert sample_failure(torch.device("cpu")) == "no compiler no-c++"


@pytest.mark.slow
def test_a_resumed_compiled_run_takes_its_code_from_disk_and_has_the_same_bytes(tmp_path: Path) -> None:
    """Three processes: one is killed before its third step, one continues, one was never interrupted."""
    model = "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}"
    words = (model, "objective=masked", "runtime.compile=true", "train.steps=4", "checkpoint.every_steps=1")
    cache = {"MINITF_CACHE": str(tmp_path / "cache")}
    kill = "import os, signal\nfrom mini_tf.training import loop\nreal, steps = loop.clip_factor, iter(range(9))\n"
    kill += (
        "loop.clip_factor = lambda *given: os.kill(os.getpid(), signal.SIGKILL) if next(steps) == 2 else real(*given)"
    )
    killed = pretrain(tmp_path / "killed", *words, preparation=kill, **cache)
    assert killed.returncode == -9, killed.stderr
    resumed = pretrain(tmp_path / "killed", *words, preparation=COUNTED, **cache)
    assert resumed.returncode == 0, resumed.stderr
    counts = json.loads(resumed.stderr.splitlines()[-1])
    assert counts.get("autograd_cache_hit", 0) + counts.get("fxgraph_cache_hit", 0) > 0
    assert "fxgraph_cache_miss" not in counts
    whole = pretrain(tmp_path / "whole", *words, MINITF_CACHE=str(tmp_path / "another"))
    assert whole.returncode == 0, whole.stderr
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
