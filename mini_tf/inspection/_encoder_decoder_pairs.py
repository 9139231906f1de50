"""The pairs of a view of an encoder-decoder: texts with their targets, or the pairs of data."""

from collections.abc import Callable, Sequence

from mini_tf.data.examples import Pair
from mini_tf.generation.translation import Translator
from mini_tf.inspection import PairViewSettings
from mini_tf.system.errors import UsageFault
from mini_tf.trained.evaluating import evaluation_data
from mini_tf.trained.opening import Trained


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


def pairs_of(trained: Trained, settings: PairViewSettings, name: str, say: Callable[[str], None]) -> list[Pair]:
    """SOURCE with --target or the model's own one; else the pairs of --data, or of the run's validation data.

    name: of the view, in messages. Raises UsageFault if the model has no source, or the pair no words, or the data are
    not pairs.
    """
    source, target = settings.source, settings.target
    if not trained.model.needs_source:
        message = (
            f"{trained.folder.name} has no cross-attention to a source ({trained.recipe.model.kind}); {name} needs an"
            " encoder_decoder"
        )
        raise UsageFault(message, hint="train one: minitf pretrain transformer-nano")
    if source is None:
        dataset = trained.recipe.objective.dataset()
        if not dataset.SOURCE:
            message = (
                f"{trained.folder.name} has the objective {trained.recipe.objective.kind}, whose data are not pairs"
            )
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
