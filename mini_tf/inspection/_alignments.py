"""Word alignment by a cross-attention head: a target word is aligned to the source word with the largest weight.

The target is the decoder's input, as in training. The row of a target word is the mean over its tokens, the weight of a
source word the sum over its tokens. If the separator has the largest weight, the target word is not aligned. A token
has two rows: shift 0 is the position that predicts it, shift 1 the position that has it as input (Chen et al. 2020,
arXiv:2004.14837).

Gold alignments are in Pharaoh format, `0-0 1-2` per line, source and target word, counted from 0 at white space: `i-j`
is a sure alignment point, `i?j` a possible one; sure points are also possible. The best head has the lowest alignment
error rate (AER) on half of the pairs and is evaluated on the others, since the minimum over many heads is biased on the
pairs it was chosen by. Source: Och and Ney 2003, "A systematic comparison of various statistical alignment models",
section 4.2.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.data.examples import Pair
from mini_tf.data.formats.text_lines import read_lines
from mini_tf.generation.decoding import pad
from mini_tf.inspection._capture import INPUT_TO_SOURCE, Capture, capture
from mini_tf.inspection._heads import HeadIndex, HeadSelection
from mini_tf.inspection._texts import ModelInput, membership, target_input, untruncated_input, word_numbers
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.opening import Trained

AlignmentPoint = tuple[int, int]
"""Indices of a source word and of the target word aligned to it."""

_POINT = re.compile(r"([0-9]{1,6})([-?])([0-9]{1,6})")


class GoldAlignment(NamedTuple):
    """Human alignment of a pair; `possible` includes `sure`."""

    sure: frozenset[AlignmentPoint]
    possible: frozenset[AlignmentPoint]


def parse_alignment(line: str, where: str, pair: Pair) -> GoldAlignment:
    """Parse a line. Raises DataFault for invalid points or missing words."""
    counts = {"source": len(pair.source.split()), "target": len(pair.target.split())}
    sure, possible = set(), set()
    for part in line.split():
        match = _POINT.fullmatch(part)
        if match is None:
            hint = "write i-j for a sure or i?j for a possible one: source word and target word, from 0"
            raise DataFault(f"{where}: {part[:40]!r} is not an alignment", hint=hint, where=[where])
        point = int(match[1]), int(match[3])
        for number, (name, count) in zip(point, counts.items(), strict=True):
            if number >= count:
                words = f"its words are 0 to {count - 1}" if count else "it has no words"
                raise DataFault(f"{where}: {part}: there is no word {number} in the {name}; {words}", where=[where])
        possible.add(point)
        if match[2] == "-":
            sure.add(point)
    return GoldAlignment(frozenset(sure), frozenset(possible))


def read_alignments(file: Path, pairs: Sequence[Pair]) -> list[GoldAlignment]:
    """Read a file with one line per pair. Raises DataFault for another number of lines, or if it cannot be read."""
    gold: list[GoldAlignment] = []
    number = 0
    try:
        for number, line in read_lines(file, str(file), "strict"):
            if number <= len(pairs):
                gold.append(parse_alignment(line, f"{file}:{number}", pairs[number - 1]))
    except (OSError, ValueError) as error:
        raise DataFault(f"{file}: {getattr(error, 'strerror', None) or error}", where=[str(file)]) from error
    if number != len(pairs):
        where = f"{file}:{min(number, len(pairs)) + 1}"
        hint = "it must have one line per pair, empty if no words are aligned"
        message = f"{where}: {file} has {number:,} lines, but there are {len(pairs):,} pairs"
        raise DataFault(message, hint=hint, where=[where])
    if not any(alignment.possible for alignment in gold):
        hint = "write i-j, as in 0-0 1-2, for words counted from 0"
        raise DataFault(f"{file}: no alignments", hint=hint, where=[str(file)])
    return gold


def dataset_alignments(pairs: Sequence[Pair]) -> list[GoldAlignment | None]:
    """The alignments in the data; None for a pair without one."""
    return [None if pair.alignment is None else parse_alignment(pair.alignment, pair.where, pair) for pair in pairs]


def format_alignment(points: Iterable[AlignmentPoint]) -> str:
    """The line of a pair, sorted by target word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(points, key=lambda point: (point[1], point[0])))


def diagonal(n_source: int, n_target: int) -> frozenset[AlignmentPoint]:
    """Baseline: monotonic alignment of each target word to the source word at the same relative position."""
    return frozenset((int((j + 0.5) * n_source / n_target), j) for j in range(n_target)) if n_source else frozenset()


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
        if not (words.shape[-1] and words.shape[-2]):
            return np.zeros(words.shape[:-2])
        return np.asarray(words.max(axis=-1).mean(axis=-1))


class PairAlignment(NamedTuple):
    """`aligned` and `sharpness` of the WordWeights of a pair, without the weights."""

    aligned: np.ndarray
    sharpness: np.ndarray


def alignment_of(aligned: np.ndarray, head: HeadShift) -> frozenset[AlignmentPoint]:
    """The alignment (source word, target word) by one head, from `aligned` of all heads."""
    return frozenset((int(i), j) for j, i in enumerate(aligned[head]) if i >= 0)


def align_pairs(trained: Trained, pairs: Sequence[Pair]) -> list[PairAlignment | None]:
    """Alignments of each pair by every head; None for a pair longer than the context."""
    return [
        None if weights is None else PairAlignment(weights.aligned.astype(np.int16), weights.sharpness)
        for weights in word_weights(trained, pairs)
    ]


def word_weights(trained: Trained, pairs: Sequence[Pair]) -> Iterator[WordWeights | None]:
    """Attention weights between the words of each pair; None for a pair longer than the context.

    Raises UsageFault if the model has no source.
    """
    if not trained.model.needs_source:
        kind = trained.recipe.model.kind
        raise UsageFault(f"a model of kind {kind} has no source; word alignment needs an encoder_decoder")
    context = trained.model.context
    for first in range(0, len(pairs), BATCH_SIZE):
        batch = pairs[first : first + BATCH_SIZE]
        sources = [untruncated_input(trained, pair.source).truncate(context) for pair in batch]
        targets = [target_input(trained.tokenizer, pair.target, context) for pair in batch]
        inputs = [*zip(sources, targets, strict=True)]
        fitting = [both for both in inputs if not both[0].n_cut and not both[1].n_cut]
        weights = iter(_batch_weights(trained, fitting) if fitting else [])
        yield from (None if source.n_cut or target.n_cut else next(weights) for source, target in inputs)


def _batch_weights(trained: Trained, inputs: Sequence[tuple[ModelInput, ModelInput]]) -> Iterator[WordWeights]:
    device = trained.setup.device
    sources, targets = (pad([both[i].ids for both in inputs], device, left=False) for i in (0, 1))
    captured = capture(trained.model, targets, sources)
    if not any((attention.queries, attention.keys) == INPUT_TO_SOURCE for attention in captured.attention):
        raise UsageFault("the model has no cross-attention; word alignment needs it")
    for row, (source, target) in enumerate(inputs):
        yield between_words(captured, row, source, target)


def between_words(captured: Capture, row: int, source: ModelInput, target: ModelInput) -> WordWeights:
    """Cross-attention weights between words of one row of a batch, for every head."""
    column = membership(word_numbers(source), 1 + len(source.text.split())).float()  # (M, 1 + words); 0: no word
    of_row, n_words = word_numbers(target), len(target.text.split())
    rows = torch.stack([_means(numbers, n_words) for numbers in ([*of_row[1:], 0], of_row)])  # (shifts, words, L)
    layers = []
    for attention in captured.attention:
        if (attention.queries, attention.keys) != INPUT_TO_SOURCE:
            continue
        weights = attention.weights[row, :, : len(target.ids)].float().cpu()
        tokens = weights[:, :, attention.lead : attention.lead + len(source.ids)] @ column  # (H,L,M) @ (M,V) -> (H,L,V)
        tokens[:, :, 0] += weights[:, :, : attention.lead].sum(dim=-1)
        layers.append((rows @ tokens[:, None]).numpy())  # (S,W,L) @ (H,1,L,V) -> (H,S,W,V)
    return WordWeights(np.stack(layers))


def _means(numbers: Sequence[int], count: int) -> Tensor:
    """(count, tokens): averages over the tokens of each word; zeros for a word without tokens."""
    tokens = membership(numbers, 1 + count)[:, 1:].T.float()
    return tokens / tokens.sum(dim=1, keepdim=True).clamp(min=1)


def error_rate(alignments: Iterable[frozenset[AlignmentPoint]], gold: Iterable[GoldAlignment]) -> float | None:
    """AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), counted over all pairs; None if A and S are empty."""
    hits = total = 0
    for points, (sure, possible) in zip(alignments, gold, strict=True):
        hits += len(points & sure) + len(points & possible)
        total += len(points) + len(sure)
    return 1 - hits / total if total else None


class GoldPair(NamedTuple):
    """An aligned pair with a gold alignment."""

    pair: Pair
    aligned: PairAlignment
    gold: GoldAlignment


@dataclass(frozen=True)
class HeadScore:
    """A head with its sharpness over all pairs, and its AER on the pairs that choose the best head, if any."""

    head: HeadShift
    sharpness: float
    aer: float | None


@dataclass(frozen=True)
class HeadComparison:
    """All heads, the best one, and the AER of the best and of the diagonal on the other pairs (None without gold).

    The best has the lowest AER on `chosen_on` pairs; without gold alignments, the largest sharpness.
    """

    heads: list[HeadScore]
    best: HeadScore
    aer: float | None
    diagonal: float | None
    chosen_on: int
    reported_on: int


def compare_heads(
    pairs: Sequence[Pair],
    alignments: Sequence[PairAlignment | None],
    gold: Sequence[GoldAlignment | None],
    heads: Sequence[HeadShift],
) -> HeadComparison:
    """Compare `heads` on pairs of which at least one was aligned.

    Of the pairs with gold alignments, the 1st, 3rd, ... choose the head and the 2nd, 4th, ... evaluate it; a single
    pair evaluates.
    """
    aligned = [alignment for alignment in alignments if alignment is not None]
    gold_pairs = [
        GoldPair(pair, alignment, points)
        for pair, alignment, points in zip(pairs, alignments, gold, strict=True)
        if alignment is not None and points is not None
    ]
    choosing, evaluating = (gold_pairs[::2], gold_pairs[1::2]) if len(gold_pairs) > 1 else ([], gold_pairs)
    sharpness = np.mean([alignment.sharpness for alignment in aligned], axis=0)
    scores = [HeadScore(head, float(sharpness[head]), _aer(choosing, head)) for head in heads]
    best = min(scores, key=lambda score: (2.0 if score.aer is None else score.aer, -score.sharpness))
    baseline = [diagonal(len(pair.source.split()), len(pair.target.split())) for pair, _, _ in evaluating]
    diagonal_aer = error_rate(baseline, (points for _, _, points in evaluating))
    return HeadComparison(scores, best, _aer(evaluating, best.head), diagonal_aer, len(choosing), len(evaluating))


def _aer(pairs: Sequence[GoldPair], head: HeadShift) -> float | None:
    return error_rate((alignment_of(pair.aligned.aligned, head) for pair in pairs), (pair.gold for pair in pairs))


def head_shifts(shape: Sequence[int], selection: HeadSelection, shift: int | None) -> list[HeadShift]:
    """The selected heads of (layers, heads), at one or both shifts. Raises UsageFault for missing heads."""
    n_layers, n_heads = shape[:2]
    available = [HeadIndex("cross", layer, head) for layer in range(n_layers) for head in range(n_heads)]
    selected = selection.select(available)
    shifts = SHIFTS if shift is None else (shift,)
    return [HeadShift(index.layer, index.head, shift) for index in sorted(selected) for shift in shifts]
