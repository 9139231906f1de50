"""Convert SentencePiece models (spiece.model, tokenizer.model, *.spm) to tokenizer.json, whose ids are the same.

The file is a protocol buffer: pieces with scores, and a table of normalized characters, which are data. Nothing of it
is run. Source: Kudo and Richardson 2018, arXiv:1808.06226; the fields are those of sentencepiece_model.proto.

A text that begins with a space gets no second one before it, as in transformers: SentencePiece itself adds one where
spaces are kept (`remove_extra_whitespaces: false`).
"""

import base64
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mini_tf.system.errors import DataFault, Unavailable
from mini_tf.system.strict_json import short

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of pieces."""
UNIGRAM, BPE = 1, 2
UNREACHABLE = " "
"""What the name of a piece begins with that no text becomes: in a normalized text every space is ▁."""


class Piece(NamedTuple):
    """A token: its text with ▁ for a space, its log-probability or rank, and its type."""

    text: str
    score: float
    kind: int


class SentencePieceModel(NamedTuple):
    """prefix: a text gets a space before it. collapse: runs of spaces become one, those at both ends none."""

    pieces: list[Piece]
    is_unigram: bool
    unknown: int
    charsmap: bytes
    prefix: bool
    collapse: bool

    @property
    def has_bytes(self) -> bool:
        """Whether unknown characters become tokens of bytes."""
        return any(piece.kind == BYTE for piece in self.pieces)


class AddedToken(NamedTuple):
    """special: never read from text. Others are found in a text before it is normalized."""

    id: int
    text: str
    special: bool


def read_model(file: Path, content: bytes) -> SentencePieceModel:
    """The model in a file; DataFault if it is damaged or of a form that a tokenizer.json cannot express."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        hint = "pip install 'minitf[sentencepiece]', or use a tokenizer.json"
        raise Unavailable(f"{file}: reading it needs the packages sentencepiece and protobuf", hint=hint) from None
    format: Any = sentencepiece_model_pb2
    try:
        proto = format.ModelProto.FromString(content)
    except Exception as error:  # protobuf's DecodeError, whose module depends on its version
        raise DataFault.located(str(file), f"not a SentencePiece model: {str(error)[:100]}") from None
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    if not proto.pieces:
        raise DataFault.located(str(file), "not a SentencePiece model: it has no pieces")
    if trainer.model_type not in (UNIGRAM, BPE):
        raise DataFault.located(str(file), "its model splits text into words or characters; unigram and bpe are read")
    if trainer.treat_whitespace_as_suffix or not normalizer.escape_whitespaces:
        raise DataFault.located(str(file), "its pieces have no ▁ before words, which is not supported")
    pieces = [Piece(piece.piece, piece.score, piece.type) for piece in proto.pieces]
    _check_pieces(file, pieces)
    unknown = next(id for id, piece in enumerate(pieces) if piece.kind == UNKNOWN)
    collapse, charsmap = normalizer.remove_extra_whitespaces, normalizer.precompiled_charsmap
    return SentencePieceModel(
        pieces, trainer.model_type == UNIGRAM, unknown, charsmap, normalizer.add_dummy_prefix, collapse
    )


def _check_pieces(file: Path, pieces: Iterable[Piece]) -> None:
    kinds: dict[int, int] = {}
    seen: set[str] = set()
    for number, (text, score, kind) in enumerate(pieces):
        if not text or text in seen:
            raise DataFault.located(str(file), f"piece {number} {f'repeats {short(text)!r}' if text else 'is empty'}")
        if not math.isfinite(score):
            raise DataFault.located(str(file), f"the score of piece {number} {short(text)!r} is {score}")
        seen.add(text)
        kinds[kind] = kinds.get(kind, 0) + 1
    if kinds.get(UNKNOWN) != 1:
        raise DataFault.located(str(file), f"it has {kinds.get(UNKNOWN, 0)} pieces for unknown text; one is needed")
    if kinds.get(UNUSED):
        raise DataFault.located(str(file), f"{kinds[UNUSED]} of its pieces are unused, which is not supported")


def tokenizer_json(
    model: SentencePieceModel, added: Iterable[AddedToken] = (), add_prefix: bool | None = None
) -> dict[str, Any]:
    """The content of a tokenizer.json with the pieces as ids, and further tokens whose ids follow them.

    add_prefix: None is what the model says.
    """
    ids = {piece.text: id for id, piece in enumerate(model.pieces)}
    special = [
        AddedToken(id, piece.text, piece.kind != USER_DEFINED)
        for id, piece in enumerate(model.pieces)
        if piece.kind in _NAMED
    ]
    rows = [[piece.text, piece.score] for piece in model.pieces]
    prefix = model.prefix if add_prefix is None else add_prefix
    return content(model, ids, rows, [*special, *added], "first" if prefix else "never")


_NAMED = (UNKNOWN, CONTROL, USER_DEFINED)


def content(
    model: SentencePieceModel, ids: Mapping[str, int], rows: list[list[Any]], added: Iterable[AddedToken], prefix: str
) -> dict[str, Any]:
    """A tokenizer.json. ids: of all tokens. rows: tokens as text can become them, with scores, in the order of ids.

    prefix: Metaspace's prepend_scheme. The name of an unknown, control or byte piece in a text stays text: it is
    split behind its first character, since Unigram would take it.
    """
    unknown = model.pieces[model.unknown].text
    if model.is_unigram:
        inner = {"type": "Unigram", "unk_id": ids[unknown], "vocab": rows, "byte_fallback": model.has_bytes}
    else:
        inner = {"type": "BPE", "unk_token": unknown, "fuse_unk": True, "byte_fallback": model.has_bytes}
        inner |= {"vocab": {name: id for id, (name, _) in enumerate(rows)}, "merges": _merges(model.pieces)}
    unsplit = [piece.text for piece in model.pieces if piece.kind in (UNKNOWN, CONTROL, BYTE) and len(piece.text) > 1]
    steps: list[dict[str, Any]] = []
    if model.charsmap:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode()})
    if model.collapse:
        # One space at the beginning becomes the prefix: Metaspace knows the first part of a text by its offset.
        ends = r"\A +| +\z" if prefix == "never" else r" +\z"
        steps += [replacement({"Regex": ends}, ""), replacement({"Regex": " {2,}"}, " ")]
    words = SPACE in ids and all(SPACE not in piece.text[1:] for piece in model.pieces)
    splits: list[dict[str, Any]] = [
        {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": prefix, "split": words}
    ]
    if model.is_unigram and unsplit:
        names = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in unsplit if name[:3] != "<0x")
        names += ("|" if names else "") + "<(?=0x[0-9A-F]{2}>)" if model.has_bytes else ""
        splits.append({"type": "Split", "pattern": {"Regex": names}, "behavior": "MergedWithPrevious", "invert": False})
    marked = any(name.startswith(UNREACHABLE) for name, *_ in rows)
    decoders = [replacement({"String": UNREACHABLE}, "")] if marked else []
    decoders += [
        replacement({"String": SPACE}, " "),
        *([{"type": "ByteFallback"}] if model.has_bytes else []),
        {"type": "Fuse"},
    ]
    decoders += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix != "never" else []
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token) for token in sorted(added)],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": inner,
    }


def replacement(pattern: dict[str, str], text: str) -> dict[str, Any]:
    """A part of a tokenizer.json that replaces each match of a pattern."""
    return {"type": "Replace", "pattern": pattern, "content": text}


def _added(token: AddedToken) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token.id, "content": token.text, **flags, "special": token.special}


def _merges(pieces: Iterable[Piece]) -> list[list[str]]:
    """The pairs of pieces that make a piece, the one of the highest score first; pairs of one piece by their ids."""
    pieces = list(pieces)
    ids = {piece.text: id for id, piece in enumerate(pieces) if piece.kind in (NORMAL, USER_DEFINED)}
    ranked = []
    for text in ids:
        pairs = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        merges = sorted((ids[first], ids[other]) for first, other in pairs if first in ids and other in ids)
        ranked += [(-pieces[ids[text]].score, ids[text], *pair) for pair in merges]
    return [[pieces[first].text, pieces[other].text] for _, _, first, other in sorted(ranked)]
