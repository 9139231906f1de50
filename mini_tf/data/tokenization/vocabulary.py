"""The ids of a tokenizer: their number, those of special tokens, how they are stored, and where they may be cut."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mini_tf.recipe.sections import ROLES, SingleTokenizer
from mini_tf.system.errors import DataFault


class Template(NamedTuple):
    """The special tokens before and behind a text that stands alone."""

    before: tuple[int, ...]
    behind: tuple[int, ...]


class Roles(NamedTuple):
    """What special tokens of a loaded tokenizer are for.

    separator: between documents; None: found by its usual names. begin: before the first token of a text that stands
    alone, and of a target; None: the separator. pad: None: found by its usual names. ends: ids that end a text, beside
    the separator; empty: the usual one. forced_bos: id of the first token of every target.
    keeps_template: texts are framed by the tokenizer's own template, and end with `ends` alone.
    """

    separator: str | None = None
    begin: str | None = None
    pad: str | None = None
    ends: tuple[int, ...] = ()
    forced_bos: int | None = None
    keeps_template: bool = False

    @classmethod
    def of(cls, settings: SingleTokenizer, keeps_template: bool = False) -> "Roles":
        return cls(**{key: getattr(settings, key) for key in ROLES}, keeps_template=keeps_template)


@dataclass(frozen=True)
class Vocabulary:
    """Number of ids, and the ids of special tokens; None where the tokenizer has no such token."""

    size: int
    pad: int | None = None
    unk: int | None = None
    separator: int | None = None
    mask: int | None = None
    others: frozenset[int] = frozenset()
    """Special tokens of a loaded tokenizer that minitf does not use, and sentinels."""
    sentinels: tuple[int, ...] = ()
    """Sentinels in their order, <extra_id_0> first; also in `others`."""
    ends: tuple[int, ...] = ()
    """Tokens that end a text, the usual one first; with the separator, unless the model was not trained with it."""
    begin: int | None = None
    """Special token before a text that stands alone, if it is not the separator."""
    forced_bos: int | None = None
    """The first token of every target, behind `begin_id`."""
    template: Template | None = None
    """What the tokenizer of a model that was imported and not trained puts around texts; None: as in training."""
    inside_characters: frozenset[int] = frozenset()
    """Tokens that begin inside a character: their first byte continues one that a token before them begins."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """The text of each id, with a space where it begins a word; of a special token a space."""

    @property
    def begin_id(self) -> int | None:
        """The id before the first token of a text: `begin`, else the separator."""
        return self.separator if self.begin is None else self.begin

    @property
    def bos_id(self) -> int | None:
        """The id before a text in other tools: of an imported tokenizer its own, else the separator."""
        return self.template.before[0] if self.template is not None and self.template.before else self.separator

    @property
    def target_start(self) -> tuple[int, ...]:
        """The ids before the text of a target, which is not empty."""
        assert self.begin_id is not None
        return (self.begin_id,) if self.forced_bos is None else (self.begin_id, self.forced_bos)

    def has_tokens_of(self, other: "Vocabulary") -> bool:
        """Whether all ids have the same texts and roles, whatever stands around a text."""
        around: Any = {"template": None, "ends": (), "forced_bos": None}
        return replace(self, **around) == replace(other, **around)

    @property
    def special_ids(self) -> frozenset[int]:
        """All ids of special tokens, which have no text."""
        return self.others.union(id for id in (self.pad, self.unk, self.separator, self.mask) if id is not None)


def or_unknown(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The ids of a text that is not blank; where it normalizes to nothing the unknown token, if there is one."""
    return ids if ids.size or vocabulary.unk is None else np.array([vocabulary.unk], ids.dtype)


def compact(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The ids in the fewest bytes. Raises DataFault if one is outside the vocabulary."""
    if ids.size and int(ids.max()) >= vocabulary.size:
        raise DataFault(f"the tokenizer returned id {int(ids.max())}, but its vocabulary has {vocabulary.size} tokens")
    return ids.astype(id_dtype(vocabulary))


def id_dtype(vocabulary: Vocabulary) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocabulary.size <= 1 << 16 else np.uint32


MAX_INSIDE = 3
"""Tokens of a character that do not begin it, at most: UTF-8 has up to four bytes."""


def between_characters(vocabulary: Vocabulary, ids: np.ndarray, cuts: ArrayLike, limits: ArrayLike) -> np.ndarray:
    """Cuts of a sequence of ids, each moved towards its limit, at most up to it, out of a character.

    A cut c is between ids[c - 1] and ids[c]; all of one call have their limits on the same side. Where nothing else
    would be kept, up to the limit, a cut stays: then a single character is longer than the context.
    """
    cuts, limits = np.asarray(cuts), np.asarray(limits)
    if not vocabulary.inside_characters:
        return cuts
    inside, moved = np.fromiter(vocabulary.inside_characters, int), cuts
    for _ in range(MAX_INSIDE):
        splits = np.isin(ids[np.minimum(moved, len(ids) - 1)], inside) & (moved < len(ids))
        moved = moved + np.where(splits, np.sign(limits - moved), 0)
    return np.where(moved == limits, cuts, moved)


def first_tokens(vocabulary: Vocabulary, ids: np.ndarray, n: int) -> int:
    """How many of at most the first `n` ids are kept."""
    return int(between_characters(vocabulary, ids, n, 0)) if n < len(ids) else len(ids)


def last_tokens(vocabulary: Vocabulary, ids: np.ndarray, n: int) -> int:
    """How many of at most the last `n` ids are kept."""
    return len(ids) - int(between_characters(vocabulary, ids, len(ids) - n, len(ids))) if n < len(ids) else len(ids)


_CACHED_WORDS = 2**16


def words_at(ids: Any, is_token: Any, at: Any, texts: Sequence[str]) -> list[str]:
    """The words that begin at the flat positions `at`, in order, of ids (B, L); each ends where the next one begins.

    is_token (B, L): False at padding. These are arrays or tensors. texts: of each id (`Vocabulary.texts`).
    """
    flat, inside, starts, length = ids.flatten().tolist(), is_token.flatten().tolist(), at.tolist(), ids.shape[1]
    ends = zip(starts, [*starts[1:], len(flat)], strict=True)
    spans = (range(start, min(end, (start // length + 1) * length)) for start, end in ends)
    words = ("".join(texts[flat[n]] for n in span if inside[n]) for span in spans)
    return ["".join(word.split()) for word in words]  # a tokenizer may write a space before punctuation


def word_keys(words: Sequence[str], n_affixes: int) -> list[tuple[int, ...]]:
    """2 + 2 n keys of 64 bits for each word: in lower case, its shape, and its prefixes and suffixes of 1 to n."""
    return [_keys(word, n_affixes) for word in words]


@lru_cache(_CACHED_WORDS)
def _keys(word: str, n_affixes: int) -> tuple[int, ...]:
    lower = word.lower()
    affixes = [part for n in range(1, n_affixes + 1) for part in (lower[:n], lower[-n:])]
    return tuple(_key(key) for key in (lower, shape(word), *affixes))


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def shape(word: str) -> str:
    """The shape of a word, runs shortened: "McDonald's" is AaAa'a, "2024" is 0."""
    marks = "".join(
        "A" if character.isupper() else "a" if character.isalpha() else "0" if character.isdigit() else character
        for character in word
    )
    return re.sub(r"(.)\1+", r"\1", marks, flags=re.DOTALL)
