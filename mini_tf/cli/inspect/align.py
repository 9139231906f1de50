"""`minitf inspect align`: which source word each target word comes from, and how often a head of cross-attention is right about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.inspect.texts import TARGET, with_targets
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.lines import refuse_broken
from mini_tf.cli.terminal.options import DEVICE, GATES, RUN, STEP
from mini_tf.recipe.gates import Gate, failures
from mini_tf.system.errors import GateMissed, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.examples import Pair
    from mini_tf.drawing.panel import Panel
    from mini_tf.inspection.alignments.alignment import Aligned, WordWeights
    from mini_tf.inspection.alignments.error import Sweep
    from mini_tf.inspection.alignments.links import Gold
    from mini_tf.inspection.choice import Choice
    from mini_tf.trained.opening import Trained

SUFFIXES = (".png", ".svg", ".json", ".pharaoh")
FIGURES = ("aer", "diagonal", "sharpness")
"""What --assert may hold the chosen head to; the first two only where there are true links."""


@command
def align(
    console: Console,
    run: RUN,
    source: Annotated[str | None, typer.Argument(metavar="[SOURCE]", help="A text; default: the held-out pairs of the run.")] = None,
    target: TARGET = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Other pairs, in any form that data.val takes.")] = None,
    gold: Annotated[
        Path | None, typer.Option("--gold", metavar="FILE", help="True links, a line a pair: i-j, or i?j if only possible.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", metavar="0,2-3,-1", help="Only these layers, from 0; -1 is the last.")] = None,
    head: Annotated[str | None, typer.Option("--head", metavar="1,3", help="Only these heads of each layer, from 0.")] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", min=0, max=1, help="0: the row that predicts a token; 1: the row that reads it.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The first N pairs alone.")] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> None:
    """Word alignments by cross-attention: of one text a picture; of pairs with true links the error rate of every head.

    The head is chosen on every other pair with true links and judged on the rest; without such links it is the sharpest one.
    A FILE is a picture (.png, .svg), the numbers (.json), or links, a line a pair (.pharaoh).
    """
    refuse_broken([source or "", target or ""])
    if source is None and target is not None:
        raise UsageFault("--target belongs to a SOURCE", hint="give the text that it translates")
    if source is not None and data is not None:
        raise UsageFault(f"a SOURCE was given and --data {data} too", hint="give one of them")
    if source is not None and gold is not None and target is None:
        raise UsageFault(f"--gold {gold} links the words of a target that is known", hint="give it by --target")
    named, held_to = files.check(output, SUFFIXES, force), [Gate.parse(gate) for gate in gates or []]
    if unknown := next((gate.metric for gate in held_to if gate.metric not in FIGURES), None):
        raise UsageFault(f"--assert {unknown}: align measures no such figure; it does {', '.join(FIGURES)}")

    from mini_tf.inspection.alignments.error import metrics
    from mini_tf.inspection.choice import Choice
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device)
    pairs = _pairs(console, trained, source, target, data)
    links = _links(pairs, gold)
    study = _study(trained, pairs[:limit], links[:limit], Choice(None, layer, head), shift)
    result = _result(study)
    files.write_all(console, named, result, lambda suffix: _file(suffix, result, study))
    _show(console, study, source is None)
    for note in result["notes"]:
        console.say(f"note: {note}")
    figures = metrics(study.swept)
    console.answer(run=trained.folder, metrics=figures, result=result)
    if missed := failures(held_to, figures):
        raise GateMissed(missed[0], faults=missed)


@dataclass(frozen=True, eq=False)
class _Study:
    """Every pair with what was found, None where it is too long; and the weights of the pair that is shown, number `shown`."""

    pairs: "Sequence[Pair]"
    gold: "Sequence[Gold | None]"
    found: "Sequence[Aligned | None]"
    swept: "Sweep"
    shown: int
    weights: "WordWeights"

    def panel(self) -> "Panel":
        from mini_tf.inspection.alignments.panels import alignment_map

        return alignment_map(self.pairs[self.shown], self.weights, self.swept.best.place, self.gold[self.shown])


def _pairs(console: Console, trained: "Trained", source: str | None, target: str | None, data: str | None) -> "list[Pair]":
    from mini_tf.data.examples import Pair
    from mini_tf.inspection.framing import reads_pairs

    if not reads_pairs(trained):
        raise UsageFault(f"a model of the kind {trained.recipe.model.kind} reads no source: there is nothing to align")
    if source is None:
        return _held_out(trained, data)
    if not source.split():
        raise UsageFault("SOURCE has no word")
    [(text, own)] = with_targets(trained, [source], target)
    assert own is not None
    if not own.split():
        said = "the model's translation is empty" if target is None else "--target has no word"
        raise UsageFault(said, hint="say what the translation is: --target TEXT")
    if target is None:
        console.say(f"target: {own}")
    return [Pair(text, own, "SOURCE")]


def _held_out(trained: "Trained", data: str | None) -> "list[Pair]":
    from mini_tf.trained.judging import text_of

    return list(trained.recipe.objective.dataset().examples(text_of(trained, data, "val")))


def _links(pairs: "Sequence[Pair]", gold: Path | None) -> "list[Gold | None]":
    from mini_tf.inspection.alignments import links

    return links.own(pairs) if gold is None else [*links.read(gold, pairs)]


def _study(trained: "Trained", pairs: "Sequence[Pair]", gold: "Sequence[Gold | None]", choice: "Choice", shift: int | None) -> _Study:
    from mini_tf.inspection.alignments.alignment import aligned, word_weights
    from mini_tf.inspection.alignments.error import places_of, sweep

    found = aligned(trained, pairs)
    shown, first = next(((number, one) for number, one in enumerate(found) if one is not None), (0, None))
    if first is None:
        raise UsageFault(f"no pair fits into the model's context of {trained.model.context} tokens")
    swept = sweep(pairs, found, gold, places_of(first.sharpness.shape, choice, shift))
    [weights] = word_weights(trained, [pairs[shown]])
    assert weights is not None
    return _Study(pairs, gold, found, swept, shown, weights)


def _result(study: _Study) -> dict[str, Any]:
    from mini_tf.inspection.alignments.alignment import links_at
    from mini_tf.inspection.alignments.links import written

    swept, best, pair, gold = study.swept, study.swept.best, study.pairs[study.shown], study.gold[study.shown]
    left_out = sum(one is None for one in study.found)
    notes = [f"{left_out} of {len(study.pairs)} pairs are longer than the model's context, and left out"] if left_out else []
    if not swept.chosen_on:
        why = "one pair with true links, which judges" if swept.reported_on else "no true links to choose by"
        notes.append(f"{why}: of {len(swept.heads)} heads and shifts the one with the largest mean of its largest weights")
    weights = study.weights.weights[best.place]
    return {
        "pairs": len(study.pairs) - left_out,
        "heads": [{**head.place._asdict(), "sharpness": head.sharpness, "aer": head.aer} for head in swept.heads],
        "best": {**best.place._asdict(), "sharpness": best.sharpness, "aer": swept.aer, "chosen_aer": best.aer},
        "baseline": {"diagonal": swept.diagonal},
        "chosen_on": swept.chosen_on,
        "reported_on": swept.reported_on,
        "alignments": ["" if one is None else written(links_at(one.links, best.place)) for one in study.found],
        "sample": {
            "source_words": pair.source.split(),
            "target_words": pair.target.split(),
            "matrix": weights[:, 1:].tolist(),
            "no_word": weights[:, 0].tolist(),
            "gold": None if gold is None else {name: sorted(map(list, links)) for name, links in gold._asdict().items()},
        },
        "notes": notes,
    }


def _file(suffix: str, result: dict[str, Any], study: _Study) -> bytes:
    from mini_tf.drawing.heat_maps import draw_panels
    from mini_tf.drawing.panel import Scale

    if suffix == "pharaoh":
        return "".join(f"{line}\n" for line in result["alignments"]).encode()
    return draw_panels([study.panel()], Scale(), f"Alignment by cross-attention, {study.swept.best.place}", suffix)


def _show(console: Console, study: _Study, many: bool) -> None:
    from mini_tf.drawing.panel import Scale
    from mini_tf.drawing.terminal import heat_map, sentence, table
    from mini_tf.inspection.alignments.alignment import HeadShift

    colored, width, swept = console.colored, console.width, study.swept
    if many:
        judged = swept.chosen_on > 0
        cells = {head.place: head.aer if judged else head.sharpness for head in swept.heads}
        shifts = sorted({place.shift for place in cells})
        rows = [
            [f"{layer}.{head}", *(cells.get(HeadShift(layer, head, shift)) for shift in shifts)]
            for layer, head in dict.fromkeys((place.layer, place.head) for place in cells)
        ]
        what = "error rate" if judged else "sharpness"
        console.picture(table(["layer.head", *(f"{what}, shift {shift}" for shift in shifts)], rows, colored=colored, width=width))
    for line in _said(swept):
        console.picture(sentence(line, width))
    if not console.json:
        console.print_product("")
    console.picture(heat_map(study.panel(), Scale(), colored=colored, width=width))


def _said(swept: "Sweep") -> list[str]:
    best, said = swept.best, []
    chosen, reported = (f"{n} pair{'s' * (n != 1)}" for n in (swept.chosen_on, swept.reported_on))
    if best.aer is not None:
        said.append(f"{best.place}: the least error rate on {chosen}, {best.aer:.3f}")
    if swept.aer is not None and swept.diagonal is not None:
        other = "the other " if best.aer is not None else ""
        said.append(f"{best.place}: error rate {swept.aer:.3f} on {other}{reported}, where the diagonal has {swept.diagonal:.3f}")
    return said
