"""Trigger examples of memories: the prefixes of a corpus with the largest coefficients at their last token.

They are found in a stream of batches, in constant memory. Source: Geva et al. 2021, arXiv:2012.14913, section 3.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.generation.decoding import check_finite
from mini_tf.inspection._memory_layers import Layers, MemoryIndex, recorded
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.layers.head import is_token
from mini_tf.nn.model_stack import ModelStack
from mini_tf.nn.tokens import Tokens
from mini_tf.papers.key_value_memories.rows import RowBatch
from mini_tf.system.progress import show_progress
from mini_tf.system.seeds import seed_of
from mini_tf.trained.opening import Trained

SLICE = 512
"""Tokens that are compared at once: of the first ones, every positive coefficient is a candidate."""
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""Of the finalizer of splitmix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators")."""


class TopTriggers:
    """The k distinct prefixes with the largest positive coefficient of each of n memories, in descending order.

    Of equal coefficients the earlier token comes first. Equal prefixes have equal coefficients, up to rounding, and the
    first one counts. coefficients (n, k): 0 = none; tokens (n, k): the number of the prefix's last token, -1 = none.
    """

    def __init__(self, n: int, k: int) -> None:
        self.k = k
        self.coefficients = np.zeros((n, k))
        self.tokens = np.full((n, k), -1, np.int64)
        self._prefixes = np.zeros((n, k), np.uint64)

    def add(self, coefficients: Tensor, tokens: np.ndarray, prefixes: np.ndarray) -> None:
        """Coefficients (T, n) at tokens (T,), whose numbers ascend from call to call; prefixes (T,): hashes."""
        for first in range(0, len(tokens), SLICE):
            part = coefficients[first : first + SLICE]
            least = part.new_tensor(self.coefficients[:, -1])
            at, memories = (part > least).nonzero(as_tuple=True)
            if len(at):
                rows = first + at.cpu().numpy()
                self._merge(
                    memories.cpu().numpy(), part[at, memories].cpu().double().numpy(), tokens[rows], prefixes[rows]
                )

    def _merge(self, memories: np.ndarray, coefficients: np.ndarray, tokens: np.ndarray, prefixes: np.ndarray) -> None:
        """Merge candidates (C,) into the entries of their memories."""
        changed, groups = np.unique(memories, return_inverse=True)
        old = np.repeat(np.arange(len(changed)), self.k)
        groups = np.concatenate([old, groups])
        coefficients = np.concatenate([self.coefficients[changed].ravel(), coefficients])
        tokens = np.concatenate([self.tokens[changed].ravel(), tokens])
        prefixes = np.concatenate([self._prefixes[changed].ravel(), prefixes])
        order = np.lexsort((tokens, prefixes, groups))
        order = order[tokens[order] >= 0]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(groups[order]) != 0) | (prefixes[order][1:] != prefixes[order][:-1])
        order = order[is_first]
        order = order[np.lexsort((tokens[order], -coefficients[order], groups[order]))]
        groups = groups[order]
        rank = np.arange(len(groups)) - np.searchsorted(groups, groups)
        order, groups, rank = (array[rank < self.k] for array in (order, groups, rank))
        for kept, candidates, empty in (
            (self.coefficients, coefficients, 0),
            (self.tokens, tokens, -1),
            (self._prefixes, prefixes, 0),
        ):
            merged = np.full((len(changed), self.k), empty, kept.dtype)
            merged[groups, rank] = candidates[order]
            kept[changed] = merged


def prefix_hashes(ids: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
    """(B, L) uint64: a hash of the ids of a row up to each token, and of its context (B, M; -1 = padding)."""
    state = np.zeros(len(ids), np.uint64)
    if context is not None:
        state = ~prefix_hashes(context)[np.arange(len(ids)), (context >= 0).sum(axis=1) - 1]
    hashes = np.empty(ids.shape, np.uint64)
    for column, token in enumerate((ids + 1).astype(np.uint64).T):
        state = state * np.uint64(0x9E3779B97F4A7C15) + token
        for shift, multiplier in zip((np.uint64(30), np.uint64(27)), _MULTIPLIERS, strict=True):
            state = (state ^ (state >> shift)) * multiplier
        state = state ^ (state >> np.uint64(31))
        hashes[:, column] = state
    return hashes


ROW = 1 << 20
"""The number of a token is ROW times the number of its row, plus its position; no context is longer."""


class Row(NamedTuple):
    """ids and following (L,): as in RowBatch; source (M,): of the model, -1 = padding, or None."""

    ids: np.ndarray
    following: np.ndarray
    source: np.ndarray | None


class Trigger(NamedTuple):
    """The coefficient at the last token of a prefix, and its row."""

    coefficient: float
    row: Row
    position: int

    @property
    def prefix(self) -> list[int]:
        ids: list[int] = self.row.ids[: self.position + 1].tolist()
        return ids

    @property
    def following(self) -> int:
        """The token after the prefix, or UNKNOWN."""
        return int(self.row.following[self.position])


@dataclass
class Triggers:
    """Results for the layers of a stack. active: coefficients above 0, of all tokens and memories of a layer.

    rows: the rows of the triggers by number.
    """

    top: dict[int, TopTriggers]
    active: dict[int, int]
    rows: dict[int, Row] = field(default_factory=dict)
    n_rows: int = 0
    n_tokens: int = 0

    def of(self, memory: MemoryIndex) -> list[Trigger]:
        """The triggers of a memory, the largest coefficient first."""
        top = self.top[memory.layer]
        ranked = self._triggers(top.coefficients[memory.number], top.tokens[memory.number])
        return [trigger for trigger in ranked if trigger is not None]

    def first(self, layer: int) -> list[Trigger | None]:
        """The first trigger of each memory of a layer; None: it was never active."""
        return self._triggers(self.top[layer].coefficients[:, 0], self.top[layer].tokens[:, 0])

    def _triggers(self, coefficients: np.ndarray, tokens: np.ndarray) -> list[Trigger | None]:
        return [
            None if token < 0 else Trigger(coefficient, self.rows[token // ROW], token % ROW)
            for coefficient, token in zip(coefficients.tolist(), tokens.tolist(), strict=True)
        ]

    def add_rows(self, batch: RowBatch, source: np.ndarray | None) -> None:
        """Keep the rows of a batch, and drop those without a trigger."""
        parts = batch.tokens.ids.numpy(), batch.following.numpy()
        for n, (ids, following) in enumerate(zip(*parts, strict=True)):
            self.rows[self.n_rows + n] = Row(ids, following, None if source is None else source[n])
        self.n_rows += len(batch.following)
        used = np.unique(np.concatenate([top.tokens.ravel() for top in self.top.values()]) // ROW)
        self.rows = {int(number): self.rows[int(number)] for number in used if number >= 0}


@contextmanager
def inference(trained: Trained) -> Iterator[None]:
    """Without gradients; a model may draw noise, which must not depend on torch's generator."""
    device = trained.setup.device
    with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed_of("evaluate"))
        yield


def find_triggers(
    trained: Trained, model_stack: ModelStack, layers: Layers, batches: Iterable[RowBatch], k: int
) -> Triggers:
    """The k triggers of each memory of `layers`, in one pass over the rows of a corpus.

    Memory: k entries per memory, and the rows of these triggers. Raises RunFault if the hidden states are not finite.
    """
    triggers = Triggers(
        {layer: TopTriggers(len(part.values), k) for layer, part in layers.items()}, dict.fromkeys(layers, 0)
    )
    device = trained.setup.device
    with inference(trained), show_progress("reading the corpus"):
        for batch in batches:
            source = None if batch.source is None else _without_padding(batch.source)
            # Where attention is bidirectional, a coefficient depends on the whole row.
            context = source if model_stack.stack.causal else _without_padding(batch.tokens)
            rows, positions = batch.counted.numpy().nonzero()
            tokens = (triggers.n_rows + rows) * ROW + positions
            prefixes = prefix_hashes(batch.tokens.ids.numpy(), context)[rows, positions]
            with recorded(model_stack.stack, partial(_add, triggers, batch.counted.to(device), tokens, prefixes)):
                check_finite(
                    trained.model(batch.inputs.to(device), None if batch.source is None else batch.source.to(device)).y
                )
            triggers.n_tokens += len(tokens)
            triggers.add_rows(batch, source)
    return triggers


def _add(
    triggers: Triggers,
    counted: Tensor,
    tokens: np.ndarray,
    prefixes: np.ndarray,
    layer: int,
    part: FeedForward,
    x: Tensor,
) -> None:
    """counted (B, L) selects those tokens of x (B, L, D) that `tokens` and `prefixes` are of."""
    if layer in triggers.top:
        coefficients = part.coefficients(x[counted])
        triggers.active[layer] += int((coefficients > 0).sum())
        triggers.top[layer].add(coefficients, tokens, prefixes)


def _without_padding(tokens: Tokens) -> np.ndarray:
    """The ids (B, L), -1 = padding."""
    return tokens.ids.masked_fill(~is_token(tokens), -1).numpy()
