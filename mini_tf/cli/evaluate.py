"""`minitf evaluate`: how good a trained model is on its held-out text, or on another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mini_tf.cli.class_pictures import ClassPictures
from mini_tf.cli.figures import check_gates
from mini_tf.cli.terminal.console import Console, command
from mini_tf.cli.terminal.files import FORCE
from mini_tf.cli.terminal.options import AVERAGE, DEVICE, FIELDS, GATES, RUN, STEP
from mini_tf.recipe.gates import Gate, failures
from mini_tf.system.errors import GateMissed, UsageFault
from mini_tf.system.progress import show_progress

if TYPE_CHECKING:
    from mini_tf.data.store import Store
    from mini_tf.pipelines import Pipeline
    from mini_tf.trained.opening import Trained

CONFUSION = typer.Option("--confusion", metavar="FILE", help="Confusion matrix, true and predicted classes: .png, .svg or .json.")
CALIBRATION = typer.Option("--calibration", metavar="FILE", help="Calibration of the confidence: .png, .svg or .json.")


@command
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Another text, in any form that data.val takes.")] = None,
    fields: FIELDS = None,
    split: Annotated[Literal["val", "train"] | None, typer.Option("--split", help="Which side of the run's own text; default val.")] = None,
    confusion: Annotated[Path | None, CONFUSION] = None,
    calibration: Annotated[Path | None, CALIBRATION] = None,
    force: FORCE = False,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> int:
    """Loss, perplexity, bits per byte and accuracy, over every target of the text once.

    Of tasks their own figures: F1 and Matthews of classes, entity F1 of tags, correlations of numbers; ROUGE, BLEU and chrF of texts.
    """
    if data is not None and split == "train":
        raise UsageFault(f"--data {data} has no training side: all of it is judged", hint="give one of --data and --split")
    if data is None and fields is not None:
        raise UsageFault(f"--fields {fields}: the run knows the columns of its own data", hint="they are for another file: --data FILE")
    pictures, held_to = ClassPictures(confusion, calibration), [Gate.parse(gate) for gate in gates or []]
    pictures.check(force)

    from mini_tf.inspection.checkpoints import origin
    from mini_tf.pipelines import pipeline_of
    from mini_tf.scores import figures_of, left_out, packages_of
    from mini_tf.trained.evaluating import evaluate_trained, text_of
    from mini_tf.trained.opening import open_trained

    trained = open_trained(run, step, device, average)
    check_gates(held_to, "evaluate", trained.recipe, None if trained.labels is None else trained.labels.names)
    if lacking := left_out(*packages_of(trained.recipe.objective.pipeline(), figures_of(trained.recipe.objective))):
        console.say(lacking)
    pipeline = pipeline_of(trained)
    accumulator = pictures.accumulator(trained, pipeline.metric_accumulator())
    notes: list[str] = []
    store = text_of(trained, data, split or "val", console.detail, fields, notes.append)
    notes += _cut(trained, store)
    for note in notes:
        console.say(note)
    scores = evaluate_trained(trained, store, accumulator)
    told = {"split": "data" if data is not None else split or "val"}
    written, signatures = _written(trained, pipeline, store)
    scores |= written
    weights = origin(trained.folder, step) if average is None else f"run {trained.folder.name}, average {average}"
    title = f"{weights}, {told['split']}"
    result = pictures.write(console, trained, accumulator, title) | ({"notes": notes} if notes else {})
    metrics = {**scores, **told, **signatures}
    console.answer(_table(metrics), run=trained.folder, metrics=metrics, result=result or None)
    pictures.show(console, trained, accumulator, title)
    if missed := failures(held_to, scores):
        raise GateMissed(missed[0], faults=missed)
    return 0


def _cut(trained: "Trained", store: "Store") -> list[str]:
    """A note on the examples that the model does not read whole."""
    from mini_tf.training.evaluation import pack

    dataset, context = trained.recipe.objective.dataset(), trained.model.context
    n_cut = pack(trained.recipe, store, trained.tokenizer, trained.objective, context).n_longer if dataset.CUTS else 0
    told = f"of {store.n_documents:,} {dataset.UNIT} are longer than the model's context of {context} and are cut there"
    return [f"{n_cut:,} {told}"] if n_cut else []


def _written(trained: "Trained", pipeline: "Pipeline", store: "Store") -> tuple[dict[str, float], dict[str, str]]:
    """The figures of what the model writes, and by which rules they were made; nothing where it writes nothing that has references."""
    from mini_tf.scores import can_measure

    settings = trained.recipe.objective.pipeline()
    if settings is None or not can_measure(settings.WRITTEN):
        return {}, {}
    with show_progress(f"generating {store.n_documents:,} texts to score"):
        return pipeline.scores(pipeline.written(store)), pipeline.signatures()


def _table(metrics: dict[str, float | str]) -> str:
    """A figure a line; the names of classes come from data."""
    from mini_tf.drawing.labels import caption

    shown = {caption(name): value for name, value in metrics.items()}
    width = max(14, *map(len, shown))
    return "\n".join(
        f"{name:<{width}} {value:.6g}" if isinstance(value, float) else f"{name:<{width}} {value}" for name, value in shown.items()
    )
