"""Rows of text that go on token by token: the model reads, a token is chosen for each row, and it is read in turn.

What was not asked for is not done: a greedy step is the model, its head and an argmax. Nothing position waits for the device.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.sampling import UniformNumbers, apply_repetition_penalty, draw
from mini_tf.recipe.sections import Generate


class TopLogProbs(NamedTuple):
    """Log-probabilities: `own` (B,) of the tokens chosen, `top` (B, N) of the likeliest, whose ids are `ids` (B, N)."""

    own: Tensor
    top: Tensor
    ids: Tensor


class DecodingStep(NamedTuple):
    """What was chosen: ids (B,); likely: by the model alone, before anything changed its scores; None unless asked for."""

    ids: Tensor
    logprobs: TopLogProbs | None


class DecodingLoop:
    """What `reading` has read goes on.

    uniform: None unless tokens are drawn. special: ids that no penalty is for. banned: those of them that are never chosen.
    n_top: how many of the likeliest tokens are told with each choice; None = no log-probabilities.
    """

    def __init__(
        self,
        reading: DecodingState,
        sampling: Generate,
        uniform: UniformNumbers | None,
        special: Sequence[int],
        banned: Sequence[int],
        n_top: int | None = None,
    ) -> None:
        self.reading, self.sampling, self.uniform, self.n_top = reading, sampling, uniform, n_top
        self._special, self._banned = (torch.tensor(sorted(ids), dtype=torch.long, device=reading.device) for ids in (special, banned))
        self._ids: Tensor | None = None
        self._seen: Tensor | None = None

    def step(self) -> DecodingStep:
        """Choose the next token of every row; in inference mode."""
        scores = self.reading.scores() if self._ids is None else self.reading.after(self._ids)
        logprobs = None if self.n_top is None else scores.float().log_softmax(dim=-1)
        if self.sampling.repetition_penalty != 1:
            scores = apply_repetition_penalty(scores, self._seen_by(scores), self.sampling.repetition_penalty)
        scores.index_fill_(1, self._banned, -torch.inf)
        self._ids = scores.argmax(dim=-1) if self.uniform is None else draw(scores, self.sampling, self.uniform.next())
        return DecodingStep(self._ids, None if logprobs is None else self._likely(self._ids, logprobs))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows only."""
        self.reading.select(rows)
        self._ids = None if self._ids is None else self._ids[rows]
        self._seen = None if self._seen is None else self._seen[rows]
        if self.uniform is not None:
            self.uniform.select(rows)

    def _likely(self, ids: Tensor, logprobs: Tensor) -> TopLogProbs:
        top = logprobs.topk(min(self.n_top or 0, logprobs.shape[-1]), dim=-1)
        return TopLogProbs(logprobs.gather(1, ids[:, None]).squeeze(1), top.values, top.indices)

    def _seen_by(self, scores: Tensor) -> Tensor:
        """Which tokens stand in each row's text: (B, V)."""
        if self._seen is None:
            self._seen = torch.zeros_like(scores, dtype=torch.bool)
            for seen, text in zip(self._seen, self.reading.texts, strict=True):
                seen[list(text)] = True
        else:
            assert self._ids is not None
            self._seen.scatter_(1, self._ids[:, None], True)
        # A penalty on the token that ends a document, which begins one too, would let no text end.
        return self._seen.index_fill_(1, self._special, False)
