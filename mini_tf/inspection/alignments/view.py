"""The alignments of many pairs, or of one: the heads compared, the links of the best of them, one pair as a map."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data.examples import Pair
from mini_tf.drawing.panel import Marks, Panel, Scale, Sheet
from mini_tf.drawing.terminal import heat_map, sentence, table
from mini_tf.inspection import Picture, View
from mini_tf.inspection.alignments import links
from mini_tf.inspection.alignments.alignment import Aligned, HeadShift, WordWeights, aligned, links_at, word_weights
from mini_tf.inspection.alignments.error import Sweep, positions_of, sweep
from mini_tf.inspection.checkpoints import origin
from mini_tf.inspection.choice import Choice
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

LOOKS = {
    0: "Rows: target words, at the position that predicts them. Columns: source words.",
    1: "Rows: target words, at their own position. Columns: source words.",
}
"""By the shift."""


def view(
    trained: Trained,
    pairs: Sequence[Pair],
    gold: Path | None,
    limit: int | None,
    choice: Choice,
    shift: int | None,
    step: str | None,
    many: bool,
) -> View:
    """The first `limit` pairs; `gold`: the file of their links, else those that come with the data. many: a table of heads, too."""
    known = (links.own(pairs) if gold is None else links.read(gold, pairs))[:limit]
    pairs = pairs[:limit]
    found = aligned(trained, pairs)
    shown, first = next(((number, one) for number, one in enumerate(found) if one is not None), (0, None))
    if first is None:
        raise UsageFault(f"no pair fits into the model's context of {trained.model.context} tokens")
    swept = sweep(pairs, found, known, positions_of(first.sharpness.shape, choice, shift))
    [weights] = word_weights(trained, [pairs[shown]])
    assert weights is not None
    panel = _map(pairs[shown], weights, swept.best.place, known[shown])
    result = _result(found, swept) | {"sample": _sample(pairs[shown], weights.weights[swept.best.place], known[shown])}
    notes = _notes(found, swept)
    pictures: list[Picture] = [_table(swept)] if many else []
    pictures += [*(partial(sentence, line) for line in _said(swept)), partial(sentence, ""), partial(heat_map, panel, Scale())]
    return View(
        result | {"notes": notes},
        pictures,
        [f"note: {note}" for note in notes],
        Sheet([replace(panel, title="")], Scale(), f"Word alignment by {swept.best.place}, {origin(trained.folder, step)}"),
        {"pharaoh": lambda: "".join(f"{line}\n" for line in result["alignments"]).encode()},
        {"aer": swept.aer, "diagonal": swept.diagonal, "sharpness": swept.best.sharpness},
    )


def _map(pair: Pair, found: WordWeights, place: HeadShift, gold: links.Gold | None) -> Panel:
    """A row a target word, a column a source word, the head's links and those of people marked; what lies on no word is left out."""

    def cells(linked: frozenset[links.Link]) -> frozenset[tuple[int, int]]:
        return frozenset((target, source) for source, target in linked)

    sure, possible = (frozenset(), frozenset()) if gold is None else (cells(gold.sure), cells(gold.possible - gold.sure))
    marks = Marks(cells(links_at(found.links, place)), sure, possible, ("link of the head", "gold link", "possible gold link"))
    weights = found.weights[place][:, 1:]
    return Panel(str(place), pair.target.split(), pair.source.split(), weights, LOOKS[place.shift], marks=marks)


def _notes(found: Sequence[Aligned | None], swept: Sweep) -> list[str]:
    left_out = found.count(None)
    notes = [f"{left_out} of {len(found)} pairs are longer than the model's context, and left out"] if left_out else []
    if not swept.chosen_on:
        why = "one pair with true links, which judges" if swept.reported_on else "no true links to choose by"
        notes.append(f"{why}: of {len(swept.heads)} heads and shifts the one with the largest mean of its largest weights")
    return notes


def _result(found: Sequence[Aligned | None], swept: Sweep) -> dict[str, Any]:
    best = swept.best
    return {
        "pairs": len(found) - found.count(None),
        "heads": [{**head.place._asdict(), "sharpness": head.sharpness, "aer": head.aer} for head in swept.heads],
        "best": {**best.place._asdict(), "sharpness": best.sharpness, "aer": swept.aer, "chosen_aer": best.aer},
        "baseline": {"diagonal": swept.diagonal},
        "chosen_on": swept.chosen_on,
        "reported_on": swept.reported_on,
        "alignments": ["" if one is None else links.written(links_at(one.links, best.place)) for one in found],
    }


def _sample(pair: Pair, weights: np.ndarray, gold: links.Gold | None) -> dict[str, Any]:
    return {
        "source_words": pair.source.split(),
        "target_words": pair.target.split(),
        "matrix": weights[:, 1:].tolist(),
        "no_word": weights[:, 0].tolist(),
        "gold": None if gold is None else {name: sorted(map(list, linked)) for name, linked in gold._asdict().items()},
    }


def _table(swept: Sweep) -> Picture:
    """A row a head, a column a shift: error rates, or without pairs to choose by sharpness."""
    judged = swept.chosen_on > 0
    cells = {head.place: head.aer if judged else head.sharpness for head in swept.heads}
    shifts = sorted({place.shift for place in cells})
    rows = [
        [f"L{layer} H{head}", *(cells.get(HeadShift(layer, head, shift)) for shift in shifts)]
        for layer, head in dict.fromkeys((place.layer, place.head) for place in cells)
    ]
    what = "error rate" if judged else "sharpness"
    return partial(table, ["head", *(f"{what}, shift {shift}" for shift in shifts)], rows)


def _said(swept: Sweep) -> Iterator[str]:
    best = swept.best
    chosen, reported = (f"{n} pair{'s' * (n != 1)}" for n in (swept.chosen_on, swept.reported_on))
    if best.aer is not None:
        yield f"{best.place}: the least error rate on {chosen}, {best.aer:.3f}"
    if swept.aer is not None and swept.diagonal is not None:
        other = "the other " if best.aer is not None else ""
        yield f"{best.place}: error rate {swept.aer:.3f} on {other}{reported}, where the diagonal has {swept.diagonal:.3f}"
