"""Coefficients of memories with the first or the last token of their trigger removed.

Source: Geva et al. 2021, arXiv:2012.14913, section 3.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from mini_tf.generation.decoding import pad
from mini_tf.generation.likelihoods import Ids, batches
from mini_tf.inspection.memory_layers import Layers, recorded
from mini_tf.nn.layers.feed_forward import KeyValueMemories
from mini_tf.nn.model_stack import ModelStack
from mini_tf.papers.key_value_memories.inspection.triggers import ROW, Triggers, inference
from mini_tf.system.progress import show_progress
from mini_tf.trained.opening import Trained

_Variant = tuple[Ids, Ids, list[tuple[int, int]]]
"""(row, field of Shortened), ids, (layer, number) of the memories whose first trigger is in the row."""


class Shortened(NamedTuple):
    """(n,) coefficients of the memories of a layer at the last token of their first trigger, without its last token,
    and without its first one. NaN: there is no trigger, or it has fewer than two tokens.
    """

    without_last: np.ndarray
    without_first: np.ndarray


def shorten_triggers(trained: Trained, one: ModelStack, layers: Layers, found: Triggers) -> dict[int, Shortened]:
    """The coefficients of all memories of `layers`. An opening separator is kept, and is not counted as a token.

    For a causal stack, in which a coefficient depends on the prefix alone. Two forward passes of rows with triggers.
    """
    separator, device = trained.tokenizer.vocabulary.separator, trained.setup.device
    results = {
        layer: Shortened(*(np.full(len(part.values), np.nan) for _ in Shortened._fields))
        for layer, part in layers.items()
    }
    variants: list[_Variant] = []
    for number, memories in _memories_by_row(found, layers).items():
        ids, start = found.rows[number].ids.tolist(), int(found.rows[number].ids[0] == separator)
        longer = [memory for memory in memories if _position(found, memory) - start >= 1]
        if longer:
            last = max(_position(found, memory) for memory in longer)
            rows = (ids[:last], ids[:start] + ids[start + 1 : last + 1])
            variants += [((number, which), tuple(row), longer) for which, row in enumerate(rows)]
    with inference(trained), show_progress("removing tokens of triggers") as report_progress:
        n_done = 0
        for batch in batches(iter(sorted(variants, key=lambda variant: len(variant[1])))):
            sources = [source for (number, _), _, _ in batch if (source := found.rows[number].source) is not None]
            source_tokens = pad([ids[ids >= 0].tolist() for ids in sources], device, left=False) if sources else None
            with recorded(one.stack, partial(_record, found, results, batch)):
                trained.model(pad([ids for _, ids, _ in batch], device, left=False), source_tokens)
            n_done += len(batch)
            report_progress(n_done / len(variants))
    return results


def _record(
    found: Triggers,
    results: Mapping[int, Shortened],
    batch: Sequence[_Variant],
    layer: int,
    part: KeyValueMemories,
    x: Tensor,
) -> None:
    """Set the coefficients in x (B, L, D) of the memories of the layer: where a token is missing, one token earlier."""
    memories = [
        (n, which, memory)
        for n, ((_, which), _, several) in enumerate(batch)
        for memory in several
        if memory[0] == layer
    ]
    if not memories:
        return
    rows, fields, numbers = (
        list(values) for values in zip(*((n, which, number) for n, which, (_, number) in memories), strict=True)
    )
    at = [_position(found, memory) - 1 for _, _, memory in memories]
    coefficients = part.coefficients(x[rows, at])[range(len(rows)), numbers].tolist()
    for field, number, coefficient in zip(fields, numbers, coefficients, strict=True):
        results[layer][field][number] = coefficient


def _position(found: Triggers, memory: tuple[int, int]) -> int:
    """The position of the last token of a memory's first trigger in its row."""
    layer, number = memory
    return int(found.top[layer].tokens[number, 0]) % ROW


def _memories_by_row(found: Triggers, layers: Layers) -> dict[int, list[tuple[int, int]]]:
    """(layer, number) of the memories whose first trigger is in a row."""
    by_row: dict[int, list[tuple[int, int]]] = {}
    for layer in layers:
        for number, token in enumerate(found.top[layer].tokens[:, 0].tolist()):
            if token >= 0:
                by_row.setdefault(token // ROW, []).append((layer, number))
    return by_row
