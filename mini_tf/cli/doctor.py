"""`minitf doctor`: versions, devices, free space, and what works on a GPU; --resume or --nproc: a test of exact
continuation.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.loading import at_terminal
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.jobs.killed_runs import ResumeProof


RECIPE = typer.Argument(
    metavar="[RECIPE] [KEY=VALUE ...]",
    help="With --resume: the recipe to train. Make it short: train.steps=40.",
    show_default="a tiny one",
)


@command
def doctor(
    console: Console,
    arguments: Annotated[list[str] | None, RECIPE] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Kill and continue runs, and compare their files byte for byte (20 s without a recipe)."
        ),
    ] = False,
    nproc: Annotated[
        int,
        typer.Option(
            "--nproc",
            min=1,
            max=64,
            metavar="P",
            help="Train in P processes, kill some, and compare with one (30 s).",
            show_default=False,
        ),
    ] = 1,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Try torch.compile also without a GPU (half a minute the first time).")
    ] = False,
) -> None:
    if resume:
        return _prove_resume(console, arguments or [])
    if arguments:
        raise UsageFault(
            f"{arguments[0]}: a recipe is used without --resume", hint="`minitf doctor --resume RECIPE train.steps=40`"
        )
    if nproc > 1:
        return _prove_processes(console, nproc)
    with at_terminal("trying what works here"):
        facts = {**_software(), "added kinds": _added(), **_devices(), **_gpus()}
        facts |= {"compile": _compile(compile_), **_space()}
    failing = [key for key, fact in facts.items() if str(fact).startswith("does not work")]
    failing += [key for key in ("cache", "outputs") if "not writable" in facts[key]]
    problems = [*(f"{key}: {facts[key]}" for key in failing), *_unusable()]
    for problem in problems:
        console.warn(problem)
    lines = [f"{key:<14} {value}" for key, value in facts.items()]
    console.output("\n".join(lines), result={**facts, "problems": problems})


def _prove_resume(console: Console, arguments: list[str]) -> None:
    from mini_tf.jobs.killed_runs import prove_resume
    from mini_tf.recipe.arguments import split_arguments
    from mini_tf.system.errors import GateMissed

    proof = prove_resume(Console(quiet=True), console.say, *split_arguments(arguments))
    console.output("\n".join([*_table(proof), _verdict(proof)]), result=proof.as_json)
    if proof.first_difference is not None:
        hint = "two uninterrupted runs are byte-identical, so this is a bug in minitf"
        if not proof.repeats:
            hint = "two uninterrupted runs differ as well: computation on this machine is not deterministic"
            hint += "; try OMP_NUM_THREADS=1"
        raise GateMissed(proof.first_difference, hint=hint)


def _prove_processes(console: Console, processes: int) -> None:
    from mini_tf.jobs.killed_runs import prove_processes
    from mini_tf.system.errors import GateMissed

    proof = prove_processes(processes, console.say)
    different = [f"{name} differs, first in {place}" for name, place in proof.differs.items() if place is not None]
    how = f"{processes} processes, killed {len(proof.kills)} times with kill -9 and continued"
    console.output(
        f"{how}: {'NOT byte-identical' if different else 'byte-identical'} to one process", result=proof.as_json
    )
    if different:
        raise GateMissed(
            different[0], hint="processes on processors of different kinds, or a bug in minitf", faults=different
        )


def _table(proof: "ResumeProof") -> list[str]:
    """One row per killed run: time of the kill, state then, and comparison of its files with the uninterrupted run."""
    width = max(len(kill.found) for kill in proof.kills)
    files = list(proof.kills[0].differs)
    rows = [
        f"{number:<6}{f'{kill.seconds:.2f} s':>8}   {kill.found:<{width}}   "
        + "   ".join(f"{place or 'equal':<{len(name)}}" for name, place in kill.differs.items())
        for number, kill in enumerate(proof.kills, start=1)
    ]
    return [line.rstrip() for line in (f"{'kill':<6}{'after':>8}   {'found':<{width}}   {'   '.join(files)}", *rows)]


def _verdict(proof: "ResumeProof") -> str:
    inside = sum(kill.inside_save for kill in proof.kills)
    how = f"{len(proof.kills)} times with kill -9 ({inside or 'never'} while saving) and resumed"
    run = f"a run of {proof.steps} steps ({proof.auto['device']}, {proof.auto['threads']} threads), killed {how}"
    return f"{run}: {'byte-identical every time' if proof.first_difference is None else 'NOT byte-identical'}"


def _software() -> dict[str, Any]:
    import platform

    import numpy
    import safetensors
    import tokenizers
    import torch

    import mini_tf
    from mini_tf.scores import INSTALL, PACKAGES, version

    return {
        "minitf": mini_tf.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()}-{platform.release()}",
        **{module.__name__: str(module.__version__) for module in (torch, numpy, tokenizers, safetensors)},
        "parquet": _extra({"pyarrow": _pyarrow()}, "pip install 'minitf[parquet]'"),
        "scores": _extra({package: version(package) for package in PACKAGES}, INSTALL),
    }


def _pyarrow() -> str | None:
    try:
        import pyarrow
    except ImportError:
        return None
    return str(pyarrow.__version__)


def _extra(versions: dict[str, str | None], install: str) -> str:
    """Which packages of an extra are here. versions: None for a missing package."""
    missing = [package for package, version in versions.items() if version is None]
    here = ", ".join(f"{package} {version}".rstrip() for package, version in versions.items() if version is not None)
    if not here:
        return f"no ({install})"
    return f"partly ({here}; not {', '.join(missing)}: {install})" if missing else f"yes ({here})"


def _added() -> str:
    """Installed packages that add kinds, with version and kinds."""
    from mini_tf.recipe.kind_folders import added_kinds

    added: dict[str, list[str]] = {}
    for kind in added_kinds():
        added.setdefault(f"{kind.folder.distribution} {kind.folder.version}", []).append(f"{kind.package}.{kind.word}")
    return "; ".join(f"{package} ({', '.join(kinds)})" for package, kinds in sorted(added.items())) or "none"


def _unusable() -> list[str]:
    """Faults of kinds that papers and installed packages add; imports them."""
    from mini_tf.recipe.kind_folders import GROUP, PACKAGES, KindFault, added_folders, own_folders
    from mini_tf.recipe.kinds import settings_of

    missing = [folder for folder in added_folders() if not folder.paths]
    problems = [
        f"the entry point {folder.module} ({GROUP}) of {folder.owner} names no importable folder" for folder in missing
    ]
    folders = (*own_folders()[1:], *added_folders())
    for kind in (kind for folder in folders for package in PACKAGES for kind in folder.kinds(package)):
        try:
            settings_of(kind.package, kind.word)
        except KindFault as fault:
            problems.append(fault.message)
    return list(dict.fromkeys(problems))


def _devices() -> dict[str, Any]:
    import torch

    from mini_tf.training.machine.device import available_cores, available_devices, available_precisions

    names = available_devices()
    gpus = {name: f"{name} {torch.cuda.get_device_name(name)}" for name in names if name.startswith("cuda")}
    return {
        "devices": ", ".join(gpus.get(name, name) for name in names),
        "precisions": ", ".join(f"{name} {' '.join(available_precisions(torch.device(name)))}" for name in names),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
    }


def _gpus() -> dict[str, Any]:
    """Of each GPU of NVIDIA what it is, and the kernels of attention that work on it, which takes a second to try."""
    import torch

    if not torch.cuda.device_count():
        return {}
    from mini_tf.system.errors import reason_of
    from mini_tf.training.machine.device import available_precisions
    from mini_tf.training.machine.hardware import KERNELS, describe_gpu, driver_version, failing_attention_kernels

    facts: dict[str, Any] = {"driver": driver_version(), "CUDA": f"{torch.version.cuda} (torch's)"}
    for device in (torch.device("cuda", n) for n in range(torch.cuda.device_count())):
        try:
            facts[str(device)] = describe_gpu(device)
            precision = "bf16" if "bf16" in available_precisions(device) else "fp16"
            failing = failing_attention_kernels(device, torch.bfloat16 if precision == "bf16" else torch.float16)
            kernels = [
                *(name for name in KERNELS if name not in failing),
                *(f"not {name} ({reason})" for name, reason in failing.items()),
            ]
            facts[f"attention {device}"] = f"{', '.join(kernels)}; forward and backward in {precision}"
        except (RuntimeError, AssertionError) as error:  # a GPU that another program uses alone, or a broken driver
            facts[str(device)] = f"does not work: {reason_of(error)}"
    return facts


def _compile(wanted: bool) -> str:
    """Whether torch.compile works. Without a GPU it is seldom used, and a first trial takes longer than all else."""
    import torch

    from mini_tf.training.machine.device import missing_compiler

    device = torch.device("cuda" if torch.cuda.device_count() else "cpu")
    if device.type == "cpu" and not wanted:
        return f"not tried (--compile tries it); {missing_compiler(device) or 'there is a C++ compiler'}"
    from mini_tf.training.machine.trial_passes import sample_failure

    failure = sample_failure(device)
    return f"works on {device}" if failure is None else f"does not work on {device}: {failure}"


def _space() -> dict[str, Any]:
    from mini_tf.system.cache import cache_folder
    from mini_tf.system.errors import StorageFault

    gib = 1 << 30
    try:
        cache = cache_folder()
        facts: dict[str, Any] = {"cache": f"{cache} ({_writable(cache)})"}
    except StorageFault as fault:
        facts = {"cache": f"not writable: {fault.message}"}
    facts["outputs"] = f"{Path('outputs').absolute()} ({_writable(Path('outputs'))})"
    facts["free disk"] = f"{shutil.disk_usage(Path.cwd()).free / gib:.1f} GiB"
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        facts["free memory"] = f"{os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / gib:.1f} GiB"
    return facts


def _writable(folder: Path) -> str:
    nearest = folder.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    return "writable" if os.access(nearest, os.W_OK) else "not writable"
