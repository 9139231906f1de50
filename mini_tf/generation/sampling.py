"""Sampling: the next token from the logits, greedy or random.

    repetition penalty -> temperature -> top-k -> top-p -> min-p        each applied to the result of the one before

Unused options cost nothing: greedy decoding is an argmax, and logits are sorted only for top-p without top-k.
Sources: repetition penalty: Keskar et al. 2019, arXiv:1909.05858, section 4.1; top-p (nucleus sampling): Holtzman et
al. 2020, arXiv:1904.09751, section 3.1; min-p: Nguyen et al. 2024, arXiv:2407.01082, section 3.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.nn.layers.kernels import cumulative_sum
from mini_tf.recipe.sections import Generate
from mini_tf.system.seeds import seed_of

BUFFER_SIZE = 1024
"""Random numbers that are drawn at once for each row."""


def apply_repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits (B, V), those of `seen` tokens (B, V) divided by the penalty if positive, else multiplied by it."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def distribution(logits: Tensor, settings: Generate) -> tuple[Tensor, Tensor | None]:
    """Sampling weights (B, K) and their ids (B, K), the most probable first; ids None: all ids in order.

    The weights of a row sum to 1, or less if top-p or min-p set some to 0. `settings` must not be greedy.
    """
    logits, ids = logits.float(), None
    if settings.top_k and settings.top_k < logits.shape[-1]:
        logits, ids = logits.topk(settings.top_k, dim=-1)
    elif settings.top_p < 1:
        logits, ids = logits.sort(dim=-1, descending=True)
    best = logits.amax(dim=-1, keepdim=True) if ids is None else logits[:, :1]
    # Differences, so that a tiny temperature gives neither inf - inf nor 0 / 0.
    logits = (logits - best) / max(settings.temperature, 1e-30)
    weights = logits.softmax(dim=-1)
    if settings.top_p < 1:
        weights = weights.masked_fill(cumulative_sum(weights, -1) - weights >= max(settings.top_p, 1e-30), 0.0)
    if settings.min_p > 0:
        weights = weights.masked_fill(logits < math.log(settings.min_p), 0.0)
    return weights, ids


def draw(logits: Tensor, settings: Generate, uniform: Tensor) -> Tensor:
    """Sample one id per row (B,) from logits (B, V), by inverse transform of uniform numbers (B, 1) in [0, 1)."""
    weights, ids = distribution(logits, settings)
    cumulative = cumulative_sum(weights, -1)
    # right=True skips tokens of weight 0, whose cumulative weight is that of the token before.
    chosen = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
    chosen.clamp_(max=cumulative.shape[-1] - 1)
    return (chosen if ids is None else ids.gather(1, chosen)).squeeze(1)


class TopLogProbs(NamedTuple):
    """Log-probabilities: `chosen` (B,) of the chosen tokens, `top` (B, N) of the most probable tokens `ids` (B, N)."""

    chosen: Tensor
    top: Tensor
    ids: Tensor


class DecodingStep(NamedTuple):
    """The chosen ids (B,), and log-probabilities of the unchanged logits if requested."""

    ids: Tensor
    logprobs: TopLogProbs | None


class TokenChoice:
    """Chooses the next token of each row. It never synchronizes with the device.

    special: ids without repetition penalty. banned: special ids that are never generated. top_logprobs: number of most
    probable tokens to report with each token; None = no log-probabilities.
    """

    def __init__(
        self,
        settings: Generate,
        special: Sequence[int],
        banned: Sequence[int],
        device: torch.device,
        top_logprobs: int | None = None,
    ) -> None:
        self.settings, self._top_logprobs = settings, top_logprobs
        self._special, self._banned = (
            torch.tensor(sorted(ids), dtype=torch.long, device=device) for ids in (special, banned)
        )

    def seen(self, sequences: Sequence[Sequence[int]], logits: Tensor) -> Tensor | None:
        """Mask (B, V) of the tokens of each sequence that have a repetition penalty; None without a penalty."""
        if self.settings.repetition_penalty == 1:
            return None
        seen = torch.zeros_like(logits, dtype=torch.bool)
        for row, sequence in zip(seen, sequences, strict=True):
            row[list(sequence)] = True
        # The separator also begins each prompt; with a penalty on it no document would end.
        return seen.index_fill_(1, self._special, False)

    def __call__(self, logits: Tensor, ids: Tensor | None, uniform: Tensor | None, seen: Tensor | None) -> DecodingStep:
        """Choose by logits (B, V), which are modified in place, and random numbers (B, 1); None: the most probable.

        ids (B,): the tokens before; None: they are part of `seen`, which is updated.
        """
        logprobs = None if self._top_logprobs is None else logits.float().log_softmax(dim=-1)
        if seen is not None:
            if ids is not None:
                seen.scatter_(1, ids[:, None], True).index_fill_(1, self._special, False)
            logits = apply_repetition_penalty(logits, seen, self.settings.repetition_penalty)
        logits.index_fill_(1, self._banned, -torch.inf)
        chosen = logits.argmax(dim=-1) if uniform is None else draw(logits, self.settings, uniform)
        return DecodingStep(chosen, None if logprobs is None else self._top(chosen, logprobs))

    def _top(self, ids: Tensor, logprobs: Tensor) -> TopLogProbs:
        top = logprobs.topk(min(self._top_logprobs or 0, logprobs.shape[-1]), dim=-1)
        return TopLogProbs(logprobs.gather(1, ids[:, None]).squeeze(1), top.values, top.indices)


class UniformNumbers:
    """Random numbers in [0, 1); each row has its own generator, seeded by `seed` and the row's key.

    So a sample depends neither on the other rows of the batch, nor on their order, nor on the device.
    """

    def __init__(self, seed: int, keys: Sequence[Sequence[int]], device: torch.device) -> None:
        self._device = device
        self._generators = [torch.Generator().manual_seed(seed_of("draw", seed, *key)) for key in keys]
        self._fill_buffer()

    def _fill_buffer(self) -> None:
        numbers = torch.stack([torch.rand(BUFFER_SIZE, generator=generator) for generator in self._generators])
        self._buffer, self._next = numbers.to(self._device), 0

    def next(self) -> Tensor:
        """The next number of each row: (B, 1)."""
        if self._next == BUFFER_SIZE:
            self._fill_buffer()
        self._next += 1
        return self._buffer[:, self._next - 1, None]

    def select(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self._buffer = self._buffer[rows]
        self._generators = [self._generators[row] for row in rows.tolist()]
