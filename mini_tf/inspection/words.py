"""Maps of tokens to maps of words: weight on a split word is summed over its pieces, from it averaged, so rows still sum to 1.

Source: Clark et al. 2019, arXiv:1906.04341, section 4.1.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.text.tokenizer import Tokenizer


class Words(NamedTuple):
    """The words of a text, runs without white space as the text has them, and for each token the number of its word."""

    texts: list[str]
    of_token: list[int]


def words_of(tokenizer: Tokenizer, ids: np.ndarray) -> Words:
    """The words of a text's ids; a special token is a word, and white space is left out of a word that has anything else."""
    starts = np.flatnonzero(tokenizer.word_starts(ids))
    texts = [_text(tokenizer, part) for part in np.split(ids, starts[1:])]
    of_token = np.searchsorted(starts, np.arange(len(ids)), side="right") - 1
    return Words([text.strip() or text for text in texts], of_token.tolist())


def by_words(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], of_token: list[int]
) -> tuple[Float[Tensor, "H W V"], Bool[Tensor, "W V"]]:
    """Weights and visibility between words; a word sees what one of its tokens sees."""
    member = torch.nn.functional.one_hot(torch.tensor(of_token, device=weights.device)).to(weights.dtype)  # (L, W)
    summed = member.T @ weights @ member  # (W,L) @ (H,L,L) @ (L,W) -> (H,W,W)
    return summed / member.sum(dim=0)[:, None], member.T @ visible.to(member.dtype) @ member > 0


def _text(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    special = tokenizer.vocabulary.special_ids
    return "".join(tokenizer.pieces(ids)) if special.intersection(ids.tolist()) else tokenizer.decode(ids)
