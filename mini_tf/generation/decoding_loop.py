"""The decoding loop: each step computes the logits, chooses the next token of each row and appends it.

Unused options cost nothing: a greedy step is a forward pass and an argmax. A step never synchronizes with the device.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.sampling import UniformNumbers, apply_repetition_penalty, draw
from mini_tf.recipe.sections import Generate


class TopLogProbs(NamedTuple):
    """Log-probabilities: `chosen` (B,) of the chosen tokens, `top` (B, N) of the most probable tokens `ids` (B, N)."""

    chosen: Tensor
    top: Tensor
    ids: Tensor


class DecodingStep(NamedTuple):
    """The chosen ids (B,), and log-probabilities of the unchanged logits if requested."""

    ids: Tensor
    logprobs: TopLogProbs | None


class DecodingLoop:
    """Extends the sequences of a `DecodingState`.

    uniform: None for greedy decoding. special: ids without repetition penalty. banned: special ids that are never
    generated. top_logprobs: number of most probable tokens to report with each token; None = no log-probabilities.
    """

    def __init__(
        self,
        state: DecodingState,
        settings: Generate,
        uniform: UniformNumbers | None,
        special: Sequence[int],
        banned: Sequence[int],
        top_logprobs: int | None = None,
    ) -> None:
        self.state, self.settings, self.uniform, self.top_logprobs = state, settings, uniform, top_logprobs
        self._special, self._banned = (
            torch.tensor(sorted(ids), dtype=torch.long, device=state.device) for ids in (special, banned)
        )
        self._ids: Tensor | None = None
        self._seen: Tensor | None = None

    def step(self) -> DecodingStep:
        """Choose the next token of each row; call in inference mode."""
        logits = self.state.prefill() if self._ids is None else self.state.decode(self._ids)
        logprobs = None if self.top_logprobs is None else logits.float().log_softmax(dim=-1)
        if self.settings.repetition_penalty != 1:
            logits = apply_repetition_penalty(logits, self._update_seen(logits), self.settings.repetition_penalty)
        logits.index_fill_(1, self._banned, -torch.inf)
        self._ids = logits.argmax(dim=-1) if self.uniform is None else draw(logits, self.settings, self.uniform.next())
        return DecodingStep(self._ids, None if logprobs is None else self._top(self._ids, logprobs))

    def select(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self.state.select(rows)
        self._ids = None if self._ids is None else self._ids[rows]
        self._seen = None if self._seen is None else self._seen[rows]
        if self.uniform is not None:
            self.uniform.select(rows)

    def _top(self, ids: Tensor, logprobs: Tensor) -> TopLogProbs:
        top = logprobs.topk(min(self.top_logprobs or 0, logprobs.shape[-1]), dim=-1)
        return TopLogProbs(logprobs.gather(1, ids[:, None]).squeeze(1), top.values, top.indices)

    def _update_seen(self, logits: Tensor) -> Tensor:
        """Mask (B, V) of the tokens that each sequence contains."""
        if self._seen is None:
            self._seen = torch.zeros_like(logits, dtype=torch.bool)
            for seen, sequence in zip(self._seen, self.state.sequences, strict=True):
                seen[list(sequence)] = True
        else:
            assert self._ids is not None
            self._seen.scatter_(1, self._ids[:, None], True)
        # The separator also begins each prompt; with a penalty on it no document would end.
        return self._seen.index_fill_(1, self._special, False)
