"""[MASK] in prompts: the only text that becomes a special token, where the model has masks.

If tokens can begin with the space before their word, the space before [MASK] belongs to the mask, as in RoBERTa (Liu et
al. 2019, arXiv:1907.11692, released code).
"""

from collections.abc import Sequence

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenizers import SPECIALS
from mini_tf.system.errors import DataFault

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
