"""How a token is chosen from the scores of all: the likeliest, or drawn from the likely ones.

    repetition penalty -> temperature -> top-k -> top-p -> min-p        each on what the one before it left

Only what was asked for costs anything: greedy is an argmax, and nothing is sorted but the k best unless top-p is asked for.
Sources: penalty: Keskar et al. 2019, arXiv:1909.05858, section 4.1; top-p: Holtzman et al. 2020, arXiv:1904.09751, section 3.1;
min-p: Nguyen et al. 2024, arXiv:2407.01082, section 3.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mini_tf.recipe.sections import Generate
from mini_tf.system.seeds import seed_of

AHEAD = 1024
"""Numbers that each row draws in one go."""


def apply_repetition_penalty(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Scores (B, V) with those of `seen` tokens (B, V) made smaller: positive ones divided by the penalty, others multiplied."""
    return torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)


def distribution(scores: Tensor, sampling: Generate) -> tuple[Tensor, Tensor | None]:
    """What is drawn from: weights (B, K), and the ids (B, K) they belong to, the likeliest first; None = all ids in order.

    A row's weights sum to 1 unless top-p or min-p set some of them to 0. `sampling` must not be greedy.
    """
    scores, ids = scores.float(), None
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        scores, ids = scores.topk(sampling.top_k, dim=-1)
    elif sampling.top_p < 1:
        scores, ids = scores.sort(dim=-1, descending=True)
    best = scores.amax(dim=-1, keepdim=True) if ids is None else scores[:, :1]
    # Only differences count; a temperature as good as 0 must not make them inf - inf, nor 0 / 0 where it underflows.
    scores = (scores - best) / max(sampling.temperature, 1e-30)
    weights = scores.softmax(dim=-1)
    if sampling.top_p < 1:
        weights = weights.masked_fill(weights.cumsum(dim=-1) - weights >= max(sampling.top_p, 1e-30), 0.0)
    if sampling.min_p > 0:
        weights = weights.masked_fill(scores < math.log(sampling.min_p), 0.0)
    return weights, ids


def draw(scores: Tensor, sampling: Generate, numbers: Tensor) -> Tensor:
    """One id a row (B,) from scores (B, V), by the uniform numbers (B, 1) in [0, 1): the inverse of the summed weights."""
    weights, ids = distribution(scores, sampling)
    summed = weights.cumsum(dim=-1)
    # "right" passes over tokens of weight 0, whose sum is that of the token before.
    places = torch.searchsorted(summed, numbers * summed[:, -1:], right=True).clamp_(max=summed.shape[-1] - 1)
    return (places if ids is None else ids.gather(1, places)).squeeze(1)


class UniformNumbers:
    """UniformNumbers numbers in [0, 1), for each row from a generator of its own, which the row's `key` and the seed decide.

    So a text is the same whatever is written beside it, in whichever order, and wherever the model computes.
    """

    def __init__(self, seed: int, keys: Sequence[Sequence[int]], device: torch.device) -> None:
        self._device = device
        self._generators = [torch.Generator().manual_seed(seed_of("draw", seed, *key)) for key in keys]
        self._draw_ahead()

    def _draw_ahead(self) -> None:
        numbers = torch.stack([torch.rand(AHEAD, generator=generator) for generator in self._generators])
        self._ahead, self._next = numbers.to(self._device), 0

    def next(self) -> Tensor:
        """The next number of every row: (B, 1)."""
        if self._next == AHEAD:
            self._draw_ahead()
        self._next += 1
        return self._ahead[:, self._next - 1, None]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self._ahead = self._ahead[rows]
        self._generators = [self._generators[row] for row in rows.tolist()]
