"""Which source word each target word comes from, as a head of cross-attention says it.

The target's own words are given, as in training. A target word's row is the mean over its tokens, a source word's weight the sum over its
tokens; the word with the largest weight is the link. What is no word, as the separator that closes a source, may be the largest: then
there is no link. A token has two rows: the one that predicts it (shift 0), and the one in which it is read (shift 1; Chen et al. 2020,
arXiv:2004.14837).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.examples import Pair
from mini_tf.generation.decoding import padded
from mini_tf.inspection.alignments.links import Link
from mini_tf.inspection.capture import OWN_TO_SOURCE, Capture, capture
from mini_tf.inspection.framing import Framed, framed_source, framed_target
from mini_tf.inspection.words import members, numbers_of
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

ROWS = 32
"""Pairs that are read together."""
SHIFTS = (0, 1)


class HeadShift(NamedTuple):
    """A head of cross-attention, and which row of a target token is looked at."""

    layer: int
    head: int
    shift: int

    def __str__(self) -> str:
        return f"cross-attention L{self.layer} H{self.head}, shift {self.shift}"


@dataclass(frozen=True, eq=False)
class WordWeights:
    """weights (layers, heads, shifts, target words, 1 + source words) of a pair; the first column is what is no word."""

    weights: np.ndarray

    @property
    def links(self) -> np.ndarray:
        """(layers, heads, shifts, target words): the number of the source word, -1 for none."""
        return np.asarray(self.weights.argmax(axis=-1) - 1)

    @property
    def sharpness(self) -> np.ndarray:
        """(layers, heads, shifts): the largest weight on a source word, the mean over the target words; 0 without any."""
        words = self.weights[..., 1:]
        return np.asarray(words.max(axis=-1).mean(axis=-1)) if words.shape[-1] and words.shape[-2] else np.zeros(words.shape[:-2])


@dataclass(frozen=True, eq=False)
class Aligned:
    """Of a pair what is kept of many: `links` and `sharpness` of its WordWeights."""

    links: np.ndarray
    sharpness: np.ndarray


def links_at(links: np.ndarray, place: HeadShift) -> frozenset[Link]:
    """The links (source word, target word) of one head, out of those of all."""
    return frozenset((int(i), j) for j, i in enumerate(links[place]) if i >= 0)


def aligned(trained: Trained, pairs: Sequence[Pair]) -> list[Aligned | None]:
    """What every head links in each pair; None for a pair that is longer than the context."""
    return [None if one is None else Aligned(one.links.astype(np.int16), one.sharpness) for one in word_weights(trained, pairs)]


def word_weights(trained: Trained, pairs: Sequence[Pair]) -> Iterator[WordWeights | None]:
    """The weights between the words of each pair; None for a pair that is longer than the context.

    UsageFault where the model does not read a source.
    """
    if not trained.model.needs_source:
        raise UsageFault(f"a model of the kind {trained.recipe.model.kind} reads no source: there is nothing to align")
    context = trained.model.context
    for first in range(0, len(pairs), ROWS):
        framed = [
            (framed_source(trained.source_tokenizer, pair.source, context), framed_target(trained.tokenizer, pair.target, context))
            for pair in pairs[first : first + ROWS]
        ]
        fitting = [both for both in framed if not both[0].n_cut and not both[1].n_cut]
        found = iter(_read_together(trained, fitting) if fitting else [])
        yield from (None if source.n_cut or target.n_cut else next(found) for source, target in framed)


def _read_together(trained: Trained, framed: Sequence[tuple[Framed, Framed]]) -> Iterator[WordWeights]:
    device = trained.setup.device
    sources, targets = (padded([both[side].ids for both in framed], device, left=False) for side in (0, 1))
    captured = capture(trained.model, targets, sources)
    if not any((reading.rows, reading.columns) == OWN_TO_SOURCE for reading in captured.readings):
        raise UsageFault("the model has no cross-attention: there is nothing to align")
    for row, (source, target) in enumerate(framed):
        yield between_words(captured, row, source, target)


def between_words(captured: Capture, row: int, source: Framed, target: Framed) -> WordWeights:
    """Of one row of a batch the weights of every cross head, between words."""
    column = members(numbers_of(source), 1 + len(source.text.split())).float()  # (M, 1 + words); 0 is what is no word
    of_row = numbers_of(target)
    rows = torch.stack([_means(numbers, len(target.text.split())) for numbers in ([*of_row[1:], 0], of_row)])  # (shifts, words, L)
    layers = []
    for reading in captured.readings:
        if (reading.rows, reading.columns) != OWN_TO_SOURCE:
            continue
        weights = reading.weights[row, :, : len(target.ids)].float().cpu()
        tokens = weights[:, :, reading.lead : reading.lead + len(source.ids)] @ column  # (H,L,M) @ (M,V) -> (H,L,V)
        tokens[:, :, 0] += weights[:, :, : reading.lead].sum(dim=-1)
        layers.append((rows @ tokens[:, None]).numpy())  # (S,W,L) @ (H,1,L,V) -> (H,S,W,V)
    return WordWeights(np.stack(layers))


def _means(numbers: Sequence[int], count: int) -> Tensor:
    """(count, tokens): what makes the mean over the tokens of each word; zeros for a word that no token stands for."""
    tokens = members(numbers, 1 + count)[:, 1:].T.float()
    return tokens / tokens.sum(dim=1, keepdim=True).clamp(min=1)
