"""What a decoder writes behind prompts, as text that comes piece by piece, as lines, or as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from mini_tf.data.tokenization.input_warnings import InputWarnings
from mini_tf.generation.text_generator import GeneratedText, Prompt, ScoredToken, TextGenerator
from mini_tf.pipelines import GenerateOptions, Output, Subject
from mini_tf.pipelines._options import ROWS, noted, one_line, option, with_options
from mini_tf.system.errors import UsageFault

BETWEEN_SAMPLES = "---"


class Continuing:
    """The generation of a decoder. in_turns: a prompt is a turn of a conversation, which is answered."""

    def __init__(self, subject: Subject, options: GenerateOptions, in_turns: bool = False) -> None:
        given = options.given
        self.subject, self.options = subject, options
        self.samples, self.rows = given.get("num_samples", 1), given.get("batch_size", ROWS)
        self.seed: int = given.get("seed", 0)
        self.n_top: int | None = given.get("logprobs")
        self.ahead = self.rows
        generate = with_options(subject.recipe.generate, {**given, **({"temperature": 0.0} if given.get("greedy") else {})})
        recipe = subject.recipe.model_copy(update={"generate": generate})
        self.writer = TextGenerator(subject.model, subject.tokenizer, recipe, context=options.context, n_top=self.n_top, in_turns=in_turns)
        self.unread = InputWarnings(subject.tokenizer, self.writer.context)
        self._refuse_nonsense()
        self.streams = given.get("stream", options.terminal and self.samples == 1)

    def outputs(self, prompts: Sequence[str], places: Sequence[str] = ()) -> Iterator[Output]:
        read = [self.framed(text) for text in prompts]
        told = [
            self.unread.add(self.turns(text), prompt.length, prompt.cut, place)
            for text, prompt, place in zip(prompts, read, places or [""] * len(read), strict=True)
        ]
        self.options.unread(self.unread)
        rows, streamer = (1, self._stream) if self.streams else (self.rows, None)
        written = self.writer.write(read, self.seed, self.samples, rows, streamer)
        for number, (prompt_text, notes, texts) in enumerate(zip(prompts, told, written, strict=True)):
            yield self._answer(prompt_text, notes, texts, first=number == 0)

    def framed(self, text: str) -> Prompt:
        """A prompt as the model reads it."""
        return self.writer.prompt(text)

    def turns(self, text: str) -> Sequence[str]:
        """The texts that a prompt consists of."""
        return [text]

    def _answer(self, prompt: str, notes: Sequence[str], texts: Sequence[GeneratedText], first: bool) -> Output:
        result: dict[str, Any] = {"prompt": prompt, "texts": [written.text for written in texts], **noted(notes)}
        if self.n_top is not None:
            result["tokens"] = [[self._token(token) for token in written.tokens] for written in texts]
        lines, shown = list[str](), list[str]()
        for number, written in enumerate(texts):
            lines.append("" if self.streams else one_line(written.text))
            between = self.samples > 1 and not (first and number == 0)
            tokens = [self._line(token) for token in written.tokens]
            shown += [*([BETWEEN_SAMPLES] if between else []), "" if self.streams else written.text, *tokens]
        return Output(result, lines, shown)

    def _stream(self, text: str) -> None:
        self.options.streamer(one_line(text) if self.options.by_line else text)

    def _line(self, token: ScoredToken) -> str:
        """A token with its log-probability and what else was likely."""
        named = [json.dumps(piece, ensure_ascii=False) for piece in self._pieces(token)]
        others = "".join(f"  {logprob:.4f} {piece}" for piece, (_, logprob) in zip(named[1:], token.top, strict=True))
        return f"{token.logprob:9.4f} {named[0]:<16}{others}".rstrip()

    def _token(self, token: ScoredToken) -> dict[str, Any]:
        own, *others = self._pieces(token)
        top = [{"token": piece, "logprob": logprob} for piece, (_, logprob) in zip(others, token.top, strict=True)]
        return {"token": own, "id": token.id, "logprob": token.logprob, "top": top}

    def _pieces(self, token: ScoredToken) -> list[str]:
        return self.subject.tokenizer.pieces([token.id, *(id for id, _ in token.top)])

    def _refuse_nonsense(self) -> None:
        given = self.options.given
        drawing = [name for name in ("temperature", "top_k", "top_p", "min_p") if given.get(name)]
        if given.get("greedy") and drawing:
            raise UsageFault(f"--greedy is --temperature 0; {option(drawing[0])} {given[drawing[0]]:g} was given too")
        if self.samples > 1 and self.writer.wish.greedy:
            raise UsageFault(f"--num-samples {self.samples}: the likeliest text is always the same", hint="give a --temperature above 0")
        if given.get("stream"):
            many = [option(name) for name in ("num_samples", "batch_size") if given.get(name, 1) > 1]
            if others := [*(["--json"] if self.options.json else []), *many]:
                raise UsageFault(f"--stream prints one text as it is written; {others[0]} was given too", hint="leave out one of them")
        if self.n_top is not None and self.options.by_line and not self.options.json:
            raise UsageFault("--logprobs do not fit on the one line that an input line gives", hint="--json gives them")
