"""Coefficients of memories with the first or the last token of their trigger removed.

Source: Geva et al. 2021, arXiv:2012.14913, section 3.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.generation.decoding import pad
from mini_tf.generation.likelihoods import Ids, batches
from mini_tf.inspection.memories.layers import Layers, MemoryIndex, recorded
from mini_tf.inspection.memories.triggers import ROW, Triggers, inference
from mini_tf.nn.layers.feed_forward import KeyValueMemories
from mini_tf.nn.model import ModelStack
from mini_tf.system.progress import show_progress
from mini_tf.trained.opening import Trained

_Shorter = tuple[Ids, Ids, list[tuple[int, int]]]
"""(row, field of Shortened), ids, (layer, index) of the memories whose trigger was shortened."""


class Shortened(NamedTuple):
    """(n,) coefficients of the memories of a layer at the last token of their first trigger, without its last token,
    and without its first one. NaN: there is no trigger, or it has fewer than two tokens.
    """

    without_last: np.ndarray
    without_first: np.ndarray


def shorten_triggers(trained: Trained, one: ModelStack, layers: Layers, found: Triggers) -> dict[int, Shortened]:
    """The coefficients of all memories of `layers`. An opening separator is kept, and is not counted as a token.

    For a causal stack, in which a coefficient depends on the prefix alone.
    """
    separator, device = trained.tokenizer.vocabulary.separator, trained.setup.device
    results = {layer: Shortened(*(np.full(len(part.values), np.nan) for _ in Shortened._fields)) for layer, part in layers.items()}
    rows: list[_Shorter] = []
    for (number, position), memories in _memories_by_prefix(found, layers).items():
        prefix = tuple(found.rows[number].ids[: position + 1].tolist())
        start = int(prefix[0] == separator)
        if len(prefix) - start >= 2:
            shorter = (prefix[:-1], (*prefix[:start], *prefix[start + 1 :]))
            rows += [((number, which), ids, memories) for which, ids in enumerate(shorter)]
    with inference(trained), show_progress("removing tokens of triggers") as report_progress:
        n_done = 0
        for batch in batches(iter(sorted(rows, key=lambda row: len(row[1])))):
            sources = [source for (number, _), _, _ in batch if (source := found.rows[number].source) is not None]
            source_tokens = pad([ids[ids >= 0].tolist() for ids in sources], device, left=False) if sources else None
            with recorded(one.stack, partial(_record, results, batch)):
                trained.model(pad([ids for _, ids, _ in batch], device, left=False), source_tokens)
            n_done += len(batch)
            report_progress(n_done / len(rows))
    return results


def _record(results: Mapping[int, Shortened], batch: Sequence[_Shorter], layer: int, part: KeyValueMemories, x: Tensor) -> None:
    """Set the coefficients at the last token of each row of x (B, L, D), of the memories that it is for."""
    last = torch.tensor([len(ids) - 1 for _, ids, _ in batch], device=x.device)
    coefficients = part.coefficients(x[torch.arange(len(batch), device=x.device), last]).cpu()
    for n, ((_, which), _, memories) in enumerate(batch):
        indices = [index for of, index in memories if of == layer]
        if indices:
            results[layer][which][indices] = coefficients[n, indices]


def _memories_by_prefix(found: Triggers, layers: Layers) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The memories whose first trigger ends at a position of a row, by both."""
    by_prefix: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for layer in layers:
        for index, token in enumerate(found.top[layer].tokens[:, 0].tolist()):
            if token >= 0:
                by_prefix.setdefault(divmod(token, ROW), []).append(MemoryIndex(layer, index))
    return by_prefix
