"""Beam search: the likeliest texts of each source, several of which are followed side by side.

At every step the candidates of a source are its live hypotheses, each with every token that may follow, ranked by the sum of
log-probabilities. Of the best K those that end are finished; the first K that do not end live on. A source is done when K are
finished, when no live one can come before those that are kept, or at its limit of tokens, where live ones count as they are.

K = 1 takes the likeliest token at every step. Where K is no less than the number of texts, all of them are compared.
Source: Sutskever et al. 2014, arXiv:1409.3215, section 3.2; score: Wu et al. 2016, arXiv:1609.08144, eq. 14, without coverage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mini_tf.generation.decoding import CachedModel, refuse_not_finite


@dataclass(frozen=True)
class Beam:
    """What is searched for: the `kept` best texts out of `size` hypotheses.

    min_new_tokens: the end is not chosen before so many tokens. no_repeat_ngram: no so many tokens in a row occur twice, 0 = they
    may; a text that could go on in no other way may end. banned: ids that are never chosen.
    """

    end: int
    size: int = 4
    kept: int = 1
    length_penalty: float = 0.0
    min_new_tokens: int = 0
    no_repeat_ngram: int = 0
    banned: tuple[int, ...] = ()

    def score(self, logprob: float, length: int) -> float:
        """What texts are compared by; `length` counts tokens, the end too."""
        penalty: float = ((5 + length) / 6) ** self.length_penalty
        return logprob / penalty

    def best_possible(self, logprob: float, length: int, limit: int) -> float:
        """The highest score that a live hypothesis of `length` tokens may come to.

        Its log-probability can only fall, and is divided by something that only rises, or only falls, with the length: so the
        score is highest if nothing is lost any more, and the text ends with the next token or at the limit.
        """
        return max(self.score(logprob, length + 1), self.score(logprob, limit))


class Hypothesis(NamedTuple):
    """A text, without the end; ended: whether it had one, which then counts in `logprob` and `score`."""

    ids: list[int]
    logprob: float
    score: float
    ended: bool


class _Source:
    """One source: the most tokens that its texts may have, and those that are finished, in this order."""

    def __init__(self, beam: Beam, limit: int) -> None:
        self._beam, self.limit = beam, limit
        self._finished: list[Hypothesis] = []

    @property
    def best(self) -> list[Hypothesis]:
        """Those that are kept, the best first; of equals the one that was finished first."""
        return sorted(self._finished, key=lambda hypothesis: -hypothesis.score)[: self._beam.kept]

    def finish(self, ids: list[int], logprob: float, ended: bool) -> None:
        self._finished.append(Hypothesis(ids, logprob, self._beam.score(logprob, len(ids) + ended), ended))

    def is_done(self, logprob: float, length: int) -> bool:
        """Whether no live hypothesis matters any more; the best of them has this log-probability, all have `length` tokens."""
        if len(self._finished) >= self._beam.size or logprob == -torch.inf:
            return True
        kept = self.best
        return len(kept) == self._beam.kept and kept[-1].score >= self._beam.best_possible(logprob, length, self.limit)


class _Live:
    """The live hypotheses of the sources that are not done: texts (S, K, n), log-probabilities (S, K).

    Where a source has fewer, the last of its log-probabilities are -inf.
    """

    def __init__(self, beam: Beam, sources: Sequence[_Source], device: torch.device) -> None:
        self.beam, self.sources = beam, list(sources)
        self.texts = torch.empty(len(sources), 1, 0, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(len(sources), 1, device=device)
        self._banned = torch.tensor(beam.banned, dtype=torch.long, device=device)

    def advance(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Take the step that the scores (S K, V) of the next tokens tell to; the rows (of these) and the sources that go on."""
        n_sources, n_live, length = self.texts.shape
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        total = scores.logsumexp(dim=1)
        refuse_not_finite(total)
        self._ban(scores)
        # The first K that do not end: of one hypothesis these are among its best K + 1, and together among the best 2 K.
        values, words = best_of_rows(scores, self.beam.size + 1)
        sums = (values - total[:, None]).view(n_sources, n_live, -1) + self._logprobs[..., None]
        sums, order = sums.flatten(1).sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : 2 * self.beam.size], order[:, : 2 * self.beam.size]
        origins, words = order // values.shape[1], words.reshape(n_sources, -1).gather(1, order)
        ends = words == self.beam.end
        self._finish(ends, origins, sums)
        sums, places = (part[:, : self.beam.size] for part in sums.masked_fill(ends, -torch.inf).sort(dim=1, descending=True, stable=True))
        origins, words = origins.gather(1, places), words.gather(1, places)
        before = self.texts.gather(1, origins[..., None].expand(-1, -1, length))
        self.texts, self._logprobs = torch.cat([before, words[..., None]], dim=2), sums
        rows = origins + n_live * torch.arange(n_sources, device=origins.device)[:, None]
        going = self._drop_done()
        return rows[going].flatten(), going

    def _ban(self, scores: Tensor) -> None:
        """Make what may not follow impossible: scores of -inf."""
        scores.index_fill_(1, self._banned, -torch.inf)
        end, texts = scores[:, self.beam.end].clone(), self.texts.flatten(0, 1)
        if texts.shape[1] < self.beam.min_new_tokens:
            scores[:, self.beam.end] = -torch.inf
        if 0 < self.beam.no_repeat_ngram <= texts.shape[1]:
            scores[repeating(texts, self.beam.no_repeat_ngram)] = -torch.inf
            stuck = (scores == -torch.inf).all(dim=1)
            scores[:, self.beam.end] = torch.where(stuck, end, scores[:, self.beam.end])

    def _finish(self, ends: Tensor, origins: Tensor, sums: Tensor) -> None:
        """Of the ranked candidates (S, 2 K) the first K that end are finished."""
        among = (ends & sums.isfinite())[:, : self.beam.size].nonzero(as_tuple=True)
        texts = self.texts[among[0], origins[among]]
        for number, ids, logprob in zip(among[0].tolist(), texts.tolist(), sums[among].tolist(), strict=True):
            self.sources[number].finish(ids, logprob, ended=True)

    def _drop_done(self) -> Tensor:
        """Go on with the sources that are not done: their numbers."""
        numbers, best, length = [], self._logprobs[:, 0].tolist(), self.texts.shape[2]
        for number, source in enumerate(self.sources):
            if source.is_done(best[number], length):
                continue
            if length < source.limit:
                numbers.append(number)
                continue
            for ids, logprob in zip(self.texts[number].tolist(), self._logprobs[number].tolist(), strict=True):
                if logprob > -torch.inf:
                    source.finish(ids, logprob, ended=False)
        going = torch.tensor(numbers, dtype=torch.long, device=self.texts.device)
        if len(numbers) < len(self.sources):
            self.sources = [self.sources[number] for number in numbers]
            self.texts, self._logprobs = self.texts[going], self._logprobs[going]
        return going


@torch.inference_mode()
def search(rows: CachedModel, begin: Tensor, limits: Sequence[int], beam: Beam) -> list[list[Hypothesis]]:
    """The best texts of each source, which follow its token of `begin` (S,), of limits[s] tokens at most, the end included.

    Rows of one source are neighbours, and there are as many of every source. Their scores are written into.

    Deterministic: of equal sums the lower row comes first, of equal scores in a row the lower id. RunFault where the scores are no
    finite numbers.
    """
    sources = [_Source(beam, limit) for limit in limits]
    live, ids = _Live(beam, sources, begin.device), begin
    while live.sources:
        n_sources, n_rows = len(live.sources), len(ids)
        selected, going = live.advance(rows.after(ids))
        unchanged = len(selected) == n_rows and torch.equal(selected, torch.arange(n_rows, device=selected.device))
        if live.sources and not unchanged:
            rows.select(selected, None if len(going) == n_sources else going)
        ids = live.texts[:, :, -1].flatten()
    return [source.best for source in sources]


def best_of_rows(scores: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The `n` highest scores of each row of (R, V), or all, and their ids: (R, n) each, the highest first, equals by id."""
    n, size = min(n, scores.shape[1]), scores.shape[1]
    values, ids = scores.topk(min(n + 1, size), dim=1)
    # topk says nothing of equals: it may take any of them, in any order.
    if size > n and bool(((values[:, n - 1] == values[:, n]) & (values[:, n] > -torch.inf)).any()):
        values, ids = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :n], ids[:, :n]
    ids, order = ids[:, :n].sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, ids.gather(1, order)


def repeating(texts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Which tokens would make the last `n` tokens occur twice, for texts (R, n or more): rows and ids, in pairs."""
    grams, last = texts.unfold(1, n, 1), texts[:, texts.shape[1] - n + 1 :]
    rows, places = (grams[..., :-1] == last[:, None]).all(dim=-1).nonzero(as_tuple=True)
    return rows, grams[rows, places, n - 1]
