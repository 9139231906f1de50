"""Find, check and load tokenizer files made by other tools.

A tokenizer.json may crash the library (a Rust panic is not an Exception), have ids far beyond its number of tokens,
expand text without bound, or never finish. Each of these raises DataFault.
"""

import errno
import os
import re
from pathlib import Path

import tokenizers
from tokenizers import Regex, pre_tokenizers, processors

from mini_tf.data.tokenization import vocab_files
from mini_tf.data.tokenization.guard import call_guarded, check_components
from mini_tf.data.tokenization.vocabulary import Template
from mini_tf.system import hub
from mini_tf.system.errors import DataFault, suggest
from mini_tf.system.limits import limits
from mini_tf.system.safe_files import read_plain

_MODELS = ("spiece.model", "tokenizer.model", vocab_files.FAIRSEQ, "target.spm")
FILE_NAMES = ("tokenizer.json", *_MODELS, "vocab.txt", "vocab.json")
"""The tokenizer files of a folder, in order of preference; a vocab.json needs a merges.txt or target.spm."""
SAVED_TARGETS, SAVED_SOURCES = "target_tokenizer.json", "source_tokenizer.json"
"""The tokenizers of an exported model that has two."""
MAX_UNUSED_IDS = 1024
"""Ids without a token below the highest id."""
PROBE = "The quick brown fox, 12 3.5\n\tnaïve 漢字 🙂 </s> [MASK] don't"

SPECIAL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<PAD>", "<|finetune_right_pad_id|>"),
    "unk": ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
    "separator": ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eos|>", "[SEP]", "<|im_end|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>", "<MASK>"),
}
SENTINEL = "<extra_id_{}>"
"""Name of each sentinel, from 0 on; T5's."""
OTHER_SPECIALS = ("[CLS]", "<s>", "<|startoftext|>", "<|im_start|>")
"""Special tokens that minitf does not use."""


def load(path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer of a file or folder, tested on a short text, and notes on what was assumed or changed."""
    file = find_tokenizer_file(path) or path / FILE_NAMES[0] if os.path.isdir(path) else path
    try:
        inner, notes = call_guarded("loading", lambda: _test(*_parse(file, path)), 0)
    except DataFault as fault:
        message = fault.message if str(file.parent) in fault.message else f"{file}: {fault.message}"
        raise DataFault(message, hint=fault.hint, where=fault.where or (str(file),)) from None
    ids = inner.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise DataFault.located(str(file), "the tokenizer has no tokens")
    if max(ids) >= len(ids) + MAX_UNUSED_IDS:
        raise DataFault.located(str(file), f"the highest id is {max(ids)}, but there are only {len(ids)} tokens")
    return inner, notes


def find_two(folder: Path) -> tuple[Path, Path] | None:
    """The tokenizers of targets and of sources, where a folder has two that give the ids of one vocabulary."""
    pairs = [(folder / SAVED_TARGETS, folder / SAVED_SOURCES)]
    if (file := find_tokenizer_file(folder)) is not None and file.name == "target.spm":
        pairs.append((file, folder / "source.spm"))
    return next(((first, other) for first, other in pairs if first.is_file() and other.is_file()), None)


def find_tokenizer_file(folder: Path) -> Path | None:
    """The file of a folder that its tokenizer is loaded from; None if there is none."""
    return next((folder / name for name in FILE_NAMES if os.path.isfile(folder / name)), None)


def _parse(file: Path, path: Path) -> tuple[tokenizers.Tokenizer, list[str]]:
    if file.suffix in vocab_files.SUFFIXES:
        made, notes = vocab_files.load(file, _read_bytes(file, path), _read)
        checked, more = check_components(made)
        return tokenizers.Tokenizer.from_str(checked), notes + more
    text = _read(file, path)
    names = [name for known in SPECIAL_NAMES.values() for name in known] + list(OTHER_SPECIALS)
    if file.suffix == ".txt":
        return vocab_files.word_piece(file, text, _read, names)
    if file.name.endswith("vocab.json"):
        return vocab_files.byte_level(file, text, _read, names)
    checked, notes = check_components(text)
    return tokenizers.Tokenizer.from_str(checked), notes


def _test(inner: tokenizers.Tokenizer, notes: list[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """Encode a short text, so that a tokenizer that crashes does so here."""
    inner.encode_special_tokens = True
    _ids(inner, PROBE)
    return inner, notes + _split_special_names(inner)


def _ids(inner: tokenizers.Tokenizer, text: str) -> list[int]:
    """encode_batch releases the GIL, so that a call that never returns can time out; encode does not."""
    return list(inner.encode_batch([text], add_special_tokens=False)[0].ids)


def _split_special_names(inner: tokenizers.Tokenizer) -> list[str]:
    """Make the pre-tokenizer split names of special tokens in text that the model would encode as special tokens."""
    tokens = [
        token.content
        for id, token in sorted(inner.get_added_tokens_decoder().items())
        if token.special and id != special_token_id(inner, "unk")
    ]
    names = [name for name in tokens if len(name) > 1]
    read = [name for name in names if inner.token_to_id(name) in _ids(inner, name)]
    if not read:
        return []
    within = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in read)
    split = pre_tokenizers.Split(Regex(within), "isolated")
    inner.pre_tokenizer = (
        split if inner.pre_tokenizer is None else pre_tokenizers.Sequence([inner.pre_tokenizer, split])
    )
    return [f"the tokenizer would encode {', '.join(read)} in text as special tokens; such text is split instead"]


def _near_run(path: Path) -> str | None:
    """A suggestion from the runs in outputs that have a tokenizer."""
    runs = {file.parent.name: file.parent for file in Path("outputs").glob("*/tokenizer.json")}
    return suggest(path.name, runs, shown=lambda name: str(runs[name])) or None


def _of_hub(path: Path) -> str | None:
    """How the tokenizer of a model of the hub is used."""
    name = re.sub(f".*(?={hub.PREFIX})", "", str(path)) if hub.PREFIX in str(path) else path.name
    if not hub.is_model(name):
        return None
    return f"`minitf import {hub.PREFIX}{name.removeprefix(hub.PREFIX)}` makes a run, whose name tokenizer.path takes"


def _read(file: Path, path: Path | None = None) -> str:
    """The text of a UTF-8 file without a byte order mark; `path` is the requested path, for suggestions."""
    try:
        return _read_bytes(file, path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataFault.located(f"{file}:{line}", "not UTF-8, so not a tokenizer file") from None


def _read_bytes(file: Path, path: Path | None = None) -> bytes:
    where = (str(file),)
    try:
        return read_plain(file, limits().tokenizer_bytes)
    except FileNotFoundError:
        files = "tokenizer.json, vocab.txt, vocab.json or SentencePiece model"
        near = (
            _of_hub(path or file)
            or _near_run(path or file)
            or f"use a {files}, or a run or model folder that contains one"
        )
        raise DataFault(f"{file}: no such file", hint=near, where=where) from None
    except OSError as error:
        hint = "MINITF_LIMITS=tokenizer_bytes=256M would allow it" if error.errno == errno.EFBIG else None
        raise DataFault(f"{file}: {error.strerror or error}", hint=hint, where=where) from None
    except ValueError:
        raise DataFault(f"{str(file)!r} is not a file name") from None


def special_token_id(inner: tokenizers.Tokenizer, name: str) -> int | None:
    """The id of the special token pad, unk, separator or mask, by its usual names; None if there is none."""
    if name == "unk" and isinstance(token := getattr(inner.model, "unk_token", None), str):
        names: tuple[str, ...] = (token,)
    else:
        names = SPECIAL_NAMES[name]
    return next((id for word in names if (id := inner.token_to_id(word)) is not None), None)


def sentinel_ids(inner: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The ids of the sentinels, up to the first that does not exist."""
    ids = list[int]()
    while (id := inner.token_to_id(SENTINEL.format(len(ids)))) is not None:
        ids.append(id)
    return tuple(ids)


def template_of(inner: tokenizers.Tokenizer) -> Template | None:
    """What a tokenizer's post-processor adds to texts; None if it has none."""
    if inner.post_processor is None:
        return None

    def added() -> Template:
        text = inner.post_process(inner.encode(PROBE, add_special_tokens=False))
        of_text = [n for n, sequence in enumerate(text.sequence_ids) if sequence is not None]
        return Template(tuple(text.ids[: of_text[0]]), tuple(text.ids[of_text[-1] + 1 :]))

    return call_guarded("adding special tokens", added)


def without_template(inner: tokenizers.Tokenizer) -> str:
    """The content of tokenizer.json without the post-processor, which changes no ids of a text."""
    template, inner.post_processor = inner.post_processor, None
    content: str = inner.to_str()
    inner.post_processor = template
    return content


def with_beginning(inner: tokenizers.Tokenizer, name: str | None) -> tokenizers.Tokenizer:
    """A copy with a post-processor that puts the special token `name` before a text; None: nothing."""
    changed = tokenizers.Tokenizer.from_str(inner.to_str())
    tokens = [] if name is None else [(name, inner.token_to_id(name))]
    changed.post_processor = processors.TemplateProcessing([*(name for name, _ in tokens), "$A"], special_tokens=tokens)
    return changed
