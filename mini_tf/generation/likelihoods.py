"""Log-probabilities of whole texts, in nats: of a decoder, and pseudo-log-likelihoods of an encoder.

A decoder: the sum of log p(token | tokens before it). An encoder: the sum of log p(token | all others) with each token
masked in turn (Salazar et al. 2020, arXiv:1910.14659); with `whole_words` the tokens after it in its word are masked
too, since a word's later tokens give away the earlier ones (Kauf and Ivanova 2023, arXiv:2305.10588). An encoder takes
a forward pass of a row for each token.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import tee
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.decoding import check_finite, pad
from mini_tf.generation.prompt_ids import Affixes
from mini_tf.nn.model import Model
from mini_tf.parallel.dividing import divided
from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.progress import show_progress

BATCH_TOKENS = 4096
"""Maximum input tokens of a forward pass, padding included."""
LOGITS = 2**22
"""Maximum number of logits that are computed at once."""

Ids = tuple[int, ...]
Row = tuple[Ids, list[tuple[int, int]]]
"""Input ids, and (position, token) of each target."""


class TextScorer:
    """Scores texts between `affixes`, which are not scored. group: processes that divide the work."""

    def __init__(self, model: Model, tokenizer: Tokenizer, affixes: Affixes, group: ProcessGroup | None = None) -> None:
        self.model, self.tokenizer, self.group = model, tokenizer, group or ProcessGroup()
        self._before, self._behind = (tuple(ids) for ids in affixes)

    def causal(self, texts: Sequence[str], places: Sequence[str] = ()) -> list[float]:
        """Log-probabilities by a decoder; without a separator at the start, the first token is not scored."""

        def rows(ids: Ids) -> Iterator[Row]:
            end = len(ids) - len(self._behind)
            yield ids[: end - 1], [(i - 1, ids[i]) for i in range(max(1, len(self._before)), end)]

        return self._scores(texts, places, rows, lookahead=1)

    def masked(self, texts: Sequence[str], places: Sequence[str] = (), whole_words: bool = True) -> list[float]:
        """Pseudo-log-likelihoods by an encoder. RunFault if the tokenizer has no mask token."""
        mask = self.tokenizer.vocabulary.mask
        if mask is None:
            raise RunFault("the model's tokenizer has no [MASK] token, so the model cannot score texts")

        def rows(ids: Ids) -> Iterator[Row]:
            words = self.tokenizer.word_starts(np.array(ids)).cumsum()
            for i in range(len(self._before), len(ids) - len(self._behind)):
                hidden = [j == i or (whole_words and j > i and words[j] == words[i]) for j in range(len(ids))]
                yield tuple(mask if one else id for one, id in zip(hidden, ids, strict=True)), [(i, ids[i])]

        return self._scores(texts, places, rows, lookahead=0)

    def _scores(
        self, texts: Sequence[str], places: Sequence[str], rows: Callable[[Ids], Iterator[Row]], lookahead: int
    ) -> list[float]:
        encoded = self._encode(texts, places, self.model.context + lookahead)
        unique = sorted(
            set(encoded), key=lambda ids: (len(ids), ids)
        )  # so that equal texts have equal scores, whatever the batch
        sums = dict.fromkeys(unique, 0.0)
        self.model.eval()
        with show_progress(f"scoring {len(texts):,} texts") as report_progress:
            done, (own, counted) = 0, tee(batches((ids, *row) for ids in unique for row in rows(ids)))
            scores = divided(
                self.group, own, lambda batch: [self._log_probs([(inputs, at) for _, inputs, at in batch])]
            )
            for batch, of_batch in zip(counted, scores, strict=True):
                for (ids, _, _), score in zip(batch, of_batch, strict=True):
                    sums[ids] += score
                done += len({ids for ids, _, _ in batch})
                report_progress(min(1.0, done / len(unique)))
        return [sums[ids] for ids in encoded]

    def _encode(self, texts: Sequence[str], places: Sequence[str], longest: int) -> list[Ids]:
        encoded = []
        for number, ids in enumerate(self.tokenizer.encode_batch(texts)):
            place = f"{places[number]}: " if places else ""
            where = places[number : number + 1]
            sequence = (*self._before, *map(int, ids), *self._behind)
            if not len(ids):
                raise DataFault(f"{place}the text {texts[number][:40]!r} has no token", where=where)
            if len(sequence) > longest:
                what = f"a text of {len(sequence)} tokens, more than the model's context of {self.model.context}"
                raise DataFault(f"{place}{what}", hint="remove the line", where=where)
            encoded.append(sequence)
        return encoded

    def _log_probs(self, rows: Sequence[Row]) -> list[float]:
        """The sum of the log-probabilities of each row's targets."""
        labels = [[id for _, id in targets] for _, targets in rows]
        found = predict_targets(self.model, hidden_at(self.model, rows), labels, self.tokenizer.vocabulary.size)
        return [float(row.log_p.sum()) for row in found]


class TargetPredictions(NamedTuple):
    """Of the targets of a row: the log-probability of each in nats, and the most probable token in its place, (T,)."""

    log_p: Float[Tensor, " T"]
    best: Int[Tensor, " T"]


@torch.inference_mode()
def hidden_at(model: Model, rows: Sequence[Row]) -> Tensor:
    """The hidden states (T, D) at the targets of all rows, by one forward pass."""
    device = next(model.parameters()).device
    tokens = pad([ids for ids, _ in rows], device, left=False)
    length = tokens.ids.shape[1]
    at = torch.tensor([n * length + i for n, (_, targets) in enumerate(rows) for i, _ in targets], device=device)
    return model(tokens, at=at).y  # type: ignore[no-any-return]


@torch.inference_mode()
def predict_targets(
    model: Model, hidden: Tensor, labels: Sequence[Sequence[int]], vocabulary_size: int
) -> list[TargetPredictions]:
    """What hidden states (T, D) predict of the `labels` of each row, T in all. RunFault if logits are not finite."""
    flat = torch.tensor([id for row in labels for id in row], device=hidden.device)
    n, found = max(1, LOGITS // vocabulary_size), []
    for part, ids in zip(hidden.split(n), flat.split(n), strict=True):
        logits = model.logits(part)
        check_finite(logits)
        found.append((logits.float().log_softmax(dim=-1).gather(1, ids[:, None]).squeeze(1), logits.argmax(dim=-1)))
    log_p, best = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    sizes = [len(row) for row in labels]
    rows = zip(log_p.double().split(sizes), best.split(sizes), strict=True)  # MPS has no float64
    return [TargetPredictions(*row) for row in rows]


def batches(
    rows: Iterator[tuple[Ids, Ids, list[tuple[int, int]]]],
) -> Iterator[list[tuple[Ids, Ids, list[tuple[int, int]]]]]:
    """Rows of ascending length in batches of at most BATCH_TOKENS; rows without a target are left out."""
    batch: list[tuple[Ids, Ids, list[tuple[int, int]]]] = []
    for row in rows:
        if not row[2]:
            continue
        if batch and (len(batch) + 1) * len(row[1]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
