"""What `--help` looks like: panels, examples, no types that say nothing, whole sentences at any width."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import minitf
from test_cli_app import all_commands
from typer.main import get_command

from mini_tf.cli.app import app
from mini_tf.cli.generate.options import OPTIONS
from mini_tf.cli.usage.commands import COMMANDS
from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS
from mini_tf.recipe.sections import Generate

ROOT = Path(__file__).parents[2]


ALL = [(path, command) for path, command in all_commands(get_command(app)) if not hasattr(command, "commands")]


@pytest.mark.parametrize("columns", [80, 120])
def test_every_help_fits_the_terminal_and_cuts_nothing(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    all_paths = [path for path, _ in all_commands(get_command(app))]
    for path in all_paths if columns == 80 else all_paths[::8]:  # where there is more room, some of each kind
        shown = minitf(*path, "--help").stdout
        assert max(map(len, shown.splitlines())) <= columns, path
        assert "…" not in shown, path
        assert "<bool>" not in shown, path
        assert "list[" not in shown, path
        assert not re.search(r"--[a-z-]*_", shown), path


def test_help_of_a_command_shows_usage_panels_and_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = minitf("generate", "--help").stdout
    assert "Usage: minitf generate RUN [PROMPT ...] [OPTIONS]" in shown
    panels = re.findall(r"^╭─ (.*?) ─+╮$", shown, re.MULTILINE)
    assert panels == ["Arguments", "Input and output", "Sampling", "Beam search (encoder-decoder)", "Model", "Messages"]
    for line in COMMANDS["generate"].examples:
        assert f" {line} " in shown
    assert "[MASK]" in shown
    assert "\\n is a newline" in " ".join(shown.split())


def test_commands_stand_in_the_order_of_use() -> None:
    shown = minitf("--help").stdout
    found = [line.split()[1] for line in shown.splitlines() if re.match(r"│ [a-z]", line)]
    assert found == [*get_command(app).commands]  # type: ignore[attr-defined]


def test_every_option_and_every_command_says_what_it_does() -> None:
    for path, command in ALL:
        assert 0 < len((command.help or "").split("\n\n")[0]) <= 110, path
        for one in command.params:
            assert 0 < len(one.help or "") <= 120, (path, one.name)
            if one.param_type_name == "option" and not one.is_flag:
                assert one.metavar, (path, one.name)


def test_every_key_of_generate_in_a_recipe_is_an_option_and_its_default() -> None:
    shown = {name: option.__metadata__[0].show_default for name, option in OPTIONS.items()}
    assert OPTIONS.keys() == GENERATE_OPTIONS | {"context"}
    assert OPTIONS.keys() >= Generate.model_fields.keys() - {"prompt"}
    numbers = {name: value for name, value in vars(Generate()).items() if isinstance(value, int | float)}
    assert {name: float(shown[name]) for name in numbers} == numbers


def test_help_in_a_pipe_has_no_colors() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_ACTIONS": "true"}
    command = [sys.executable, "-m", "mini_tf", "pretrain", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in shown
