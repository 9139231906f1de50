"""`minitf inspect coverage`: coverage of a source by cross-attention, repetition and facts of generated texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.inspect.options.heads import HEAD, LAYER, joined
from mini_tf.cli.inspect.options.output import show
from mini_tf.cli.inspect.options.pairs import SOURCE, check_pair, pairs_of
from mini_tf.cli.inspect.options.texts import TARGET, with_targets
from mini_tf.cli.terminal import files
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE, OUTPUT
from mini_tf.cli.terminal.options import DEVICE, INPUT_OUTPUT, RUN, STEP
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.trained.opening import Trained

N_PAIRS = 100
DATA = typer.Option(
    "--data", metavar="DATA", help="Generate for the pairs of this file or corpus.", rich_help_panel=INPUT_OUTPUT
)
LIMIT = typer.Option(
    "--limit",
    metavar="N",
    min=1,
    help="Only the first N pairs.",
    show_default=str(N_PAIRS),
    rich_help_panel=INPUT_OUTPUT,
)


@command
def coverage(
    console: Console,
    run: RUN,
    source: SOURCE = None,
    target: TARGET = None,
    data: Annotated[str | None, DATA] = None,
    layer: LAYER = None,
    head: HEAD = None,
    limit: Annotated[int | None, LIMIT] = None,
    output: OUTPUT = None,
    force: FORCE = False,
    step: STEP = None,
    device: DEVICE = "auto",
) -> None:
    """Show how much attention each source token has had, and what the generated texts repeat and omit.

    Maps of cross-attention, of its sum over the target tokens (coverage) and, with diminishing attention, of the
    weights: of SOURCE with the generated text or --target, or of the first validation pair. Repetition: the share of
    n-grams that occur earlier in the text. Facts, on the corpus world-facts: how many are said, said twice, invented.
    """
    check_pair(source, target, data)
    if source is not None and limit is not None:
        raise UsageFault(f"--limit {limit}: SOURCE is one text", hint="leave out --limit, or give --data")
    named = files.check(output, (".png", ".svg", ".json"), force)

    from mini_tf.inspection.coverage.maps import check_selection
    from mini_tf.inspection.coverage.summaries import facts_reader
    from mini_tf.inspection.coverage.view import view
    from mini_tf.inspection.head_selection import HeadSelection
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device)
    facts, selection = facts_reader(trained, data), HeadSelection(None, joined(layer), joined(head))
    check_selection(trained, selection)  # before texts are generated
    pairs = pairs_of(console, trained, source, target, data, "coverage")[: limit or N_PAIRS]
    sources, references = ([getattr(pair, name) for pair in pairs] for name in ("source", "target"))
    targets = references if source is not None else _generated(trained, sources)
    found = view(trained, sources, targets, None if source is not None else references, selection, facts, step)
    show(console, found, named, trained.folder)


def _generated(trained: "Trained", sources: Sequence[str]) -> list[str]:
    return [target for _, target in with_targets(trained, sources, None) if target is not None]
