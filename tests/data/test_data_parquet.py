"""Parquet files that unpack to far more than they have, or are mostly holes, end in a line before they are read."""

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import minitf, refused

from mini_tf.data.formats import parquet
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.data.formats.tables import rows_of
from mini_tf.system.errors import DataFault

MIB = 1 << 20


def repeated(value: Any, times: int) -> pa.Array:
    """One value in a dictionary, and its number many times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([value]))


def written(folder: Path, column: Any, **more: Any) -> Path:
    pq.write_table(pa.table({"text": column}), folder / "a.parquet", compression="zstd", **more)
    return folder / "a.parquet"


def texts(file: Path) -> list[Any]:
    return [row.cells[0] for source in find_files(str(file)) for row in rows_of(source, Columns())]


BOMBS = {
    "a long text in a dictionary": (lambda: repeated("word " * 20_000, 100), 12),
    "many empty texts": (lambda: repeated("", 40_000), 0),
    "many missing texts": (lambda: pa.nulls(40_000, pa.string()), 0),
    "a long text of one character": (lambda: pa.array(["a" * 5 * MIB]), 0),
    "a long list": (lambda: pa.ListArray.from_arrays(pa.array([0, 40_000], pa.int32()), repeated("a", 40_000)), 0),
}
"""A column that amounts to more than 2 MiB, and how many of its rows are read before that is certain, at most."""


@pytest.mark.parametrize(
    ("name", "honest"),
    [*((name, True) for name in BOMBS), ("a long text of one character", False), ("a long list", False)],
)
def test_a_file_that_unpacks_to_far_more_than_it_has_is_refused(
    name: str, honest: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its metadata say. Before that, no more rows are read than amount to the limit."""
    monkeypatch.setattr(parquet, "LEAST_BYTES", MIB)
    made, n_most = BOMBS[name]
    file = written(tmp_path, made(), use_dictionary="dictionary" in name or "empty" in name or "list" in name)
    assert file.stat().st_size * 256 < 2 * MIB
    if not honest:
        misstate(file, 1)
    [source] = find_files(str(file))
    n_read = itertools.count()
    with pytest.raises(
        DataFault, match=r"a\.parquet: its columns unpack to more than \d+ MB, far more than the file has"
    ) as refusal:
        list(zip(rows_of(source, Columns()), n_read, strict=False))
    assert next(n_read) <= n_most
    assert "MINITF_LIMITS=parquet_ratio=" in str(refusal.value.hint)
    monkeypatch.setenv("MINITF_LIMITS", "parquet_ratio=100M line_bytes=64M")
    assert len(texts(file)) == len(made())


def varint(number: int) -> bytes:
    """A number as Thrift writes a signed one: seven bits a byte, the lowest ones first."""
    number *= 2
    found = []
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def misstate(file: Path, size: int) -> None:
    """Write another unpacked size of the first column, and of a list another number of values, into the metadata."""
    content = file.read_bytes()
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    footer, chunk = content[start:], pq.ParquetFile(file).metadata.row_group(0).column(0)
    for number in (
        chunk.total_uncompressed_size,
        *([chunk.num_values] if chunk.num_values > 1000 and "list" in chunk.path_in_schema else []),
    ):
        before = varint(number)
        padded = bytes([2 * size | 128, *[128] * (len(before) - 2), 0])
        assert before in footer
        footer = footer.replace(before, padded)
    file.write_bytes(content[:start] + footer)
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size == size


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("statistics", [True, False])
def test_the_headers_of_pages_tell_what_they_unpack_to(
    version: str, compression: str, statistics: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of a column without gaps has its length in four bytes before it."""
    long = ["a" * 1000 + f"{n:04}" for n in range(100)]
    table = pa.table({"text": long}, pa.schema([pa.field("text", pa.string(), nullable=False)]))
    file = tmp_path / "a.parquet"
    more = {
        "compression": compression,
        "data_page_version": version,
        "use_dictionary": False,
        "write_statistics": statistics,
    }
    pq.write_table(table, file, **more, data_page_size=5000, write_batch_size=1)
    misstate(file, 1)
    monkeypatch.setenv("MINITF_LIMITS", "parquet_ratio=1")
    size = sum(4 + len(text) for text in long)
    for least, fits in ((size, True), (size - 1, False)):
        monkeypatch.setattr(parquet, "LEAST_BYTES", least)
        if fits:
            assert texts(file) == long
            continue
        with pytest.raises(DataFault, match="far more than the file has"):
            texts(file)


def test_copies_of_a_long_text_are_not_all_in_memory(tmp_path: Path) -> None:
    file = written(tmp_path, repeated("word " * 400_000, 200), store_schema=False)  # 2 MB, 400 MB in all
    [source] = find_files(str(file))
    before, most, characters = pa.total_allocated_bytes(), 0, 0
    for row in rows_of(source, Columns()):
        most, characters = max(most, pa.total_allocated_bytes() - before), characters + len(str(row.cells[0]))
    assert characters == 400_000_000
    assert 2 * MIB < most < 200 * MIB


def test_a_file_that_is_mostly_a_hole_is_refused_without_reading_it(tmp_path: Path) -> None:
    file = written(tmp_path, pa.array([f"a text {n}" for n in range(100)]))
    content = file.read_bytes()
    n_footer = struct.unpack("<I", content[-8:-4])[0]
    with file.open("wb") as sparse:
        sparse.write(content[: -8 - n_footer])
        sparse.seek(1 << 40)
        sparse.write(content[-8 - n_footer :])
    done = minitf("data", "check", "quickstart", f"data.train={file}")
    refused(done, f"{file}: not a readable parquet file: it has 1,099,511,6", "bytes, and its columns have ")
    with file.open("wb") as sparse:
        sparse.write(b"PAR1")
        sparse.seek(1 << 33)
        sparse.write(struct.pack("<I", (1 << 31) - 1) + b"PAR1")
    refused(
        minitf("data", "stats", "quickstart", f"data.train={file}"),
        "its metadata have 2,147,483,647 bytes; at most 256 MiB are read",
    )


def test_a_hole_in_a_column_is_no_page(tmp_path: Path) -> None:
    file = written(tmp_path, pa.array([f"text {n * n}" for n in range(10_000)]), use_dictionary=False)
    content = bytearray(file.read_bytes())
    content[4:200] = bytes(196)
    file.write_bytes(content)
    with pytest.raises(DataFault, match="not a readable parquet file: there is no page at byte 4"):
        texts(file)


def test_text_and_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    offsets, content = np.array([0, 5, 7], np.int32), b"hello\xff\xfe"
    file = written(tmp_path, pa.Array.from_buffers(pa.utf8(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(content)]))
    done = minitf("data", "check", "quickstart", f"data.train={file}")
    refused(done, f"{file}: not a readable parquet file: it has text that is not UTF-8: b'\\xff\\xfe'")
    file = written(tmp_path, pa.array(["a text"]), store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"text", b"t\xff\xfet"))
    with pytest.raises(DataFault, match="it has text that is not UTF-8"):
        find_files(str(file))


@pytest.mark.parametrize("first", [4, 12, 1024])
def test_a_header_longer_than_its_first_bytes_is_read_again(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pages whose statistics are long texts."""
    monkeypatch.setattr(parquet, "HEADER_BYTES", (first, MIB))
    file = written(tmp_path, pa.array([f"text {n}" for n in range(500)]), data_page_size=1000)
    assert texts(file) == [f"text {n}" for n in range(500)]
    monkeypatch.setattr(parquet, "HEADER_BYTES", (4, 5))
    with pytest.raises(DataFault, match="there is no page at byte 4"):
        texts(file)


@pytest.mark.parametrize("dictionary", [True, False])
def test_row_groups_and_nested_columns_are_read_whole(dictionary: bool, tmp_path: Path) -> None:
    rows = [
        {"text": f"text {n % 7}", "words": [f"w{n}"] * (n % 4), "chat": [{"role": "a", "content": str(n)}]}
        for n in range(1000)
    ]
    file = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=300, use_dictionary=dictionary, data_page_size=500)
    [source] = find_files(str(file))
    found = [row.cells for row in rows_of(source, Columns(("text", "words", "chat")))]
    assert found == [[row["text"], row["words"], row["chat"]] for row in rows]
    assert [row.where for row in rows_of(source, Columns())][::999] == [f"{file}: row 1", f"{file}: row 1000"]
