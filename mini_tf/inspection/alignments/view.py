"""The alignments of many pairs, or of one: the heads compared, the links of the best of them, one pair as a map."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mini_tf.data.pairs import Pair
from mini_tf.drawing.panel import Scale, Sheet
from mini_tf.drawing.terminal import heat_map, sentence, table
from mini_tf.inspection import Picture, View
from mini_tf.inspection.alignments import links
from mini_tf.inspection.alignments.alignment import Aligned, HeadShift, WordWeights, aligned, links_at, word_weights
from mini_tf.inspection.alignments.error import Sweep, metrics, places_of, sweep
from mini_tf.inspection.alignments.panels import alignment_map
from mini_tf.inspection.choice import Choice
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained


@dataclass(frozen=True, eq=False)
class _Study:
    """Every pair with what was found, None where it is too long; and the weights of the pair that is shown."""

    found: Sequence[Aligned | None]
    swept: Sweep
    pair: Pair
    gold: links.Gold | None
    weights: WordWeights


def view(
    trained: Trained, pairs: Sequence[Pair], gold: Path | None, limit: int | None, choice: Choice, shift: int | None, many: bool
) -> View:
    """The first `limit` pairs; `gold`: the file of their links, else those that come with the data. many: a table of heads, too."""
    known = links.own(pairs) if gold is None else links.read(gold, pairs)
    study = _study(trained, pairs[:limit], known[:limit], choice, shift)
    result, swept = _result(study), study.swept
    panel = alignment_map(study.pair, study.weights, swept.best.place, study.gold)
    pictures: list[Picture] = [_table(swept)] if many else []
    pictures += [*(partial(sentence, line) for line in _said(swept)), partial(sentence, ""), partial(heat_map, panel, Scale())]
    return View(
        result,
        pictures,
        [f"note: {note}" for note in result["notes"]],
        Sheet([panel], Scale(), f"Alignment by cross-attention, {swept.best.place}"),
        {"pharaoh": lambda: "".join(f"{line}\n" for line in result["alignments"]).encode()},
        metrics(swept),
    )


def _study(trained: Trained, pairs: Sequence[Pair], gold: Sequence[links.Gold | None], choice: Choice, shift: int | None) -> _Study:
    found = aligned(trained, pairs)
    shown, first = next(((number, one) for number, one in enumerate(found) if one is not None), (0, None))
    if first is None:
        raise UsageFault(f"no pair fits into the model's context of {trained.model.context} tokens")
    swept = sweep(pairs, found, gold, places_of(first.sharpness.shape, choice, shift))
    [weights] = word_weights(trained, [pairs[shown]])
    assert weights is not None
    return _Study(found, swept, pairs[shown], gold[shown], weights)


def _result(study: _Study) -> dict[str, Any]:
    swept, best, pair, gold = study.swept, study.swept.best, study.pair, study.gold
    left_out = sum(one is None for one in study.found)
    notes = [f"{left_out} of {len(study.found)} pairs are longer than the model's context, and left out"] if left_out else []
    if not swept.chosen_on:
        why = "one pair with true links, which judges" if swept.reported_on else "no true links to choose by"
        notes.append(f"{why}: of {len(swept.heads)} heads and shifts the one with the largest mean of its largest weights")
    weights = study.weights.weights[best.place]
    return {
        "pairs": len(study.found) - left_out,
        "heads": [{**head.place._asdict(), "sharpness": head.sharpness, "aer": head.aer} for head in swept.heads],
        "best": {**best.place._asdict(), "sharpness": best.sharpness, "aer": swept.aer, "chosen_aer": best.aer},
        "baseline": {"diagonal": swept.diagonal},
        "chosen_on": swept.chosen_on,
        "reported_on": swept.reported_on,
        "alignments": ["" if one is None else links.written(links_at(one.links, best.place)) for one in study.found],
        "sample": {
            "source_words": pair.source.split(),
            "target_words": pair.target.split(),
            "matrix": weights[:, 1:].tolist(),
            "no_word": weights[:, 0].tolist(),
            "gold": None if gold is None else {name: sorted(map(list, linked)) for name, linked in gold._asdict().items()},
        },
        "notes": notes,
    }


def _table(swept: Sweep) -> Picture:
    """A row a head, a column a shift: error rates, or without pairs to choose by sharpness."""
    judged = swept.chosen_on > 0
    cells = {head.place: head.aer if judged else head.sharpness for head in swept.heads}
    shifts = sorted({place.shift for place in cells})
    rows = [
        [f"{layer}.{head}", *(cells.get(HeadShift(layer, head, shift)) for shift in shifts)]
        for layer, head in dict.fromkeys((place.layer, place.head) for place in cells)
    ]
    what = "error rate" if judged else "sharpness"
    return partial(table, ["layer.head", *(f"{what}, shift {shift}" for shift in shifts)], rows)


def _said(swept: Sweep) -> Iterator[str]:
    best = swept.best
    chosen, reported = (f"{n} pair{'s' * (n != 1)}" for n in (swept.chosen_on, swept.reported_on))
    if best.aer is not None:
        yield f"{best.place}: the least error rate on {chosen}, {best.aer:.3f}"
    if swept.aer is not None and swept.diagonal is not None:
        other = "the other " if best.aer is not None else ""
        yield f"{best.place}: error rate {swept.aer:.3f} on {other}{reported}, where the diagonal has {swept.diagonal:.3f}"
