"""`minitf inspect attention`, also `minitf inspect-attention`: attention weights."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mini_tf.cli.inspect.options.heads import HEAD, HEADS, LAYER, joined
from mini_tf.cli.inspect.options.texts import INPUT, TARGET, TEXTS, given_texts, with_targets
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.options import DEVICE, MODEL, RUN
from mini_tf.cli.terminal.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.inspection.maps.attention import Sample
    from mini_tf.trained.opening import Trained

PICTURES = (".png", ".svg")
SUFFIXES = (*PICTURES, ".json", ".safetensors")

KIND = typer.Option("--kind", metavar="KIND", help="Only encoder.self, decoder.self or cross.", rich_help_panel=HEADS)
WORDS = typer.Option("--words", help="By words: weights to the tokens of a word are summed, from them averaged.")
QUERY = typer.Option("--query", metavar="WORD", help="Only the weights of this query: a word, or a token index from 0.")
DESCRIBE = typer.Option("--describe", help="Print sentences instead of maps.")
FULL = typer.Option("--full", help="Include the weight matrices in JSON.")
ANY_STEP = typer.Option(
    "--step",
    metavar="N|best|last|all",
    help="Which checkpoint; all: every kept one.",
    show_default="best",
    rich_help_panel=MODEL,
)


@command
def attention(
    console: Console,
    run: RUN,
    texts: TEXTS = None,
    input: INPUT = None,
    target: TARGET = None,
    kind: Annotated[str | None, KIND] = None,
    layer: LAYER = None,
    head: HEAD = None,
    words: Annotated[bool, WORDS] = False,
    query: Annotated[str | None, QUERY] = None,
    describe: Annotated[bool, DESCRIBE] = False,
    full: Annotated[bool, FULL] = False,
    output: OUTPUT = None,
    force: FORCE = False,
    step: Annotated[str | None, ANY_STEP] = None,
    device: DEVICE = "auto",
) -> None:
    """Show the attention weights of all heads, and what each head does.

    Prints the role of every head, measured on repeated random tokens, and the maps of the most structured ones; with -o
    writes files only. FILE: a picture (.png, .svg), numbers (.json) or weight matrices (.safetensors).
    Encoder-decoder: TEXT is the source; --query is a word of the target, or of the source with --kind encoder.self.
    """
    _refuse_texts(query, target, kind)
    given = given_texts(texts, input)
    named = files.check(output, SUFFIXES, force)
    suffixes = {file.suffix.lower() for file in named}
    _refuse_files(suffixes, several=len(given) > 1 or step == "all", full=full and not console.json)

    from mini_tf.inspection.head_selection import HeadSelection
    from mini_tf.inspection.maps.as_json import to_json
    from mini_tf.inspection.maps.attention import AttentionRequest, analyze_checkpoints, analyze_texts
    from mini_tf.inspection.maps.panels import pictures, pictures_of_steps
    from mini_tf.trained.opening import open_trained

    choice = HeadSelection(kind, joined(layer), joined(head))
    request, chosen = AttentionRequest(choice, words, query), choice != HeadSelection()
    trained = open_trained(run, None if step == "all" else step, device)
    by_table = step == "all" and not describe and query is None
    pairs = with_targets(trained, given, target)
    samples, entries, later = [], [], []
    analyze = analyze_checkpoints if step == "all" else analyze_texts
    for sample in analyze(trained, pairs, request):
        if describe or not (named or by_table):  # beside files only the sentences, which have an option of their own
            for picture in pictures(sample, len(given) > 1, describe, chosen):
                later.append(picture) if named else console.show(picture)
        entries.append(to_json(sample, full, describe))
        samples.append(sample if suffixes - {".json"} else sample.without_weights())
    result = {
        "samples": entries,
        "notes": _notes(samples, len(given)),
        "difference": max(sample.difference for sample in samples),
    }
    _print_notes(console, result)
    if suffixes & {*PICTURES}:
        _warn_missing_glyphs(console, [unit for text in samples[0].texts.all for unit in text.units])
    files.write_all(console, named, result, lambda suffix: _file(suffix, samples, trained, step))
    for picture in later if named or not by_table else pictures_of_steps(samples, given):
        console.show(picture)
    console.output(run=trained.folder, result=result)


def _refuse_texts(query: str | None, target: str | None, kind: str | None) -> None:
    refuse_non_utf8([kind or ""], "--kind")
    refuse_non_utf8([query or ""], "--query")
    refuse_non_utf8([target or ""], "--target")
    if query == "":
        raise UsageFault("--query is empty", hint="give a word of the text or a token index")


def _refuse_files(suffixes: set[str], several: bool, full: bool) -> None:
    if suffixes & {*PICTURES} and several:
        raise UsageFault(
            "a picture shows one text at one checkpoint", hint="give one TEXT and --step N, or -o FILE.json"
        )
    if full and not suffixes & {".json", ".safetensors"}:
        raise UsageFault("--full needs JSON output", hint="add --json or -o FILE.json")


def _notes(samples: "list[Sample]", several: int) -> list[str]:
    """Notes on the texts, each once; `several`: number of texts, whose samples alternate."""
    notes = [(number, note) for number, sample in enumerate(samples) for note in sample.notes]
    return list(
        dict.fromkeys(f"text {1 + number % several}: {note}" if several > 1 else note for number, note in notes)
    )


def _print_notes(console: Console, result: dict[str, Any]) -> None:
    for note in result["notes"]:
        console.say(f"note: {note}")
    console.detail(f"largest difference of logits, explicit against fused attention: {result['difference']:.1e}")


def _warn_missing_glyphs(console: Console, units: list[str]) -> None:
    from mini_tf.drawing.glyphs import missing_glyphs

    if missing := missing_glyphs(units):
        console.say(
            f"note: the font has no glyphs for {' '.join(missing[:10])}{' ...' if len(missing) > 10 else ''}; code"
            " points are shown"
        )


def _file(suffix: str, samples: "list[Sample]", trained: "Trained", step: str | None) -> bytes:
    from mini_tf.drawing.files import draw
    from mini_tf.inspection.checkpoints import run_and_step
    from mini_tf.inspection.maps.plots import plot
    from mini_tf.inspection.maps.tensors import pack

    return (
        pack(samples, trained, step)
        if suffix == "safetensors"
        else draw(plot(samples[0], run_and_step(trained.folder, step)), suffix)
    )
