"""Cross-attention of one pair, what a model copies from its source, and what generated texts repeat, say and omit.

The coverage c_it = a_i1 + ... + a_it of source token i after target token t is the sum of the attention weights so far,
in each layer and head. Diminishing attention has weights w_it besides. With copy attention, the probability that a
token is copied from source position i is (1 - p_gen) a_i.
Source: Tu et al. 2016, arXiv:1601.04811, section 3; Han, Lin, Joty 2019, arXiv:1911.03014, section 4; See, Liu, Manning
2017, arXiv:1704.04368, section 2.2.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from mini_tf.inspection._capture import INPUT_TO_SOURCE
from mini_tf.inspection._heads import HeadIndex, HeadSelection
from mini_tf.inspection._subjects import no_cross_attention
from mini_tf.inspection._texts import ModelInput
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.nn.tokens import Tokens
from mini_tf.recipe.corpora import find_corpus
from mini_tf.scores.text_scores import NGRAM_SIZES, repeated_share
from mini_tf.trained.evaluating import other_data
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
    layers = list[LayerAttention]()

    def record(mixer: nn.Module, inputs: tuple[Any, ...]) -> None:
        x, memory, visibility = inputs[:3]
        explicit = mixer.explicit(x, memory, visibility)  # type: ignore[operator]
        weights = explicit.weights[0, :, :, explicit.lead :].float().cpu().numpy()
        attention = mixer.observe(x, memory, visibility).get("attention")  # type: ignore[operator]
        undiminished = None if attention is None else attention[0].float().cpu().numpy()
        layers.append(LayerAttention(weights, None) if undiminished is None else LayerAttention(undiminished, weights))

    with ExitStack() as hooks:
        for mixer in _cross_mixers(trained):
            hooks.enter_context(mixer.register_forward_pre_hook(record))
        trained.model(*(Tokens(torch.tensor([input.ids], device=trained.setup.device)) for input in (target, source)))
    return layers


def coverage_maps(layers: list[LayerAttention], selection: HeadSelection) -> list[CoverageMap]:
    """Of the selected heads; of layers, as means over their heads, if no heads are selected. UsageFault for others."""
    chosen, maps = _selected([len(layer.attention) for layer in layers], selection), []
    for layer, head in dict.fromkeys((index.layer, None if selection.head is None else index.head) for index in chosen):
        layer_attention = layers[layer]
        attention, weights = (
            part if part is None else part.mean(axis=0) if head is None else part[head]
            for part in (layer_attention.attention, layer_attention.weights)
        )
        assert attention is not None
        maps.append(CoverageMap(layer, head, attention, attention.cumsum(axis=0), weights))
    return maps


def _cross_mixers(trained: Trained) -> list[nn.Module]:
    stacks = [
        model_stack.stack
        for model_stack in trained.model.stacks()
        if (model_stack.rows, model_stack.memory) == INPUT_TO_SOURCE
    ]
    mixers = [block.cross_attn.part for stack in stacks for block in stack.blocks if block.cross_attn is not None]
    if not trained.model.needs_source or not mixers:
        raise no_cross_attention(trained, "coverage")
    return mixers


def _selected(n_heads: Sequence[int], selection: HeadSelection) -> list[HeadIndex]:
    """n_heads: of each layer."""
    heads = [HeadIndex("cross", layer, head) for layer, n in enumerate(n_heads) for head in range(n)]
    return sorted(selection.select(heads))


@dataclass(frozen=True, eq=False)
class CopyMap:
    """p_gen (L,): the probability that a token is generated; copied (L, M): that it is copied from a source position.

    label (L,): the probability of the target's own token, and copied_label (L,) the part of it that copying has.
    """

    p_gen: np.ndarray
    copied: np.ndarray
    label: np.ndarray
    copied_label: np.ndarray

    @property
    def best(self) -> list[int | None]:
        """The source position that each token is most probably copied from; None if there is nothing to copy."""
        return [int(row.argmax()) if row.any() else None for row in self.copied]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in ("p_gen", "copied", "label", "copied_label")}


@torch.no_grad()
def copy_map(trained: Trained, source: ModelInput, target: ModelInput) -> CopyMap | None:
    """Of one pair: each token of the target at the position before it, then the separator.

    None without copy attention.
    """
    inputs, read = (torch.tensor([input.ids], device=trained.setup.device) for input in (target, source))
    output: ForwardOutput = trained.model(Tokens(inputs), Tokens(read))
    if output.copies is None:
        return None
    copied = (output.copies.log_attention + torch.nn.functional.logsigmoid(-output.copies.gate)[..., None]).exp()[0]
    labels = inputs[0].roll(-1)[:, None]  # the separator, which begins the input, ends the target
    label = trained.model.logits(output.y, copies=output.copies)[0].exp().gather(1, labels).squeeze(1)
    parts = (output.copies.gate[0].sigmoid(), copied, label, copied.where(read == labels, 0).sum(dim=1))
    return CopyMap(*(part.double().cpu().numpy() for part in parts))


FactsOf = Callable[[str], list[str] | None]
"""The facts that a text states, with repetitions."""


class FactCounts(NamedTuple):
    """facts: of the sources; said: of these, in the texts; twice: of these, more than once in its text; stated:
    different facts in the texts; invented: of these, not in their source.
    """

    facts: int = 0
    said: int = 0
    twice: int = 0
    stated: int = 0
    invented: int = 0

    def plus(self, source: Sequence[str], text: Sequence[str]) -> "FactCounts":
        """With the facts of one more source and its text."""
        facts, stated = {*source}, Counter(text)
        said = facts & stated.keys()
        counts = len(facts), len(said), sum(stated[fact] > 1 for fact in said), len(stated), len(stated.keys() - facts)
        return FactCounts(*(a + b for a, b in zip(self, counts, strict=True)))

    @property
    def shares(self) -> dict[str, float | None]:
        """recall and twice: of the facts of the sources; invented: of the stated facts."""
        recall, twice = (n / self.facts if self.facts else None for n in (self.said, self.twice))
        return {"recall": recall, "twice": twice, "invented": self.invented / self.stated if self.stated else None}


class Summaries(NamedTuple):
    """Figures of texts. repetition: share of repeated n-grams by n; facts: None if the data label none."""

    texts: int
    words: int
    repetition: dict[int, float | None]
    facts: FactCounts | None

    @classmethod
    def of(cls, sources: Sequence[str], texts: Sequence[str], facts_of: FactsOf | None) -> "Summaries":
        words, counts = [text.split() for text in texts], None if facts_of is None else FactCounts()
        for source, text in zip(sources, texts, strict=True):
            if facts_of is not None and counts is not None:
                counts = counts.plus(facts_of(source) or [], facts_of(text) or [])
        return cls(len(texts), sum(map(len, words)), {n: repeated_share(words, n) for n in NGRAM_SIZES}, counts)

    def metrics(self) -> dict[str, float | None]:
        facts = {} if self.facts is None else {f"facts.{name}": share for name, share in self.facts.shares.items()}
        return {f"repetition.{n}": share for n, share in self.repetition.items()} | facts

    def to_json(self) -> dict[str, Any]:
        facts = None if self.facts is None else {**self.facts._asdict(), "shares": self.facts.shares}
        return {
            "texts": self.texts,
            "words": self.words,
            "repetition": {str(n): share for n, share in self.repetition.items()},
            "facts": facts,
        }


def facts_reader(trained: Trained, data: str | None) -> FactsOf | None:
    """How the corpus of `data` reads the facts of a text, or that of the run for a file; None: it labels none."""
    settings = trained.recipe.data
    named = None if data is None else other_data(trained, data).train
    corpora = (find_corpus(value) for value in (named, settings.val, settings.train))
    corpus = next((corpus for corpus in corpora if corpus is not None), None)
    return None if corpus is None or corpus.facts("") is None else corpus.facts
