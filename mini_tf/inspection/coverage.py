"""Coverage of a source by cross-attention, and repetition and facts of generated texts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mini_tf.drawing.labels import label
from mini_tf.drawing.panel import Panel, PanelGrid
from mini_tf.drawing.terminal import heat_map, sentence, table
from mini_tf.inspection import INPUT_OUTPUT, PICTURES, PairViewSettings, Picture, View, ViewOutput, option
from mini_tf.inspection._attention_pictures import scale_of
from mini_tf.inspection._coverage import (
    CopyMap,
    CoverageMap,
    FactCounts,
    Summaries,
    check_selection,
    copy_map,
    coverage_maps,
    cross_attention,
    facts_reader,
)
from mini_tf.inspection._heads import HeadSelection
from mini_tf.inspection._subjects import pairs_of, run_and_step, with_targets
from mini_tf.inspection._texts import target_input, untruncated_input
from mini_tf.scores.text_scores import NGRAM_SIZES
from mini_tf.system.errors import UsageFault
from mini_tf.trained.opening import Trained

N_PAIRS = 100
ROWS = "Rows: target tokens, at the position that predicts them. Columns: source tokens."
LABEL = "attention weight or coverage"
LEGEND = "coverage: sum of the attention weights over the target tokens."
DIMINISHED = f"{LEGEND} weight: sum of the diminished weights."
COPIED = (
    "p_gen: probability that the token is generated, not copied; p: probability of the token; copied: share of it by"
    " copying; from: the source token with the largest copy attention, and its position."
)
REPETITION = "n-grams: share of the n-grams of a text that occur earlier in it."
FACTS = (
    "facts: in the sources; recall: share of these that the texts say; twice: share of these that a text says more than"
    " once; invented: share of the facts in the texts that are not in their source."
)


class Settings(PairViewSettings):
    """Show how much attention each source token has had, and what the generated texts repeat and omit.

    Maps of cross-attention, of its sum over the target tokens (coverage) and, with diminishing attention, of the
    weights: of SOURCE with the generated text or --target, or of the first validation pair. Repetition: the share of
    n-grams that occur earlier in the text. Facts, on the corpus world-facts: how many are said, said twice, invented.
    """

    ALIASES = ("repetition", "repetitions")
    EXAMPLES = ("minitf inspect coverage summaries", 'minitf inspect coverage summaries "a long text" -o coverage.png')
    FILES = (*PICTURES, ".html", ".json")

    data: str | None = option(None, "--data", metavar="DATA", panel=INPUT_OUTPUT)
    """Generate for the pairs of this file or corpus."""
    limit: int | None = option(None, "--limit", metavar="N", panel=INPUT_OUTPUT, shown="100", ge=1)
    """Only the first N pairs."""

    def check(self, output: ViewOutput) -> None:
        super().check(output)
        if self.source is not None and self.limit is not None:
            raise UsageFault(f"--limit {self.limit}: SOURCE is one text", hint="leave out --limit, or give --data")

    def view(self, trained: Trained, output: ViewOutput) -> View:
        """Maps of the first source with its target, and figures of all targets and references."""
        facts_of, selection = facts_reader(trained, self.data), HeadSelection(None, self.layers, self.heads)
        check_selection(trained, selection)  # before texts are generated
        pairs = pairs_of(trained, self, "coverage", output.say)[: self.limit or N_PAIRS]
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        references = None if self.source is not None else targets
        if references is not None:
            targets = [target for _, target in with_targets(trained, sources, None) if target is not None]
        context, first = trained.model.context, next((n for n, target in enumerate(targets) if target.split()), 0)
        source = untruncated_input(trained, sources[first]).truncate(context)
        target = target_input(trained.tokenizer, targets[first], context)
        maps = coverage_maps(cross_attention(trained, source, target), selection)
        columns, inputs = trained.source_tokenizer.pieces(source.ids), trained.tokenizer.pieces(target.ids)
        rows = [*inputs[1:], "" if target.n_cut else inputs[0]]  # a token is at the position before; the separator ends
        shown = maps if (selection.layer, selection.head) != (None, None) else maps[-1:]
        notes = cut = [note for note in (source.note, target.note) if note]
        if len(shown) < len(maps):
            notes = [*cut, f"{len(shown)} of {len(maps)} layers shown; --layer for others, --head for single heads"]
        texts = {"text": Summaries.of(sources, targets, facts_of)}
        texts |= {} if references is None else {"reference": Summaries.of(sources, references, facts_of)}
        titled = {
            f"{coverage_map}, {name}": values for coverage_map in maps for name, values in coverage_map.maps.items()
        }
        panels = [Panel(title, rows, columns, values, ROWS) for title, values in titled.items()]
        copies = copy_map(trained, source, target)
        if copies is not None:
            panels.append(Panel("copied", rows, columns, copies.copied, ROWS))
        scale = scale_of([panel.values for panel in panels], LABEL)
        title = f"Coverage, {run_and_step(trained.folder, self.step)}"
        sample = {"source": sources[first], "target": targets[first], "source_tokens": columns, "target_tokens": rows}
        copied = {} if copies is None else {"copies": copies.to_json()}
        result = {"sample": {**sample, "maps": [*map(_record, maps)], **copied}, "notes": notes}
        return View(
            result | {f"{name}s": texts[name].to_json() if name in texts else None for name in ("text", "reference")},
            [*_figures(texts), *_maps(shown, rows, columns), *_copies(copies, rows, columns)],
            [f"note: {note}" for note in notes],
            PanelGrid(_in_lines(panels, len(maps[0].maps)), scale, title, notes=[*cut]),
            metrics=texts["text"].metrics(),
        )


def _in_lines(panels: Sequence[Panel], across: int) -> list[Panel]:
    """The maps of a layer side by side, or below each other if they are wide."""
    if len(panels[0].columns) > 2 * len(panels[0].rows):
        across = 1
    sides = "target token", "source token"
    return [replace(panel, line=n // across, sides=sides) for n, panel in enumerate(panels)]


def _figures(texts: dict[str, Summaries]) -> Iterator[Picture]:
    """Repetition and facts, a row for the texts and one for the references."""
    rows: list[list[str | float | None]] = [
        [name, summaries.texts, summaries.words, *summaries.repetition.values()] for name, summaries in texts.items()
    ]
    yield partial(table, ["", "texts", "words", *(f"{n}-grams" for n in NGRAM_SIZES)], rows)
    yield partial(sentence, REPETITION)
    facts = {name: summaries.facts for name, summaries in texts.items() if summaries.facts is not None}
    if facts:
        rows = [[name, counts.facts, *counts.shares.values()] for name, counts in facts.items()]
        yield partial(table, ["", "facts", *FactCounts().shares], rows)
        yield partial(sentence, FACTS)
    yield partial(sentence, "")


def _maps(maps: Sequence[CoverageMap], rows: Sequence[str], columns: Sequence[str]) -> Iterator[Picture]:
    """The maps, each kind on a scale of its own, and a table of the source tokens."""
    scales = {name: scale_of([coverage_map.maps[name] for coverage_map in maps], LABEL) for name in maps[0].maps}
    for coverage_map in maps:
        for name, values in coverage_map.maps.items():
            panel = Panel(f"{coverage_map}, {name}", rows, columns, values)
            yield partial(heat_map, panel, scales[name], max_rows=len(rows))
    yield partial(sentence, ROWS)
    yield _table(maps, columns)
    yield partial(sentence, LEGEND if maps[0].weights is None else DIMINISHED)


def _table(maps: Sequence[CoverageMap], tokens: Sequence[str]) -> Picture:
    """A row for each source token: what it has got over all target tokens."""
    columns = {
        f"{coverage_map} {name}": values.tolist()
        for coverage_map in maps
        for name, values in _totals(coverage_map).items()
    }
    rows = [[label(token), *values] for token, *values in zip(tokens, *columns.values(), strict=True)]
    return partial(table, ["source token", *columns], rows)


def _copies(copies: CopyMap | None, rows: Sequence[str], columns: Sequence[str]) -> Iterator[Picture]:
    """A row for each target token: whether it is copied, and from where."""
    if copies is None:
        return
    places = ["" if i is None else f"{label(columns[i])} {i}" for i in copies.best]
    shares = copies.copied_label / np.maximum(copies.label, np.finfo(float).tiny)
    figures = zip(rows, copies.p_gen.tolist(), copies.label.tolist(), shares.tolist(), places, strict=True)
    yield partial(sentence, "")
    headers = ["target token", "p_gen", "p", "copied", "from"]
    yield partial(table, headers, [[label(token), *figure] for token, *figure in figures])
    yield partial(sentence, COPIED)


def _totals(coverage_map: CoverageMap) -> dict[str, np.ndarray]:
    weights = {} if coverage_map.weights is None else {"weight": coverage_map.weights.sum(axis=0)}
    return {"coverage": coverage_map.coverage[-1]} | weights


def _record(coverage_map: CoverageMap) -> dict[str, Any]:
    weights = coverage_map.attention if coverage_map.weights is None else coverage_map.weights
    maps: dict[str, Any] = {name: values.tolist() for name, values in coverage_map.maps.items()}
    return {"layer": coverage_map.layer, "head": coverage_map.head, **maps, "row_sums": weights.sum(axis=1).tolist()}
