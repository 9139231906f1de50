"""Tokenizer files made elsewhere: what is checked before one is trusted, and how its tokens read.

A tokenizer.json may crash the library it is for (a Rust panic is no Exception), name ids far beyond its entries, or
blow text up. All of that is refused here, with DataFault.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tokenizers

from mini_tf.errors import DataFault

LARGEST_FILE = 64 << 20
"""Bytes; the tokenizers of today's largest models have about 20 MB."""
WIDEST_GAP = 1024
"""Ids that may be missing below the highest one."""
PROBE = "The quick brown fox, 12 3.5\n\tnaïve 漢字 🙂 </s> [MASK] don't"

NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<PAD>", "<|finetune_right_pad_id|>"),
    "unk": ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
    "separator": ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eos|>", "[SEP]", "<|im_end|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>", "<MASK>"),
}


def _byte_alphabet() -> dict[str, int]:
    """The 256 characters in which byte-level tokenizers write bytes (GPT-2): printable Latin-1 as it is, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


BYTE_OF = _byte_alphabet()


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turns whatever the tokenizers library throws, its panics included, into a DataFault."""
    try:
        yield
    except DataFault:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFault(f"the tokenizer crashed while {doing}: {text[:200]}") from None
        raise


@contextlib.contextmanager
def _without_backtraces() -> Iterator[None]:
    """Sends file descriptor 2 nowhere for a moment: a Rust panic writes to it directly, before anyone can catch it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def load(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in a tokenizer.json, or in a folder that holds one, tried on a short text."""
    file = path / "tokenizer.json" if path.is_dir() else path
    text = _contents(file, path)
    _refuse_amplifiers(file, text)
    try:
        with _without_backtraces(), guarded("loading"):
            inner = tokenizers.Tokenizer.from_str(text)
            inner.encode_special_tokens = True
            inner.no_truncation()
            inner.encode(PROBE, add_special_tokens=False)
    except DataFault as fault:
        raise DataFault(f"{file}: {fault.message}", where=(str(file),)) from None
    ids = inner.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise DataFault(f"{file}: the tokenizer has no tokens", where=(str(file),))
    if max(ids) >= len(ids) + WIDEST_GAP:
        raise DataFault(f"{file}: the highest id is {max(ids)}, but there are only {len(ids)} tokens", where=(str(file),))
    return inner


def _near_run(path: Path) -> str | None:
    """A did-you-mean over the tokenizers of the runs in outputs."""
    runs = {file.parent.name: file.parent for file in Path("outputs").glob("*/tokenizer.json")}
    names = get_close_matches(path.name, list(runs), n=1)
    return f"did you mean {runs[names[0]]}?" if names else None


def _contents(file: Path, path: Path) -> str:
    where = (str(file),)
    try:
        if not file.is_file():
            hint = _near_run(path) or "give a tokenizer.json, or a run or model folder that holds one"
            raise DataFault(f"tokenizer.path: {file}: {'not a file' if file.exists() else 'no such file'}", hint=hint, where=where)
        if file.stat().st_size > LARGEST_FILE:
            raise DataFault(f"tokenizer.path: {file} is larger than 64 MiB", where=where)
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataFault(f"tokenizer.path: {file} is not UTF-8, so not a tokenizer.json", where=where) from None
    except OSError as error:
        raise DataFault(f"tokenizer.path: {file}: {error.strerror or error}", where=where) from None


def _refuse_amplifiers(file: Path, text: str) -> None:
    """Replacements that write more than 16 characters for a match could turn a page of text into gigabytes."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataFault(f"{file}: not JSON: {error}", where=(str(file),)) from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise DataFault(f"{file}: not a tokenizer.json: it has no model", where=(str(file),))
    waiting: list[Any] = [content.get(part) for part in ("normalizer", "pre_tokenizer")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            written = part.get("content", part.get("prepend", ""))
            if part.get("type") in ("Replace", "Prepend") and len(str(written)) > 16:
                raise DataFault(f"{file}: its {part['type']} writes {len(str(written))} characters for a match; at most 16 are taken")
            waiting += part.values()


def forbid_padding(inner: tokenizers.Tokenizer) -> list[str]:
    """Turns off truncation and padding that a file asks for; says what it turned off."""
    notes = []
    if inner.truncation is not None:
        notes.append(f"the tokenizer would cut texts at {inner.truncation['max_length']} tokens; switched off")
        inner.no_truncation()
    if inner.padding is not None:
        notes.append("the tokenizer would pad texts; switched off")
        inner.no_padding()
    return notes


def special(inner: tokenizers.Tokenizer, name: str) -> int | None:
    """The id of the token known by one of the usual names for `name`."""
    if name == "unk" and isinstance(token := getattr(inner.model, "unk_token", None), str):
        names: tuple[str, ...] = (token,)
    else:
        names = NAMES[name]
    return next((id for word in names if (id := inner.token_to_id(word)) is not None), None)


def reader_of_tokens(content: dict[str, Any]) -> Callable[[str], str]:
    """How the tokens of this tokenizer.json are read as text: byte-level, with ▁ for a blank, or as they are."""
    decoder = json.dumps(content["decoder"] or {}, ensure_ascii=False)
    if '"ByteLevel"' in decoder:
        return lambda token: _from_bytes(token) if all(c in BYTE_OF for c in token) else token
    if "▁" in decoder:
        return lambda token: _from_hexadecimal(token).replace("▁", " ")
    return lambda token: token


def _from_bytes(token: str) -> str:
    return bytes(BYTE_OF[c] for c in token).decode("utf-8", errors="backslashreplace")


def _from_hexadecimal(token: str) -> str:
    """sentencepiece writes a byte as <0x0A>."""
    found = re.fullmatch("<0x([0-9A-F]{2})>", token)
    return bytes([int(found[1], 16)]).decode("utf-8", errors="backslashreplace") if found else token
