"""Read parquet files in bounded time and memory: a few kilobytes may unpack to terabytes.

Before rows are read, the file's size is compared with that of its columns (most of a file may be a hole), and for each
row group what it unpacks to is added up from the headers of its pages, since the metadata may say anything. While rows
are read their texts are added up: a dictionary of one long text may stand for a million rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from mini_tf.data.formats.columns import Cell
from mini_tf.system.errors import DataFault, Unavailable
from mini_tf.system.limits import format_bytes, limits
from mini_tf.system.safe_files import open_plain

ROWS, BATCH_BYTES = 256, 64 << 20
"""Rows in memory at once, fewer if that many copies of the largest dictionary have more bytes."""
VALUE_BYTES = 64
"""Bytes that a value counts at least: it is an object in Python."""
LEAST_BYTES = 1 << 30
"""A file may unpack to this much, whatever its size."""
HOLE, FOOTER_BYTES = 64 << 20, 256 << 20
"""Bytes of a file beyond twice those of its columns and its metadata, and bytes of the metadata, at most."""
HEADER_BYTES = 1 << 10, 1 << 20
"""Bytes that are read for the header of a page, and again if it is longer."""
DICTIONARY = 2
"""Type of a page."""
HEADER = {1: int, 2: int, 3: int, 5: dict, 8: dict}
"""Types of the fields that are used of the header of a page."""


class ParquetTable:
    """An open file. names: of its columns. n_rows: of each row group."""

    def __init__(self, file: Any, pages: BinaryIO, size: int, name: str) -> None:
        self._file, self._pages, self._name = file, pages, name
        self._most = max(LEAST_BYTES, limits().parquet_ratio * size)
        self._read = 0
        self.names: list[str] = file.schema_arrow.names
        self.groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        self.n_rows: list[int] = [group.num_rows for group in self.groups]

    def text_bytes(self, group: int, columns: Sequence[str]) -> int:
        """Bytes that columns, with all parts of nested ones, unpack to in a row group, as the metadata say."""
        return sum(int(chunk.total_uncompressed_size) for chunk in self._chunks(group, columns))

    def check(self, columns: Sequence[str]) -> None:
        """DataFault if by the metadata the columns unpack to too much."""
        chunks = [chunk for group in range(len(self.groups)) for chunk in self._chunks(group, columns)]
        sizes = (max(int(chunk.total_uncompressed_size), VALUE_BYTES * int(chunk.num_values)) for chunk in chunks)
        self._check(sum(sizes))

    def rows(
        self, group: int, columns: Sequence[str], low: int = 0, high: int | None = None
    ) -> Iterator[tuple[int, Sequence[Cell]]]:
        """Rows [low, high) of a row group with their numbers, each with a cell for each column."""
        high = self.n_rows[group] if high is None else high
        number = 0
        for batch in self._file.iter_batches(self._batch_rows(group, columns), row_groups=[group], columns=[*columns]):
            part = batch.slice(max(0, low - number), max(0, high - max(low, number)))
            cells = zip(*(part.column(name).to_pylist() for name in columns), strict=True)
            for n, row in enumerate(cells, max(low, number)):
                self._read += sum(size_of(cell, VALUE_BYTES) for cell in row)
                self._check(self._read)
                yield n, row
            number += batch.num_rows
            if number >= high:
                break

    def _chunks(self, group: int, columns: Sequence[str]) -> list[Any]:
        chunks = (self.groups[group].column(n) for n in range(self.groups[group].num_columns))
        return [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]

    def _batch_rows(self, group: int, columns: Sequence[str]) -> int:
        """Rows to be in memory at once. DataFault if by its pages the row group unpacks to too much."""
        unpacked = dictionary = 0
        for chunk in self._chunks(group, columns):
            size = n_values = 0
            for header in self._headers(chunk):
                size += header[2]
                n_values += header[5].get(1, 0) if 5 in header else header[8].get(1, 0) if 8 in header else 0
                dictionary = max(dictionary, header[2] if header[1] == DICTIONARY else 0)
            unpacked += max(size, VALUE_BYTES * n_values)
        self._check(self._read + unpacked)
        return max(1, min(ROWS, BATCH_BYTES // max(1, dictionary)))

    def _headers(self, chunk: Any) -> Iterator[dict[int, Any]]:
        """The headers of the pages of a column chunk: fields by number.

        1 is the type, 2 and 3 are the sizes, 5 and 8 the structs of pages of data, whose 1 is the number of values.
        """
        starts = (chunk.data_page_offset, chunk.dictionary_page_offset)
        at = min(start for start in starts if start)
        end = at + chunk.total_compressed_size
        while at < end:
            header, length = self._header(at)
            if min(header[2], header[3]) < 0:
                raise _unreadable(self._name, f"the page at byte {at} has no size")
            yield header
            at += length + header[3]

    def _header(self, at: int) -> tuple[dict[int, Any], int]:
        for n_bytes in HEADER_BYTES:
            self._pages.seek(at)
            try:
                header, length = _struct(self._pages.read(n_bytes), 0)
                fits = all(isinstance(header.get(n, wanted()), wanted) for n, wanted in HEADER.items())
                if fits and header.keys() >= {1, 2, 3}:
                    return header, length
            except (IndexError, ValueError, RecursionError):
                continue
        raise _unreadable(self._name, f"there is no page at byte {at}")

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self._most:
            hint = "write it with fewer rows, or raise the limit with MINITF_LIMITS=parquet_ratio=100K if this is right"
            message = f"its columns unpack to more than {self._most / 1e6:,.0f} MB, far more than the file has"
            raise DataFault.located(self._name, message, hint=hint)


def size_of(value: Any, least: int = 0) -> int:
    """Total characters of a cell, nested lists included, each value at least `least`."""
    if isinstance(value, list | dict):
        return least + sum(size_of(item, least) for item in (value.values() if isinstance(value, dict) else value))
    return max(least, len(value)) if isinstance(value, str) else least


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The fields of a Thrift struct (compact protocol): integers and structs by number; where it ends.

    IndexError if it goes on behind the data, ValueError if it has fields that headers of pages do not have.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at, number = at + 1, number + (head >> 4)
        match head & 15:
            case 1 | 2:  # a bool
                pass
            case 3:
                at += 1
            case 4 | 5 | 6:
                value, at = _varint(data, at)
                fields[number] = (value >> 1) ^ -(value & 1)
            case 7:
                at += 8
            case 8:
                length, at = _varint(data, at)
                at += length
            case 12:
                fields[number], at = _struct(data, at)
            case _:
                raise ValueError(head)
    return fields, at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and where it ends."""
    value = shift = 0
    while data[at] & 128 and shift < 63:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | (data[at] & 127) << shift, at + 1


@contextmanager
def open_parquet(path: Path, name: str) -> Iterator[ParquetTable]:
    """An open file; errors of pyarrow become a DataFault. Unavailable without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Unavailable(f"{name}: reading parquet needs pyarrow", hint="pip install 'minitf[parquet]'") from None
    try:
        with open_plain(path) as pages:
            size = _check_footer(pages, name)
            with pyarrow.parquet.ParquetFile(path) as file:
                table = ParquetTable(file, pages, size, name)
                _check_size(size, file.metadata, name)
                yield table
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(name, str(error).splitlines()[0]) from None
    except UnicodeDecodeError as error:
        message = f"it has text that is not UTF-8: {error.object[max(0, error.start - 20) :][:40]!r}"
        raise _unreadable(name, message) from None


def _check_footer(file: BinaryIO, name: str) -> int:
    """The size of a file. DataFault if its last bytes claim metadata that are too large to be read."""
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    if (n_bytes := int.from_bytes(file.read(4), "little")) > FOOTER_BYTES:
        raise _unreadable(name, f"its metadata have {n_bytes:,} bytes; at most {format_bytes(FOOTER_BYTES)} are read")
    return size


def _check_size(size: int, metadata: Any, name: str) -> None:
    """DataFault if most of a file belongs to no column: it may be a hole of any size, which takes hours to read."""
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    known = metadata.serialized_size + sum(
        group.column(n).total_compressed_size for group in groups for n in range(group.num_columns)
    )
    if size > 2 * known + HOLE:
        raise _unreadable(name, f"it has {size:,} bytes, and its columns have {known:,}")


def _unreadable(name: str, why: str) -> DataFault:
    return DataFault.located(name, f"not a readable parquet file: {why}")
