"""Word alignments of one or many pairs: AER of every head, the alignments of the best head, and the map of one pair."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data.examples import Pair
from mini_tf.drawing.panel import Marks, Panel, PanelGrid, Scale
from mini_tf.drawing.terminal import heat_map, sentence, table
from mini_tf.inspection import COMMON, INPUT_OUTPUT, PICTURES, PairViewSettings, Picture, View, ViewOutput, option
from mini_tf.inspection._alignments import (
    AlignmentPoint,
    GoldAlignment,
    HeadComparison,
    HeadShift,
    PairAlignment,
    WordWeights,
    align_pairs,
    alignment_of,
    compare_heads,
    dataset_alignments,
    format_alignment,
    head_shifts,
    read_alignments,
    word_weights,
)
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._subjects import pairs_of, run_and_step
from mini_tf.system.errors import UsageFault
from mini_tf.system.numbers import counted
from mini_tf.trained.opening import Trained

LEGENDS = {
    0: "Rows: target words, at the position that predicts them. Columns: source words.",
    1: "Rows: target words, at the position that has them as input. Columns: source words.",
}
"""By shift."""
SIDES = ("target word", "source word")


class Settings(PairViewSettings):
    """Align target words to source words by cross-attention.

    With gold alignments, prints the alignment error rate (AER) of every head; the best head is chosen on every other
    pair and evaluated on the rest. Without, the head with the sharpest weights is used. FILE: a picture (.png, .svg,
    .pdf), numbers (.json) or alignments (.pharaoh).
    """

    PANEL = COMMON
    ALIASES = ("alignment", "alignments", "cross", "cross-attention")
    EXAMPLES = ("minitf inspect align toy", "minitf inspect align toy -o alignments.png")
    FILES = (*PICTURES, ".html", ".json", ".pharaoh")
    METRICS = ("aer", "diagonal", "sharpness")

    data: str | None = option(None, "--data", metavar="FILE", panel=INPUT_OUTPUT)
    """Align the pairs of this file, in any format of data.val."""
    gold: Path | None = option(None, "--gold", metavar="FILE", panel=INPUT_OUTPUT)
    """Gold alignments, one pair per line: i-j sure, i?j possible."""
    shift: int | None = option(None, "--shift", metavar="S", shown="best", ge=0, le=1)
    """Decoder position: 0 predicts the token, 1 has it as input."""
    limit: int | None = option(None, "--limit", metavar="N", panel=INPUT_OUTPUT, ge=1)
    """Only the first N pairs."""

    def check(self, output: ViewOutput) -> None:
        super().check(output)
        if self.source is not None and self.gold is not None and self.target is None:
            raise UsageFault(f"--gold {self.gold} needs the target text", hint="--target TEXT")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        return self.of_pairs(trained, pairs_of(trained, self, "word alignment", output.say))

    def of_pairs(self, trained: Trained, pairs: Sequence[Pair]) -> View:
        """The first pairs, with a table of heads unless there is a SOURCE."""
        gold = (dataset_alignments(pairs) if self.gold is None else read_alignments(self.gold, pairs))[: self.limit]
        pairs = pairs[: self.limit]
        alignments = align_pairs(trained, pairs)
        fitting = ((number, alignment) for number, alignment in enumerate(alignments) if alignment is not None)
        shown, first = next(fitting, (0, None))
        if first is None:
            raise UsageFault(f"no pair fits into the model's context of {trained.model.context} tokens")
        selection = HeadSelection(None, self.layers, self.heads)
        comparison = compare_heads(pairs, alignments, gold, head_shifts(first.sharpness.shape, selection, self.shift))
        best = comparison.best.head
        [weights] = word_weights(trained, [pairs[shown]])
        assert weights is not None
        panel = _map(pairs[shown], weights, best, gold[shown])
        result = _result(alignments, comparison) | {"sample": _sample(pairs[shown], weights.weights[best], gold[shown])}
        notes = _notes(alignments, comparison)
        pictures: list[Picture] = [_table(comparison)] if self.source is None else []
        pictures += [partial(sentence, line) for line in [*_sentences(comparison), ""]]
        title = f"Word alignment by {best}, {run_and_step(trained.folder, self.step)}"
        return View(
            result | {"notes": notes},
            [*pictures, partial(heat_map, panel, Scale())],
            [f"note: {note}" for note in notes],
            PanelGrid([replace(panel, title="")], Scale(), title, notes=notes),
            {"pharaoh": lambda: "".join(f"{line}\n" for line in result["alignments"]).encode()},
            {"aer": comparison.aer, "diagonal": comparison.diagonal, "sharpness": comparison.best.sharpness},
        )


def _map(pair: Pair, word_weights: WordWeights, head: HeadShift, gold: GoldAlignment | None) -> Panel:
    """Attention weights of target words (rows) on source words, with the head's and the gold alignment marked."""

    def cells(points: frozenset[AlignmentPoint]) -> frozenset[tuple[int, int]]:
        return frozenset((target, source) for source, target in points)

    gold = gold or GoldAlignment(frozenset(), frozenset())
    sure, possible = cells(gold.sure), cells(gold.possible - gold.sure)
    meanings = ("alignment by the head", "gold alignment", "possible gold alignment")
    marks = Marks(cells(alignment_of(word_weights.aligned, head)), sure, possible, meanings)
    names, weights = (pair.target.split(), pair.source.split()), word_weights.weights[head][:, 1:]
    return Panel(str(head), *names, weights, LEGENDS[head.shift], marks=marks, sides=SIDES)


def _notes(alignments: Sequence[PairAlignment | None], comparison: HeadComparison) -> list[str]:
    notes = []
    if skipped := alignments.count(None):
        notes.append(f"{skipped} of {len(alignments)} pairs are longer than the model's context and were skipped")
    if not comparison.chosen_on:
        why = "only one pair has a gold alignment" if comparison.reported_on else "no gold alignments"
        notes.append(f"{why}; of {len(comparison.heads)} combinations of head and shift, the sharpest is shown")
    return notes


def _result(alignments: Sequence[PairAlignment | None], comparison: HeadComparison) -> dict[str, Any]:
    best = comparison.best
    heads = [{**score.head._asdict(), "sharpness": score.sharpness, "aer": score.aer} for score in comparison.heads]
    return {
        "pairs": len(alignments) - alignments.count(None),
        "heads": heads,
        "best": {**best.head._asdict(), "sharpness": best.sharpness, "aer": comparison.aer, "chosen_aer": best.aer},
        "baseline": {"diagonal": comparison.diagonal},
        "chosen_on": comparison.chosen_on,
        "reported_on": comparison.reported_on,
        "alignments": [
            "" if alignment is None else format_alignment(alignment_of(alignment.aligned, best.head))
            for alignment in alignments
        ],
    }


def _sample(pair: Pair, weights: np.ndarray, gold: GoldAlignment | None) -> dict[str, Any]:
    return {
        "source_words": pair.source.split(),
        "target_words": pair.target.split(),
        "matrix": weights[:, 1:].tolist(),
        "no_word": weights[:, 0].tolist(),
        "gold": None if gold is None else {name: sorted(map(list, points)) for name, points in gold._asdict().items()},
    }


def _table(comparison: HeadComparison) -> Picture:
    """A row per head, a column per shift: AER, or sharpness if there is no gold alignment."""
    by_aer = comparison.chosen_on > 0
    cells = {score.head: score.aer if by_aer else score.sharpness for score in comparison.heads}
    shifts = sorted({head.shift for head in cells})
    rows = [
        [f"L{layer} H{head}", *(cells.get(HeadShift(layer, head, shift)) for shift in shifts)]
        for layer, head in dict.fromkeys((index.layer, index.head) for index in cells)
    ]
    metric = "AER" if by_aer else "sharpness"
    return partial(table, ["head", *(f"{metric}, shift {shift}" for shift in shifts)], rows)


def _sentences(comparison: HeadComparison) -> Iterator[str]:
    best = comparison.best
    chosen, reported = (counted(n, "pair") for n in (comparison.chosen_on, comparison.reported_on))
    if best.aer is not None:
        yield f"{best.head}: lowest alignment error rate (AER) on {chosen}, {best.aer:.3f}"
    if comparison.aer is not None and comparison.diagonal is not None:
        other = "the other " if best.aer is not None else ""
        yield f"{best.head}: AER {comparison.aer:.3f} on {other}{reported}; diagonal baseline {comparison.diagonal:.3f}"
