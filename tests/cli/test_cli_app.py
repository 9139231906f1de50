"""`minitf` answers at once, refuses in one line, and shows run folders without torch."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import commands
import pytest
from typer.main import get_command

import mini_tf
from mini_tf.cli.app import app
from mini_tf.cli.usage.other_tools import COMMANDS, OPTIONS, WITHOUT_COMMAND
from mini_tf.run.manifest import Manifest
from mini_tf.training.machine.device import available_cores

ROOT = Path(__file__).parents[2]
SLOW = ("torch", "numpy", "tokenizers", "matplotlib", "safetensors", "pyarrow")


def minitf(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = commands.minitf(*arguments)
    return subprocess.CompletedProcess(arguments, *done)


def all_commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A group, and every command and group below it, with its words."""
    yield words, group
    for name, command in getattr(group, "commands", {}).items():
        yield from all_commands(command, (*words, name))


def test_every_help_is_free_of_slow_imports() -> None:
    """What all commands import for their options and their help, and some of each kind that are printed."""
    paths = [path for path, _ in all_commands(get_command(app))]
    lines = [f"import sys; from mini_tf.cli.app import _program, main; slow = set({SLOW!r})"]
    for number, path in enumerate(paths):
        lines.append(f"command = _program()\nfor word in {path!r}: command = command.commands[word]")
        lines.append("command.params, command.help")
        if number % 8 == 0:
            lines.append(
                f"try: main([*{path!r}, '--help'])\nexcept SystemExit as leaving: assert leaving.code == 0, {path!r}"
            )
        lines.append(f"assert not slow & set(sys.modules), ({path!r}, slow & set(sys.modules))")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--json") >= 3


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        (("--help",), {*SLOW, "pydantic", "yaml", "mini_tf.recipe.kinds", "mini_tf.cli.pretrain", "mini_tf.cli.runs"}),
        ((), {*SLOW, "yaml", "rich", "mini_tf.recipe.kinds"}),  # Typer checks flags by pydantic
        (("runs", "show", "alpha"), {"torch", "matplotlib", "pyarrow"}),
        (("runs", "list"), {*SLOW, "yaml", "mini_tf.recipe.kinds", "mini_tf.cli.pretrain"}),  # pydantic checks run.json
    ],
)
def test_what_a_quick_command_leaves_unimported(line: tuple[str, ...], absent: set[str], two_runs: Path) -> None:
    code = f"import sys; from mini_tf.__main__ import main\ntry: main({line!r})\n"
    code += f"finally: print(*{absent!r} & {{*sys.modules}}, file=sys.stderr)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=two_runs, env=environment, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr.splitlines()[-1].strip()) == (0, ""), line


def test_the_console_script_starts_where_ctrl_c_is_quiet_from_the_first_line() -> None:
    [script] = metadata.entry_points(group="console_scripts", name="minitf")
    assert script.value == "mini_tf.__main__:main"


def test_the_version_is_a_product() -> None:
    assert minitf("--version").stdout == f"minitf {mini_tf.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("rnus",), "minitf: No such command 'rnus'; did you mean 'runs'?"),
        (
            ("plan", "gpt-char"),
            "minitf: No such command 'plan'; " + COMMANDS["minitf"]["plan"].replace("RECIPE", "gpt-char"),
        ),
        (("runs", "show", "x", "--jsn"), "see `minitf runs show --help`"),
        (("runs", "show"), "minitf runs show: Missing argument 'RUN'; for example: minitf runs show last"),
    ],
)
def test_wrong_usage_is_one_line_that_ends_with_the_way_to_get_help(arguments: tuple[str, ...], line: str) -> None:
    done = minitf(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(line + "\n")
    assert done.stderr.count("\n") == 1


def test_hints_name_commands_and_options_that_exist() -> None:
    program = get_command(app)
    hints = [hint for group in (*COMMANDS.values(), *OPTIONS.values(), WITHOUT_COMMAND) for hint in group.values()]
    options = {"--from", "--pieces", "--to"}  # of `recipe init`, `tokenizer encode` and `export`
    for name in ("pretrain", "generate", "predict", "evaluate", "inspect-attention", "serve"):
        options |= {option for parameter in program.commands[name].params for option in parameter.opts}
    for hint in hints:
        for words in re.findall(r"minitf ((?:[a-z][a-z-]* ?)+)", hint.replace("{command}", "predict")):
            command = program
            for word in words.split():
                if hasattr(command, "commands"):
                    command = command.get_command(None, word)
                    assert command is not None, f"{hint}: no command {word}"
        assert set(re.findall(r"(?<![a-z])--[a-z-]+", hint)) <= options | {"--help", "--version"}, hint
    absent = [(group, name) for group, names in COMMANDS.items() for name in names]
    for group, name in absent:
        command = program if group == "minitf" else program.commands[group.partition(" ")[2]]
        assert name not in command.commands, f"{group} {name} exists"


def test_wrong_usage_with_json_is_an_envelope() -> None:
    done = minitf("runs", "show", "--json")
    envelope = json.loads(done.stdout)
    assert (done.returncode, envelope["ok"], envelope["exit_code"], envelope["command"]) == (2, False, 2, "runs show")


def test_minitf_alone_shows_a_start_page_and_a_group_alone_its_help() -> None:
    done = minitf()
    assert (done.returncode, done.stderr) == (0, "")
    assert "minitf pretrain" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    done = minitf("runs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.lstrip().startswith("Usage: minitf runs")


def test_a_working_folder_that_was_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = commands.minitf("pretrain", "--json")
    assert done.exit_code == json.loads(done.stdout)["exit_code"] == 6
    assert (
        done.stderr == "the working folder cannot be used: No such file or directory; change into another folder: cd\n"
    )


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    for name, record in {
        "alpha": Manifest(
            state="done",
            exit_code=0,
            step=200,
            best={"step": 150, "loss": 1.25},
            recipe="quickstart",
            parameters=2_555_904,
            loss_unit="nats per label",
            figures=["val.entity_f1", "val.accuracy"],
            started=1_763_640_000.0,
            metrics={"val.loss": 1.3, "val.accuracy": 0.75, "minutes": 1.5, "val.perplexity": 2.5e280},
        ),
        "beta": Manifest(state="running", step=10),
    }.items():
        folder = tmp_path / "outputs" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(record.model_dump_json())
    (tmp_path / "outputs/alpha/metrics.jsonl").write_text(
        '{"step": 200, "loss": 1.5}\n{"step": 200, "val.loss": 1.3}\n{"torn'
    )
    (tmp_path / "outputs/gamma").mkdir()
    (tmp_path / "outputs/gamma/run.json").write_text("{")
    (tmp_path / "outputs/not a run").mkdir()
    return tmp_path


def test_runs_list_is_a_line_a_run_and_passes_over_what_is_none(two_runs: Path) -> None:
    done = minitf("runs", "list", folder=two_runs)
    assert done.stdout.splitlines() == [
        "run    recipe      state   step  val.loss  unit        metric           params",
        "alpha  quickstart  done     200    1.3000  nats/label  accuracy 0.7500  2.56M",
        "beta               killed    10",
    ]
    assert "run.json is damaged" in done.stderr
    rows = json.loads(minitf("runs", "list", "--json", folder=two_runs).stdout)["result"]
    assert [(row["name"], row["state"], row["step"]) for row in rows] == [
        ("alpha", "done", 200),
        ("beta", "killed", 10),
    ]


def test_runs_list_of_nothing_says_so(tmp_path: Path) -> None:
    done = minitf("runs", "list", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no runs in outputs; `minitf pretrain` creates one\n"
    assert minitf("runs", "list", "nowhere", folder=tmp_path).returncode == 5


def test_runs_show_has_state_metrics_and_checkpoints(two_runs: Path) -> None:
    for name in ("step-00000020", "step-00000010", ".tmp-step-00000030", "step-by-step"):
        (two_runs / "outputs/alpha/checkpoints" / name).mkdir(parents=True)
    envelope = json.loads(minitf("runs", "show", "alpha", "--json", folder=two_runs).stdout)
    metrics = {"loss": 1.5, "val.loss": 1.3, "val.accuracy": 0.75, "minutes": 1.5, "val.perplexity": 2.5e280}
    assert envelope["metrics"] == metrics
    assert envelope["run"] == str(two_runs / "outputs/alpha")
    assert (envelope["result"]["state"], envelope["result"]["best"]) == ("done", {"step": 150, "loss": 1.25})
    assert envelope["result"]["checkpoints"] == [10, 20]
    shown = minitf("runs", "show", "outputs/alpha", folder=two_runs).stdout
    assert "best         1.2500 at step 150\n" in shown
    assert "training, last report (step 200):\nloss         1.5000\n" in shown
    aligned = "val.loss       1.3000\nval.accuracy   0.7500\nminutes        1.5000\nval.perplexity 2.5e+280\n"
    assert shown.endswith(f"last evaluation:\n{aligned}")


def test_a_closed_stdin_is_an_empty_one(tmp_path: Path) -> None:
    code = "import sys; from mini_tf.cli import app; app._open_standard_streams(); print(sys.stdin.read() == '')"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&-"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


def test_a_run_that_is_not_there_is_5_with_the_nearest_name(two_runs: Path) -> None:
    done = minitf("runs", "show", "alhpa", folder=two_runs)
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "no such run: alhpa; did you mean alpha?\n")


def test_doctor_says_what_there_is(tmp_path: Path) -> None:
    facts = json.loads(minitf("doctor", "--json", folder=tmp_path).stdout)["result"]
    assert facts["devices"].startswith("cpu")
    assert facts["precisions"].startswith("cpu fp32")
    assert facts["cores"] == available_cores()
    assert facts["minitf"] == mini_tf.__version__
    assert facts["problems"] == []
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name, most in (("free disk", shutil.disk_usage(tmp_path).total), ("free memory", memory)):
        assert 0 <= float(facts[name].removesuffix(" GiB")) <= most / 2**30 + 0.1
