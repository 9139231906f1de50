"""Filling masks: what an encoder puts in place of [MASK], ranked by probability."""

import json
from collections.abc import Iterator, Sequence

from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.generation.mask_filling import Candidate, MaskedPrompt, MaskFiller
from mini_tf.pipelines import GenerateOptions, Output, Pipeline, PipelineSettings, Subject
from mini_tf.pipelines._options import ROWS, noted, one_line
from mini_tf.recipe.kind_settings import GENERATE_OPTIONS, NO_BEAM_OPTIONS
from mini_tf.system.errors import UsageFault

CANDIDATES = 5


class Settings(PipelineSettings):
    COMMAND = "generate"
    WITHOUT = NO_BEAM_OPTIONS | dict.fromkeys(
        GENERATE_OPTIONS - NO_BEAM_OPTIONS.keys() - {"top_k", "batch_size"}, "{run} is an encoder, which fills [MASK] and continues no text"
    )
    DEFAULTS = {"top_k": CANDIDATES}
    DOES = "fills each [MASK] of a prompt"

    def build(self, subject: Subject) -> "FillMask":
        return FillMask(subject)


class FillMask(Pipeline):
    def generation(self, options: GenerateOptions) -> "Filling":
        return Filling(self.subject, options)


class Filling:
    """The generation of an encoder."""

    def __init__(self, subject: Subject, options: GenerateOptions) -> None:
        self.n, self.rows = options.given.get("top_k", CANDIDATES), options.given.get("batch_size", ROWS)
        self.ahead = self.rows
        if self.n < 1:
            raise UsageFault(f"--top-k: must be at least 1, got {self.n}")
        context = options.context or subject.model.context
        self.options, self.unread = options, InputWarnings(subject.tokenizer, context)
        self.filler = MaskFiller(subject.model, subject.tokenizer, not subject.recipe.data.split.tail, context)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        """The candidates of each mask, or as a line the prompt filled with the likeliest."""
        questions: list[MaskedPrompt] = []
        fault = None
        for number, prompt in enumerate(prompts):
            try:
                questions.append(self.filler.masked_prompt(prompt))
            except UsageFault as error:
                fault = error if not places else UsageFault(error.message, hint=error.hint, where=[places[number]])
                break
        told = [self.unread.add(question.parts) for question in questions]
        self.options.unread(self.unread)
        for first in range(0, len(questions) if fault is None or places else 0, self.rows):
            asked = questions[first : first + self.rows]
            found = self.filler.candidates(asked, self.n)
            for prompt, notes, question, masks in zip(prompts[first:], told[first:], asked, found, strict=False):
                named = [[{"token": candidate.token, "p": candidate.p} for candidate in ranked] for ranked in masks]
                shown = [*([one_line(prompt)] if len(prompts) > 1 else []), *_table(masks)]
                yield Output(
                    {"prompt": prompt, "candidates": named, **noted(notes)}, [one_line(self.filler.filled(question, masks))], shown
                )
        if fault is not None:
            raise fault


def _table(masks: Sequence[Sequence[Candidate]]) -> list[str]:
    """A line for each candidate, and one before those of each mask where there are several."""
    lines = []
    for number, ranked in enumerate(masks, 1):
        lines += [f"[MASK] {number} of {len(masks)}"] if len(masks) > 1 else []
        lines += [f"{candidate.p:.4f} {json.dumps(candidate.token, ensure_ascii=False)}" for candidate in ranked]
    return lines
