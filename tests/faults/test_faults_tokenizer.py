"""Every fault of a tokenizer's file: refused with a line, whether it lies, floods, crashes the library or never ends
(T1 to T8).
"""

import base64
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from commands import QUIET, TINY, content, in_a_fork, minitf, refused, trained
from data_of import opened
from hang import ending
from tokenizers import models

from mini_tf.data.tokenization import guard, tokenizer_files
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.recipe import sections
from mini_tf.recipe.sections import Data
from mini_tf.system.errors import DataFault, UsageFault

WORDS = "\n\n".join(f"tale number {n}: once there was a cat" for n in range(40))
SPACES = {"type": "Whitespace"}
SLOW = {"Regex": "[ab]*?c(?!c)"}
"""On a text of n letters a and b, and cc at its end, it tries n * n / 2 ways."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a text, a cache of its own, and an end for what would wait for ever."""
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("a.txt").write_text(WORDS)
    with ending():
        yield tmp_path / "here"


def file(**changes: object) -> Callable[[], str]:
    """A sound tokenizer.json of two tokens, changed."""
    return lambda: write(
        json.dumps(json.loads(tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, "<unk>")).to_str()) | changes)
    )


def write(text: str | bytes) -> str:
    Path("tokenizer.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return "tokenizer.json"


def old_files(vocabulary: str) -> str:
    Path("vocab.json").write_text(vocabulary)
    Path("merges.txt").write_text("#version: 0.2\n")
    return "vocab.json"


def words(**changes: object) -> dict[str, object]:
    return {"type": "WordLevel", "vocab": {"<unk>": 0, "a": 1}, "unk_token": "<unk>"} | changes


def merges(*pairs: list[str], **changes: object) -> dict[str, object]:
    vocabulary = dict.fromkeys(["<unk>", *(token for pair in pairs for token in (*pair, "".join(pair)))])
    return {"type": "BPE", "vocab": {token: id for id, token in enumerate(vocabulary)}, "merges": list(pairs)} | changes


def split(pattern: object) -> dict[str, object]:
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def replace(old: object, new: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": old, "content": new}


def sequence(*parts: dict[str, object]) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": list(parts)}


def sparse() -> str:
    with open("tokenizer.json", "wb") as empty:
        empty.truncate(65 << 20)
    return "tokenizer.json"


def pipe() -> str:
    os.mkfifo("tokenizer.json")
    return "tokenizer.json"


def precompiled(character: str, text: str) -> dict[str, object]:
    """A table of SentencePiece's kind that writes `text` for a character of one byte: its key ends in the trie's second
    unit.
    """
    trie = [0] * 512
    if character:
        trie[ord(character)] = ord(character) | 1 << 8 | 256 << 10
    packed = b"".join(struct.pack("<I", unit) for unit in trie)
    charsmap = struct.pack("<I", len(packed)) + packed + text.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


CHARSMAP = base64.b64encode(b"\x04\0\0\0" + b"\xff" * 16).decode()
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {},
}

REFUSED: dict[str, tuple[Any, ...]] = {
    "T1-no-file": (lambda: "nowhere/tokenizer.json", "nowhere/tokenizer.json: no such file"),
    "T1-folder-without-one": (
        lambda: ".",
        "no such file",
        "use a tokenizer.json, vocab.txt, vocab.json or SentencePiece",
    ),
    "T1-name-too-long": (lambda: "a" * 300, "File name too long"),
    "T1-empty": (lambda: write(""), "tokenizer.json: not JSON"),
    "T1-not-json": (lambda: write("{'model': 1}"), "not JSON: Expecting property name"),
    "T1-not-utf8": (lambda: write(b'{"model": "\xff"}'), "tokenizer.json:1: not UTF-8"),
    "T1-a-list": (lambda: write("[]"), "not a tokenizer.json: it has no model"),
    "T1-deep": (lambda: write('{"model": ' + "[" * 100_000), "not JSON: nested too deeply"),
    "T1-a-key-twice": (
        lambda: write('{"normalizer": null, "model": {}, "normalizer": {}}'),
        "duplicate key 'normalizer'",
    ),
    "T1-larger-than-64-mib": (sparse, "it is larger than 64 MiB", "MINITF_LIMITS=tokenizer_bytes"),
    "T1-wrong-shape": (file(model={"type": "BPE", "vocab": [], "merges": {}}), "the tokenizer crashed while loading"),
    "T1-vocab.json-with-an-endless-id": (
        lambda: old_files(json.dumps({"<unk>": "a" * 5000, "b" * 5000: 1})),
        "vocab.json: the id of the token '<unk>' is \"aaa",
        "not a whole number of at least 0",
    ),
    "T1-vocab.json-with-an-id-twice": (
        lambda: old_files(json.dumps({"a" * 5000: 0, "b" * 5000: 0})),
        "both have the id 0",
    ),
    "T1-no-tokens": (file(model=words(vocab={})), "tokenizer"),
    "T1-pipe": (pipe, "it is a pipe"),
    "T1-device": (lambda: "/dev/zero", "/dev/zero: it is a device"),
    "T1-parts-that-are-none": (file(normalizer=[1, 2]), "its normalizer is not an object"),
    "T2-merge-overrun": (
        file(model=merges(["a", "b"], continuing_subword_prefix="#" * 10)),
        "the second token 'b' of a merge must start with its prefix inside words, '##########'",
    ),
    "T2-merge-in-half-a-character": (
        file(model=merges(["a", "é"], continuing_subword_prefix="x")),
        "the second token 'é'",
    ),
    "T2-bad-precompiled": (
        file(normalizer={"type": "Precompiled", "precompiled_charsmap": CHARSMAP}),
        "crashed while loading: Error while attempting to build Precompiled",
    ),
    "T2-empty-precompiled": (
        file(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}),
        "crashed while loading: index out of bounds",
    ),
    "T2-pieces-of-no-length": (
        file(pre_tokenizer={"type": "FixedLength", "length": 0}),
        "crashed while loading: chunk size",
    ),
    "T3-sparse-ids": (
        file(model=words(vocab={"<unk>": 0, "b": 4_000_000_000})),
        "the highest id is 4000000000, but there are only 2 tokens",
    ),
    "T3-id-beyond-32-bits": (file(model=words(vocab={"<unk>": 0, "b": 1 << 40})), "crashed while loading"),
    "T4-one-replacement-writes-a-page": (
        file(normalizer=replace({"String": "a"}, "a" * 1000)),
        "its Replace writes 1000 characters",
    ),
    "T4-replacements-multiply": (
        file(normalizer=sequence(*[replace({"String": "a"}, "a" * 16)] * 8)),
        "its parts could turn one character into 4,294,967,296; at most 32 are allowed",
    ),
    "T4-a-table-that-is-cut": (
        file(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
        "its Precompiled cannot be read: its table is truncated",
    ),
    "T4-unknown-in-a-sequence": (
        file(normalizer=sequence(sequence({"type": "\x1b[31m"}))),
        r"its normalizer '\x1b[31m' is not supported",
    ),
    "T4-too-many-parts": (
        file(normalizer=sequence(*[{"type": "NFC"}] * 300)),
        "its normalizer has more than 256 parts",
    ),
    "T4-a-token-of-a-megabyte": (
        file(model=words(vocab={"<unk>": 0, "a" * 1_000_000: 1})),
        "a token of 1,000,000 characters",
    ),
    "T5-nothing-is-known": (file(pre_tokenizer={"type": "Whitespace"}), "loses", "of the characters"),
    "T5-a-quarter-silently-dropped": (
        file(
            model={
                "type": "BPE",
                "vocab": {letter: id for id, letter in enumerate("0123456789:talenumb")},
                "merges": [],
            }
        ),
        "the tokenizer loses 28%",
        "use a tokenizer trained on such text, or kind bpe",
    ),
    "T5-silently-dropped": (file(model={"type": "BPE", "vocab": {"a": 0}, "merges": []}), "loses", "of the characters"),
}

UNKNOWN = {"normalizer": "Python", "pre_tokenizer": "RandomChunkSplit", "decoder": "Custom", "post_processor": "Jinja"}
for part, type_ in (UNKNOWN | {"model": "Neural"}).items():
    REFUSED[f"T4-unknown-{part}"] = (file(**{part: {"type": type_}}), f"its {part} '{type_}' is not supported; use ")
for parts, growth in (
    ([replace({"String": "a"}, "b" * 16), replace({"String": "b"}, "a" * 16)], "256"),
    ([replace({"Regex": "x*"}, "-")] * 30, "1,073,741,824"),  # where nothing stands
    ([replace({"String": ""}, "-")] * 30, "1,073,741,824"),
    ([{"type": "ByteLevel"}] * 20, ""),
    ([precompiled("a", "b" * 100_000)], "33,333"),
    ([precompiled("", "b" * 99_999)], "33,333"),  # a text that no short key has
    ([precompiled("a", "a" * 6)] * 2, "36"),
):
    REFUSED[f"T4-normalizers-{len(REFUSED)}"] = (file(normalizer=sequence(*parts)), f"one character into {growth}")
for parts, growth in (
    ([replace({"String": "a"}, "aaaaaaaa")] * 5, "32,768"),
    ([{"type": "CTC", "pad_token": "<p>", "word_delimiter_token": "", "cleanup": True}] * 20, "3,486,784,401"),
    ([{"type": "BPEDecoder", "suffix": ""}] * 20, "3,486,784,401"),
    ([{"type": "WordPiece", "prefix": "##", "cleanup": False}] * 20, "1,048,576"),
):
    decoders = {"type": "Sequence", "decoders": parts}
    REFUSED[f"T4-decoders-{len(REFUSED)}"] = (file(decoder=decoders), f"could turn one character into {growth}")


@pytest.mark.parametrize("fault", REFUSED)
def test_a_tokenizer_that_cannot_be_trusted_is_refused_and_nothing_is_made(
    fault: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, *told = REFUSED[fault]
    path = make()
    before = sorted(entry.name for entry in here.iterdir())
    refused(minitf("pretrain", TINY, *QUIET, "data.train=a.txt", f"tokenizer.path={path}", "-d", "out"), *told)
    assert sorted(entry.name for entry in here.iterdir()) == before
    assert capfd.readouterr().err == "", "what the library writes to file descriptor 2 itself"


def test_no_word_of_a_template_is_ever_written(here: Path) -> None:
    """T2: a template with a token that is missing crashes the library where it is used; special tokens are added by
    minitf itself.
    """
    file(post_processor=TEMPLATE, pre_tokenizer={"type": "Whitespace"})()
    assert Tokenizer.load("tokenizer.json").encode("a a b").tolist() == [1, 1, 0]


@pytest.mark.parametrize("pattern", ["(a+)+$"], ids=["T2-catastrophic-regex"])
def test_a_panic_while_encoding_is_a_refusal_without_a_backtrace(
    pattern: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The text may be what sets it off; then the file was loaded long since."""
    tokenizer = Tokenizer.load(file(pre_tokenizer=split({"Regex": pattern}))())
    for call in (tokenizer.encode, tokenizer.spans):
        with pytest.raises(DataFault, match=r"crashed while encoding text: .*retry-limit-in-match"):
            call("a" * 40 + "b")
    assert capfd.readouterr().err == ""
    assert tokenizer.encode("a").tolist() == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_crash_comes_through(error: type[BaseException]) -> None:
    """T2: a panic is no Exception, but neither is Ctrl-C."""

    def work() -> None:
        raise error

    for n_bytes in (None, 1):
        with pytest.raises(error):
            guard.call_guarded("encoding text", work, n_bytes)


def test_a_refusal_of_ours_is_no_crash_of_the_library() -> None:
    """A limit that cannot be read is read within such a call too."""

    def work() -> None:
        raise UsageFault("MINITF_LIMITS: no such limit")

    with pytest.raises(UsageFault):
        guard.call_guarded("encoding text", work)


ENDLESS = "ab" * 500_000 + "cc"


class Impatient(Future[object]):
    """Waits a tenth of the seconds that it is told to."""

    def result(self, timeout: float | None = None) -> object:
        return super().result(timeout and timeout / 10)


@pytest.mark.parametrize(
    ("part", "method"),
    [("normalizer", "encode"), ("pre_tokenizer", "encode"), ("pre_tokenizer", "spans"), ("decoder", "decode")],
)
def test_a_call_without_end_is_given_up(part: str, method: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = split(SLOW) if part == "pre_tokenizer" else replace(SLOW, "x")
    fused = {"type": "Sequence", "decoders": [{"type": "Fuse"}, slow]} if part == "decoder" else slow
    tokenizer = Tokenizer.load(file(**{part: fused}, model=words(vocab={"<unk>": 0, "ab": 1, "cc": 2}))())
    given = [1] * 500_000 + [2] if method == "decode" else ENDLESS
    monkeypatch.setenv("MINITF_LIMITS", "tokenizer_seconds=1")  # not before, since a busy machine may need it to load

    def give_up() -> None:
        guard.Future = Impatient  # type: ignore[misc]
        with pytest.raises(DataFault, match=r"timed out after 1 seconds of (en|de)coding") as caught:
            getattr(tokenizer, method)(given)
        assert "MINITF_LIMITS=tokenizer_seconds" in str(caught.value.hint)

    in_a_fork(give_up)  # the thread that is unused would take a core from all tests that follow


def test_a_process_can_leave_a_call_without_end_behind_and_can_be_interrupted(here: Path) -> None:
    """T2: exit code 4, then 130, at once, while the library goes on."""
    file(pre_tokenizer=split(SLOW))()
    Path("a.txt").write_text(ENDLESS)
    command = [sys.executable, "-m", "mini_tf", "tokenizer", "stats", "tokenizer.json", "-i", "a.txt"]
    given_up = subprocess.run(
        command,
        env=os.environ | {"MINITF_LIMITS": "tokenizer_seconds=1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (given_up.returncode, given_up.stdout) == (4, "")
    assert "timed out after" in given_up.stderr
    assert given_up.stderr.count("\n") == 1
    tokenizer = Tokenizer.load("tokenizer.json")

    class Disturbed(Future[object]):
        def result(self, timeout: float | None = None) -> object:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            return super().result(timeout)

    def interrupt() -> None:
        signal.signal(signal.SIGUSR1, signal.default_int_handler)
        guard.Future = Disturbed  # type: ignore[misc]
        with pytest.raises(KeyboardInterrupt):
            tokenizer.spans(ENDLESS)

    in_a_fork(interrupt)


def test_a_file_whose_probe_has_no_end_is_given_up(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: some patterns take for ever on any text."""
    monkeypatch.setenv("MINITF_LIMITS", "tokenizer_seconds=1")
    file(pre_tokenizer=split(SLOW))()
    monkeypatch.setattr(tokenizer_files, "PROBE", ENDLESS)

    def give_up() -> None:
        guard.Future = Impatient  # type: ignore[misc]
        with pytest.raises(DataFault, match=r"tokenizer.json: the tokenizer timed out after 1 seconds of loading"):
            Tokenizer.load("tokenizer.json")

    in_a_fork(give_up)


@pytest.mark.parametrize(
    ("pattern", "tries"), {"a?a?a?": True, "a{0,9}b": True, "(a|a)b": True, r"\s+": True, r"\S{256}|\s": False}.items()
)
def test_what_can_try_many_ways_is_watched_whatever_its_length(pattern: str, tries: bool, here: Path) -> None:
    tokenizer = Tokenizer.load(file(pre_tokenizer=split({"Regex": pattern}))())
    assert (tokenizer._timed_bytes(1, "normalizer", "pre_tokenizer") is not None) == tries


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
def test_spans_are_those_of_the_librarys_plain_call(kind: Any, here: Path) -> None:
    tokenizer = Tokenizer.train(
        sections.Tokenizer(kind=kind, **({} if kind == "char" else {"vocab_size": 300})), [WORDS]
    )
    for text in (WORDS, "one naïve 漢字 🙂🙂 e\u0301 \tcat", " "):
        plain = tokenizer._inner.encode(text, add_special_tokens=False)
        ids, spans = tokenizer.spans(text)
        assert (ids.tolist(), spans) == (plain.ids, plain.offsets)


def test_short_texts_need_no_thread_unless_a_pattern_can_try_all_ways(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread would cost a hundred times what generation pays for a token."""
    started: list[str] = []
    start = threading.Thread.start
    plain, slow = (
        Tokenizer.train(sections.Tokenizer(kind="bpe", vocab_size=280), [WORDS]),
        Tokenizer.load(file(pre_tokenizer=split(SLOW))()),
    )
    monkeypatch.setattr(threading.Thread, "start", lambda self: (started.append(self.name), start(self))[1])
    assert plain.decode(plain.encode("once there")) == "once there"
    assert started == []
    slow.encode("once")
    assert started == ["tokenizer"]
    plain.encode(WORDS * 10)
    assert started == ["tokenizer"] * 2


REAL: dict[str, list[dict[str, object]]] = {
    "llama": [{"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")],
    "clip": [{"type": "NFC"}, replace({"Regex": r"\s+"}, " "), {"type": "Lowercase"}],
    "albert": [
        replace({"String": "``"}, '"'),
        replace({"String": "''"}, '"'),
        {"type": "NFKD"},
        {"type": "StripAccents"},
        {"type": "Lowercase"},
    ],
    "punctuation": [replace({"String": sign}, f" {sign} ") for sign in ".,;:!?"],
    "lines": [
        replace({"Regex": r"\r\n?"}, "\n"),
        replace({"Regex": r"[ \t]+"}, " "),
        replace({"Regex": r"\n{3,}"}, "\n\n"),
    ],
    "t5": [precompiled("a", "bb"), replace({"Regex": " {2,}"}, "▁")],
    "dashes": [replace({"String": "…"}, "..."), replace({"String": "—"}, "--"), replace({"String": "½"}, "1/2")],
}


@pytest.mark.parametrize("name", REAL)
def test_the_normalizers_of_real_tokenizers_are_taken(name: str, here: Path) -> None:
    """T4: what one part writes and no other reads does not multiply. Every piece that the library makes of a text has
    an id.
    """
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    parts = {"normalizer": sequence(*REAL[name]), "pre_tokenizer": level}
    library, text = tokenizers.Tokenizer.from_file(file(**parts)()), "Ça va?  ``Yes'' … ½ — a\r\nb\n\n\n\nc"
    pieces = [piece for piece, _ in library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))]
    ids = {piece: id for id, piece in enumerate(dict.fromkeys(["<unk>", *pieces]))}
    assert Tokenizer.load(file(**parts, model=words(vocab=ids))()).encode(text).tolist() == [
        ids[piece] for piece in pieces
    ]


@pytest.mark.parametrize(
    ("block", "note"),
    {
        "T6-truncation": (
            {"truncation": {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}},
            "the tokenizer's truncation to 2 tokens was disabled",
        ),
        "T6-padding-to-10000000000000": (
            {
                "padding": {
                    "strategy": {"Fixed": 10_000_000_000_000},
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 0,
                    "pad_type_id": 0,
                    "pad_token": "<pad>",
                }
            },
            "the tokenizer's padding was disabled",
        ),
        "T6-dropout": ({"model": merges(["a", "b"], dropout=0.5)}, "the tokenizer's dropout of merges was disabled"),
    }.values(),
    ids=["T6-truncation", "T6-padding-to-10000000000000", "T6-dropout"],
)
def test_what_would_change_a_text_is_switched_off_and_said(block: dict[str, object], note: str, here: Path) -> None:
    tokenizer = Tokenizer.load(file(**{"pre_tokenizer": {"type": "Whitespace"}, **block})())
    assert tokenizer.notes == [note]
    text = "ab " * 50 if "model" in block else "a a a a"
    assert len(tokenizer.encode(text)) == (50 if "model" in block else 4)
    tokenizer.save("again.json")
    assert Tokenizer.load("again.json").notes == []


@pytest.mark.parametrize(
    ("pattern", "growth"),
    {"a": 4, "a*": 5, r"(?=a)": 5, r"\b": 5, "a|": 5, "[a[b]c]*": 5, r"\s{0,}": 5, "^a": 5}.items(),
)
def test_only_a_pattern_that_surely_reads_something_repositions_it(pattern: str, growth: int, here: Path) -> None:
    """T4: where it matches nothing it writes beside every character."""
    eight = replace({"String": "x"}, "xxxxxxxx")
    with pytest.raises(DataFault, match=f"could turn one character into {8 * 8 * growth}"):
        Tokenizer.load(file(normalizer=sequence(eight, eight, replace({"Regex": pattern}, "xxxx")))())


@pytest.mark.parametrize("missing", ["t", "h"], ids=["T5-a-frequent-letter", "T5-a-letter-of-the-end"])
def test_what_vanishes_in_silence_is_told(missing: str, here: Path) -> None:
    """However late in the text it first stands."""
    Path("a.txt").write_text(
        "\n\n".join(f"once upon a cup in a green fog number {n}" for n in range(2000)) + "\n\n" + WORDS * 10
    )
    letters = sorted(set(Path("a.txt").read_text()) - {missing, "\n"})
    file(model={"type": "BPE", "vocab": {letter: id for id, letter in enumerate(letters)}, "merges": []})()
    [note] = [
        one for one in opened(Data(train="a.txt"), sections.Tokenizer(path="tokenizer.json")).notes if "drops" in one
    ]
    assert re.fullmatch(r"the tokenizer drops about [0-9.]+% of the characters", note)


def test_words_that_are_unknown_are_told_and_do_not_vanish(here: Path) -> None:
    """T5: half of them; many a small vocabulary is learnt with."""
    file(
        model=words(vocab={"<unk>": 0} | {word: n for n, word in enumerate(("tale", "number", "once"), 1)}),
        pre_tokenizer=SPACES,
    )()
    notes = opened(Data(train="a.txt"), sections.Tokenizer(path="tokenizer.json")).notes
    assert any(
        "are not in the vocabulary and become the unknown token" in note and "'there' 40 times" in note
        for note in notes
    )
    assert not any("drops" in note for note in notes)


def test_a_tokenizer_without_a_separator_is_given_one(here: Path) -> None:
    """T6: and one that pads with it has its own padding left alone, since rows know which positions are padding."""
    file(model=merges(*[[a, b] for a in "abc" for b in "abc"]))()
    Path("a.txt").write_text("abc\n\n" * 3 + "cab abc\n\n" * 30)
    done = minitf("data", "stats", TINY, "data.train=a.txt", "tokenizer.path=tokenizer.json", "--json")
    assert done.exit_code == 0, done.stderr
    assert "the tokenizer has no separator token; </s> was added" in json.loads(done.stdout)["result"]["notes"]


def test_a_tokenizer_that_is_not_the_runs_own_is_refused(here: Path) -> None:
    """T7: on resume by the file that the recipe names, on use by the size that the weights have."""
    for name, size in (("one", 270), ("two", 280)):
        Tokenizer.train(sections.Tokenizer(kind="bpe", vocab_size=size), [WORDS]).save(f"{name}.json")
    Path("t.json").write_bytes(Path("one.json").read_bytes())
    run = trained(here / "run", "train.steps=4", "data.train=a.txt", "tokenizer.path=t.json")
    Path("t.json").write_bytes(Path("two.json").read_bytes())
    before = content(run)
    done = minitf("pretrain", TINY, *QUIET, "train.steps=4", "data.train=a.txt", "tokenizer.path=t.json", "-d", run)
    refused(done, "tokenizer;", "restore them", exit_code=5)
    assert content(run) == before
    (run / "tokenizer.json").write_bytes(Path("two.json").read_bytes())
    refused(minitf("generate", run, "once"), "differs from the tokenizer's 280", exit_code=5)


def test_a_chat_template_is_never_rendered(here: Path) -> None:
    """T8"""
    template = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% set x = cycler.__init__.__globals__.os.mkdir('executed') %}"
    )
    Path("model").mkdir()
    Path("model/tokenizer.json").write_bytes(Path(file(pre_tokenizer={"type": "Whitespace"})()).read_bytes())
    Path("model/tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "auto_map": {"AutoTokenizer": ["evil.py", None]}})
    )
    Path("model/chat_template.jinja").write_text(template)
    done = minitf("tokenizer", "encode", "model", "a a")
    assert (done.exit_code, done.stdout) == (0, "1 1\n"), done.stderr
    assert not Path("executed").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": words(unk_token="nowhere"), "pre_tokenizer": split({"Regex": r"[\s\S]"})},
        {
            "model": merges(),
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        },
    ],
    ids=["T5-characters-without-unknown", "T5-bytes-that-are-missing"],
)
def test_what_only_looks_like_a_kind_of_ours_is_left_to_the_library(changes: dict[str, Any], here: Path) -> None:
    file(**changes)()
    done = minitf("tokenizer", "encode", "tokenizer.json", "b")
    assert done.exit_code in (0, 4), done.stderr
    library = tokenizers.Tokenizer.from_file("tokenizer.json")
    if done.exit_code == 0:
        assert done.stdout.split() == [str(id) for id in library.encode("b").ids]
