"""What a view looks at: checkpoints of a run, texts with their targets, and pairs of data."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mini_tf.data.examples import Pair
from mini_tf.generation.translation import Translator
from mini_tf.inspection import PairViewSettings
from mini_tf.run import loading, manifest
from mini_tf.run.checkpoint import MODEL, Checkpoints
from mini_tf.system.errors import UsageFault
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import Trained


class WeightsId(NamedTuple):
    """Step after which weights were saved, and sha256 of their file."""

    step: int
    sha256: str


def weights_id(folder: Path, step: int | str | None) -> WeightsId:
    """The weights that `load_model` loads for this step. Raises RunFault if there are none."""
    published = manifest.read(folder).model
    if step is None and published is not None and (folder / MODEL).exists():
        return WeightsId(int(published["step"]), str(published["sha256"]))
    checkpoint = loading.find_checkpoint(folder, "best" if step is None else step)
    return WeightsId(checkpoint.step, checkpoint.sha256[MODEL])


def run_and_step(folder: Path, step: int | str | None) -> str:
    return f"run {folder.name}, step {weights_id(folder, step).step}"


def kept_steps(folder: Path) -> list[int]:
    """Steps of the kept checkpoints, newest first."""
    return Checkpoints.of(folder).steps()


def with_targets(trained: Trained, texts: Sequence[str], target: str | None) -> list[tuple[str, str | None]]:
    """Each text with its target: `target`, or the encoder-decoder's best translation; None for other models.

    UsageFault for a target without an encoder-decoder, or one target for several texts.
    """
    if not trained.model.needs_source:
        if target is not None:
            kind = trained.recipe.model.kind
            raise UsageFault(
                f"--target needs an encoder_decoder, but this model is of kind {kind}", hint="remove --target"
            )
        return [(text, None) for text in texts]
    if target is not None and len(texts) > 1:
        raise UsageFault(f"--target is one text for {len(texts)} sources", hint="give one source")
    if target is not None:
        return [(texts[0], target)]
    translator = Translator(trained.model, trained.tokenizer, trained.source_tokenizer, trained.recipe.generate)
    return [(text, best[0].text) for text, best in zip(texts, translator.translate(texts), strict=True)]


def no_cross_attention(trained: Trained, name: str) -> UsageFault:
    """The fault of a model without a source, or without attention to it. name: of the view."""
    without = f"{trained.folder.name} has no cross-attention to a source ({trained.recipe.model.kind})"
    hint = "train one: minitf pretrain transformer-nano"
    return UsageFault(f"{without}; {name} needs an encoder_decoder", hint=hint)


def pairs_of(trained: Trained, settings: PairViewSettings, name: str, say: Callable[[str], None]) -> list[Pair]:
    """SOURCE with --target or the model's own one; else the pairs of --data, or of the run's validation data.

    name: of the view, in messages. Raises UsageFault if the model has no source, or the pair no words, or the data are
    not pairs.
    """
    source, target = settings.source, settings.target
    if not trained.model.needs_source:
        raise no_cross_attention(trained, name)
    if source is None:
        dataset = trained.recipe.objective.dataset()
        if not dataset.SOURCE:
            objective = trained.recipe.objective.kind
            message = f"{trained.folder.name} has the objective {objective}, whose data are not pairs"
            raise UsageFault(message, hint="give a SOURCE")
        return list(dataset.examples(evaluation_data(trained, settings.data, "val")))
    if not source.split():
        raise UsageFault("SOURCE has no words")
    [(_, text)] = with_targets(trained, [source], target)
    assert text is not None
    if not text.split():
        message = "the model's translation is empty" if target is None else "--target has no words"
        raise UsageFault(message, hint="--target TEXT gives the translation")
    if target is None:
        say(f"target: {text}")
    return [Pair(source, text, "SOURCE")]
