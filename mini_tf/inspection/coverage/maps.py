"""Cross-attention of one pair, and the coverage of the source: the sum of the attention weights so far.

    c_it = a_i1 + ... + a_it

of source token i after target token t, in each layer and head. Diminishing attention has weights w_it besides.
Source: Tu et al. 2016, arXiv:1601.04811, section 3; Han, Lin, Joty 2019, arXiv:1911.03014, section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from mini_tf.inspection.capture import OWN_TO_SOURCE
from mini_tf.inspection.head_selection import HeadIndex, HeadSelection
from mini_tf.inspection.model_input import ModelInput
from mini_tf.nn.tokens import Tokens
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention and weights (H, L, M) of one layer, of L target and M source tokens; weights None: the same."""

    attention: np.ndarray
    weights: np.ndarray | None


class CoverageMap(NamedTuple):
    """Attention, coverage and weights (L, M) of a head, or the mean over the heads of a layer (head None)."""

    layer: int
    head: int | None
    attention: np.ndarray
    coverage: np.ndarray
    weights: np.ndarray | None

    def __str__(self) -> str:
        return f"L{self.layer}" if self.head is None else f"L{self.layer} H{self.head}"

    @property
    def maps(self) -> dict[str, np.ndarray]:
        """Attention, coverage and, with diminishing attention, weights, by name."""
        weights = {} if self.weights is None else {"weight": self.weights}
        return {"attention": self.attention, "coverage": self.coverage, **weights}


def check_selection(trained: Trained, selection: HeadSelection) -> None:
    """UsageFault if the model has no cross-attention, or not the selected layers and heads."""
    _selected([mixer.dims.n_heads for mixer in _cross_mixers(trained)], selection)  # type: ignore[union-attr, misc]


@torch.no_grad()
def cross_attention(trained: Trained, source: ModelInput, target: ModelInput) -> list[LayerAttention]:
    """Of every layer, for one pair. UsageFault if the model has no cross-attention."""
    found = list[LayerAttention]()

    def record(mixer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x, memory, visibility = inputs[:3]
        explicit = mixer.explicit(x, memory, visibility)  # type: ignore[operator]
        weights = explicit.weights[0, :, :, explicit.lead :].float().cpu().numpy()
        attention = mixer.observe(x, memory, visibility).get("attention")  # type: ignore[operator]
        found.append(
            LayerAttention(weights, None)
            if attention is None
            else LayerAttention(attention[0].float().cpu().numpy(), weights)
        )

    hooks = [mixer.register_forward_pre_hook(record) for mixer in _cross_mixers(trained)]
    try:
        tokens = (Tokens(torch.tensor([one.ids], device=trained.setup.device)) for one in (target, source))
        trained.model(*tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def coverage_maps(layers: list[LayerAttention], selection: HeadSelection) -> list[CoverageMap]:
    """Of the selected heads; of layers, as means over their heads, if no heads are selected. UsageFault for others."""
    chosen, found = _selected([len(one.attention) for one in layers], selection), []
    for layer, head in dict.fromkeys((index.layer, None if selection.head is None else index.head) for index in chosen):
        one = layers[layer]
        attention, weights = (
            part if part is None else part.mean(axis=0) if head is None else part[head]
            for part in (one.attention, one.weights)
        )
        assert attention is not None
        found.append(CoverageMap(layer, head, attention, attention.cumsum(axis=0), weights))
    return found


def _cross_mixers(trained: Trained) -> list[nn.Module]:
    stacks = [one.stack for one in trained.model.stacks() if (one.rows, one.memory) == OWN_TO_SOURCE]
    found = [block.cross.part for stack in stacks for block in stack.blocks if block.cross is not None]
    if not trained.model.needs_source or not found:
        what = (
            f"{trained.folder.name} has no cross-attention to a source ({trained.recipe.model.kind}); coverage needs an"
            " encoder_decoder"
        )
        raise UsageFault(what, hint="train one: minitf pretrain transformer-nano")
    return found


def _selected(n_heads: Sequence[int], selection: HeadSelection) -> list[HeadIndex]:
    """n_heads: of each layer."""
    return sorted(
        selection.select([HeadIndex("cross", layer, head) for layer, n in enumerate(n_heads) for head in range(n)])
    )
