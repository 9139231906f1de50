"""Tries the versions that pyproject.toml promises, each in an environment of its own: `python -m tests.versions`.

A trial installs minitf and its optional dependencies with one thing changed (a minor version of torch, another Python,
or the lower bound of every dependency), imports every module, and runs the test files that depend on that most;
`--tests` names others. A result is written as soon as it is there, and the same command goes on after it. An
environment has up to 6 GB, and is removed when its trial has ended.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WORK = Path("~/.cache/minitf-versions").expanduser()
LIBRARIES = (
    "recipe/test_recipe_reading.py", "cli/test_cli_generate.py", "cli/test_cli_inspect_views.py",
    "drawing/test_drawing_figures.py", "run/test_run_checkpoint.py",
)  # fmt: skip
"""Recipes, the command line, generation, pictures and files: what depends on Python and on the libraries."""
EXTRAS = {
    "parquet": ("data/test_data_parquet.py",),
    "tensorboard": ("jobs/test_tensorboard.py",),
    "hf": ("hf/test_hub_datasets.py",),
    "sentencepiece": ("data/test_data_sentencepiece.py",),
    "gguf": ("hf/formats/test_gguf.py",),
    "onnx": ("hf/formats/test_onnx.py",),
    "sweep": ("jobs/sweeps/test_space.py",),
    "serve": ("serving/test_server.py",),
    "scores": ("scores/test_scores.py", "scores/test_scores_classes.py", "scores/test_scores_entities.py"),
}
"""Optional dependencies of users, and what depends on each."""
TORCH = (
    "training/test_compiled.py", "attention/test_half_precision.py", "optimizers/test_optimizers.py",
    "nn/test_nn_cross_entropy.py", "training/test_captured_steps.py", "generation/test_generation_token_graphs.py",
    "hf/formats/test_onnx.py",
)  # fmt: skip
"""What depends on torch: its compiler, its kernels, its optimizers, our own gradients, and its exporter."""
RUNNERS = ("pytest", "pytest-xdist", "hypothesis", "beartype", "httpx", "openai")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
IMPORTS = (
    "import pkgutil, mini_tf; [__import__(m.name) for m in pkgutil.walk_packages(mini_tf.__path__, 'mini_tf.') if"
    " '__main__' not in m.name]"
)
WARNINGS = ("-W", "error", "-W", "ignore::DeprecationWarning")
"""Old libraries call what their own dependencies have deprecated since."""
LONGEST = 3600.0
"""Seconds of a step of a trial."""


class Trial(NamedTuple):
    """python: None if there is none here. constraints: versions that pip is held to. tests: files below tests/."""

    name: str
    python: str | None
    constraints: tuple[str, ...]
    tests: tuple[str, ...]


def trials(python: str) -> Iterator[Trial]:
    """By name: `torch-2.10`, ..., `python-3.12`, ..., and `lowest`."""
    dependencies = listed("dependencies")
    [torch] = [line for line in dependencies if line.startswith("torch>=")]
    first, end = map(int, re.findall(r"\.(\d+)", torch))
    libraries = (*LIBRARIES, *(file for files in EXTRAS.values() for file in files))
    for minor in range(first, end):
        yield Trial(f"torch-2.{minor}", python, (f"torch==2.{minor}.*",), TORCH)
    for version in PYTHONS:
        yield Trial(f"python-{version}", found(version), (), libraries)
    bounds = {*dependencies, *(line for extra in EXTRAS for line in listed(extra))} - {torch}
    yield Trial("lowest", python, tuple(line.replace(">=", "==") for line in sorted(bounds)), libraries)


def listed(key: str) -> list[str]:
    """The strings of a list in pyproject.toml; Python 3.10 has no reader of TOML."""
    [block] = re.findall(rf"^{key} = \[([^\]]*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return re.findall(r'"(.*?)"', block)


def found(version: str) -> str | None:
    """A Python of this version that starts: on PATH, or one of pyenv's, whose command on PATH may not start."""
    places = [
        shutil.which(f"python{version}"),
        *map(str, sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))),
    ]
    for path in filter(None, places):
        done = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if done.stdout.strip() == version:
            return path
    return None


def run(trial: Trial) -> dict[str, object]:
    """Install, import and test: what came of it, with the versions of torch and Python."""
    folder, began = WORK / trial.name, time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(trial.constraints) + "\n")
    python = str(folder / "bin" / "python")
    # The pip that comes with Python 3.10 would build packages of source without the tools that they ask for.
    pip = [python, "-m", "pip", "install", "-q", "--no-compile", "--use-pep517", "-c", str(constraints)]
    pytest = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *WARNINGS[2:]]
    steps = {
        "venv": [str(trial.python), "-m", "venv", str(folder)],
        "install": [*pip, "-e", f"{ROOT}[{','.join(EXTRAS)}]", *RUNNERS],
        "imports": [python, *WARNINGS, "-c", IMPORTS],
        "tests": [*pytest, *(f"tests/{file}" for file in trial.tests)],
    }
    result: dict[str, object] = {"name": trial.name, "constraints": trial.constraints, "failed": ""}
    for step, words in steps.items():
        with open(WORK / f"{trial.name}-{step}.txt", "w+") as log:
            try:
                code = subprocess.run(
                    words, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, timeout=LONGEST, env=environment()
                ).returncode
            except subprocess.TimeoutExpired:
                code = 124
            log.seek(0)
            lines = log.read().strip().splitlines() or ["no output"]
        if code:
            result["failed"] = step
            break
    facts = "import sys, torch; print(sys.version.split()[0], torch.__version__)"
    result["versions"] = subprocess.run([python, "-c", facts], capture_output=True, text=True).stdout.strip()
    shutil.rmtree(folder)
    return result | {"end": lines[-1][:200], "seconds": round(time.monotonic() - began)}


def environment() -> dict[str, str]:
    """One thread a process, since two test at a time."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = {trial.name: trial for trial in trials(sys.executable)}
    parser.add_argument(
        "--only", nargs="+", choices=every, metavar="NAME", default=[*every], help=f"some of {', '.join(every)}"
    )
    parser.add_argument(
        "--tests", nargs="+", metavar="FILE", help="test files below tests/ (default: those that depend on the change)"
    )
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    given = parser.parse_args(words)
    if missing := [file for file in given.tests or () if not (ROOT / "tests" / file).is_file()]:
        parser.error(f"tests/{missing[0]}: not there")
    WORK.mkdir(parents=True, exist_ok=True)
    results = WORK / "results.jsonl"
    known = (
        {line["name"]: line for line in map(json.loads, results.read_text().splitlines())} if results.is_file() else {}
    )
    for trial in map(every.__getitem__, given.only):
        if trial.python is None or (trial.name in known and not given.again):
            continue
        known[trial.name] = run(trial._replace(tests=tuple(given.tests or trial.tests)))
        with results.open("a") as file:
            file.write(json.dumps(known[trial.name]) + "\n")
    for name in every:
        line = known.get(name, {"failed": "", "versions": "", "end": "not tried"})
        done = f"failed: {line['failed']}" if line["failed"] else "passed" if line["versions"] else ""
        print(f"{name:12} {done:16} {line['versions']:24} {line['end']}")


if __name__ == "__main__":
    main()
