"""Attention maps of words: weights to the tokens of a word are summed, weights from them averaged, so rows sum to 1.

Source: Clark et al. 2019, arXiv:1906.04341, section 4.1.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mini_tf.inspection.model_input import ModelInput


class Words(NamedTuple):
    """The words of a text, split at white space, and the index of each token's word."""

    texts: list[str]
    of_token: list[int]


def words_of(input: ModelInput, pieces: Sequence[str]) -> Words:
    """The words of a text for any tokenizer; `pieces`: the tokens as strings.

    A token of white space belongs to the word before it, or, at the beginning, after it. A token that spans several
    words belongs to the first, whose text it extends. Each separator is a word.
    """
    numbers = [number or -token - 1 for token, number in enumerate(word_numbers(input))]
    members: dict[int, list[int]] = {}
    for token, number in enumerate(numbers):
        members.setdefault(number, []).append(token)
    index = {number: i for i, number in enumerate(members)}
    return Words([_text(input, pieces, tokens) for tokens in members.values()], [index[number] for number in numbers])


def word_numbers(input: ModelInput) -> list[int]:
    """The number of each token's word, split at white space, from 1; 0 for a separator."""
    starts = [found.start() for found in re.finditer(r"\S+", input.text)]
    return [0 if span is None else max(1, bisect_right(starts, _start(input.text, *span))) for span in input.spans]


def aggregate_by_words(
    weights: Float[Tensor, "H L M"], visible: Bool[Tensor, "L M"], rows: list[int], columns: list[int] | None = None
) -> tuple[Float[Tensor, "H W V"], Bool[Tensor, "W V"]]:
    """Attention weights and mask between words; rows, columns: the word of each token (columns None: as rows).

    A word is visible to another if any of its tokens is visible to one of the other's.
    """
    row, column = (membership(of_token).to(weights) for of_token in (rows, rows if columns is None else columns))
    summed = row.T @ weights @ column  # (W,L) @ (H,L,M) @ (M,V) -> (H,W,V)
    return summed / row.sum(dim=0)[:, None], row.T @ visible.to(row.dtype) @ column > 0


def membership(of_token: Sequence[int], n_words: int = -1) -> Tensor:
    """(tokens, words): 1 where a token belongs to a word; n_words -1: the largest index + 1."""
    return torch.nn.functional.one_hot(torch.tensor(of_token), n_words)


def _start(text: str, first: int, last: int) -> int:
    """The first character of a token that is not white space, or its first."""
    found = re.compile(r"\S").search(text, first, last)
    return found.start() if found else first


def _text(input: ModelInput, pieces: Sequence[str], tokens: Sequence[int]) -> str:
    spans = [span for token in tokens if (span := input.spans[token]) is not None]
    if not spans:
        return "".join(pieces[token] for token in tokens)
    text = input.text[min(first for first, _ in spans) : max(last for _, last in spans)]
    return text.strip() or text
