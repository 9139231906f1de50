"""From the text of a prompt to the texts that a decoder continues it with, or answers."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from mini_tf.data.tokenization.stream import TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.decoding_loop import DecodingLoop, DecodingStep
from mini_tf.generation.prompt_ids import chat_ids, prompt_ids, start_ids
from mini_tf.generation.sampling import UniformNumbers
from mini_tf.generation.stop_strings import StopStringFilter
from mini_tf.nn.model import Model
from mini_tf.recipe.recipe import Recipe

BETWEEN_DOCUMENTS = "\n\n"
STEPS_AHEAD = 8
"""Steps between two looks at what was written, on a GPU, where each look waits for the device."""


class Prompt(NamedTuple):
    """What a model reads first; `cut`: how many of the text's `length` tokens were left out, from the left.

    goes_on: whether what is written goes on with this text; an answer is a text of its own.
    """

    ids: list[int]
    length: int
    cut: int
    goes_on: bool = True


class ScoredToken(NamedTuple):
    """A token that was chosen; log-probabilities are the model's own, before anything changed them. top: the likeliest tokens."""

    id: int
    logprob: float
    top: list[tuple[int, float]]


class GeneratedText(NamedTuple):
    """What continues a prompt; tokens: all that were chosen, those of its end and its stop string too, where they were asked for."""

    text: str
    tokens: list[ScoredToken]


class TextGenerator:
    """A decoder that continues prompts as its recipe's `generate` says; `in_turns`: answers them, as it learnt from conversations.

    context: the longest text that it reads at once, by default the one it was trained on. n_top: None, or how many of the
    likeliest tokens are told with each token. over_borders: after a document's end another one follows, a blank line between.
    `ahead`: steps between two looks at what was written; no text depends on it.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        recipe: Recipe,
        *,
        context: int | None = None,
        n_top: int | None = None,
        over_borders: bool = False,
        in_turns: bool = False,
    ) -> None:
        self.model, self.tokenizer, self.wish, self.n_top, self.over_borders = model, tokenizer, recipe.generate, n_top, over_borders
        self.context = context or model.context
        self.separated, self.in_turns = not recipe.data.split.tail, in_turns
        self.prefix = recipe.objective.prompts_are_prefixes(recipe.model)
        self.ends = frozenset(start_ids(tokenizer, self.separated))
        self.ahead = 1 if next(model.parameters()).device.type == "cpu" else STEPS_AHEAD

    def prompt(self, text: str) -> Prompt:
        """A prompt as the model reads it: the end of one that is longer than the context."""
        if self.in_turns:
            return self.conversation([text])
        ids = prompt_ids(self.tokenizer, text, self.separated)
        length = len(ids) - (ids[0] in self.ends)
        return Prompt(ids[-self.context :], length, max(0, length - self.context))

    def conversation(self, turns: Sequence[str]) -> Prompt:
        """What is said before an answer: the end of what is longer than the context, between separators as in training."""
        first, *ids = chat_ids(self.tokenizer, turns)
        cut = max(0, len(ids) - (self.context - 1))
        return Prompt([first, *ids[cut:]], max(0, len(ids) - 1), cut, goes_on=False)

    def write(
        self, prompts: Sequence[Prompt], seed: int, samples: int = 1, rows: int = 8, hear: Callable[[str], None] | None = None
    ) -> Iterator[list[GeneratedText]]:
        """The `samples` continuations of each prompt, in order; `rows` texts are written at a time.

        A text depends on its prompt, the seed and its number among the samples, and on nothing that is written beside it.
        `hear` is told every piece of text once it is certain, for which only one text may be written at a time.
        """
        wanted = [(prompt, sample) for prompt in prompts for sample in range(samples)]
        ready: list[GeneratedText] = []
        for first in range(0, len(wanted), rows):
            ready += self._write_together(wanted[first : first + rows], seed, hear)
            while len(ready) >= samples:
                yield ready[:samples]
                ready = ready[samples:]

    @torch.inference_mode()
    def _write_together(self, wanted: Sequence[tuple[Prompt, int]], seed: int, hear: Callable[[str], None] | None) -> list[GeneratedText]:
        rows = self._rows(wanted, seed)
        texts = [_Text(self, prompt, hear) for prompt, _ in wanted]
        live, left = texts, self.wish.max_new_tokens
        while live and left:
            steps = [rows.step() for _ in range(min(self.ahead, left))]
            left -= len(steps)
            for text, tokens in zip(live, _tokens(steps), strict=True):
                for token in tokens:
                    text.push(*token)
            going = [row for row, text in enumerate(live) if not text.done]
            # Rows that are done cost what the others cost; leaving costs a copy of what the model remembers.
            if 2 * len(going) <= len(live):
                live = [live[row] for row in going]
                if live and left:
                    rows.select(torch.tensor(going))
        for text in texts:
            text.end()
        return [GeneratedText("".join(text.parts), text.tokens) for text in texts]

    def _rows(self, wanted: Sequence[tuple[Prompt, int]], seed: int) -> DecodingLoop:
        self.model.eval()
        reading = DecodingState(self.model, [prompt.ids for prompt, _ in wanted], self.context, self.prefix)
        uniform = None if self.wish.greedy else UniformNumbers(seed, [(sample, *prompt.ids) for prompt, sample in wanted], reading.device)
        special = self.tokenizer.vocabulary.special_ids
        return DecodingLoop(reading, self.wish, uniform, sorted(special), sorted(special - self.ends), self.n_top)


def _tokens(steps: Sequence[DecodingStep]) -> list[list[tuple[int, ScoredToken | None]]]:
    """What was chosen in each row, one step after the other; brought from the device in one go."""
    ids = (torch.stack([step.ids for step in steps], dim=1) if len(steps) > 1 else steps[0].ids[:, None]).tolist()
    likely = [step.logprobs for step in steps if step.logprobs is not None]
    if not likely:
        return [[(id, None) for id in row] for row in ids]
    own, top, others = (torch.stack(part, dim=1).tolist() for part in zip(*likely, strict=True))
    return [
        [(id, ScoredToken(id, logprob, list(zip(names, scores, strict=True)))) for id, logprob, scores, names in zip(*row, strict=True)]
        for row in zip(ids, own, top, others, strict=True)
    ]


class _Text:
    """One text while it is written; `done` where it came to its end or to a stop string."""

    def __init__(self, writer: TextGenerator, prompt: Prompt, hear: Callable[[str], None] | None) -> None:
        self._writer, self._hear = writer, hear
        self._stream, self._stopping = (
            TextStream(writer.tokenizer, prompt.ids if prompt.goes_on else ()),
            StopStringFilter(writer.wish.stop),
        )
        self.parts: list[str] = []
        self.tokens: list[ScoredToken] = []
        self.done = False

    def push(self, id: int, scored: ScoredToken | None) -> None:
        """Take the next token; one that comes after the end is not looked at."""
        if self.done:
            return
        if scored is not None:
            self.tokens.append(scored)
        if id not in self._writer.ends:
            self._tell(self._stopping.push(self._stream.push(id)))
            self.done = self._stopping.stopped
        elif self._writer.over_borders:
            self._tell(self._stopping.push(self._stream.end() + BETWEEN_DOCUMENTS))
            self._stream, self.done = TextStream(self._writer.tokenizer), self._stopping.stopped
        else:
            self.done = True

    def end(self) -> None:
        """No token follows: what was held back is text."""
        self._tell(self._stopping.push(self._stream.end()) + self._stopping.end())
        self.done = True

    def _tell(self, text: str) -> None:
        self.parts.append(text)
        if text and self._hear is not None:
            self._hear(text)
