"""Every fault of data that a stranger's file, a full disk or a killed process can bring: refused or survived, by row
(D1 to D18).
"""

import errno
import fcntl
import gzip
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import QUIET, TINY, Done, content, minitf, refused, trained
from data_of import opened
from hang import ending
from hostile import STEERING

from mini_tf.cost import steps
from mini_tf.data.formats import text_documents as formats
from mini_tf.data.formats.columns import Columns
from mini_tf.data.formats.data_files import find_files
from mini_tf.recipe import sections
from mini_tf.recipe.sections import Data
from mini_tf.system import cache, safe_files
from mini_tf.system.errors import DataFault
from mini_tf.system.progress import progress_display

BYTE = sections.Tokenizer(kind="byte")
WORDS = "\n\n".join(f"tale number {n}: once there was a cat" for n in range(40))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, a cache of its own, and an end for what would wait for ever."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with ending():
        yield tmp_path / "here"


def learn(*arguments: str, stdin: str = "") -> Done:
    return minitf("pretrain", TINY, *QUIET, *arguments, "-d", "out", stdin=stdin)


def write(name: str, what: str | bytes) -> str:
    Path(name).write_bytes(what if isinstance(what, bytes) else what.encode())
    return name


def sparse(name: str, size: int = 1 << 30) -> str:
    with open(name, "wb") as file:
        file.truncate(size)
    return name


def pipe(name: str) -> str:
    os.mkfifo(name)
    return name


def link(name: str, to: str) -> str:
    os.symlink(to, name)
    return name


def jsonl(line: str) -> Callable[[], str]:
    return lambda: write("a.jsonl", '{"text": "fine"}\n' + line + "\n")


def archive(kind: str) -> str:
    if kind == "zip":
        with zipfile.ZipFile("corpus.txt", "w") as packed:
            packed.writestr("../../evil.txt", "x")
    else:
        with tarfile.open("corpus.txt", "w") as tar:
            tar.addfile(tarfile.TarInfo("../../evil.txt"), io.BytesIO())
    return "corpus.txt"


class Sentinel:
    """Unpickling one would make a file."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def numpy_array() -> str:
    with open("corpus.txt", "wb") as file:
        np.save(file, np.array([1, "a", None], dtype=object), allow_pickle=True)
    return "corpus.txt"


REFUSED: dict[str, tuple[Any, ...]] = {
    "D1-no-file": (lambda: "nowhere.txt", "nowhere.txt: no such file"),
    "D1-empty": (lambda: write("a.txt", ""), "data.train: no text"),
    "D1-blank-lines": (lambda: write("a.txt", "\n \n\t\n\n"), "data.train: no text"),
    "D1-only-a-byte-order-mark": (lambda: write("a.txt", b"\xef\xbb\xbf"), "no text"),
    "D1-one-character": (lambda: write("a.txt", "a"), "data.train: no text", "tokens; at least 2 are needed"),
    "D1-two-letters": (
        lambda: write("a.txt", "ab") and "a.txt tokenizer.kind=char",
        "loses 50% of the characters; use more text: the 2 characters do not suffice",
    ),
    "D1-no-rows": (lambda: write("a.jsonl", "\n"), "data.train: no text in", "a.jsonl; name a file with text"),
    "D1-empty-table": (lambda: write("a.csv", ""), "data.train: no text in", "a.csv (an empty file)"),
    "D1-header-only": (lambda: write("a.tsv", "text\tn\n"), "data.train: no text in", "a.tsv (nothing but a header)"),
    "D2-not-utf8": (lambda: write("a.txt", b"ab\ncd\xff\n"), "a.txt:2: byte 5 is not UTF-8", "data.errors=replace"),
    "D2-behind-a-line-of-windows": (lambda: write("a.txt", b"ab\r\ncd\xff\r\n"), "a.txt:2: byte 6 is not UTF-8"),
    "D2-in-a-line-of-windows": (lambda: write("a.txt", b"cd\xff\r\n"), "a.txt:1: byte 2 is not UTF-8"),
    "D2-half-a-character": (lambda: write("a.txt", b"ab \xe2\x82"), "a.txt:1: byte 3 is not UTF-8"),
    "D2-nul": (lambda: write("a.txt", b"ab\0"), "byte 2 is NUL"),
    "D2-utf-16": (lambda: write("a.txt", "text".encode("utf-16")), "is UTF-16; save it as UTF-8"),
    "D4-not-json": (jsonl("{'text': 1}"), "a.jsonl:2: not valid JSON"),
    "D4-not-an-object": (jsonl("[1]"), "a.jsonl:2: must be an object"),
    "D4-empty-object": (jsonl("{}"), "a.jsonl:2: no column 'text'; the columns are: none"),
    "D4-no-such-field": (
        jsonl('{"a": "x", "b": "y"}'),
        "no column 'text'; the columns are: a, b",
        "data.fields={text: COLUMN}",
    ),
    "D4-a-name-of-a-million": (
        jsonl(json.dumps({"a" * 1_000_000: "x", "b" * 1_000_000: 2})),
        "no column 'text'; the columns are: aaaa",
    ),
    "D4-not-a-string": (jsonl('{"text": {"a": 1}}'), "'text' must be text, not dict"),
    "D4-nan": (jsonl('{"text": "x", "n": NaN}'), "NaN is not a finite number"),
    "D4-minus-infinity": (jsonl('{"text": "x", "n": -Infinity}'), "-Infinity is not a finite number"),
    "D4-1e999": (jsonl('{"text": "x", "n": 1e999}'), "1e999 is not a finite number"),
    "D4-same-key-twice": (jsonl('{"text": "x", "text": "y"}'), "duplicate key 'text'"),
    "D4-a-key-twice-among-many": (
        jsonl("{" + ", ".join(f'"k{n}": 0' for n in range(100_000)) + ', "k99999": 0}'),
        "duplicate key 'k99999'",
    ),
    "D4-100000-brackets": (jsonl('{"text": ' + "[" * 100_000), "a.jsonl:2: not valid JSON: nested too deeply"),
    "D4-5000-digits": (jsonl('{"text": "x", "n": ' + "1" * 5000 + "}"), "a number has 5,000 digits"),
    "D4-a-million-decimals": (jsonl('{"text": "x", "n": 0.' + "1" * 1_000_000 + "}"), "a number has 1,000,002 digits"),
    "D4-csv-row-too-wide": (lambda: write("a.csv", "id,text\n1,a,b\n"), "a.csv:2: 3 columns, but the first line has 2"),
    "D4-csv-of-semicolons": (
        lambda: write("a.csv", "id;text\n1;a\n"),
        "a.csv:1: a single column, 'id;text'; cells must be separated by commas (csv) or tabs (tsv), not semicolons",
    ),
    "D4-csv-open-quote": (lambda: write("a.csv", 'id,text\n1,"open\n'), "a.csv:2: a quote is never closed"),
    "D5-lone-surrogate": (jsonl(r'{"text": "\ud800"}'), "a.jsonl:2: 'text' contains invalid Unicode"),
    "D5-lone-surrogate-as-utf8": (lambda: write("a.txt", b"\xed\xa0\x80"), "a.txt:1: byte 0 is not UTF-8"),
    "D6-a-line-of-a-gibibyte": (
        lambda: sparse("a.txt"),
        "a.txt:1: line 1 is longer than 16 MiB",
        "MINITF_LIMITS=line_bytes=1024M would allow it",
    ),
    "D6-a-line-of-17-mib-and-a-byte": (lambda: sparse("a.txt", (17 << 20) + 1), "MINITF_LIMITS=line_bytes=18M would"),
    "D6-in-jsonl": (lambda: sparse("a.jsonl"), "a.jsonl:1: line 1 is longer than 16 MiB"),
    "D7-gzip": (lambda: write("corpus.txt", gzip.compress(b"a" * 1_000_000)), "corpus.txt is gzip-compressed"),
    "D7-zstd": (lambda: write("corpus.txt", b"\x28\xb5\x2f\xfd\x00"), "corpus.txt is zstd-compressed"),
    "D8-zip": (lambda: archive("zip"), "corpus.txt is a zip archive", "archives and binary files are not opened"),
    "D8-tar": (lambda: archive("tar"), "corpus.txt is a tar archive"),
    "D8-7z": (lambda: write("corpus.txt", b"7z\xbc\xaf\x27\x1c\x00"), "corpus.txt is a 7z archive"),
    **{
        f"D9-pickle-{protocol}": (
            lambda protocol=protocol: write("corpus.txt", pickle.dumps(Sentinel(), protocol)),
            "is a Python pickle",
        )
        for protocol in (2, 3, 4, 5)
    },
    "D9-numpy-with-objects": (numpy_array, "corpus.txt is a numpy array"),
    "D14-folder": (lambda: (Path("empty").mkdir(), "empty")[1], "the folder ", "empty has no files"),
    "D14-broken-link": (lambda: link("a", "nowhere"), "a: no such file (a broken link to nowhere"),
    "D14-link-to-itself": (lambda: link("a", "a"), "symbolic links"),
    "D14-pipe": (lambda: pipe("a"), "a: it is a pipe", "- reads from stdin"),
    "D14-glob-that-finds-a-pipe": (lambda: pipe("a.txt") and "*.txt", "a.txt: it is a pipe"),
    "D14-device": (lambda: "/dev/zero", "/dev/zero: it is a device"),
    "D14-name-too-long": (lambda: "a" * 300, "File name too long"),
    "D14-unknown-home": (lambda: "~nobody-of-this-name/a.txt", "no such file"),
    "D14-glob-of-nothing": (lambda: "*.txt", "no file matches"),
    "D14-name-that-steers": (
        lambda: write("a\x1b]0;x\x07\u202e.txt", b"\xff") and "*.txt",
        r"a\x1b]0;x\x07\u202e.txt:1: byte 0 is not UTF-8",
    ),
    "D14-name-that-steers-in-the-recipe": (lambda: "a\x1b]0;x\x07.txt", r"the character '\x1b' is not allowed"),
    "D17-a-list-with-one-fault": (lambda: f"[{write('b.txt', WORDS)}, nowhere.txt]", "nowhere.txt: no such file"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_is_no_text_is_refused_at_once_and_nothing_is_made(fault: str, here: Path) -> None:
    make, *words = REFUSED[fault]
    spec = make()
    before = sorted(path.name for path in here.iterdir())
    spec, *others = spec.split(" ") if " tokenizer." in spec else [spec]
    named = spec if spec.startswith("[") else json.dumps(spec)
    refused(learn(f"data.train={named}", *others), *words, exit_code=3 if "in-the-recipe" in fault else 4)
    assert sorted(path.name for path in here.iterdir()) == before


def shown(*arguments: str, stdin: str = "") -> Any:
    done = minitf("data", "stats", TINY, *arguments, "--json", stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)["result"]


@pytest.mark.parametrize(
    "how",
    {
        "D3-byte-order-mark": lambda text: b"\xef\xbb\xbf" + text,
        "D3-crlf": lambda text: text.replace(b"\n", b"\r\n"),
        "D3-no-last-newline": lambda text: text.removesuffix(b"\n"),
    }.items(),
    ids=lambda how: how[0],
)
def test_how_an_editor_saved_a_text_changes_no_token(how: tuple[str, Callable[[bytes], bytes]], here: Path) -> None:
    plain = WORDS.encode() + b"\n"
    Path("a.txt").write_bytes(plain)
    Path("b.txt").write_bytes(how[1](plain))
    ids = [opened(Data(train=name), BYTE).train.ids.tolist() for name in ("a.txt", "b.txt")]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("name", ["D2-txt", "D2-csv", "D2-tsv", "D2-jsonl"])
def test_bad_bytes_are_read_as_replacement_characters_where_that_is_asked_for_and_counted(
    name: str, here: Path
) -> None:
    format = name[3:]
    cell = b"caf\xe9 \xef\xbf\xbd \xe2\x82 end"  # one bad byte, a real U+FFFD, two bad bytes
    rows = [b'{"text": "' + cell + b'"}' if format == "jsonl" else cell for _ in range(20)]
    Path(f"a.{format}").write_bytes((b"\n\n" if format == "txt" else b"\n").join(rows) + b"\n")
    refused(learn(f"data.train=a.{format}"), f"a.{format}:1: byte", "is not UTF-8")
    data = Data(train=f"a.{format}", errors="replace")
    text = opened(data, BYTE)
    assert "60 bytes are not UTF-8; they are replaced by U+FFFD" in text.notes
    assert text.tokenizer.decode(text.train.document(0)).startswith("caf\ufffd \ufffd \ufffd\ufffd en")
    assert shown(f"data.train=a.{format}", "data.errors=replace")["notes"][1:] == text.notes[1:]


def test_how_bad_bytes_are_read_changes_nothing_where_there_are_none(here: Path) -> None:
    Path("a.txt").write_text(WORDS)
    strict, replaced = (opened(Data(train="a.txt", errors=errors), BYTE) for errors in ("strict", "replace"))  # type: ignore[arg-type]
    assert strict.hashes == replaced.hashes
    assert strict.train.path != replaced.train.path  # but it is read anew: only then is known that there are none


def test_a_limit_is_the_commands_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6 and the limits on cells and prompts: $MINITF_LIMITS moves them."""
    write("a.txt", "word " * 100 + "\n\n" + WORDS)
    write("a.csv", "text,id\n" + "\n".join(f'"{n} ' + "word\n" * 100 + '",1' for n in range(20)))
    assert shown("data.train=a.txt")["train"]["documents"] > 30
    for name in ("a.txt", "a.csv"):  # what is in the cache is not read again
        write(name, Path(name).read_text() + "9")
    monkeypatch.setenv("MINITF_LIMITS", "line_bytes=256 prompt_bytes=16")
    refused(learn("data.train=a.txt"), "a.txt:1: line 1 is longer than 256 bytes")
    refused(learn("data.train=a.csv"), "a.csv:2: field larger than field limit (256)")
    write("t.txt", "[UNK]\na\n")
    refused(minitf("tokenizer", "encode", "t.txt", stdin="b" * 17), "stdin:1: line 1 is longer than 16 bytes")


def test_no_more_of_a_line_of_prompts_is_read_than_its_limit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D6 for stdin: what never ends is refused after 1 MiB."""
    write("t.txt", "[UNK]\na\n")
    with open("/dev/zero", "rb") as endless:
        asked: list[int] = []

        class Endless(io.BytesIO):
            def readline(self, size: int | None = -1) -> bytes:
                asked.append(size or 0)
                return endless.read(size)

        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Endless()))
        from mini_tf.recipe.text_input import read_lines

        with pytest.raises(DataFault, match="line 1 is longer than 1 MiB"):
            list(read_lines(None))
    assert asked == [(1 << 20) + 1]
    with pytest.raises(DataFault, match="line 1 is longer than 1 MiB"):
        list(read_lines(Path("/dev/zero")))


def test_a_list_of_prompts_may_come_through_a_pipe(here: Path) -> None:
    """`-i <(command)`: D14's pipes are refused as data, not as lines that are read once."""
    from mini_tf.recipe.text_input import read_lines

    os.mkfifo("pipe")
    if not (child := os.fork()):
        Path("pipe").write_text("one\ntwo\n")
        os._exit(0)
    assert list(read_lines(Path("pipe"))) == ["one", "two"]
    os.waitpid(child, 0)


@pytest.mark.parametrize("protocol", [0, 1, 2, 5], ids=lambda protocol: f"D9-protocol-{protocol}")
def test_a_pickle_is_never_executed(protocol: int, here: Path) -> None:
    """The two oldest protocols are letters and digits: to a language model a text like another."""
    write("corpus.txt", pickle.dumps(Sentinel(), protocol) * 20)
    done = minitf("data", "stats", TINY, "data.train=corpus.txt")
    assert done.exit_code == (0 if protocol == 0 else 4), done.stderr
    assert not Path("executed").exists()


def test_lines_of_jsonl_end_only_at_newlines(here: Path) -> None:
    """D4: U+2028 and U+0085 end a line for str.splitlines, not for JSON."""
    texts = [f"{n} one\u2028two\u0085three\x0bfour" for n in range(20)]
    write("a.jsonl", "\ufeff" + "\r\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert [document.text for document in formats.read(find_files("a.jsonl"), Columns())] == texts


@pytest.mark.parametrize("pattern", ["D14-**/*.txt", "D14-{here}/**/*.txt", "D14-down/**/a.*"])
def test_many_links_in_circles_do_not_hold_a_glob_up(pattern: str, here: Path) -> None:
    """Two links to their own folder double the paths at every level."""
    Path("down/.hidden").mkdir(parents=True)
    for folder in (".", "down"):
        link(f"{folder}/one", ".")
        link(f"{folder}/two", ".")
    refused(learn(f"data.train={pattern[4:].format(here=here)}"), "no file matches")
    write("down/a.txt", WORDS)
    write("down/.hidden/a.txt", WORDS)
    assert [Path(source.name).absolute() for source in find_files(pattern[4:].format(here=here))] == [
        here / "down/a.txt"
    ]


@pytest.mark.parametrize("pattern", ["D14-texts/**", "D14-**", "D14-{here}/texts/**"])
def test_a_glob_may_end_in_two_stars(pattern: str, here: Path) -> None:
    """Before Python 3.13 such a pattern finds folders alone."""
    Path("texts/deep/.hidden").mkdir(parents=True)
    for name in ("texts/a.txt", "texts/deep/b.txt", "texts/deep/.hidden/c.txt"):
        write(name, WORDS)
    found = [
        str(Path(source.name).absolute().relative_to(here)) for source in find_files(pattern[4:].format(here=here))
    ]
    assert found == ["texts/a.txt", "texts/deep/b.txt"]


def test_a_list_of_100000_names_is_told_its_first_fault(here: Path) -> None:
    """D17"""
    with pytest.raises(DataFault, match="f0: no such file"):
        find_files([f"f{n}" for n in range(100_000)])


def documents_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.ids"))]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "D10-an-id-beyond-the-vocabulary": lambda folder: (folder / "train.ids").write_bytes(b"\xff\xff" * 100),
    "D11-no-manifest": lambda folder: (folder / "manifest.json").unlink(),
    "D11-half-a-manifest": lambda folder: os.truncate(folder / "manifest.json", 100),
    "D11-manifest-not-utf8": lambda folder: (folder / "manifest.json").write_bytes(b'{"facts": "\xff"}'),
    "D11-manifest-of-a-gibibyte": lambda folder: os.truncate(folder / "manifest.json", 1 << 30),
    "D11-manifest-is-a-list": lambda folder: (folder / "manifest.json").write_text("[]"),
    "D11-manifest-is-deep": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "D11-manifest-is-a-pipe": lambda folder: ((folder / "manifest.json").unlink(), os.mkfifo(folder / "manifest.json")),
    "D11-manifest-names-another-place": (
        lambda folder: (folder / "manifest.json").write_text(json.dumps({"facts": {}, "files": {"../../x": [0, ""]}}))
    ),
    "D11-manifest-of-10000-names": (
        lambda folder: (folder / "manifest.json").write_text(
            json.dumps({"facts": {}, "files": {f"f{n}": [0, ""] for n in range(10_000)}})
        )
    ),
    "D11-other-facts": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace('"documents": 3', '"documents": 4')
        )
    ),
    "D11-ids-cut": lambda folder: os.truncate(folder / "train.ids", 10),
    "D11-ids-are-a-pipe": lambda folder: ((folder / "train.ids").unlink(), os.mkfifo(folder / "train.ids")),
    "D11-ids-are-a-folder": lambda folder: ((folder / "train.ids").unlink(), (folder / "train.ids").mkdir()),
    "D11-ids-are-a-link-to-a-device": lambda folder: (
        (folder / "train.ids").unlink(),
        os.symlink("/dev/zero", folder / "train.ids"),
    ),
    "D11-a-file-in-place-of-the-folder": lambda folder: (shutil.rmtree(folder), folder.write_text("x")),
    "D11-a-link-in-place-of-the-folder": lambda folder: (shutil.rmtree(folder), folder.symlink_to("/")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_made_anew(damage: str, here: Path) -> None:
    data = Data(train=write("a.txt", WORDS))
    folder = opened(data, BYTE).train.path.parent
    before = documents_of(folder)
    DAMAGES[damage](folder)
    said: list[str] = []
    assert opened(data, BYTE, say=said.append).train.path.parent == folder
    assert documents_of(folder) == before
    assert "the cache is damaged" in said[0]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert isinstance(cache._verify(folder), cache.CacheEntry)


def forked(act: Callable[[], object]) -> int:
    child = multiprocessing.get_context("fork").Process(target=act)
    child.start()
    child.join()
    return int(child.exitcode or 0)


OPERATIONS = ("mkdir", "replace", "rmdir", "unlink", "open", "close")


@pytest.mark.parametrize(
    "after", [False, True], ids=["D11-killed-before-each-operation", "D11-killed-after-each-operation"]
)
def test_a_cache_whose_making_was_killed_anywhere_is_made_by_the_next_call(
    after: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed process had a half of it under its own name; what stands under the true name is whole or absent."""
    root = Path(os.environ["MINITF_CACHE"])

    def build(folder: Path) -> dict[str, Any]:
        for name in ("a", "b"):
            descriptor = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
            os.write(descriptor, name.encode() * 1000)
            os.close(descriptor)
        return {"n": 2}

    def die_at(number: int) -> None:
        done = 0

        def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
            def act(*arguments: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done == number and not after:
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    return operation(*arguments, **named)
                finally:
                    if done == number:
                        os.kill(os.getpid(), signal.SIGKILL)

            return act

        for name in OPERATIONS:
            monkeypatch.setattr(os, name, counted(getattr(os, name)))
        cache.build_or_load("tokens", "key", build, lambda line: None)
        os._exit(0)

    deaths = 0
    for number in range(1, 100):
        shutil.rmtree(root, ignore_errors=True)
        if number % 2:  # every other time over a damaged one, which is moved out of the way
            (root / "tokens" / "key").mkdir(parents=True)
        if forked(lambda number=number: die_at(number)) == 0:
            break
        deaths += 1
        found = cache.build_or_load("tokens", "key", build, lambda line: None)
        folder = found.folder
        assert found.facts == {"n": 2}
        assert (folder / "b").read_bytes() == b"b" * 1000
        assert [path.name for path in folder.parent.iterdir()] == ["key"]
    assert 8 <= deaths < 99


def test_two_that_make_the_same_cache_at_once_both_get_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D11: the slower one finds the name taken, and what stands there sound."""
    data = Data(train=write("a.txt", WORDS))

    def no_locks(*given: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    def build(folder: Path) -> dict[str, Any]:
        (folder / "a").write_text("x")
        if not (folder.parent / "k").exists():  # somebody else is faster, on a file system without locks
            monkeypatch.setattr(fcntl, "lockf", no_locks)
            assert (
                forked(
                    lambda: cache.build_or_load(
                        "tokens", "k", lambda other: (other / "a").write_text("x") and {"n": 1}, print
                    )
                )
                == 0
            )
        return {"n": 1}

    found = cache.build_or_load("tokens", "k", build, lambda line: None)
    assert found.facts == {"n": 1}
    assert cache.find_entry("tokens", lambda one: one == found) == found
    assert [path.name for path in found.folder.parent.iterdir()] == ["k"]
    assert opened(data, BYTE).train.n_documents > 30


def test_two_that_find_the_same_cache_damaged_both_get_it_and_neither_takes_it_from_the_other(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: while the first is about to move the damaged one aside the second may not; it would move the mended one, or
    find none.
    """
    folder = Path(os.environ["MINITF_CACHE"]) / "tokens" / "k"
    (folder / "damaged").mkdir(parents=True)

    def get() -> Path:
        return cache.build_or_load(
            "tokens", "k", lambda draft: (draft / "a").write_text("x") and {"n": 1}, lambda line: None
        )[0]

    hears, told = os.pipe()
    lock, replace, used, heard = fcntl.lockf, os.replace, list[Path](), list[bytes]()

    def get_after_telling() -> None:
        monkeypatch.setattr(fcntl, "lockf", lambda *given: os.write(told, b"waits ") and lock(*given))
        os.write(told, str(get().stat().st_ino).encode())

    second = multiprocessing.get_context("fork").Process(target=get_after_telling)

    def slow_replace(old: Path, new: Path) -> None:
        if not used:
            used.append(old)
            second.start()
            os.close(told)
            heard.append(os.read(hears, 99))  # once it has to wait, or has the folder
        replace(old, new)

    monkeypatch.setattr(os, "replace", slow_replace)
    assert get() == folder
    second.join()
    heard.append(os.read(hears, 99))
    os.close(hears)
    assert (used, second.exitcode) == ([folder], 0)
    assert b"".join(heard).split()[-1] == str(folder.stat().st_ino).encode(), "the second has what stands there"
    assert [path.name for path in folder.parent.iterdir()] == ["k"]


def test_of_two_processes_that_need_the_same_cache_one_builds_it_and_the_other_says_that_it_waits(here: Path) -> None:
    begun, released = os.pipe(), os.pipe()

    def slow(folder: Path) -> dict[str, Any]:
        os.write(begun[1], b"x")
        os.read(released[0], 1)
        (folder / "a").write_text("x")
        return {"n": 1}

    first = multiprocessing.get_context("fork").Process(
        target=lambda: cache.build_or_load("tokens", "k", slow, lambda line: None)
    )
    first.start()
    os.read(begun[0], 1)
    waits, said = list[str](), list[str]()

    @contextmanager
    def display(what: str) -> Iterator[Callable[[float], None]]:
        waits.append(what)
        os.write(released[1], b"x")
        yield lambda share: None

    with progress_display(display):
        found = cache.build_or_load("tokens", "k", lambda folder: pytest.fail("it is built twice"), said.append)
    first.join()
    assert waits == ["waiting for another process, which is building the same tokens"]
    assert said[-1].endswith("another process has just built it")
    assert (found.facts, first.exitcode) == ({"n": 1}, 0)
    for descriptor in (*begun, *released):
        os.close(descriptor)


@pytest.mark.parametrize("place", ["D11-spool-of-stdin", "D11-draft-of-a-built-in-corpus"])
def test_what_a_dead_process_left_half_written_is_swept(place: str, here: Path) -> None:
    root = Path(os.environ["MINITF_CACHE"])
    (root / "stdin").mkdir(parents=True)
    folder = root / "stdin" if "stdin" in place else root
    assert forked(lambda: safe_files.temporary_path(folder / "x").write_text("half")) == 0
    mine = safe_files.temporary_path(folder / "y")
    *_, machine, pid, token, _ = mine.name.split(".")
    earlier, elsewhere = f".x.{machine}.{pid}.{'0' * 8}.tmp", f".x.other-{machine}.{pid}.{'0' * 8}.tmp"
    running = f".x.{machine}.{os.getppid()}.{token}.tmp"
    for name in (mine.name, earlier, elsewhere, running):
        (folder / name).write_text("half")
    if "stdin" in place:
        assert shown("data.train=-", stdin=WORDS)["train"]["documents"] > 30
    else:
        safe_files.write_atomically(root / "corpus", "text")
    assert {path.name for path in folder.iterdir() if path.suffix == ".tmp"} == {mine.name, elsewhere, running}


def test_what_an_estimate_wrote_for_a_trial_is_swept_where_it_was_killed(here: Path) -> None:
    """D11: a checkpoint may be large."""
    root = Path(os.environ["MINITF_CACHE"])

    def die() -> None:
        with steps._temporary_run():
            os.kill(os.getpid(), signal.SIGKILL)

    assert forked(die) == -signal.SIGKILL
    assert len(list(root.iterdir())) == 1
    with steps._temporary_run() as trial:
        assert list(root.iterdir()) == [trial.folder]
    assert list(root.iterdir()) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a text beside it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "a.txt").write_text(WORDS * 3)
    return trained(folder / "run", "train.steps=6", f"data.train={folder / 'a.txt'}")


@pytest.mark.parametrize("side", ["D12-ids", "D12-starts"])
def test_a_cache_that_is_cut_while_it_is_read_ends_in_a_refusal_and_not_in_a_signal(side: str, here: Path) -> None:
    store = opened(Data(train=write("a.txt", WORDS)), BYTE).train
    store.check()
    os.truncate(store.path.with_suffix(f".{side[4:]}"), 8)

    def read_on() -> None:
        try:
            store.check()
            print(int(store.ids.sum()), int(store.starts.sum()))
        except DataFault as fault:
            os._exit(
                4
                if "changed during training; run" not in str(fault) and fault.hint == "run the same command again"
                else 1
            )

    assert forked(read_on) == 4


def test_a_text_that_changed_between_stop_and_resume_is_another_run(run: Path) -> None:
    """D13"""
    text = run.parent / "a.txt"
    before, original = content(run), text.read_text()
    text.write_text(original.replace("cat", "dog"))
    done = minitf("pretrain", TINY, *QUIET, "train.steps=6", f"data.train={text}", "-d", run)
    text.write_text(original)
    refused(
        done,
        "was started with other contents of data; restore them, or choose another name with -n; --fresh makes a new"
        " run beside it",
        exit_code=5,
    )
    assert content(run) == before


def test_rows_without_anything_to_name_cost_nothing_and_change_nothing(here: Path) -> None:
    """D15: whole micro-batches of unknown characters, none of which may be masked; sums are divided by what all of them
    asked.
    """
    Path("t").mkdir()
    write("known.txt", "abcdefgh " * 400)
    assert (
        minitf("tokenizer", "train", "tokenizer.kind=char", "data.train=known.txt", "-o", "t/tokenizer.json").exit_code
        == 0
    )
    write("a.txt", "abcdefgh " * 2000 + "\n\n" + "☃" * 4000)
    masked = ["model={kind: encoder, d_model: 16, n_layers: 1, n_heads: 2}", "objective.kind=masked", "data.pack=docs"]
    done = learn(
        "data.train=a.txt",
        "tokenizer.path=t",
        *masked,
        "train={steps: 8, batch_size: 8, micro_batch_size: 1, context: 64}",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["train.loss"] > 0


def test_a_text_that_steers_terminals_is_learnt_as_it_is_and_shown_safe(here: Path) -> None:
    """D16"""
    document = "\x1b[31mred\x1b]0;title\x07 \u202etxt <b>x</b> [/bold] \x9b1m"
    write("a.jsonl", "".join(json.dumps({"text": document + f" {n}"}) + "\n" for n in range(40)))
    text = opened(Data(train="a.jsonl"), BYTE)
    assert text.tokenizer.decode(text.train.document(0)).startswith(document)
    for view in (
        ("data", "show", TINY, "data.train=a.jsonl"),
        ("data", "stats", TINY, "data.train=a.jsonl", "tokenizer.kind=char"),
    ):
        done = minitf(*view)
        assert done.exit_code == 0
        assert not set(done.stdout + done.stderr) & (set(STEERING) - {"\n"})


def test_files_of_a_glob_come_in_the_order_of_their_names(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D17: whatever order the file system lists them in; and their content is what the text is known by."""
    for name in ("b.txt", "a.txt", "c.txt"):
        write(name, f"{name}\n\n{WORDS}")
    found = [find_files("*.txt") for _ in range(2)]
    monkeypatch.setattr("glob.glob", lambda *_, **__: ["c.txt", "a.txt", "b.txt"])
    assert (
        [source.name for source in find_files("*.txt")]
        == [source.name for source in found[0]]
        == ["a.txt", "b.txt", "c.txt"]
    )
    first = opened(Data(train="*.txt"), BYTE).hashes["data"]
    write("c.txt", "other")
    assert opened(Data(train="*.txt"), BYTE).hashes["data"] != first


def test_documents_on_both_sides_are_left_out_of_one_and_counted(here: Path) -> None:
    """D18"""
    write("a.txt", WORDS)
    write("v.txt", "\n\n".join(WORDS.split("\n\n")[:5]) + "\n\nnever seen\n")
    told = "5 of 6 documents of data.val are also in data.train; they were removed from data.val"
    result = shown("data.train=a.txt", "data.val=v.txt")
    assert result["notes"] == [told]
    assert (result["val"]["documents"], result["documents_on_both_sides"]) == (1, 0)


SIDES = ("D2", "D6-a-line-of-a-gibibyte", "D7-gzip", "D8-zip", "D9-pickle-4", "D14")
"""Faults of a file that lines are read from, whatever they are for."""


OF_SIDES = [name for name in REFUSED if name.startswith(SIDES) and "in-the-recipe" not in name]


@pytest.mark.parametrize(("fault", "n"), [(name, n) for n, name in enumerate(OF_SIDES)], ids=OF_SIDES)
def test_no_side_of_pairs_takes_what_is_no_text(fault: str, n: int, here: Path) -> None:
    """The sides in turns: both are read by one function."""
    make, *words = REFUSED[fault]
    made = make()
    write("good.en", "a b\n" * 30)
    side, other = [("source", "target"), ("target", "source")][n % 2]
    done = minitf("data", "stats", "transformer-nano", f"data.train={{{side}: '{made}', {other}: good.en}}")
    refused(done, *words)


@pytest.mark.parametrize(
    "fault",
    {
        "D1-empty": ("", "good.de:1: no corresponding line: this file has 30 lines, ", "bad.en 0; "),
        "D1-shorter": ("a\n" * 29, "good.de:30: no corresponding line: this file has 30 lines, ", "bad.en 29; "),
        "D1-longer": ("a\n" * 31, "bad.en:31: no corresponding line: this file has 31 lines, ", "good.de 30; "),
        "D1-an-empty-line": ("a\n" * 12 + "\n" + "a\n" * 17, "bad.en:13: the line is empty"),
        "D1-a-blank-line": ("a\n" * 12 + " \u3000\t\r\n" + "a\n" * 17, "bad.en:13: the line is empty"),
        "D1-one-source": ("a\n" * 30, "data.train: 1 different sources; at least 2 are needed"),
    }.items(),
    ids=lambda fault: fault[0],
)
def test_lines_without_partner_end_every_command_in_one_line(fault: tuple[str, tuple[str, ...]], here: Path) -> None:
    source, *words = fault[1]
    write("bad.en", source)
    write("good.de", "b\n" * 30)
    files = "data.train={source: bad.en, target: good.de}"
    for command in (["data", "stats"], ["data", "show"], ["pretrain", "--dry-run"], ["pretrain"]):
        refused(minitf(*command, "transformer-nano", files, *QUIET), *words)
    assert sorted(os.listdir()) == ["bad.en", "good.de"]


def test_what_steers_a_terminal_is_told_of_pairs_without_steering_it(here: Path) -> None:
    pairs = ("transformer-nano", "data.train=t.jsonl", "data.fields={source: s, target: t}")
    steering = "\x1b]0;x\x07\x85\u202e\u2066\u2028"
    write("t.jsonl", json.dumps({"s": "a", steering: "b"}) + "\n")
    refused(minitf("data", "stats", *pairs), "t.jsonl:1: no column 't'")
    write("t.jsonl", "".join(json.dumps({"s": f"a{n} {steering}", "t": f"b{n} {steering}"}) + "\n" for n in range(30)))
    for command in ("show", "stats"):
        done = minitf("data", command, *pairs)
        assert done.exit_code == 0, done.stderr
        assert not set(done.stdout + done.stderr) & (set(steering) - set("]0;x")), ascii(done.stdout)
