"""`minitf recipe`: what each command prints, and its exit code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mini_tf.cli.app import app
from mini_tf.recipe.arguments import presets
from mini_tf.recipe.keys import ABOUT, json_schema, keys
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.reading import flat_values, read
from mini_tf.recipe.recipe import Recipe


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yaml").write_text("model: decoder\ntrain: {steps: 5}\n")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["recipe", *arguments])


def test_check_says_no_faults_or_all_of_them() -> None:
    assert run("check", "r.yaml", "train.steps=7").exit_code == 0
    refused = run("check", "r.yaml", "train.steps=x", "nope=1")
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 2
    assert run("check", "nothing-like-it").exit_code == 2


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ('val.loss: "<banana"', "no such metric 'banana'; use one of val.loss, "),
        ('val.los: "<1"', "no such metric 'val.los'; did you mean val.loss?"),
        ('val.loss: "<nan"', "must be a comparison such as <1.9, got '<nan'"),
    ],
)
def test_check_knows_the_metrics_of_expect(bound: str, message: str) -> None:
    Path("r.yaml").write_text(f"model: decoder\ntrain: {{steps: 5}}\nexpect: {{{bound}}}\n")
    refused = run("check", "r.yaml")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert message in refused.stderr
    assert refused.stderr.startswith("r.yaml:3: ") or "nan" in bound
    Path("r.yaml").write_text(
        'model: decoder\ntrain: {steps: 5}\nexpect: {loss: "<9", minutes: "<5", val.loss.max:'
        ' "<baseline.ngram.loss+1"}\n'
    )
    assert run("check", "r.yaml").exit_code == 0


def test_show_prints_a_recipe_that_can_be_read_again() -> None:
    Path("shown.yaml").write_text(run("show", "r.yaml", "train.seed=3").stdout)
    assert run("show", "shown.yaml").stdout == Path("shown.yaml").read_text()


def test_show_why_tells_where_a_value_came_from() -> None:
    assert (
        run("show", "r.yaml", "train.steps=9", "--why", "train.steps").stdout
        == "train.steps: 9 (command line) < 5 (r.yaml:2)\n"
    )
    assert run("show", "r.yaml", "--why", "optimizer.lr").stdout == "optimizer.lr: 0.001 (default)\n"
    wrong = run("show", "r.yaml", "--why", "optimizer.lrr")
    assert wrong.exit_code == 2
    assert "did you mean optimizer.lr?" in wrong.stderr


def test_every_key_of_a_complete_recipe_is_in_the_table_with_its_meaning() -> None:
    table = {key.name: key for key in keys()}
    for model in listing("models"):
        train = "translate-toy" if settings_of("models", model).SOURCE else "python-docs"
        recipe = Recipe.model_validate({"model": model, "data": {"train": train}, "train": {"steps": 5}})
        assert set(flat_values(recipe)) <= set(table)
    undocumented = [
        name for name, key in table.items() if not key.meaning and name.split(".")[0] not in ("model", "objective")
    ]
    assert undocumented == []


def test_keys_of_one_section_are_shown_alone() -> None:
    lines = run("keys", "model.attention").stdout.splitlines()
    assert all(line.startswith("model.attention.") for line in lines)
    assert any(line.startswith("model.attention.window ") and "(kind window)" in line for line in lines)
    assert run("keys", "optimiser").exit_code == 2


def test_the_schema_knows_every_kind_and_refuses_unknown_keys() -> None:
    schema = json_schema()
    assert json.loads(run("schema").stdout) == schema
    assert schema["additionalProperties"] is False
    written = json.dumps(schema)
    for package in ("models", "attention", "positions", "objectives", "optimizers", "schedules"):
        for word in listing(package):
            assert f'"kind": {{"const": "{word}"}}' in written
    assert '"description": "Label smoothing in training."' in written


def test_list_names_every_preset() -> None:
    assert [row["name"] for row in json.loads(run("list", "--json").stdout)["result"]] == list(presets())


def test_init_writes_a_recipe_and_never_over_another() -> None:
    assert run("init", "mine.yaml").stdout == "mine.yaml\n"
    assert run("check", "mine.yaml").exit_code == 0
    assert run("init", "mine.yaml").exit_code == 2
    assert run("init", "other.yaml", "--from", "nope").exit_code == 2


@pytest.mark.parametrize("preset", presets())
def test_a_recipe_to_begin_with_tells_of_every_section_and_reads_as_the_preset(preset: str) -> None:
    assert run("check", preset).stderr == ""
    run("init", "mine.yaml", "--from", preset)
    text = Path("mine.yaml").read_text()
    assert read("mine.yaml").recipe == read(preset).recipe
    assert [name for name in Recipe.model_fields if f"# {name}: " not in text and ABOUT[name][1]] == []
    # What is commented out is valid too, once the comment sign is gone.
    Path("all.yaml").write_text(re.sub(r"^# ([a-z]+: \{)", r"\1", text, flags=re.MULTILINE))
    assert read("all.yaml").recipe.log.every_steps == 10


def test_what_a_beginning_says_of_each_section_is_valid() -> None:
    assert set(ABOUT) == set(Recipe.model_fields)
    Path("keys.yaml").write_text("\n".join(f"{name}: {{{keys}}}" for name, (_, keys) in ABOUT.items() if keys))
    assert read("keys.yaml").recipe.model.kind == "decoder"


def test_help_needs_no_torch_nor_pydantic_and_the_schema_itself_no_torch() -> None:
    code = "import sys, mini_tf.cli.recipe as recipe; names = {'torch', 'numpy', 'tokenizers'}\n"
    code += "print((names | {'pydantic', 'yaml'}) & {*sys.modules})\n"
    code += "import mini_tf.recipe.reading; print(names & {*sys.modules})"
    command, root = [sys.executable, "-c", code], Path(__file__).parents[2]
    assert subprocess.run(command, capture_output=True, text=True, cwd=root, check=True).stdout == "set()\n" * 2
