"""What is measured of all memories of a layer."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_tf.inspection.memory_layers import Layers, MemoryIndex
from mini_tf.nn.model_stack import ModelStack
from mini_tf.papers.key_value_memories.inspection.corpus import UNKNOWN, predicts_following
from mini_tf.papers.key_value_memories.inspection.removal import Shortened, shorten_triggers
from mini_tf.papers.key_value_memories.inspection.triggers import Triggers
from mini_tf.papers.key_value_memories.inspection.votes import Agreement, agreement, first_votes
from mini_tf.trained.opening import Trained


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
        found = fields.pop("agreement")
        names = ("compared", "agreement", "chance", "chance_deviation")
        return fields | dict(zip(names, found or (0, None, None, None), strict=True))


def report_layers(trained: Trained, one: ModelStack, layers: Layers, found: Triggers) -> list[LayerReport]:
    """A report for each of `layers`, whose triggers are `found`."""
    shortened = shorten_triggers(trained, one, layers, found) if one.stack.causal else {}
    reports = []
    for layer, part in layers.items():
        n, first = len(part.values), found.first(layer)
        agreed = None
        if predicts_following(trained, one):
            following = np.array([UNKNOWN if trigger is None else trigger.following for trigger in first])
            known = following != UNKNOWN
            votes = first_votes(trained.model, part.values, trained.tokenizer.vocabulary.size)
            agreed = agreement(votes[known], following[known])
        changes = _changes(found.top[layer].coefficients[:, 0], shortened.get(layer))
        active = found.active[layer] / max(1, found.n_tokens * n)
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


def strengths(layers: Layers, found: Triggers, layer: int) -> np.ndarray:
    """(n,): the norm of what each memory adds at its first trigger, m_i |v_i|; 0 without a trigger."""
    norms = layers[layer].values.detach().norm(dim=-1).cpu().double().numpy()
    found_strengths: np.ndarray = found.top[layer].coefficients[:, 0] * norms
    return found_strengths


def strongest(layers: Layers, found: Triggers, n: int) -> list[MemoryIndex]:
    """The n memories of each layer with the largest strength, the largest first."""
    chosen = []
    for layer in layers:
        strength = strengths(layers, found, layer)
        order = np.argsort(-strength, kind="stable")[:n]
        chosen += [MemoryIndex(layer, int(index)) for index in order if strength[index] > 0]
    return chosen
