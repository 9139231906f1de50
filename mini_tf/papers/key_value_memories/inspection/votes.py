"""The tokens that the values of memories vote for, and how often that is the token after the memory's trigger.

Source: Geva et al. 2021, arXiv:2012.14913, section 4: p_i = softmax(v_i E), E the output embedding. The final norm and
its weight are left out.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.generation.likelihoods import LOGITS
from mini_tf.nn.model import Model

NO_VOTE = -2
"""In place of the most probable token of a value of zeros."""


@torch.no_grad()
def first_votes(model: Model, values: Tensor, vocabulary_size: int) -> np.ndarray:
    """(n,): the token with the largest probability p_i by each value (n, D), or NO_VOTE."""
    parts = [model.logits(part).argmax(dim=-1) for part in values.split(max(1, LOGITS // vocabulary_size))]
    votes: np.ndarray = torch.cat(parts).where(values.any(dim=-1), NO_VOTE).cpu().numpy()
    return votes


@torch.no_grad()
def top_votes(model: Model, value: Tensor, n: int) -> list[tuple[int, float]]:
    """The n tokens with the largest probabilities p_i by a value (D,), and these; none by a value of zeros."""
    if not value.any():
        return []
    p = model.logits(value).cpu().double().softmax(dim=-1)
    ids = torch.argsort(p, descending=True, stable=True)[:n]
    return [*zip(ids.tolist(), p[ids].tolist(), strict=True)]


class Agreement(NamedTuple):
    """n: compared memories. share: of those whose vote is the token after their trigger; NaN without any.

    chance, deviation: mean and standard deviation of this share if the votes were shuffled over the memories.
    """

    n: int
    share: float
    chance: float
    deviation: float


def agreement(votes: np.ndarray, following: np.ndarray) -> Agreement:
    """votes, following (n,): tokens. A random permutation of the votes keeps how frequent each is.

    Its mean and variance are exact: with a_t votes for token t and b_t triggers before it, the mean number of matches
    is S / n, S = sum a_t b_t; the variance is that of a sum over a random permutation (Hoeffding 1951, "A combinatorial
    central limit theorem", theorem 2).
    """
    n = len(votes)
    if n < 2:
        return Agreement(n, float((votes == following).mean()) if n else math.nan, math.nan, math.nan)
    tokens = np.unique(np.concatenate([votes, following]))
    a, b = (
        np.bincount(np.searchsorted(tokens, ids), minlength=len(tokens)).astype(float) for ids in (votes, following)
    )
    matches = float((a * b).sum())
    variance = (matches - float((a * b * (a + b)).sum()) / n + (matches / n) ** 2) / (n - 1)
    return Agreement(n, float((votes == following).mean()), matches / n**2, math.sqrt(max(0.0, variance)) / n)
