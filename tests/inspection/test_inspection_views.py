"""The contract of views: their options, read from the source, are those of their settings."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import minitf, refused, trained
from test_entry_points import installed, installed_in
from typer.main import get_command

from mini_tf.cli.app import app
from mini_tf.cli.inspect_views import outline
from mini_tf.inspection import ModelViewSettings, ViewSettings
from mini_tf.recipe.kind_folders import find_kind
from mini_tf.recipe.kinds import listing, settings_of

VIEWS = listing("inspection")
PAGE = (Path(__file__).parents[2] / "mini_tf" / "inspection" / "README.md").read_text()


def fields(settings: type[ViewSettings]) -> dict[str, Any]:
    """Everything of the fields of a class that the command shows or checks."""
    names = ("annotation", "default", "description", "json_schema_extra", "metadata")
    return {
        name: {one: getattr(field, one) for one in names if one != "description" or field.json_schema_extra}
        for name, field in settings.model_fields.items()
    }


@pytest.mark.parametrize("word", VIEWS)
def test_the_source_of_a_view_says_what_its_settings_are(word: str) -> None:
    read, made = outline(find_kind("inspection", word)), settings_of("inspection", word)
    assert issubclass(made, ViewSettings)
    assert read is not made, "the source has more than literals, so the help imports the view"
    assert fields(read) == fields(made)
    for constant in ("EXAMPLES", "FILES", "METRICS", "PANEL", "ALIASES"):
        assert getattr(read, constant) == getattr(made, constant)
    assert (read.__doc__ or "").split() == (made.__doc__ or "").split()


@pytest.mark.parametrize("word", VIEWS)
def test_what_a_view_looks_at_is_its_first_argument(word: str) -> None:
    command = get_command(app).commands["inspect"].commands[word]  # type: ignore[attr-defined]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    settings, options = settings_of("inspection", word), [name for one in command.params for name in one.opts]
    assert [one.required for one in arguments] == sorted((one.required for one in arguments), reverse=True)
    assert (arguments[0].metavar == "RUN") == issubclass(settings, ModelViewSettings)
    assert len({*options}) == len(options)
    assert ("--output" in options, "--force" in options) == (bool(settings.FILES),) * 2  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("views") / "run", "train.steps=1", "log.samples=0", "eval.tokens=64")


def views_of(folder: Path, source: str) -> Path:
    return installed(folder, "my-views", "1", {"inspection/norms.py": source})


def test_the_view_of_the_page_is_a_command(run: Path, tmp_path: Path) -> None:
    [source] = re.findall(r"<!-- inspection/norms.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    with installed_in(views_of(tmp_path, source)):
        assert "Show the mean norm of the hidden states" in minitf("inspect", "--help").stdout
        assert "P [1<=x<=9]" in minitf("inspect", "norms", "--help").stdout
        done = minitf("inspect", "norms", run, "a cat", "the king", "-p", "1", "--json", "-o", tmp_path / "norms.json")
        result = json.loads(done.stdout)["result"]
        assert json.loads((tmp_path / "norms.json").read_text()) == result
        assert [len(layers) for layers in result["norms"]] == [len(result["norms"][0])] * 2
        first = f"{result['norms'][0][0]:.3f}"
        assert first in minitf("inspect", "norms", run, "a cat", "-p", "1").stdout
        assert first not in minitf("inspect", "norms", run, "a cat").stdout
        refused(minitf("inspect", "norms", run, "a", "-o", tmp_path / "a.png"), "its suffix must be .json", exit_code=2)
        refused(minitf("inspect", "norms", run, "a", "-p", "0"), "greater than or equal to 1", exit_code=2)


COMPUTED = """\
from mini_tf.inspection import ViewOutput, View, ViewSettings, option

POWERS = [2**n for n in range(4)]


class Settings(ViewSettings):
    \"\"\"Show a power.\"\"\"

    power: int = option(POWERS[-1], "--power", metavar="P", le=POWERS[-1])
    \"\"\"The power.\"\"\"

    def view(self, subject: None, output: ViewOutput) -> View:
        output.say(f"power {self.power}")
        return View({"power": self.power}, metrics={"power": float(self.power)})
"""


def test_settings_that_are_no_literals_are_imported(tmp_path: Path) -> None:
    with installed_in(views_of(tmp_path, COMPUTED)):
        shown = minitf("inspect", "norms", "--help").stdout
        assert "P [x<=8]" in shown
        assert "[default: 8]" in shown
        assert "--assert" not in shown
        done = minitf("inspect", "norms", "--power", "3", "--json")
        assert (done.stderr, json.loads(done.stdout)["metrics"]) == ("power 3\n", {"power": 3.0})
