"""What is measured of all memories of a layer: votes of their values, and triggers with a token removed.

A value votes for the tokens of softmax(v_i E), E the output embedding; the final norm and its weight are left out.
Source: Geva et al. 2021, arXiv:2012.14913, sections 3 and 4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mini_tf.generation.decoding import pad
from mini_tf.generation.likelihoods import LOGITS, Ids, batches
from mini_tf.inspection._memory_layers import Layers, MemoryIndex, recorded
from mini_tf.nn.layers.feed_forward import FeedForward
from mini_tf.nn.model import Model
from mini_tf.nn.model_stack import ModelStack
from mini_tf.papers.key_value_memories.rows import UNKNOWN, predicts_following
from mini_tf.papers.key_value_memories.triggers import ROW, Triggers, inference
from mini_tf.system.progress import show_progress
from mini_tf.trained.opening import Trained

NO_VOTE = -2
"""In place of the most probable token of a value of zeros."""


@torch.no_grad()
def first_votes(model: Model, values: Tensor, vocabulary_size: int) -> np.ndarray:
    """(n,): the token with the largest probability p_i by each value (n, D), or NO_VOTE."""
    parts = [model.logits(part).argmax(dim=-1) for part in values.split(max(1, LOGITS // vocabulary_size))]
    votes: np.ndarray = torch.cat(parts).where(values.any(dim=-1), NO_VOTE).cpu().numpy()
    return votes


@torch.no_grad()
def top_votes(model: Model, value: Tensor, n: int) -> list[tuple[int, float]]:
    """The n tokens with the largest probabilities p_i by a value (D,), and these; none by a value of zeros."""
    if not value.any():
        return []
    p = model.logits(value).cpu().double().softmax(dim=-1)
    ids = torch.argsort(p, descending=True, stable=True)[:n]
    return [*zip(ids.tolist(), p[ids].tolist(), strict=True)]


class Agreement(NamedTuple):
    """n: compared memories. share: of those whose vote is the token after their trigger; NaN without any.

    chance, deviation: mean and standard deviation of this share if the votes were shuffled over the memories.
    """

    n: int
    share: float
    chance: float
    deviation: float


def agreement(votes: np.ndarray, following: np.ndarray) -> Agreement:
    """votes, following (n,): tokens. A random permutation of the votes keeps how frequent each is.

    Its mean and variance are exact: with a_t votes for token t and b_t triggers before it, the mean number of matches
    is S / n, S = sum a_t b_t; the variance is that of a sum over a random permutation (Hoeffding 1951, "A combinatorial
    central limit theorem", theorem 2).
    """
    n = len(votes)
    if n < 2:
        return Agreement(n, float((votes == following).mean()) if n else math.nan, math.nan, math.nan)
    tokens = np.unique(np.concatenate([votes, following]))
    a, b = (
        np.bincount(np.searchsorted(tokens, ids), minlength=len(tokens)).astype(float) for ids in (votes, following)
    )
    matches = float((a * b).sum())
    variance = (matches - float((a * b * (a + b)).sum()) / n + (matches / n) ** 2) / (n - 1)
    return Agreement(n, float((votes == following).mean()), matches / n**2, math.sqrt(max(0.0, variance)) / n)


_Variant = tuple[Ids, Ids, list[tuple[int, int]]]
"""(row, field of Shortened), ids, (layer, number) of the memories whose first trigger is in the row."""


class Shortened(NamedTuple):
    """(n,) coefficients of the memories of a layer at the last token of their first trigger, without its last token,
    and without its first one. NaN: there is no trigger, or it has fewer than two tokens.
    """

    without_last: np.ndarray
    without_first: np.ndarray


def shorten_triggers(
    trained: Trained, model_stack: ModelStack, layers: Layers, triggers: Triggers
) -> dict[int, Shortened]:
    """The coefficients of all memories of `layers`. An opening separator is kept, and is not counted as a token.

    For a causal stack, in which a coefficient depends on the prefix alone. Two forward passes of rows with triggers.
    """
    separator, device = trained.tokenizer.vocabulary.separator, trained.setup.device
    results = {
        layer: Shortened(*(np.full(len(part.values), np.nan) for _ in Shortened._fields))
        for layer, part in layers.items()
    }
    variants: list[_Variant] = []
    for number, memories in _memories_by_row(triggers, layers).items():
        ids, start = triggers.rows[number].ids.tolist(), int(triggers.rows[number].ids[0] == separator)
        longer = [memory for memory in memories if _position(triggers, memory) - start >= 1]
        if longer:
            last = max(_position(triggers, memory) for memory in longer)
            rows = (ids[:last], ids[:start] + ids[start + 1 : last + 1])
            variants += [((number, which), tuple(row), longer) for which, row in enumerate(rows)]
    with inference(trained), show_progress("removing tokens of triggers") as report_progress:
        n_done = 0
        for batch in batches(iter(sorted(variants, key=lambda variant: len(variant[1])))):
            sources = [source for (number, _), _, _ in batch if (source := triggers.rows[number].source) is not None]
            source_tokens = pad([ids[ids >= 0].tolist() for ids in sources], device, left=False) if sources else None
            with recorded(model_stack.stack, partial(_record, triggers, results, batch)):
                trained.model(pad([ids for _, ids, _ in batch], device, left=False), source_tokens)
            n_done += len(batch)
            report_progress(n_done / len(variants))
    return results


def _record(
    triggers: Triggers,
    results: Mapping[int, Shortened],
    batch: Sequence[_Variant],
    layer: int,
    part: FeedForward,
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
    at = [_position(triggers, memory) - 1 for _, _, memory in memories]
    coefficients = part.coefficients(x[rows, at])[range(len(rows)), numbers].tolist()
    for field, number, coefficient in zip(fields, numbers, coefficients, strict=True):
        results[layer][field][number] = coefficient


def _position(triggers: Triggers, memory: tuple[int, int]) -> int:
    """The position of the last token of a memory's first trigger in its row."""
    layer, number = memory
    return int(triggers.top[layer].tokens[number, 0]) % ROW


def _memories_by_row(triggers: Triggers, layers: Layers) -> dict[int, list[tuple[int, int]]]:
    """(layer, number) of the memories whose first trigger is in a row."""
    by_row: dict[int, list[tuple[int, int]]] = {}
    for layer in layers:
        for number, token in enumerate(triggers.top[layer].tokens[:, 0].tolist()):
            if token >= 0:
                by_row.setdefault(token // ROW, []).append((layer, number))
    return by_row


@dataclass(frozen=True)
class LayerReport:
    """active: share of the coefficients above 0, over all tokens; never_active: memories without a trigger.

    agreement: None if the model does not predict the next token from this stack. without_last, without_first: relative
    change of the mean coefficient of the first triggers when their last, or first, token is removed, over `shortened`
    memories; None if the stack is not causal. (A mean of relative changes would be that of the smallest coefficients.)
    """

    layer: int
    memories: int
    active: float
    never_active: int
    agreement: Agreement | None
    shortened: int
    without_last: float | None
    without_first: float | None

    def to_json(self) -> dict[str, Any]:
        fields = dict(vars(self))
        agreement = fields.pop("agreement")
        names = ("compared", "agreement", "chance", "chance_deviation")
        return fields | dict(zip(names, agreement or (0, None, None, None), strict=True))


def report_layers(trained: Trained, model_stack: ModelStack, layers: Layers, triggers: Triggers) -> list[LayerReport]:
    """A report for each of `layers`, whose triggers are `triggers`."""
    shortened = shorten_triggers(trained, model_stack, layers, triggers) if model_stack.stack.causal else {}
    reports = []
    for layer, part in layers.items():
        n, first = len(part.values), triggers.first(layer)
        agreed = None
        if predicts_following(trained, model_stack):
            following = np.array([UNKNOWN if trigger is None else trigger.following for trigger in first])
            known = following != UNKNOWN
            votes = first_votes(trained.model, part.values, trained.tokenizer.vocabulary.size)
            agreed = agreement(votes[known], following[known])
        changes = _changes(triggers.top[layer].coefficients[:, 0], shortened.get(layer))
        active = triggers.active[layer] / max(1, triggers.n_tokens * n)
        reports.append(LayerReport(layer, n, active, first.count(None), agreed, *changes))
    return reports


def _changes(whole: np.ndarray, shortened: Shortened | None) -> tuple[int, float | None, float | None]:
    """The number of shortened triggers, and the relative changes of the mean of their coefficients `whole` (n,)."""
    if shortened is None:
        return 0, None, None
    chosen = ~np.isnan(shortened.without_last)
    if not chosen.any():
        return 0, None, None
    last, first = (float(values[chosen].mean() / whole[chosen].mean() - 1) for values in shortened)
    return int(chosen.sum()), last, first


def strengths(layers: Layers, triggers: Triggers, layer: int) -> np.ndarray:
    """(n,): the norm of what each memory adds at its first trigger, m_i |v_i|; 0 without a trigger."""
    norms = layers[layer].values.detach().norm(dim=-1).cpu().double().numpy()
    found_strengths: np.ndarray = triggers.top[layer].coefficients[:, 0] * norms
    return found_strengths


def strongest(layers: Layers, triggers: Triggers, n: int) -> list[MemoryIndex]:
    """The n memories of each layer with the largest strength, the largest first."""
    chosen = []
    for layer in layers:
        strength = strengths(layers, triggers, layer)
        order = np.argsort(-strength, kind="stable")[:n]
        chosen += [MemoryIndex(layer, int(index)) for index in order if strength[index] > 0]
    return chosen
