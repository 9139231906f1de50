"""`minitf inspect word`: one word in several sentences."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT, check, write_all
from mini_tf.cli.terminal.lines import lines_of, one_source, refuse_broken
from mini_tf.cli.terminal.options import DEVICE, RUN, STEP
from mini_tf.system.errors import DataFault, UsageFault

if TYPE_CHECKING:
    from mini_tf.data.tokenization.tokenizer import Tokenizer
    from mini_tf.drawing.panel import Panel, Scale
    from mini_tf.inspection.sentences import Sentence
    from mini_tf.inspection.word import Layer, Occurrence

SUFFIXES = (".png", ".svg", ".json")
MOST_SENTENCES = 500
MOST_PANELS = 4
INPUT = Annotated[
    Path | None,
    typer.Option("-i", "--input", metavar="FILE", help="Sentences by line; or .jsonl with text and, if wanted, word and sense."),
]


@command
def word(
    console: Console,
    run: RUN,
    word: Annotated[str, typer.Argument(metavar="WORD", help="A whole word, case as in the texts.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT ...]", help="Two or more sentences that hold it.")] = None,
    input: INPUT = None,
    layer: Annotated[
        int | None, typer.Option("--layer", metavar="N", help="Draw this layer's pairs alone: 0 is the embedding, -1 the last.")
    ] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """How alike a word's vectors are in several sentences, after each layer, beyond what any two words are.

    Of an encoder-decoder it is the encoder that reads the sentences.
    """
    from mini_tf.inspection.framing import framed_whole, reads_pairs
    from mini_tf.inspection.word import locate, study
    from mini_tf.trained.opening import open_trained

    files = check(output, SUFFIXES, force)
    if not texts and input is None and not sys.stdin.isatty():
        input = Path("-")
    sentences = _sentences(word, texts, input)
    trained = open_trained(run, step, device)
    tokenizer = trained.source_tokenizer if reads_pairs(trained) else trained.tokenizer
    fault = UsageFault if input is None else DataFault
    found = [locate(lambda text: framed_whole(trained, text), trained.model.context, word, sentence, fault) for sentence in sentences]
    layers = study(trained.model, sentences, found, as_source=reads_pairs(trained))
    if layer is not None and not -len(layers) <= layer < len(layers):
        raise UsageFault(f"--layer {layer}: must be 0 (the embedding) to {len(layers) - 1}, or from the end -1 to {-len(layers)}")
    result = {
        "word": word,
        "texts": [_record(tokenizer, *pair) for pair in zip(sentences, found, strict=True)],
        "layers": [_numbers(one) | {"pairs": one.cosines.tolist()} for one in layers],
        "notes": _notes(tokenizer, layers, sentences, found),
    }
    write_all(console, files, result, lambda suffix: _picture(word, sentences, layers, layer, suffix))
    _draw(console, word, sentences, layers, layers[-1 if layer is None else layer])
    for note in result["notes"]:
        console.say(str(note))
    console.answer(run=trained.folder, result=result)


def _sentences(word: str, texts: list[str] | None, input: Path | None) -> "list[Sentence]":
    from mini_tf.inspection.sentences import Sentence, read

    refuse_broken([word], "WORD")
    refuse_broken(texts or [], "a text")
    if not word.strip():
        raise UsageFault("WORD is empty")
    one_source(texts, input)
    name = "stdin" if input == Path("-") else str(input)
    if input is not None:
        found = list(read(lines_of(input), name, word))
    else:
        found = [Sentence(text, f"text {number}") for number, text in enumerate(texts or [], 1)]
    if not 2 <= len(found) <= MOST_SENTENCES:
        where = "" if input is None else f" of {word!r} in {name}"
        hint = "give texts, or a file of sentences such as the project's data/senses.jsonl: -i FILE"
        raise UsageFault(f"2 to {MOST_SENTENCES} sentences{where} are compared, not {len(found)}", hint=hint)
    return found


def _record(tokenizer: "Tokenizer", sentence: "Sentence", found: "Occurrence") -> dict[str, Any]:
    pieces = tokenizer.pieces([found.given.ids[i] for i in found.tokens])
    record = {"text": sentence.text, "sense": sentence.sense, "characters": list(found.span)}
    return record | {"tokens": found.tokens, "pieces": pieces, "n_tokens": len(found.given.ids), "n_cut": found.given.n_cut}


def _numbers(layer: "Layer") -> dict[str, Any]:
    return {
        "layer": layer.number,
        "cosine": layer.cosine,
        "baseline": layer.baseline,
        "corrected": layer.corrected,
        "separation": layer.separation,
    }


def _notes(tokenizer: "Tokenizer", layers: "list[Layer]", sentences: "list[Sentence]", found: "list[Occurrence]") -> list[str]:
    notes = [f"{sentence.where}: {one.given.note}" for sentence, one in zip(sentences, found, strict=True) if one.given.note]
    ways = {tuple(tokenizer.pieces([one.given.ids[i] for i in one.tokens])) for one in found}
    if len(ways) > 1:
        said = ", ".join(" ".join(map(repr, way)) for way in sorted(ways)[:4])
        notes.append(f"the word is not cut into the same pieces everywhere, so it differs before the first layer: {said}")
    if layers[0].baseline != layers[0].baseline:
        notes.append("no baseline: the sentences hold no two different words to compare")
    return notes


def _draw(console: Console, word: str, sentences: "list[Sentence]", layers: "list[Layer]", chosen: "Layer") -> None:
    from rich.text import Text

    from mini_tf.drawing import terminal
    from mini_tf.drawing.labels import caption

    colored, width = console.colored, console.width
    for number, sentence in enumerate(sentences, 1):
        sense = "" if sentence.sense is None else f"{sentence.sense}: "
        console.picture(Text(caption(f"{number:>3}  {sense}{sentence.text}", width)))
    headers = ["layer", "cosine", "baseline", "corrected"]
    rows: list[list[str | float | None]] = [
        [f"{one.number}" + " (embedding)" * (one.number == 0), one.cosine, one.baseline, one.corrected] for one in layers
    ]
    if any(one.separation is not None for one in layers):
        headers, rows = [*headers, "separation"], [[*row, one.separation] for row, one in zip(rows, layers, strict=True)]
    console.picture(Text(""))
    console.picture(terminal.table(headers, rows, colored=colored, width=width))
    console.picture(Text(""))
    panel = _panel(word, sentences, chosen)
    console.picture(terminal.heat_map(panel, _scale([panel]), colored=colored, width=width, values=True))


def _panel(word: str, sentences: "list[Sentence]", layer: "Layer") -> "Panel":
    """The corrected cosines; the diagonal is left blank, where a sentence would meet itself."""
    import numpy as np

    from mini_tf.drawing.panel import Panel

    values = layer.cosines.numpy() - np.nan_to_num(layer.baseline)
    names = [f"{number} {sentence.text if sentence.sense is None else sentence.sense}" for number, sentence in enumerate(sentences, 1)]
    numbers = [str(number) for number in range(1, len(names) + 1)]
    return Panel(f"{word}: layer {layer.number}", names, numbers, np.where(np.eye(len(names), dtype=bool), np.nan, values), tokens=False)


def _scale(panels: "list[Panel]") -> "Scale":
    import numpy as np

    from mini_tf.drawing.panel import Scale

    low, high = min(float(np.nanmin(panel.values)) for panel in panels), max(float(np.nanmax(panel.values)) for panel in panels)
    return Scale(low, high, label="cosine - baseline")


def _picture(word: str, sentences: "list[Sentence]", layers: "list[Layer]", asked: int | None, suffix: str) -> bytes:
    """The layer that was asked for, or a panel a layer; of many layers the first, the last and one or two evenly between."""
    from mini_tf.drawing.heat_maps import draw_panels

    n, last = min(len(layers), MOST_PANELS), len(layers) - 1
    chosen = [layers[asked]] if asked is not None else [layers[round(i * last / max(1, n - 1))] for i in range(n)]
    panels = [_panel(word, sentences, layer) for layer in chosen]
    title = f"{word} in {len(sentences)} sentences"
    if asked is None and len(chosen) < len(layers):
        title += f", layers {', '.join(str(layer.number) for layer in chosen)} of 0-{last}"
    return draw_panels(panels, _scale(panels), title, suffix)
