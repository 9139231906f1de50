"""Text generation: a decoder continues prompts, or answers chat messages."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from mini_tf.data.tokenization.stream import StopStringFilter, TextStream
from mini_tf.data.tokenization.tokenizer import Tokenizer
from mini_tf.data.tokenization.vocabulary import last_tokens
from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.decoding_loop import MIN_TOKENS, DecodingLoop, TokenGraphs
from mini_tf.generation.fast_decoder import FastDecoder
from mini_tf.generation.prompt_ids import affixes, chat_ids, prompt_ids
from mini_tf.generation.sampling import DecodingStep, TokenChoice, UniformNumbers
from mini_tf.nn.cuda_graphs import CUDAGraphs, NotCapturable, Recorder
from mini_tf.nn.model import Model
from mini_tf.recipe.recipe import Recipe

BETWEEN_DOCUMENTS = "\n\n"
GPU_SYNC_STEPS = 8
"""Steps between two synchronizations with a GPU, which copy the generated ids and wait for the device."""


class Prompt(NamedTuple):
    """The ids of a prompt; `cut`: how many of its `length` tokens were truncated on the left.

    continues: the generated text continues that of the prompt; False in a chat, where an answer is a separate text.
    """

    ids: list[int]
    length: int
    cut: int
    continues: bool = True


class ScoredToken(NamedTuple):
    """A generated token; log-probabilities of the unchanged logits. top: (id, logprob) of the most probable tokens."""

    id: int
    logprob: float
    top: list[tuple[int, float]]


class GeneratedText(NamedTuple):
    """A continuation or answer. tokens: all generated tokens if requested, including the end and a stop string.

    outgrew: with its prompt it became longer than the context, so that its beginning was truncated. length: number of
    generated tokens; ended: by an end token or a stop string, not by their maximum number.
    """

    text: str
    tokens: list[ScoredToken]
    outgrew: bool = False
    length: int = 0
    ended: bool = False


Follower = Callable[[int, str], bool]
"""Called after each token of a text, by its number (of all samples of all prompts), with the text that is final since,
which may be empty; True ends the text.
"""


class TextGenerator:
    """Generates text with a decoder and the settings of the recipe's section `generate`.

    context: maximum length in tokens; default: the context in training. top_logprobs: number of most probable tokens
    to report with each token, None = none. across_documents: the end of a document is replaced by a blank line, and
    generation continues. warn: called with a line if tokens are generated without CUDA
    graphs on a GPU of NVIDIA, though the recipe allows them.

    These do not change the result: sync_steps, the number of steps that are computed before their tokens are read;
    lookahead, how often so many more are, while the text of the former is handled; recorder, of CUDA graphs.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        recipe: Recipe,
        *,
        context: int | None = None,
        top_logprobs: int | None = None,
        across_documents: bool = False,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model, self.tokenizer, self.settings = model, tokenizer, recipe.generate
        self.top_logprobs, self.across_documents = top_logprobs, across_documents
        self.context = context or model.context
        separated, vocabulary = not recipe.data.split.tail, tokenizer.vocabulary
        self.before = affixes(tokenizer, "continued", separated).before
        self.prefix = recipe.objective.prompt_is_prefix(recipe.model)
        self.end_ids = frozenset(vocabulary.ends) if separated else frozenset(vocabulary.ends) - {vocabulary.separator}
        device = next(model.parameters()).device
        self.sync_steps, self.lookahead = (1, 0) if device.type == "cpu" else (GPU_SYNC_STEPS, 1)
        self.recorder: Recorder | None = None
        if device.type == "cuda" and recipe.runtime.graphs and self.settings.max_new_tokens >= MIN_TOKENS:
            self.recorder = CUDAGraphs(device)
        special = vocabulary.special_ids
        self._choice = TokenChoice(
            self.settings, sorted(special), sorted(special - self.end_ids), device, self.top_logprobs
        )
        self._graphs: TokenGraphs | None = None
        self._warn = warn

    def encode_prompt(self, text: str) -> Prompt:
        """The ids of a prompt; one longer than the context is truncated on the left, between characters."""
        ids, n_start = prompt_ids(self.tokenizer, text, self.before), len(self.before)
        first = len(ids) - last_tokens(self.tokenizer.vocabulary, np.array(ids), self.context)
        return Prompt(ids[first:], len(ids) - n_start, max(0, first - n_start))

    def encode_chat(self, messages: Sequence[str]) -> Prompt:
        """The ids of chat messages between separators, as in training; truncated on the left to the context."""
        separator, *ids = chat_ids(self.tokenizer, messages)
        cut = len(ids) - last_tokens(self.tokenizer.vocabulary, np.array(ids), self.context - 1)
        return Prompt([separator, *ids[cut:]], max(0, len(ids) - 1), cut, continues=False)

    def generate(
        self,
        prompts: Sequence[Prompt],
        seed: int,
        samples: int = 1,
        batch_size: int = 8,
        follow: Follower | None = None,
    ) -> Iterator[list[GeneratedText]]:
        """The `samples` texts of each prompt, in order.

        A text depends only on its prompt, the seed and the number of the sample, not on the batch.
        """
        pending = [(prompt, sample) for prompt in prompts for sample in range(samples)]
        ready: list[GeneratedText] = []
        for first in range(0, len(pending), batch_size):
            followers = [None if follow is None else partial(follow, first + n) for n in range(batch_size)]
            ready += self._generate_batch(pending[first : first + batch_size], seed, followers)
            while len(ready) >= samples:
                yield ready[:samples]
                ready = ready[samples:]

    @torch.inference_mode()
    def _generate_batch(
        self, batch: Sequence[tuple[Prompt, int]], seed: int, followers: Sequence[Callable[[str], bool] | None]
    ) -> list[GeneratedText]:
        loop = self._decoding_loop(batch, seed)
        texts = [_Text(self, prompt, follow) for (prompt, _), follow in zip(batch, followers, strict=False)]
        rows, n_left = texts, self.settings.max_new_tokens
        computed: deque[tuple[list[_Text], _ComputedSteps]] = deque()
        while computed or (n_left and not all(text.done for text in rows)):
            if n_left and not all(text.done for text in rows):
                steps = _ComputedSteps([loop.step() for _ in range(min(self.sync_steps, n_left))])
                n_left -= steps.n
                computed.append((rows, steps))
                if n_left and len(computed) <= self.lookahead:
                    continue
            texts_of_steps, steps = computed.popleft()
            for text, tokens in zip(texts_of_steps, steps.tokens(), strict=True):
                for token in tokens:
                    text.push(*token)
            unfinished = [row for row, text in enumerate(rows) if not text.done]
            if unfinished and n_left:
                rows = [rows[row] for row in loop.drop(unfinished)]
        for text in texts:
            text.end()
        # The last token of a text is not an input of the model.
        return [
            GeneratedText(
                "".join(text.parts),
                text.tokens,
                len(prompt.ids) + text.length - 1 > self.context,
                text.length,
                text.ended,
            )
            for text, (prompt, _) in zip(texts, batch, strict=True)
        ]

    def _decoding_loop(self, batch: Sequence[tuple[Prompt, int]], seed: int) -> DecodingLoop:
        self.model.eval()
        vocabulary = self.tokenizer.vocabulary
        state = DecodingState(self.model, [prompt.ids for prompt, _ in batch], self.context, self.prefix, vocabulary)
        keys = [(sample, *prompt.ids) for prompt, sample in batch]
        uniform = None if self.settings.greedy else UniformNumbers(seed, keys, state.device)
        return DecodingLoop(state, self._choice, uniform, self._token_graphs())

    def _token_graphs(self) -> TokenGraphs | None:
        if self.recorder is not None and self._graphs is None:
            self._graphs = TokenGraphs(self.recorder, self._choice, self._warn)
            limit = self.model.max_length()
            if not FastDecoder.fits(self.model):
                self._graphs.fail(NotCapturable("a layer of this model has no step of fixed size"))
            elif limit is not None and limit < self.context:
                self._graphs.fail(NotCapturable(f"the model has no positions for more than {limit} tokens"))
        return self._graphs


class _ComputedSteps:
    """Steps whose tokens are copied from the device without waiting for it; n: their number."""

    def __init__(self, steps: Sequence[DecodingStep]) -> None:
        self.n = len(steps)
        logprobs = [step.logprobs for step in steps if step.logprobs is not None]
        parts = [[step.ids for step in steps], *zip(*logprobs, strict=True)]
        stacked = [torch.stack([*part], dim=1) if self.n > 1 else part[0][:, None] for part in parts]
        self._parts, self._event = stacked, None
        if stacked[0].device.type == "cuda":
            # A copy to pinned memory only; no later steps need to be done before it is read.
            self._parts = [
                torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)
                for part in stacked
            ]
            self._event = torch.cuda.current_stream(stacked[0].device).record_event()

    def tokens(self) -> list[list[tuple[int, ScoredToken | None]]]:
        """The tokens of each row."""
        if self._event is not None:
            self._event.synchronize()
        ids, *logprobs = (part.tolist() for part in self._parts)
        if not logprobs:
            return [[(id, None) for id in row] for row in ids]
        return [
            [
                (id, ScoredToken(id, logprob, list(zip(others, values, strict=True))))
                for id, logprob, values, others in zip(*row, strict=True)
            ]
            for row in zip(ids, *logprobs, strict=True)
        ]


class _Text:
    """A text that is being generated; `done` after its end or a stop string (`ended`), or where `follow` says so."""

    def __init__(self, generator: TextGenerator, prompt: Prompt, follow: Callable[[str], bool] | None) -> None:
        self._generator, self._follow = generator, follow
        self._stream = TextStream(generator.tokenizer, prompt.ids if prompt.continues else ())
        self._filter = StopStringFilter(generator.settings.stop)
        self.parts: list[str] = []
        self.tokens: list[ScoredToken] = []
        self.length, self.done, self.ended = 0, False, False
        # Text that neither `follow` nor a stop string reads is decoded at once, which takes a fraction of the time.
        self._is_read = follow is not None or bool(generator.settings.stop)
        self._unread: list[int] = []

    def push(self, id: int, scored: ScoredToken | None) -> None:
        """Append a token; ignored if `done`."""
        if self.done:
            return
        self.length += 1
        if scored is not None:
            self.tokens.append(scored)
        if id not in self._generator.end_ids:
            self._unread.append(id)
            if not self._is_read:
                return
            stopped = self._append(self._filter.push(self._decode()))
            self.ended = self._filter.stopped
        elif self._generator.across_documents:
            stopped = self._append(self._filter.push(self._decode() + self._stream.end() + BETWEEN_DOCUMENTS))
            self._stream, self.ended = TextStream(self._generator.tokenizer), self._filter.stopped
        else:
            stopped, self.ended = False, True
        self.done = self.ended or stopped

    def end(self) -> None:
        """Append the text that was held back."""
        self._append(self._filter.push(self._decode() + self._stream.end()) + self._filter.end())
        self.done = True

    def _decode(self) -> str:
        ids, self._unread = self._unread, []
        return self._stream.push(*ids)

    def _append(self, text: str) -> bool:
        """Whether the text shall end here."""
        self.parts.append(text)
        return self._follow is not None and self._follow(text)
