"""Contextual embeddings of one word in several sentences: cosine similarity per layer, corrected for anisotropy.

A word's vector is the mean over its tokens. From cosine similarities the baseline is subtracted: the mean over all
pairs of different words in different sentences. Source: Ethayarajh 2019, arXiv:1909.00512, sections 3.3 and 4.1.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.drawing import terminal
from mini_tf.drawing.panel import Panel, PanelGrid, Scale
from mini_tf.inspection import COMMON, INPUT_OUTPUT, PICTURES, ModelViewSettings, View, ViewOutput, option
from mini_tf.inspection._occurrences import (
    LayerSimilarity,
    Occurrence,
    Sentence,
    compare_occurrences,
    find_occurrence,
    read,
)
from mini_tf.inspection._subjects import run_and_step
from mini_tf.inspection._texts import untruncated_input
from mini_tf.inspection._word_vectors import WordVectors, analogy_view, neighbors_view, read_pairs, similarity_view
from mini_tf.recipe.text_input import one_source, read_lines, refuse_non_utf8
from mini_tf.system.errors import DataFault, UsageFault
from mini_tf.trained.opening import Trained

MOST_SENTENCES = 500
DEFAULT_TOKENS = 10


MAX_PANELS = 4
METRICS = ("cosine", "baseline", "corrected", "separation")
"""Metrics of a layer, in JSON and in the table."""
LEGEND = (
    "Mean cosine similarities. cosine: between sentences; baseline: of different words; corrected: cosine - baseline"
)
SEPARATION_LEGEND = "; separation: within senses - between senses"


class Settings(ModelViewSettings):
    """Compare the contextual embeddings of a word in several sentences, layer by layer.

    Prints cosine similarities minus the mean similarity of any two words, and, if senses are given, the difference
    between similarities within and between senses. The first occurrence in each sentence counts. Encoder-decoder: the
    encoder is used. With --neighbors, --analogy or --similarity the token embedding is shown, without sentences.
    """

    PANEL = COMMON
    ALIASES = (
        "words",
        "hidden-states",
        "neighbors",
        "representations",
        "similarity",
    )
    EXAMPLES = (
        "minitf inspect word last file -i sentences.txt",
        "minitf inspect word last file --neighbors 10",
        "minitf inspect word last --similarity simlex999.txt",
    )
    FILES = (*PICTURES, ".html", ".json")

    word: str | None = option(None, metavar="[WORD]")
    """A word, in the case of the texts."""
    texts: tuple[str, ...] = option((), metavar="[TEXT ...]")
    """Two or more sentences with the word."""
    input: Path | None = option(None, "-i", "--input", metavar="FILE", panel=INPUT_OUTPUT)
    """Read sentences from lines, or .jsonl with text, and optionally word and sense."""
    layer: int | None = option(None, "--layer", metavar="N")
    """Show the pairs of this layer: 0 is the embedding, -1 the last."""
    neighbors: int | None = option(None, "--neighbors", "--neighbours", metavar="N", panel="Word vectors", ge=1)
    """Show the N tokens with the nearest embeddings."""
    analogy: str | None = option(None, "--analogy", metavar="'A B C'", panel="Word vectors")
    """A is to B as C is to ?: the tokens nearest to B - A + C."""
    similarity: Path | None = option(None, "--similarity", metavar="FILE", panel="Word vectors")
    """Correlate with human similarity: lines of two words and a number, divided by tabs or commas."""

    def check(self, output: ViewOutput) -> None:
        is_given_by = {"--analogy": self.analogy is not None, "--similarity": self.similarity is not None}
        options = [name for name, is_given in is_given_by.items() if is_given]
        if self.neighbors is not None and self.analogy is None:
            options.insert(0, "--neighbors")
        if not options:
            if self.word is None:
                raise UsageFault("WORD is missing", hint="or give --analogy 'A B C' or --similarity FILE")
            refuse_non_utf8([self.word], "WORD")
            refuse_non_utf8(self.texts, "a text")
            if not self.word.strip():
                raise UsageFault("WORD is empty")
            one_source(self.texts, self.input)
            return
        if len(options) > 1:
            raise UsageFault(f"{' and '.join(options)} exclude each other", hint="give one of them")
        if self.texts or self.input is not None:
            raise UsageFault(f"{options[0]} compares token embeddings without sentences", hint="remove the sentences")
        if (self.word is None) == (options[0] == "--neighbors"):
            raise UsageFault(f"{options[0]} {'needs' if self.word is None else 'takes no'} WORD")
        refuse_non_utf8([self.word or "", self.analogy or ""], "a word")
        if pictures := [file for file in output.files if file.suffix.lower() != ".json"]:
            raise UsageFault(f"--output {pictures[0]}: its suffix must be .json")

    @property
    def sentences_file(self) -> Path | None:
        """The file of the sentences; stdin if there are no arguments and it is no terminal."""
        is_piped = not self.texts and self.input is None and not sys.stdin.isatty()
        return Path("-") if is_piped else self.input

    def view(self, trained: Trained, output: ViewOutput) -> View:
        if self.similarity is not None:
            name = "stdin" if self.similarity == Path("-") else str(self.similarity)
            pairs = read_pairs(list(read_lines(self.similarity)), name)
            return similarity_view(WordVectors.of(trained), pairs, name)
        if self.analogy is not None:
            return analogy_view(WordVectors.of(trained), self.analogy.split(), self.neighbors or DEFAULT_TOKENS)
        if self.neighbors is not None:
            return neighbors_view(WordVectors.of(trained), str(self.word), self.neighbors)
        return self._contextual(trained)

    def _contextual(self, trained: Trained) -> View:
        """The word in two or more sentences, by layer."""
        word, layer = self.word, self.layer
        assert word is not None
        file = self.sentences_file
        sentences = _sentences(word, self.texts, file)
        fault = UsageFault if file is None else DataFault
        as_source = trained.model.needs_source
        tokenizer = trained.source_tokenizer if as_source else trained.tokenizer
        occurrences = [
            find_occurrence(partial(untruncated_input, trained), trained.model.context, word, sentence, fault)
            for sentence in sentences
        ]
        layers = compare_occurrences(trained.model, sentences, occurrences, as_source)
        if layer is not None and not -len(layers) <= layer < len(layers):
            raise UsageFault(
                f"--layer {layer}: must be 0 (the embedding) to {len(layers) - 1}, or -1 to {-len(layers)} from the end"
            )
        notes = _notes(tokenizer, word, layers, sentences, occurrences)
        result = {
            "word": word,
            "texts": [_record(tokenizer, *pair) for pair in zip(sentences, occurrences, strict=True)],
            "layers": [
                {"layer": similarity.number}
                | {name: getattr(similarity, name) for name in METRICS}
                | {"pairs": similarity.cosines.tolist()}
                for similarity in layers
            ],
            "notes": notes,
        }
        numbered = [
            f"{n:>3}  {'' if sentence.sense is None else f'{sentence.sense}: '}{sentence.text}"
            for n, sentence in enumerate(sentences, 1)
        ]
        separated = any(similarity.separation is not None for similarity in layers)
        columns, legend = (METRICS, LEGEND + SEPARATION_LEGEND) if separated else (METRICS[:-1], LEGEND)
        rows = [
            [
                f"{similarity.number}{' (embedding)' * (similarity.number == 0)}",
                *(getattr(similarity, name) for name in columns),
            ]
            for similarity in layers
        ]
        panel, gap = _panel(word, sentences, layers[-1 if layer is None else layer]), partial(terminal.sentence, "")
        metrics = [partial(terminal.table, ["layer", *columns], rows), partial(terminal.sentence, f"{legend}.")]
        heat_map = partial(terminal.heat_map, panel, _scale([panel]), values=True)
        pictures = [*(partial(terminal.line, text) for text in numbered), gap, *metrics, gap, heat_map]
        figure = _figure(word, sentences, layers, layer)
        return View(
            result,
            pictures,
            notes,
            replace(figure, title=f"{figure.title}, {run_and_step(trained.folder, self.step)}", notes=notes),
        )


def _sentences(word: str, texts: Sequence[str], input: Path | None) -> list[Sentence]:
    """The sentences of the arguments or the file."""
    name = "stdin" if input == Path("-") else str(input)
    if input is not None:
        sentences = list(read(read_lines(input), name, word))
    else:
        sentences = [Sentence(text, f"text {number}") for number, text in enumerate(texts, 1)]
    if not 2 <= len(sentences) <= MOST_SENTENCES:
        where = "" if input is None else f" of {word!r} in {name}"
        hint = "give texts, or -i FILE with sentences, such as data/senses.jsonl"
        raise UsageFault(f"2 to {MOST_SENTENCES} sentences{where} can be compared, got {len(sentences)}", hint=hint)
    return sentences


def _record(tokenizer: Tokenizer, sentence: Sentence, occurrence: Occurrence) -> dict[str, Any]:
    return {
        "text": sentence.text,
        "sense": sentence.sense,
        "characters": list(occurrence.span),
        "occurrences": occurrence.n_occurrences,
        "tokens": occurrence.tokens,
        "pieces": tokenizer.pieces([occurrence.input.ids[i] for i in occurrence.tokens]),
        "n_tokens": len(occurrence.input.ids),
        "n_cut": occurrence.input.n_cut,
    }


def _notes(
    tokenizer: Tokenizer,
    word: str,
    layers: Sequence[LayerSimilarity],
    sentences: Sequence[Sentence],
    occurrences: Sequence[Occurrence],
) -> list[str]:
    notes = []
    for sentence, occurrence in zip(sentences, occurrences, strict=True):
        if occurrence.n_occurrences > 1:
            first = f"the first, at characters {occurrence.span[0]} to {occurrence.span[1] - 1}, is compared"
            notes.append(f"{sentence.where}: {word!r} occurs {occurrence.n_occurrences} times; {first}")
    cut = zip(sentences, occurrences, strict=True)
    notes += [f"{sentence.where}: {occurrence.input.note}" for sentence, occurrence in cut if occurrence.input.note]
    ways = {tuple(tokenizer.pieces([occurrence.input.ids[i] for i in occurrence.tokens])) for occurrence in occurrences}
    if len(ways) > 1:
        examples = ", ".join(" ".join(map(repr, way)) for way in sorted(ways)[:4])
        notes.append(f"the word is tokenized in {len(ways)} ways, so its vectors differ already at layer 0: {examples}")
    if layers[0].baseline != layers[0].baseline:
        notes.append("no baseline: no pair of different words in different sentences")
    return notes


def _panel(word: str, sentences: Sequence[Sentence], layer: LayerSimilarity) -> Panel:
    """Corrected cosine similarities between sentences; the diagonal is blank."""
    values = layer.cosines.numpy() - np.nan_to_num(layer.baseline)
    numbers = [str(number) for number in range(1, len(sentences) + 1)]
    senses = [sentence.text if sentence.sense is None else sentence.sense for sentence in sentences]
    names = [f"{number} {sense}" for number, sense in zip(numbers, senses, strict=True)]
    blank = np.where(np.eye(len(names), dtype=bool), np.nan, values)
    return Panel(f"{word}: layer {layer.number}", names, numbers, blank, tokens=False)


def _scale(panels: Sequence[Panel]) -> Scale:
    values = np.stack([panel.values for panel in panels])
    return Scale(float(np.nanmin(values)), float(np.nanmax(values)), label="cosine similarity - baseline")


def _figure(
    word: str, sentences: Sequence[Sentence], layers: Sequence[LayerSimilarity], layer: int | None
) -> PanelGrid:
    """A panel for the given layer, else for up to MAX_PANELS evenly spaced layers."""
    n, last = min(len(layers), MAX_PANELS), len(layers) - 1
    selected = [layers[layer]] if layer is not None else [layers[round(i * last / max(1, n - 1))] for i in range(n)]
    panels = [_panel(word, sentences, similarity) for similarity in selected]
    title = f"{word} in {len(sentences)} sentences"
    if layer is None and len(selected) < len(layers):
        title += f", layers {', '.join(str(similarity.number) for similarity in selected)} of 0-{last}"
    return PanelGrid(panels, _scale(panels), title)
