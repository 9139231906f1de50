"""Mask filling: the tokens predicted at each [MASK], ranked by probability. For pipelines of encoders."""

import json
from collections.abc import Iterator, Sequence

from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.generation.likelihoods import TextScorer
from mini_tf.generation.mask_filling import Candidate, MaskFiller
from mini_tf.nn.model import Model
from mini_tf.parallel.group import ProcessGroup
from mini_tf.pipelines import (
    BATCH_SIZE,
    GenerateOptions,
    ModelBundle,
    Output,
    Pipeline,
    PipelineSettings,
    notes_entry,
    one_line,
)
from mini_tf.pipelines._generators import outputs_before_fault
from mini_tf.recipe.kind_settings.pipelines import GENERATE_OPTIONS, UNSUPPORTED_BEAM_OPTIONS
from mini_tf.system.errors import UsageFault
from mini_tf.trained.framing import text_affixes

TOP_K = 5
"""Default number of candidates per mask."""
FILLING_OPTIONS = frozenset({"top_k", "batch_size"})
"""Options of `generate` for masks."""


class MaskFillingSettings(PipelineSettings):
    COMMAND, FRAMING = "generate", "masked"
    UNSUPPORTED_OPTIONS = UNSUPPORTED_BEAM_OPTIONS | dict.fromkeys(
        GENERATE_OPTIONS - UNSUPPORTED_BEAM_OPTIONS.keys() - FILLING_OPTIONS,
        "{run} is an encoder, which fills [MASK] and does not continue text",
    )
    DEFAULT_OPTIONS = {"top_k": TOP_K}
    TEXT_SCORES = {
        "word": "pseudo-log-likelihood: each token masked together with the later tokens of its word",
        "token": "pseudo-log-likelihood: each token masked alone",
    }
    BABYLM_BACKENDS = {"token": "mlm"}
    DESCRIPTION = "fills each [MASK] of a prompt"

    def build(self, bundle: ModelBundle) -> "MaskFilling":
        return MaskFilling(bundle)


class MaskFilling(Pipeline):
    first_position = 0
    """Position of the first token that the model can predict."""

    def text_scorer(self, kind: str, group: ProcessGroup | None = None) -> TextScorer:
        around = text_affixes(self.bundle)
        return TextScorer(self.token_predictor(), self.bundle.tokenizer, around, kind, group, self.first_position)

    def generator(self, options: GenerateOptions) -> "MaskFillGenerator":
        return MaskFillGenerator(self.bundle, options, self.token_predictor(), self.first_position)

    def token_predictor(self) -> Model:
        """The model that predicts the masked tokens."""
        return self.bundle.model


class MaskFillGenerator:
    """Fills the masks of prompts with an encoder, `model`."""

    streams = False

    def __init__(self, bundle: ModelBundle, options: GenerateOptions, model: Model, first: int) -> None:
        self.top_k, self.batch_size = (
            options.explicit.get("top_k", TOP_K),
            options.explicit.get("batch_size", BATCH_SIZE),
        )
        self.chunk_size = self.batch_size
        if self.top_k < 1:
            raise UsageFault(f"--top-k: must be at least 1, got {self.top_k}")
        context = options.context or model.context
        self.options, self.unread = options, InputWarnings(bundle.tokenizer, context)
        self.mask_filler = MaskFiller(model, bundle.tokenizer, text_affixes(bundle), context, first)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        """The candidates of each mask, or, as a line, the prompt filled with the most probable ones."""
        yield from outputs_before_fault(self._outputs, self.mask_filler.encode_prompt, prompts, places)

    def _outputs(self, prompts: Sequence[str], places: Sequence[str]) -> Iterator[Output]:
        encoded = [self.mask_filler.encode_prompt(prompt) for prompt in prompts]
        notes = [self.unread.add(masked.parts) for masked in encoded]
        self.options.on_unread(self.unread)
        for first in range(0, len(encoded), self.batch_size):
            batch = encoded[first : first + self.batch_size]
            predicted = self.mask_filler.candidates(batch, self.top_k)
            for prompt, own_notes, masked, masks in zip(prompts[first:], notes[first:], batch, predicted, strict=False):
                candidates = [[{"token": token, "p": p} for token, p, _ in ranked] for ranked in masks]
                filled = self.mask_filler.fill(masked, masks)
                result = {"prompt": prompt, "candidates": candidates, "texts": [filled], **notes_entry(own_notes)}
                shown = [*([one_line(prompt)] if len(prompts) > 1 else []), *_table(masks)]
                yield Output(result, [one_line(filled)], shown)


def _table(masks: Sequence[Sequence[Candidate]]) -> list[str]:
    """One line per candidate; with several masks, a heading line for each."""
    lines = []
    for number, ranked in enumerate(masks, 1):
        lines += [f"[MASK] {number} of {len(masks)}"] if len(masks) > 1 else []
        lines += [f"{candidate.p:.4f} {json.dumps(candidate.token, ensure_ascii=False)}" for candidate in ranked]
    return lines
