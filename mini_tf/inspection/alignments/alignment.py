"""Word alignment by a cross-attention head: a target word is aligned to the source word with the largest weight.

The target is the decoder's input, as in training. The row of a target word is the mean over its tokens, the weight of a
source word the sum over its tokens. If the separator has the largest weight, the target word is not aligned. A token
has two rows: shift 0 is the position that predicts it, shift 1 the position that has it as input (Chen et al. 2020,
arXiv:2004.14837).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.examples import Pair
from mini_tf.generation.decoding import pad
from mini_tf.inspection.alignments.files import AlignmentPoint
from mini_tf.inspection.capture import OWN_TO_SOURCE, Capture, capture
from mini_tf.inspection.model_input import ModelInput, target_input, untruncated_input
from mini_tf.inspection.words import membership, word_numbers
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

BATCH_SIZE = 32
"""Pairs per forward pass."""
SHIFTS = (0, 1)


class HeadShift(NamedTuple):
    """A cross-attention head, and the shift of the row used for a target token."""

    layer: int
    head: int
    shift: int

    def __str__(self) -> str:
        return f"cross-attention L{self.layer} H{self.head}, shift {self.shift}"


@dataclass(frozen=True, eq=False)
class WordWeights:
    """weights (layers, heads, shifts, target words, 1 + source words) of a pair; column 0: tokens of no word."""

    weights: np.ndarray

    @property
    def aligned(self) -> np.ndarray:
        """(layers, heads, shifts, target words): the index of the source word, -1 for none."""
        return np.asarray(self.weights.argmax(axis=-1) - 1)

    @property
    def sharpness(self) -> np.ndarray:
        """(layers, heads, shifts): mean over target words of the largest weight on a source word; 0 without words."""
        words = self.weights[..., 1:]
        return (
            np.asarray(words.max(axis=-1).mean(axis=-1))
            if words.shape[-1] and words.shape[-2]
            else np.zeros(words.shape[:-2])
        )


@dataclass(frozen=True, eq=False)
class PairAlignment:
    """`aligned` and `sharpness` of the WordWeights of a pair, without the weights."""

    aligned: np.ndarray
    sharpness: np.ndarray


def alignment_of(aligned: np.ndarray, head: HeadShift) -> frozenset[AlignmentPoint]:
    """The alignment (source word, target word) by one head, from `aligned` of all heads."""
    return frozenset((int(i), j) for j, i in enumerate(aligned[head]) if i >= 0)


def align_pairs(trained: Trained, pairs: Sequence[Pair]) -> list[PairAlignment | None]:
    """Alignments of each pair by every head; None for a pair longer than the context."""
    return [
        None if one is None else PairAlignment(one.aligned.astype(np.int16), one.sharpness)
        for one in word_weights(trained, pairs)
    ]


def word_weights(trained: Trained, pairs: Sequence[Pair]) -> Iterator[WordWeights | None]:
    """Attention weights between the words of each pair; None for a pair longer than the context.

    Raises UsageFault if the model has no source.
    """
    if not trained.model.needs_source:
        raise UsageFault(
            f"a model of kind {trained.recipe.model.kind} has no source; word alignment needs an encoder_decoder"
        )
    context = trained.model.context
    for first in range(0, len(pairs), BATCH_SIZE):
        inputs = [
            (
                untruncated_input(trained, pair.source).truncate(context),
                target_input(trained.tokenizer, pair.target, context),
            )
            for pair in pairs[first : first + BATCH_SIZE]
        ]
        fitting = [both for both in inputs if not both[0].n_cut and not both[1].n_cut]
        weights = iter(_batch_weights(trained, fitting) if fitting else [])
        yield from (None if source.n_cut or target.n_cut else next(weights) for source, target in inputs)


def _batch_weights(trained: Trained, inputs: Sequence[tuple[ModelInput, ModelInput]]) -> Iterator[WordWeights]:
    device = trained.setup.device
    sources, targets = (pad([both[i].ids for both in inputs], device, left=False) for i in (0, 1))
    captured = capture(trained.model, targets, sources)
    if not any((one.queries, one.keys) == OWN_TO_SOURCE for one in captured.attention):
        raise UsageFault("the model has no cross-attention; word alignment needs it")
    for row, (source, target) in enumerate(inputs):
        yield between_words(captured, row, source, target)


def between_words(captured: Capture, row: int, source: ModelInput, target: ModelInput) -> WordWeights:
    """Cross-attention weights between words of one row of a batch, for every head."""
    column = membership(word_numbers(source), 1 + len(source.text.split())).float()  # (M, 1 + words); 0: no word
    of_row = word_numbers(target)
    rows = torch.stack(
        [_means(numbers, len(target.text.split())) for numbers in ([*of_row[1:], 0], of_row)]
    )  # (shifts, words, L)
    layers = []
    for one in captured.attention:
        if (one.queries, one.keys) != OWN_TO_SOURCE:
            continue
        weights = one.weights[row, :, : len(target.ids)].float().cpu()
        tokens = weights[:, :, one.lead : one.lead + len(source.ids)] @ column  # (H,L,M) @ (M,V) -> (H,L,V)
        tokens[:, :, 0] += weights[:, :, : one.lead].sum(dim=-1)
        layers.append((rows @ tokens[:, None]).numpy())  # (S,W,L) @ (H,1,L,V) -> (H,S,W,V)
    return WordWeights(np.stack(layers))


def _means(numbers: Sequence[int], count: int) -> Tensor:
    """(count, tokens): averages over the tokens of each word; zeros for a word without tokens."""
    tokens = membership(numbers, 1 + count)[:, 1:].T.float()
    return tokens / tokens.sum(dim=1, keepdim=True).clamp(min=1)
