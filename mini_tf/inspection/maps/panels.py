"""What is drawn of the heads of a text: the grid of all, the map of one, one word over all of them, and how heads form over the steps."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from mini_tf.drawing import terminal
from mini_tf.drawing.panel import Cells, Fan, Panel, Scale
from mini_tf.inspection import Picture
from mini_tf.inspection.choice import HeadPlace, kind_name
from mini_tf.inspection.describe import describe, does
from mini_tf.inspection.heads import NO_ROLE, ROLES
from mini_tf.inspection.maps.attention import Head, Sample

MOST_MAPS = 4
"""Maps that a terminal shows of the heads that were chosen."""
NO_HEAD = "-"
MEANINGS = {
    "P": "previous",
    "N": "next",
    "S": "self",
    "F": "first",
    "I": "induction: what followed the same before",
    "D": "duplicate: the same elsewhere",
    "B": "broad",
    NO_ROLE: "none of these",
    NO_HEAD: "no such head",
}
"""What the letters of the grid mean."""


def pictures(sample: Sample, titled: bool, described: bool, chosen: bool) -> Iterator[Picture]:
    """One text in a terminal: sentences; or where one word looks; or the grid of heads and some maps, the chosen ones if there are."""
    if sample.step is not None:
        yield partial(terminal.line, f"step {sample.step}")
    if titled:
        yield partial(terminal.line, sample.text)
    if described:
        yield from (partial(terminal.line, sentence, whole=True) for sentence in describe(sample))
    elif sample.query is not None:
        yield partial(terminal.fan, fan(sample))
    else:
        if not chosen:
            yield partial(terminal.head_grid, grid(sample))
        shown = (sample.heads if chosen else structured(sample.heads))[:MOST_MAPS]
        for head in shown:
            yield partial(terminal.line, "")
            yield partial(terminal.heat_map, head_map(head, sample), Scale())
        if len(shown) < len(sample.heads):
            yield partial(terminal.sentence, f"{len(shown)} of {len(sample.heads)} heads shown; --layer/--head for others")


def pictures_of_steps(samples: Sequence[Sample], texts: Sequence[str]) -> Iterator[Picture]:
    """How heads form: for each text, whose samples come in turn, a table of heads and steps."""
    for number, text in enumerate(texts):
        if len(texts) > 1:
            yield partial(terminal.line, text)
        yield partial(terminal.table, *table_of_steps(samples[number :: len(texts)]))
    yield partial(terminal.line, legend(samples), whole=True)


def grid(sample: Sample) -> Cells:
    """A cell a head: its entropy as a colour, its role as a letter."""
    places = {head.place: head for head in sample.heads}
    layers = list(dict.fromkeys(place[:2] for place in places))
    numbers = sorted({place.head for place in places})
    heads = [[places.get(HeadPlace(*layer, number)) for number in numbers] for layer in layers]
    letters = [[NO_HEAD if head is None else letter(head) for head in row] for row in heads]
    values = np.array([[_entropy(head) for head in row] for row in heads])
    used = {one for row in letters for one in row}
    return Cells(
        "What each head does: one row per layer, one column per head",
        [f"L{layer} {kind}" for kind, layer in layers],
        [f"H{number}" for number in numbers],
        values,
        letters,
        {one: meaning for one, meaning in MEANINGS.items() if one in used},
        Scale(label="entropy, 0 = sharp, 1 = even"),
    )


def letter(head: Head) -> str:
    """The letter of a head's role."""
    return NO_ROLE if head.role is None else ROLES[head.role]


def head_map(head: Head, sample: Sample) -> Panel:
    """The map of one head, and what it does in a sentence."""
    title = f"{head.place}, {head.role}" if head.role else str(head.place)
    looks = f"The head {does(head, sample.unit)}. {rows_look(sample)}"
    return Panel(title, sample.rows(head), sample.columns(head), seen(head), looks)


def seen(head: Head) -> np.ndarray:
    """The head's weights; no number where a row may not look."""
    return np.where(head.visible, head.weights, np.nan)


def rows_look(sample: Sample) -> str:
    """How a map is read."""
    between = " Cross-attention: target rows, source columns." if any(head.of_source for head in sample.heads) else ""
    return f"Rows: queries, one per {sample.unit}. Columns: keys.{between}"


def structured(heads: Sequence[Head], most: int = 3) -> list[Head]:
    """The heads most worth a look: the strongest of each role but `first` and `broad`, then the sharpest without a role, then `first`.

    Where all are broad, the least broad of them. Of a pair, heads that read the source.
    """
    heads = [head for head in heads if head.of_source] or heads
    strongest: dict[str, Head] = {}
    for head in sorted(heads, key=_strength, reverse=True):
        if head.role not in (None, "first", "broad"):
            strongest.setdefault(str(head.role), head)
    sharpest = sorted((head for head in heads if head.measures["entropy"] is not None), key=_entropy)
    others = [head for role in (None, "first") for head in sharpest if head.role == role]
    return [*strongest.values(), *others][:most] or sharpest[:1]


def fan(sample: Sample) -> Fan:
    """Where the word that was asked for looks, in every head."""
    assert sample.query is not None
    index = sample.query.index
    kinds = {head.place.kind for head in sample.heads}
    among = all(head.queries == head.keys for head in sample.heads)
    # What stands after the last place that any head may look at is left out: in a decoder, all that follows the query.
    end = 1 + max(index * among, *(int(np.flatnonzero(head.visible[index]).max(initial=0)) for head in sample.heads))
    weights = np.stack([head.weights[index, :end] for head in sample.heads])
    names = [f"L{head.place.layer} H{head.place.head}" for head in sample.heads]
    title = f"{', '.join(map(kind_name, sorted(kinds)))} of one {sample.unit}"
    return Fan(title, sample.query.text, index if among else None, sample.columns(sample.heads[0])[:end], weights, names)


def table_of_steps(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """How heads form: headers and rows, a row a head, a column a step, in each cell entropy and letter."""
    headers = ["head", *(f"step {sample.step}" for sample in samples)]
    columns = [[str(head.place) for head in samples[0].heads], *([_cell(head) for head in sample.heads] for sample in samples)]
    return headers, [list(row) for row in zip(*columns, strict=True)]


def legend(samples: Sequence[Sample]) -> str:
    """What the letters of these samples mean, in a line."""
    used = {letter(head) for sample in samples for head in sample.heads}
    return "  ".join(["entropy and role:", *(f"{one} {meaning}" for one, meaning in MEANINGS.items() if one in used)])


def _cell(head: Head) -> str:
    entropy = head.measures["entropy"]
    return f"{'' if entropy is None else format(entropy, '.2f')} {letter(head)}"


def _strength(head: Head) -> float:
    return head.measures.get(head.role or "") or 0.0


def _entropy(head: Head | None) -> float:
    entropy = None if head is None else head.measures["entropy"]
    return float("nan") if entropy is None else entropy
