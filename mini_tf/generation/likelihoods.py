"""Log-probabilities of whole texts, in nats: of a decoder, and pseudo-log-likelihoods of an encoder.

A decoder: the sum of log p(token | tokens before it). An encoder: the sum of log p(token | all others) with each token
masked in turn (Salazar et al. 2020, arXiv:1910.14659); with `whole_words` the tokens after it in its word are masked
too, since a word's later tokens give away the earlier ones (Kauf and Ivanova 2023, arXiv:2305.10588). An encoder takes
a forward pass of a row for each token.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, tee
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.decoding import check_finite, pad
from mini_tf.generation.prompt_ids import Affixes
from mini_tf.nn.model import Model
from mini_tf.parallel.dividing import divided
from mini_tf.parallel.group import ProcessGroup
from mini_tf.system.errors import DataFault, RunFault
from mini_tf.system.numbers import counted
from mini_tf.system.progress import show_progress

BATCH_TOKENS = 4096
"""Maximum input tokens of a forward pass, padding included."""
LOGITS = 2**22
"""Maximum number of logits that are computed at once."""

Ids = tuple[int, ...]
Row = tuple[Ids, list[tuple[int, int]]]
"""Input ids, and (position, token) of each target."""
Encoded = tuple[Ids, int]
"""The ids of a text, and the position of the first one that is scored."""
Key = TypeVar("Key")


class TokenScores(NamedTuple):
    """Of each token of a text, in nats: its log-probability, and the entropy of the distribution that gives it.

    NaN for a first token before which a decoder reads nothing.
    """

    log_p: list[float]
    entropy: list[float]


class TextScorer:
    """Scores texts between `affixes`, which are not scored. group: processes that divide the work.

    score: `causal` of a decoder; of an encoder `word`, which masks the later tokens of a word with each token, or
    `token`. first: position of the first token that an encoder predicts. RunFault if its tokenizer has no mask token.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        around: Affixes,
        score: str,
        group: ProcessGroup | None = None,
        first: int = 0,
    ) -> None:
        self.model, self.tokenizer, self.score, self.group = model, tokenizer, score, group or ProcessGroup()
        self._before, self._behind = (tuple(ids) for ids in around)
        self._first = max(1 if score == "causal" else first, len(self._before))  # token that is scored
        if score != "causal" and tokenizer.vocabulary.mask is None:
            raise RunFault("the model's tokenizer has no [MASK] token, so the model cannot score texts")

    def texts(
        self,
        texts: Sequence[str],
        places: Sequence[str] = (),
        starts: Sequence[int] = (),
        cut: bool = False,
        ahead: bool = True,
    ) -> list[float]:
        """The log-probability of each text.

        starts: how many characters of each text are read and not scored; a token counts with its last character.
        cut: a text longer than the context is read as by `tokens`; otherwise DataFault. ahead: an encoder sees the
        tokens behind the one that it predicts, too.
        """
        longest = self.model.context + (self.score == "causal")  # a decoder does not read the last token
        encoded = self._encode(texts, places, None if cut else longest, starts)
        scores = self._scores(encoded, with_entropy=False, ahead=ahead)
        return [sum(scores[text].log_p) for text in encoded]

    def tokens(self, texts: Sequence[str], places: Sequence[str] = ()) -> list[TokenScores]:
        """The scores of the tokens of each text.

        Of a text longer than the context, a decoder reads at least half of the context before each further token; an
        encoder reads a context with the token in the middle.
        """
        encoded = self._encode(texts, places, None)
        scores = self._scores(encoded, with_entropy=True)
        blank = [math.nan] * (self._first - len(self._before))
        return [TokenScores(blank + scores[text].log_p, blank + scores[text].entropy) for text in encoded]

    def notes(self, texts: Sequence[str], unit: str = "text", cut: bool = True) -> list[str]:
        """Warnings about unknown characters; cut: and about texts that are longer than the context."""
        unread, context = InputWarnings(self.tokenizer, self.model.context, unit), self.model.context
        for text in dict.fromkeys(texts):
            unread.add([text])
        n = sum(len(ids) > context for ids in self.tokenizer.encode_batch(texts)) if cut else 0
        subject = (
            f"{n:,} of {len(texts):,} {unit}s {'is' if n == 1 else 'are'} longer than the context of {context} tokens"
        )
        how = f"there a token is predicted from the {context // 2} tokens before it or more"
        return [*([f"{subject}; {how}"] if n else []), *unread.notes()]

    def _causal_rows(self, text: Encoded) -> Iterator[Row]:
        ids, scored = text
        end, context = len(ids) - len(self._behind), self.model.context
        start = max(0, min(end - 1 - context, scored - 1 - context // 2))
        while scored < end:
            stop = min(end, start + context + 1)
            yield ids[start : stop - 1], [(i - 1 - start, ids[i]) for i in range(scored, stop)]
            scored, start = stop, stop - 1 - context // 2

    def _masked_rows(self, text: Encoded, ahead: bool = True) -> Iterator[Row]:
        ids, first = text
        words, mask = self.tokenizer.word_starts(np.array(ids)).cumsum(), self.tokenizer.vocabulary.mask
        assert mask is not None
        end, by_word = len(ids) - len(self._behind), self.score == "word"
        for i in range(first, end):
            start = max(0, min(i - self.model.context // 2, len(ids) - self.model.context))
            row = range(start, min(len(ids), start + self.model.context))
            hidden = {i, *(j for j in row if j > i and ((by_word and words[j] == words[i]) or (not ahead and j < end)))}
            yield tuple(mask if j in hidden else ids[j] for j in row), [(i - start, ids[i])]

    def _scores(self, encoded: Sequence[Encoded], with_entropy: bool, ahead: bool = True) -> dict[Encoded, TokenScores]:
        """The scores of the scored tokens of each text."""
        # In one order, so that equal texts have equal scores, whatever the batch.
        unique = sorted(set(encoded), key=lambda text: (len(text[0]), text))
        rows = self._causal_rows if self.score == "causal" else partial(self._masked_rows, ahead=ahead)
        scores = {text: TokenScores([], []) for text in unique}
        self.model.eval()
        with show_progress(f"scoring {counted(len(encoded), 'text')}") as report_progress:
            done, (inputs, scored) = 0, tee(batches((text, *row) for text in unique for row in rows(text)))
            values = divided(self.group, inputs, lambda batch: self._values([row[1:] for row in batch], with_entropy))
            for batch in scored:
                for (text, _, _), (log_p, entropy) in zip(batch, islice(values, len(batch)), strict=True):
                    scores[text].log_p.extend(log_p)
                    scores[text].entropy.extend(entropy)
                done += len({text for text, _, _ in batch})
                report_progress(min(1.0, done / len(unique)))
        return scores

    def _encode(
        self, texts: Sequence[str], places: Sequence[str], longest: int | None, starts: Sequence[int] = ()
    ) -> list[Encoded]:
        encoded: list[Encoded] = []
        for number, ids in enumerate(self.tokenizer.encode_batch(texts)):
            place = f"{places[number]}: " if places else ""
            where = places[number : number + 1]
            sequence = (*self._before, *map(int, ids), *self._behind)
            start = starts[number] if starts else 0
            n_read = sum(last <= start for _, last in self.tokenizer.spans(texts[number])[1]) if start else 0
            if len(ids) == n_read:
                raise DataFault(f"{place}the text {texts[number][start:][:40]!r} has no token", where=where)
            if longest is not None and len(sequence) > longest:
                message = f"a text of {len(sequence)} tokens, more than the model's context of {self.model.context}"
                raise DataFault(f"{place}{message}", hint="remove the line", where=where)
            encoded.append((sequence, max(self._first, len(self._before) + n_read)))
        return encoded

    def _values(self, rows: Sequence[Row], with_entropy: bool) -> list[tuple[list[float], list[float]]]:
        """The log-probabilities of each row's targets, and the entropies if they are wanted."""
        labels = [[id for _, id in targets] for _, targets in rows]
        hidden, size = hidden_at(self.model, rows), self.tokenizer.vocabulary.size
        of_rows = predict_targets(self.model, hidden, labels, size, with_entropy)
        return [(row.log_p.tolist(), [] if row.entropy is None else row.entropy.tolist()) for row in of_rows]


class TargetPredictions(NamedTuple):
    """Of the targets of a row, (T,): the log-probability of each in nats, the most probable token in its place, and the
    entropy of the distribution in nats if it was asked for.
    """

    log_p: Float[Tensor, " T"]
    best: Int[Tensor, " T"]
    entropy: Float[Tensor, " T"] | None = None


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
    model: Model, hidden: Tensor, labels: Sequence[Sequence[int]], vocabulary_size: int, with_entropy: bool = False
) -> list[TargetPredictions]:
    """What hidden states (T, D) predict of the `labels` of each row, T in all. RunFault if logits are not finite."""
    flat = torch.tensor([id for row in labels for id in row], device=hidden.device)
    n, parts = max(1, LOGITS // vocabulary_size), []
    for part, ids in zip(hidden.split(n), flat.split(n), strict=True):
        logits = model.logits(part)
        check_finite(logits)
        log_p = logits.float().log_softmax(dim=-1)  # (T, V)
        entropy = [-(log_p.exp() * log_p).nan_to_num(0.0).sum(dim=-1)] if with_entropy else []  # 0 log 0 is 0
        parts.append([log_p.gather(1, ids[:, None]).squeeze(1), logits.argmax(dim=-1), *entropy])
    sizes = [len(row) for row in labels]
    log_p, best, *entropy = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
    columns = [log_p.double().split(sizes), best.split(sizes)]  # MPS has no float64
    columns += [each.double().split(sizes) for each in entropy]
    return [TargetPredictions(*row) for row in zip(*columns, strict=True)]


def batches(
    rows: Iterator[tuple[Key, Ids, list[tuple[int, int]]]],
) -> Iterator[list[tuple[Key, Ids, list[tuple[int, int]]]]]:
    """Successive rows, each behind what it belongs to, in batches of at most BATCH_TOKENS; rows without a target are
    left out.
    """
    batch: list[tuple[Key, Ids, list[tuple[int, int]]]] = []
    for row in rows:
        if not row[2]:
            continue
        if batch and (len(batch) + 1) * max(len(row[1]), max(len(other[1]) for other in batch)) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
