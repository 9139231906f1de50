"""One name for one thing in all commands: runs by name, figures with and without `val.`, options with dashes or
underscores.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from commands import TINY, minitf, refused, trained
from test_cli_app import all_commands

from mini_tf.cli.app import app


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that is called `tales`; the working directory has it in its outputs."""
    monkeypatch.chdir(tmp_path)
    return trained(tmp_path / "outputs" / "tales", "train.steps=1")


@pytest.mark.parametrize("command", [("data", "show"), ("data", "stats"), ("recipe", "show"), ("recipe", "check")])
def test_a_run_is_known_by_its_name_wherever_a_recipe_is_read(command: Sequence[str], named: Path) -> None:
    by_folder = minitf(*command, named)
    assert by_folder.exit_code == 0, by_folder.stderr
    for name in ("tales", "last", "outputs/tales"):
        assert minitf(*command, name).stdout == by_folder.stdout
    assert minitf(*command, "tales", "train.context=16").exit_code == 0
    refused(minitf(*command, "taels"), "no such recipe 'taels'", "did you mean tales?", exit_code=2)


def test_presets_and_files_go_before_runs_of_their_name(named: Path) -> None:
    (Path("outputs") / "gpt-nano").mkdir()
    (Path("outputs") / "gpt-nano" / "run.json").write_text("{}")
    assert json.loads(minitf("recipe", "check", "gpt-nano", "--json").stdout)["result"]["path"].endswith(
        "recipes/gpt-nano.yaml"
    )
    Path("tales").write_text((Path(TINY).read_text()).replace("tiny.txt", str(Path(TINY).with_name("tiny.txt"))))
    assert json.loads(minitf("recipe", "check", "tales", "--json").stdout)["result"]["path"] == str(
        Path("tales").absolute()
    )


def test_without_any_run_last_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(minitf("data", "show", "last"), "there is no last run", exit_code=5)


def test_a_figure_has_both_names_in_every_command(classifier: Path, tmp_path: Path) -> None:
    asked = (TINY, "train.steps=1", "log.samples=0", "-d", tmp_path / "run")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a nice soup", "label": "good"}\n{"text": "a dull room", "label": "bad"}\n')
    for command, figure in (
        (("pretrain", *asked), "loss"),
        (("evaluate", tmp_path / "run"), "loss"),
        (("finetune", TINY, *asked[1:]), "perplexity"),
        (("predict", classifier, "-i", rows), "accuracy"),
    ):
        for name in (figure, f"val.{figure}"):
            assert minitf(*command, "--assert", f"{name}>=0").exit_code == 0
            missed = minitf(*command, "--assert", f"{name}<0")
            assert (missed.exit_code, missed.stderr.splitlines()[-1].endswith(", but must be < 0")) == (8, True), (
                missed.stderr
            )
    refused(minitf("evaluate", tmp_path / "run", "--assert", "val.val.loss<9"), "not a metric of evaluate", exit_code=2)
    refused(minitf("evaluate", tmp_path / "run", "--assert", "train.loss<9"), "not a metric of evaluate", exit_code=2)


def test_statistics_of_seeds_have_both_names(tmp_path: Path) -> None:
    done = minitf(
        "pretrain", TINY, "train.steps=1", "log.samples=0", "train.seeds=2", "-d", tmp_path, "--assert", "loss.mean<0"
    )
    assert done.exit_code == 8, done.stderr
    assert "loss.mean is " in done.stderr
    refused(minitf("pretrain", TINY, "--assert", "loss.mean<0"), "mean needs several seeds", exit_code=2)


EVERY = all_commands(typer.main.get_command(app))
COMMANDS = {path: command for path, command in EVERY if not hasattr(command, "commands")}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_long_option_takes_underscores(path: tuple[str, ...]) -> None:
    """Without its value an option is refused by its name; a flag is read before the help is printed."""
    for parameter in COMMANDS[path].params:
        for option in (name for name in (*parameter.opts, *parameter.secondary_opts) if "-" in name[2:]):
            spelt = f"--{option[2:].replace('-', '_')}"
            if parameter.is_flag:
                assert minitf(*path, spelt, "--help").exit_code == 0
            else:
                done = minitf(*path, spelt)
                assert (done.exit_code, f"Option '{option}' requires an argument" in done.stderr) == (2, True), (
                    done.stderr
                )


def test_options_with_underscores_do_what_those_with_dashes_do(named: Path) -> None:
    spelt = (("--max-new-tokens", "3", "--top-k=5"), ("--max_new_tokens", "3", "--top_k=5"))
    one, other = (minitf("generate", "tales", "Once", *options) for options in spelt)
    assert (one.exit_code, one) == (0, other)
