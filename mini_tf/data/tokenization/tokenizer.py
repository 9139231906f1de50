"""Text to ids and back: tokenizers trained here (data/tokenizers), or made elsewhere (foreign.py).

All are standard tokenizer.json files. Special tokens are added by minitf itself and never read out of text: "</s>" in
data is four characters. char and byte go through a numpy table, about 100 times faster than the library.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from mini_tf.data.tokenization import loading, round_trip
from mini_tf.data.tokenization.components import may_backtrack
from mini_tf.data.tokenization.guard import called, refuse_many
from mini_tf.data.tokenization.pieces import BYTE_OF, Spelling, edges, kind_of, spelling_of
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe import sections
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import listing, settings_of

N_CODE_POINTS = 0x110000
SHORT = 512
"""Bytes, or ids, for which nothing takes long but a pattern that tries all ways."""


@dataclass(frozen=True)
class Vocabulary:
    """Number of ids, and which of them are special; None where the tokenizer has no such token."""

    size: int
    pad: int | None = None
    unk: int | None = None
    separator: int | None = None
    mask: int | None = None
    others: frozenset[int] = frozenset()
    """Special tokens of a foreign tokenizer that minitf has no use for."""

    @property
    def special_ids(self) -> frozenset[int]:
        """All ids that stand for no text."""
        return self.others.union(id for id in (self.pad, self.unk, self.separator, self.mask) if id is not None)


class Tokenizer:
    """A trained tokenizer. `notes` tells what was changed while it was loaded."""

    def __init__(self, inner: tokenizers.Tokenizer, notes: Sequence[str] = ()) -> None:
        inner.encode_special_tokens = True
        self.notes = list(notes)
        self._inner = inner
        self._json = json.loads(inner.to_str())
        self._slow: dict[tuple[str, ...], bool] = {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """From a tokenizer.json, vocab.txt or vocab.json, or a folder that holds one (a run, a model); DataFault where it is unfit."""
        return cls(*loading.load(Path(path)))

    @classmethod
    def train(cls, settings: sections.SingleTokenizer, texts: Iterable[str]) -> "Tokenizer":
        """Learn the kind of tokenizer that `settings` ask for; their `path` is not looked at."""
        inner = settings.trainer.train(settings.vocab_size, texts)
        inner.add_special_tokens(list(SPECIALS.values()))
        return cls(inner)

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """What a tokenizer.json holds."""
        return str(self._inner.to_str(pretty=True))

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(self._inner.to_str().encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        size = 1 + max(self._inner.get_vocab(with_added_tokens=True).values())
        known = {name: loading.special(self._inner, name) for name in SPECIALS}
        return Vocabulary(size, **known, others=self.spelling.special - set(known.values()))

    @property
    def kind(self) -> str:
        """The word of a recipe for a tokenizer of this kind."""
        return kind_of(self._json)

    @property
    def unit(self) -> str:
        """What a token is: a character, a byte, or a token."""
        known: Any = settings_of("data.tokenizers", self.kind) if self.kind in listing("data.tokenizers") else TokenizerSettings
        return str(known.UNIT)

    @property
    def special_tokens(self) -> dict[str, int]:
        """Every special token by name, in the order of their ids."""
        return {self.spelling.pieces[id]: id for id in sorted(self.spelling.special)}

    def with_special(self, name: str) -> "Tokenizer":
        """This tokenizer if it has the special token `pad`, `unk`, `separator` or `mask`; else one that has it as its last id."""
        if getattr(self.vocabulary, name) is not None:
            return self
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        inner.add_special_tokens([SPECIALS[name]])
        return Tokenizer(inner, [*self.notes, f"the tokenizer has no {name} token; {SPECIALS[name]} was added to it"])

    @cached_property
    def _table(self) -> Callable[[str], np.ndarray] | None:
        """The whole of `encode` as one look-up, where every character or byte is a token of its own; else None."""
        if self._json["normalizer"] or len(self._json["added_tokens"]) != sum(t["special"] for t in self._json["added_tokens"]):
            return None
        vocabulary = self._json["model"].get("vocab")
        by_character = self._json["pre_tokenizer"] == _SPLIT_CHARACTERS and self._json["model"]["type"] == "WordLevel"
        if by_character and self.vocabulary.unk is not None:
            by_point = np.full(N_CODE_POINTS, self.vocabulary.unk, np.int32)
            known = {ord(token): id for token, id in vocabulary.items() if len(token) == 1}
            by_point[list(known)] = list(known.values())
            return lambda text: by_point[np.frombuffer(text.encode("utf-32-le"), "<u4")]
        if (
            self._json["pre_tokenizer"] == _SPLIT_BYTES
            and self._json["model"] == _BARE | {"vocab": vocabulary}
            and BYTE_OF.keys() <= vocabulary.keys()
        ):
            by_byte = np.zeros(256, np.int32)
            for token, byte in BYTE_OF.items():
                by_byte[byte] = vocabulary[token]
            return lambda text: by_byte[np.frombuffer(text.encode(), np.uint8)]
        return None

    def encode(self, text: str) -> np.ndarray:
        """Ids (n,) int32, without any special token."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """As `encode`, of many texts, on all cores. DataFault where the tokenizer crashes or multiplies the text."""
        if self._table is not None:
            table = self._table
            return [table(text) for text in texts]
        return [np.array(one.ids, np.int32) for one in self._encoded(texts, self._inner.encode_batch_fast)]

    def _encoded(self, texts: Sequence[str], encode: Callable[..., list[tokenizers.Encoding]]) -> list[tokenizers.Encoding]:
        """By a function of the library that lets go of the interpreter: one for batches."""
        n_bytes = self._watched(sum(len(text.encode()) for text in texts), "normalizer", "pre_tokenizer")
        encoded = called("encoding text", lambda: encode(list(texts), add_special_tokens=False), n_bytes)
        for text, one in zip(texts, encoded, strict=True):
            refuse_many(text, len(one.ids))
        return encoded

    def spans(self, text: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """The ids of `encode`, and the characters that each stands for: text[first:last].

        Tokens that are bytes of one character all have that character's place.
        """
        [encoded] = self._encoded([text], self._inner.encode_batch)
        return np.array(encoded.ids, np.int32), list(encoded.offsets)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """TokenizedData, special tokens left out; bytes that are no character become U+FFFD."""
        numbers = [int(i) for i in ids]
        n_bytes = self._watched(len(numbers), "decoder")
        # decode_batch lets go of the interpreter, decode does not.
        return called("decoding ids", lambda: str(self._inner.decode_batch([numbers], skip_special_tokens=True)[0]), n_bytes)

    def _watched(self, n_bytes: int, *parts: str) -> int | None:
        """`n_bytes` where a call may take long: by its size, or by the patterns of these parts; else None."""
        if parts not in self._slow:
            self._slow[parts] = may_backtrack(self._json, *parts)
        return n_bytes if n_bytes > SHORT or self._slow[parts] else None

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Each id as the text it stands for, as people read it."""
        return [self.spelling.pieces[int(i)] for i in ids]

    @cached_property
    def spelling(self) -> Spelling:
        """How ids become text, one by one."""
        return spelling_of(self._json)

    @property
    def glued(self) -> bool:
        """Whether a token inside a word begins with ##, and no token holds white space (WordPiece)."""
        return (self._json["decoder"] or {}).get("type") == "WordPiece"

    @cached_property
    def has_space_prefixed_tokens(self) -> bool:
        """Whether a token may begin with the blank before its word, so that "a" and " a" are other tokens."""
        return not self.glued and any(piece[:1] == " " and piece.strip() for piece in self.spelling.pieces)

    @cached_property
    def losses(self) -> list[str]:
        """What `decode(encode(text))` does not bring back of a text, a sentence each; empty where every text comes back."""

        def back(text: str) -> str | None:
            ids = self.encode(text)
            return None if self.vocabulary.unk in ids.tolist() else self.decode(ids)

        return round_trip.losses(back, self._json, self.spelling.pieces)

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        return edges(self.spelling, self.glued)

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """True where a token begins a word, a run without white space; along the last axis, whose first place always is True.

        White space alone belongs to the word before it; a special token is a word.
        """
        begins, ends = self._edges
        starts: np.ndarray = begins[ids]
        starts[..., 1:] |= ends[ids[..., :-1]] & ~(ends[ids[..., 1:]] & ~begins[ids[..., 1:]])
        starts[..., :1] = True
        return starts

    def count_unknown_text(self, text: str) -> Counter[str]:
        """Which stretches of `text` became the unknown token, and how often."""
        unk = self.vocabulary.unk
        if unk is None:
            return Counter()
        if self._table is not None:
            ids = self._table(text)
            return Counter() if len(ids) != len(text) else Counter(text[i] for i in np.flatnonzero(ids == unk))
        return Counter(text[first:last] for id, (first, last) in zip(*self.spans(text), strict=True) if id == unk)

    def count_lost_text(self, text: str) -> Counter[str]:
        """`count_unknown_text`, and the characters that become no token at all, white space apart."""
        lost = self.count_unknown_text(text)
        if self._table is None and (self._json["normalizer"] or self.vocabulary.unk is None):
            counts = Counter(character for character in text if not character.isspace())
            encoded = zip(counts, self.encode_batch([*counts]), strict=True)
            lost |= Counter({character: counts[character] for character, ids in encoded if not ids.size})
        return lost


_BARE = json.loads(models.BPE().__getstate__())
"""A BPE that merges nothing and knows nothing of words."""
_SPLIT_CHARACTERS = json.loads(pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated").__getstate__())
_SPLIT_BYTES = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).__getstate__())
