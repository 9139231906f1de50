"""Metrics of baselines: of tokens, from log-probabilities of the targets, and of texts made of the sources."""

import math
from collections.abc import Callable

import numpy as np

from mini_tf.baselines import BaselineData, Measured, NoBaseline
from mini_tf.data.batch import Batch
from mini_tf.data.store import Store
from mini_tf.data.tokenization.vocabulary import Vocabulary
from mini_tf.scores import TEXT_METRICS, can_measure
from mini_tf.scores.text_scores import count_words, text_scores
from mini_tf.system.seeds import seed_of

TOKEN_METRICS = ("loss", "perplexity", "bits_per_byte", "accuracy")
MOST_TOKENS = 5_000_000
"""Training tokens that are counted, at most."""
BLOCKS = 64
"""Blocks of consecutive tokens, evenly spaced, that are counted of more."""


class TokenSums:
    """Sums over all targets: log-probabilities in nats, and correct predictions."""

    def __init__(self) -> None:
        self.nats, self.n_correct, self.n = 0.0, 0, 0

    def add(self, log_p: np.ndarray, correct: np.ndarray) -> None:
        self.nats = self.nats - float(log_p.sum())
        self.n_correct = self.n_correct + int(correct.sum())
        self.n = self.n + len(log_p)

    def measured(self, name: str, data: BaselineData) -> Measured:
        loss = self.nats / max(1, self.n)
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": self.n_correct / max(1, self.n)}
        if data.every_token:
            metrics["bits_per_byte"] = self.nats / math.log(2) / data.val.bytes_of(self.n)
        total, counted = data.train.n_tokens, min(len(data.train), MOST_TOKENS)
        return Measured(name, metrics, f"from {counted:,} of {total:,} training tokens" if counted < total else "")


def training_ids(store: Store) -> np.ndarray:
    """(N,) int64: the ids of a split, or evenly spaced blocks of MOST_TOKENS ids."""
    n, size = len(store), MOST_TOKENS // BLOCKS
    firsts = [0] if n <= MOST_TOKENS else [block * (n - size) // (BLOCKS - 1) for block in range(BLOCKS)]
    length = n if n <= MOST_TOKENS else size
    return np.concatenate([np.asarray(store.ids[first : first + length], np.int64) for first in firsts])


def unigram(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """(V,): the frequency of each token, special ones not counted, with one added to each count (Laplace)."""
    counts = np.bincount(ids, minlength=vocabulary.size)
    counts[sorted(vocabulary.special_ids)] = 0  # which are never targets of masking
    frequencies: np.ndarray = (counts + 1) / (counts.sum() + vocabulary.size)
    return frequencies


def target_mask(batch: Batch) -> np.ndarray:
    """(B, L): True at the positions of the inputs that have a target."""
    mask = np.zeros(batch.inputs.ids.shape, bool)
    mask.reshape(-1)[slice(None) if batch.target_positions is None else batch.target_positions.numpy()] = True
    return mask


REFERENCE_METRICS = tuple(TEXT_METRICS)
MOST_WORK = 30_000_000
"""Of words of the texts times words of the references, as ROUGE-L's time; with more, a random part is scored."""


def text_measured(name: str, data: BaselineData, write: Callable[[str], str]) -> Measured:
    """Measure the texts that `write` makes of the sources of the validation examples."""
    if not can_measure(TEXT_METRICS):
        raise NoBaseline("neither rouge-score nor sacrebleu is installed")
    examples = map(data.dataset.source_and_references, data.examples(data.val.store))
    texts = [(write(source), references) for source, references in examples]
    work = sum(count_words(text) * sum(map(count_words, references)) for text, references in texts)
    chosen = np.random.default_rng(seed_of("baseline")).random(len(texts)) < MOST_WORK / max(1, work)
    scored = [one for one, used in zip(texts, chosen, strict=True) if used] or texts[:1]
    note = f"on {len(scored):,} of {len(texts):,} validation examples" if len(scored) < len(texts) else ""
    data.check()
    return Measured(name, text_scores(scored), note)
