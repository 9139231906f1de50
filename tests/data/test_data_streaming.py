"""Streamed data: rows from files that are read in parts, without an encoded copy."""

import itertools
import json
import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from commands import QUIET, TINY, minitf, refused, trained
from data_of import opened
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_tf.data import streamed_text, windows
from mini_tf.data.datasets import TokenizedData
from mini_tf.data.formats import text_documents, text_lines
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.text_documents import Document, open_shard, read, read_range
from mini_tf.data.packing import BlockLayout, Shape
from mini_tf.data.streamed_text import HeldOut, Shards, StreamedText
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.windows import StreamedRows
from mini_tf.jobs import pretrain
from mini_tf.recipe import sections
from mini_tf.recipe.sections import Data, Train
from mini_tf.run.folder import Run
from mini_tf.system.errors import DataFault
from mini_tf.system.seeds import seed_of
from mini_tf.training.divergence import StepData
from mini_tf.training.feed import Feed
from mini_tf.training.plan import BlockPlan, make_plan, splitmix64

BYTE = sections.Tokenizer(kind="byte")
BYTES = Tokenizer.train(BYTE, ["a"])
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Small samples and blocks, and a cache of its own, in an empty folder."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(streamed_text, "PART", 1 << 10)
    monkeypatch.setattr(streamed_text, "TRAIN_BYTES", 1 << 14)
    monkeypatch.setattr(streamed_text, "VAL_BYTES", 1 << 13)
    monkeypatch.setattr(windows, "MIN_BYTES", 1 << 10)
    monkeypatch.setattr(windows, "MAX_OPEN", 8)
    monkeypatch.setattr(text_documents, "CUT", 1 << 12)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def documents(n: int, seed: int = 0, longest: int = 300) -> list[str]:
    """Different documents of one line."""
    dice = random.Random(seed)
    return [f"{seed} {number} " + "".join(dice.choices(LETTERS, k=dice.randint(1, longest))) for number in range(n)]


def write(name: str, texts: list[str]) -> str:
    """A file of its suffix."""
    if name.endswith(".txt"):
        Path(name).write_text("\n\n".join(texts) + "\n")
    elif name.endswith(".jsonl"):
        Path(name).write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
    else:
        table = pyarrow.table({"id": range(len(texts)), "text": texts})
        pyarrow.parquet.write_table(table, name, row_group_size=40)
    return name


def parts(n: int, places: set[int]) -> Iterator[tuple[int, int]]:
    cuts = sorted({0, n, *(place % (n + 1) for place in places)})
    return itertools.pairwise(cuts)


def in_parts(path: str, places: set[int]) -> list[Document]:
    shard = open_shard(find_files(path)[0], Columns())
    return [one for part in parts(shard.length, places) for one in read_range(shard, *part, "strict")]


# Files in parts


def test_the_largest_row_group_as_the_metadata_say(tmp_path: Path) -> None:
    texts, path = ["ab" * 30, "c" * 7, "é" * 50] * 20, str(tmp_path / "some")
    table = write(f"{path}.parquet", texts)
    metadata = pyarrow.parquet.read_metadata(table)
    sizes = [metadata.row_group(n).column(1).total_uncompressed_size for n in range(2)]
    assert open_shard(find_files(table)[0], Columns()).largest_group == max(sizes)
    for format in ("txt", "jsonl"):  # a part of them may begin anywhere
        assert open_shard(find_files(write(f"{path}.{format}", texts))[0], Columns()).largest_group == 0


@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(["ab\n", "\n", " \n", "<|endoftext|>\n", "é\n", "x" * 40 + "\n", "c\r\n"]), max_size=60
    ),
    places=st.sets(st.integers(0, 400), max_size=8),
)
def test_adjoining_parts_of_a_text_have_every_document_once(
    pieces: list[str], places: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.txt"
    path.write_bytes("".join(pieces).encode())
    found = in_parts(str(path), places)
    assert [one.text for one in found] == [one.text for one in read(find_files(str(path)), Columns())]
    assert all(one.opens for one in found)


@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(["abcdef\n", "gh\n", "\n", "x" * 70 + "\n"]), min_size=1, max_size=60),
    places=st.sets(st.integers(0, 600), max_size=8),
)
def test_a_long_document_is_cut_at_the_same_lines_by_any_part(
    pieces: list[str], places: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    path.write_bytes("".join(pieces).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_documents, "CUT", 32)
        found, whole = in_parts(str(path), places), in_parts(str(path), set())
    assert [(one.text, one.opens) for one in found] == [(one.text, one.opens) for one in whole]
    assert all(len(one.text) <= 2 * 32 + 70 for one in whole)
    joined = ["".join(group) for group in _opened(whole)]
    assert joined == [one.text for one in read(find_files(str(path)), Columns())], "the parts are the document"


def test_a_document_of_less_than_32_kib_is_not_cut_and_a_line_is_found_from_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "whole.txt"
    path.write_text("a line\n" * 4000)
    assert [len(one.text) for one in in_parts(str(path), {9000, 20000})] == [27_999]  # without its last end of line
    with path.open("rb") as file:
        assert [text_lines._line_start(file, offset) for offset in (1, 6, 8, 15, 27_994)] == [0, 0, 7, 14, 27_993]


def _opened(found: list[Document]) -> list[list[str]]:
    groups: list[list[str]] = []
    for one in found:
        groups = [*groups, [one.text]] if one.opens else [*groups[:-1], [*groups[-1], one.text]]
    return groups


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_adjoining_parts_of_a_table_have_every_row_once(name: str, small: Path) -> None:
    texts = documents(150)
    length = open_shard(find_files(write(name, texts))[0], Columns()).length
    for places in ({3, 9, 10, 11}, {*range(0, length, 317)}, {length // 3}, set[int]()):
        assert [one.text for one in in_parts(name, places)] == texts


def test_a_wrong_row_is_named_by_its_byte(small: Path) -> None:
    Path("a.jsonl").write_text('{"text": "one"}\n{"text": 5}\n')
    with pytest.raises(DataFault, match=r"a\.jsonl: byte 16"):
        in_parts("a.jsonl", {10})


# The plan


@settings(deadline=None, max_examples=25)
@given(n_blocks=st.integers(1, 40), n_rows=st.integers(1, 30), n_open=st.integers(1, 12), batch=st.integers(1, 40))
def test_an_epoch_of_blocks_has_every_row_once_except_those_of_a_part_of_a_step(
    n_blocks: int, n_rows: int, n_open: int, batch: int
) -> None:
    plan = BlockPlan(BlockLayout(n_blocks, n_rows, n_open), batch, 5)
    steps = [plan.rows(step) for step in range(int(plan.epoch_steps))]
    counts = Counter(row for step in steps for row in step.rows.tolist())
    assert sum(counts.values()) == len(steps) * batch
    assert set(counts) <= set(range(n_blocks * n_rows))
    if n_blocks * n_rows >= batch:
        assert max(counts.values()) == 1
        assert n_blocks * n_rows - len(counts) < batch * -(-n_open // batch)
    of_round = np.concatenate([step.rows for step in steps[: -(-n_open // batch)]]) // n_rows
    assert len(set(of_round.tolist())) >= min(n_open, n_blocks) / 2 - 1, (
        "a round reads from most of the blocks in memory"
    )
    assert {int(epoch) for step in steps for epoch in step.epochs} == {0}
    assert {int(epoch) for epoch in plan.rows(len(steps)).epochs} == {1}


def test_rows_of_a_step_are_from_many_blocks_of_which_each_is_read_once_and_by_one_process() -> None:
    plan = BlockPlan(BlockLayout(100, 20, 8), 32, 0)
    reads, seen = [list[int]() for _ in range(4)], set[int]()
    for step in range(int(plan.epoch_steps)):
        blocks = plan.rows(step).rows // 20
        assert len(set(blocks.tolist())) >= 8
        for process in range(4):  # each takes a contiguous quarter of the rows
            own = {*blocks[8 * process : 8 * process + 8].tolist()}
            assert len(own) <= 4, "two blocks, and two that follow them"
            reads[process] += own - seen
            seen |= own
    borders = 8 + 1
    assert sum(map(len, reads)) == 100
    shared = [block for block in seen if sum(block in own for own in reads) > 1]
    assert len(shared) <= borders
    order = [plan.rows(0).rows.tolist(), plan.rows(int(plan.epoch_steps)).rows.tolist()]
    assert order[0] != order[1], "another epoch, another order"
    assert make_plan(Train(steps=1, batch_size=32), SimpleNamespace(layout=plan.layout, n_rows=1, lengths=None)) == plan


def test_another_epoch_reads_the_blocks_and_the_rows_of_each_in_another_order() -> None:
    plan = BlockPlan(BlockLayout(30, 8, 1), 4, 7)
    epochs = []
    for epoch in range(3):
        steps = [plan.rows(step) for step in range(epoch * 60, epoch * 60 + 60)]
        assert {number for step in steps for number in step.epochs.tolist()} == {epoch}
        rows = np.concatenate([step.rows for step in steps])
        epochs.append({block: (rows[rows // 8 == block] % 8).tolist() for block in dict.fromkeys((rows // 8).tolist())})
    other = BlockPlan(BlockLayout(30, 8, 1), 4, 8).rows(0).rows
    for before, after in itertools.combinations(epochs, 2):
        at = {block: place for place, block in enumerate(before)}
        assert sum(at[block] == place for place, block in enumerate(after)) < 5, (
            "by chance one block has the same place"
        )
        assert sum(before[block] == after[block] for block in before) < 3
    for blocks in epochs:  # a block begins with any of its rows, not all with the same
        assert len({order[0] for order in blocks.values()}) > 4
    assert other.tolist() != plan.rows(0).rows.tolist()


def test_the_keys_of_rows_in_blocks_are_those_of_the_step_and_the_seed() -> None:
    plan = BlockPlan(BlockLayout(6, 5, 2), 4, 7)
    keys = [plan.rows(step).keys for step in range(20)]
    assert len(np.unique(np.concatenate(keys))) == 80
    assert all(np.array_equal(splitmix64(seed_of(7, "rows", step), np.arange(4)), keys[step]) for step in range(20))


# Rows


def streamed(
    *names: str, context: int = 16, pack: Any = "concat", held_out: Sequence[str] = (), seed: int = 0
) -> StreamedRows:
    """Rows of files in bytes; the estimate is what the files have."""
    shards = Shards.open(find_files([*names]), Columns())
    whole = StreamedText(shards, BYTES, HeldOut(np.zeros(0, np.uint64)), 1, 1).read(0, shards.length)
    hashes = np.array([streamed_text.hash_text(text) for text in held_out], np.uint64)
    text = StreamedText(shards, BYTES, HeldOut(hashes), shards.length, len(whole.ids))
    store: Any = SimpleNamespace(streamed=text, vocabulary=BYTES.vocabulary)
    return StreamedRows(store, Shape(context, 1, pack, seed))


def take(packing: StreamedRows, numbers: np.ndarray, epoch: int = 0) -> np.ndarray:
    return packing.take(numbers, epoch, numbers.astype(np.uint64)).ids


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_the_rows_of_a_block_are_windows_on_its_documents_at_even_distances(name: str, small: Path) -> None:
    """By a second way: all documents, cut into blocks by where they begin, in Python's own lists."""
    texts = documents(400)
    packing = streamed(write(name, texts))
    layout, length = packing.layout, packing._text.shards.length
    assert layout.n_blocks > 20
    at = 0
    for block in range(layout.n_blocks):
        first, last = (length * number // layout.n_blocks for number in (block, block + 1))
        ids = list[int]()
        for one in packing._text.shards.read(first, last):
            assert one.text == texts[at]
            ids += [BYTES.vocabulary.separator, *BYTES.encode(one.text).tolist()]  # type: ignore[list-item]
            at += 1
        if len(ids) < 17:
            continue
        found = take(packing, block * layout.rows + np.arange(layout.rows), epoch=3).tolist()
        starts = [n for n in range(len(ids)) if all((ids * 3)[n + i] == found[0][i] for i in range(17))]
        assert any(
            all(
                row == (ids * 3)[place : place + 17]
                for row, place in zip(found, _even(start, len(ids), layout.rows), strict=True)
            )
            for start in starts
        )
    assert at == len(texts)


def _even(start: int, n: int, rows: int) -> list[int]:
    return [(start + row * n // rows) % n for row in range(rows)]


def test_any_part_of_the_rows_of_a_step_is_read_alone_and_epochs_differ(small: Path) -> None:
    packing = streamed(write("a.txt", documents(300)), write("b.jsonl", documents(300, 1)))
    plan = make_plan(Train(steps=1, batch_size=24), packing)
    numbers = plan.rows(7).rows
    whole = take(packing, numbers)
    other = streamed("a.txt", "b.jsonl")
    for first in range(0, 24, 8):
        assert (take(other, numbers[first : first + 8]) == whole[first : first + 8]).all()
    assert (take(packing, numbers, epoch=1) != whole).any()
    assert (take(streamed("a.txt", "b.jsonl", seed=1), numbers) != whole).any()


def test_processes_that_share_a_step_read_different_blocks_and_the_same_rows_as_one(small: Path) -> None:
    write("a.txt", documents(600))

    def feed(first: int, last: int) -> tuple[StreamedRows, list[np.ndarray]]:
        packing = streamed("a.txt")
        plan = make_plan(Train(steps=1, batch_size=16), packing)
        ids: Any = Feed(plan, packing, lambda given: given.ids, 2, lambda n: range(n)[first:last])  # type: ignore[arg-type, return-value]
        return packing, [micro for step in range(3) for micro in ids.micro_batches(step)]

    (_, whole), (one, left), (other, right) = feed(0, 8), feed(0, 4), feed(4, 8)
    assert len(left) == len(right) == 12
    of_both = [micro for step in range(3) for half in (left, right) for micro in half[4 * step : 4 * step + 4]]
    assert all((mine == theirs).all() for mine, theirs in zip(of_both, whole, strict=True))
    assert one._open.keys().isdisjoint(other._open.keys())


def test_documents_within_a_row_are_numbered_at_their_separators(small: Path) -> None:
    packing = streamed(write("a.txt", documents(300, longest=9)), context=64, pack="docs")
    found = packing.take(np.arange(packing.n_rows), 0, np.zeros(packing.n_rows, np.uint64))
    assert found.segments is not None
    opens = (found.ids == BYTES.vocabulary.separator)[:, 1:]
    assert opens.sum() > packing.n_rows
    assert (np.diff(found.segments) == opens).all()
    assert (found.segments[:, 0] == 1).all()


def test_a_document_longer_than_a_block_and_a_corpus_shorter_than_a_row_fill_rows(small: Path) -> None:
    Path("long.txt").write_text("\n".join(documents(600)))
    packing = streamed("long.txt", context=64)
    found = take(packing, np.arange(packing.n_rows))
    everything = "|".join(map(BYTES.decode, found))
    assert sum(f"\n0 {n} " in everything for n in range(600)) > 300, "1 - 1/e of it, as if the rows began anywhere"
    assert len({*map(tuple, found.tolist())}) > 0.95 * packing.n_rows
    assert take(streamed(write("b.txt", ["ab"]), context=8), np.arange(1)).shape == (1, 9)


def test_held_out_documents_are_in_no_row_wherever_they_are_repeated(small: Path) -> None:
    texts = documents(300)
    write("a.txt", [*texts, *texts[:50]])
    packing = streamed("a.txt", held_out=texts[:50])
    everything = BYTES.decode(np.concatenate([packing._block(block).ids for block in range(packing.layout.n_blocks)]))
    assert all((text in everything) == (n >= 50) for n, text in enumerate(texts))


# From the recipe to the run


def data(*names: str, **more: Any) -> TokenizedData:
    return opened(Data(train=names, streaming=True, **more), BYTE)


def test_the_samples_are_bounded_disjoint_and_estimate_the_corpus(small: Path) -> None:
    texts = documents(1600)
    found = data(write("a.txt", texts[:800]), write("b.parquet", texts[800:]), write("empty.jsonl", []))
    size = sum(len(text) + 1 for text in texts)
    assert len(found.train) < 1.3 * streamed_text.TRAIN_BYTES
    assert 0.5 * streamed_text.VAL_BYTES < len(found.val) < 1.3 * streamed_text.VAL_BYTES
    assert found.train.n_tokens == pytest.approx(size, rel=0.1)
    val = {BYTES.decode(found.val.document(n)) for n in range(found.val.n_documents)}
    assert val <= set(texts)
    assert not val & {BYTES.decode(found.train.document(n)) for n in range(found.train.n_documents)}
    numbers = sorted(texts.index(text) for text in val)
    assert np.diff(numbers).max() < 400, "they are from everywhere"
    assert any("1 of 3 files are empty: " in note for note in found.notes)


def test_the_hash_is_that_of_names_sizes_and_parts_and_needs_no_cache(small: Path) -> None:
    write("a.txt", documents(900))
    before = data("a.txt").hashes
    assert data("a.txt").hashes == before
    content = Path("a.txt").read_bytes()
    Path("a.txt").rename("b.txt")
    assert data("b.txt").hashes != before
    Path("a.txt").write_bytes(b"Z" + content[1:])
    assert data("a.txt").hashes != before
    Path("a.txt").write_bytes(content + b"more\n")
    assert data("a.txt").hashes != before
    Path("a.txt").write_bytes(content)
    assert data("a.txt").hashes == before


def test_a_corpus_many_times_larger_than_what_is_stored_trains(small: Path) -> None:
    """20 times: the cache has only the samples, and memory only the blocks that a step reads from."""
    for number in range(3):
        write(f"shard-{number}.txt", documents(1000, number, 1500))
    size = sum(path.stat().st_size for path in small.iterdir())
    run = trained(small / "run", "data.train=shard-*.txt", "data.streaming=true", "train.steps=12", "log.every_steps=1")
    cache = Path(os.environ["MINITF_CACHE"])
    assert size > 20 * sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["epoch"] == pytest.approx(12 * 8 * 48 / size, rel=0.15)
    packing = streamed(*sorted(path.name for path in small.glob("*.txt")), context=48)
    plan = make_plan(Train(steps=1, batch_size=8), packing)
    tracemalloc.start()
    try:
        for step in range(0, int(plan.epoch_steps), 61):
            take(packing, plan.rows(step).rows)
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()
    assert len(packing._open) <= packing.layout.n_open + windows.SPARE


def test_a_run_that_dies_between_two_saves_ends_with_the_same_bytes(small: Path) -> None:
    write("a.txt", documents(600))
    given = (
        "data.train=a.txt",
        "data.streaming=true",
        "model.dropout_rate=0.1",
        "checkpoint.every_steps=10",
        "train.steps=22",
    )

    def die() -> None:
        record = Run.record

        def record_and_die(self: Run, report: dict[str, Any], seconds: float | None = None) -> None:
            record(self, report, seconds)
            if report["step"] >= 15:
                os._exit(9)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "record", record_and_die)
            trained(small / "cut", *given)

    if (pid := os.fork()) == 0:
        try:
            die()
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert [path.name for path in (small / "cut" / "checkpoints").glob("step-*")] == ["step-00000010"]
    cut, whole = trained(small / "cut", *given), trained(small / "whole", *given)
    for name in ("model.safetensors", "metrics.jsonl", "checkpoints/step-00000022/optimizer.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("change", ["removed", "shortened"])
def test_a_file_that_changes_during_training_ends_it_with_its_name(
    change: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a.txt", documents(600))
    report = pretrain.report_start

    def change_it(*given: Any) -> None:
        report(*given)
        os.unlink("a.txt") if change == "removed" else os.truncate("a.txt", 1000)

    monkeypatch.setattr(pretrain, "report_start", change_it)
    done = minitf("pretrain", TINY, *QUIET, "data.train=a.txt", "data.streaming=true", "train.steps=100", "-d", "run")
    assert done.exit_code == 4
    assert "a.txt: the file" in done.stderr
    assert "at the start of training" in done.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["data.train=a.csv"], "a.csv: csv cannot be read in parts"),
        (["data.train=a.txt.gz"], "is gzip-compressed; unpack it, or convert it to parquet"),
        (["data.train=empty.txt"], "data.train: no text"),
        (["data.train=a.txt", "train.stream=true"], "train.stream=true: needs the rows of a corpus in order"),
        (
            ["data.train=a.txt", "train.batch_tokens=500"],
            "train.batch_tokens=500: streamed rows have train.context tokens each",
        ),
        (["data.train=a.txt", "data.pack=none"], "data.pack=none: none needs the lengths of all documents"),
        (["data.train=a.txt", "data.split=tail 5%"], "tail 5% needs all documents"),
        (["data.train=a.txt", "data.split={folds: 3, fold: 1}"], "fold 1 of 3 needs all documents"),
        (["data.train=a.txt", "data.max_train_samples=5"], "data.max_train_samples=5: needs all documents"),
        (["data.train=-"], "stdin cannot be read in parts"),
        (["model={kind: decoder}", "objective=instruct", "data.train=a.jsonl"], "rows of instruct are whole examples"),
    ],
)
def test_what_cannot_be_streamed_is_refused(given: list[str], words: str, small: Path) -> None:
    write("a.txt", documents(50))
    Path("a.csv").write_text("text\na\n")
    Path("a.txt.gz").write_bytes(b"\x1f\x8b\x08")
    Path("empty.txt").touch()
    done = minitf("pretrain", TINY, *QUIET, "data.streaming=true", *given, "-d", "run")
    refused(
        done,
        words,
        exit_code=3 if "cannot be read in parts; save" in done.stderr or "command line" in done.stderr else 4,
    )


@pytest.mark.parametrize(
    "recipe",
    [
        (
            "model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}",
            "objective={kind: masked, scheme: whole_word}",
            "data.pack=docs",
        ),
        (
            "model={kind: encoder_decoder, d_model: 16, n_layers: 1, n_heads: 2}",
            "objective={kind: denoising, noise: [permute_sentences, infill]}",
        ),
    ],
    ids=["masked", "denoising"],
)
def test_every_objective_on_text_can_stream(recipe: tuple[str, ...], small: Path) -> None:
    write("a.txt", documents(300))
    trained(small / "run", *recipe, "data.train=a.txt", "data.streaming=true", "train.steps=2")


def test_commands_say_what_is_a_sample(small: Path) -> None:
    write("a.jsonl", documents(900))
    given = (TINY, "data.train=a.jsonl", "data.streaming=true")
    stats = minitf("data", "stats", *given)
    assert "train is a sample of 1 file of" in stats.stdout
    checked = minitf("data", "check", *given, "--json")
    result = json.loads(checked.stdout)["result"]
    assert result["train"]["examples"] + result["val"]["examples"] == 900
    assert (
        result["val"]["examples"]
        == json.loads(minitf("data", "stats", *given, "--json").stdout)["result"]["val"]["documents"]
    )
    assert "row " in minitf("data", "show", *given).stdout


def test_rows_of_a_step_that_diverges_are_named_by_file_and_place(small: Path) -> None:
    packing = streamed(write("a.txt", documents(300)))
    plan = make_plan(Train(steps=1, batch_size=2), packing)
    said = str(StepData.of(Feed(plan, packing, lambda given: given, 1), 0, None))  # type: ignore[arg-type, return-value]
    assert said.count("a.txt at ") == 2
