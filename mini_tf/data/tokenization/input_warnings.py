"""Warnings about input texts: truncation to the context, unknown characters, a last space, [MASK] that is no mask.

Counted over all texts, so that each warning is printed once.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from mini_tf.data.tokenization.prompts import MASK, PLAIN_MASK
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.strict_json import short

MAX_LISTED = 5
"""Unknown characters that are listed; the others are counted."""


class InputWarnings:
    """unit: the name of one text. cut: the side that is truncated, "first" or "last"."""

    def __init__(self, tokenizer: Tokenizer, context: int, unit: str = "prompt", cut: str = "first") -> None:
        self._tokenizer, self._context, self._unit, self._cut = tokenizer, context, unit, cut
        self._n = self._n_cut = self._n_plain = self._n_grown = self._n_space = 0
        self._one = ""
        self._unknown: Counter[str] = Counter()

    def add(
        self, parts: Iterable[str], length: int = 0, n_cut: int = 0, where: str = "", continues: bool = False
    ) -> list[str]:
        """Count a text of `length` tokens, of which `n_cut` are truncated; the warnings about this text.

        parts: the texts as encoded. where: "stdin:3". continues: the model continues the last of them.
        """
        parts = [*parts]
        unknown = sum(map(self._tokenizer.count_lost_text, parts), Counter[str]())
        has_plain_mask = not self._tokenizer.reads_masks and any(MASK in part for part in parts)
        ends_in_space = continues and parts[-1].endswith(" ") and self._tokenizer.has_space_prefixed_tokens
        self._n_plain, self._n_space = self._n_plain + has_plain_mask, self._n_space + ends_in_space
        self._n, self._unknown = self._n + 1, self._unknown + unknown
        warning = f"the {self._unit} has {length} tokens; the {self._cut} {n_cut} are truncated" if n_cut else ""
        if warning:
            self._n_cut, self._one = self._n_cut + 1, f"{where}: {warning}" if where else warning
        others = [*self._unknown_warning(unknown), *self._space_warning(ends_in_space), *_mask_warning(has_plain_mask)]
        return [*filter(None, [warning]), *others]

    def add_grown(self, n: int) -> list[str]:
        """Count `n` generated texts that outgrew the context; the warning about them."""
        self._n_grown += n
        return self._grown_warning(n)

    def join(self, group: ProcessGroup) -> None:
        """Count the texts of all processes; all of them call it."""
        numbers = [self._n, self._n_cut, self._n_plain, self._n_grown, self._n_space]
        of_all = group.all_gather((numbers, self._one, self._unknown))
        totals = map(sum, zip(*(numbers for numbers, _, _ in of_all), strict=True))
        self._n, self._n_cut, self._n_plain, self._n_grown, self._n_space = totals
        self._one = next((one for _, one, _ in of_all if one), "")
        self._unknown = sum((Counter(unknown) for _, _, unknown in of_all), Counter[str]())

    def notes(self) -> list[str]:
        """The warnings about all texts."""
        cut = [self._one] if self._n_cut == 1 else []
        if self._n_cut > 1:
            longer = (
                f"{self._n_cut:,} of {self._n:,} {self._unit}s are longer than the context of {self._context} tokens"
            )
            cut = [f"{longer}; their {self._cut} tokens are truncated"]
        return [
            *cut,
            *self._unknown_warning(self._unknown),
            *self._space_warning(self._n_space),
            *_mask_warning(bool(self._n_plain)),
            *self._grown_warning(self._n_grown),
        ]

    def _grown_warning(self, n: int) -> list[str]:
        subject = "a text grew" if n == 1 else f"{n:,} texts grew"
        end = f"the context of {self._context} tokens; from there on the model saw only the last half of it"
        return [f"{subject} longer than {end}"] if n else []

    def _space_warning(self, n: int) -> list[str]:
        subject = f"the {self._unit} ends" if n == 1 else f"{n:,} {self._unit}s end"
        return [f"{subject} in a space, but the tokenizer has it with the next word: leave it out"] if n else []

    def _unknown_warning(self, unknown: Counter[str]) -> list[str]:
        if not unknown:
            return []
        listed = ", ".join(repr(short(text)) for text in list(unknown)[:MAX_LISTED])
        more = len(unknown) - MAX_LISTED
        rest = f" and {more:,} other{'s' * (more > 1)}" if more > 0 else ""
        total = f" ({unknown.total():,} in all)" if unknown.total() > min(len(unknown), MAX_LISTED) else ""
        instead = "they are dropped" if self._tokenizer.vocabulary.unk is None else "the unknown token replaces them"
        return [f"the tokenizer has no token for {listed}{rest}{total}; {instead}"]


def _mask_warning(has_plain_mask: bool) -> list[str]:
    return [PLAIN_MASK] if has_plain_mask else []


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
