"""Pairs of a source and a target: what is read, what is refused and where, who is held out, and what the stores
hold.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_of import dataset_of, encoded, opened, write_table
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data import raw
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.examples import Pair
from mini_tf.data.split import DataSplit, Examples
from mini_tf.data.store import Store
from mini_tf.recipe import sections
from mini_tf.recipe.data import Data, Split
from mini_tf.recipe.data import FilePair as Files
from mini_tf.system.errors import DataFault, Unavailable

PAIRED = dataset_of("pairs")
CHAR = sections.Tokenizer(kind="char")
BYTE = sections.Tokenizer(kind="byte")
PAIRS = [(f"the cat number {n} sat", f"kato {n} sidis {'tre ' * (n % 4)}.") for n in range(80)]
FIELDS = {"source": "en", "target": "de"}
SCITLDR = Path(__file__).parents[3] / "shared" / "data" / "scitldr"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def aligned(folder: Path, pairs: list[tuple[str, str]] = PAIRS, name: str = "train") -> Files:
    """Two files of lines."""
    lines = ["".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)]
    return Files(source=write(folder / f"{name}.en", lines[0]), target=write(folder / f"{name}.de", lines[1]))


def table(folder: Path, names: tuple[str, str] = ("source", "target"), pairs: list[tuple[str, str]] = PAIRS) -> str:
    """The same pairs as a table with a further column before them."""
    rows = [{"id": str(n), names[0]: source, names[1]: target} for n, (source, target) in enumerate(pairs)]
    return str(write_table(folder / "pairs.csv", rows))


def pairs_in(spec: object, data: Data | None = None) -> list[Pair]:
    return list(PAIRED.read(PAIRED.find(spec, "data.train"), data or Data(train="x"), spec))


def written(store: Store) -> list[Pair]:
    return list(PAIRED.examples(store))


def read(spec: object, **given: Any) -> list[tuple[str, str]]:
    data = Data(train="x", **given)
    return [(pair.source, pair.target) for pair in pairs_in(spec, data)]


def refusal(spec: object, **given: Any) -> str:
    """The message and hint of the refusal, and that it is one of data (exit code 4)."""
    with pytest.raises(DataFault) as caught:
        read(spec, **given)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.message
    return f"{caught.value.message} ({caught.value.hint})"


def open_pairs(data: Data, tokenizer: sections.Tokenizer, **more: Any) -> TokenizedData:
    return opened(data, tokenizer, "pairs", **more)


def divide(pairs: list[Pair], share: float) -> DataSplit:
    return PAIRED.split(Examples.of(lambda: iter(pairs)), None, Split(share=share))


def keep_apart(train: list[Pair], val: list[Pair]) -> DataSplit:
    return PAIRED.split(Examples.of(lambda: iter(train)), Examples.of(lambda: iter(val)), Split(share=0.05))


def texts_of(store: Store, text: TokenizedData) -> list[tuple[str, str]]:
    decode = text.source_tokenizer.decode, text.tokenizer.decode
    assert store.source is not None
    return [(decode[0](store.source.document(n)), decode[1](store.document(n))) for n in range(store.n_documents)]


@pytest.mark.parametrize(
    "variant",
    [b"\xef\xbb\xbfone\ntwo two\n", b"one\r\ntwo two\r\n", b"one\ntwo two", b"one\ntwo two\n"],
    ids=["bom", "crlf", "no-end", "lf"],
)
def test_lines_of_two_files_belong_together_however_they_end(variant: bytes, tmp_path: Path) -> None:
    target = write(tmp_path / "b", " eins\nzwei\u2028zwei\n")
    assert read(Files(source=write(tmp_path / "a", variant), target=target)) == [
        ("one", " eins"),
        ("two two", "zwei\u2028zwei"),
    ]


@settings(deadline=None, max_examples=30)
@given(
    pairs=st.lists(
        st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\ufeff"))] * 2).filter(
            lambda p: p[0].strip() and p[1].strip()
        )
    )
)
def test_what_was_written_line_by_line_is_read(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert read(aligned(tmp_path_factory.mktemp("p"), pairs)) == pairs


def test_files_of_a_list_or_a_glob_are_partners_in_their_order(tmp_path: Path) -> None:
    for n in (1, 2):
        aligned(tmp_path, PAIRS[n * 10 : n * 10 + n], f"part{n}")
    listed = {side: tuple(str(tmp_path / f"part{n}.{side}") for n in (2, 1)) for side in ("en", "de")}
    assert read(Files(source=listed["en"], target=listed["de"])) == [*PAIRS[20:22], *PAIRS[10:11]]
    assert read(Files(source=f"{tmp_path}/*.en", target=f"{tmp_path}/*.de")) == [*PAIRS[10:11], *PAIRS[20:22]]
    message = refusal(Files(source=f"{tmp_path}/*.en", target=f"{tmp_path}/part1.de"))
    assert message.startswith("data.train: 2 source files, but 1 target files; there must be one target file for each")


def test_a_table_has_its_sides_in_columns_of_these_names_or_of_others(tmp_path: Path) -> None:
    assert read(table(tmp_path)) == PAIRS
    assert read(table(tmp_path, ("en", "de")), fields=FIELDS) == PAIRS
    message = refusal(table(tmp_path, ("en", "de")))
    assert "pairs.csv:1: no column 'source'; the columns are: id, en, de" in message
    assert "name the columns with 'data.fields={source: COLUMN, target: COLUMN}'" in message


def test_links_between_words_come_with_their_pair(tmp_path: Path) -> None:
    rows = [{"source": "a b", "target": "c d", "alignment": "0-1 1-0"}, {"source": "a", "target": "b"}]
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    found = pairs_in(file)
    assert found == [Pair("a b", "c d", f"{file}:1", "0-1 1-0"), Pair("a", "b", f"{file}:2", None)]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("a\nb\nc\nd\ne\n", "a\nb\nc\n", "{a}:4: no corresponding line: this file has 5 lines, {b} 3"),
        ("a\nb\n", "a\nb\nc", "{b}:3: no corresponding line: this file has 3 lines, {a} 2"),
        ("", "a\n", "{b}:1: no corresponding line: this file has 1 lines, {a} 0"),
        ("a\n\nc\n", "a\nb\nc\n", "{a}:2: the line is empty (remove the line from both files)"),
        ("a\nb\n", "a\n \t\n", "{b}:2: the line is empty"),
        ("a\nb\n\n", "a\nb\n\n", "{a}:3: the line is empty"),
        (b"a\nb\xff\n", "a\nb\n", "{a}:2: byte 3 is not UTF-8 (save the file as UTF-8, or use data.errors=replace"),
        ("a\nb\n", "a\0\nb\n", "{b}:1: byte 1 is NUL"),
    ],
)
def test_lines_that_are_no_pairs_are_refused_with_their_place(
    source: str | bytes, target: str, words: str, tmp_path: Path
) -> None:
    files = Files(source=write(tmp_path / "a", source), target=write(tmp_path / "b", target))
    assert words.format(a=files.source, b=files.target) in refusal(files)


@pytest.mark.parametrize("side", [0, 1])
def test_an_empty_cell_is_refused_with_its_row(side: int, tmp_path: Path) -> None:
    file = table(tmp_path, pairs=[("a", "b"), ("c", " ") if side else ("", "d")])
    assert f".csv:3: '{('source', 'target')[side]}' is empty (remove the row)" in refusal(file)


def lists(path: Path) -> str:
    """A few sources in sentences, and targets with 1 to 3 references, some of which are empty."""
    rows = [
        {"source": ["", f"sentence {n}.", " ", "and another"], "target": [f"first {n}", "", "other", " "][: 1 + n % 4]}
        for n in range(30)
    ]
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def test_sentences_of_a_source_are_joined_and_texts_of_a_target_are_references(tmp_path: Path) -> None:
    [first, second, third, *_] = pairs_in(lists(tmp_path / "a.jsonl"))
    assert (first.source, first.target, first.references) == ("sentence 0. and another", "first 0", ("first 0",))
    assert (second.references, third.references) == (("first 1",), ("first 2", "other"))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"source": ["", " "], "target": "b"}, "'source' is empty (remove the row)"),
        ({"source": [], "target": "b"}, "'source' is empty (remove the row)"),
        ({"source": "a", "target": [" ", ""]}, "'target' is empty (remove the row)"),
        ({"source": "a", "target": []}, "'target' is empty (remove the row)"),
        ({"source": ["a", 3], "target": "b"}, "'source' must be text, not int"),
        ({"source": "a", "target": [["b"]]}, "'target' must be text, not list"),
        ({"source": "a", "target": "b", "alignment": 3}, "'alignment' must be text, not int"),
    ],
)
def test_lists_that_are_no_texts_are_refused_with_their_line(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n' + json.dumps(row) + "\n")
    assert refusal(file).startswith(f"{file}:2: {words}")


def test_sentences_with_tags_are_no_pairs(tmp_path: Path) -> None:
    assert "is not a table (jsonl, csv, tsv, parquet)" in refusal(
        write(tmp_path / "a.conll", "a\tO\n"), fields={"source": "0", "target": "1"}
    )


def test_abstracts_and_their_summaries_are_pairs() -> None:
    if not SCITLDR.exists():
        pytest.skip(f"{SCITLDR} is not here")
    for side, n in (("train", 1992), ("dev", 619)):
        rows = [json.loads(line) for line in (SCITLDR / f"{side}.jsonl").read_text().splitlines()]
        found = pairs_in(str(SCITLDR / f"{side}.jsonl"))
        assert len(found) == n
        assert [list(pair.references) for pair in found] == [row["target"] for row in rows]
        assert [pair.source for pair in found] == [" ".join(filter(str.strip, row["source"])) for row in rows]


def test_a_table_and_a_file_of_lines_are_not_taken_for_each_other(tmp_path: Path) -> None:
    files = aligned(tmp_path)
    message = refusal(files.source)
    assert message.startswith(f"data.train: {files.source} is not a table (jsonl, csv, tsv, parquet)")
    assert "give two text files as {source: FILE, target: FILE}" in message
    file = table(tmp_path)
    message = refusal(Files(source=files.source, target=file))
    assert message.startswith(f"data.train.target: {file} is csv, not lines of text")
    assert "data.fields={source: COLUMN, target: COLUMN}" in message


def test_a_side_that_does_not_exist_is_told_by_its_key(tmp_path: Path) -> None:
    files = aligned(tmp_path)
    message = refusal(Files(source=files.source, target=str(tmp_path / "train.dd")))
    assert message.startswith(
        f"data.train.target: {tmp_path}/train.dd: no such file; did you mean {tmp_path}/train.de?"
    )
    with pytest.raises(Unavailable, match=r"data\.train\.source: hf:a/b"):
        read(Files(source="hf:a/b", target=files.target))


def test_bytes_of_two_files_that_are_not_utf_8_may_be_replaced_and_are_counted(tmp_path: Path) -> None:
    source = write(tmp_path / "a", b"".join(b"line %d \xff\xfe\n" % n for n in range(20)))
    data = Data(train=Files(source=source, target=write(tmp_path / "b", "b\n" * 20)), errors="replace")
    text, said = open_pairs(data, CHAR), list[str]()
    assert {source[-2:] for source, _ in texts_of(text.train, text)} == {"\ufffd\ufffd"}
    encoded(data, text.tokenizers, "pairs", say=said.append)
    for notes in (text.notes, said):
        assert "40 bytes are not UTF-8; they are replaced by U+FFFD" in notes


def test_stores_hold_every_pair_once_and_partners_have_one_number(tmp_path: Path) -> None:
    text = open_pairs(Data(train=aligned(tmp_path)), CHAR)
    train, val = texts_of(text.train, text), texts_of(text.val, text)
    assert sorted([*train, *val]) == sorted(PAIRS)
    assert [pair for pair in PAIRS if pair in train] == train
    assert text.tokenizer is text.source_tokenizer
    for store in (text.train.source, text.train, text.val.source, text.val):
        assert store is not None
        separator = text.tokenizer.vocabulary.separator
        assert np.flatnonzero(store.ids == separator).tolist() == [*store.starts.tolist(), len(store) - 1]
    assert text.train.raw_bytes == sum(len(target.encode()) for _, target in train)
    assert len(text.train) == sum(len(target) for _, target in train) + len(train) + 1


def test_each_side_may_have_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    pairs = [(f"ab {'b' * (n % 5)}", f"XY {'Z' * (n % 7)}") for n in range(60)]
    own = sections.Tokenizer(kind="char", source=sections.SingleTokenizer(kind="char"))
    text = open_pairs(Data(train=aligned(tmp_path, pairs)), own)
    shared = open_pairs(Data(train=aligned(tmp_path, pairs)), CHAR)
    letters = [
        set(tokenizer.decode(list(range(tokenizer.vocabulary.size))))
        for tokenizer in (text.source_tokenizer, text.tokenizer)
    ]
    assert (letters[0] & set("abXYZ"), letters[1] & set("abXYZ")) == (set("ab"), set("XYZ"))
    assert texts_of(text.train, text) == texts_of(shared.train, shared)
    assert text.hashes.keys() - shared.hashes.keys() == {"source_tokenizer"}
    assert text.train.source.vocabulary.size == text.source_tokenizer.vocabulary.size != text.train.vocabulary.size + 1


def test_a_sample_of_huge_pairs_shows_a_shared_tokenizer_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(f"aabb aabb {n}", f"XXYY XXYY {n}") for n in range(400)]
    monkeypatch.setattr(raw, "MAX_TRAINING_CHARACTERS", 6000)  # every second text is learnt from
    text = open_pairs(Data(train=aligned(tmp_path, pairs)), sections.Tokenizer(kind="bpe", vocab_size=300))
    assert len(text.tokenizer.encode(" aabb")) < 3
    assert len(text.tokenizer.encode(" XXYY")) < 3


@settings(deadline=None, max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.text("xyz", min_size=1)), min_size=2, max_size=60),
    share=st.floats(0.01, 0.9),
)
def test_no_source_stands_on_both_sides(pairs: list[tuple[str, str]], share: float) -> None:
    made = [Pair(source, target, f"f:{n}") for n, (source, target) in enumerate(pairs, 1)]
    if len({pair.source for pair in made}) < 2:
        with pytest.raises(DataFault, match="1 different sources; at least 2 are needed"):
            divide(made, share)
        return
    division = divide(made, share)
    sides = list(division.read())
    assert [pair for _, pair in sides] == made
    assert division.characters == sum(len(pair.source + pair.target) for pair in made)
    sources = {side: {pair.source for where, pair in sides if where == side} for side in ("train", "val")}
    assert sources["train"]
    assert sources["val"]
    assert not sources["train"] & sources["val"]


def test_of_given_pairs_only_exact_repeats_are_left_out_and_that_is_told() -> None:
    train = [Pair("a", "1", "f:1"), Pair("b", "2", "f:2"), Pair("ab", "c", "f:3")]
    val = [Pair("a", "1", "g:1"), Pair("a", "2", "g:2"), Pair("c", "2", "g:3"), Pair("a", "bc", "g:4")]
    division = keep_apart(train, val)
    assert list(division.read()) == [*(("train", pair) for pair in train), *(("val", pair) for pair in val[1:])]
    assert division.notes == ("1 of 4 pairs of data.val are also in data.train; they were removed from data.val",)
    assert keep_apart(train, val[1:]).notes == ()
    with pytest.raises(DataFault, match=r"data\.val: all of its 2 pairs are also in data\.train"):
        keep_apart(train, train[:2])
    with pytest.raises(DataFault, match="no examples"):
        keep_apart(train, [])
    with pytest.raises(DataFault, match="no examples"):
        divide([], 0.1)


def changed(text: TokenizedData, other: TokenizedData) -> set[str]:
    return {key for key in text.hashes if text.hashes[key] != other.hashes[key]}


def test_contents_decide_the_identity_and_paths_do_not(tmp_path: Path) -> None:
    (tmp_path / "else where").mkdir()
    here = open_pairs(Data(train=aligned(tmp_path)), CHAR)
    assert changed(here, open_pairs(Data(train=aligned(tmp_path / "else where", name="x")), CHAR)) == set()
    other = aligned(tmp_path, [*PAIRS[:-1], (PAIRS[-1][0], "alia")], "other")
    assert "data" in changed(here, open_pairs(Data(train=other), CHAR))
    swapped = Files(source=other.target, target=other.source)
    assert "data" in changed(open_pairs(Data(train=other), CHAR), open_pairs(Data(train=swapped), CHAR))
    assert changed(here, open_pairs(Data(train=aligned(tmp_path)), BYTE)) == {"data", "tokenizer"}
    assert "data" in changed(here, open_pairs(Data(train=aligned(tmp_path), split=Split(share=0.3)), CHAR))
    own = [sections.Tokenizer(kind="char", source=sections.SingleTokenizer(kind=kind)) for kind in ("char", "byte")]
    assert changed(*(open_pairs(Data(train=aligned(tmp_path)), one) for one in own)) == {"data", "source_tokenizer"}


def test_other_pairs_are_encoded_whole_by_given_tokenizers(tmp_path: Path) -> None:
    data = Data(train=aligned(tmp_path))
    text = open_pairs(data, sections.Tokenizer(kind="byte", source=sections.SingleTokenizer(kind="char")))
    store = encoded(Data(train=aligned(tmp_path, PAIRS[5:15], "more")), text.tokenizers, "pairs")
    assert texts_of(store, text) == PAIRS[5:15]
    again = open_pairs(data, CHAR, used=text.tokenizers)
    assert changed(text, again) == set()
    assert texts_of(again.val, again) == texts_of(text.val, text)


def test_a_store_that_was_cut_is_refused(tmp_path: Path) -> None:
    text = open_pairs(Data(train=aligned(tmp_path)), CHAR)
    text.train.check()
    path = text.train.source.path
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataFault, match="changed during training"):
        text.train.check()


def test_a_built_in_of_pairs_needs_no_file() -> None:
    data = Data(train="translate-toy")
    assert data.pairs
    [one] = PAIRED.find(data.train, "data.train")
    assert (one.name, one.format) == ("translate-toy", "jsonl")
    first = written(open_pairs(data, BYTE).train)[0]
    assert first.alignment is not None
