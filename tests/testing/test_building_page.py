"""The page on how to add a kind: each of its files is written where it says, found by its word, and keeps its
contract.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import minitf, refused, tiny_model, trained

from mini_tf.recipe.kinds import settings_of
from mini_tf.testing import Case
from mini_tf.testing.kinds import kinds_in

PAGE = (Path(__file__).parents[2] / "mini_tf" / "README.md").read_text()
FILES = dict(re.findall(r"<!-- ([\w/]+/\w+\.py) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


TASK = {"topic_sets", "topics", "topic_prediction", "common_words"}
"""Files that are tried together, on rows; the page tries `mean` itself."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the files of the page lie; recipes may name them."""
    folder = tmp_path_factory.mktemp("page") / "my_kinds"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    # What `inspect` remembers of the package of the same name that test_entry_points.py installs.
    inspect._filesbymodname.pop("my_kinds", None)  # type: ignore[attr-defined]
    with kinds_in(folder):
        yield folder


def test_there_is_a_file_for_every_package() -> None:
    own = {"attention", "positions", "models", "objectives", "optimizers", "schedules", "baselines"}
    assert {str(Path(name).parent) for name in FILES} == own | {
        "data/datasets",
        "data/tokenizers",
        "data/corpora",
        "pipelines",
    }


@pytest.mark.parametrize("name", [name for name in FILES if Path(name).stem not in TASK | {"mean"}])
def test_a_file_of_the_page_keeps_the_contract_of_its_package(name: str, folder: Path) -> None:
    package, _, file = name.replace("data/", "data.").partition("/")
    given = {"d_model": 16, "n_layers": 2, "n_heads": 2} if package == "models" else {}
    contract = importlib.import_module(f"mini_tf.testing.{package.removeprefix('data.')}")
    cases: list[Case] = contract.cases(settings_of(package, file.removesuffix(".py"))(**given))
    assert len(cases) >= 5
    for case in cases:
        case.run()


def test_the_page_says_how_a_file_elsewhere_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for what in ("it", "the task", "the baseline"):
        [script] = re.findall(rf"<!-- try {what} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        exec(compile(script, "README", "exec"), {})


def test_a_task_of_the_page_is_learnt_judged_predicted_and_shown(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"text": f"{'sad ' * (n % 2)}text {n}", "labels": ["sad", "odd"] if n % 2 else ["even"]} for n in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = [
        tiny_model("encoder"),
        "objective=topics",
        f"data.train={file}",
        "tokenizer.kind=char",
        "train.steps=60",
    ]
    run = trained(tmp_path / "run", *recipe, "train.context=32", "optimizer.lr=1e-2")
    judged = minitf("evaluate", run, "--assert", "exact>0.9", "--json")
    assert judged.exit_code == 0, judged.stderr
    metrics = json.loads(judged.stdout)["metrics"]
    assert {"loss", "exact", "f1_micro", "targets"} <= metrics.keys()
    assert (run / "log.txt").read_text().count(f"on all {metrics['targets']:.0f} validation examples") == 2
    answer = json.loads(minitf("predict", run, "sad text 5").stdout)
    assert answer["label"] == ["sad", "odd"] or set(answer["label"]) == {"sad", "odd"}
    assert minitf("predict", run, "-i", file, "--assert", "f1_micro>0.9").exit_code == 0
    shown = minitf("data", "show", *recipe, "train.context=32").stdout
    assert "topics, one example per row" in shown
    assert minitf("data", "stats", *recipe, "train.context=32", "--json").exit_code == 0
    told = "was trained with the objective topics, which generates no text; use `minitf predict run`"
    refused(minitf("generate", run, "x"), told, exit_code=2)
    refused(
        minitf("evaluate", run, "--assert", "bleu>1"),
        "not a metric of evaluate; available: loss, exact, f1_micro",
        exit_code=2,
    )


def test_a_recipe_names_all_of_them(folder: Path, tmp_path: Path) -> None:
    words = {name.partition("/")[0]: Path(name).stem for name in FILES if Path(name).stem not in TASK}
    model, few = tiny_model(words["models"]), ("train.steps=3", "train.context=16")
    others = [f"objective={words['objectives']}", f"optimizer={words['optimizers']}", f"schedule={words['schedules']}"]
    trained(
        tmp_path / "one",
        model,
        f"model.attention={words['attention']}",
        "model.positions=none",
        *others,
        *few,
        "data.train=sums",
    )
    run = trained(tmp_path / "other", model, f"model.positions={words['positions']}", *few)
    done = minitf("generate", run, "The fox", "--max-new-tokens", "5")
    assert done.exit_code == 0, done.stderr
