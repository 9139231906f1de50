"""The README's commands run, its tables are true, and `.ci/run` runs what it says.

Most blocks run in a real shell whose `minitf` is a fork of this process; two run as a person's would.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shell
from shared import once

from mini_tf.recipe.kinds import listing
from mini_tf.recipe.presets import presets
from mini_tf.recipe.reading import read
from mini_tf.system import limits

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FEW_STEPS = "train.steps=3 train.batch_size=2 eval.tokens=2k log.samples=0 runtime.threads=1 eval.translations=4 generate.max_new_tokens=8"


def block(name: str) -> str:
    """The shell block that follows the marker `<!-- name -->`."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert found, name
    return found[1]


def forked(script: str, folder: Path) -> str:
    """What a block prints in `folder`, where each `minitf` is a fork of this process."""
    done = shell.run(script, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(script: str, folder: Path) -> str:
    """The same with processes of their own, whose `minitf` and `python` are those of these tests, whatever is on the PATH."""
    commands = f"""minitf() {{ '{sys.executable}' -m mini_tf "$@"; }}\npython() {{ '{sys.executable}' "$@"; }}\n"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = ["bash", "-euo", "pipefail", "-c", commands + script]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def few_steps(script: str) -> str:
    """The commands as printed, but with models that are hardly trained, and held to nothing."""
    return re.sub(r"minitf (pretrain|finetune) ([a-z0-9-]+)", rf"minitf \1 \2 {FEW_STEPS}", re.sub(r" --assert '[^']*'", "", script))


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder in which the README's tour was run from beginning to end, and what each of its blocks printed."""
    shown = once(tmp_path_factory, "tour", tour)
    return shown.parent, json.loads(shown.read_text())


def tour(folder: Path) -> Path:
    shutil.copytree(ROOT / "data", folder / "data")
    blocks = ("tour", "prompt", "encoder", "translate", "finetune", "inside")
    shown = {name: forked(few_steps(block(name)), folder) for name in blocks}
    (folder / "shown.json").write_text(json.dumps(shown))
    return folder / "shown.json"


def test_the_tour_runs(toured: tuple[Path, dict[str, str]]) -> None:
    folder, shown = toured
    assert re.search(r"bits_per_byte +\d", shown["tour"])
    assert (folder / "outputs" / "first" / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(shown["prompt"].splitlines()[-1])["result"]["prompt"] == "The file"
    assert len(re.findall(r'^[01]\.\d{4} "', shown["encoder"], re.MULTILINE)) == 3
    assert re.search(r"^exact_match +[01]", shown["translate"], re.MULTILINE)
    assert "the diagonal has 0.9" in " ".join(shown["translate"].split())
    assert "What each head does" in shown["inside"]
    assert "bears moved towards its neighbours: 0.28 before, 0.54 after." in shown["inside"]
    assert re.search(r"^entity_f1 +[01]", shown["finetune"], re.MULTILINE)
    assert {json.loads(line)["line"] for line in shown["finetune"].splitlines() if line.startswith("{")} == {1, 2}
    assert all((folder / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in TOLD - {"quickstart-loss"})


PICTURES = re.findall(r"!\[[^\]]*\]\(data/pictures/([^)]+)\.png\)", README)


TOLD = {"quickstart-loss", "confusion-people", "calibration-opinions"}
"""Pictures of what a run's files, or `evaluate --json`, hold as numbers."""


@pytest.mark.parametrize("name", [name for name in PICTURES if name not in TOLD])
def test_a_picture_has_a_twin_in_json_of_the_form_that_its_command_writes_today(name: str, toured: tuple[Path, dict[str, str]]) -> None:
    folder, _ = toured
    twin, fresh = (json.loads((place / f"{name}.json").read_text()) for place in (ROOT / "data" / "pictures", folder))
    assert form(twin) == form(fresh)
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def form(value: Any) -> Any:
    """What a JSON document says about what: its keys, and the items of a list as a set, without the measured values."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items() if key not in FREE}
    if isinstance(value, list):
        return sorted({json.dumps(form(item), sort_keys=True) for item in value})
    return value if isinstance(value, str) else "number"


FREE = {
    "target",
    "alignments",
    "target_tokens",
    "target_ids",
    "target_words",
    "target_word_of_token",
    "role",
    "tokens",
    "ids",
    "words",
    "word_of_token",
    "pieces",
    "layer",
    "head",
    "notes",
    "induction",
    "same",
    "query",
}
"""Keys whose values depend on the model and the tokenizer, which a test trains for a few steps only."""


def test_the_measures_beside_a_picture_are_those_of_its_maps() -> None:
    """Of the committed picture: entropies and shares computed anew from the weights in its twin."""
    twin = json.loads((ROOT / "data" / "pictures" / "attention-heads.json").read_text())
    [sample] = twin["samples"]
    assert len(sample["heads"]) == 24
    for head in sample["heads"]:
        rows = head["matrix"]
        assert [sum(row) for row in rows] == pytest.approx([1.0] * len(rows), abs=1e-5)
        entropies = [-sum(p * math.log(p) for p in row if p) / math.log(i + 1) for i, row in enumerate(rows) if i]
        assert head["entropy"] == pytest.approx(sum(entropies) / len(entropies), abs=1e-5)
        assert head["previous"] == pytest.approx(sum(row[i] for i, row in enumerate(rows[1:])) / (len(rows) - 1), abs=1e-5)


def test_what_the_readme_prints_of_a_picture_is_what_its_twin_holds() -> None:
    twin = json.loads((ROOT / "data" / "pictures" / "attention-heads.json").read_text())
    for head in twin["samples"][0]["heads"]:
        if head["layer"] == 3 and head["role"] is not None:
            assert f"decoder self-attention L3 H{head['head']} " in README
            assert re.search(rf"L3 H{head['head']} .*: {head[head['role']]:.2f} of (its|the) weight", README)
    word = json.loads((ROOT / "data" / "pictures" / "word-bat.json").read_text())
    for layer in word["layers"][1:]:
        assert re.search(
            rf"^{layer['layer']} +{layer['cosine']:.3f} +{layer['baseline']:.3f} +{layer['corrected']:.3f} +{layer['separation']:.3f}$",
            README,
            re.MULTILINE,
        )


def test_the_commands_about_tokenizers_run_as_installed(tmp_path: Path) -> None:
    assert run(block("tokenizers"), tmp_path).endswith("The file is closed.\n")


def test_the_commands_about_recipes_run_as_installed(tmp_path: Path) -> None:
    script = re.search(r"```sh\n(minitf recipe list.*?)```", README, re.DOTALL)
    assert script
    run(script[1], tmp_path)


def test_the_first_command_is_one_line_that_trains_the_default() -> None:
    assert block("first command").strip().endswith("&& minitf pretrain")
    assert "quickstart" in presets()


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "<!-- test command -->" in script
    assert (
        block("test command")
        .strip()
        .endswith("ruff format --check . && ruff check . && mypy mini_tf && pytest -q -n auto --dist worksteal")
    )


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


def test_the_limits_are_those_in_force() -> None:
    for name, default, meaning in limits.list_limits():
        shown = limits.format_bytes(default) if name.endswith("bytes") else str(default)
        assert f"| `{name}` | {shown} | {meaning} |" in README


def test_a_run_that_diverges_as_printed_can_be_replayed(tmp_path: Path) -> None:
    diverge, replay = block("crash").splitlines()
    small = diverge.partition("#")[0].replace(
        "quickstart", "quickstart train.batch_size=2 log.samples=0 runtime.threads=1 eval.translations=4 generate.max_new_tokens=8"
    )
    shown = forked(f"{small} || test $? -eq 7\n{replay}", tmp_path)
    assert "the first output that is not finite: stack.layers." in shown
    assert "try: a lower optimizer.lr" in shown


TABLE = {name: rest for name, *rest in re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\| ([^|]+) \| ([^|]+) \|$", README, re.MULTILINE)}
"""The table of recipes: what each is trained for, and what it reaches."""


@pytest.mark.parametrize("name", presets())
def test_what_is_promised_of_a_recipe_agrees_with_its_keys(name: str) -> None:
    """Steps or epochs, minutes (also those of its first line), and the loss that it is held to by --expect."""
    training, reached = TABLE[name]
    recipe, first = read(name).recipe, presets()[name].read_text().splitlines()[0]
    length = {"steps": recipe.train.steps, "epochs": recipe.train.epochs}
    promised = re.match(r"([\d,.]+) (steps|epochs)", training)
    assert promised, training
    assert float(promised[1].replace(",", "")) == length[promised[2]]
    minutes = [re.search(r"about ([\d.]+) minute", text) for text in (training, first)]
    assert len({found and found[1] for found in minutes}) == 1, (training, first)
    most = recipe.expect.get("minutes")
    if minutes[0] and most is not None:
        assert float(minutes[0][1]) < float(most.lstrip("<"))
    loss, held_to = re.match(r"([\d.]+) nats", reached), recipe.expect.get("val.loss")
    if loss and held_to is not None and "tiny Shakespeare" not in reached:
        assert float(loss[1]) < float(held_to.lstrip("<"))
