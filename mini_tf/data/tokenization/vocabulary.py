"""The ids of a tokenizer: their number, those of special tokens, and how they are stored."""

from dataclasses import dataclass, field

import numpy as np

from mini_tf.system.errors import DataFault


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
    ends: frozenset[int] = frozenset()
    """Special tokens that also end a text, where the separator is another one; also in `others`."""
    begin: int | None = None
    """Special token before a text that stands alone, if it is not the separator."""
    inside_characters: frozenset[int] = frozenset()
    """Tokens that begin inside a character: their first byte continues one that a token before them begins."""
    texts: tuple[str, ...] = field(default=(), repr=False)
    """The text of each id, with a space where it begins a word; of a special token a space."""

    @property
    def begin_id(self) -> int | None:
        """The id before the first token of a text: `begin`, else the separator."""
        return self.separator if self.begin is None else self.begin

    @property
    def special_ids(self) -> frozenset[int]:
        """All ids of special tokens, which have no text."""
        return self.others.union(id for id in (self.pad, self.unk, self.separator, self.mask) if id is not None)


def compact(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The ids in the fewest bytes. Raises DataFault if one is outside the vocabulary."""
    if ids.size and int(ids.max()) >= vocabulary.size:
        raise DataFault(f"the tokenizer returned id {int(ids.max())}, but its vocabulary has {vocabulary.size} tokens")
    return ids.astype(id_dtype(vocabulary))


def id_dtype(vocabulary: Vocabulary) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocabulary.size <= 1 << 16 else np.uint32
