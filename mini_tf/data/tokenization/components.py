"""What a tokenizer.json may be made of: parts that are known here, and that can neither flood memory nor kill the process.

It is read before the library sees it, since some files make the library end the whole process, which nobody can catch.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tokenizers import normalizers

from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

KNOWN = {
    "normalizer": "Sequence BertNormalizer ByteLevel Lowercase NFC NFD NFKC NFKD Nmt Precompiled Prepend Replace Strip StripAccents",
    "pre_tokenizer": "Sequence BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Metaspace Punctuation Split "
    "UnicodeScripts Whitespace WhitespaceSplit",
    "decoder": "Sequence BPEDecoder ByteFallback ByteLevel CTC Fuse Metaspace Replace Strip WordPiece",
    "post_processor": "Sequence BertProcessing ByteLevel RobertaProcessing TemplateProcessing",
    "model": "BPE Unigram WordLevel WordPiece",
}
"""Of all types that the library has, those whose effect is bounded and always the same."""
CHILDREN = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders", "post_processor": "processors"}
"""What a Sequence calls its parts."""
LONGEST_WRITTEN = 16
"""Characters that a replacement may write for a match."""
MOST_GROWTH = 32
"""Characters that all parts together may make of one. The table of XLM-R and T5 can make 11 bytes of one, and Metaspace doubles them."""
MOST_PARTS = 256
LONGEST_TOKEN = 4096
"""Characters; those of real vocabularies have some hundreds at most."""
_BACKTRACKS = re.compile(r"[(*+?]|\{[0-9]*,")
"""A pattern without any of these can be tried in one way only."""
_CHARACTER = re.compile(
    r"(?:[^\\\[\](){}|?*+^$]|\\[dDsSwWnrtfv]|\\[pP]\{\^?\w+\}|\\[][(){}|?*+^$./\\-]|\[\^?(?:\\.|[^\[\]\\])+\])(?P<times>[*+?]|\{[0-9]+,?\})?"
)
"""What reads one character, and how many times."""


def check(text: str) -> tuple[str, list[str]]:
    """A tokenizer.json as the library may read it, and what was switched off in it. DataFault where a part cannot be taken."""
    try:
        content = strict_json.parse(text)
    except ValueError as error:
        raise DataFault(f"not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataFault("not a tokenizer.json: it has no model")
    parts = {name: list(_parts(content.get(name), name)) for name in CHILDREN}
    for name, ones in parts.items():
        for one in ones:
            _refuse_unknown(name, one.get("type"))
    _refuse_floods([*parts["normalizer"], *parts["pre_tokenizer"]])
    _refuse_floods(parts["decoder"])
    _check_model(content["model"])
    _refuse_long_tokens(content)
    notes = list(_switched_off(content))
    return (json.dumps(content) if notes else text), notes


def may_backtrack(content: dict[str, Any], *names: str) -> bool:
    """Whether a part of these names searches by a pattern that can take very long even on a short text."""
    ones = (one for name in names for one in _parts(content.get(name), name))
    patterns = (one["pattern"].get("Regex", "") for one in ones if isinstance(one.get("pattern"), dict))
    return any(_BACKTRACKS.search(pattern) for pattern in patterns)


def _parts(part: Any, name: str) -> Iterator[dict[str, Any]]:
    """The part itself, or all that a Sequence of it holds, however deep."""
    waiting = [] if part is None else [part]
    for _ in range(MOST_PARTS):
        if not waiting:
            return
        one = waiting.pop(0)
        if not isinstance(one, dict):
            raise DataFault(f"its {name} is not an object")
        if one.get("type") != "Sequence":
            yield one
        elif isinstance(inner := one.get(CHILDREN[name]), list):
            waiting[:0] = inner
    raise DataFault(f"its {name} is made of more than {MOST_PARTS} parts")


def _refuse_unknown(name: str, kind: Any) -> None:
    known = KNOWN[name].split()
    if kind not in known:
        taken = ", ".join(one for one in known if one != "Sequence")
        raise DataFault(f"its {name} {short(str(kind))!r} is not known here", hint=f"known are {taken}")


class _Step(NamedTuple):
    """What a part does to the length of a text: by how much it can grow, what it reads and writes (None = anything)."""

    factor: float
    reads: set[str] | None = None
    writes: set[str] | None = None


def _refuse_floods(parts: list[dict[str, Any]]) -> None:
    """DataFault where parts, one after another, could write much more than they read: what one writes the next may multiply."""
    steps = [_step(part) for part in parts]
    grown: list[float] = []
    for number, step in enumerate(steps):
        before = (grown[i] for i in range(number) if _feeds(steps[i], step))
        grown.append(step.factor * max(1.0, *before, 1.0))
    if max(grown, default=1) > MOST_GROWTH:
        raise DataFault(f"its parts could make {max(grown):,.0f} characters of one; at most {MOST_GROWTH} are taken")


def _feeds(one: _Step, other: _Step) -> bool:
    return one.writes is None or other.reads is None or bool(one.writes & other.reads)


def _step(part: dict[str, Any]) -> _Step:
    kind = part["type"]
    if kind == "Replace":
        return _replacing(part.get("pattern"), _written(part, "content"))
    if kind == "Prepend":
        return _Step(1.0 + len(_written(part, "prepend")))
    if kind == "Precompiled":
        try:
            return _Step(_growth(str(part.get("precompiled_charsmap"))))
        except ValueError as error:
            raise DataFault(f"its Precompiled cannot be read: {error}") from None
    if (kind == "CTC" and part.get("word_delimiter_token") == "") or (kind == "BPEDecoder" and part.get("suffix") == ""):
        return _Step(3.0)  # what is nowhere and everywhere becomes a blank before and behind every character
    return _Step({"ByteLevel": 4.0, "Metaspace": 2.0, "BertNormalizer": 2.0, "WordPiece": 2.0}.get(kind, 1.0))


def _growth(charsmap: str) -> float:
    """Most bytes that a Precompiled normalizer writes for a byte of text. ValueError where its table, SentencePiece's, is none.

    It is the size of a trie (u32), the trie, and texts with a NUL behind each. What characters of one byte and of two become is
    tried, all of them; any other becomes the longest text at most.
    """
    table = base64.b64decode(charsmap, validate=True)
    begin = 4 + int.from_bytes(table[:4], "little") // 4 * 4
    if len(table) < begin:
        raise ValueError("its table is cut")
    long = max(map(len, table[begin:].split(b"\0"))) / 3
    if long > MOST_GROWTH:
        return long
    normalizer = normalizers.Precompiled(table)
    one, two = (max(len(normalizer.normalize_str(chr(c)).encode()) for c in codes) for codes in (range(0x80), range(0x80, 0x800)))
    return max(1.0, one, two / 2, long)


def _written(part: dict[str, Any], key: str) -> str:
    written = str(part.get(key, ""))
    if len(written) > LONGEST_WRITTEN:
        raise DataFault(f"its {part['type']} writes {len(written)} characters for a match; at most {LONGEST_WRITTEN} are taken")
    return written


def _replacing(pattern: Any, written: str) -> _Step:
    if not isinstance(pattern, dict):
        pattern = {}
    if isinstance(read := pattern.get("String"), str) and read:
        return _Step(max(1.0, len(written) / len(read)), set(read), set(written))
    if isinstance(read := pattern.get("Regex"), str) and _reads_something(read):
        return _Step(max(1.0, len(written)), None, set(written))
    return _Step(1.0 + len(written), None, set(written))  # it may match where nothing stands, too


def _reads_something(pattern: str) -> bool:
    """Whether a pattern surely matches no empty text; told of characters and classes of them alone, one after another."""
    place, surely = 0, False
    while one := _CHARACTER.match(pattern, place):
        place = one.end()
        surely |= one["times"] is None or (one["times"][:1] not in "*?" and one["times"][:2] != "{0")
    return surely and place == len(pattern)


def _check_model(model: dict[str, Any]) -> None:
    if "type" in model:  # the first files of this format name none
        _refuse_unknown("model", model["type"])
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if prefix and isinstance(prefix, str) and isinstance(merges, list):
        for merge in merges:
            second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1] if isinstance(merge, list) and merge else ""
            if not str(second).startswith(prefix):  # the library cuts it off unseen, and what is left may be half a character
                raise DataFault(f"its merge with {short(str(second))!r} does not go on with {short(prefix)!r}, its mark inside a word")


def _refuse_long_tokens(content: dict[str, Any]) -> None:
    """Each unknown word might come back as one."""
    vocabulary, added = content["model"].get("vocab") or [], content.get("added_tokens") or []
    tokens = [token[0] if isinstance(token, list) and token else token for token in vocabulary]
    tokens += [token.get("content") for token in added if isinstance(token, dict)]
    longest = max((len(token) for token in tokens if isinstance(token, str)), default=0)
    if longest > LONGEST_TOKEN:
        raise DataFault(f"it has a token of {longest:,} characters; at most {LONGEST_TOKEN:,} are taken")


def _switched_off(content: dict[str, Any]) -> Iterator[str]:
    """Takes out what would change a text's length or draw at random; says what."""
    cut = content.pop("truncation", None)
    if cut:
        yield f"the tokenizer would cut texts at {cut.get('max_length') if isinstance(cut, dict) else cut} tokens; switched off"
    if content.pop("padding", None):
        yield "the tokenizer would pad texts; switched off"
    if content["model"].get("dropout"):
        content["model"]["dropout"] = None
        yield "the tokenizer would leave out merges at random; switched off"
