"""Prompts: [MASK], the only text that becomes a special token, where the model has masks; and warnings about prompts.

If tokens can begin with the space before their word, the space before [MASK] belongs to the mask, as in RoBERTa (Liu et
al. 2019, arXiv:1907.11692, released code).
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import DataFault
from mini_tf.system.strict_json import short

MASK = SPECIALS["mask"]
"""How a mask is written, whatever the name of the tokenizer's mask token."""
PLAIN_MASK = f"{MASK} is plain text here: a mask only in a prompt to an encoder, or to a model that fills masks"
"""A warning about a text in which it is no mask."""


def split_at_masks(tokenizer: Tokenizer, text: str) -> list[str]:
    """The parts of a text around its masks, one more than there are masks."""
    *before, last = text.split(MASK)
    return [*(part.removesuffix(" ") if tokenizer.mask_takes_space else part for part in before), last]


class PromptTokenizer(Tokenizer):
    """A tokenizer to which [MASK] is one of the ids `masks`: that of its number in the text, or the only one."""

    reads_masks = True

    def __init__(self, tokenizer: Tokenizer, masks: Sequence[int]) -> None:
        vars(self).update(vars(tokenizer))
        self._plain, self._masks = tokenizer, list(masks)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        parts = [split_at_masks(self._plain, text) for text in texts]
        ids = iter(self._plain.encode_batch([part for prompt in parts for part in prompt]))
        return [self._joined([next(ids) for _ in prompt]) for prompt in parts]

    def spans(self, text: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
        parts, spans, start = list[np.ndarray](), list[tuple[int, int]](), 0
        for part, whole in zip(split_at_masks(self._plain, text), text.split(MASK), strict=True):
            ids, of_part = self._plain.spans(part)
            spans += [(start - len(MASK), start)] if parts else []
            spans += [(start + first, start + last) for first, last in of_part]
            parts.append(ids)
            start += len(whole) + len(MASK)
        return self._joined(parts), spans

    def _joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The parts with the masks between them. DataFault if there are too few."""
        n = len(parts) - 1
        if 1 < len(self._masks) < n:
            fault = f"a text has {n} {MASK}; the model has {len(self._masks)} sentinels for them"
            raise DataFault(fault, hint="divide the text")
        masks = self._masks if len(self._masks) > 1 else self._masks * n
        pieces = [
            piece for id, part in zip(masks, parts[1:], strict=False) for piece in (np.array([id], np.int32), part)
        ]
        return np.concatenate([parts[0], *pieces])


MAX_LISTED = 5
"""Unknown characters that are listed; the others are counted."""


class InputWarnings:
    """unit: the name of one text. cut: the side that is truncated, "first" or "last"."""

    def __init__(self, tokenizer: Tokenizer, context: int, unit: str = "prompt", cut: str = "first") -> None:
        self._tokenizer, self._context, self._unit, self._cut = tokenizer, context, unit, cut
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._first_cut = ""

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
        added = {"texts": True, "cut": n_cut > 0, "plain masks": has_plain_mask, "spaces": ends_in_space}
        self._counts.update(name for name, is_added in added.items() if is_added)
        self._unknown += unknown
        cut = [f"the {self._unit} has {length} tokens; the {self._cut} {n_cut} are truncated"] if n_cut else []
        if cut and not self._first_cut:
            self._first_cut = f"{where}: {cut[0]}" if where else cut[0]
        return [*cut, *self._warnings(unknown, ends_in_space, has_plain_mask)]

    def add_grown(self, n: int) -> list[str]:
        """Count `n` generated texts that outgrew the context; the warning about them."""
        self._counts["grown"] += n
        return self._warnings(Counter(), n_grown=n)

    def join(self, group: ProcessGroup) -> None:
        """Count the texts of all processes; all of them call it."""
        of_all = group.all_gather((self._counts, self._unknown, self._first_cut))
        self._counts, self._unknown = Counter(), Counter()
        for counts, unknown, _ in of_all:
            self._counts.update(counts)
            self._unknown.update(unknown)
        self._first_cut = next(filter(None, (first for *_, first in of_all)), "")

    def notes(self) -> list[str]:
        """The warnings about all texts."""
        counts, n_cut = self._counts, self._counts["cut"]
        cut = [self._first_cut] if n_cut == 1 else []
        if n_cut > 1:
            context = f"the context of {self._context} tokens; their {self._cut} tokens are truncated"
            cut = [f"{n_cut:,} of {counts['texts']:,} {self._unit}s are longer than {context}"]
        return [*cut, *self._warnings(self._unknown, counts["spaces"], counts["plain masks"], counts["grown"])]

    def _warnings(
        self, unknown: Counter[str], n_spaces: int = 0, n_plain_masks: int = 0, n_grown: int = 0
    ) -> list[str]:
        """The warnings about these texts, without those on their length."""
        warnings = []
        if unknown:
            listed = ", ".join(repr(short(text)) for text in list(unknown)[:MAX_LISTED])
            more = len(unknown) - MAX_LISTED
            rest = f" and {more:,} other{'s' * (more > 1)}" if more > 0 else ""
            total = f" ({unknown.total():,} in all)" if unknown.total() > min(len(unknown), MAX_LISTED) else ""
            dropped = self._tokenizer.vocabulary.unk is None
            instead = "they are dropped" if dropped else "the unknown token replaces them"
            warnings.append(f"the tokenizer has no token for {listed}{rest}{total}; {instead}")
        if n_spaces:
            subject = f"the {self._unit} ends" if n_spaces == 1 else f"{n_spaces:,} {self._unit}s end"
            warnings.append(f"{subject} in a space, but the tokenizer has it with the next word: leave it out")
        if n_plain_masks:
            warnings.append(PLAIN_MASK)
        if n_grown:
            subject = "a text grew" if n_grown == 1 else f"{n_grown:,} texts grew"
            end = f"the context of {self._context} tokens; from there on the model saw only the last half of it"
            warnings.append(f"{subject} longer than {end}")
        return warnings
