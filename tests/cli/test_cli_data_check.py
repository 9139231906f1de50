"""`minitf data check`: every fault of a recipe's files, or what there is in them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import Done, minitf, refused
from data_of import shorten_corpora

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections

ROWS = "".join(f"{n % 2}\ta sentence number {n}\n" for n in range(40))

NOT_UTF8 = "save the file as UTF-8, or use data.errors=replace to read such bytes as U+FFFD"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text(ROWS)
    return tmp_path


def check(*overrides: str, recipe: str = "sst2-nano") -> Done:
    return minitf("data", "check", recipe, *overrides)


def result(*overrides: str, recipe: str = "sst2-nano") -> Any:
    done = check(*overrides, "--json", recipe=recipe)
    assert done.exit_code == 0, done
    return json.loads(done.stdout)["result"]


def test_every_fault_of_both_files_is_reported_with_its_line(folder: Path) -> None:
    (folder / "train.tsv").write_bytes(ROWS.encode() + b"1\t \n0\tfine\n1\n0\tb\xffad\n")
    (folder / "val.tsv").write_text("1\tnew\n\tno label\n2\tunknown\n2\tunknown again\n")
    done = check("data.train=train.tsv", "data.val=val.tsv")
    refused(done)
    assert done.stderr.splitlines() == [
        f"{folder}/train.tsv:44: byte {len(ROWS) + 16} is not UTF-8; {NOT_UTF8}",
        f"{folder}/train.tsv:41: 'text' is empty; remove the row",
        f"{folder}/train.tsv:43: 1 columns, but the first line has 2",
        f"{folder}/val.tsv:2: 'label' is empty; remove the row",
        (
            f"{folder}/val.tsv:3: the label '2' is not one of the classes (2 times); the classes are: 0, 1;"
            " objective.labels lists all classes"
        ),
    ]


def test_the_first_faults_are_printed_and_the_rest_counted(folder: Path) -> None:
    (folder / "train.tsv").write_text(ROWS + "1\t\n" * 30)
    done = check("data.train=train.tsv", "--faults", "3")
    assert done.exit_code == 4
    assert [line.split(": ")[0] for line in done.stderr.splitlines()[:3]] == [
        f"{folder}/train.tsv:{n}" for n in (41, 42, 43)
    ]
    assert done.stderr.splitlines()[3:] == ["30 faults, 3 printed; --faults 30 prints all"]
    envelope = json.loads(check("data.train=train.tsv", "--json").stdout)
    assert (envelope["ok"], envelope["exit_code"], envelope["result"]["faults"]) == (False, 4, 30)
    assert len(envelope["error"]["faults"]) == 20


def test_a_missing_column_is_named_with_the_nearest_one(folder: Path) -> None:
    (folder / "train.csv").write_text("sentence,lable\nfine,1\n")
    done = check("data.train=train.csv", "data.fields={text: sentence, label: label}")
    refused(done, "train.csv:1: no column 'label'; the columns are: sentence, lable; the rest was not read")
    (folder / "train.jsonl").write_text('{"text": "fine", "lable": 1}\n{"text": 3, "label": 1}\nnot JSON\n')
    lines = check("data.train=train.jsonl", "data.fields={text: text, label: label}").stderr.splitlines()
    assert [line.split(": ")[0].rsplit(":")[-1] for line in lines] == ["1", "2", "3"]
    assert lines[0].endswith("name the columns with 'data.fields={text: text, label: lable}'")


def test_words_and_tags_go_on_behind_a_line_of_other_columns(folder: Path) -> None:
    (folder / "train.conll").write_text("Anna\tB-PER\nsaw\n\nOslo\tB-LOC\n\nx\ty\tz\n")
    lines = check("data.train=train.conll", recipe="wnut17-nano").stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{folder}/train.conll:2", f"{folder}/train.conll:6"]


def test_empty_lines_of_pairs_and_a_line_without_partner_are_all_reported(folder: Path) -> None:
    (folder / "en").write_text("one\n\nthree\nfour\n")
    (folder / "de").write_text("eins\nzwei\n \n")
    done = check("data.train={source: en, target: de}", "data.val=null", recipe="multi30k-en-de")
    refused(
        done,
        f"{folder}/en:2: the line is empty",
        f"{folder}/de:3: the line is empty",
        f"{folder}/en:4: no corresponding line",
    )
    assert len(done.stderr.splitlines()) == 3


def test_a_missing_file_does_not_keep_the_other_from_being_read(folder: Path) -> None:
    (folder / "val.tsv").write_text("x\n")
    lines = check("data.train=nowhere.tsv", "data.val=val.tsv").stderr.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        ["data.train", f"{folder}/nowhere.tsv"],
        [f"{folder}/val.tsv:1", "no column '1'; the columns are"],
    ]


def test_sound_files_are_counted(folder: Path) -> None:
    (folder / "train.tsv").write_text(ROWS + ROWS.splitlines()[0] + "\n")
    long = " ".join(["sentence"] * 90)
    (folder / "val.tsv").write_text(f"{ROWS.splitlines()[3]}\n1\tnumber\n0\t{long}\n")
    found = result("data.train=train.tsv", "data.val=val.tsv")
    train, val = found["train"], found["val"]
    assert (found["faults"], found["known_twice"]) == (0, 1)
    assert (train["examples"], train["repeated"], train["labels"]) == (41, 1, {"0": 21, "1": 20})
    assert (val["examples"], val["repeated"], val["labels"]) == (2, 0, {"1": 1, "0": 1})
    assert (val["longest"], val["longer"], train["longer"]) == (90, 1, 0)
    table = check("data.train=train.tsv", "data.val=val.tsv").stdout
    assert "1 examples of data.val are also in data.train; training removes them from val\n" in table
    assert table.endswith(
        "examples longer than train.context 64 with their separators are truncated: they lose their end\n"
    )


@pytest.mark.parametrize(("classes", "more"), [(50, []), (53, ["and 3 more labels; --json lists all"])])
def test_the_50_most_frequent_labels_are_printed(folder: Path, classes: int, more: list[str]) -> None:
    rows = [f"c{n}\ta text of {n}, {again}" for n in range(classes) for again in range(classes - n + 1)]
    (folder / "train.tsv").write_text("\n".join([*rows, ""]))
    shown = check("data.train=train.tsv", "data.split=1%").stdout.splitlines()
    assert [line for line in shown if "more labels" in line] == more
    assert any("c49" in line for line in shown)
    assert not any("c50" in line for line in shown)


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


TALES = "".join(f"tale {n}\n<|endoftext|>\n" for n in range(20))
ALPACA = lines({"instruction": f"do {n}", "Input": f"x {n}", "output": "y", "id": n} for n in range(30))
NLI = lines({"premise": f"a {n}", "hypothesis": "b", "label": "cd"[n % 2], "id": n} for n in range(30))
UNCLEAR: dict[str, tuple[str, tuple[str, str], tuple[str, str], str]] = {
    "JSON as text": ("quickstart", (NLI, ""), (TALES, ""), "a.txt: it is JSON, which is read as plain text"),
    "a list of JSON": (
        "quickstart",
        (json.dumps([{"text": "a"}] * 20), ""),
        (f"[1]\n{TALES}", ""),
        "a.txt: it is JSON",
    ),
    "a list of JSON in lines": (
        "quickstart",
        (json.dumps([{"text": "a"}] * 20, indent=1), ""),
        (TALES, ""),
        "a.txt: it is JSON",
    ),
    "marks within a line": (
        "quickstart",
        (TALES + "a<|endoftext|>b\n" * 3, ""),
        (TALES, ""),
        "<|endoftext|> is 3 times within a text",
    ),
    "a part of the prompt": (
        *(
            "instruct-nano",
            (ALPACA, "{prompt: instruction, response: output}"),
            (ALPACA, "{prompt: Input, response: output}"),
        ),
        "a.jsonl: the column 'Input' is not read, though it may be a part of the input",
    ),
    "labels of running text": (
        *("quickstart", (NLI, "{text: premise}"), (NLI.replace("label", "number"), "{text: premise}")),
        "a.jsonl: the column 'label' is not read; labels are for tasks: `minitf finetune`",
    ),
    "a second text": (
        *(
            "sst2-nano",
            (NLI, "{text: premise, label: label}"),
            (NLI, "{text: premise, text_pair: hypothesis, label: label}"),
        ),
        "a.jsonl: the column 'hypothesis' is not read, though it may be a part of the input",
    ),
}
"""Recipe, a file with its data.fields, the same in a way that is clear, and what is said of the first one."""


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_may_be_meant_otherwise_is_noted(name: str, folder: Path) -> None:
    recipe, unclear, clear, note = UNCLEAR[name]
    for (content, fields), n in ((unclear, 1), (clear, 0)):
        file = folder / ("a.jsonl" if fields else "a.txt")
        file.write_text(content)
        done = check(f"data.train={file.name}", *([f"data.fields={fields}"] if fields else []), recipe=recipe)
        assert done.exit_code == 0, done.stderr
        assert done.stderr.count(note) == n


ROWS_OF: dict[str, tuple[str, Callable[[str], dict[str, str]], int]] = {
    "classes": ("sst2-nano", lambda text: {"text": text, "label": "ab"[text.count(" ") % 2]}, 62),  # two separators
    "tags": ("wnut17-nano", lambda text: {"text": text, "label": " ".join(["O", *["B-x"] * text.count(" ")])}, 62),
    "chats": (
        "instruct-nano",
        lambda text: {"prompt": "w", "response": text},
        61,
    ),  # of three separators the last one is only a target
    "targets": ("transformer-nano", lambda text: {"source": text[:1], "target": text}, 63),  # one separator
    "sources": ("transformer-nano", lambda text: {"source": text, "target": text[:1]}, 63),
    "text": ("quickstart", lambda text: {"text": text}, 64),
}
"""Recipe, row of a text, and the words of the longest text that fits into a context of 64 tokens."""


@pytest.mark.parametrize("dataset", ROWS_OF)
def test_what_does_not_fit_into_a_row_is_counted_as_longer(dataset: str, folder: Path) -> None:
    recipe, row, most = ROWS_OF[dataset]
    for name, first in (("train.jsonl", "v"), ("val.jsonl", "w")):
        texts = (" ".join([first, *["w"] * n]) for n in range(59, 67))
        (folder / name).write_text("".join(json.dumps(row(text)) + "\n" for text in texts))
    Tokenizer.train(sections.Tokenizer(kind="wordpiece", vocab_size=120), ["w v"]).save(folder / "tokenizer.json")
    fields = "{" + ", ".join(f"{key}: {key}" for key in row("")) + "}"
    files = (
        "data.train=train.jsonl",
        "data.val=val.jsonl",
        f"data.fields={fields}",
        "tokenizer={path: tokenizer.json}",
    )
    assert result(*files, "train.context=64", recipe=recipe)["train"]["longer"] == 67 - most


@pytest.mark.parametrize("recipe", ["quickstart", "transformer-nano", "instruct-nano"])
def test_built_in_data_have_no_faults(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their first rows."""
    shorten_corpora(monkeypatch)
    done = check(recipe=recipe)
    assert done.exit_code == 0, done.stderr
    assert "\nno faults; validation data is split off data.train (5%)\n" in done.stdout
