"""Who reads whom in a text, for every layer and head: the text to tokens, one pass of the model, the heads with their measures.

Texts are read one by one, so nothing is padding. A text is framed as in training: a separator opens it where the model knows one. Of a
model of pairs the text is the source, and the target is read as the decoder reads it in training, its own words given.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mini_tf.inspection.capture import OWN_TO_SOURCE, Reading, sorts_of
from mini_tf.inspection.checkpoints import kept_steps
from mini_tf.inspection.choice import Choice, HeadPlace
from mini_tf.inspection.heads import Measures, measure, role
from mini_tf.inspection.sides import Side, Sides, captured, sides_of
from mini_tf.inspection.words import by_words
from mini_tf.nn.model import SequenceKind
from mini_tf.system.errors import RunFault, UsageFault
from mini_tf.trained.opening import Trained, open_trained

MOST_NAMED = 40
"""Words of a text that a message lists."""


@dataclass(frozen=True, eq=False)
class Head:
    """One head on one text: `weights` (rows, columns) in float32, a row a query; columns that belong to no token are left out.

    `visible` (rows, columns): what each row may see. queries, keys: what rows and columns stand for.
    """

    place: HeadPlace
    weights: np.ndarray
    visible: np.ndarray
    measures: Measures
    role: str | None
    queries: SequenceKind = "own"
    keys: SequenceKind = "own"

    @property
    def of_source(self) -> bool:
        """Whether the model's own text attends to a source here."""
        return (self.queries, self.keys) == OWN_TO_SOURCE


@dataclass(frozen=True)
class Query:
    """The unit that was asked for, a row of the heads that are shown, and its text."""

    index: int
    text: str


@dataclass(frozen=True, eq=False)
class Sample:
    """What was seen of a text, or of a pair. `step` None = the one checkpoint that was asked for."""

    sides: Sides
    heads: list[Head]
    query: Query | None
    difference: float
    notes: list[str]
    step: int | None = None

    @property
    def unit(self) -> str:
        """What a row or column is called."""
        return "word" if self.sides.own.by_words else "token"

    @property
    def text(self) -> str:
        """What was asked about: the text, of a pair its source."""
        return (self.sides.source or self.sides.own).given.text

    def rows(self, head: Head) -> list[str]:
        """What the rows of its map are."""
        return self._units(head.queries, head.weights.shape[0])

    def columns(self, head: Head) -> list[str]:
        """What the columns of its map are."""
        return self._units(head.keys, head.weights.shape[1])

    def _units(self, rows: SequenceKind, n: int) -> list[str]:
        return [str(i) for i in range(n)] if rows == "latent" else self.sides.of(rows).units

    def without_weights(self) -> "Sample":
        """What of many texts fits in memory."""
        return replace(self, heads=[replace(head, weights=head.weights[:0], visible=head.visible[:0]) for head in self.heads])


@dataclass(frozen=True)
class Wish:
    """What is to be looked at: which heads, by tokens or by words, and from which place alone (a word, or a number)."""

    heads: Choice = field(default_factory=Choice)
    words: bool = False
    query: str | None = None


def look(trained: Trained, text: str, wish: Wish = Wish(), target: str | None = None) -> Sample:
    """The heads of a text's first `context` tokens; of a model of pairs those of a source and its `target`.

    A query of a pair is a place in the target, and by itself asks for the heads that read the source from there; in the source where
    `encoder.self` is asked for. UsageFault where there is nothing to look at, or not what was asked for.
    """
    sides = sides_of(trained, text, target)
    choice, query, sort, notes = wish.heads, None, None, list(sides.notes)
    in_words = wish.words
    if wish.query is not None:
        sorts = sorts_of(trained.model)
        if sides.source is not None and choice.kind is None:
            choice = replace(choice, kind=next((kind for kind, sort in sorts.items() if sort == OWN_TO_SOURCE), None))
        sort = _sort_of(wish.query, choice, sorts)
        query, in_words, several = _find(wish.query, sides.of(sort[0]), wish.words)
        notes += several
    sides = sides.by_words() if in_words else sides
    seen = captured(trained, sides)
    # One word looks from one sort of rows at one sort of columns.
    readings = [one for one in seen.readings if sort is None or choice.kind is not None or (one.rows, one.columns) == sort]
    there = [HeadPlace(reading.kind, reading.layer, head) for reading in readings for head in range(reading.weights.shape[1])]
    chosen = choice.of(there)
    heads = [head for reading in readings for head in _heads_between(reading, sides) if head.place in chosen]
    kinds = list(dict.fromkeys(head.place.kind for head in heads))
    return Sample(sides, sorted(heads, key=lambda head: kinds.index(head.place.kind)), query, seen.difference, notes)


def over_steps(trained: Trained, texts: Sequence[tuple[str, str | None]], wish: Wish) -> Iterator[Sample]:
    """Every text and target at every checkpoint that is kept, the earliest first; the model is left with the weights of the last.

    Raises RunFault where none is kept.
    """
    folder, model = trained.folder, trained.model
    steps = kept_steps(folder)
    if not steps:
        raise RunFault(f"{folder} has no checkpoint", where=[str(folder)])
    for step in reversed(steps):
        model.load_weights(open_trained(folder, step, str(trained.setup.device)).model.weights())  # which merges an adapter
        for text, target in texts:
            yield replace(look(trained, text, wish, target), step=step)


def heads_of(reading: Reading, units: Sequence[Hashable] | None, of_tokens: tuple[list[int], list[int]] | None = None) -> list[Head]:
    """The heads of one mixer on the first text of a batch; `units`: what rows and columns are, None where they are different texts.

    of_tokens: for rows and columns the number of each token's word, where maps of words are wanted.
    """
    weights, visible = reading.weights[0, :, :, reading.lead :].float().cpu(), reading.keep[0].cpu()
    if of_tokens is not None:
        weights, visible = by_words(weights, visible, *of_tokens)
    found = measure(weights, visible, units)
    places = [HeadPlace(reading.kind, reading.layer, head) for head in range(len(weights))]
    return [
        Head(place, w.numpy(), visible.numpy(), m, role(m), reading.rows, reading.columns)
        for place, w, m in zip(places, weights, found, strict=True)
    ]


def _heads_between(reading: Reading, sides: Sides) -> list[Head]:
    stand, n = (reading.rows, reading.columns), reading.keep.shape[-2:]
    of_token = None
    if sides.own.by_words:  # a latent vector counts as a word
        row, column = (list(range(many)) if one == "latent" else sides.of(one).words.of_token for one, many in zip(stand, n, strict=True))
        of_token = row, column
    if stand[0] != stand[1]:
        return heads_of(reading, None, of_token)
    if stand[0] == "latent":
        return heads_of(reading, range(n[1]), of_token)
    side = sides.of(stand[0])
    return heads_of(reading, side.units if side.by_words else side.given.ids, of_token)


def _sort_of(asked: str, choice: Choice, sorts: Mapping[str, tuple[SequenceKind, SequenceKind]]) -> tuple[SequenceKind, SequenceKind]:
    """What rows and columns of the heads stand for that a query looks from: of the kind that is chosen, else the first of own tokens.

    UsageFault where their rows are no tokens of a text.
    """
    found = sorts.get(choice.kind or "") or next((sort for sort in sorts.values() if sort[0] == "own"), None)
    if found is None or found[0] == "latent":
        fitting = [kind for kind, (rows, _) in sorts.items() if rows != "latent"]
        hint = f"use --kind {' or '.join(fitting)}" if fitting else None
        raise UsageFault(f"--query {asked}: the rows of these heads stand for latent vectors, not for tokens of a text", hint=hint)
    return found


def _find(asked: str, side: Side, in_words: bool) -> tuple[Query, bool, list[str]]:
    """The place that was asked for, whether it is a word, and a note if there are several.

    A word as it stands in the text, or a part of one that no letter adjoins ("self" of "self.path"); else a number. Of several the last,
    since in a decoder it sees the most.
    """
    words, name = side.words, side.given.name
    alone = re.compile(rf"(?<!\w){re.escape(asked)}(?!\w)")
    if places := [index for index, text in enumerate(words.texts) if asked and alone.search(text)]:
        named = ", ".join(f"{words.texts[place]!r} ({place})" for place in places[-MOST_NAMED:])
        several = f"{asked!r} stands in {len(places)} words: {'... ' * (len(places) > MOST_NAMED)}{named}; the last is shown"
        return Query(places[-1], words.texts[places[-1]]), True, [several] if len(places) > 1 else []
    units = words.texts if in_words else side.tokens
    if re.fullmatch(r"-?[0-9]{1,9}", asked) and -len(units) <= (index := int(asked)) < len(units):
        return Query(index % len(units), units[index]), in_words, []
    there = list(dict.fromkeys(words.texts))
    named = ", ".join(there[:MOST_NAMED]) + (f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else "")
    raise UsageFault(f"--query {asked}: no such word in the {name}; it has {named}", hint=f"or give a number, 0 to {len(units) - 1}")
