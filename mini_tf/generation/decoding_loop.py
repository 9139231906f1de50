"""The decoding loop: each step computes the logits, chooses the next token of each row and appends it.

Unused options cost nothing: a greedy step is a forward pass and an argmax. A step never synchronizes with the device.

On a GPU whole steps are CUDA graphs: the kernels of a small model take less time than the host needs to launch them one
by one. All that changes from token to token is in fixed memory: the state (`FixedDecoder`), the latest ids, the random
numbers and the tokens that a repetition penalty applies to. A graph serves one number of rows and one capacity. Its
first step is computed without it and checked for waits, which a graph cannot contain; the second one is captured.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.fast_decoder import FastDecoder, FixedDecoder
from mini_tf.generation.sampling import DecodingStep, TokenChoice, TopLogProbs, UniformNumbers
from mini_tf.nn.cuda_graphs import NotCapturable, Recorder

MIN_TOKENS = 32
"""New tokens from which on graphs are used: capturing one takes as long as about twenty steps without."""
MIN_CAPACITY = 1024
"""Tokens for which a graph has room if so many are wanted; beyond, its capacity doubles whenever it is full."""
MOST_GRAPHS = 4
"""Graphs that are kept for later batches; each has a KV cache."""


class DecodingLoop:
    """Extends the sequences of a `DecodingState`.

    uniform: None for greedy decoding. graphs: by which steps are computed if possible; None: all without.
    """

    def __init__(
        self,
        state: DecodingState,
        choice: TokenChoice,
        uniform: UniformNumbers | None,
        graphs: "TokenGraphs | None" = None,
    ) -> None:
        self.state, self.uniform = state, uniform
        self._choice, self._graphs, self._n_left = choice, graphs, choice.settings.max_new_tokens
        self._graph: TokenGraph | None = None
        self._ids: Tensor | None = None
        self._seen: Tensor | None = None

    def step(self) -> DecodingStep:
        """Choose the next token of each row; call in inference mode."""
        uniform = None if self.uniform is None else self.uniform.next()
        step = None if self._graphs is None or self._ids is None else self._replay(self._graphs, self._ids, uniform)
        if step is None:
            logits = self.state.prefill() if self._ids is None else self.state.decode(self._ids)
            if self._ids is None:
                self._seen = self._choice.seen(self.state.sequences, logits)
            step = self._choice(logits, self._ids, uniform, self._seen)
        self._ids, self._n_left = step.ids, self._n_left - 1
        return step

    def _replay(self, graphs: "TokenGraphs", ids: Tensor, uniform: Tensor | None) -> DecodingStep | None:
        """The next step by a graph; None: by `DecodingState.decode`, which processes the sequences again."""
        state = self.state
        if self._graph is None and state.longest < state.context and not graphs.failed:
            self._graph = graphs.start(state.release(), ids, self._seen, self._n_left, state.context)
            self._seen = self._graph.seen
        if self._graph is None or state.longest == self._graph.capacity:
            self._graph = None
            return None
        try:
            step = self._graph.step(uniform)
        except NotCapturable as reason:
            graphs.fail(reason)
            self._graph = None
            return None
        state.append(ids)
        return step

    def drop(self, unfinished: Sequence[int]) -> Sequence[int]:
        """Drop other rows than the unfinished ones if it pays; the rows that remain.

        A row costs little, and dropping rows copies the state, so it waits until half of them are finished. A graph
        would have to be captured again.
        """
        assert self._ids is not None
        if self._graph is not None or 2 * len(unfinished) > len(self._ids):
            return range(len(self._ids))
        self.select(torch.tensor(unfinished))
        return unfinished

    def select(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self.state.select(rows)
        self._ids, self._seen = (None if part is None else part[rows] for part in (self._ids, self._seen))
        if self.uniform is not None:
            self.uniform.select(rows)


class TokenGraphs:
    """The graphs of a model whose tokens are chosen by `choice`.

    warn: called with a line if steps cannot be captured; all are then computed without graphs.
    """

    def __init__(self, recorder: Recorder, choice: TokenChoice, warn: Callable[[str], None]) -> None:
        self._recorder, self._choice, self._warn = recorder, choice, warn
        self._graphs: dict[tuple[int, int], TokenGraph] = {}
        self.failed = False

    def start(self, decoder: FastDecoder, ids: Tensor, seen: Tensor | None, wanted: int, context: int) -> "TokenGraph":
        """A graph that continues from `decoder` and the `ids` (B,) chosen last, until it has at most `context` tokens.

        wanted: number of further tokens. seen: as in `TokenChoice`.
        """
        size = max(min(decoder.n + wanted, MIN_CAPACITY), decoder.n + decoder.n // 2)
        key = len(ids), min(context, 1 << (size - 1).bit_length())
        graph = self._graphs.pop(key, None) or TokenGraph(
            self._recorder, self._choice, FixedDecoder(decoder, *key), key[1], ids, seen
        )
        self._graphs[key] = graph
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        graph.load(decoder, ids, seen)
        return graph

    def fail(self, reason: NotCapturable) -> None:
        """Compute all steps without graphs from now on."""
        self._warn(f"tokens are generated without CUDA graphs, which takes longer: {reason}")
        self._graphs.clear()
        self.failed = True


class TokenGraph:
    """A step of decoding in fixed memory. seen: as in `TokenChoice`, updated with each step."""

    def __init__(
        self,
        recorder: Recorder,
        choice: TokenChoice,
        decoder: FixedDecoder,
        capacity: int,
        ids: Tensor,
        seen: Tensor | None,
    ) -> None:
        self._recorder, self._choice, self._decoder, self.capacity = recorder, choice, decoder, capacity
        self._ids, self.seen = ids.clone(), None if seen is None else seen.clone()
        self._uniform = torch.zeros(len(ids), 1, device=ids.device)
        self._rehearsed = False
        self._recorded: tuple[DecodingStep, Callable[[], None]] | None = None

    def load(self, decoder: FastDecoder, ids: Tensor, seen: Tensor | None) -> None:
        """Continue from `decoder` and the `ids` chosen last."""
        self._decoder.load(decoder)
        self._ids.copy_(ids)
        if self.seen is not None and seen is not None:
            self.seen.copy_(seen)

    def step(self, uniform: Tensor | None) -> DecodingStep:
        """The next tokens; uniform: random numbers (B, 1). Raises NotCapturable: the state is then undefined."""
        if uniform is not None:
            self._uniform.copy_(uniform)
        if self._recorded is None and not self._rehearsed:
            self._rehearsed = True
            with self._recorder.rehearsing():
                return _copy(self._compute(uniform is not None))
        if self._recorded is None:
            self._recorded = self._recorder.record(lambda: self._compute(uniform is not None))
        step, replay = self._recorded
        replay()
        return _copy(step)

    def _compute(self, random: bool) -> DecodingStep:
        logits = self._decoder.decode(self._ids)
        step = self._choice(logits, self._ids, self._uniform if random else None, self.seen)
        self._ids.copy_(step.ids)
        return step


def _copy(step: DecodingStep) -> DecodingStep:
    """The tensors of a step, which the next replay overwrites."""
    logprobs = None if step.logprobs is None else TopLogProbs(*(tensor.clone() for tensor in step.logprobs))
    return DecodingStep(step.ids.clone(), logprobs)
