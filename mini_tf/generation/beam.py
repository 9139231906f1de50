"""Beam search: the most probable targets of each source, with K hypotheses per source.

At each step the candidates of a source are its live hypotheses, each extended by every token, ranked by the sum of
log-probabilities. Of the best K, those that end are finished; the best K that do not end stay live. A source is done
when K are finished, when no live one can still be among the n best, or at its token limit, where live ones count too.

K = 1 is greedy decoding. With K at least the number of possible targets, the search is exhaustive.
Source: Sutskever et al. 2014, arXiv:1409.3215, section 3.2; score: Wu et al. 2016, arXiv:1609.08144, eq. 14, without
coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.generation.decoding import CachedModel, check_finite


@dataclass(frozen=True)
class BeamSettings:
    """Settings of a search for the `n_best` hypotheses with a beam of `num_beams`; `end` is the id of the end token.

    min_new_tokens: minimum number of tokens before the end token. no_repeat_ngram: no n-gram of this length occurs
    twice, 0 = off; a hypothesis without any other continuation may end. banned: ids that are never generated.
    """

    end: int
    num_beams: int = 4
    n_best: int = 1
    length_penalty: float = 0.0
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0
    banned: tuple[int, ...] = ()

    def score(self, logprob: float, length: int) -> float:
        """The score that ranks finished hypotheses; `length` in tokens includes the end token."""
        penalty: float = ((5 + length) / 6) ** self.length_penalty
        return logprob / penalty

    def best_possible(self, logprob: float, length: int, limit: int) -> float:
        """The highest score that a live hypothesis of `length` tokens can reach.

        The log-probability can only fall and the penalty is monotonic in the length, so the maximum has the present
        log-probability and ends with the next token or at the limit.
        """
        return max(self.score(logprob, length + 1), self.score(logprob, limit))


class Hypothesis(NamedTuple):
    """The ids of a target without the end token. ended: it had one, which counts in `logprob` and `score`."""

    ids: list[int]
    logprob: float
    score: float
    ended: bool


class _Source:
    """The finished hypotheses of one source; limit: the maximum length of its targets."""

    def __init__(self, settings: BeamSettings, limit: int) -> None:
        self._settings, self.limit = settings, limit
        self._finished: list[Hypothesis] = []

    @property
    def best(self) -> list[Hypothesis]:
        """The n best hypotheses, the best first; of equal scores the one finished first."""
        return sorted(self._finished, key=lambda hypothesis: -hypothesis.score)[: self._settings.n_best]

    def finish(self, ids: list[int], logprob: float, ended: bool) -> None:
        self._finished.append(Hypothesis(ids, logprob, self._settings.score(logprob, len(ids) + ended), ended))

    def is_done(self, logprob: float, length: int) -> bool:
        """Whether no live hypothesis can change the result; `logprob`: of the best one, `length`: in tokens."""
        settings = self._settings
        if len(self._finished) >= settings.num_beams or logprob == -torch.inf:
            return True
        best = self.best
        return len(best) == settings.n_best and best[-1].score >= settings.best_possible(logprob, length, self.limit)


class _LiveHypotheses:
    """The live hypotheses of the sources that are not done: ids (S, K, n), log-probabilities (S, K).

    If a source has fewer than K, its last log-probabilities are -inf.
    """

    def __init__(self, settings: BeamSettings, sources: Sequence[_Source], device: torch.device) -> None:
        self.settings, self.sources = settings, list(sources)
        self.ids = torch.empty(len(sources), 1, 0, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(len(sources), 1, device=device)
        self._banned = torch.tensor(settings.banned, dtype=torch.long, device=device)

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step with the logits (S K, V) of the next tokens; returns the rows and the sources to continue."""
        n_sources, n_live, length = self.ids.shape
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        total = logits.logsumexp(dim=1)
        check_finite(total)
        self._mask_banned(logits)
        # The best K candidates that do not end are among the best K + 1 of each hypothesis and the best 2 K of all.
        num_beams = self.settings.num_beams
        values, next_ids = topk_by_id(logits, num_beams + 1)
        sums = (values - total[:, None]).view(n_sources, n_live, -1) + self._logprobs[..., None]
        sums, order = sums.flatten(1).sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : 2 * num_beams], order[:, : 2 * num_beams]
        origins, next_ids = order // values.shape[1], next_ids.reshape(n_sources, -1).gather(1, order)
        ends = next_ids == self.settings.end
        self._finish(ends, origins, sums)
        sums, order = (part[:, :num_beams] for part in sums.masked_fill(ends, -torch.inf).sort(dim=1, descending=True, stable=True))
        origins, next_ids = origins.gather(1, order), next_ids.gather(1, order)
        before = self.ids.gather(1, origins[..., None].expand(-1, -1, length))
        self.ids, self._logprobs = torch.cat([before, next_ids[..., None]], dim=2), sums
        rows = origins + n_live * torch.arange(n_sources, device=origins.device)[:, None]
        remaining = self._drop_done()
        return rows[remaining].flatten(), remaining

    def _mask_banned(self, logits: Tensor) -> None:
        """Set the logits of forbidden next tokens to -inf."""
        settings = self.settings
        logits.index_fill_(1, self._banned, -torch.inf)
        end, ids = logits[:, settings.end].clone(), self.ids.flatten(0, 1)
        if ids.shape[1] < settings.min_new_tokens:
            logits[:, settings.end] = -torch.inf
        if 0 < settings.no_repeat_ngram <= ids.shape[1]:
            logits[repeated_ngrams(ids, settings.no_repeat_ngram)] = -torch.inf
            stuck = (logits == -torch.inf).all(dim=1)
            logits[:, settings.end] = torch.where(stuck, end, logits[:, settings.end])

    def _finish(self, ends: Tensor, origins: Tensor, sums: Tensor) -> None:
        """Finish those of the best K candidates (of S, 2 K) that end."""
        ended = (ends & sums.isfinite())[:, : self.settings.num_beams].nonzero(as_tuple=True)
        finished = self.ids[ended[0], origins[ended]]
        for number, ids, logprob in zip(ended[0].tolist(), finished.tolist(), sums[ended].tolist(), strict=True):
            self.sources[number].finish(ids, logprob, ended=True)

    def _drop_done(self) -> Tensor:
        """Keep only the sources that are not done; returns their indices."""
        numbers, best, length = [], self._logprobs[:, 0].tolist(), self.ids.shape[2]
        for number, source in enumerate(self.sources):
            if source.is_done(best[number], length):
                continue
            if length < source.limit:
                numbers.append(number)
                continue
            for ids, logprob in zip(self.ids[number].tolist(), self._logprobs[number].tolist(), strict=True):
                if logprob > -torch.inf:
                    source.finish(ids, logprob, ended=False)
        remaining = torch.tensor(numbers, dtype=torch.long, device=self.ids.device)
        if len(numbers) < len(self.sources):
            self.sources = [self.sources[number] for number in numbers]
            self.ids, self._logprobs = self.ids[remaining], self._logprobs[remaining]
        return remaining


@torch.inference_mode()
def beam_search(model: CachedModel, begin: Tensor, limits: Sequence[int], settings: BeamSettings) -> list[list[Hypothesis]]:
    """The n best hypotheses of each source, from the start ids `begin` (S,); at most limits[s] tokens each.

    The rows of one source are adjacent, and each source has the same number. The logits are modified in place.

    Deterministic: equal sums are ordered by row, equal logits of a row by id. RunFault if the logits are not finite.
    """
    sources = [_Source(settings, limit) for limit in limits]
    live, ids = _LiveHypotheses(settings, sources, begin.device), begin
    while live.sources:
        n_sources, n_rows = len(live.sources), len(ids)
        selected, remaining = live.advance(model.decode(ids))
        unchanged = len(selected) == n_rows and torch.equal(selected, torch.arange(n_rows, device=selected.device))
        if live.sources and not unchanged:
            model.select(selected, None if len(remaining) == n_sources else remaining)
        ids = live.ids[:, :, -1].flatten()
    return [source.best for source in sources]


def topk_by_id(logits: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` highest logits of each row of (R, V) and their ids, (R, n) each; the highest first, equal ones by id."""
    n, size = min(n, logits.shape[1]), logits.shape[1]
    values, ids = logits.topk(min(n + 1, size), dim=1)
    # topk does not specify which of equal values it returns, nor their order.
    if size > n and bool(((values[:, n - 1] == values[:, n]) & (values[:, n] > -torch.inf)).any()):
        values, ids = logits.sort(dim=1, descending=True, stable=True)
        return values[:, :n], ids[:, :n]
    ids, order = ids[:, :n].sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def repeated_ngrams(ids: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Next ids that would repeat an n-gram of `ids` (R, n or more): their rows and ids, two tensors of one length."""
    ngrams, last = ids.unfold(1, n, 1), ids[:, ids.shape[1] - n + 1 :]
    rows, starts = (ngrams[..., :-1] == last[:, None]).all(dim=-1).nonzero(as_tuple=True)
    return rows, ngrams[rows, starts, n - 1]
