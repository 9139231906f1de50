"""Load older tokenizer files: vocab.txt (BERT's WordPiece), and vocab.json with merges.txt (GPT-2's byte-level BPE).

Options come from a tokenizer_config.json in the same folder.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from mini_tf.system import strict_json
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

Read = Callable[[Path], str]
"""Reads the text of a file; DataFault if it cannot be read."""


def word_piece(file: Path, text: str, read: Read, names: Sequence[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer of a vocab.txt, whose line n is token n - 1, and notes on what was assumed. names: names of special
    tokens.

    Text is lower-cased if do_lower_case is true, or if it is absent and no token has an upper-case letter.
    """
    tokens = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if not token or token in vocabulary:
            problem = f"repeats the token {short(token)!r} of line {vocabulary[token] + 1}" if token else "is empty; a line must be a token"
            raise DataFault.located(f"{file}:{number}", f"the line {problem}")
        vocabulary[token] = number - 1
    unknown = next((name for name in ("[UNK]", "<unk>", "<UNK>") if name in vocabulary), None)
    if unknown is None:
        raise DataFault.located(str(file), "no line is [UNK], the token of words outside the vocabulary")
    config = config_of(file.parent, read)
    special = [name for name in names if name in vocabulary]
    lower = config.get("do_lower_case")
    notes = []
    if lower is None:
        lower = all(token == token.lower() for token in vocabulary.keys() - set(special))
        notes.append(f"{file} has {'no' if lower else 'an'} upper-case letter, so text is {'' if lower else 'not '}lower-cased")
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=100))
    inner.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
        strip_accents=config.get("strip_accents"),
        lowercase=lower,
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece("##", cleanup=False)
    inner.add_special_tokens(special)
    return inner, notes


def byte_level(file: Path, text: str, read: Read, names: Sequence[str]) -> tuple[tokenizers.Tokenizer, list[str]]:
    """The tokenizer of a vocab.json and the merges.txt in the same folder."""
    vocabulary = numbers(file, text)
    merges = _merges(file.with_name(file.name[: -len("vocab.json")] + "merges.txt"), read, vocabulary)
    inner = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    prefix = config_of(file.parent, read).get("add_prefix_space") is True
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([name for name in names if name in vocabulary])
    return inner, []


def numbers(file: Path, text: str) -> dict[str, int]:
    """The ids by token of a vocab.json; DataFault unless they are different whole numbers."""
    vocabulary = json_object(file, text)
    tokens: dict[int, str] = {}
    for token, id in vocabulary.items():
        if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 1 << 32:
            number = json.dumps(id)[:40]
            raise DataFault.located(str(file), f"the id of the token {short(token)!r} is {number}, not a whole number of at least 0")
        if id in tokens:
            raise DataFault.located(str(file), f"the tokens {short(tokens[id])!r} and {short(token)!r} both have the id {id}")
        tokens[id] = token
    return vocabulary


def _merges(file: Path, read: Read, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(read(file).replace("\r\n", "\n").split("\n"), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        where = f"{file}:{number}"
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise DataFault.located(where, f"a merge must be two tokens separated by a space, got {line[:80]!r}")
        for token in (*parts, "".join(parts)):
            if token not in vocabulary:
                raise DataFault.located(where, f"the token {short(token)!r} is not in vocab.json")
        merges.append((parts[0], parts[1]))
    return merges


def config_of(folder: Path, read: Read) -> dict[str, Any]:
    """The content of tokenizer_config.json; {} if there is none."""
    file = folder / "tokenizer_config.json"
    config = json_object(file, read(file)) if file.is_file() else {}
    for key in ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "add_prefix_space"):
        if not isinstance(config.get(key), bool | None):
            raise DataFault.located(str(file), f"{key} must be true, false or null, got {json.dumps(config[key])[:80]}")
    return config


def json_object(file: Path, text: str) -> dict[str, Any]:
    """The content of a JSON file, which must be an object."""
    try:
        content = strict_json.parse(text)
    except ValueError as error:
        raise DataFault.located(str(file), f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataFault.located(str(file), "must be a JSON object")
    return content
