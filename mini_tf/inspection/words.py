"""Maps of tokens to maps of words: weight on a split word is summed over its pieces, from it averaged, so rows still sum to 1.

Source: Clark et al. 2019, arXiv:1906.04341, section 4.1.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.inspection.framing import Framed


class Words(NamedTuple):
    """The words of a text, runs without white space as the text has them, and for each token the number of its word."""

    texts: list[str]
    of_token: list[int]


def words_of(given: Framed, pieces: Sequence[str]) -> Words:
    """The words that a text's tokens stand for, whatever the tokenizer made of them; `pieces`: how the tokens read.

    A token of white space alone belongs to the word before it, at the beginning to the one after; one that goes over several
    words belongs to the first, and makes its text the longer. A separator is a word.
    """
    numbers = numbers_of(given)
    members: dict[int, list[int]] = {}
    for token, number in enumerate(numbers):
        members.setdefault(number, []).append(token)
    dense = {number: place for place, number in enumerate(members)}
    return Words([_text(given, pieces, tokens) for tokens in members.values()], [dense[number] for number in numbers])


def numbers_of(given: Framed) -> list[int]:
    """For each token the number of its word as blanks count them, from 1; 0 for a separator."""
    begins = [found.start() for found in re.finditer(r"\S+", given.text)]
    return [0 if span is None else max(1, bisect_right(begins, _begin(given.text, *span))) for span in given.spans]


def by_words(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], rows: list[int], columns: list[int] | None = None
) -> tuple[Float[Tensor, "H W V"], Bool[Tensor, "W V"]]:
    """Weights and visibility between words, given the word of each row's token and, unless they are the same, of each column's.

    A word sees what one of its tokens sees.
    """
    row, column = (members(of_token).to(weights) for of_token in (rows, rows if columns is None else columns))
    summed = row.T @ weights @ column  # (W,L) @ (H,L,M) @ (M,V) -> (H,W,V)
    return summed / row.sum(dim=0)[:, None], row.T @ visible.to(row.dtype) @ column > 0


def members(of_token: Sequence[int], n_words: int = -1) -> Tensor:
    """(tokens, words): 1 where a token belongs to the word, of as many words as the numbers need or `n_words`."""
    return torch.nn.functional.one_hot(torch.tensor(of_token), n_words)


def _begin(text: str, first: int, last: int) -> int:
    """The first character of a token that is no white space; of white space alone its own first."""
    found = re.compile(r"\S").search(text, first, last)
    return found.start() if found else first


def _text(given: Framed, pieces: Sequence[str], tokens: Sequence[int]) -> str:
    spans = [span for token in tokens if (span := given.spans[token]) is not None]
    if not spans:
        return "".join(pieces[token] for token in tokens)
    text = given.text[min(first for first, _ in spans) : max(last for _, last in spans)]
    return text.strip() or text
