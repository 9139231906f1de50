"""Beam search: the most probable targets of each source, with K hypotheses per source.

At each step the candidates of a source are its live hypotheses, each extended by every token, ranked by the sum of
log-probabilities. Of the best K, those that end are finished; the best K that do not end stay live. The greedy
hypothesis is followed beside them when it is not among them, so the best one never scores lower than greedy decoding.
A source is done when no live hypothesis can still be among the n best, or at its token limit, where live ones count
too; a live one that cannot be among them is dropped, which changes no result.

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
    """Settings of a search for the `n_best` hypotheses with a beam of `num_beams`; `ends`: ids of the end tokens.

    min_new_tokens: minimum number of tokens before the end token. no_repeat_ngram: no n-gram of this length occurs
    twice, 0 = off; a hypothesis without any other continuation may end. banned: ids that are never generated.
    """

    ends: tuple[int, ...]
    num_beams: int = 4
    n_best: int = 1
    length_penalty: float = 0.0
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0
    banned: tuple[int, ...] = ()

    def score(self, logprob: float, length: int) -> float:
        """The score that ranks finished hypotheses; `length` in tokens includes the end token."""
        return logprob / self._penalty(length)

    def least_logprob(self, score: float, length: int, limit: int) -> float:
        """The log-probability above which a live hypothesis of `length` tokens can still reach more than `score`.

        The log-probability can only fall and the penalty is monotonic in the length, so the highest score has the
        present log-probability and ends with the next token or at the limit.
        """
        return score * max(self._penalty(length + 1), self._penalty(limit))

    def _penalty(self, length: int) -> float:
        penalty: float = ((5 + length) / 6) ** self.length_penalty
        return penalty


class Hypothesis(NamedTuple):
    """The ids of a target without the end token. ended: it had one, which counts in `logprob` and `score`."""

    ids: list[int]
    logprob: float
    score: float
    ended: bool


class _Source:
    """The best finished hypotheses of one source; limit: the maximum length of its targets."""

    def __init__(self, settings: BeamSettings, limit: int) -> None:
        self._settings, self.limit = settings, limit
        self.best: list[Hypothesis] = []
        """The n best, the best first; of equal scores the one finished first, of equal targets the better one."""

    def finish(self, ids: list[int], logprob: float, ended: bool) -> None:
        finished = Hypothesis(ids, logprob, self._settings.score(logprob, len(ids) + ended), ended)
        ranked = sorted([*self.best, finished], key=lambda hypothesis: -hypothesis.score)
        distinct = {(tuple(hypothesis.ids), hypothesis.ended): hypothesis for hypothesis in reversed(ranked)}
        best = [hypothesis for hypothesis in ranked if distinct[tuple(hypothesis.ids), hypothesis.ended] is hypothesis]
        self.best = best[: self._settings.n_best]

    def least_logprob(self, length: int) -> float:
        """The log-probability above which a live hypothesis of `length` tokens can change the result."""
        settings = self._settings
        if len(self.best) < settings.n_best:
            return -torch.inf
        return torch.inf if settings.num_beams == 1 else settings.least_logprob(self.best[-1].score, length, self.limit)


class _LiveHypotheses:
    """The live hypotheses of the sources that are not done: ids (S, W, n), log-probabilities (S, W), the best first.

    W is K, or K + 1 where a greedy hypothesis is not among the best K, or lower if no source has so many. If a source
    has fewer than W, its other log-probabilities are -inf. greedy (S,): the index of the greedy one; -1: it has ended.
    """

    def __init__(self, settings: BeamSettings, sources: Sequence[_Source], device: torch.device) -> None:
        self.settings, self.sources = settings, list(sources)
        self.ids = torch.empty(len(sources), 1, 0, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(len(sources), 1, device=device)
        self._greedy = torch.zeros(len(sources), dtype=torch.long, device=device)
        self._ends, self._banned = (
            torch.tensor(ids, dtype=torch.long, device=device) for ids in (settings.ends, settings.banned)
        )

    def advance(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step with the logits (S W, V) of the next tokens; returns the rows and the sources to continue."""
        n_sources, n_live, length = self.ids.shape
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        total = logits.logsumexp(dim=1)
        check_finite(total)
        self._mask_banned(logits)
        # The best K candidates that do not end are among the best K + E of each hypothesis.
        values, next_ids = topk_by_id(logits, self.settings.num_beams + len(self._ends))
        n_next, next_ids = values.shape[1], next_ids.reshape(n_sources, -1)
        sums = ((values - total[:, None]).view(n_sources, n_live, -1) + self._logprobs[..., None]).flatten(1)
        order = self._continue(sums, torch.isin(next_ids, self._ends), n_next)
        origins, next_ids = order // n_next, next_ids.gather(1, order)
        before = self.ids.gather(1, origins[..., None].expand(-1, -1, length))
        self.ids = torch.cat([before, next_ids[..., None]], dim=2)
        rows = origins + n_live * torch.arange(n_sources, device=origins.device)[:, None]
        remaining = self._drop_done()
        return rows[remaining, : self.ids.shape[1]].flatten(), remaining

    def _continue(self, sums: Tensor, ends: Tensor, n_next: int) -> Tensor:
        """Finish candidates and choose those that stay live: their indices (S, W) among the candidates (S, C).

        sums, ends (S, C): log-probabilities, and whether they end; each hypothesis has n_next of them, the best first.
        """
        num_beams = self.settings.num_beams
        ranked = sums[:, : num_beams * n_next]  # without a greedy hypothesis that is not among the best K
        order = ranked.sort(dim=1, descending=True, stable=True).indices[:, : num_beams * (1 + len(self._ends))]
        is_greedy, greedy = self._greedy >= 0, self._greedy.clamp(min=0)[:, None] * n_next
        candidates = torch.cat([order, greedy], dim=1)
        ended, logprobs = ends.gather(1, candidates), sums.gather(1, candidates)
        greedy_ends = ended[:, -1]
        finishes = ended & (logprobs > -torch.inf)
        finishes[:, num_beams:-1] = False
        finishes[:, -1] &= is_greedy & (order[:, :num_beams] != greedy).all(dim=1)
        self._finish(candidates, finishes, logprobs, n_next)
        live, index = logprobs[:, :-1].masked_fill(ended[:, :-1], -torch.inf).sort(dim=1, descending=True, stable=True)
        live, order = live[:, :num_beams], order.gather(1, index[:, :num_beams])
        same = order == greedy
        is_lost = is_greedy & ~greedy_ends & ~same.any(dim=1)
        if bool(is_lost.any()):
            order = torch.cat([order, greedy], dim=1)
            live = torch.cat([live, logprobs[:, -1:].masked_fill(~is_lost[:, None], -torch.inf)], dim=1)
        place = torch.where(is_lost, num_beams, same.long().argmax(dim=1))
        self._logprobs, self._greedy = live, place.masked_fill(~is_greedy | greedy_ends, -1)
        return order

    def _mask_banned(self, logits: Tensor) -> None:
        """Set the logits of forbidden next tokens to -inf."""
        settings = self.settings
        logits.index_fill_(1, self._banned, -torch.inf)
        ends, ids = logits[:, self._ends], self.ids.flatten(0, 1)
        if ids.shape[1] < settings.min_new_tokens:
            logits[:, self._ends] = -torch.inf
        if 0 < settings.no_repeat_ngram <= ids.shape[1]:
            logits[repeated_ngrams(ids, settings.no_repeat_ngram)] = -torch.inf
            stuck = (logits == -torch.inf).all(dim=1)
            logits[:, self._ends] = torch.where(stuck[:, None], ends, logits[:, self._ends])

    def _finish(self, candidates: Tensor, finishes: Tensor, logprobs: Tensor, n_next: int) -> None:
        """Finish those of the candidates (S, N) that `finishes` names, which end."""
        numbers, columns = finishes.nonzero(as_tuple=True)
        finished = self.ids[numbers, candidates[numbers, columns] // n_next].tolist()
        for number, ids, logprob in zip(numbers.tolist(), finished, logprobs[numbers, columns].tolist(), strict=True):
            self.sources[number].finish(ids, logprob, ended=True)

    def _drop_done(self) -> Tensor:
        """Keep only the sources that are not done, and what can change their results; returns their indices."""
        numbers, width, length = list[int](), 1, self.ids.shape[2]
        for number, (source, logprobs) in enumerate(zip(self.sources, self._logprobs.tolist(), strict=True)):
            least = source.least_logprob(length)
            n_live = sum(logprob > least for logprob in logprobs)
            if n_live and length < source.limit:
                numbers.append(number)
                width = max(width, n_live)
            for ids, logprob in zip(
                self.ids[number, :n_live].tolist() if length == source.limit else [], logprobs, strict=False
            ):
                source.finish(ids, logprob, ended=False)
        remaining = torch.tensor(numbers, dtype=torch.long, device=self.ids.device)
        self.sources = [self.sources[number] for number in numbers]
        if (len(remaining), width) != self._logprobs.shape:
            self.ids, self._logprobs = self.ids[remaining, :width], self._logprobs[remaining, :width]
            greedy = self._greedy[remaining]
            self._greedy = greedy.masked_fill(greedy >= width, -1)
        return remaining


@torch.inference_mode()
def beam_search(
    model: CachedModel, begin: Tensor, limits: Sequence[int], settings: BeamSettings
) -> list[list[Hypothesis]]:
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
