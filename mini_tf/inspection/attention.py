"""Who reads whom in a text, for every layer and head: the text to tokens, one pass of the model, the heads with their measures.

Texts are read one by one, so nothing is padding. A text is framed as in training: a separator opens it where the model knows one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from mini_tf.errors import RunFault, UsageFault
from mini_tf.inspection.capture import Reading, capture
from mini_tf.inspection.checkpoints import kept_steps
from mini_tf.inspection.choice import Choice, HeadPlace
from mini_tf.inspection.framing import Framed, framed_for
from mini_tf.inspection.heads import Measures, measure, role
from mini_tf.inspection.words import Words, by_words, words_of
from mini_tf.nn.tokens import Tokens
from mini_tf.run.loading import load_model
from mini_tf.run.tensors import specs
from mini_tf.run.trained import Trained

MOST_NAMED = 40
"""Words of a text that a message lists."""


@dataclass(frozen=True, eq=False)
class Head:
    """One head on one text: `weights` (units, units) in float32, a row a query; columns that belong to no token are left out.

    `visible` (units, units): what each row may see.
    """

    place: HeadPlace
    weights: np.ndarray
    visible: np.ndarray
    measures: Measures
    role: str | None


@dataclass(frozen=True)
class Query:
    """The unit that was asked for, and its text."""

    index: int
    text: str


@dataclass(frozen=True, eq=False)
class Sample:
    """What was seen of a text. `tokens`: how those of `given` read; `words` None = rows and columns are tokens; `step` None = the one
    checkpoint that was asked for."""

    given: Framed
    tokens: list[str]
    words: Words | None
    heads: list[Head]
    query: Query | None
    difference: float
    notes: list[str]
    step: int | None = None

    @property
    def units(self) -> list[str]:
        """What rows and columns are: tokens, or words."""
        return self.tokens if self.words is None else self.words.texts

    @property
    def unit(self) -> str:
        """What one of them is called."""
        return "token" if self.words is None else "word"

    def without_weights(self) -> "Sample":
        """What of many texts fits in memory."""
        return replace(self, heads=[replace(head, weights=head.weights[:0], visible=head.visible[:0]) for head in self.heads])


@dataclass(frozen=True)
class Wish:
    """What is to be looked at: which heads, by tokens or by words, and from which place alone (a word, or a number)."""

    heads: Choice = field(default_factory=Choice)
    words: bool = False
    query: str | None = None


def look(trained: Trained, text: str, wish: Wish = Wish()) -> Sample:
    """The heads of a text's first `context` tokens; UsageFault where there is nothing to look at, or not what was asked for."""
    given = framed_for(trained, text)
    tokens, notes = trained.tokenizer.pieces(given.ids), [] if given.note is None else [given.note]
    words = words_of(given, tokens)
    query, in_words = None, wish.words
    if wish.query is not None:
        query, in_words, several = _find(wish.query, tokens, words, wish.words)
        notes += several
    seen = capture(trained.model, Tokens(torch.tensor([given.ids], device=trained.setup.device)))
    there = [HeadPlace(reading.kind, reading.layer, head) for reading in seen.readings for head in range(reading.weights.shape[1])]
    chosen = wish.heads.of(there)
    heads = [
        head
        for reading in seen.readings
        for head in heads_of(reading, words.texts if in_words else given.ids, words.of_token if in_words else None)
        if head.place in chosen
    ]
    return Sample(given, tokens, words if in_words else None, heads, query, seen.difference, notes)


def over_steps(trained: Trained, texts: list[str], wish: Wish) -> Iterator[Sample]:
    """Every text at every checkpoint that is kept, the earliest first; the model is left with the weights of the last.

    Raises RunFault where none is kept.
    """
    folder, model = trained.folder, trained.model
    steps = kept_steps(folder)
    if not steps:
        raise RunFault(f"{folder} has no checkpoint", where=[str(folder)])
    for step in reversed(steps):
        model.load_weights(load_model(folder, step, specs(model.weights())))
        for text in texts:
            yield replace(look(trained, text, wish), step=step)


def heads_of(reading: Reading, units: list[str] | list[int], of_token: list[int] | None = None) -> list[Head]:
    """The heads of one mixer on the first text of a batch; `units` are its tokens, or its words where `of_token` maps to them."""
    weights, visible = reading.weights[0, :, :, reading.lead :].float().cpu(), reading.keep[0].cpu()
    if of_token is not None:
        weights, visible = by_words(weights, visible, of_token)
    found = measure(weights, visible, units)
    places = [HeadPlace(reading.kind, reading.layer, head) for head in range(len(weights))]
    return [Head(place, w.numpy(), visible.numpy(), m, role(m)) for place, w, m in zip(places, weights, found, strict=True)]


def _find(asked: str, tokens: list[str], words: Words, in_words: bool) -> tuple[Query, bool, list[str]]:
    """The place that was asked for, whether it is a word, and a note if there are several.

    A word as it stands in the text, or a part of one that no letter adjoins ("self" of "self.path"); else a number. Of several the last,
    since in a decoder it sees the most.
    """
    alone = re.compile(rf"(?<!\w){re.escape(asked)}(?!\w)")
    if places := [index for index, text in enumerate(words.texts) if asked and alone.search(text)]:
        named = ", ".join(f"{words.texts[place]!r} ({place})" for place in places[-MOST_NAMED:])
        several = f"{asked!r} stands in {len(places)} words: {'... ' * (len(places) > MOST_NAMED)}{named}; the last is shown"
        return Query(places[-1], words.texts[places[-1]]), True, [several] if len(places) > 1 else []
    units = words.texts if in_words else tokens
    if re.fullmatch(r"-?[0-9]{1,9}", asked) and -len(units) <= (index := int(asked)) < len(units):
        return Query(index % len(units), units[index]), in_words, []
    there = list(dict.fromkeys(words.texts))
    named = ", ".join(there[:MOST_NAMED]) + (f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else "")
    raise UsageFault(f"--query {asked}: no such word in the text; it has {named}", hint=f"or give a number, 0 to {len(units) - 1}")
