"""Tries the versions that pyproject.toml promises, each in an environment of its own: `python -m tests.versions`.

A trial installs minitf with one thing changed (a minor version of torch, another Python, or the lower bound of every
dependency) and runs test files. It writes a line after each trial, and goes on where it was stopped. An environment has
up to 6 GB, and is removed when its trial has ended.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).parents[1]
WORK = Path("~/.cache/minitf-versions").expanduser()
TESTS = ("test_compiled.py", "test_half_precision.py", "test_acceptance.py", "test_pretrain.py", "test_training_loop.py", "test_models.py",
         "test_recipe_reading.py", "test_cli_generate.py", "test_drawing_figures.py", "test_run_checkpoint.py")  # fmt: skip
"""What depends on torch and on the libraries, without other extras than those of a trial."""
RUNNERS = ("pytest", "pytest-xdist", "hypothesis", "beartype")
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


class Trial(NamedTuple):
    """constraints: versions that pip is held to."""

    name: str
    python: str
    constraints: tuple[str, ...]


def trials(dependencies: list[str], python: str) -> Iterator[Trial]:
    """By name: `torch-2.10`, ..., `python-3.12`, ..., and `lowest`."""
    [torch] = [line for line in dependencies if line.startswith("torch>=")]
    first, end = map(int, re.findall(r"\.(\d+)", torch))
    for minor in range(first, end):
        yield Trial(f"torch-2.{minor}", python, (f"torch==2.{minor}.*",))
    for version in PYTHONS:
        if found := shutil.which(f"python{version}"):
            yield Trial(f"python-{version}", found, ())
    lowest = tuple(line.replace(">=", "==") for line in dependencies if line != torch)
    yield Trial("lowest", python, lowest)


def run(trial: Trial, tests: list[str]) -> dict[str, object]:
    """Install and test: what came of it, with the versions of torch and Python."""
    folder = WORK / trial.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(trial.constraints) + "\n")
    python = str(folder / "bin" / "python")
    steps = [
        [trial.python, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "-q", "-c", str(constraints), "-e", str(ROOT), *RUNNERS],
        [python, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)],
    ]
    result: dict[str, object] = {"name": trial.name, "constraints": trial.constraints, "failed": ""}
    for step, words in zip(("venv", "install", "tests"), steps, strict=True):
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        (WORK / f"{trial.name}-{step}.txt").write_text(done.stdout + done.stderr)
        if done.returncode:
            result["failed"] = step
            break
    facts = "import sys, torch; print(sys.version.split()[0], torch.__version__)"
    result["versions"] = subprocess.run([python, "-c", facts], capture_output=True, text=True).stdout.strip()
    lines = (done.stdout.strip() or done.stderr.strip() or "no output").splitlines()
    shutil.rmtree(folder)
    return result | {"end": lines[-1][:200]}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="trials, such as torch-2.10, python-3.12 or lowest (default: all)")
    parser.add_argument(
        "--tests", nargs="+", metavar="FILE", default=[*TESTS], help="test files (default: those that depend on versions most)"
    )
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    results = WORK / "results.jsonl"
    known = {line["name"]: line for line in map(json.loads, results.read_text().splitlines())} if results.is_file() else {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for trial in trials(project["dependencies"], sys.executable):
        if (given.only and trial.name not in given.only) or (trial.name in known and not given.again):
            continue
        known[trial.name] = run(trial, given.tests)
        with results.open("a") as file:
            file.write(json.dumps(known[trial.name]) + "\n")
    for name, line in known.items():
        print(f"{name:12} {'failed: ' + str(line['failed']) if line['failed'] else 'passed':16} {line['versions']:24} {line['end']}")


if __name__ == "__main__":
    main()
