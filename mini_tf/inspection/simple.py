"""Attention without parameters, step by step: scores X X^T, weights softmax(scores), outputs weights X.

The words of "I love bears" have vectors made by hand, small enough to follow with a pencil. "bears" is as much an animal as it is
something that carries; its neighbours know nothing of carrying, and pull it towards the animal. Any other word has a vector drawn
from its own characters. The mixer is the one that a recipe calls `simple`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Picture, View
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import settings_of
from mini_tf.system.errors import UsageFault
from mini_tf.system.seeds import seed_of

MOST_WORDS = 12
AXES = ("person", "feeling", "animal", "burden")
HAND_MADE = {"i": (1.0, 0.4, 0.0, 0.0), "love": (0.6, 1.0, 0.6, 0.0), "bears": (0.0, 0.2, 1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Walk:
    """vectors and outputs (T, 4), scores and weights (T, T); before, after: the cosine of each word's vector, and of its output,
    with the mean of the other words' vectors, NaN for a word alone; drawn: which words have no vector made by hand."""

    words: list[str]
    vectors: Tensor
    scores: Tensor
    weights: Tensor
    outputs: Tensor
    before: list[float]
    after: list[float]
    drawn: list[str]


def walk(words: Sequence[str]) -> Walk:
    """Let the words, one or more, read each other once."""
    vectors = torch.stack([_vector(word) for word in words])
    x, view = vectors[None], Visibility(False, TokenPositions(len(words)), TokenPositions(len(words)))
    shown = _mixer().explicit(x, x, view)
    outputs = (shown.weights @ shown.values)[0, 0]
    others = (vectors.sum(dim=0) - vectors) / (len(words) - 1) if len(words) > 1 else torch.full_like(vectors, torch.nan)
    before, after = (F.cosine_similarity(rows, others, dim=-1).tolist() for rows in (vectors, outputs))
    drawn = [word for word in dict.fromkeys(words) if word.lower() not in HAND_MADE]
    return Walk(list(words), vectors, vectors @ vectors.T, shown.weights[0, 0], outputs, before, after, drawn)


def view(words: Sequence[str]) -> View:
    """The walk as tables; UsageFault for no word, or more than can be followed."""
    if not 0 < len(words) <= MOST_WORDS:
        raise UsageFault(f"TEXT has {len(words)} words; a walk-through takes 1 to {MOST_WORDS}")
    steps = walk(words)
    notes = [f"drawn from their characters, not made by hand: {', '.join(map(repr, steps.drawn))}"] if steps.drawn else []
    tensors = {name: getattr(steps, name).tolist() for name in ("vectors", "scores", "weights", "outputs")}
    told = {"before": steps.before, "after": steps.after, "drawn": steps.drawn, "notes": notes}
    return View({"words": words, "axes": AXES} | tensors | told, list(_pictures(steps)), notes)


def _pictures(steps: Walk) -> Iterator[Picture]:
    names = [label(word, 16) for word in steps.words]
    nearness = torch.tensor([steps.before, steps.after], dtype=torch.float64).T
    for title, columns, values in (
        ("Each word has a vector: X", AXES, steps.vectors),
        ("Every two words are compared by the product of their vectors: scores X X^T", names, steps.scores),
        ("In each row a softmax makes weights of the scores, which sum to 1: A", names, steps.weights),
        ("Each word becomes the mean of all vectors, by its weights: A X", AXES, steps.outputs),
        ("How near each word is to the mean of the others (cosine)", ("before", "after"), nearness),
    ):
        yield partial(sentence, title)
        yield partial(table, ["", *columns], [[name, *row] for name, row in zip(names, values.tolist(), strict=True)])
        yield partial(sentence, "")
    if len(names) > 1:
        before, after = steps.before[-1], steps.after[-1]
        moved = "moved towards" if after > before else "did not move towards"
        yield partial(sentence, f"{names[-1]} {moved} its neighbours: {before:.2f} before, {after:.2f} after.")


def _mixer() -> Mixer:
    settings, d = settings_of("attention", "simple")(), len(AXES)
    assert isinstance(settings, MixerSettings)
    return settings.build(AttentionDims(d, d, 1, 1, d, d), LayerSpec(0, 1)).double().eval()


def _vector(word: str) -> Tensor:
    if (made := HAND_MADE.get(word.lower())) is not None:
        return torch.tensor(made, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed_of("a word's vector", word))
    # Two decimals are easier to follow with a pencil; about as long as those made by hand.
    return torch.randn(len(AXES), generator=generator, dtype=torch.float64).mul(0.6).round(decimals=2)
