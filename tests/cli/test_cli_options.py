"""Options of the commands that train and use a model, on a tiny run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import EXACT, TINY, minitf, trained
from typer.main import get_command

from mini_tf.cli.app import app
from mini_tf.recipe import reading


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "tiny", "train.steps=20")


@pytest.fixture
def promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that ships as `promised`, with an expectation, beside one that has none."""
    shown = minitf("recipe", "show", TINY, "train.steps=3", "log.samples=0").stdout
    files = {"silent": shown, "promised": shown.replace("expect: {}", "expect: {val.loss: '<9'}")}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(reading, "presets", lambda: {name: tmp_path / f"{name}.yaml" for name in files})
    monkeypatch.setattr(reading, "is_shipped", lambda path: path.parent == tmp_path)
    return tmp_path


def test_prompts_of_a_file_are_read_like_lines_of_stdin(run: Path, tmp_path: Path) -> None:
    lines = "Once\nThe \\ fox\r\n\n"
    (tmp_path / "prompts.txt").write_bytes(lines.encode())
    command = ("generate", run, "--max-new-tokens", "8", "--seed", "3")
    piped = minitf(*command, stdin=lines)
    assert piped.stdout.count("\n") == 3
    for option in ("-i", "--input"):
        assert minitf(*command, option, tmp_path / "prompts.txt", stdin="never read") == piped
    assert minitf(*command, "Once", "-i", tmp_path / "prompts.txt").exit_code == 2
    missing = minitf(*command, "-i", tmp_path / "none.txt")
    assert (missing.exit_code, missing.stderr.count("\n")) == (4, 1)
    (tmp_path / "prompts.txt").write_bytes(b"Once\n\xff\n")
    refused = minitf(*command, "-i", tmp_path / "prompts.txt")
    assert refused.exit_code == 4
    assert "prompts.txt:2: line 2 is not UTF-8" in refused.stderr


def test_a_seed_is_a_number_that_fits(run: Path) -> None:
    assert minitf("generate", run, "Once", "--max-new-tokens", "1", "--seed", str(2**63 - 1)).exit_code == 0
    assert minitf("generate", run, "Once", "--seed", str(2**63)).exit_code == 2


def test_expect_needs_a_shipped_recipe_that_expects_something(promised: Path) -> None:
    for arguments in (("silent",), ("promised", "train.seed=2"), (TINY,)):
        refused = minitf("pretrain", *arguments, "--expect", "-d", promised / "run")
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    done = minitf(
        "pretrain", "promised", "--expect", "--device", "cpu", "-d", promised / "run", "--assert", "train.loss>0"
    )
    assert done.exit_code == 0, done.stderr


def test_a_dry_run_gives_its_figures_as_metrics(promised: Path) -> None:
    done = minitf("pretrain", "silent", "--dry-run", "--json", "-q")
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["run"], answer["metrics"]["parameters"] > 1000, answer["metrics"]["steps"]) == (
        True,
        None,
        True,
        3,
    )


def test_a_run_goes_on_with_another_micro_batch(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", "train.steps=4")
    done = minitf(
        "pretrain",
        TINY,
        *EXACT,
        "log.samples=0",
        "train.steps=4",
        "train.micro_batch_size=2",
        "--extend",
        "2",
        "-d",
        folder,
    )
    assert done.exit_code == 0, done.stderr
    assert "4 x 2 rows" in done.stderr
    assert [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()][-1] == 6


def options_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every option of every command, with the command's words."""
    for name, command in getattr(group, "commands", {}).items():
        yield from options_of(command, (*path, name))
    if not hasattr(group, "commands"):
        yield from ((path, option) for option in group.params if option.param_type_name == "option")


def test_an_option_of_one_value_that_is_repeated_is_refused_by_every_command() -> None:
    """Lists such as --stop add up, switches such as --json may come again."""
    single = [(path, one) for path, one in options_of(get_command(app)) if not (one.multiple or one.is_flag)]
    assert len(single) > 50
    for path, option in single:
        done = minitf(*path, option.opts[0], "1", option.opts[-1], "2")
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), (path, option.opts)
        assert "given 2 times, but takes one value" in done.stderr
    both = minitf("generate", "nothing", "--stream", "--no-stream")
    assert (both.exit_code, "--stream/--no-stream: given 2 times" in both.stderr) == (2, True)
    assert minitf("generate", "nothing", "-q", "-q").exit_code == 5
