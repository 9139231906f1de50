"""What is drawn of a pair's alignment: a row a target word, a column a source word, the head's links and those of people marked."""

from mini_tf.data.examples import Pair
from mini_tf.drawing.panel import Marks, Panel
from mini_tf.inspection.alignments.alignment import HeadShift, WordWeights
from mini_tf.inspection.alignments.links import Gold, Link

LOOKS = {
    0: "Each row is a target word, as it is about to be written; its weights say at which source words the head looks.",
    1: "Each row is a target word, as it is read; its weights say at which source words the head looks.",
}
"""By the shift."""


def alignment_map(pair: Pair, found: WordWeights, place: HeadShift, gold: Gold | None) -> Panel:
    """The weights of one head between the words of a pair; what lies on no word is left out."""
    sure, possible = (frozenset(), frozenset()) if gold is None else (_cells(gold.sure), _cells(gold.possible - gold.sure))
    marks = Marks(_cells(found.links_of(place)), sure, possible, ("link of the head", "gold link", "possible gold link"))
    weights = found.weights[place][:, 1:]
    return Panel(f"cross {place}", pair.target.split(), pair.source.split(), weights, LOOKS[place.shift], marks=marks)


def _cells(links: frozenset[Link]) -> frozenset[tuple[int, int]]:
    """(row, column), which is (target word, source word)."""
    return frozenset((j, i) for i, j in links)
