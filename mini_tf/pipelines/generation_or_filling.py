"""Generation or filling: a decoder of GPT-BERT's kind fills each [MASK] of a prompt that has one, and continues others.

It scores texts in both ways, too: `evaluate --pairs F --score causal`, `word` or `token`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby

from mini_tf.data.tokenization.prompts import MASK
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.generation.mask_filling import MaskedBefore
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import GenerateOptions, ModelBundle, Output, option
from mini_tf.pipelines._continuation import Continuation, ContinuationSettings
from mini_tf.pipelines._generators import DecoderGenerator
from mini_tf.pipelines._mask_filling import FILLING_OPTIONS, MaskFillGenerator, MaskFilling, MaskFillingSettings
from mini_tf.system.errors import UsageFault


class Settings(ContinuationSettings):
    READS_MASKS = True
    TEXT_SCORES = ContinuationSettings.TEXT_SCORES | MaskFillingSettings.TEXT_SCORES
    BABYLM_BACKENDS = ContinuationSettings.BABYLM_BACKENDS | {"token": "mntp"}
    DESCRIPTION = "fills each [MASK] of a prompt, or continues a prompt without one"

    def build(self, bundle: ModelBundle) -> "GenerationOrFilling":
        return GenerationOrFilling(bundle)


class GenerationOrFilling(Continuation):
    def text_scorer(self, kind: str, group: ProcessGroup | None = None) -> TextScorer:
        if kind in MaskFillingSettings.TEXT_SCORES:
            return _Filling(self.bundle).text_scorer(kind, group)
        return super().text_scorer(kind, group)

    def generator(self, options: GenerateOptions) -> "EitherGenerator":  # type: ignore[override]
        return EitherGenerator(self.bundle, options)


class _Filling(MaskFilling):
    first_position = 1

    def token_predictor(self) -> MaskedBefore:  # type: ignore[override]
        return MaskedBefore(self.bundle.model)


class EitherGenerator:
    """Fills the masks of prompts that have some, and continues the others."""

    def __init__(self, bundle: ModelBundle, options: GenerateOptions) -> None:
        self.bundle, self.options, self._continued = bundle, options, DecoderGenerator(bundle, options)
        self.unread = self._continued.unread
        self.chunk_size, self.streams = self._continued.chunk_size, self._continued.streams

    @cached_property
    def _filled(self) -> MaskFillGenerator:
        """Made for the first mask, since it refuses options that suit a continuation, such as --top-k 0."""
        of_filling = {name: value for name, value in self.options.explicit.items() if name in FILLING_OPTIONS}
        filled = _Filling(self.bundle).generator(replace(self.options, explicit=of_filling))
        filled.unread = self.unread
        return filled

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        """The outputs of successive prompts of one sort together."""
        first = 0
        for has_mask, of_sort in groupby(prompts, key=lambda prompt: MASK in prompt):
            last = first + len([*of_sort])
            if has_mask and (others := sorted(self.options.explicit.keys() - FILLING_OPTIONS - {"seed", "stream"})):
                message = f"{option(others[0])}: the prompt has a {MASK}, which is filled, and not continued"
                raise UsageFault(message, hint="leave it out", where=[*places[first : first + 1]])
            generator = self._filled if has_mask else self._continued
            yield from generator.outputs(prompts[first:last], places[first:last])
            first = last
