"""Tokenizer files made elsewhere: which one is meant, and what is checked before it is trusted.

A tokenizer.json may crash the library it is for (a Rust panic is no Exception), name ids far beyond its entries, or
blow text up. All of that is refused here, with DataFault.
"""

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, pre_tokenizers

from mini_tf.errors import DataFault
from mini_tf.text import vocab_files
from mini_tf.text.guard import guarded, without_backtraces

FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
"""What a folder is searched for, in this order; a vocab.json goes with a merges.txt."""
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
OTHERS = ("[CLS]", "<s>", "<|startoftext|>", "<|im_start|>")
"""Special tokens that minitf has no use for."""


def load(path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer in a file of FILES, or in a folder that holds one, tried on a short text; and what was assumed or changed."""
    file = find(path) or path / FILES[0] if path.is_dir() else path
    try:
        with without_backtraces(), guarded("loading"):
            inner, notes = _parse(file, path)
            inner.encode_special_tokens = True
            inner.no_truncation()
            inner.encode(PROBE, add_special_tokens=False)
            notes += _keep_specials_out(inner)
    except DataFault as fault:
        message = fault.message if str(file.parent) in fault.message else f"{file}: {fault.message}"
        raise DataFault(message, hint=fault.hint, where=fault.where or (str(file),)) from None
    ids = inner.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise DataFault(f"{file}: the tokenizer has no tokens", where=(str(file),))
    if max(ids) >= len(ids) + WIDEST_GAP:
        raise DataFault(f"{file}: the highest id is {max(ids)}, but there are only {len(ids)} tokens", where=(str(file),))
    return inner, notes


def find(folder: Path) -> Path | None:
    """The file of a folder that a tokenizer is read from."""
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def _parse(file: Path, path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    text = _contents(file, path)
    names = [name for known in NAMES.values() for name in known] + list(OTHERS)
    if file.suffix == ".txt":
        return vocab_files.word_piece(file, text, _contents, names)
    if file.name.endswith("vocab.json"):
        return vocab_files.byte_level(file, text, _contents, names)
    _refuse_amplifiers(file, text)
    return tokenizers.Tokenizer.from_str(text), []


def _keep_specials_out(inner: tokenizers.Tokenizer) -> list[str]:
    """Has words split within what reads like a special token, where the model itself would read one out of text."""
    tokens = [
        token.content for id, token in sorted(inner.get_added_tokens_decoder().items()) if token.special and id != special(inner, "unk")
    ]
    names = [name for name in tokens if len(name) > 1]
    read = [name for name in names if inner.token_to_id(name) in inner.encode(name, add_special_tokens=False).ids]
    if not read:
        return []
    within = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in read)
    split = pre_tokenizers.Split(Regex(within), "isolated")
    inner.pre_tokenizer = split if inner.pre_tokenizer is None else pre_tokenizers.Sequence([inner.pre_tokenizer, split])
    return [f"the tokenizer would read {', '.join(read)} out of text; split there"]


def _near_run(path: Path) -> str | None:
    """A did-you-mean over the tokenizers of the runs in outputs."""
    runs = {file.parent.name: file.parent for file in Path("outputs").glob("*/tokenizer.json")}
    names = get_close_matches(path.name, list(runs), n=1)
    return f"did you mean {runs[names[0]]}?" if names else None


def _contents(file: Path, path: Path | None = None) -> str:
    """The text of a file of UTF-8; `path` is what was asked for."""
    where = (str(file),)
    try:
        if not file.is_file():
            hint = _near_run(path or file) or "give a tokenizer.json, vocab.txt or vocab.json, or a run or model folder that holds one"
            raise DataFault(f"{file}: {'not a file' if file.exists() else 'no such file'}", hint=hint, where=where)
        if file.stat().st_size > LARGEST_FILE:
            raise DataFault(f"{file} is larger than 64 MiB", where=where)
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataFault(f"{file}:{line}: not UTF-8, so no tokenizer", where=(f"{file}:{line}",)) from None
    except OSError as error:
        raise DataFault(f"{file}: {error.strerror or error}", where=where) from None


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
