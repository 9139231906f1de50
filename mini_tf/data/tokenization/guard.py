"""Tokenizers of other tools can neither crash this process, nor flood its memory, nor run without end.

A tokenizer.json is checked before the library reads it, since some files abort the whole process inside the library: it
must have only supported components. Calls of the library turn crashes (Rust panics are no Exceptions), timeouts and
token floods into DataFault.
"""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from typing import Any, NamedTuple, TypeVar

from tokenizers import normalizers

from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault, MinitfError
from mini_tf.system.limits import limits
from mini_tf.system.reporting import suppressed_stderr
from mini_tf.system.strict_json import short

Result = TypeVar("Result")
BYTES_PER_TIMEOUT = 4 << 20
"""Bytes that may take limits().tokenizer_seconds."""


def call_guarded(doing: str, work: Callable[[], Result], n_bytes: int | None = None) -> Result:
    """The result of `work`, a call of the library. Raises DataFault if it crashes or takes too long for `n_bytes`.

    Without `n_bytes` there is no timeout: for a few bytes a thread would cost a hundred times as much as the call. With
    it the call runs in a thread, which is abandoned at a timeout: the library releases the GIL and cannot be
    interrupted.
    """
    with suppressed_stderr(), guarded(doing):
        if n_bytes is None:
            return work()
        return _in_time(doing, work, limits().tokenizer_seconds * max(1.0, n_bytes / BYTES_PER_TIMEOUT))


def _in_time(doing: str, work: Callable[[], Result], seconds: float) -> Result:
    try:
        return _in_thread(work)[0].result(seconds)
    except OutOfTime:  # not the built-in TimeoutError before Python 3.11
        hint = "use another tokenizer, or raise the limit with MINITF_LIMITS=tokenizer_seconds=600"
        raise DataFault(f"the tokenizer timed out after {seconds:,.0f} seconds of {doing}", hint=hint) from None


def _in_thread(work: Callable[[], Result]) -> tuple[Future[Result], threading.Thread]:
    """The result of `work`, or its error, and the daemon thread that it comes from."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="tokenizer", daemon=True)
    thread.start()
    return future, thread


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn every exception of the tokenizers library, panics included, into a DataFault; minitf's own errors pass."""
    try:
        yield
    except MinitfError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFault(f"the tokenizer crashed while {doing}: {text[:200]}") from None
        raise


def check_token_count(text: str, n_tokens: int) -> None:
    """Raise DataFault if a text has far more tokens than bytes."""
    if n_tokens > 64 + limits().tokenizer_tokens * len(text.encode()):
        fault = f"the tokenizer makes {n_tokens} tokens from {len(text)} characters, too many; use another tokenizer"
        raise DataFault(fault)


_POLL_SECONDS = 0.1
"""Python handles a signal only between two polls of the thread."""


def interruptible_call(work: Callable[[], Result]) -> Result:
    """The result of `work`, from a thread that has ended, so that the process may fork; an interrupt does not wait."""
    future, thread = _in_thread(work)
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
    return future.result()


SUPPORTED = {
    "normalizer": (
        "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip"
        " StripAccents"
    ),
    "pre_tokenizer": (
        "Sequence BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
        "UnicodeScripts Whitespace WhitespaceSplit"
    ),
    "decoder": "Sequence BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece",
    "post_processor": "Sequence BertProcessing ByteLevel RobertaProcessing TemplateProcessing",
    "model": "BPE Unigram WordLevel WordPiece",
}
"""The component types of the library whose effect is bounded and deterministic."""
CHILDREN = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}
"""The key of a Sequence's parts, by component."""
MAX_REPLACEMENT = 16
"""Characters that a replacement may write per match."""
MAX_GROWTH = 32
"""Characters that all parts together may write per character. The table of XLM-R and T5 can write 11 bytes per byte,
and Metaspace doubles them.
"""
MAX_PARTS = 256
MAX_TOKEN_LENGTH = 4096
"""Characters; tokens of real vocabularies have at most some hundreds."""
_BACKTRACKS = re.compile(r"[(*+?]|\{[0-9]*,")
"""A pattern without any of these cannot backtrack."""
_CHARACTER = re.compile(
    r"(?:[^\\\[\](){}|?*+^$]|\\[dDsSwWnrtfv]|\\[pP]\{\^?\w+\}|\\[][(){}|?*+^$./\\-]|\[\^?(?:\\.|[^\[\]\\])+\])(?P<times>[*+?]|\{[0-9]+,?\})?"
)
"""A pattern for one character, with its quantifier."""


def check_components(text: str) -> tuple[str, list[str]]:
    """The content of a tokenizer.json that is safe to load, and notes on what was disabled. DataFault if it is not."""
    try:
        content = strict_json.parse(text)
    except ValueError as error:
        raise DataFault(f"not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataFault("not a tokenizer.json: it has no model")
    parts = {name: list(_parts(content.get(name), name)) for name in CHILDREN}
    for name, kinds in parts.items():
        for part in kinds:
            _check_supported(name, part.get("type"))
    _check_growth([*parts["normalizer"], *parts["pre_tokenizer"]])
    _check_growth(parts["decoder"])
    _check_model(content["model"])
    _check_token_lengths(content)
    notes = list(_disable(content))
    return (json.dumps(content) if notes else text), notes


def may_backtrack(content: dict[str, Any], *names: str) -> bool:
    """Whether one of these components has a regex that may backtrack, so that even a short text can take very long."""
    ones = (part for name in names for part in _parts(content.get(name), name))
    patterns = (part["pattern"].get("Regex", "") for part in ones if isinstance(part.get("pattern"), dict))
    return any(_BACKTRACKS.search(pattern) for pattern in patterns)


def _parts(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """The part itself, or all parts of a Sequence, nested ones included."""
    queue = [] if part is None else [part]
    for _ in range(MAX_PARTS):
        if not queue:
            return
        part = queue.pop(0)
        if not isinstance(part, dict):
            raise DataFault(f"its {name} is not an object")
        if part.get("type") != "Sequence":
            yield part
        elif isinstance(inner := part.get(CHILDREN[name]), list):
            queue[:0] = inner
    raise DataFault(f"its {name} has more than {MAX_PARTS} parts")


def _check_supported(name: str, kind: Any) -> None:
    supported = SUPPORTED[name].split()
    if kind not in supported:
        listed = ", ".join(other for other in supported if other != "Sequence")
        raise DataFault(f"its {name} {short(str(kind))!r} is not supported", hint=f"use one of {listed}")


class _Step(NamedTuple):
    """The largest growth factor of a part, and the characters it reads and writes (None = any)."""

    factor: float
    reads: set[str] | None = None
    writes: set[str] | None = None

    def feeds(self, other: "_Step") -> bool:
        return self.writes is None or other.reads is None or bool(self.writes & other.reads)


def _check_growth(parts: list[dict[str, Any]]) -> None:
    """Raise DataFault if the parts in sequence could write much more than they read; the growth factors multiply."""
    steps = [_step(part) for part in parts]
    grown: list[float] = []
    for number, step in enumerate(steps):
        before = (grown[n] for n, other in enumerate(steps[:number]) if other.feeds(step))
        grown.append(step.factor * max(1.0, *before, 1.0))
    if max(grown, default=1) > MAX_GROWTH:
        raise DataFault(f"its parts could turn one character into {max(grown):,.0f}; at most {MAX_GROWTH} are allowed")


def _step(part: dict[str, Any]) -> _Step:
    kind = part["type"]
    if kind == "Replace":
        return _replacement_step(part.get("pattern"), _replacement(part, "content"))
    if kind == "Prepend":
        return _Step(1.0 + len(_replacement(part, "prepend")))
    if kind == "Precompiled":
        try:
            return _Step(_growth(str(part.get("precompiled_charsmap"))))
        except ValueError as error:
            raise DataFault(f"its Precompiled cannot be read: {error}") from None
    if part.get({"CTC": "word_delimiter_token", "BPEDecoder": "suffix"}.get(kind, "")) == "":
        return _Step(3.0)  # the empty text matches before and after every character, and becomes a space
    return _Step({"ByteLevel": 4.0, "Metaspace": 2.0, "BertNormalizer": 2.0, "WordPiece": 2.0}.get(kind, 1.0))


def _growth(charsmap: str) -> float:
    """The most bytes that a Precompiled normalizer writes per byte. ValueError if its SentencePiece table is not valid.

    The table is the size of a trie (u32), the trie, and NUL-terminated texts. All characters of one and two bytes are
    tried; any other becomes at most the longest text.
    """
    table = base64.b64decode(charsmap, validate=True)
    start = 4 + int.from_bytes(table[:4], "little") // 4 * 4
    if len(table) < start:
        raise ValueError("its table is truncated")
    longest = max(map(len, table[start:].split(b"\0"))) / 3
    if longest > MAX_GROWTH:
        return longest
    normalizer = normalizers.Precompiled(table)
    written = [len(normalizer.normalize_str(chr(code)).encode()) for code in range(0x800)]
    return max(1.0, *written[:0x80], *(n / 2 for n in written[0x80:]), longest)


def _replacement(part: dict[str, Any], key: str) -> str:
    text = str(part.get(key, ""))
    if len(text) > MAX_REPLACEMENT:
        fault = f"its {part['type']} writes {len(text)} characters per match; at most {MAX_REPLACEMENT} are allowed"
        raise DataFault(fault)
    return text


def _replacement_step(pattern: Any, written: str) -> _Step:
    if not isinstance(pattern, dict):
        pattern = {}
    if isinstance(read := pattern.get("String"), str) and read:
        return _Step(max(1.0, len(written) / len(read)), set(read), set(written))
    if isinstance(read := pattern.get("Regex"), str) and _never_matches_empty(read):
        return _Step(max(1.0, len(written)), None, set(written))
    return _Step(1.0 + len(written), None, set(written))  # it may also match the empty text


def _never_matches_empty(pattern: str) -> bool:
    """True only for a sequence of characters and character classes of which at least one is required."""
    position, required = 0, False
    while match := _CHARACTER.match(pattern, position):
        position = match.end()
        required |= match["times"] is None or (match["times"][:1] not in "*?" and match["times"][:2] != "{0")
    return required and position == len(pattern)


def _check_model(model: dict[str, Any]) -> None:
    if "type" in model:  # the first files of this format have no type
        _check_supported("model", model["type"])
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if prefix and isinstance(prefix, str) and isinstance(merges, list):
        for merge in merges:
            pair = merge.partition(" ") if isinstance(merge, str) else merge
            second = str(pair[-1]) if isinstance(pair, tuple | list) and pair else ""
            if not second.startswith(prefix):  # the library removes it unchecked, and may cut a character in half
                subject = f"the second token {short(second)!r} of a merge"
                raise DataFault(f"{subject} must start with its prefix inside words, {short(prefix)!r}")


def _check_token_lengths(content: dict[str, Any]) -> None:
    """Raise DataFault for a very long token: each unknown word could decode to it."""
    vocabulary, added = content["model"].get("vocab") or [], content.get("added_tokens") or []
    tokens = [token[0] if isinstance(token, list) and token else token for token in vocabulary]
    tokens += [token.get("content") for token in added if isinstance(token, dict)]
    longest = max((len(token) for token in tokens if isinstance(token, str)), default=0)
    if longest > MAX_TOKEN_LENGTH:
        raise DataFault(f"it has a token of {longest:,} characters; at most {MAX_TOKEN_LENGTH:,} are allowed")


def _disable(content: dict[str, Any]) -> Iterator[str]:
    """Remove truncation, padding and dropout in place; yields a note for each."""
    cut = content.pop("truncation", None)
    if cut:
        most = cut.get("max_length") if isinstance(cut, dict) else cut
        yield f"the tokenizer's truncation to {most} tokens was disabled"
    if content.pop("padding", None):
        yield "the tokenizer's padding was disabled"
    if content["model"].get("dropout"):
        content["model"]["dropout"] = None
        yield "the tokenizer's dropout of merges was disabled"
