"""The pairs of a view: a source with a target, or those of the validation data or a file."""

from typing import TYPE_CHECKING, Annotated

import typer

from mini_tf.cli.inspect.options.texts import with_targets
from mini_tf.cli.terminal.console import Console
from mini_tf.cli.terminal.text_input import refuse_non_utf8
from mini_tf.system.errors import UsageFault

if TYPE_CHECKING:
    from mini_tf.data.examples import Pair
    from mini_tf.trained.opening import Trained

SOURCE = Annotated[
    str | None, typer.Argument(metavar="[SOURCE]", help="A source text.", show_default="the run's validation pairs")
]


def check_pair(source: str | None, target: str | None, data: str | None) -> None:
    """UsageFault for options that contradict each other."""
    refuse_non_utf8([source or "", target or ""])
    if source is None and target is not None:
        raise UsageFault("--target needs a SOURCE", hint="give the source text")
    if source is not None and data is not None:
        raise UsageFault(f"both SOURCE and --data {data} were given", hint="give one of them")


def pairs_of(
    console: Console, trained: "Trained", source: str | None, target: str | None, data: str | None, view: str
) -> "list[Pair]":
    """SOURCE with --target or the model's own one; else the pairs of --data, or of the run's validation data.

    view: in messages. Raises UsageFault if the model has no source, or the pair no words, or the data are not pairs.
    """
    from mini_tf.data.examples import Pair
    from mini_tf.trained.evaluating import evaluation_data

    if not trained.model.needs_source:
        what = (
            f"{trained.folder.name} has no cross-attention to a source ({trained.recipe.model.kind}); {view} needs an"
            " encoder_decoder"
        )
        raise UsageFault(what, hint="train one: minitf pretrain transformer-nano")
    if source is None:
        dataset = trained.recipe.objective.dataset()
        if not dataset.SOURCE:
            what = f"{trained.folder.name} has the objective {trained.recipe.objective.kind}, whose data are not pairs"
            raise UsageFault(what, hint="give a SOURCE")
        return list(dataset.examples(evaluation_data(trained, data, "val")))
    if not source.split():
        raise UsageFault("SOURCE has no words")
    [(text, own)] = with_targets(trained, [source], target)
    assert own is not None
    if not own.split():
        what = "the model's translation is empty" if target is None else "--target has no words"
        raise UsageFault(what, hint="--target TEXT gives the translation")
    if target is None:
        console.say(f"target: {own}")
    return [Pair(text, own, "SOURCE")]
