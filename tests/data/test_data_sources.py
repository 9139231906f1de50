"""Sources and formats: what is read as documents, and what is refused with its place."""

import json
import os
import signal
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_tf.data.formats import text_documents as formats
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.text_documents import open_shard, read, read_range, read_raw
from mini_tf.recipe.data import FORMATS
from mini_tf.system.errors import DataFault, Unavailable


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))


def texts(path: Path | str | list[str], columns: Columns = Columns()) -> list[str]:
    return [d.text for d in read(find_files(path if isinstance(path, list) else str(path)), columns)]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path, columns: Columns = Columns()) -> str:
    with pytest.raises(DataFault) as caught:
        texts(path, columns)
    return caught.value.message


def test_a_block_between_blank_lines_is_a_document_and_keeps_its_characters(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "\n\n  one\n\ttwo \n \t\nthree\n\n\n")
    found = list(read(find_files(str(file)), Columns()))
    assert [d.text for d in found] == ["  one\n\ttwo ", "three"]
    assert [d.where for d in found] == [f"{file}:3", f"{file}:6"]


CONTENTS = {
    "txt": "one\n\ntwo\n",
    "jsonl": '{"text": "one"}\n{"text": "two"}\n',
    "csv": "text,label\none,a\ntwo,b\n",
    "tsv": "text\tlabel\none\ta\ntwo\tb\n",
    "conll": "one\tO\n\ntwo\tO\n",
    "conllu": "1\tone\tone\tX\n\n1\ttwo\ttwo\tX\n",
}
"""Two documents in every format of text."""


def test_the_character_of_a_byte_order_mark_is_text_elsewhere(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.txt", "\ufeff\ufeffone\n\ufefftwo")) == ["\ufeffone\n\ufefftwo"]


@pytest.mark.parametrize("form", CONTENTS)
def test_a_byte_order_mark_changes_nothing_in_any_format(form: str, tmp_path: Path) -> None:
    assert CONTENTS.keys() == {"txt", *FORMATS.values()} - {"parquet"}
    file = write(tmp_path / f"a.{form}", "\ufeff" + CONTENTS[form])
    assert texts(file) == ["one", "two"]
    if form in ("txt", "jsonl"):
        [source] = find_files(str(file))
        shard = open_shard(source, Columns())
        cut = len("\ufeff".encode()) + CONTENTS[form].index("two")
        parts = [
            [d.text for d in read_range(shard, *part, "strict")]
            for part in ((0, cut), (cut, shard.length), (0, shard.length))
        ]
        assert parts[0] + parts[1] == parts[2] == ["one", "two"]


@given(blocks=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"), min_size=1)))
def test_txt_gives_what_splitting_at_blank_lines_gives(
    blocks: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = write(tmp_path_factory.mktemp("t") / "a.txt", text := "\n\n".join(blocks))
    lines = "\n".join("" if not line.strip() else line for line in text.split("\n"))
    assert texts(file) == [block.strip("\n") for block in lines.split("\n\n") if block.strip("\n")]


def test_a_huge_document_comes_in_parts_that_join_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "PART_SIZE", 50)
    text = "\n".join(f"line {n} of a poem" for n in range(100))
    found = list(read(find_files(str(write(tmp_path / "a.txt", text + "\n\nend"))), Columns()))
    assert [d.opens for d in found] == [True] + [False] * (len(found) - 2) + [True]
    assert "".join(d.text for d in found[:-1]) == text
    assert max(len(d.text) for d in found) < 150
    assert "".join(d.text for d in read_raw(find_files(str(tmp_path / "a.txt")), Columns())) == text + "\n\nend"


@pytest.mark.parametrize("part", [8, 1 << 20])
def test_a_raw_stream_ends_each_row_with_one_newline_whatever_its_parts(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a table becomes a line, also a long one that is read in parts; of txt every character is kept."""
    monkeypatch.setattr(formats, "PART_SIZE", part)
    rows = ["a row of several words, read in parts", "short", " two\nlines "]
    write(tmp_path / "a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in rows))
    write(tmp_path / "b.csv", "id,text\n1,one\n2,two\n")
    write(tmp_path / "c.txt", "three\n\n four")
    write(tmp_path / "d.conll", "five\tO\nsix\tO\n\nseven\tO\n")
    found = list(
        read_raw(find_files([str(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.txt", "d.conll")]), Columns())
    )
    assert (
        "".join(d.text for d in found)
        == "".join(f"{t}\n" for t in [*rows, "one", "two"]) + "three\n\n fourfive six\nseven\n"
    )
    assert [d.opens for d in found] == [True] + [False] * (len(found) - 1)
    empty = write(tmp_path / "e.jsonl", '{"text": " "}\n')
    assert "".join(d.text for d in read_raw(find_files(str(empty)), Columns())) == ""


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("a fine film\nanother\n", Columns(), ["a fine film", "another"]),
        ("text\nfirst\n", Columns(), ["first"]),
        ('say\t"open\n', Columns(("1",)), ['"open']),
    ],
)
def test_the_header_is_found_by_its_words(tmp_path: Path, content: str, columns: Columns, expected: list[str]) -> None:
    assert texts(write(tmp_path / "a.tsv", content), columns) == expected


def test_a_table_without_a_text_column_names_the_columns_there_are(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "id,review\n1,good\n")
    with pytest.raises(DataFault) as caught:
        texts(file)
    assert caught.value.message == f"{file}:1: no column 'text'; the columns are: id, review"
    assert caught.value.hint == "name the text column with 'data.fields={text: COLUMN}'"
    with pytest.raises(DataFault) as caught:
        list(read(find_files(str(file), "--data"), Columns()))
    assert caught.value.hint == "name the text column with --fields '{text: COLUMN}'"
    assert "the columns are: 0, 1 (no header)" in refusal(write(tmp_path / "b.csv", "1,good film\n"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.docx", "a.docx is a word processor's document; save it as plain text: pandoc a.docx -t plain"),
        ("a.XLSX", "a.XLSX is a spreadsheet; save it as csv"),
        ("a.html", "a.html is HTML, whose tags would be read as text; extract its text: pandoc a.html -t plain"),
        ("a.pdf", "a.pdf is a PDF; extract its text first: pdftotext a.pdf"),
    ],
)
def test_documents_are_refused_with_the_way_to_their_text(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(DataFault) as fault:
        find_files(str(write(tmp_path / name, b"<p>text</p>")))
    assert f"{fault.value}; {fault.value.hint}".endswith(told)


@pytest.mark.parametrize("content", ['[{"text": "a"}]', '\ufeff \n{"text": "a"}\n'])
def test_json_that_is_not_in_lines_is_not_read_as_text(content: str, tmp_path: Path) -> None:
    file = write(tmp_path / "corpus.json", content)
    with pytest.raises(DataFault, match=r"corpus\.json is JSON, which would be read as plain text") as refused:
        find_files(str(file))
    assert "corpus.jsonl" in str(refused.value.hint)
    assert texts(write(tmp_path / "other.json", "a tale\n")) == ["a tale"]


def test_a_missing_file_suggests_a_near_one(tmp_path: Path) -> None:
    write(tmp_path / "corpus.txt", "x")
    assert refusal(tmp_path / "corpsu.txt").endswith(f"did you mean {tmp_path / 'corpus.txt'}?")
    with pytest.raises(DataFault, match="did you mean python-docs"):
        find_files("python-doc")


def test_globs_and_lists_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c [1].txt"):
        write(tmp_path / name, name)
    assert texts(tmp_path / "?.txt") == ["a.txt", "b.txt"]
    assert texts([str(tmp_path / "b.txt"), str(tmp_path / "a*")]) == ["b.txt", "a.txt"]
    assert texts(tmp_path / "c [1].txt") == ["c [1].txt"]
    assert "no file matches" in refusal(tmp_path / "*.csv")


def test_stdin_is_read_once_and_kept_under_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"one\n\ntwo\n")))
    sources = find_files("-")
    for _ in range(2):
        assert [d.text for d in read(sources, Columns())] == ["one", "two"]


class Endless(BytesIO):
    """What is done at the second read; then it never ends."""

    def __init__(self, at_second: Callable[[], object]) -> None:
        super().__init__()
        self.reads, self.at_second = 0, at_second

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        if self.reads == 2:
            self.at_second()
        return b"text\n" * 1000


@pytest.mark.parametrize("how", ["limit", "signal", "interrupt"])
def test_stdin_that_never_ends_leaves_nothing_in_the_cache(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    monkeypatch.setenv("MINITF_LIMITS", "stdin_bytes=1M" if how == "limit" else "")

    def interrupt() -> None:
        raise KeyboardInterrupt

    actions = {"limit": lambda: None, "signal": lambda: os.kill(os.getpid(), signal.SIGTERM), "interrupt": interrupt}
    monkeypatch.setattr("sys.stdin", TextIOWrapper(Endless(actions[how])))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises((DataFault, SystemExit, KeyboardInterrupt)) as ended:
            find_files("-")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    if how == "limit":
        assert str(ended.value) == "data.train: the text from stdin is longer than 1 MiB"
    if how == "signal":
        assert ended.value.code == 143  # type: ignore[union-attr]
    assert os.listdir(tmp_path / "stdin") == []


def test_names_of_other_positions_are_refused() -> None:
    with pytest.raises(Unavailable, match="hf:roneneldan/TinyStories is not available"):
        find_files("hf:roneneldan/TinyStories")
    with pytest.raises(DataFault, match="must be a built-in corpus"):
        find_files({"source": "a", "target": "b"})


def test_a_glob_below_a_folder_with_brackets_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]" / "c"
    folder.mkdir(parents=True)
    file = write(folder / "x.txt", "one\n")
    for pattern in ("*.txt", "../**", "../*/x.txt", "../*/?.txt"):
        assert [source.path.resolve() for source in find_files(f"{folder}/{pattern}")] == [file], pattern
