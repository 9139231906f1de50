"""The README's commands run, its tables are true, and `.ci/run` runs what it says."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from mini_tf.recipe.kinds import listing
from mini_tf.recipe.presets import presets

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SMALL = "model.d_model=16 model.n_layers=1 model.n_heads=1 tokenizer.vocab_size=300 train.steps=3 train.batch_size=2 runtime.threads=1"


def block(name: str) -> str:
    """The shell block that follows the marker `<!-- name -->`."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found, name
    return found[1]


def run(script: str, folder: Path) -> str:
    environment = {**os.environ, "MINITF_CACHE": os.environ.get("MINITF_CACHE", str(folder / "cache")), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tour_runs(tmp_path: Path) -> None:
    """As printed, but with a model small enough for a test."""
    shown = run(block("tour").replace("minitf pretrain quickstart", f"minitf pretrain quickstart {SMALL}"), tmp_path)
    assert re.search(r"bits_per_byte +\d", shown)
    assert (tmp_path / "outputs" / "first" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_about_recipes_run(tmp_path: Path) -> None:
    script = re.search(r"```sh\n(minitf recipe list.*?)```", README, re.DOTALL)
    assert script
    run(script[1], tmp_path)


def test_the_first_command_is_one_line_that_trains_the_default() -> None:
    assert block("first command").strip().endswith("&& minitf pretrain")
    assert "quickstart" in presets()


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "<!-- test command -->" in script
    assert block("test command").strip().endswith("ruff format --check . && ruff check . && mypy mini_tf && pytest -q")


@pytest.mark.parametrize("package", ["attention", "positions", "models", "objectives"])
def test_the_table_of_what_it_can_do_names_every_kind(package: str) -> None:
    table = README.split("## What it can do")[1].split("## Exit codes")[0]
    for word in listing(package):
        assert re.search(rf"\b{word}\b", table), word


def test_the_table_of_recipes_names_every_recipe() -> None:
    table = README.split("## What it can do")[1].split("## Exit codes")[0]
    for name in presets():
        assert f"| `{name}` |" in table


def test_pictures_that_the_readme_shows_are_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).is_file()
