"""Checks the shapes in signatures at every call (jaxtyping, beartype), and gives tests a cache, an environment and
signals of their own.
"""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported, which reads them. Whatever a recipe, `auto` or the shell says: forks may then compute, too,
# and with more threads than the limit oneDNN's products in bf16 are left half unwritten.
os.environ["OMP_NUM_THREADS"] = os.environ["OMP_THREAD_LIMIT"] = "1"

# Test files may import each other, whichever folder they are in.
sys.path += sorted({str(file.parent) for file in Path(__file__).parent.rglob("test_*.py")})

import hypothesis
import pytest
import shapes
from own_cache import claim, fingerprint
from shared import once

gc.disable()  # until all tests are collected: what is imported stays

# Before anything of mini_tf is imported: what a test reads or writes is its own, and nothing asks the network.
cache, held = claim(Path(tempfile.gettempdir()), fingerprint())
os.environ["MINITF_CACHE"] = str(cache)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPL_IGNORE_SYSTEM_FONTS"] = "1"  # pictures do not depend on the fonts of this machine
shapes.install("mini_tf.nn", "mini_tf.attention", "mini_tf.positions", *shapes.layers_of_papers())
# Else pytest rewrites every test module anew, and each process that a test starts compiles all of mini_tf.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples everywhere, whatever an earlier run unused, and as long as each takes.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")

ASKING = (
    "COLUMNS",
    "LINES",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "PY_COLORS",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
)
ASKING += ("TERMINAL_WIDTH", "GITHUB_ACTIONS", "MINITF_LIMITS", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables by which a user asks us, or a library, for another output. What a machine is like (TZ, LC_ALL, HOME) stays
as it is.
"""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Behind pytest's own look at them, and before a test module imports Typer, which reads some.

    Tests run on the CPU: they compare to the bit, and fork. Only those marked `gpu` see a GPU, and only by `-m gpu`.
    """
    for name in ASKING:
        os.environ.pop(name, None)
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_finish() -> None:
    """No collection of garbage looks at all that was imported, here and in forks."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def usual_signals() -> Iterator[None]:
    """Every signal does what it does in a terminal's foreground, here and in children.

    `nohup`, `&` in a script and some batch systems start a process with signals ignored or blocked, and children
    inherit that.
    """
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    ignored = [
        number for number in ignored if number not in (signal.SIGPIPE, signal.SIGXFSZ)
    ]  # which Python itself ignores
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@pytest.fixture(scope="session", autouse=True)
def quick(pytestconfig: pytest.Config) -> Iterator[None]:
    """Without what takes most of a tiny run's time: waiting for the disk, which nobody unplugs here, baselines, steps
    that are timed for seconds, the machine's peak FLOP/s, which test_cost.py measures, and seeds of devices that are
    not there, for each of which torch writes down the stack.

    And without lines about waits, which depend on the clock; test_waits.py has those.
    """
    import torch

    from mini_tf.cli.terminal import waits
    from mini_tf.cost import lengths, run_cost, steps
    from mini_tf.jobs import baselines, finishing, parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(waits, "DELAY", 1e6)
        for module, name in ((run_cost, "MEASURED_SECONDS"), (lengths, "MEASURED_SECONDS")):
            patch.setattr(module, name, 0.01)
        patch.setattr(steps, "EVALUATION_SECONDS", 0.01)
        patch.setattr(parts, "FLOPS_STEPS", 2)
        patch.setattr(run_cost, "peak_flops", lambda device, dtype: 1e11)
        patch.setattr(finishing, "baselines_of", lambda parts, check: baselines.Baselines())
        patch.setattr(baselines, "baselines_of_trained", lambda trained, store, note: baselines.Baselines())
        if pytestconfig.option.markexpr != "gpu":
            patch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)
        yield


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny decoder of bytes after one step; tests only read it."""
    from commands import trained

    def make(folder: Path) -> Path:
        return trained(folder / "run", "train.steps=1", "model.init_std=0.3")

    return once(tmp_path_factory, "decoder", make)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that names classes; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "classifier", tiny_tasks.classifier)


@pytest.fixture(scope="session")
def assistant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows a few conversations by heart; tests only read it."""
    import conversations

    return once(tmp_path_factory, "assistant", conversations.learnt_in)


@pytest.fixture(scope="session")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that tags words; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "tagger", tiny_tasks.tagger)


@pytest.fixture(scope="session")
def regressor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run that gives numbers; tests only read it."""
    import tiny_tasks

    return once(tmp_path_factory, "regressor", tiny_tasks.regressor)
