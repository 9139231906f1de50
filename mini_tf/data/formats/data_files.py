"""Find and check data files: built-in corpora, paths, globs, datasets of the hub and stdin.

`find_files` resolves `data.train` to files; `text_documents.read` turns those into documents. Binary files are detected
by their first bytes. Files are never unpacked or executed, and are sorted, so that every machine reads them in the same
order.
"""

import codecs
import glob
import hashlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mini_tf.data.formats import hub_datasets, text_lines
from mini_tf.data.formats.parquet import open_parquet
from mini_tf.recipe.corpora import built_in_corpora, find_corpus
from mini_tf.recipe.data import FORMATS
from mini_tf.system.cache import CHUNK, cache_folder, sha256_of
from mini_tf.system.errors import DataFault, suggest
from mini_tf.system.hub import PREFIX
from mini_tf.system.limits import VARIABLE, format_bytes, limits
from mini_tf.system.safe_files import free_name, names_beside, open_plain, removed_at_end, temporary_path

MAX_FILES = 100_000
"""Files of a folder or a glob."""

MAGIC = {
    b"\x1f\x8b": "gzip-compressed",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ\x00": "xz-compressed",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"\x04\x22\x4d\x18": "lz4-compressed",
    b"\x1f\x9d": "compressed",
    b"PK\x03\x04": "a zip archive (or a PyTorch model)",
    b"PK\x05\x06": "an empty zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a rar archive",
    b"%PDF": "a PDF",
    b"\x93NUMPY": "a numpy array",
    b"\x89HDF": "an HDF5 file",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff"), "an image"),
    b"\x7fELF": "an executable",
    b"SQLite format 3": "a database",
    b"PAR1": "a parquet file (its name must end in .parquet)",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "UTF-16; save it as UTF-8"),
    **{bytes([0x80, version]): "a Python pickle" for version in range(2, 6)},
}

DOCUMENTS = {
    ".pdf": ("a PDF", "extract its text first: pdftotext {name}"),
    **dict.fromkeys(
        (".docx", ".odt"), ("a word processor's document", "save it as plain text: pandoc {name} -t plain")
    ),
    ".doc": ("a word processor's document", "save it as plain text"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("a spreadsheet", "save it as csv")),
    **dict.fromkeys(
        (".html", ".htm"), ("HTML, whose tags would be read as text", "extract its text: pandoc {name} -t plain")
    ),
    ".epub": ("a book with markup", "extract its text first: pandoc {name} -t plain"),
    ".bin": ("binary, such as token ids or weights of another tool", "name the text itself"),
    **dict.fromkeys(
        (".safetensors", ".pt", ".pth", ".ckpt", ".gguf", ".onnx"),
        ("a model's weights", "model.init_from=FOLDER starts from the run or the Hugging Face folder that has them"),
    ),
}
"""Formats by suffix that hold text among other things, and how to get at the text."""


@dataclass(frozen=True)
class DataFile:
    """A data file. name: in messages; format: a value of FORMATS or txt; key: recipe key or option that named it."""

    path: Path
    format: str
    name: str
    key: str = "data.train"

    def digest(self, advance: Callable[[int], None] = lambda n_bytes: None) -> str:
        """Hash of the content and the format, independent of the path. advance: called with the bytes of each block."""
        return sha256_of(self.path, self.format, advance)

    @property
    def size(self) -> int:
        """Bytes of the file; of parquet those that its columns unpack to, as its metadata say."""
        if self.format != "parquet":
            return self.path.stat().st_size
        with open_parquet(self.path, self.name) as table:
            return sum(table.text_bytes(group, table.names) for group in range(len(table.groups)))


class MissingFile(DataFault):
    """The data file does not exist."""


def find_files(spec: object, key: str = "data.train") -> list[DataFile]:
    """The files of `data.train` or `data.val`: a built-in corpus, a path, a folder, a glob,
    hf:ORG/NAME, - or a list of these. Of a folder all files are read that are not hidden, at any depth.

    Raises DataFault, starting with `key`, if a file does not exist or is not text.
    """
    if corpus := find_corpus(spec):
        return [DataFile(corpus.corpus(cache_folder()), corpus.FORMAT, corpus.word, key)]
    if isinstance(spec, str | os.PathLike):
        return [replace(source, key=key) for source in _find_one(os.fspath(spec), key)]
    if isinstance(spec, Sequence) and spec:
        return [source for part in spec for source in find_files(part, key)]
    raise DataFault(f"{key}: must be a built-in corpus, a path, a glob, - or a list of these, not {spec!r}")


def _find_one(spec: str, key: str) -> list[DataFile]:
    if spec == "-":
        return [_stdin(key)]
    if spec.startswith(PREFIX):
        return [DataFile(hub_datasets.spooled(spec, key), "jsonl", spec)]
    if url := re.search(r"https?:/.*", spec):
        address = re.sub(":/+", "://", url[0], count=1)
        fault = f"{key}: {address}: minitf does not download files"
        raise DataFault(fault, hint=f"download it first: curl -LO {address}")
    if not spec or "\0" in spec:
        raise DataFault(f"{key}: {spec!r} is not a file name")
    path = Path(os.path.expanduser(spec))
    is_folder = os.path.isdir(path)
    if is_folder or (any(sign in spec for sign in "*?[") and not os.path.lexists(path)):
        matches = [*itertools.islice(_matches(path / "**" if is_folder else path), MAX_FILES + 1)]
        if len(matches) > MAX_FILES:
            raise DataFault(f"{key}: {spec} has more than {MAX_FILES:,} files", hint="name a folder further below")
        files = sorted(name for name in matches if not os.path.isdir(name))
        if not files:
            fault = f"the folder {spec} has no files" if is_folder else f"no file matches {spec}"
            raise MissingFile(f"{key}: {fault}", where=(spec,))
        return [_file(Path(name), key) for name in files]
    return [_file(path, key)]


def _matches(pattern: Path) -> Iterator[str]:
    """Paths that match a glob, below the part of it that is an existing folder, whose name may have brackets.

    ** does not follow links: a link to its own folder would give endless paths.
    """
    folder = next(parent for parent in pattern.parents if os.path.isdir(parent))
    relative = pattern.relative_to(folder)
    if "**" not in relative.parts:
        yield from (str(folder / name) for name in glob.glob(str(relative), root_dir=folder))
        return
    if relative.name == "**":  # before Python 3.13, a final ** matches only folders
        relative /= "*"
    for path in folder.glob(str(relative)):
        if not any(part.startswith(".") and part not in pattern.parts for part in path.parts):
            yield str(path)


def _file(path: Path, key: str) -> DataFile:
    try:
        with open_plain(path) as file:
            head = file.read(512)
    except FileNotFoundError:
        raise MissingFile(f"{key}: {path}: no such file" + _near(path), where=(str(path),)) from None
    except (OSError, ValueError) as error:
        elsewhere = "- reads from stdin" if os.path.exists(path) and not os.path.isfile(path) else None
        fault = f"{key}: {path}: {getattr(error, 'strerror', None) or error}"
        raise DataFault(fault, hint=elsewhere, where=(str(path),)) from None
    format = FORMATS.get(path.suffix.lower(), "txt")
    type_ = next((type_ for magic, type_ in MAGIC.items() if head.startswith(magic)), None)
    if head[257:262] == b"ustar":
        type_ = "a tar archive"
    hint = "use a plain text file; archives and binary files are not opened"
    if type_ is not None and type_.endswith("compressed"):
        hint = "unpack it, or convert it to parquet, which is compressed inside"
    type_, hint = DOCUMENTS.get(path.suffix.lower(), (type_, hint))
    if type_ and not (format == "parquet" and head.startswith(b"PAR1")):
        raise DataFault(f"{key}: {path} is {type_}", hint=hint.format(name=path.name), where=(str(path),))
    if format == "parquet":
        with open_parquet(path, str(path)):  # checks its size
            pass
    else:
        text_lines.check_first(path, str(path))
    if path.suffix.lower() == ".json" and head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"{"):
        name = free_name(path.with_suffix(".jsonl")).name
        command = f"jq -c '.[]' {path.name} > {name}"
        hint = f"jsonl is read, a row in each line: {command}; if it has lines of JSON, name it {name}"
        raise DataFault(f"{key}: {path} is JSON, which would be read as plain text", hint=hint, where=(str(path),))
    return DataFile(path, format, str(path))


def _near(path: Path) -> str:
    """A suggestion from the built-in corpora and the files in the same folder."""
    if os.path.islink(path):
        return f" (a broken link to {os.readlink(path)})"
    corpora = built_in_corpora()
    names = [*corpora, *names_beside(path)]
    hint = suggest(path.name, names, shown=lambda name: name if name in corpora else str(path.parent / name))
    return f"; {hint}" if hint else ""


def _stdin(key: str) -> DataFile:
    """stdin, saved in the cache under its hash, since data is read more than once. DataFault if it is too long."""
    if sys.stdin is None or sys.stdin.isatty():
        fault = f"{key}: - reads text from stdin, but stdin is a terminal"
        raise DataFault(fault, hint="pipe text into the command, or give a file")
    folder = cache_folder() / "stdin"
    folder.mkdir(exist_ok=True)
    spool = temporary_path(folder / "spool")
    sha, longest = hashlib.sha256(), limits().stdin_bytes
    with removed_at_end(spool):
        with spool.open("wb") as file:
            while block := sys.stdin.buffer.read(CHUNK):
                sha.update(block)
                file.write(block)
                if file.tell() > longest:
                    hint = f"write the text to a file, or raise the limit stdin_bytes ({VARIABLE})"
                    raise DataFault(f"{key}: the text from stdin is longer than {format_bytes(longest)}", hint=hint)
        path = folder / f"{sha.hexdigest()}.txt"
        os.replace(spool, path)
    return DataFile(_file(path, key).path, "txt", "stdin")
