"""Load SentencePiece tokenizers as the folders of models have them: T5, Llama, Marian.

T5 has sentinels behind its pieces, which no file lists. Marian has a model for each language, source.spm and
target.spm, whose pieces have their ids in a common vocab.json.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mini_tf.data.tokenization import vocab_files
from mini_tf.data.tokenization.sentencepiece_models import (
    CONTROL,
    UNKNOWN,
    UNREACHABLE,
    AddedToken,
    SentencePieceModel,
    content,
    read_model,
    replacement,
    tokenizer_json,
)
from mini_tf.data.tokenization.vocab_files import Read
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

SUFFIXES = (".model", ".spm")
T5_SENTINELS = 100
LANGUAGE = re.compile(">>[^<>]+<<")
"""A token of Marian's models for several languages: the language to translate to, written before the text."""


def load(file: Path, data: bytes, read: Read) -> tuple[str, list[str]]:
    """The tokenizer.json of a SentencePiece model, and notes on what was assumed. data: of the file."""
    model = read_model(file, data)
    vocabulary = file.with_name("vocab.json")
    if file.suffix == ".spm" and vocabulary.is_file():
        made, notes = _marian(file, model, vocab_files.numbers(vocabulary, read(vocabulary)), vocabulary)
    else:
        config = vocab_files.config_of(file.parent, read)
        made, notes = tokenizer_json(model, _added(file, model, config, read), config.get("add_prefix_space")), []
    return json.dumps(made), notes


def _added(file: Path, model: SentencePieceModel, config: Mapping[str, Any], read: Read) -> list[AddedToken]:
    """The tokens behind the pieces: sentinels of T5, and those that tokenizer_config.json or added_tokens.json has."""
    size, n_sentinels = len(model.pieces), _n_sentinels(file.parent, config, read)
    named = {size + n: (f"<extra_id_{n_sentinels - 1 - n}>", True) for n in range(n_sentinels)}
    listed = config.get("added_tokens_decoder") or {}
    old = file.with_name("added_tokens.json")
    where = file.with_name("tokenizer_config.json") if listed or not old.is_file() else old
    if where == old:
        listed = {id: {"content": name, "special": True} for name, id in vocab_files.numbers(old, read(old)).items()}
    try:
        named |= {int(id): (str(one["content"]), bool(one.get("special"))) for id, one in listed.items() if int(id) >= size}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataFault.located(str(where), 'its added tokens must have the form {"32000": {"content": "<pad>"}}') from None
    if sorted(named) != [*range(size, size + len(named))]:
        raise DataFault.located(str(where), f"the ids of added tokens must follow {size - 1}, the last one of {file.name}")
    return [AddedToken(id, *named[id]) for id in sorted(named)]


def _n_sentinels(folder: Path, config: Mapping[str, Any], read: Read) -> int:
    """`extra_ids`, which T5 has 100 of where nothing is said."""
    path = folder / "config.json"
    model = vocab_files.json_object(path, read(path)) if path.is_file() else {}
    is_t5 = model.get("model_type") == "t5" or str(config.get("tokenizer_class")).startswith("T5")
    n = config.get("extra_ids", T5_SENTINELS if is_t5 else 0)
    if type(n) is not int or not 0 <= n <= 10_000:
        raise DataFault.located(str(folder / "tokenizer_config.json"), f"extra_ids is {short(str(n))}, not a whole number from 0 to 10000")
    return n


def _marian(file: Path, model: SentencePieceModel, ids: dict[str, int], vocabulary: Path) -> tuple[dict[str, Any], list[str]]:
    """The tokenizer of one language of a Marian model: its pieces by their ids in vocab.json.

    A token that only the other language has is found in text where it is one character that this language's model does
    not know; a run of such characters is the unknown token. So it is in transformers, where also a run can be a token.
    """
    unknown = model.pieces[model.unknown].text
    names = sorted(ids, key=ids.__getitem__)
    if unknown not in ids or [ids[name] for name in names] != [*range(len(names))]:
        raise DataFault.located(str(vocabulary), f"its ids must be 0, 1, 2 and so on, and {short(unknown)!r} one of its tokens")
    hidden = {piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL)} | {"<pad>", "</s>", unknown}
    own = {piece.text: piece.score for piece in model.pieces if piece.text in ids and piece.text not in hidden}
    if not own:
        raise DataFault.located(str(vocabulary), f"it has no piece of {file.name}")
    least = min(own.values())
    named = [AddedToken(ids[name], name, name in hidden) for name in names if name in hidden or LANGUAGE.fullmatch(name)]
    known = set(" ").union(*(piece.text for piece in model.pieces if piece.text not in hidden))
    plain = own.keys() | {token.text for token in named} | {name for name in names if len(name) == 1 and name not in known}
    rows = [[name if name in plain else UNREACHABLE + name, own.get(name, least)] for name in names]
    lost = sum(piece.text not in ids and piece.text not in hidden for piece in model.pieces)
    notes = [f"{vocabulary.name} lacks {lost} of {len(model.pieces)} pieces of {file.name}, which are never used"] if lost else []
    made = content(model, ids, rows, named, "always" if model.prefix else "never")
    strange = next(one for one in map(chr, range(0xE000, 0xF900)) if one not in ids and one not in known)
    run = replacement({"Regex": f"[^{''.join(map(re.escape, sorted(known)))}]{{2,}}"}, strange)
    return made | {"normalizer": {"type": "Sequence", "normalizers": [*made["normalizer"]["normalizers"], run]}}, notes
