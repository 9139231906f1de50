"""`minitf evaluate`: how good a trained model is on its held-out text, or on another."""

from typing import Annotated, Literal

import typer

from mini_tf.cli.console import Console, command
from mini_tf.cli.options import AVERAGE, DEVICE, GATES, RUN, STEP

FIGURES = ("loss", "perplexity", "bits_per_byte", "accuracy", "targets", "bleu", "chrf", "exact_match")
"""What --assert may hold a model to; bits per byte only where every token is asked for, the last three of translations."""


@command
def evaluate(
    console: Console,
    run: RUN,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="Another text, in any form that data.val takes.")] = None,
    split: Annotated[Literal["val", "train"] | None, typer.Option("--split", help="Which side of the run's own text; default val.")] = None,
    step: STEP = None,
    average: AVERAGE = None,
    device: DEVICE = "auto",
    gates: GATES = None,
) -> int:
    """Loss, perplexity, bits per byte and accuracy, over every target of the text once; of translations BLEU and chrF too."""
    from mini_tf.errors import GateMissed, UsageFault
    from mini_tf.evaluate import evaluate_trained, text_of
    from mini_tf.recipe.gates import Gate, failures
    from mini_tf.run.trained import open_trained
    from mini_tf.scores import require
    from mini_tf.scores.translation import signatures
    from mini_tf.text.pair_store import PairStore
    from mini_tf.text.pairing import Pairing
    from mini_tf.translations import judge, translate, translator_of

    if data is not None and split == "train":
        raise UsageFault(f"--data {data} has no training side: all of it is judged", hint="give one of --data and --split")
    held_to = [Gate.parse(gate) for gate in gates or []]
    if unknown := next((gate.metric for gate in held_to if gate.metric not in FIGURES), None):
        raise UsageFault(f"--assert {unknown}: evaluate measures no such figure; it does {', '.join(FIGURES)}")
    trained = open_trained(run, step, device, average)
    if trained.recipe.model.READS == "pairs":
        require("sacrebleu")
    store = text_of(trained, data, split or "val", console.detail)
    scores = evaluate_trained(trained, store)
    told: dict[str, str] = {"split": "data" if data is not None else split or "val"}
    if trained.recipe.model.READS == "pairs":
        assert isinstance(store, PairStore)
        if cut := Pairing(store, trained.model.context).n_cut:
            console.say(
                f"{cut:,} of {store.n_documents:,} pairs are longer than the model's context of {trained.model.context} and are cut there"
            )
        scores |= judge(translate(translator_of(trained), store.pairs()))
        told |= {f"{name}_signature": signature for name, signature in signatures().items()}
    metrics = {**scores, **told}
    lines = [f"{name:<14} {value:.6g}" if isinstance(value, float) else f"{name:<14} {value}" for name, value in metrics.items()]
    console.answer("\n".join(lines), run=trained.folder, metrics=metrics)
    if missed := failures(held_to, scores):
        raise GateMissed(missed[0], faults=missed)
    return 0
