"""The decoding loop: each step computes the logits, chooses the next token of each row and appends it.

Unused options cost nothing: a greedy step is a forward pass and an argmax. A step never synchronizes with the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mini_tf.generation.decoding import DecodingState
from mini_tf.generation.sampling import DecodingStep, TokenChoice, UniformNumbers
from mini_tf.generation.token_graphs import TokenGraph, TokenGraphs
from mini_tf.training.steps.cuda_graphs import NotCapturable


class DecodingLoop:
    """Extends the sequences of a `DecodingState`.

    uniform: None for greedy decoding. graphs: by which steps are computed if possible; None: all without.
    """

    def __init__(
        self,
        state: DecodingState,
        choice: TokenChoice,
        uniform: UniformNumbers | None,
        graphs: TokenGraphs | None = None,
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

    def _replay(self, graphs: TokenGraphs, ids: Tensor, uniform: Tensor | None) -> DecodingStep | None:
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
