"""Several processes prepare data together: what one would have written, byte for byte, and nothing half-made."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from data_of import objective_for
from processes import everywhere

from mini_tf.data import split
from mini_tf.data.raw import Files
from mini_tf.data.tokenization.coverage import Coverage
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenized import open_data
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.torch_group import joined
from mini_tf.recipe import sections
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import DataFault, ProcessLost, RunFault
from mini_tf.system.processes import RENDEZVOUS, fields_of, same_error
from mini_tf.system.progress import progress_display

WORDS = ["a", "dog", "barks", "at", "seven", "grey", "cats", "under", "the", "old", "oak", "tree", "all", "day"]
TEXTS = [f"{n}: " + " ".join([*WORDS[n % 14 :], *WORDS[: n % 11]]) for n in range(61)]
SIZES = (9, 0, 21, 2, 29)
"""Rows of the files of a corpus."""


def write(folder: Path) -> None:
    """The files of all cases."""
    rows: dict[str, Callable[[int, str], Mapping[str, Any]]] = {
        "text": lambda n, text: {"text": text},
        "classes": lambda n, text: {"text": text, "label": "abc"[n % 3]},
        "tags": lambda n, text: {
            "text": text,
            "label": ["B-x" if word in ("dog", "cats") else "O" for word in text.split()],
        },
        "chats": lambda n, text: {
            "messages": [{"role": role, "content": text[k:]} for k, role in enumerate(["user", "assistant", "user"])]
        },
    }
    for name, row in rows.items():
        (folder / name).mkdir()
        left = iter(enumerate(TEXTS))
        for number, size in enumerate(SIZES):
            lines = [json.dumps(row(*next(left))) + "\n" for _ in range(size)]
            (folder / name / f"{number}.jsonl").write_text("".join(lines))
    for number, size in enumerate(SIZES):
        texts = [f"{number} {text}" for text in TEXTS[:size]] or ["a line"]
        (folder / f"{number}.en").write_text("".join(f"{text}\n" for text in texts))
        (folder / f"{number}.de").write_text("".join(f"{text.upper()}\n" for text in texts))
        (folder / f"{number}.txt").write_text("\n\n".join(texts))
    (folder / "twice.txt").write_text("\n\n".join([*TEXTS[3:7], "\u00e9 another \u4e16\u4e16", *TEXTS[30:40]]))
    (folder / "strange.txt").write_text("\n\n".join(["a \u4e16 text", "more \u00e9"]))
    (folder / "wrong").mkdir()
    for number, cell in enumerate(["good", {"bad": 1}, {"worse": 1}]):
        lines = [json.dumps({"text": text}) for text in TEXTS[:10]]
        (folder / "wrong" / f"{number}.jsonl").write_text("\n".join([*lines, json.dumps({"text": cell}), *lines]))
    (folder / "d.jsonl").write_text("".join(json.dumps({"text": text, "label": "d"}) + "\n" for text in ("x", *TEXTS)))


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "text": ("text", {"train": "text/*.jsonl"}, {"kind": "bpe", "vocab_size": 300}),
    "given": (
        "text",
        {"train": ["text/*.jsonl", "text/2.jsonl"], "val": ["twice.txt", "strange.txt"]},
        {"kind": "char"},
    ),
    "tail": ("text", {"train": "[0-9].txt", "split": "tail 10%"}, {"kind": "byte"}),
    "few": ("text", {"train": ["1.txt", "3.txt"]}, {"kind": "byte"}),
    "streaming": ("text", {"train": "[0-9].txt", "streaming": True}, {"kind": "unigram", "vocab_size": 300}),
    "pairs": ("pairs", {"train": {"source": "*.en", "target": "*.de"}}, {"kind": "wordpiece", "vocab_size": 200}),
    "folds": ("classes", {"train": "classes/*.jsonl", "split": {"folds": 3, "fold": 2}}, {"kind": "byte"}),
    "limited": ("classes", {"train": "classes/*.jsonl", "max_train_samples": 20}, {"kind": "byte"}),
    "tags": ("tags", {"train": "tags/*.jsonl"}, {"kind": "byte"}),
    "chats": ("chats", {"train": "chats/*.jsonl"}, {"kind": "byte"}),
    "wrong": ("text", {"train": "wrong/*.jsonl"}, {"kind": "byte"}),
    "unknown": ("classes", {"train": ["classes/*.jsonl"], "val": ["classes/2.jsonl", "d.jsonl"]}, {"kind": "byte"}),
}
SOME = ("text", "given", "streaming", "pairs", "wrong")
"""Cases that use a cache in different ways."""
REFUSED = {
    "wrong": "wrong/1.jsonl:11: 'text' must be text",
    "unknown": "d.jsonl:1: the label 'd' is not one of the classes",
}
TRAINING = "training the tokenizer on 0.0 million characters; the other processes wait"
ENCODING = f"encoding {sum(map(len, TEXTS)):,} characters in 2 processes"


TEXT: Any = settings_of("data.datasets", "text")


def open_all(group: ProcessGroup, names: Iterable[str] = CASES) -> tuple[dict[str, Any], int]:
    """What is told of each case on this process, and how many documents it has encoded."""
    told: dict[str, Any] = {}
    encode, counts = TEXT.encode, list[int]()
    TEXT.encode = lambda self, examples, *given: counts.append(len(examples)) or encode(self, examples, *given)
    for name in names:
        dataset, data, tokenizer = CASES[name]
        try:
            found = open_data(
                sections.Data(**data), sections.Tokenizer(**tokenizer), objective_for(dataset), group=group
            )
            told[name] = [found.hashes, found.notes, found.train.n_documents, found.val.token_counts().tolist()]
        except DataFault as error:
            told[name] = [error.message, error.hint, error.where]
    return json.loads(json.dumps(told)), sum(counts)


def open_some(group: ProcessGroup) -> tuple[dict[str, Any], int]:
    return open_all(group, SOME)


def opened(folder: Path, size: int, cache: str, work: Callable[[ProcessGroup], Any] = open_all) -> list[Any]:
    """What `work` tells in each of `size` processes, with this cache (each its own if it has a {}), by small parts."""

    def run(rank: int, meeting: Path) -> Any:
        os.chdir(folder)
        os.environ |= {"MINITF_CACHE": str(folder / cache.format(rank)), RENDEZVOUS: str(meeting / "group")}
        split.SIZE = 1
        try:
            with joined(300) if size > 1 else nullcontext(ProcessGroup()) as group:
                return work(group)
        except ProcessLost:
            return "lost"

    return everywhere(size, run, folder)


def cached(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, and the caches of one process with all cases, `alone`, and with `some`."""
    made = tmp_path_factory.mktemp("data")
    write(made)
    [told] = opened(made, 1, "alone")
    opened(made, 1, "some", open_some)
    (made / "told.json").write_text(json.dumps(told))
    return made


def assert_as_some(folder: Path, found: list[Any], *caches: str) -> None:
    told, _ = json.loads((folder / "told.json").read_text())
    assert [notes for notes, _ in found] == [{name: told[name] for name in SOME}] * len(found)
    for cache in caches:
        assert cached(folder / cache) == cached(folder / "some")


def test_one_process_opens_and_refuses_what_the_others_are_compared_with(folder: Path) -> None:
    told, _ = json.loads((folder / "told.json").read_text())
    for name, (found, *_) in told.items():
        assert found.startswith(REFUSED[name]) if name in REFUSED else set(found) >= {"data", "tokenizer"}, found
    assert any("the unknown token: '\u4e16' 3 times, '\u00e9' 2 times" in note for note in told["given"][1])
    assert any("were removed from data.val" in note for note in told["given"][1])
    assert any("messages after the assistant's last one were dropped" in note for note in told["chats"][1])


def test_several_processes_write_what_one_writes_and_refuse_what_it_refuses(folder: Path) -> None:
    """Three; two are below, with a cache each."""
    found = opened(folder, 3, "of-3")
    told, alone = json.loads((folder / "told.json").read_text())
    assert [notes for notes, _ in found] == [told] * 3
    assert cached(folder / "of-3") == cached(folder / "alone")
    shares = [n for _, n in found]
    assert sum(shares) == alone
    assert min(shares) > alone / 8  # the rest of the cases cannot be divided


def test_processes_without_a_common_cache_fill_each_its_own_and_a_lost_one_again(folder: Path) -> None:
    found = opened(folder, 2, "machine-{}", open_some)
    assert_as_some(folder, found, "machine-0", "machine-1")
    for lost in ("tokens", "tokenizers"):
        shutil.rmtree(folder / "machine-1" / lost)
        assert_as_some(folder, opened(folder, 2, "machine-{}", open_some), "machine-0", "machine-1")


def test_a_cache_that_is_read_only_can_be_used(folder: Path) -> None:
    """Nothing is to be written, if all is there; this test may run as a user who can write everywhere."""

    def use(group: ProcessGroup) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "touch", refuse)
            patch.setattr(Path, "mkdir", refuse)
            dataset, data, tokenizer = CASES["text"]
            return open_data(
                sections.Data(**data), sections.Tokenizer(**tokenizer), objective_for(dataset), group=group
            ).hashes

    def refuse(self: Path, *given: Any, **named: Any) -> None:
        if not (named.get("exist_ok") and self.exists()):
            raise OSError(errno.EROFS, "Read-only file system", str(self))

    told, _ = json.loads((folder / "told.json").read_text())
    assert opened(folder, 2, "alone", use) == [told["text"][0]] * 2


def test_one_process_trains_the_tokenizer_and_tells_that_the_others_wait_and_all_encode(folder: Path) -> None:
    def watch(group: ProcessGroup) -> list[Any]:
        operations, shares = list[str](), dict[str, float]()

        @contextmanager
        def display(operation: str) -> Iterator[Callable[[float], None]]:
            operations.append(operation)
            yield lambda share: shares.update({operation: share})

        dataset, data, tokenizer = CASES["text"]
        with progress_display(display):
            open_data(sections.Data(**data), sections.Tokenizer(**tokenizer), objective_for(dataset), group=group)
        return [operations, shares[ENCODING]]

    for rank, (operations, share) in enumerate(opened(folder, 2, "watched", watch)):
        assert share > 0.7  # of its own half
        assert [one for one in operations if one.startswith("training")] == [TRAINING][rank:]
        assert [one for one in operations if one.startswith("encoding")] == [ENCODING]


@pytest.mark.parametrize(
    ("what", "differs"), [("data", ("text/2.jsonl", "text/4.jsonl")), ("tokenizer", ("byte", "char"))]
)
def test_another_file_or_tokenizer_on_one_process_is_refused(folder: Path, what: str, differs: tuple[str, str]) -> None:
    def differ(group: ProcessGroup) -> str:
        given = {"data": "text/2.jsonl", "tokenizer": "byte", what: differs[group.rank]}
        tokenizer = sections.Tokenizer(kind=given["tokenizer"])
        with pytest.raises(RunFault) as caught:
            open_data(sections.Data(train=given["data"]), tokenizer, objective_for("text"), group=group)
        return caught.value.message

    assert opened(folder, 2, "differ", differ) == [f"rank 1 has another {what} than rank 0"] * 2


def test_a_process_that_is_killed_while_it_encodes_leaves_nothing_half_made(folder: Path) -> None:
    def die(group: ProcessGroup) -> None:
        if group.rank == 1:
            TEXT.encode = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
        open_some(group)

    assert opened(folder, 2, "killed", die) == ["lost", None]
    assert [*(folder / "killed" / "tokens").glob("[!.]*")] == []
    assert_as_some(folder, opened(folder, 2, "killed", open_some), "killed")


def test_a_part_has_consecutive_files_of_its_size_and_each_file_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus may have very many small files."""
    for number in range(7):
        (tmp_path / f"{number}.txt").write_text("abcd")
    data = sections.Data(train=str(tmp_path / "*.txt"))
    files = Files(TEXT(), data, data.train, "data.train")
    measured, stat = [str(one.path) for one in files.sources], Path.stat
    monkeypatch.setattr(split, "SIZE", 12)
    monkeypatch.setattr(Path, "stat", lambda self, **given: measured.remove(str(self)) or stat(self, **given))
    assert [part.size for part in files.examples().parts] == [12, 12, 4]
    assert measured == []


def test_an_error_of_this_process_is_raised_itself_and_that_of_another_is_equal() -> None:
    error = DataFault.located("a.txt:3", "wrong", hint="right")
    fields = json.loads(json.dumps(fields_of(error)))
    assert same_error(error, fields) is error
    for own in (None, DataFault("wrong")):
        assert type(other := same_error(own, fields)) is DataFault
        assert vars(other) == vars(error)


def test_counts_of_lost_characters_of_two_shares_add_up() -> None:
    settings = sections.Tokenizer(kind="char")
    tokenizer = Tokenizer.train(settings, iter(["abcdef " * 9]))
    texts = ["abc \u00e9", "def \u4e16\u4e16 \u00e9 b", "ab \u4e16", "c\u4e16d", "fe"]

    def counted(some: list[str]) -> Coverage:
        coverage = Coverage(tokenizer)
        for text, ids in zip(some, tokenizer.encode_batch(some), strict=True):
            coverage.sample([text])
            coverage.count_unknown(text, ids)
        return coverage

    joined = Coverage(tokenizer)
    for share in (texts[:2], texts[2:]):
        joined.add(json.loads(json.dumps(counted(share).to_json())))
    assert joined.to_json() == counted(texts).to_json()
    assert joined.to_json()["unknown"] == {"\u4e16": 4, "\u00e9": 2}
    assert min(joined.to_json()["characters"]) > 0
