"""The token store: layout, split, cache. Nothing stands on both sides, nothing stale or damaged is ever used."""

import io
import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from data_of import both, dataset_of, encoded, objective_for, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data import tokenized
from mini_tf.data.corpora import python_docs
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.formats import text_documents as formats
from mini_tf.data.formats.text_documents import Document
from mini_tf.data.split import MIN_EXAMPLES, DataSplit, Examples, SplitName
from mini_tf.data.store import Store
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenized import reopen
from mini_tf.recipe import sections
from mini_tf.recipe.data import Data, Split
from mini_tf.recipe.kinds import listing
from mini_tf.system.errors import DataFault

SMALL = Path(__file__)
SHAKESPEARE = Path(__file__).parents[2] / "../shared/data/tinyshakespeare/input.txt"
BYTE = sections.Tokenizer(kind="byte")
TEXT = objective_for("text")
CHAR = sections.Tokenizer(kind="char")
TAIL = Split(share=0.1, tail=True)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(*documents: str, name: str = "a.txt") -> str:
        (tmp_path / name).write_text("\n\n".join(documents))
        return str(tmp_path / name)

    return write


def many(n: int = 200) -> list[str]:
    return [f"document number {i}\nof {n} – it is number {i}" for i in range(n)]


def documents_of(store: Store, text: TokenizedData) -> list[str]:
    return [text.tokenizer.decode(store.document(n)) for n in range(store.n_documents)]


def test_documents_stand_between_separators(write: Callable[..., str]) -> None:
    text = opened(Data(train=write(*many())), BYTE)
    for store in (text.train, text.val):
        separator = text.tokenizer.vocabulary.separator
        assert np.flatnonzero(store.ids == separator).tolist() == [*store.starts.tolist(), len(store) - 1]
        assert (
            store.raw_bytes
            == sum(len(d.encode()) for d in documents_of(store, text))
            == len(store) - store.n_documents - 1
        )
    assert sorted(documents_of(text.train, text) + documents_of(text.val, text)) == sorted(many())


def test_a_tail_split_is_nanogpts(tmp_path: Path) -> None:
    if not SHAKESPEARE.exists():
        pytest.skip("shared/data is not here")
    whole = SHAKESPEARE.read_text()
    cut = int(len(whole) * 0.9)
    text = opened(Data(train=str(SHAKESPEARE), split=TAIL), CHAR)
    assert (len(text.train), len(text.val)) == (1_003_854, 111_540)
    assert text.tokenizer.decode(text.train.ids) == whole[:cut]
    assert text.tokenizer.decode(text.val.ids) == whole[cut:]
    assert not text.val.separated
    assert text.val.raw_bytes == 111_540


def divide(read: Callable[[], Iterator[Document]], share: float, tail: bool = False) -> DataSplit:
    return dataset_of("text").split(Examples.of(read), None, Split(share=share, tail=tail))


IN_PARTS = st.lists(
    st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=3), min_size=1, max_size=MIN_EXAMPLES - 1
)
"""Documents, each of which comes in one part or several."""


def documents_in(parts: list[list[str]]) -> list[Document]:
    return [Document(text, "x", opens=n == 0) for document in parts for n, text in enumerate(document)]


def joined(division: DataSplit, side: SplitName) -> list[str]:
    """The documents of one side, their parts put together; the first part of a side has to open a document."""
    found: list[str] = []
    for own, document in division.read():
        if own == side:
            found += [""] * document.opens
            found[-1] += document.text
    return found


def cut_at(documents: list[str], cut: int) -> tuple[list[str], list[str]]:
    """The documents of the first `cut` characters, and those of the rest; the one at the border is on both sides, each
    with its part.
    """
    begins = [sum(map(len, documents[:n])) for n in range(len(documents))]
    train = [text[: cut - begin] for begin, text in zip(begins, documents, strict=True) if begin < cut]
    return train, [
        text[max(0, cut - begin) :] for begin, text in zip(begins, documents, strict=True) if begin + len(text) > cut
    ]


@settings(deadline=None, max_examples=50)
@given(parts=IN_PARTS, share=st.sampled_from([0.05, 0.3, 0.5, 0.9]))
def test_of_few_documents_each_different_one_counts_once_and_their_last_characters_are_held_out(
    parts: list[list[str]], share: float
) -> None:
    """A repeated one could otherwise stand on both sides. A document in parts is known by the first, and left out with
    all of them.
    """
    different: dict[str, str] = {}
    for document in parts:
        different.setdefault(document[0], "".join(document))
    once = list(different.values())
    division = divide(lambda: iter(documents_in(parts)), share)
    assert (joined(division, "train"), joined(division, "val")) == cut_at(once, int(sum(map(len, once)) * (1 - share)))
    n_repeats = len(parts) - len(once)
    assert division.notes[1:] == ((f"{n_repeats} repeated documents were removed",) if n_repeats else ())


def test_many_copies_of_one_document_are_one_document() -> None:
    division = divide(lambda: (Document("abcd", "x") for _ in range(2 * MIN_EXAMPLES)), 0.25)
    assert list(division.read()) == [("train", Document("abc", "x", uncut="abcd")), ("val", Document("d", "x"))]


@settings(deadline=None, max_examples=50)
@given(parts=IN_PARTS, share=st.sampled_from([0.05, 0.3, 0.5, 0.9]))
def test_a_tail_split_cuts_at_one_character_wherever_parts_and_documents_end(
    parts: list[list[str]], share: float
) -> None:
    whole = ["".join(document) for document in parts]
    division = divide(lambda: iter(documents_in(parts)), share, tail=True)
    assert (joined(division, "train"), joined(division, "val")) == cut_at(
        whole, int(sum(map(len, whole)) * (1 - share))
    )


@settings(deadline=None, max_examples=50)
@given(train=IN_PARTS, val=IN_PARTS)
def test_all_parts_of_what_stands_in_train_are_left_out_of_val(train: list[list[str]], val: list[list[str]]) -> None:
    known = {document[0] for document in train}
    kept = ["".join(document) for document in val if document[0] not in known]
    if not kept:
        with pytest.raises(DataFault, match=r"are also in data\.train"):
            dataset_of("text").split(
                Examples.of(lambda: iter(documents_in(train))),
                Examples.of(lambda: iter(documents_in(val))),
                Split(share=0.05),
            )
        return
    division = dataset_of("text").split(
        Examples.of(lambda: iter(documents_in(train))), Examples.of(lambda: iter(documents_in(val))), Split(share=0.05)
    )
    assert (joined(division, "train"), joined(division, "val")) == (["".join(document) for document in train], kept)


def test_few_documents_are_split_at_the_tail(write: Callable[..., str]) -> None:
    text = opened(Data(train=write("a" * 60, "b" * 40), split=Split(share=0.05)), BYTE)
    assert documents_of(text.train, text) == ["a" * 60, "b" * 35]
    assert documents_of(text.val, text) == ["b" * 5]
    assert text.notes == ["fewer than 10 different documents: the last 5% of the characters are the validation data"]


def test_the_tokenizer_learns_from_the_training_side_only_and_names_what_it_does_not_know(
    write: Callable[..., str],
) -> None:
    text = opened(Data(train=write("abc abc abc"), val=write("abc ☃☃ é", name="v.txt")), CHAR)
    assert text.tokenizer.vocabulary.size == 4 + 4
    assert text.notes == [
        "3 characters are not in the vocabulary and become the unknown token: '☃' 2 times, 'é' 1 times"
    ]


def test_three_words_are_enough(write: Callable[..., str]) -> None:
    text = opened(Data(train=write("only three words")), BYTE)
    assert documents_of(text.train, text) == ["only three word"]
    assert documents_of(text.val, text) == ["s"]


def test_parts_and_batches_leave_no_trace(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    documents = ["\n".join(f"  line {i} of {n}" if i % 3 else f"Line {i}" for i in range(40 + n)) for n in range(30)]
    data = Data(train=write(*documents))
    whole = opened(data, sections.Tokenizer(vocab_size=300))
    monkeypatch.setattr(formats, "PART_SIZE", 64)
    monkeypatch.setattr(tokenized, "BATCH", 200)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "other"))
    whole.tokenizer.save(tmp_path / "tokenizer.json")
    parts = opened(data, sections.Tokenizer(path=str(tmp_path)))
    ids = [
        sorted(store.document(n).tolist() for store in (text.train, text.val) for n in range(store.n_documents))
        for text in (whole, parts)
    ]
    assert ids[0] == ids[1]


def test_the_cache_is_found_again_by_content_alone(write: Callable[..., str], tmp_path: Path) -> None:
    said: list[str] = []
    first = opened(Data(train=write(*many())), BYTE, say=said.append)
    moved = write(*many(), name="moved.txt")
    again = opened(Data(train=moved), BYTE, say=said.append)
    assert again.train.path == first.train.path
    assert again.hashes == first.hashes
    assert "not in the cache" in said[0]
    assert "same data and settings" in said[2]
    for other in (Data(train=write(*many(), "more")), Data(train=moved, split=Split(share=0.2))):
        assert opened(other, BYTE).train.path != first.train.path
    assert opened(Data(train=moved), CHAR).train.path != first.train.path


def test_a_process_that_dies_while_encoding_leaves_nothing_behind(
    write: Callable[..., str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data(train=write(*many()))

    def die() -> None:
        monkeypatch.setattr(Tokenizer, "encode_batch", lambda *_: __import__("os")._exit(9))
        opened(data, BYTE)

    child = multiprocessing.get_context("fork").Process(target=die)
    child.start()
    child.join()
    [draft] = (cache / "tokens").iterdir()
    assert draft.name.endswith(".tmp")
    text = opened(data, BYTE)
    assert list((cache / "tokens").iterdir()) == [text.train.path.parent]


def test_a_trained_runs_own_tokenizer_finds_its_text_again_and_is_never_trained_anew(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings = Data(train=write(*many())), sections.Tokenizer(vocab_size=300)
    first = opened(data, settings)
    first.tokenizer.save(tmp_path / "tokenizer.json")
    own = Tokenizer.load(tmp_path / "tokenizer.json")
    monkeypatch.setattr(Tokenizer, "train", None)
    again = reopen(data, both(own), TEXT, first.hashes)
    assert (again.train.path, again.hashes) == (first.train.path, first.hashes)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "emptied"))
    anew = reopen(data, both(own), TEXT, first.hashes)
    assert anew.hashes == first.hashes
    assert np.array_equal(anew.val.ids, first.val.ids)
    assert (
        reopen(Data(train=write(*many(), "changed")), both(own), TEXT, first.hashes).hashes["data"]
        != first.hashes["data"]
    )


@pytest.mark.parametrize("train", ["-", ["-", "python-docs"]])
def test_a_text_from_stdin_is_found_by_its_hash_while_the_cache_has_it(
    train: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n\n".join(many()).encode())))
    monkeypatch.setattr(python_docs.Settings, "FORMAT", "txt")
    monkeypatch.setattr(python_docs.Settings, "corpus", lambda corpus, folder: SMALL)
    data = Data(train=train)
    text = opened(data, BYTE)
    monkeypatch.setattr("sys.stdin", None)
    again = reopen(data, text.tokenizers, TEXT, text.hashes)
    assert (again.val.path, again.hashes, again.notes) == (text.val.path, text.hashes, text.notes)
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "emptied"))
    with pytest.raises(DataFault, match="read its data from stdin, and it is no longer in the cache") as refused:
        reopen(data, text.tokenizers, TEXT, text.hashes)
    assert "--data FILE" in str(refused.value.hint)


def test_another_text_is_encoded_whole_and_as_the_run_was(write: Callable[..., str]) -> None:
    used = opened(Data(train=write(*many())), BYTE).tokenizers
    other = write("one", "two", name="o.txt")
    assert encoded(Data(train=other), used).n_documents == 2
    raw = encoded(Data(train=other, split=TAIL), used)
    assert used.target.decode(raw.ids) == "one\n\ntwo"
    assert not raw.separated
    with pytest.raises(DataFault, match="--data: no text"):
        encoded(Data(train=write("", name="e.txt")), used)


def test_more_than_65536_ids_need_wider_files(write: Callable[..., str], tmp_path: Path) -> None:
    characters = (
        "".join(map(chr, range(0x4E00, 0x9FFF)))
        + "".join(map(chr, range(0x20000, 0x2A6D0)))
        + "".join(map(chr, range(0xAC00, 0xD7A3)))
    )
    text = opened(Data(train=write(characters)), CHAR)
    assert text.train.ids.dtype == np.uint32
    assert text.tokenizer.decode(text.train.document(0)) == characters[: int(len(characters) * 0.95)]


def test_what_changes_no_id_and_no_label_is_the_same_data_and_one_other_word_is_not(
    write: Callable[..., str], tmp_path: Path
) -> None:
    def table(name: str, last: str = "last", **more: str) -> str:
        rows = [{"text": text, "label": "ab"[n % 2], **more} for n, text in enumerate([*many(30), last])]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    def data_hash(train: str, dataset: str = "text", **given: object) -> str:
        return opened(Data(train=train, **given), BYTE, dataset).hashes["data"]  # type: ignore[arg-type]

    plain, val = table("a.jsonl"), write("held out", name="val.txt")
    same = [table("b.jsonl"), table("c.jsonl", remark="not read")]
    assert {data_hash(name) for name in (plain, *same)} == {data_hash(plain, fields={"text": "text"})}
    assert data_hash(plain, "classes") == data_hash(same[1], "classes") != data_hash(plain)
    assert data_hash(plain, val=val) == data_hash(plain, val=val, split=Split(share=0.3)) != data_hash(plain)
    assert len({data_hash(plain), data_hash(table("d.jsonl", "lost")), data_hash(plain, split=Split(share=0.3))}) == 3


# The keys of the cache


def outcome(data: Data, tokenizer: sections.Tokenizer) -> object:
    """What opening the data gives: the tokenizer, and the ids of both splits; or its refusal."""
    try:
        text = opened(data, tokenizer)
    except DataFault as fault:
        return fault.message
    return text.tokenizer.hash, text.train.ids.tobytes(), text.val.ids.tobytes()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., object]:
    """`outcome` with an empty cache."""

    def alone(data: Data, tokenizer: sections.Tokenizer) -> object:
        with monkeypatch.context() as patch:
            patch.setenv("MINITF_CACHE", str(tmp_path / f"alone{len(list(tmp_path.glob('alone*')))}"))
            return outcome(data, tokenizer)

    return alone


def test_no_tokenizer_gets_the_cached_one_of_other_settings(
    write: Callable[..., str], tmp_path: Path, alone: Callable[..., object]
) -> None:
    text = [f"The Cat number {n} of many Cats saw {n * n} Dogs and THE Bear of {7**n}" for n in range(40)]
    settings = [
        {"kind": kind, **more}
        for kind in listing("data.tokenizers")
        for more in ({}, {"vocab_size": 270}, {"lowercase": True})
    ]
    Tokenizer.train(sections.Tokenizer(vocab_size=300), text).save(tmp_path / "tokenizer.json")
    names = [{}, {"separator": "<pad>"}, {"begin": "<pad>"}, {"separator": "<unk>", "begin": "<pad>"}]
    names += [{"extend": 4}, {"pad": "<unk>"}, {"forced_bos": 2}, {"ends": (2, 5)}]
    settings += [{"path": str(tmp_path / "tokenizer.json"), **roles} for roles in names]
    assert {name for one in settings for name in one} == sections.SingleTokenizer.model_fields.keys()
    data = Data(train=write(*text))
    found = [outcome(data, sections.Tokenizer(**one)) for one in settings]
    assert found == [alone(data, sections.Tokenizer(**one)) for one in settings]
    n = len(names)
    trained, loaded = dict(zip(map(str, settings[:-n]), found, strict=False)), found[-n:]
    for kind in listing("data.tokenizers"):
        plain = trained[str({"kind": kind})]
        assert trained[str({"kind": kind, "lowercase": True})] != plain
        assert (trained[str({"kind": kind, "vocab_size": 270})] != plain) == (kind not in ("char", "byte"))
    assert len({*loaded, trained[str({"kind": "bpe"})]}) == n - 1
    assert loaded[-2] == loaded[-1] == loaded[0]  # how texts that are generated begin and end changes no id


SETTINGS_OF_DATA = {
    "train": ("a.csv", "b.csv"),
    "val": (None, "b.csv"),
    "split": (Split(), Split(share=0.4), TAIL, Split(folds=3, fold=1), Split(folds=3, fold=2)),
    "max_train_samples": (None, 5, 6),
    "fields": ({}, {"text": "0"}, {"text": "1"}),
    "field_numbers": ({"text": 0}, {"text": 1}),
    "header": ("auto", False),
    "errors": ("strict", "replace"),
    "streaming": (False, True),
}
"""Values of each setting that decides which ids there are, by name; `errors` is tried on a file that is not UTF-8."""


@pytest.mark.parametrize("name", SETTINGS_OF_DATA)
def test_no_data_get_the_cached_ids_of_other_settings(name: str, tmp_path: Path, alone: Callable[..., object]) -> None:
    assert {"pack", "home"} | SETTINGS_OF_DATA.keys() == Data.model_fields.keys()  # these two change no id
    rows = [f"word{n % 9} and{n},other{n} text" for n in range(30)]
    (tmp_path / "a.csv").write_text("\n".join(["text,more", *rows]))
    (tmp_path / "b.csv").write_text("\n".join(["text,more", *rows[::-1], "new one,here"]))
    (tmp_path / "no header.csv").write_text("\n".join(rows))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (tmp_path / "bad.csv").write_bytes("\n".join(["text,more", *rows]).encode() + b"\n\xffx,y")
    file = {
        "field_numbers": "no header.csv",
        "fields": "no header.csv",
        "streaming": "a.jsonl",
        "errors": "bad.csv",
    }.get(name, "a.csv")
    found = []
    for value in SETTINGS_OF_DATA[name]:
        given = {"train": file, "fields": {} if name == "field_numbers" else {"text": "text"}} | {name: value}
        paths = {key: str(tmp_path / given[key]) for key in ("train", "val") if given.get(key)}
        data = Data(**{**given, **paths})
        found.append(outcome(data, CHAR))
        assert found[-1] == alone(data, CHAR)
    assert len(set(found)) == len(found)
