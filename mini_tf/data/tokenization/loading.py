"""Tokenizer files made elsewhere: which one is meant, and what is checked before it is trusted.

A tokenizer.json may crash the library it is for (a Rust panic is no Exception), name ids far beyond its entries, blow text
up, or never come to an end. All of that is refused, with DataFault.
"""

import errno
import os
import re
from difflib import get_close_matches
from pathlib import Path

import tokenizers
from tokenizers import Regex, pre_tokenizers

from mini_tf.data.tokenization import components, vocab_files
from mini_tf.data.tokenization.guard import called
from mini_tf.system.errors import DataFault
from mini_tf.system.limits import limits
from mini_tf.system.plain_file import read_plain

FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
"""What a folder is searched for, in this order; a vocab.json goes with a merges.txt."""
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
    file = find(path) or path / FILES[0] if os.path.isdir(path) else path
    try:
        inner, notes = called("loading", lambda: _tried(*_parse(file, path)), 0)
    except DataFault as fault:
        message = fault.message if str(file.parent) in fault.message else f"{file}: {fault.message}"
        raise DataFault(message, hint=fault.hint, where=fault.where or (str(file),)) from None
    ids = inner.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise DataFault.located(str(file), "the tokenizer has no tokens")
    if max(ids) >= len(ids) + WIDEST_GAP:
        raise DataFault.located(str(file), f"the highest id is {max(ids)}, but there are only {len(ids)} tokens")
    return inner, notes


def find(folder: Path) -> Path | None:
    """The file of a folder that a tokenizer is read from."""
    return next((folder / name for name in FILES if os.path.isfile(folder / name)), None)


def _parse(file: Path, path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    text = _contents(file, path)
    names = [name for known in NAMES.values() for name in known] + list(OTHERS)
    if file.suffix == ".txt":
        return vocab_files.word_piece(file, text, _contents, names)
    if file.name.endswith("vocab.json"):
        return vocab_files.byte_level(file, text, _contents, names)
    checked, notes = components.check(text)
    return tokenizers.Tokenizer.from_str(checked), notes


def _tried(inner: tokenizers.Tokenizer, notes: list[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer after a short text; what can crash crashes here."""
    inner.encode_special_tokens = True
    _ids(inner, PROBE)
    return inner, notes + _keep_specials_out(inner)


def _ids(inner: tokenizers.Tokenizer, text: str) -> list[int]:
    """encode_batch lets go of the interpreter, so a probe without end is given up; encode does not."""
    return list(inner.encode_batch([text], add_special_tokens=False)[0].ids)


def _keep_specials_out(inner: tokenizers.Tokenizer) -> list[str]:
    """Has words split within what reads like a special token, where the model itself would read one out of text."""
    tokens = [
        token.content for id, token in sorted(inner.get_added_tokens_decoder().items()) if token.special and id != special(inner, "unk")
    ]
    names = [name for name in tokens if len(name) > 1]
    read = [name for name in names if inner.token_to_id(name) in _ids(inner, name)]
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
        return read_plain(file, limits().tokenizer_bytes).decode("utf-8")
    except FileNotFoundError:
        near = _near_run(path or file) or "give a tokenizer.json, vocab.txt or vocab.json, or a run or model folder that holds one"
        raise DataFault(f"{file}: no such file", hint=near, where=where) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataFault.located(f"{file}:{line}", "not UTF-8, so no tokenizer") from None
    except OSError as error:
        hint = "MINITF_LIMITS=tokenizer_bytes=256M would allow it" if error.errno == errno.EFBIG else None
        raise DataFault(f"{file}: {error.strerror or error}", hint=hint, where=where) from None
    except ValueError:
        raise DataFault(f"{str(file)!r} is not a file name") from None


def special(inner: tokenizers.Tokenizer, name: str) -> int | None:
    """The id of the token known by one of the usual names for `name`."""
    if name == "unk" and isinstance(token := getattr(inner.model, "unk_token", None), str):
        names: tuple[str, ...] = (token,)
    else:
        names = NAMES[name]
    return next((id for word in names if (id := inner.token_to_id(word)) is not None), None)
