"""Kinds of an installed package: the one that the page on adding kinds describes, built as a wheel and put on the
path.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import invalidate_caches, metadata
from pathlib import Path

import pytest
import yaml
from commands import QUIET, ROOT, TINY, Done, minitf, refused, tiny_model, trained
from hatchling.build import build_wheel
from kind_questions import packages
from test_building_page import FILES, PAGE
from test_pretrain import stop_after

from mini_tf.cli.terminal import completion
from mini_tf.recipe.keys import keys
from mini_tf.recipe.kind_folders import GROUP, PACKAGES, KindFault, added_kinds, clear_caches
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.run.checkpoint import MANIFEST
from mini_tf.testing import Case
from mini_tf.testing.kinds import installed_in

ADDED = [
    *(("attention", "mean"), ("positions", "kerple"), ("objectives", "next_but_one"), ("optimizers", "heavy_ball")),
    *(("objectives", "topics"), ("data.datasets", "topic_sets"), ("pipelines", "topic_prediction")),
]
"""Packages of kinds, each with a word; a file of the page for each."""
TASK = {package: word for package, word in ADDED[4:]}
pytestmark = pytest.mark.skipif(
    any(word in listing(package) for package, word in ADDED),
    reason="minitf itself has kinds of the page's words, which no package may add",
)
ROOMS = ROOT / "mini_tf"
FEW = ("train.steps=6", "train.context=16", "eval.every_steps=3", "checkpoint.every_steps=3", "log.every_steps=1")
MEAN = (tiny_model("decoder"), "model.attention=mean", "model.positions=none")
OTHERS = ("objective=next_but_one", "optimizer=heavy_ball")
GONE = "the kind 'mean' of attention comes from the package my-kinds 1.2, which is not installed"


def installed(folder: Path, name: str, version: str, modules: Mapping[str, str], named: str | None = None) -> Path:
    """A folder in which a package is installed that has these files (path: content); its entry point names `named`,
    by default the package.
    """
    package = name.replace("-", "_")
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nkinds = {named or package}\n")
    for file, content in modules.items():
        (folder / package / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / package / file).write_text(content)
    return folder


def problems() -> list[str]:
    """What `minitf doctor` tells of kinds."""
    return list(json.loads(minitf("doctor", "--json").stdout)["result"]["problems"])


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the wheel of the page's package is installed."""
    source = tmp_path_factory.mktemp("my-kinds")
    [project] = re.findall(r"<!-- pyproject.toml -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
    (source / "pyproject.toml").write_text(project)
    (source / "my_kinds").mkdir()
    (source / "my_kinds" / "__init__.py").write_text("")
    for package, word in ADDED:
        file = f"{package.replace('.', '/')}/{word}.py"
        (source / "my_kinds" / file).parent.mkdir(parents=True, exist_ok=True)
        (source / "my_kinds" / file).write_text(FILES[file])
    target = tmp_path_factory.mktemp("installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        built = build_wheel(str(source))
    with zipfile.ZipFile(source / built) as files:
        files.extractall(target)
    return target


@pytest.fixture
def package(wheel: Path) -> Iterator[Path]:
    """The package of the page is installed."""
    with installed_in(wheel):
        yield wheel


@pytest.fixture(scope="session")
def made(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a mixer, an objective and an optimizer of the package; tests only read it."""
    with installed_in(wheel):
        return trained(tmp_path_factory.mktemp("runs") / "made", *MEAN, *OTHERS, *FEW)


def test_the_entry_point_of_the_page_adds_every_file_of_its_layout(package: Path) -> None:
    assert {(kind.package, kind.word, kind.module) for kind in added_kinds()} == {
        (p, word, f"my_kinds.{p}.{word}") for p, word in ADDED
    }
    assert {(kind.folder.distribution, kind.folder.version) for kind in added_kinds()} == {("my-kinds", "1.2")}


def test_a_listing_imports_nothing_of_a_package_and_a_word_its_module_alone(package: Path) -> None:
    assert all(word in listing(group) for group, word in ADDED)
    assert not [name for name in sys.modules if name.startswith("my_kinds")]
    assert settings_of("optimizers", "heavy_ball")().kind == "heavy_ball"
    names = {name for name in sys.modules if name.startswith("my_kinds")}
    assert names == {"my_kinds", "my_kinds.optimizers", "my_kinds.optimizers.heavy_ball"}


def test_the_help_reads_no_entry_points(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda: pytest.fail("they are read"))
    assert minitf("--help").exit_code == 0


def test_the_packages_of_kinds_are_the_folders_with_kinds() -> None:
    folders = {folder.relative_to(ROOMS) for folder in packages(ROOMS) if not folder.is_relative_to(ROOMS / "papers")}
    assert {".".join(folder.parts) for folder in folders} == {*PACKAGES}


@pytest.mark.parametrize("group", PACKAGES)
def test_every_kind_says_which_package_of_kinds_it_is_of(group: str) -> None:
    assert {settings_of(group, word).PACKAGE for word in listing(group)} == {group}


def test_its_author_tries_the_contracts_as_the_page_says(package: Path) -> None:
    [script] = re.findall(r"<!-- try the package -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(script, "README", "exec"), names)
    [mark] = names["test_the_contracts"].pytestmark  # type: ignore[attr-defined]
    cases: list[Case] = mark.args[1]
    assert len(cases) > 20
    for case in cases[-3:]:
        case.run()


def test_a_run_of_a_package_is_continued_to_the_same_bytes(
    package: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 3, 15)
        stopped = minitf("pretrain", TINY, *QUIET, *MEAN, *OTHERS, *FEW, "-d", tmp_path)
    assert stopped.exit_code == 143, stopped.stderr
    trained(tmp_path, *MEAN, *OTHERS, *FEW)
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_run_json_records_package_and_version_and_the_id_does_not(package: Path, made: Path) -> None:
    record = json.loads((made / "run.json").read_text())
    source = {"package": "my-kinds", "version": "1.2"}
    assert record["kinds"] == {
        "attention.mean": source,
        "objectives.next_but_one": source,
        "optimizers.heavy_ball": source,
    }
    assert "my-kinds" not in json.dumps(record["decides"])
    assert json.loads(minitf("runs", "show", made, "--json").stdout)["result"]["versions"]["my-kinds"] == "1.2"
    [kept, *_] = sorted(made.glob(f"checkpoints/*/{MANIFEST}"))
    assert json.loads(kept.read_text())["fingerprint"]["package my-kinds"] == "1.2"


def test_a_language_model_of_a_package_is_prompted_evaluated_and_inspected(package: Path, tmp_path: Path) -> None:
    kinds = ("model.attention=[mean, softmax]", "model.positions={kind: kerple, start: 0.5}")
    run = trained(tmp_path / "run", tiny_model("decoder"), *kinds, *FEW, "train.steps=2")
    assert yaml.safe_load((run / "resolved.yaml").read_text())["model"]["positions"] == {"kind": "kerple", "start": 0.5}
    for command in (
        ("generate", run, "The fox", "--max-new-tokens", "3"),
        ("evaluate", run),
        ("inspect", "model", run),
    ):
        done = minitf(*command)
        assert done.exit_code == 0, done.stderr
    done = minitf("inspect", "attention", run, "The fox", "--json")
    assert {head["layer"] for head in json.loads(done.stdout)["result"]["samples"][0]["heads"]} == {0, 1}


def test_keys_schema_and_messages_know_the_kinds_of_a_package(package: Path) -> None:
    keys = minitf("recipe", "keys", "model.positions").stdout
    assert re.search(r"one of alibi, .*kerple", " ".join(keys.split()))
    assert re.search(
        r"start +a finite number, more than 0 \(kind kerple\)\. default 1\. Initial value of both rates", keys
    )
    schema = json.loads(minitf("recipe", "schema").stdout)
    assert "heavy_ball" in [part["title"] for part in schema["properties"]["optimizer"]["anyOf"] if "title" in part]
    for override, said in {
        "model.attention=maen": "no such kind 'maen'; did you mean 'mean'?",
        "model.positions.start=1": "no such key of this kind; it belongs to kerple",
        "optimizer.kind=[]": f"must be a kind, one of {', '.join(listing('optimizers'))}",
    }.items():
        refused(minitf("pretrain", TINY, override, "--dry-run"), said, exit_code=3)


def test_keys_are_collected_again_once_a_package_is_installed(wheel: Path) -> None:
    without = completion._version(), keys()
    with installed_in(wheel):
        assert completion._version() != without[0]
        assert keys() != without[1]
    assert (completion._version(), keys()) == without


def test_doctor_lists_the_packages_that_add_kinds(package: Path, tmp_path: Path) -> None:
    other = installed(
        tmp_path, "other-kinds", "0.1", {"attention/broken.py": "import no_such_module", "layers/sums.py": "1 / 0"}
    )
    with installed_in(other, installed(tmp_path / "third", "third", "3", {}, named="no_such_package.kinds")):
        facts = json.loads(minitf("doctor", "--json").stdout)["result"]
    listed = ", ".join(sorted(f"{package}.{word}" for package, word in ADDED))
    assert facts["added kinds"] == f"my-kinds 1.2 ({listed}); other-kinds 0.1 (attention.broken)"
    broken = "the kind broken of attention in the package other-kinds 0.1 (other_kinds.attention.broken) cannot be used"
    assert f"{broken}: ModuleNotFoundError: No module named 'no_such_module'" in facts["problems"]
    missing = "the entry point no_such_package.kinds (mini_tf.kinds) of the package third 3 names no importable folder"
    assert missing in facts["problems"]


@pytest.mark.parametrize(
    ("word", "owner"), [("window", "minitf itself"), ("mean", "the package my-kinds 1.2")], ids=["window", "mean"]
)
def test_a_word_that_stands_twice_is_refused_where_it_is_used_and_told_by_doctor(
    word: str, owner: str, package: Path, tmp_path: Path
) -> None:
    said = f"the kind '{word}' of attention is defined by {owner} and the package other-kinds 0.1"
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {f"attention/{word}.py": ""})):
        done = minitf("pretrain", TINY, *MEAN, f"model.attention={word}", "--dry-run")
        refused(done, f"model.attention={word}: {said}; uninstall or rename one of them", exit_code=3)
        assert any(said in problem for problem in problems())
        assert minitf("pretrain", TINY, "--print-config").exit_code == 0


def test_entry_points_that_cannot_be_read_are_a_fault_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = installed(tmp_path, "other-kinds", "0.1", {})
    (folder / "other_kinds-0.1.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nkinds\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        clear_caches()
        refused(
            minitf("pretrain", TINY, "--dry-run"),
            "the entry points of the installed packages cannot be read",
            exit_code=3,
        )
        assert minitf("--help").exit_code == 0
    clear_caches()


VIEW = """\
from functools import partial

import torch

from mini_tf.drawing.terminal import line
from mini_tf.inspection import ViewOutput, View, ViewSettings, option


class Settings(ViewSettings):
    \"\"\"Show the means.\"\"\"

    EXAMPLES = ("minitf inspect means last",)

    source: str = option("last", "--run", metavar="RUN")
    \"\"\"A run.\"\"\"

    def view(self, subject: None, output: ViewOutput) -> View:
        mean = float(torch.ones(2).mean())
        return View({"mean": mean}, [partial(line, f"means of {self.source}: {mean}")])
"""


def test_a_view_of_a_package_is_a_command_with_help(tmp_path: Path) -> None:
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {"inspection/means.py": VIEW})):
        assert "Show the means." in minitf("inspect", "--help").stdout
        assert "minitf inspect means last" in minitf("inspect", "means", "--help").stdout
        assert minitf("inspect", "means", "--run", "x").stdout == "means of x: 1.0\n"
        refused(minitf("inspect", "means", "--run", "x", "--run", "y"), "given 2 times", exit_code=2)
    refused(minitf("inspect", "means"), "No such command 'means'", exit_code=2)


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("means", "def (", "cannot be used: SyntaxError"),
        ("tokens", VIEW, "the kind 'tokens' of inspection is defined by minitf itself and the package other-kinds"),
    ],
    ids=["syntax", "the word of minitf"],
)
def test_an_unfit_view_is_refused_and_breaks_no_other_command(word: str, code: str, said: str, tmp_path: Path) -> None:
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {f"inspection/{word}.py": code})):
        refused(minitf("inspect", word, "last"), said, exit_code=3)
        listed = minitf("inspect", "--help")
        assert listed.exit_code == 0
        assert " positions " in listed.stdout
        assert f"│ {word} " not in listed.stdout
        assert any(said in problem for problem in problems())


NO_SETTINGS = "the module must define a class Settings like minitf's kinds"
UNFIT = {
    "is of another package of kinds": (
        FILES["positions/kerple.py"],
        "its Settings must be a kind of attention, not of positions",
    ),
    "has no settings": ("", NO_SETTINGS),
    "has those of another": ("from my_kinds.attention.mean import Settings\n", NO_SETTINGS),
    "fails": ("1 / 0\n", "ZeroDivisionError: division by zero"),
    "ends the program": ("import sys\n\nsys.exit(9)\n", "SystemExit: 9"),
}
OF_OTHERS = "the kind unfit of attention in the package other-kinds 0.1 (other_kinds.attention.unfit) cannot be used: "


@pytest.mark.parametrize(("code", "said"), UNFIT.values(), ids=UNFIT)
def test_a_module_that_is_no_kind_is_refused_in_a_line(code: str, said: str, package: Path, tmp_path: Path) -> None:
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {"attention/unfit.py": code})):
        with pytest.raises(KindFault) as fault:
            settings_of("attention", "unfit")
        assert fault.value.message == f"{OF_OTHERS}{said}"


def test_a_module_that_is_no_kind_breaks_no_other_recipe(tmp_path: Path) -> None:
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {"attention/unfit.py": "1 / 0\n"})):
        refused(minitf("pretrain", TINY, "model.attention=unfit", "--dry-run"), OF_OTHERS, exit_code=3)
        refused(minitf("pretrain", TINY, "model.attention.windw=3", "--dry-run"), "no such key", exit_code=3)
        assert minitf("recipe", "keys").exit_code == 0


@pytest.mark.parametrize(
    "named", ["other_kinds:run", "other_kinds.missing", "sys", "no_such_package", "..", "other_kinds./etc"]
)
def test_an_entry_point_that_names_no_folder_adds_nothing_and_imports_nothing(named: str, tmp_path: Path) -> None:
    files = {"__init__.py": "1 / 0", "missing.py": "1 / 0", "attention/unfit.py": "1 / 0"}
    with installed_in(installed(tmp_path, "other-kinds", "0.1", files, named)):
        assert added_kinds() == ()


def test_files_that_are_no_module_are_not_listed(tmp_path: Path) -> None:
    files = {f"attention/{name}": "1 / 0" for name in ("_part.py", "no-name.py", "a.b.py", "notes.txt", "mean.pyc")}
    with installed_in(installed(tmp_path, "other-kinds", "0.1", files)):
        assert added_kinds() == ()


def test_a_folder_below_the_top_of_a_package_may_be_named(tmp_path: Path) -> None:
    """Nothing is imported to find it: its parent would fail."""
    files = {"__init__.py": "1 / 0", "text/attention/mean.py": "1 / 0"}
    with installed_in(installed(tmp_path, "other-kinds", "0.1", files, "other_kinds.text")):
        assert [kind.module for kind in added_kinds()] == ["other_kinds.text.attention.mean"]


@pytest.mark.parametrize(
    "command",
    [
        *(("generate", "RUN", "The"), ("pretrain", "RUN", "--extend", "1"), ("pretrain", TINY, *MEAN, "-d", "RUN")),
        *(("recipe", "check", "RUN"), ("data", "show", "RUN")),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_run_whose_package_is_gone_is_refused_by_name(command: tuple[str, ...], made: Path) -> None:
    refused(minitf(*(str(made) if part == "RUN" else part for part in command)), GONE, exit_code=5)


def test_nobody_takes_the_word_of_a_default(tmp_path: Path) -> None:
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {"attention/softmax.py": ""})):
        said = "the kind 'softmax' of attention is defined by minitf itself and the package other-kinds 0.1"
        for command in (("pretrain", TINY, "--dry-run"), ("recipe", "keys")):
            refused(minitf(*command), said, exit_code=3)
        assert any(said in problem for problem in problems())


def test_a_run_whose_package_has_lost_the_kind_or_gave_the_word_to_another_is_refused_by_name(
    made: Path, tmp_path: Path
) -> None:
    with installed_in(installed(tmp_path / "later", "my-kinds", "2.0", {})):
        lost = (
            "the kind 'mean' of attention comes from the package my-kinds 1.2, whose installed version 2.0 has no such"
            " kind"
        )
        refused(minitf("generate", made, "The"), lost, exit_code=5)
    with installed_in(installed(tmp_path / "other", "other-kinds", "0.1", {"attention/mean.py": ""})):
        refused(minitf("generate", made, "The"), GONE, exit_code=5)


def test_what_run_json_says_of_packages_can_neither_steer_a_terminal_nor_fill_it(made: Path, tmp_path: Path) -> None:
    record = json.loads((made / "run.json").read_text())
    strange = {
        f"attention.\x1b[31m{number}{'x' * 3000}": {"package": "\x1b\n" + "y" * 3000, "version": "1"}
        for number in range(50)
    }
    (tmp_path / "run.json").write_text(json.dumps(record | {"kinds": strange}))
    done = minitf("inspect", "model", tmp_path)
    refused(done, "comes from the package \\x1b", "which is not installed", exit_code=5)
    assert len(done.stderr.splitlines()) == 11


def test_another_version_of_the_package_is_told_where_a_run_must_continue_bit_exact(
    package: Path, made: Path, tmp_path: Path
) -> None:
    later = installed(tmp_path / "later", "my-kinds", "1.3", {})
    sys.path.insert(0, str(later))  # before the other one, as it would be replaced; `package` takes it away again
    invalidate_caches()
    clear_caches()
    run = shutil.copytree(made, tmp_path / "run")
    done = minitf("pretrain", run, "-d", run, "--extend", "1", "checkpoint.resume=exact")
    refused(done, 'cannot be continued bit-exact: package my-kinds: "1.2" -> "1.3"', exit_code=5)


def test_a_kind_that_changed_at_one_version_is_told_where_a_run_must_continue_bit_exact(
    wheel: Path, tmp_path: Path
) -> None:
    """As in an editable install."""
    editable = Path(shutil.copytree(wheel, tmp_path / "editable"))
    with installed_in(editable):
        run = trained(tmp_path / "run", *MEAN, *OTHERS, *FEW, "checkpoint.resume=exact")
        assert minitf("pretrain", run, "-d", run, "--extend", "1").exit_code == 0
    file = editable / "my_kinds" / "optimizers" / "heavy_ball.py"
    file.write_text(file.read_text() + "\n# other arithmetic\n")
    with installed_in(editable):
        refused(
            minitf("pretrain", run, "-d", run, "--extend", "1"),
            "cannot be continued bit-exact: files of attention.mean: ",
            exit_code=5,
        )
        done = minitf("pretrain", run, "-d", run, "--extend", "1", "checkpoint.resume=auto")
        assert done.exit_code == 0, done.stderr
        assert "continuing, but not bit-exact: files of attention.mean: " in done.stderr


def test_a_run_without_record_that_names_a_kind_that_nobody_has_is_not_called_damaged(
    tmp_path: Path, made: Path
) -> None:
    for file in made.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({key: value for key, value in record.items() if key != "kinds"}))
    done = minitf("generate", tmp_path, "The")
    refused(
        done, f"{tmp_path} cannot be opened: ", "no such kind 'mean'", "a package that is not installed", exit_code=5
    )
    assert "damaged" not in done.stderr


def rows_in(folder: Path, mood: str = "sad") -> Path:
    """Texts with lists of labels; `mood` is one of them."""
    file = folder / "rows.jsonl"
    rows = [{"text": f"{'sad ' * (n % 2)}text {n}", "labels": [mood, "odd"] if n % 2 else ["even"]} for n in range(30)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def task(folder: Path, *more: str) -> list[str]:
    shape = ("tokenizer.kind=byte", "train.context=32", "train.steps=4", "eval.every_steps=2")
    return [tiny_model("encoder"), "objective=topics", f"data.train={rows_in(folder)}", *shape, *more]


def test_a_task_of_a_package_is_learnt_judged_and_predicted_and_refused_by_name_without_it(
    wheel: Path, tmp_path: Path
) -> None:
    with installed_in(wheel):
        run = trained(tmp_path / "run", *task(tmp_path))
        source = {"package": "my-kinds", "version": "1.2"}
        assert json.loads((run / "run.json").read_text())["kinds"] == {
            f"{package}.{word}": source for package, word in TASK.items()
        }
        assert {"exact", "f1_micro"} <= json.loads(minitf("evaluate", run, "--json").stdout)["metrics"].keys()
        assert minitf("predict", run, "sad text").exit_code == 0
    refused(
        minitf("predict", run, "sad text"), "comes from the package my-kinds 1.2, which is not installed", exit_code=5
    )


def test_what_a_package_encodes_is_made_anew_once_its_files_are_others(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    mine = shutil.copytree(wheel, tmp_path / "mine")
    command = ("data", "show", *task(tmp_path), "--rows", "1", "--json")
    with installed_in(mine):
        before, again = (minitf(*command, "-v") for _ in range(2))
    file, text = mine / "my_kinds" / "data" / "datasets" / "topic_sets.py", 'text_of(row["text"], where, names["text"])'
    assert text in file.read_text()
    file.write_text(file.read_text().replace(text, f"{text}.upper()"))
    with installed_in(mine):
        after = minitf(*command, "-v")
    assert before.stdout == again.stdout
    assert "loaded from the cache" in again.stderr
    assert "loaded from the cache" not in after.stderr
    assert read(after) == [token.upper() for token in read(before)]


def read(shown: Done) -> list[str]:
    """The letters of a row."""
    [row] = json.loads(shown.stdout)["result"]["rows"]
    return [place["reads"] for place in row["positions"] if place["reads"].isalpha()]


def test_the_tokenizer_and_the_corpus_of_a_package_are_recorded(tmp_path: Path) -> None:
    letters = (ROOMS / "data" / "tokenizers" / "char.py").read_text()
    corpus = (
        "from mini_tf.recipe.corpora import CorpusSettings\n\n\nclass Settings(CorpusSettings):\n    VERSION = '1'\n\n"
    )
    corpus += "    def rows(self):\n        return ({'text': f'tale {n} of many'} for n in range(200))\n"
    files = {"data/tokenizers/letters.py": letters, "data/corpora/tales.py": corpus}
    with installed_in(installed(tmp_path, "my-texts", "0.4", files)):
        # Which kinds of tokenizer there are is read once a process.
        args = [tiny_model("decoder"), "tokenizer.kind=letters", "data.train=tales", *FEW, "-d", str(tmp_path / "run")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
        done = subprocess.run(
            [sys.executable, "-m", "mini_tf", "pretrain", *args], capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == 0, done.stderr
    source = {"package": "my-texts", "version": "0.4"}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["kinds"] == {
        "data.corpora.tales": source,
        "data.tokenizers.letters": source,
    }
    refused(
        minitf("generate", tmp_path / "run", "tale"),
        "comes from the package my-texts 0.4, which is not installed",
        exit_code=5,
    )


@pytest.mark.parametrize(
    ("key", "said"), [("DATASET", "names the dataset 'clases'"), ("PIPELINE", "names the pipeline 'clases'")]
)
def test_an_objective_that_names_what_there_is_not_cannot_be_used_and_breaks_no_other(
    key: str, said: str, tmp_path: Path
) -> None:
    code = f"from mini_tf.objectives import classify\n\n\nclass Settings(classify.Settings):\n    {key} = 'clases'\n"
    word = f"no_{key.lower()}"
    with installed_in(installed(tmp_path, "other-kinds", "0.1", {f"objectives/{word}.py": code})):
        told = f"cannot be used: it {said}, which does not exist; "
        refused(minitf("pretrain", tiny_model("encoder"), f"objective={word}", "--dry-run"), told, exit_code=3)
        assert any(told in problem for problem in problems())
        refused(
            minitf("pretrain", TINY, "--dry-run", "--assert", "val.nonsense>1"), "not a metric of training", exit_code=2
        )
