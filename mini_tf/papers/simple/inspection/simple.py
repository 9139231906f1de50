"""Attention without parameters, step by step: scores X X^T, weights softmax(scores), outputs weights X.

The words of "I love bears" have hand-made vectors. "bears" is ambiguous between animal and burden; attention to the
other words moves it towards animal. Other words have random vectors, seeded by the word. The mixer is `simple`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mini_tf.drawing.labels import label
from mini_tf.drawing.terminal import sentence, table
from mini_tf.inspection import Picture, View, ViewOutput, ViewSettings, option
from mini_tf.nn.mixer import AttentionDims, LayerSpec, Mixer, MixerSettings
from mini_tf.nn.token_positions import TokenPositions, Visibility
from mini_tf.recipe.kinds import settings_of
from mini_tf.recipe.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault
from mini_tf.system.seeds import seed_of

MAX_WORDS = 12
AXES = ("person", "feeling", "animal", "burden")
HAND_MADE = {"i": (1.0, 0.4, 0.0, 0.0), "love": (0.6, 1.0, 0.6, 0.0), "bears": (0.0, 0.2, 1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class WalkThrough:
    """vectors and outputs (T, 4), scores and weights (T, T).

    before, after: cosine similarity of each word's vector, and output, to the mean vector of the other words; NaN for a
    single word. drawn: words with random vectors.
    """

    words: list[str]
    vectors: Tensor
    scores: Tensor
    weights: Tensor
    outputs: Tensor
    before: list[float]
    after: list[float]
    drawn: list[str]


def walk_through(words: Sequence[str]) -> WalkThrough:
    """Self-attention over one or more words."""
    vectors = torch.stack([_vector(word) for word in words])
    x, view = vectors[None], Visibility(False, TokenPositions(len(words)), TokenPositions(len(words)))
    attention = _mixer().explicit(x, x, view)
    outputs = (attention.weights @ attention.values)[0, 0]
    others = (vectors.sum(dim=0) - vectors) / (len(words) - 1)  # NaN for a single word
    before, after = (F.cosine_similarity(rows, others, dim=-1).tolist() for rows in (vectors, outputs))
    drawn = [word for word in dict.fromkeys(words) if word.lower() not in HAND_MADE]
    return WalkThrough(
        list(words), vectors, vectors @ vectors.T, attention.weights[0, 0], outputs, before, after, drawn
    )


class Settings(ViewSettings):
    """Compute attention without parameters, softmax(X X^T) X, step by step."""

    ALIASES = ("self-attention",)
    EXAMPLES = ('minitf inspect simple "I love bears"',)
    FILES = ()

    text: str = option("I love bears", metavar="TEXT", shown="I love bears")
    """A few words."""

    def check(self, output: ViewOutput) -> None:
        refuse_non_utf8([self.text], "the text")

    def view(self, subject: None, output: ViewOutput) -> View:
        words = self.text.split()
        """The steps as tables. Raises UsageFault for no words or too many."""
        if not 0 < len(words) <= MAX_WORDS:
            raise UsageFault(f"TEXT has {len(words)} words, but must have 1 to {MAX_WORDS}")
        steps = walk_through(words)
        notes = [f"random vectors, seeded by the word: {', '.join(map(repr, steps.drawn))}"] if steps.drawn else []
        tensors = {name: getattr(steps, name).tolist() for name in ("vectors", "scores", "weights", "outputs")}
        rest = {"before": steps.before, "after": steps.after, "drawn": steps.drawn, "notes": notes}
        return View({"words": words, "axes": AXES} | tensors | rest, list(_pictures(steps)), notes)


def _pictures(steps: WalkThrough) -> Iterator[Picture]:
    names = [label(word, 16) for word in steps.words]
    cosines = torch.tensor([steps.before, steps.after], dtype=torch.float64).T
    for title, columns, values in (
        ("Input vectors: X", AXES, steps.vectors),
        ("Attention scores: X X^T", names, steps.scores),
        ("Attention weights: A = softmax(X X^T), each row sums to 1", names, steps.weights),
        ("Outputs: A X", AXES, steps.outputs),
        ("Cosine similarity to the mean vector of the other words, before and after", ("before", "after"), cosines),
    ):
        yield partial(sentence, title)
        yield partial(table, ["", *columns], [[name, *row] for name, row in zip(names, values.tolist(), strict=True)])
        yield partial(sentence, "")
    if len(names) > 1:
        before, after = steps.before[-1], steps.after[-1]
        moved = "moved towards" if after > before else "did not move towards"
        yield partial(
            sentence, f"{names[-1]} {moved} the other words: cosine similarity {before:.2f} before, {after:.2f} after."
        )


def _mixer() -> Mixer:
    settings, d = settings_of("attention", "simple")(), len(AXES)
    assert isinstance(settings, MixerSettings)
    return settings.build(AttentionDims(d, d, 1, 1, d, d), LayerSpec(0, 1)).double().eval()


def _vector(word: str) -> Tensor:
    if (made := HAND_MADE.get(word.lower())) is not None:
        return torch.tensor(made, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed_of("a word's vector", word))
    # Two decimals, and a norm similar to that of the hand-made vectors.
    return torch.randn(len(AXES), generator=generator, dtype=torch.float64).mul(0.6).round(decimals=2)
