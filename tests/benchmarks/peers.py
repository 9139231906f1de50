"""Which peers are there, which are not and why, and their versions."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .contest import Options

_SCRIPT = Path(sys.executable).with_name("minitf")
MINITF = [str(_SCRIPT)] if _SCRIPT.exists() else [sys.executable, "-m", "mini_tf"]
"""How the command is called."""


def missing_package(*names: str) -> str:
    """Why a peer that needs these packages cannot be measured; empty where it can."""
    absent = [name for name in names if not installed(name)]
    return f"{' and '.join(absent)} not installed (pip install -e '.[bench]')" if absent else ""


def missing_nanogpt(options: Options) -> str:
    """Why nanoGPT cannot be measured; empty where it can."""
    if options.nanogpt is None:
        return "no checkout given (--nanogpt FOLDER)"
    absent = [name for name in ("model.py", "train.py", "configurator.py") if not (options.nanogpt / name).exists()]
    return f"{options.nanogpt} holds no {', '.join(absent)}" if absent else ""


def beside_python(name: str) -> str:
    """The program of an installed package."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or name


def installed(name: str) -> str:
    """The version of a package, empty where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def versions(options: Options) -> Iterator[tuple[str, str]]:
    """What is compared, each with its version or commit."""
    yield "minitf", _commit(Path(__file__).parents[2])
    for name in ("torch", "transformers", "accelerate", "litgpt", "tokenizers"):
        yield name, installed(name) or "not installed"
    if options.nanogpt:
        yield "nanoGPT", _commit(options.nanogpt)


def _commit(folder: Path) -> str:
    if not (folder / ".git").exists():  # else git would tell of a checkout that the folder lies in
        return "commit unknown"
    done = subprocess.run(
        ["git", "-C", str(folder), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "commit unknown"
