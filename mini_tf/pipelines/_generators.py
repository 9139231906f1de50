"""`minitf generate`: a decoder continues prompts, an encoder-decoder generates texts by beam search.

Outputs are streamed text, lines or JSON.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mini_tf.data.tokenization.prompts import InputWarnings
from mini_tf.generation.text_generator import GeneratedText, Prompt, ScoredToken, TextGenerator
from mini_tf.generation.translation import BATCH_SIZE as BEAM_BATCH_SIZE
from mini_tf.generation.translation import SORTED_BATCHES, Translation, Translator
from mini_tf.pipelines import BATCH_SIZE, GenerateOptions, ModelBundle, Output, notes_entry, one_line, option
from mini_tf.recipe.kind_settings.pipelines import BEAM_OPTIONS, GENERATE_OPTIONS
from mini_tf.recipe.sections import Generate
from mini_tf.system.errors import UsageFault

BETWEEN_SAMPLES = "---"


def outputs_before_fault(
    generate: Callable[[Sequence[str], Sequence[str]], Iterator[Output]],
    check: Callable[[str], Any],
    prompts: Sequence[str],
    places: Sequence[str],
) -> Iterator[Output]:
    """`generate(prompts, places)`, once `check` has refused none of the prompts, as `Generator.outputs` says."""
    for number, prompt in enumerate(prompts):
        try:
            check(prompt)
        except UsageFault as fault:
            if places and number:
                yield from generate(prompts[:number], places[:number])
            raise UsageFault(fault.message, hint=fault.hint, where=places[number : number + 1]) from fault
    yield from generate(prompts, places)


class DecoderGenerator:
    """Generates text with a decoder."""

    def __init__(self, bundle: ModelBundle, options: GenerateOptions) -> None:
        explicit = options.explicit
        self.bundle, self.options = bundle, options
        self.samples, self.batch_size = explicit.get("num_samples", 1), explicit.get("batch_size", BATCH_SIZE)
        self.seed: int = explicit.get("seed", 0)
        self.top_logprobs: int | None = explicit.get("logprobs")
        self.chunk_size = self.batch_size
        greedy = {"temperature": 0.0} if explicit.get("greedy") else {}
        generate = bundle.recipe.generate.with_options({**explicit, **greedy})
        recipe = bundle.recipe.model_copy(update={"generate": generate})
        self.text_generator = TextGenerator(
            bundle.model,
            bundle.tokenizer,
            recipe,
            context=options.context,
            top_logprobs=self.top_logprobs,
            warn=options.warn,
        )
        self.unread = InputWarnings(bundle.tokenizer, self.text_generator.context)
        self._check_options()
        self.streams: bool = explicit.get("stream", options.terminal and self.samples == 1)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        encoded = [self.encode(text) for text in prompts]
        notes = [
            self.unread.add(self.texts_of(text), prompt.length, prompt.cut, place, prompt.continues)
            for text, prompt, place in zip(prompts, encoded, places or [""] * len(encoded), strict=True)
        ]
        self.options.on_unread(self.unread)
        batch_size, follow = (1, self._stream) if self.streams else (self.batch_size, self.options.follow)
        generated = self.text_generator.generate(encoded, self.seed, self.samples, batch_size, follow)
        for number, (prompt_text, own_notes, samples) in enumerate(zip(prompts, notes, generated, strict=True)):
            output = self._output(prompt_text, own_notes, samples, first=number == 0)
            ends = [(sample.length, sample.ended) for sample in samples]
            yield output._replace(n_prompt=len(encoded[number].ids), ends=ends)

    def encode(self, text: str) -> Prompt:
        return self.text_generator.encode_prompt(text)

    def texts_of(self, prompt: str) -> Sequence[str]:
        """The texts that a prompt consists of, as they are tokenized."""
        return [prompt]

    def _output(self, prompt: str, notes: Sequence[str], samples: Sequence[GeneratedText], first: bool) -> Output:
        notes = [*notes, *self.unread.add_grown(sum(sample.outgrew for sample in samples))]
        result: dict[str, Any] = {"prompt": prompt, "texts": [sample.text for sample in samples], **notes_entry(notes)}
        if self.top_logprobs is not None:
            result["tokens"] = [[self._token_json(token) for token in sample.tokens] for sample in samples]
        lines, shown = list[str](), list[str]()
        for number, sample in enumerate(samples):
            lines.append("" if self.streams else one_line(sample.text))
            between = self.samples > 1 and not (first and number == 0)
            tokens = [self._token_line(token) for token in sample.tokens]
            shown += [*([BETWEEN_SAMPLES] if between else []), "" if self.streams else sample.text, *tokens]
        return Output(result, lines, shown)

    def _stream(self, number: int, text: str) -> bool:
        if text:
            self.options.streamer(one_line(text) if self.options.by_line else text)
        return False

    def _token_line(self, token: ScoredToken) -> str:
        """A token with its log-probability, then the most probable tokens with theirs."""
        chosen, *others = [json.dumps(piece, ensure_ascii=False) for piece in self._pieces(token)]
        top = "".join(f"  {logprob:.4f} {piece}" for piece, (_, logprob) in zip(others, token.top, strict=True))
        return f"{token.logprob:9.4f} {chosen:<16}{top}".rstrip()

    def _token_json(self, token: ScoredToken) -> dict[str, Any]:
        chosen, *others = self._pieces(token)
        top = [{"token": piece, "logprob": logprob} for piece, (_, logprob) in zip(others, token.top, strict=True)]
        return {"token": chosen, "id": token.id, "logprob": token.logprob, "top": top}

    def _pieces(self, token: ScoredToken) -> list[str]:
        return self.bundle.tokenizer.pieces([token.id, *(id for id, _ in token.top)])

    def _check_options(self) -> None:
        """UsageFault for contradictory options."""
        explicit = self.options.explicit
        sampling = [name for name in ("temperature", "top_k", "top_p", "min_p") if explicit.get(name)]
        if explicit.get("greedy") and sampling:
            fault = f"--greedy is --temperature 0; {option(sampling[0])} {explicit[sampling[0]]:g} was given too"
            raise UsageFault(fault)
        if self.samples > 1 and self.text_generator.settings.greedy:
            fault = f"--num-samples {self.samples}: greedy decoding gives identical samples"
            raise UsageFault(fault, hint="give a --temperature above 0")
        if explicit.get("stream"):
            several = [option(name) for name in ("num_samples", "batch_size") if explicit.get(name, 1) > 1]
            if others := [*(["--json"] if self.options.json else []), *several]:
                fault = f"--stream prints one text while it is generated; {others[0]} was given too"
                raise UsageFault(fault, hint="remove one of them")
        if self.top_logprobs is not None and self.options.by_line and not self.options.json:
            raise UsageFault("--logprobs do not fit into one output line per input line", hint="--json prints them")


ENCODER_DECODER_UNSUPPORTED = dict.fromkeys(
    GENERATE_OPTIONS - {*BEAM_OPTIONS, "max_new_tokens", "greedy", "batch_size"},
    "{run} is an encoder-decoder, which uses beam search and does not sample",
)
"""`PipelineSettings.UNSUPPORTED_OPTIONS` of encoder-decoders."""


class EncoderDecoderGenerator:
    """Generates targets of sources by beam search. unit: the name of one source, in warnings."""

    streams = False

    def __init__(
        self,
        bundle: ModelBundle,
        options: GenerateOptions,
        make_translator: Callable[[Generate], Translator],
        unit: str,
    ) -> None:
        explicit, self.options = options.explicit, options
        self.batch_size, self.n_best = explicit.get("batch_size", BEAM_BATCH_SIZE), explicit.get("n_best")
        self.chunk_size = SORTED_BATCHES * self.batch_size
        generate = bundle.recipe.generate.with_options(
            {**explicit, **({"num_beams": 1} if explicit.get("greedy") else {})}
        )
        self._check_options(generate)
        self.translator = make_translator(generate)
        self.unread = InputWarnings(bundle.source_tokenizer, self.translator.context, unit, "last")

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        sources = zip(self.translator.encode_sources(prompts), places or [""] * len(prompts), strict=True)
        notes = [self.unread.add(source.parts, source.length, source.cut, place) for source, place in sources]
        self.options.on_unread(self.unread)
        generated = self.translator.translate(prompts, self.batch_size, self.n_best or 1)
        for prompt, own_notes, best in zip(prompts, notes, generated, strict=True):
            lines = [self._line(translation) for translation in best]
            shown = lines if self.n_best is not None else [translation.text for translation in best]
            yield Output(_result(prompt, best) | notes_entry(own_notes), lines, shown)

    def _line(self, translation: Translation) -> str:
        text = one_line(translation.text)
        return text if self.n_best is None else f"{translation.score:.4f}\t{text}"

    def _check_options(self, options: Generate) -> None:
        """UsageFault for contradictory options."""
        explicit = self.options.explicit
        if explicit.get("greedy") and explicit.get("num_beams", 1) != 1:
            raise UsageFault(f"--greedy is --num-beams 1; --num-beams {explicit['num_beams']} was given too")
        if (self.n_best or 1) > options.num_beams:
            fault = f"--n-best {self.n_best}: must be at most the beam size, {options.num_beams}"
            raise UsageFault(fault, hint="increase --num-beams")
        if options.min_new_tokens > options.max_new_tokens:
            fault = f"--min-new-tokens {options.min_new_tokens} is more than --max-new-tokens {options.max_new_tokens}"
            raise UsageFault(fault)


def _result(prompt: str, best: Sequence[Translation]) -> dict[str, Any]:
    texts, logprobs, scores = (list(column) for column in zip(*best, strict=True))
    return {"prompt": prompt, "texts": texts, "scores": scores, "logprobs": logprobs}
