"""The page on how to add a kind: each of its files is written where it says, found by its word, and keeps its contract."""

import importlib
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from commands import minitf, tiny_model, trained

from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import Case
from mini_tf.testing.kinds import kinds_in

PAGE = (Path(__file__).parents[1] / "mini_tf" / "README.md").read_text()
FILES = dict(re.findall(r"<!-- (\w+/\w+\.py) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the files of the page lie; recipes may name them."""
    folder = tmp_path_factory.mktemp("page")
    with ExitStack() as entered:
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        for package in {name.partition("/")[0] for name in FILES}:
            entered.enter_context(kinds_in(package, folder / package))
        yield folder


def test_there_is_a_file_for_every_package() -> None:
    assert {name.partition("/")[0] for name in FILES} == {"attention", "positions", "models", "objectives", "optimizers", "schedules"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_the_page_keeps_the_contract_of_its_package(name: str, folder: Path) -> None:
    package, _, file = name.partition("/")
    given = {"d_model": 16, "n_layers": 2, "n_heads": 2} if package == "models" else {}
    cases: list[Case] = importlib.import_module(f"mini_tf.testing.{package}").cases(settings_of(package, file.removesuffix(".py"))(**given))
    assert len(cases) > 5
    for case in cases:
        case.run()


def test_the_page_says_how_a_file_elsewhere_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [script] = re.findall(r"<!-- try it -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(script, "README", "exec"), {})


def test_a_recipe_names_all_of_them(folder: Path, tmp_path: Path) -> None:
    words = {name.partition("/")[0]: Path(name).stem for name in FILES}
    model, few = tiny_model(words["models"]), ("train.steps=3", "train.context=16")
    others = [f"objective={words['objectives']}", f"optimizer={words['optimizers']}", f"schedule={words['schedules']}"]
    trained(tmp_path / "one", model, f"model.attention={words['attention']}", "model.positions=none", *others, *few)
    run = trained(tmp_path / "other", model, f"model.positions={words['positions']}", *few)
    done = minitf("generate", run, "The fox", "--max-new-tokens", "5")
    assert done.exit_code == 0, done.stderr
