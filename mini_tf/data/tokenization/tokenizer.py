"""Encode and decode text with a tokenizer trained by minitf (data/tokenizers) or loaded from a file (tokenizer_files).

All are standard tokenizer.json files. Special tokens are added by minitf and never encoded from text: "</s>" in data is
four characters. char and byte use a numpy table, about 100 times as fast as the library.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import normalizers

from mini_tf.data.tokenization import tokenizer_files
from mini_tf.data.tokenization.guard import call_guarded, check_token_count, may_backtrack
from mini_tf.data.tokenization.pieces import (
    PieceTable,
    kind_of,
    lookup_table,
    piece_table_of,
    round_trip_losses,
    sentence_edges,
    texts_of,
    word_edges,
)
from mini_tf.data.tokenization.sentencepiece_models import UNREACHABLE
from mini_tf.data.tokenization.vocabulary import Roles, Vocabulary
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.recipe import sections
from mini_tf.recipe.kind_settings import TokenizerSettings
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

SHORT_INPUT = 512
"""Bytes, or ids, that are fast unless a regex backtracks."""


class Tokenizer:
    """A trained tokenizer; notes: what was changed or assumed when it was loaded."""

    reads_masks = False
    """[MASK] in a text is a mask, not plain text: see `prompts`."""

    def __init__(self, inner: tokenizers.Tokenizer, notes: Sequence[str] = (), roles: Roles = Roles()) -> None:
        inner.encode_special_tokens = True
        self.notes, self._inner, self._json = list(notes), inner, json.loads(inner.to_str())
        self._roles = roles if self._json["post_processor"] else roles._replace(keeps_template=False)
        self._slow: dict[tuple[str, ...], bool] = {}
        self.added_texts: dict[tuple[int, ...], str] = {}  # what `TextStream` remembers

    @classmethod
    def load(cls, path: str | os.PathLike[str], roles: Roles = Roles()) -> "Tokenizer":
        """Load a tokenizer.json, vocab.txt, vocab.json or SentencePiece model, or that of a folder; or DataFault."""
        loaded = cls(*tokenizer_files.load(Path(path)), roles)
        for key in ("separator", "begin", "pad"):
            if (name := getattr(roles, key)) is not None and name not in loaded.special_tokens:
                fault = f"the tokenizer has no special token {short(name)!r} (tokenizer.{key})"
                raise DataFault.located(str(path), fault)
        if roles.forced_bos is not None and roles.forced_bos >= (size := loaded.vocabulary.size):
            fault = f"the tokenizer has {size} ids, so none is {roles.forced_bos} (tokenizer.forced_bos)"
            raise DataFault.located(str(path), fault)
        return loaded

    @classmethod
    def train(cls, settings: sections.SingleTokenizer, texts: Iterable[str]) -> "Tokenizer":
        """Train a tokenizer of the kind in `settings`, whose `path` is ignored."""
        if settings.lowercase:
            texts = map(normalizers.Lowercase().normalize_str, texts)
        inner = settings.trainer.train(settings.vocab_size, texts)
        if settings.lowercase:
            lowercase, existing = normalizers.Lowercase(), inner.normalizer
            inner.normalizer = lowercase if existing is None else normalizers.Sequence([lowercase, existing])
        inner.add_special_tokens(list(SPECIALS.values()))
        return cls(inner)

    def save(self, path: str | os.PathLike[str]) -> None:
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The content of tokenizer.json."""
        return str(self._inner.to_str(pretty=True))

    @cached_property
    def hash(self) -> str:
        names = {key: getattr(self._roles, key) for key in ("separator", "begin", "pad")}
        roles = "".join(f"\0{key}={name}" for key, name in names.items() if name is not None)
        return hashlib.sha256(f"{tokenizer_files.without_template(self._inner)}{roles}".encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        size = 1 + max(self._inner.get_vocab(with_added_tokens=True).values())
        known: dict[str, Any] = {name: tokenizer_files.special_token_id(self._inner, name) for name in SPECIALS}
        usual, roles = known["separator"], self._roles
        for name in ("separator", "pad"):
            if (token := getattr(roles, name)) is not None:
                known[name] = self._inner.token_to_id(token)
        begin = None if roles.begin is None else self._inner.token_to_id(roles.begin)
        begin = None if begin == known["separator"] else begin
        separators = () if roles.keeps_template and roles.ends else (known["separator"],)
        ends = tuple(dict.fromkeys(id for id in (*(roles.ends or (usual,)), *separators) if id is not None))
        others = self.piece_table.special - set(known.values())
        texts = texts_of(self.piece_table, self.is_wordpiece)
        template = tokenizer_files.template_of(self._inner) if roles.keeps_template else None
        sentinels, inside = tokenizer_files.sentinel_ids(self._inner), self.piece_table.inside_characters
        roles_of_ids: Any = (others, sentinels, ends, begin, roles.forced_bos, template, inside, texts)
        return Vocabulary(size, *known.values(), *roles_of_ids)

    def splits_as_other_language(self, other: "Tokenizer") -> bool:
        """Whether both have the same ids for the same tokens, of which each finds its own in text: those of Marian."""
        vocabulary = self._inner.get_vocab()
        ids, other_ids = (
            {token.removeprefix(UNREACHABLE): id for token, id in tokens.items()}
            for tokens in (vocabulary, other._inner.get_vocab())
        )
        return ids == other_ids and any(token.startswith(UNREACHABLE) for token in vocabulary)

    @property
    def kind(self) -> str:
        """The recipe's `tokenizer.kind` for this tokenizer."""
        return kind_of(self._json)

    @property
    def unit(self) -> str:
        """Name of a token: character, byte or token."""
        is_kind = self.kind in listing("data.tokenizers")
        settings: Any = settings_of("data.tokenizers", self.kind) if is_kind else TokenizerSettings
        return str(settings.UNIT)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The ids of all special tokens by name, ordered by id."""
        return {self.piece_table.pieces[id]: id for id in sorted(self.piece_table.special)}

    def with_special(self, name: str) -> "Tokenizer":
        """This tokenizer if it has the special token `name` (pad, unk, separator, mask), else a copy with it added."""
        if getattr(self.vocabulary, name) is not None:
            return self
        takes_space = name == "mask" and self.has_space_prefixed_tokens
        token = tokenizers.AddedToken(SPECIALS[name], lstrip=takes_space, special=True)
        return self._with([token], f"the tokenizer has no {name} token; {SPECIALS[name]} was added")

    def _with(self, tokens: Sequence[str | tokenizers.AddedToken], *notes: str) -> "Tokenizer":
        """A copy with further special tokens."""
        inner = tokenizers.Tokenizer.from_str(self._inner.to_str())
        inner.add_special_tokens([*tokens])
        return Tokenizer(inner, [*self.notes, *notes], self._roles)

    def with_beginning(self, name: str | None) -> "Tokenizer":
        """This tokenizer, with a template that puts the special token `name` before a text; None: nothing."""
        roles = self._roles._replace(keeps_template=True)
        return Tokenizer(tokenizer_files.with_beginning(self._inner, name), self.notes, roles)

    def with_size(self, size: int) -> "Tokenizer":
        """This tokenizer, with special tokens without a text added up to `size` ids. DataFault if it has more."""
        first = self.vocabulary.size
        if first > size:
            raise DataFault(f"the tokenizer has {first} ids, the model {size}")
        if first == size:
            return self
        added = f"special tokens <unused_{first}> and so on were added"
        note = f"the model has {size - first} more ids than the tokenizer; {added}"
        return self._with([f"<unused_{id}>" for id in range(first, size)], note)

    def with_sentinels(self, n: int, trained: bool = False) -> "Tokenizer":
        """This tokenizer if it has `n` sentinels, else a copy with those it lacks; with a note unless `trained`."""
        first = len(self.vocabulary.sentinels)
        if first >= n:
            return self
        names = [tokenizer_files.SENTINEL.format(number) for number in range(first, n)]
        note = f"the tokenizer has {first or 'no'} sentinel tokens; {names[0]} to {names[-1]} were added"
        return self._with(names, *([] if trained else [note]))

    @cached_property
    def _table(self) -> Callable[[str], np.ndarray] | None:
        return lookup_table(self._json, self.vocabulary.unk)

    def encode(self, text: str) -> np.ndarray:
        """Ids (n,) int32, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """`encode` for many texts, on all cores. DataFault at a crash, a timeout or far too many tokens."""
        if (table := self._table) is not None:
            return [table(text) for text in texts]
        return [np.array(encoding.ids, np.int32) for encoding in self._encoded(texts, self._inner.encode_batch_fast)]

    def _encoded(
        self, texts: Sequence[str], encode: Callable[..., list[tokenizers.Encoding]]
    ) -> list[tokenizers.Encoding]:
        """Call `encode`, a batch function of the library; batch functions release the GIL."""
        n_bytes = self._timed_bytes(sum(len(text.encode()) for text in texts), "normalizer", "pre_tokenizer")
        encoded = call_guarded("encoding text", lambda: encode(list(texts), add_special_tokens=False), n_bytes)
        for text, encoding in zip(texts, encoded, strict=True):
            check_token_count(text, len(encoding.ids))
        return encoded

    def spans(self, text: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """The ids of `encode`, and the characters text[first:last] of each.

        Tokens that are bytes of one character all have the span of that character.
        """
        [encoded] = self._encoded([text], self._inner.encode_batch)
        return np.array(encoded.ids, np.int32), list(encoded.offsets)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of ids without special tokens; invalid UTF-8 bytes become U+FFFD."""
        numbers = [int(i) for i in ids]
        # decode_batch releases the GIL, decode does not.
        texts = partial(self._inner.decode_batch, [numbers], skip_special_tokens=True)
        return str(call_guarded("decoding ids", texts, self._timed_bytes(len(numbers), "decoder"))[0])

    def _timed_bytes(self, n_bytes: int, *parts: str) -> int | None:
        """`n_bytes` if a call needs a timeout, because of its size or a regex in these components; else None."""
        if parts not in self._slow:
            self._slow[parts] = may_backtrack(self._json, *parts)
        return n_bytes if n_bytes > SHORT_INPUT or self._slow[parts] else None

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """The readable text of each id."""
        return [self.piece_table.pieces[int(i)] for i in ids]

    @cached_property
    def piece_table(self) -> PieceTable:
        """The text of every id."""
        return piece_table_of(self._json)

    @property
    def is_wordpiece(self) -> bool:
        """Whether tokens inside a word start with ## and no token contains whitespace."""
        return (self._json["decoder"] or {}).get("type") == "WordPiece"

    @cached_property
    def has_space_prefixed_tokens(self) -> bool:
        """Whether a token may start with the space before its word, so that "a" and " a" are different tokens."""
        return not self.is_wordpiece and any(piece[:1] == " " and piece.strip() for piece in self.piece_table.pieces)

    @cached_property
    def mask_takes_space(self) -> bool:
        """Whether the space before a mask belongs to it; of another tool's tokenizer its file says so."""
        if [self._inner.token_to_id(name) for name in SPECIALS.values()] == [*range(len(SPECIALS))]:  # trained here
            takes_it = self.has_space_prefixed_tokens
        else:
            tokens, mask = self._json["added_tokens"], self.vocabulary.mask
            takes_it = any(token["lstrip"] for token in tokens if token["id"] == mask)
        return takes_it or len(self.encode(" ")) == 0

    @cached_property
    def round_trip_losses(self) -> list[str]:
        """What decode(encode(text)) changes, one sentence each; empty if it preserves every text."""

        def round_trip(text: str) -> str | None:
            ids = self.encode(text)
            return None if self.vocabulary.unk in ids.tolist() else self.decode(ids)

        return round_trip_losses(round_trip, self._json, self.piece_table.pieces)

    @cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        return word_edges(self.piece_table, self.is_wordpiece)

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """True where a token starts a word (a run without whitespace), along the last axis; the first token always
        does.

        Whitespace alone belongs to the word before it; a special token is a word.
        """
        starts, ends = self._edges
        begins: np.ndarray = starts[ids]
        begins[..., 1:] |= ends[ids[..., :-1]] & ~(ends[ids[..., 1:]] & ~starts[ids[..., 1:]])
        begins[..., :1] = True
        return begins

    @cached_property
    def _sentence_edges(self) -> tuple[np.ndarray, np.ndarray]:
        return sentence_edges(self.piece_table)

    def sentence_starts(self, ids: np.ndarray) -> np.ndarray:
        """True where a token starts a sentence, along the last axis: a word after `.`, `!` or `?` and whitespace.

        The first token always does. Whitespace and closing quotes or brackets belong to the sentence before them. The
        tokens of WordPiece have no whitespace, so "3.5" ends a sentence too.
        """
        ends, transparent = (edge[ids] for edge in self._sentence_edges)
        # The last token that is not transparent, at or before each position.
        index = np.maximum.accumulate(np.where(transparent, 0, np.arange(ids.shape[-1])), axis=-1)
        after_end = np.take_along_axis(ends, index, axis=-1)
        begins = self.word_starts(ids)
        begins[..., 1:] &= after_end[..., :-1]
        return begins

    def count_unknown_text(self, text: str) -> Counter[str]:
        """The parts of `text` that become the unknown token, with their counts."""
        unk = self.vocabulary.unk
        if unk is None:
            return Counter()
        if self._table is not None:
            ids = self._table(text)
            return Counter() if len(ids) != len(text) else Counter(text[i] for i in np.flatnonzero(ids == unk))
        return Counter(text[first:last] for id, (first, last) in zip(*self.spans(text), strict=True) if id == unk)

    def count_lost_text(self, text: str) -> Counter[str]:
        """`count_unknown_text`, and the non-whitespace characters that become no token at all."""
        lost = self.count_unknown_text(text)
        if self._table is None and (self._json["normalizer"] or self.vocabulary.unk is None):
            counts = Counter(character for character in text if not character.isspace())
            encoded = zip(counts, self.encode_batch([*counts]), strict=True)
            lost |= Counter({character: counts[character] for character, ids in encoded if not ids.size})
        return lost
