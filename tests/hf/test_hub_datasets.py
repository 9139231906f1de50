"""data.train: hf:... through the package datasets, on folders of parquet and jsonl files; the hub is never asked."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from commands import QUIET, minitf, refused, trained

from mini_tf.data.formats import parquet
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.hub_datasets import HubDataset, _rows, parse, spooled
from mini_tf.data.formats.tables import rows_of
from mini_tf.data.store import Tokenizers
from mini_tf.data.tokenized import reopen
from mini_tf.recipe.data import Data
from mini_tf.system.errors import DataFault, Unavailable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """reviews with two configs (parquet, labels with names), and pairs beside it (jsonl, a struct of two languages)."""
    made, pairs = tmp_path / "reviews", tmp_path / "pairs"
    for one in (made, pairs):
        one.mkdir()
    features = datasets.Features(
        {
            "review": datasets.Value("string"),
            "stars": datasets.ClassLabel(names=["bad", "good"]),
            "tags": datasets.List(datasets.ClassLabel(names=["O", "B-x"])),
            "score": datasets.Value("float32"),
            "raw": datasets.Value("binary"),
        }
    )
    for split, size in (("train", 30), ("validation", 6)):
        columns = {
            "review": [f"{split} text {n} is {'fine' if n % 2 else 'dull'}\nto read" for n in range(size)],
            "stars": [n % 2 for n in range(size - 1)] + [-1],
            "tags": [[n % 2, 0] for n in range(size)],
            "score": [0.5, float("nan")] * (size // 2),
            "raw": [b"\0"] * size,
        }
        datasets.Dataset.from_dict(columns, features=features).to_parquet(made / f"{split}.parquet")
    rows = [{"id": n, "translation": {"en": f"house {n}", "de": f"Haus {n}"}} for n in range(12)]
    (pairs / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    films = [{"split": name, "path": f"{name}.parquet"} for name in ("train", "validation")]
    files = {"films": films, "small": "validation.parquet"}
    configs = [{"config_name": name, "data_files": of_config} for name, of_config in files.items()]
    (made / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    return made


def rows(name: str, *columns: str, key: str = "data.train") -> list[list[Any]]:
    [file] = find_files(name, key)
    return [row.cells for row in rows_of(file, Columns(columns))]


def test_the_rows_of_a_split_come_with_labels_by_name_and_without_what_is_no_text(folder: Path) -> None:
    found = rows(f"hf:{folder}/films", "review", "stars", "tags", "score")
    expected = pyarrow.parquet.read_table(folder / "train.parquet").to_pylist()
    names = {0: "bad", 1: "good", -1: None}
    assert [cells[:2] for cells in found] == [[row["review"], names[row["stars"]]] for row in expected]
    assert found[1][2:] == [["B-x", "O"], None]
    assert found[2][2:] == [["O", "O"], 0.5]
    assert "raw" not in json.loads(spooled(f"hf:{folder}/films", "data.train").read_text().splitlines()[0])
    assert len(rows(f"hf:{folder}/films:validation", "review")) == 6
    assert len(rows(f"hf:{folder}/films", "review", key="data.val")) == 6
    assert rows(f"hf:{folder.parent}/pairs", "translation.en", "translation.de")[3] == ["house 3", "Haus 3"]


def test_a_changed_file_is_read_again_and_an_unchanged_one_only_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"hf:{folder.parent}/pairs"
    first = spooled(name, "data.train")
    with monkeypatch.context() as patched:
        patched.setattr(datasets, "load_dataset_builder", None)
        assert spooled(name, "data.train") == first
    with (folder.parent / "pairs" / "train.jsonl").open("a") as file:
        file.write('{"id": 12, "translation": {"en": "a", "de": "b"}}\n')
    assert spooled(name, "data.train") != first
    assert len(rows(name, "id")) == 13


def test_a_row_is_written_before_the_next_one_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So memory does not grow with the corpus: of a million rows none is held."""
    alive = [0, 0]

    class Cell(str):
        def __new__(cls, text: str) -> "Cell":
            alive[0] += 1
            alive[1] = max(alive)
            return super().__new__(cls, text)

        def __del__(self) -> None:
            alive[0] -= 1

    class Stream(list[Any]):
        features = None

        def decode(self, enable: bool) -> "Stream":
            assert not enable
            return self

        def __iter__(self) -> Any:
            return ({"text": Cell(f"row {n}")} for n in range(1000))

    members = {"as_streaming_dataset": lambda self: {"train": Stream()}}
    builder = type("Builder", (), {"__module__": "datasets.packaged_modules.json.json", **members})
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *names: builder())
    assert len(rows("hf:someone/large", "text")) == 1000
    assert alive[1] <= 3


def test_a_row_group_is_read_in_parts_and_unpacks_to_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a cat sat there. " * 500
    pyarrow.parquet.write_table(pyarrow.table({"text": [text] * 4096}), tmp_path / "train.parquet")  # one row group
    before, stream = pyarrow.total_allocated_bytes(), _rows(parse(f"hf:{tmp_path}", "data.train"), "data.train")
    assert next(stream) == {"text": text}
    assert pyarrow.total_allocated_bytes() - before < 8 << 20
    assert 1 + sum(1 for _ in stream) == 4096
    monkeypatch.setattr(parquet, "LEAST_BYTES", 1 << 20)
    with pytest.raises(DataFault, match=r"its columns unpack to more than .* MB, far more than the file has"):
        list(_rows(parse(f"hf:{tmp_path}", "data.train"), "data.train"))


TINY = ("model.d_model=16", "model.n_heads=2", "model.n_layers=1", "train.steps=1", "train.context=16")
TINY += ("train.batch_size=2", *QUIET)


def test_a_dataset_trains_by_its_fields_and_a_folder_is_relative_to_the_recipe(folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "data: {train: 'hf:./pairs', val: 'hf:./reviews/films:validation', fields: {text: translation.de}}\n"
        "tokenizer: {kind: byte}\nobjective: next_token\nmodel: {kind: decoder}\ntrain: {steps: 1}\n"
    )
    place = f"hf:{folder}/films:validation:1: no column 'translation.de'; the columns are: review, stars, tags, score"
    refused(minitf("pretrain", recipe, *TINY, "-d", tmp_path / "run"), place, exit_code=4)
    done = minitf("pretrain", recipe, "data.val=null", "data.split=20%", *TINY, "-d", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert f"hf:{tmp_path}/pairs" in (tmp_path / "run" / "resolved.yaml").read_text()
    assert minitf("evaluate", tmp_path / "run").exit_code == 0
    columns = ("data.fields={text: review, label: stars}", "objective.kind=classify", "model.kind=encoder")
    films = (f"data.train=hf:{folder}/films", "data.val=null")
    done = minitf("finetune", recipe, *films, *columns, *TINY, "-d", tmp_path / "task")
    refused(done, f"hf:{folder}/films:30: 'stars' must be text or a number, not null", exit_code=4)


def test_the_names_in_a_run_folder_ask_for_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may be a stranger's: what it names is downloaded if it is named on the command line, too."""

    def refuse_to_connect(*_: object) -> None:
        raise AssertionError("asked for a connection")

    run = trained(tmp_path / "run", "train.steps=1", "model.d_model=8", "train.context=16")
    monkeypatch.setattr(datasets, "load_dataset_builder", refuse_to_connect)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse_to_connect)
    complete = (run / "resolved.yaml").read_text()
    for line, corpus in (("train: /.*", "train: hf:someone/text"), ("val: null", "val: [./a.txt, 'hf:someone/text']")):
        (run / "resolved.yaml").write_text(re.sub(line, corpus, complete))
        message = "the run read hf:someone/text from the hub, and it is not in the cache"
        refused(minitf("evaluate", run), message, "--data hf:someone/text downloads it")
    pairs: Any = Data(train={"source": "a.txt", "target": "hf:someone/text"})  # type: ignore[arg-type]
    with pytest.raises(DataFault, match="the run read hf:someone/text from the hub"):
        reopen(pairs, Tokenizers(None, None), None, {})  # type: ignore[arg-type]
    (run / "resolved.yaml").write_text(complete.replace("init_from: null", "init_from: hf:someone/model"))
    message = "model.init_from: must be a folder in the recipe of a run, got 'hf:someone/model'"
    refused(minitf("generate", run, "x"), message, exit_code=5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:{0}", "Please pick one among the available configs: ['films', 'small']"),
        ("hf:{0}/other", "BuilderConfig 'other' not found"),
        ("hf:{0}/films:test", "has no split test; it has train, validation"),
        ("hf:{0}/none/films", "no such folder"),
        ("hf:json", "is not a dataset"),
        ("hf:https://host/x", "is not a dataset"),
        ("hf:a/b/c/d", "is not a dataset"),
    ],
)
def test_what_a_dataset_does_not_have_is_told_in_one_line(name: str, message: str, folder: Path) -> None:
    with pytest.raises(DataFault) as refusal:
        find_files(name.format(folder))
    assert message in str(refusal.value)
    assert "write hf:ORGANIZATION/NAME" in str(refusal.value.hint) or "is not a" not in message
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("data.train: ")


def test_scripts_never_run_and_other_forms_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").unlink()
    (folder / "reviews.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    with pytest.raises(DataFault, match="scripts are no longer supported"):
        find_files(f"hf:{folder}")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "one.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataFault, match="of the form imagefolder; json, csv, parquet, arrow, text are read"):
        find_files(f"hf:{pictures}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFault, match="doesn't contain any data files"):
        find_files(f"hf:{tmp_path / 'empty'}")
    assert not (tmp_path / "ran").exists()


def test_names_of_the_hub_have_config_and_split() -> None:
    assert parse("hf:a/b", "data.train") == HubDataset("hf:a/b", "a/b", False, None, "train")
    assert parse("hf:a/b/sst2:test", "data.val")[1:] == ("a/b", False, "sst2", "test")
    assert parse("hf:a/b.c:dev.1", "data.val")[1:] == ("a/b.c", False, None, "dev.1")
    assert parse("hf:a/b", "--data").split == "validation"


def test_without_network_or_package_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match=r"data.train: hf:someone/text is not available: \w+: .*") as offline:
        find_files("hf:someone/text")
    assert "copy the folder" in str(offline.value.hint)
    refused(minitf("data", "stats", "data.train=hf:someone/text"), "hf:someone/text is not available", exit_code=9)
    monkeypatch.setattr(datasets, "__version__", "4.7.1")
    with pytest.raises(Unavailable, match=r"needs datasets 4\.8 or later, which runs no scripts"):
        find_files("hf:someone/text")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(minitf("data", "stats", "data.train=hf:someone/text"), "pip install 'minitf[hf]'", exit_code=9)
