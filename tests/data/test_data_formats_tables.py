"""Rows of tables: columns by name and by number, cells of every format, CoNLL, and what is refused with its place."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from data_of import write_table
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data.formats import columns
from mini_tf.data.formats.babylm_files import read_pairs
from mini_tf.data.formats.columns import Columns, _listed
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.tables import Row, read_columns, rows_of
from mini_tf.data.formats.text_documents import read
from mini_tf.system.errors import DataFault

DATA = Path(__file__).parents[3] / "shared" / "data"
LABELLED = Columns(("text", "label"))
"""Texts and their labels."""


def rows(path: Path, columns: Columns = LABELLED) -> list[Row]:
    return [row for source in find_files(str(path)) for row in rows_of(source, columns)]


def cells_of(path: Path, columns: Columns = LABELLED) -> list[list[Any]]:
    return [row.cells for row in rows(path, columns)]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(read: Callable[[], object]) -> str:
    """What is said, and the hint behind it."""
    with pytest.raises(DataFault) as caught:
        read()
    assert "\n" not in caught.value.message
    return f"{caught.value.message} ({caught.value.hint})"


def table(folder: Path, kind: str, made: list[dict[str, Any]]) -> Path:
    """Rows as a file of this kind; of conll a column for each key, and a blank line after each row."""
    if kind != "conll":
        return write_table(folder / f"a.{kind}", made)
    sentences = (zip(*row.values(), strict=True) for row in made)
    return write(folder / "a.conll", "".join("".join("\t".join(word) + "\n" for word in s) + "\n" for s in sentences))


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\t\ufeff\"'"), min_size=1).filter(str.strip)
WORD = LINE.filter(lambda text: text.split() == [text] and not text.startswith(("#", "-DOCSTART-")))
PADDED = st.one_of(LINE, LINE.map(lambda text: f" {text}"), LINE.map(lambda text: f"{text}  "))
"""Spaces at the ends of a cell belong to it."""


@settings(deadline=None, max_examples=20)
@given(made=st.lists(st.tuples(PADDED, PADDED), min_size=1, max_size=5))
def test_a_table_has_the_same_cells_in_every_format(
    made: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    named = [{"label": label, "text": text} for text, label in made]
    found = [cells_of(table(folder, kind, named)) for kind in ("csv", "tsv", "jsonl", "parquet")]
    assert found == [[list(row) for row in made]] * 4
    more = [
        [row.optional for row in rows(folder / f"a.{kind}", Columns(("text",), optional=("label", "alignment")))]
        for kind in FORMATS
    ]
    assert more == [[[label, None] for _, label in made]] * 4


FORMATS = ("csv", "tsv", "jsonl", "parquet")


@settings(deadline=None, max_examples=40)
@given(made=st.lists(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=5), min_size=1, max_size=5))
def test_sentences_have_the_same_cells_in_every_format_of_lists(
    made: list[list[tuple[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    named = [{"text": [word for word, _ in one], "label": [tag for _, tag in one]} for one in made]
    found = [rows(table(folder, kind, named)) for kind in ("jsonl", "parquet", "conll")]
    for one in found:
        assert [row.cells for row in one] == [[row["text"], row["label"]] for row in named]
    begins = [1]
    for one in made:
        begins.append(begins[-1] + len(one) + 1)
    assert [row.where for row in found[2]] == [f"{folder}/a.conll:{line}" for line in begins[:-1]]
    texts = [
        [d.text for d in read(find_files(str(folder / f"a.{kind}")), Columns())]
        for kind in ("jsonl", "parquet", "conll")
    ]
    assert texts == [[" ".join(row["text"]) for row in named]] * 3


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_only_column_is_the_text_whatever_its_name(kind: str, tmp_path: Path) -> None:
    alone = [{"verse": "a b"}, {"verse": "c"}]
    assert cells_of(table(tmp_path, kind, alone), Columns()) == [["a b"], ["c"]]
    several = table(tmp_path, kind, [row | {"number": 1} for row in alone])
    assert "no column 'text'" in refusal(lambda: cells_of(several, Columns()))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_cells_are_whatever_the_file_holds(kind: str, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}]
    made = [
        {"text": ["a", "b"], "label": 3, "n": 2.5, "yes": True, "turns": turns},
        {"text": None, "label": 4, "n": 0.5, "yes": False},
    ]
    found = rows(table(tmp_path, kind, made), Columns(("text", "label", "n", "yes"), optional=("turns", "none")))
    assert [row.cells for row in found] == [[["a", "b"], 3, 2.5, True], [None, 4, 0.5, False]]
    assert [row.optional for row in found] == [[turns, None], [None, None]]


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("0\tfine film\n1\tpoor film\n", Columns(("1", "0")), [["fine film", "0"], ["poor film", "1"]]),
        ("1\tfine film\n0\tpoor\n", Columns(("1", "0")), [["fine film", "1"], ["poor", "0"]]),  # 1 and 0 are labels
        ("1\tfine\n", Columns(("1",)), [["fine"]]),
        ("good\tfine\nbad\tpoor\n", Columns(("1", "0")), [["fine", "good"], ["poor", "bad"]]),  # words, and no header
        ("text\tlabel\n", Columns(("1", "0")), [["label", "text"]]),
        ("0\t1\nbad\tpoor\n", Columns(("1", "0")), [["poor", "bad"]]),  # the names that pandas gives
        ("year\t2020\t2021\na\t7\t8\n", Columns(("2021",)), [["8"]]),  # larger than any number of a column
        ("0\n1\n0\n", Columns(("0",)), [["0"], ["1"], ["0"]]),  # a single column of labels
        ("2\t5\na\tb\n", Columns(("2",)), [["a"]]),  # of two columns the numbers are 0 and 1
        ("1\t5\na\tb\n", Columns(("1",)), [["5"], ["b"]]),
        ("1\t0\na\tb\n", Columns(("1", "0"), header=True), [["a", "b"]]),
        ("1\t0\na\tb\n", Columns(("1", "0"), header=False), [["0", "1"], ["b", "a"]]),
        ("label\ttext\n1\tfine\n", LABELLED, [["fine", "1"]]),
        ("\ufefflabel\ttext\r\n1\tfine\r\n", LABELLED, [["fine", "1"]]),
        ("\ufeff1\tfine film\r\n\r\n0\tpoor film\r\n", Columns(("0", "1")), [["1", "fine film"], ["0", "poor film"]]),
    ],
)
@pytest.mark.parametrize("kind", ["tsv", "csv"])
def test_columns_are_found_by_name_or_by_number_from_0(
    content: str, columns: Columns, expected: list[list[str]], kind: str, tmp_path: Path
) -> None:
    assert (
        cells_of(write(tmp_path / f"a.{kind}", content.replace("\t", "," if kind == "csv" else "\t")), columns)
        == expected
    )


HEADERS: list[Any] = ["auto", True, False]


@settings(deadline=None)
@given(width=st.integers(1, 6), number=st.integers(0, 8), header=st.sampled_from(HEADERS))
def test_a_number_is_that_column_where_no_line_has_names(
    width: int, number: int, header: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = write(tmp_path_factory.mktemp("n") / "a.csv", ",".join(f"cell {n}" for n in range(width)) + "\n")
    if number < width and header is not True:
        assert cells_of(file, Columns((str(number),), header)) == [[f"cell {number}"]]
        return
    said = refusal(lambda: cells_of(file, Columns((str(number),), header)))
    there = ", ".join(f"cell {n}" if header is True else str(n) for n in range(width))
    assert said.startswith(f"{file}:1: no column '{number}'; the columns are: {there}")
    assert ("data.header=false" in said) == (header is True)


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("a.tsv", "0\ta long film\n", LABELLED, "0, 1 (no header) ('data.fields={text: 1, label: 0}'"),
        ("a.csv", "a long film,0\n", LABELLED, "0, 1 (no header) ('data.fields={text: 0, label: 1}'"),
        ("a.csv", "a b,c d\n", Columns(("source", "target")), "(no header) ('data.fields={source: 0, target: 1}')"),
        (
            "a.csv",
            "a b,0\n",
            Columns(),
            "no column 'text'; the columns are: 0, 1 (no header) ('data.fields={text: 0}",
        ),
        ("a.csv", "a b,0\n", Columns(("review", "stars")), "0, 1 (no header) (in a file without a header, select"),
        ("a.csv", "a b\n", LABELLED, "0 (no header) (in a file without a header, select columns by number from 0)"),
        ("a.csv", "review,stars\na,b\n", LABELLED, "stars (name the columns with 'data.fields={text: COLUMN, label:"),
        ("a.csv", "text,text,label\na,b,c\n", LABELLED, ":1: 2 columns are named 'text'"),
        ("a.csv", "text,label,x,x\na,b,c,d\n", Columns(("text",), optional=("x",)), ":1: 2 columns are named 'x'"),
        ("a.csv", "text,label\na,b\n\nc\n", LABELLED, ":4: 1 columns, but the first line has 2"),
        ("a.csv", "a b,c\n", Columns(("-1",)), "no column '-1'; the columns are: 0, 1 (no header)"),
        ("a.jsonl", '{"a": 1, "b": 2}\n', Columns(("0",)), "no column '0'; the columns are: a, b (this file has"),
        ("a.jsonl", '{"text": 1, "label": 2}\n\n{"text": 1}\n', LABELLED, ":3: no column 'label'; the columns are"),
        ("a.conll", "a\tO\n", Columns(("2",)), ":1: no column '2'; the columns are: 0, 1 (no header)"),
        ("a.conll", "a\tO\n", Columns(("word",)), ":1: no column 'word'; the columns are: 0, 1 (no header)"),
        ("a.conll", "a\n", LABELLED, ":1: no column 'label'; the columns are: 0 (no header)"),
        ("a.conll", "a\tO\nb\n", LABELLED, ":2: 1 columns, but line 1 has 2"),
        ("a.conll", "# id 1\n\na O\n\nb x O\n", LABELLED, ":5: 3 columns, but line 3 has 2"),
        ("a.conll", "a\tO\n\tO\n", LABELLED, ":2: column 0 (from 0) is empty"),
        ("a.conll", "a\tO\t\n", LABELLED, ":1: column 2 (from 0) is empty"),
        ("a.conll", "a O\n\n# newdoc\n", LABELLED, ":3: may be a comment or the word # with its columns (put a tab"),
        ("a.conll", b"a\tO\n\nb\xff\tO\n", LABELLED, ":3: byte 6 is not UTF-8"),
        ("a.conllu", "word\tO\n", LABELLED, ":1: a line of CoNLL-U must start with the word's number"),
    ],
)
def test_columns_that_are_not_there_are_refused_with_their_line(
    name: str, content: str | bytes, columns: Columns, said: str, tmp_path: Path
) -> None:
    file = write(tmp_path / name, content)
    found = refusal(lambda: rows(file, columns))
    assert found.startswith(f"{file}:")
    assert said in found


def test_a_column_that_stands_twice_in_parquet_is_refused(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, names=["text", "text"]), file)
    assert "2 columns are named 'text'" in refusal(lambda: rows(file, Columns()))


def test_long_cells_of_lists_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_LIMITS", "line_bytes=1K")
    made = [{"text": ["a"], "label": "b"}, {"text": [{"x": "a" * 600}, {"x": "b" * 600}], "label": "c"}]
    made[0]["text"] = [{"x": "a"}]
    file = table(tmp_path, "parquet", made)
    assert "a.parquet: row 2: a cell is longer than 1 KiB" in refusal(lambda: rows(file))


SENTENCES = [[["EU", "B-ORG"], ["rejects", "O"]], [["#1", "O"], ["#", "O"], ["it", "O"]]]
"""What every file of the next test holds."""


@pytest.mark.parametrize(
    "content",
    [
        "EU\tB-ORG\nrejects\tO\n\n#1\tO\n#\tO\nit\tO\n",
        "\n\nEU\tB-ORG\nrejects\tO\n\t\n \t \n#1\tO\n#\tO\nit\tO\n\n\n",
        "EU B-ORG\nrejects   O\n\n#1 O\n# O\nit O",
        "EU B-ORG\nrejects\tO\n\n#1\tO\n# O\nit O",
        "# id 52\tx\nEU B-ORG\nrejects O\n\n# id 53\tx\n#1 O\n# O\nit O",
        "\ufeffEU\tB-ORG\r\nrejects\tO\r\n\r\n#1\tO\r\n#\tO\r\nit\tO\r\n",
        "-DOCSTART- -X-\n\nEU B-ORG\nrejects O\n-DOCSTART- -X- O\n#1 O\n# O\nit O\n",
        "# sent_id = 1\n# text = EU rejects\nEU\tB-ORG\nrejects\tO\n\n# newdoc\n#1\tO\n#\tO\nit\tO\n",
        "# id 52-x\tdomain=en source=y\tz\nEU B-ORG\nrejects O\n\n# id 3 4\n#1 O\n# O\nit O\n",
        "#\n# a comment\nEU\tB-ORG\nrejects\tO\n\n#1\tO\n#\tO\n# in between\nit\tO\n",
    ],
)
@pytest.mark.parametrize("suffix", ["conll", "bio", "iob"])
def test_sentences_are_found_between_blank_lines_and_comments(content: str, suffix: str, tmp_path: Path) -> None:
    found = rows(write(tmp_path / f"a.{suffix}", content))
    assert [row.cells for row in found] == [[list(column) for column in zip(*one, strict=True)] for one in SENTENCES]
    lines = content.splitlines()
    begins = [
        next(n for n, line in enumerate(lines, 1) if line.lstrip("\ufeff").startswith(one[0][0])) for one in SENTENCES
    ]
    assert [row.where for row in found] == [f"{tmp_path}/a.{suffix}:{n}" for n in begins]


def test_a_sentence_may_begin_with_a_hash_sign(tmp_path: Path) -> None:
    columns = Columns(("text",))
    assert cells_of(write(tmp_path / "a.conll", "#\tX\n#tag\tX\n\n#\tX\n"), columns) == [[["#", "#tag"]], [["#"]]]
    assert cells_of(write(tmp_path / "b.conll", "#tag X\na X\n\n# B-LOC\n"), columns) == [[["#tag", "a"]], [["#"]]]
    assert cells_of(write(tmp_path / "c.conll", "# only a comment\n\n"), columns) == []


def test_columns_of_conll_have_numbers_and_the_usual_ones_names(tmp_path: Path) -> None:
    file = write(tmp_path / "a.conll", "EU NNP B-NP B-ORG\nwins VBZ B-VP O\n")
    assert cells_of(file) == [[["EU", "wins"], ["B-ORG", "O"]]]
    assert cells_of(file, Columns(("0", "1"))) == [[["EU", "wins"], ["NNP", "VBZ"]]]
    [row] = rows(file, Columns((None,), optional=("label", "2", "4", "text_pair")))
    assert row.optional == [["B-ORG", "O"], ["B-NP", "B-VP"], None, None]


@pytest.mark.parametrize("suffix", ["conllu", "conll"])
def test_conll_u_names_its_columns_by_their_positions_and_repeats_no_word(suffix: str, tmp_path: Path) -> None:
    """By its form, if its name ends in .conll; also where the first line of words is that of two in one."""
    lines = [
        "# text = Don't go",
        "1-2 Don't _ _ _ _ _ _ _ _",
        "1 Do do AUX VB _ 3 aux _ _",
        "2 n't not PART RB _ 3 advmod _ _",
    ]
    lines += ["3 go go VERB VB _ 0 root _ _", "3.1 on on ADP _ _ _ _ _ _"]
    file = write(tmp_path / f"a.{suffix}", "".join(line.replace(" ", "\t") + "\n" for line in lines[1:]))
    assert cells_of(file) == [[["Do", "n't", "go"], ["AUX", "PART", "VERB"]]]
    file = write(tmp_path / f"a.{suffix}", lines[0] + "\n" + file.read_text())
    [row] = rows(file, Columns(("1", "4")))
    assert (row.cells, row.where) == ([["Do", "n't", "go"], ["VB", "RB", "VB"]], f"{file}:3")


@pytest.mark.parametrize("first", ["1", "1-2", "0.1"])
def test_any_first_line_of_conll_u_tells_what_it_is(first: str, tmp_path: Path) -> None:
    lines = [
        *([f"{first} x _ _ _ _ _ _ _ _"] if first != "1" else []),
        "1 a a NOUN _ _ _ _ _ _",
        "2 b b VERB _ _ _ _ _ _",
    ]
    file = write(tmp_path / "a.conll", "".join(line.replace(" ", "\t") + "\n" for line in lines))
    assert cells_of(file) == [[["a", "b"], ["NOUN", "VERB"]]]


def test_numbers_of_words_are_not_taken_for_words(tmp_path: Path) -> None:
    """Also where they are not of ten columns, as in CoNLL-2009."""
    file = write(tmp_path / "a.conll", "1\ta\tO\n2\tb\tB-x\n\n1\tc\tO\n")
    said = refusal(lambda: rows(file))
    assert (
        said
        == f"{file}:1: column 0 has the numbers of the words, not the words (name the columns: data.fields={{text: 1,"
        " label: 3})"
    )
    assert cells_of(file, Columns(("1", "2"))) == [[["a", "b"], ["O", "B-x"]], [["c"], ["O"]]]
    assert cells_of(write(tmp_path / "b.conll", "1\tO\n\n2\tO\n3\tO\n")) == [[["1"], ["O"]], [["2", "3"], ["O", "O"]]]
    ten = "\t".join("abcdefghij")
    assert cells_of(write(tmp_path / "c.conll", f"{ten}\n")) == [[["a"], ["j"]]]


def test_a_sentence_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_LIMITS", "line_bytes=1K")
    fits = write(tmp_path / "a.conll", "word\tO\n" * 146 + "\n" + "word\tO\n" * 146)
    assert [len(row.cells[0]) for row in rows(fits)] == [146, 146]  # of 7 bytes each; 147 are 1,029 bytes
    file = write(tmp_path / "b.conll", "a\tO\n\n" + "word\tO\n" * 1000)
    said = refusal(lambda: rows(file))
    assert said.startswith(
        f"{file}:149: the sentence that starts at {file}:3 is longer than 1 KiB (put a blank line after each sentence"
    )


def test_twenty_columns_are_named_and_more_are_left_out() -> None:
    names = [f"c{n}" for n in range(21)]
    assert _listed(names[:20]) == ", ".join(names[:20])
    assert _listed(names) == ", ".join(names[:20]) + ", ..."
    assert _listed([]) == "none"


@pytest.mark.parametrize(("side", "n_sentences"), [("train", 3394), ("dev", 1009)])
def test_wnut17_is_read_as_its_lines_say(side: str, n_sentences: int) -> None:
    file = DATA / "wnut17" / f"{side}.conll"
    if not file.exists():
        pytest.skip(f"{file} is not here")
    blocks = [block.split("\n") for block in re.split(r"\n\t*\n", file.read_text()) if block.strip()]
    found = rows(file)
    assert len(found) == len(blocks) == n_sentences
    expected = [[line.split("\t") for line in block if line.strip()] for block in blocks]
    assert [[list(word) for word in zip(*row.cells, strict=True)] for row in found] == expected
    tags = {tag for row in found for tag in columns.labels_of(row.cells[1], row.where, "label")}
    kinds = ("corporation", "creative-work", "group", "location", "person", "product")
    assert tags == {"O", *(f"{sign}-{kind}" for sign, kind in product("BI", kinds))}
    assert [columns.words_of(row.cells[0], row.where, "text") for row in found] == [row.cells[0] for row in found]


def test_sst2_opens_by_numbers_and_its_refusal_tells_them() -> None:
    file = DATA / "sst2" / "dev.tsv"
    if not file.exists():
        pytest.skip(f"{file} is not here")
    assert "'data.fields={text: 1, label: 0}'" in refusal(lambda: rows(file))
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    assert cells_of(file, Columns(("1", "0"))) == [[text, label] for label, text in lines]
    assert len(lines) == 872


MUST_BE = "must be system, user or assistant"
NO_NUMBERS = ("1,5", "1_0", "nan", "inf", "0x1", "\u0663", "1 2", ".", "-")
OF_LISTS = (columns.texts_of, columns.words_of, columns.labels_of)
USER, SAID = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}


@pytest.mark.parametrize(
    ("role", "cell", "expected"),
    [
        (columns.text_of, " a ", " a "),
        (columns.text_of, "", ""),
        (columns.text_of, ["a", "", "b c", " "], "a b c"),
        (columns.text_of, [], ""),
        (columns.texts_of, " a ", [" a "]),
        (columns.texts_of, ["", "a", " ", "b c"], ["a", "b c"]),
        (columns.words_of, " a  b\tc\n", ["a", "b", "c"]),
        (columns.words_of, ["a", "b's"], ["a", "b's"]),
        (columns.words_of, ["10\u00a0000", "10\u202f000"], ["10\u00a0000", "10\u202f000"]),
        (columns.label_of, " very good ", "very good"),
        (columns.label_of, 3, "3"),
        (columns.label_of, True, "true"),
        (columns.label_of, 1.0, "1"),
        (columns.label_of, -2.5, "-2.5"),
        (columns.label_of, -1.0, "-1"),
        (columns.labels_of, "O  B-x", ["O", "B-x"]),
        (columns.labels_of, ["O", 2, False], ["O", "2", "false"]),
        (columns.number_of, 3, 3.0),
        (columns.number_of, " -2.5e1 ", -25.0),
        (columns.number_of, ".5", 0.5),
        (columns.number_of, "+3.", 3.0),
        (columns.messages_of, [USER | {"role": "system"}, SAID], [("system", "hi"), ("assistant", "ho")]),
    ],
)
def test_a_cell_gives_what_its_role_needs(role: Callable[..., Any], cell: Any, expected: Any) -> None:
    assert role(cell, "f:1", "x") == expected


@pytest.mark.parametrize(
    ("role", "cell", "said"),
    [
        *[(role, None, "'x' must be text") for role in (*OF_LISTS, columns.text_of, columns.label_of)],
        *[(role, "\ud800", "'x' contains invalid Unicode") for role in (columns.text_of, columns.label_of)],
        *[(role, ["\ud800"], "'x' contains invalid Unicode") for role in (*OF_LISTS, columns.text_of)],
        *[(role, cell, "'x' is empty") for role in OF_LISTS for cell in ("", " \t", [])],
        (columns.text_of, 3, "'x' must be text, not int"),
        (columns.text_of, ["a", None], "'x' must be text, not null"),
        (columns.text_of, {"a": "b"}, "'x' must be text, not dict"),
        (columns.texts_of, ["", " "], "'x' is empty"),
        (columns.texts_of, ["a", 3], "'x' must be text, not int"),
        (columns.words_of, ["a", ""], "'x': word 2 is empty"),
        (columns.words_of, ["a", "a b"], "'x': word 2 'a b' contains whitespace"),
        (columns.words_of, ["a\u2028b"], "'x': word 1 'a\\u2028b' contains whitespace"),
        (columns.words_of, ["\u00a0"], "'x': word 1 is empty"),
        (columns.words_of, ["a", 3], "'x' must be text, not int"),
        (columns.label_of, " ", "'x' is empty"),
        (columns.label_of, ["a"], "'x' must be text or a number, not list"),
        (columns.label_of, float("nan"), "'x' is not a finite number"),
        (columns.label_of, None, "'x' must be text or a number, not null"),
        (columns.labels_of, ["a", " "], "'x' is empty"),
        (columns.labels_of, ["a", None], "'x' must be text or a number, not null"),
        (columns.labels_of, 3, "'x' must be text, not int"),
        *[(columns.number_of, text, "'x' must be a number, not ") for text in NO_NUMBERS],
        (columns.number_of, " ", "'x' is empty"),
        (columns.number_of, True, "'x' must be a number, not bool"),
        (columns.number_of, [1], "'x' must be a number, not list"),
        (columns.number_of, None, "'x' must be a number, not null"),
        *[(columns.number_of, n, "'x' is not a finite number") for n in ("1e999", 10**400, math.inf, math.nan)],
        (columns.messages_of, "hi", '\'x\' must be a list of {"role": ..., "content": ...}, not str'),
        (columns.messages_of, [SAID, "hi"], "'x': message 2 must be a list of"),
        (columns.messages_of, [{"role": "user"}], "'x': message 1 has no 'content'"),
        (columns.messages_of, [SAID, {"content": "a"}], "'x': message 2 has no 'role'"),
        (columns.messages_of, [USER | {"role": "gpt"}], f"'x': the role of message 1 {MUST_BE}, not 'gpt'"),
        (columns.messages_of, [USER | {"role": ["user"]}], f"'x': the role of message 1 {MUST_BE}"),
        (columns.messages_of, [SAID, {"role": "user", "content": " "}], "'x': the content of message 2 is empty"),
        (columns.messages_of, [{"role": "user", "content": ["a"]}], "'x: content of message 1' must be text, not list"),
        (columns.messages_of, [USER], "'x' has no assistant message"),
        (columns.messages_of, [], "'x' has no assistant message"),
    ],
)
def test_a_cell_that_is_doubtful_is_refused_with_its_place(role: Callable[..., Any], cell: Any, said: str) -> None:
    assert refusal(lambda: role(cell, "f.jsonl:7", "x")).startswith(f"f.jsonl:7: {said}")


@given(number=st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_is_the_same_as_json_and_as_text(number: float) -> None:
    try:
        expected = float(number)
    except OverflowError:
        return
    assert columns.number_of(number, "f:1", "x") == columns.number_of(json.dumps(number), "f:1", "x") == expected


USUAL = Columns(("text", "label"), aliases={"text": ("text", "review", "content"), "label": ("label", "stars")})
NUMBERED = replace(USUAL, numbers={"text": "1", "label": "0"})
"""As of a recipe whose training data have no header."""


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("columns", [USUAL, NUMBERED], ids=["names", "numbers"])
def test_columns_are_taken_by_what_they_are_often_called(kind: str, columns: Columns, tmp_path: Path) -> None:
    file = table(tmp_path, kind, [{"id": "1", "review": "a nice film", "stars": "5"}])
    assert cells_of(file, columns) == [["a nice film", "5"]]
    assert read_columns(find_files(str(file))[0], columns) == ["review", "stars"]


@pytest.mark.parametrize("first", ["content", "label", "5"])
def test_without_a_header_the_numbers_are_taken_whatever_the_first_row_holds(first: str, tmp_path: Path) -> None:
    file = write(tmp_path / "intent.tsv", f"{first}\tthen on to something else\nstatement\tit is so\n")
    assert cells_of(file, NUMBERED) == [["then on to something else", first], ["it is so", "statement"]]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_column_of_the_name_comes_before_another_that_may_be_meant(kind: str, tmp_path: Path) -> None:
    usual = Columns(("text", "label"), aliases={"text": ("sentence", "review"), "label": ("class",)})
    made = [{"sentence": "no", "text": "yes", "class": "1"}]
    assert cells_of(table(tmp_path, kind, made), usual) == [["yes", "1"]]
    assert read_columns(find_files(str(tmp_path / f"a.{kind}"))[0], usual) == ["text", "class"]


def test_words_that_repeat_are_no_header(tmp_path: Path) -> None:
    numbers = Columns(("text", "label"), numbers={"text": "0", "label": "1"})
    assert cells_of(write(tmp_path / "a.csv", "fine,fine\nbad,poor\n"), numbers) == [["fine", "fine"], ["bad", "poor"]]
    assert cells_of(write(tmp_path / "b.csv", "fine,good\nbad,poor\n"), Columns(("fine", "good"))) == [["bad", "poor"]]
    assert "(no header)" in refusal(lambda: cells_of(write(tmp_path / "c.csv", "fine,fine\n")))


NAME_THEM = "name the columns with 'data.fields={text: COLUMN, label: COLUMN}'"


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("of two.csv", "review,content,stars\na,b,5\n", USUAL, "'text'; the columns are: review, content, stars"),
        (
            "by the first row.jsonl",
            '{"text": "a", "review": "meta"}\n{"review": "b", "lang": "en"}\n',
            Columns((None,), aliases={"text": ("review",)}),
            ":2: no column 'text'; the columns are: review, lang",
        ),
        (
            "a header is no data.csv",
            "a,b,c\n1,fine,x\n",
            NUMBERED,
            f":1: no column 'text'; the columns are: a, b, c ({NAME_THEM}; or, if the first row is no header,"
            " data.header=false 'data.fields={text: 0, label: 2}')",
        ),
        (
            "blanks.csv",
            "Review Text,My Label\na nice film,5\n",
            USUAL,
            "; or, if the first row is a header, 'data.fields={text: Review Text, label: My Label}')",
        ),
    ],
)
def test_columns_that_may_be_meant_are_not_guessed(
    name: str, content: str, columns: Columns, said: str, tmp_path: Path
) -> None:
    assert said in refusal(lambda: cells_of(write(tmp_path / name, content), columns))


def test_a_group_without_a_name_is_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "sentence_good,sentence_bad,UID,linguistics_term\na b,a c,,agreement\n")
    [pair] = read_pairs([str(file)])
    assert (pair.good, pair.bad, pair.groups) == ("a b", "a c", {"linguistics_term": "agreement"})


def test_a_single_cell_that_names_a_role_is_a_header_which_lacks_the_others() -> None:
    asked = columns.Columns(("text", "label"), numbers={"text": "0", "label": "1"})
    with pytest.raises(DataFault, match=r"no column 'label'; the columns are: text"):
        columns.select_columns(["text"], asked, "a.csv:1", "--data")
    with pytest.raises(DataFault, match=r"the columns are: 0 \(no header\)"):
        columns.select_columns(["a film"], asked, "a.csv:1", "--data")
    with pytest.raises(DataFault, match=r"the columns are: 0 \(no header\)"):
        columns.select_columns(["text"], replace(asked, header=False), "a.csv:1", "--data")
