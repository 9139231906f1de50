"""Steps that a GPU repeats without the host: forward and backward pass, clipping and optimizer as CUDA graphs.

The kernels of a small model take less time than the host needs to launch them one by one; a graph launches all at once.
Each shape of a micro-batch has a graph of its forward and backward pass, whose inputs and numbers are in fixed memory
that is filled before a replay. The norm of the gradient and the update of the parameters are graphs of their own:
between them the host fetches loss and norm, the only wait of a step, and decides as without graphs whether the step is
applied, so a step that is skipped, overflows or diverges has changed nothing. While the device updates the parameters,
the host handles the report and prepares the next step.

A shape is captured when it occurs for the third time: the first time prepares kernels, the second one is checked for
waits, which a graph cannot contain. The first update is not captured either. Numbers that change from step to step are
tensors in all steps, captured or not, so all have the same arithmetic, and a resumed run has the same bits.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from mini_tf.data.batch import Batch, Rows
from mini_tf.nn.cuda_graphs import NotCapturable, Recorder
from mini_tf.nn.state import State
from mini_tf.objectives import LossSums, Task
from mini_tf.optimizers import Number
from mini_tf.parallel.reduction import Reduction
from mini_tf.training.machine.compiled import flatten, unflatten
from mini_tf.training.training import EagerSteps, Training

MOST_GRAPHS = 8
"""Shapes of micro-batches that are captured; each has memory for its gradients. Other shapes run without graphs."""

T = TypeVar("T")


class CapturedSteps(EagerSteps):
    """`EagerSteps` in CUDA graphs: of one process, without a stream, with a `CAPTURABLE` optimizer."""

    def __init__(self, training: Training, recorder: Recorder) -> None:
        self._sum = _FixedSum([p.tensor for p in training.optimizer.parameters.values()], training.reduction.group)
        super().__init__(replace(training, reduction=self._sum))
        self._recorder: Recorder | None = recorder
        self._numbers: dict[str, Tensor] = {}
        self._occurrences: Counter[Hashable] = Counter()
        self._passes: dict[Hashable, _Pass] = {}
        self._norms: dict[Hashable, tuple[Tensor, Callable[[], None]]] = {}
        self._updates: dict[Hashable, tuple[None, Callable[[], None]]] = {}
        self._replayed: Hashable = None  # shape of the latest micro-batch if it was captured
        self._updated = False  # once: the kernels of the update are prepared

    def update(self, lr: float, grad_factor: float) -> None:
        optimizer, numbers = self.training.optimizer, (self._number("lr", lr), self._number("grad_factor", grad_factor))
        optimizer.set_step(optimizer.step_count + 1)
        self._repeat(self._updates, lambda: optimizer.apply(*numbers))
        self._updated = True

    def _grad_norm(self) -> Tensor:
        """In the graph's memory, until another graph is replayed."""
        return self._repeat(self._norms, super()._grad_norm)

    def _repeat(self, graphs: dict[Hashable, tuple[T, Callable[[], None]]], function: Callable[[], T]) -> T:
        """`function` of the gradients, in the graph for their memory if it is fixed."""
        memory = self._sum.summed or self._replayed  # of the gradients; None: it is not fixed
        if memory is not None and memory not in graphs and self._updated:
            recorded = self._record(function)
            if recorded is not None:
                graphs[memory] = recorded
        if memory not in graphs:
            return function()
        result, replay = graphs[memory]
        replay()
        return result

    def _forward_backward(
        self, batch: Batch, state: State | None, factors: Mapping[str, Number], scale: Number
    ) -> LossSums:
        numbers = (
            {name: self._number(f"factor {name}", factor) for name, factor in factors.items()},
            self._number("scale", scale),
        )
        leaves, structure = flatten(replace(batch, counts={}))
        phase = self.training.task.phase if isinstance(self.training.task, Task) else None
        shape = (structure, phase, *((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves))
        self._replayed, run = None, super()._forward_backward
        if shape not in self._passes:
            self._occurrences[shape] += 1
            if self._recorder is None or len(self._passes) == MOST_GRAPHS or self._occurrences[shape] == 1:
                return run(batch, state, *numbers)
            if self._occurrences[shape] == 2:
                return self._rehearse(lambda: run(batch, state, *numbers))
            fixed = tuple(
                leaf.to(self.training.setup.device, copy=True) if isinstance(leaf, Tensor) else leaf for leaf in leaves
            )
            recorded = self._record(lambda: run(unflatten(fixed, structure), state, *numbers))
            if recorded is None:
                self._sum.take()
                return run(batch, state, *numbers)
            self._passes[shape] = _Pass(fixed, recorded[0], self._sum.take(), recorded[1])
        self._replayed = shape
        self._sum.put(self._passes[shape].gradients)
        return self._passes[shape](leaves)

    def _rehearse(self, run: Callable[[], LossSums]) -> LossSums:
        """`run`, and from now on without graphs if it waits for the device."""
        assert self._recorder is not None
        try:
            with self._recorder.rehearsing():
                return run()
        except NotCapturable as reason:
            self._turn_off(reason)
        # Not in the handler: its exception keeps the activations of the failed pass.
        self._sum.take()
        return run()

    def _record(self, function: Callable[[], T]) -> tuple[T, Callable[[], None]] | None:
        """`Recorder.record`; None without graphs, which is so from now on if recording fails."""
        if self._recorder is None:
            return None
        try:
            recorded = self._recorder.record(function)
        except NotCapturable as reason:
            self._turn_off(reason)
            return None
        torch.manual_seed(torch.initial_seed())  # as if nothing had been drawn
        return recorded

    def _turn_off(self, reason: NotCapturable) -> None:
        self.training.warn(f"CUDA graphs are off, steps take longer: {reason}")
        self._recorder = None
        self._passes.clear()
        self._norms.clear()
        self._updates.clear()
        torch.manual_seed(torch.initial_seed())

    def _number(self, name: str, value: Number) -> Tensor:
        """A number in fixed memory; filled, not copied, which would wait for the device."""
        if name not in self._numbers:
            self._numbers[name] = torch.zeros((), device=self.training.setup.device)
        return self._numbers[name].fill_(value)


class _Pass(NamedTuple):
    """A captured forward and backward pass. inputs: tensors and numbers of its micro-batch; gradients: by parameter."""

    inputs: tuple[Tensor | int, ...]
    sums: LossSums
    gradients: dict[int, Tensor]
    replay: Callable[[], None]

    def __call__(self, inputs: tuple[Tensor | int, ...]) -> LossSums:
        for fixed, tensor in zip(self.inputs, inputs, strict=True):
            if isinstance(fixed, Tensor) and isinstance(tensor, Tensor):
                fixed.copy_(tensor, non_blocking=True)
        self.replay()
        leaves, structure = flatten(tuple(self.sums))
        return LossSums(
            *unflatten(tuple(leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves), structure)
        )


class _FixedSum(Reduction):
    """The sum of the gradients of several micro-batches in fixed memory; those of a single one stay where they are.

    summed: the parameters, by number, that have a gradient in a step of several micro-batches.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._totals: dict[int, Tensor] = {}
        self.summed: frozenset[int] = frozenset()
        self._n = 1

    def micro_batch(self, micro: int, n: int) -> AbstractContextManager[None]:
        if micro == 0:
            self.summed, self._n = frozenset(), n
        return nullcontext()

    @torch.no_grad()
    def add(self) -> None:
        if self._n == 1:
            return
        gradients = self.take()
        for number, gradient in gradients.items():
            if number not in self._totals:
                self._totals[number] = torch.empty_like(gradient)
        first, later = sorted(gradients.keys() - self.summed), sorted(gradients.keys() & self.summed)
        for numbers, into in ((first, torch._foreach_copy_), (later, torch._foreach_add_)):
            if numbers:
                into([self._totals[number] for number in numbers], [gradients[number] for number in numbers])
        self.summed = self.summed.union(gradients)

    def finish(self, n: int) -> None:
        if n > 1:
            self.put({number: self._totals[number] for number in self.summed})

    def take(self) -> dict[int, Tensor]:
        """The gradients by the numbers of their parameters, which have none afterwards."""
        gradients = {number: p.grad for number, p in enumerate(self.parameters) if p.grad is not None}
        self.put({})
        return gradients

    def put(self, gradients: Mapping[int, Tensor]) -> None:
        """The inverse of `take`."""
        for number, p in enumerate(self.parameters):
            p.grad = gradients.get(number)


LENGTHS = 8
"""Lengths of rows that occur after padding, at most."""
TARGETS = 32
"""Numbers of targets that occur after padding, at most, for each shape of the inputs."""


def with_recurring_shapes(
    prepare: Callable[[Rows], Batch], task: nn.Module, context: int, lookahead: int
) -> Callable[[Rows], Batch]:
    """`Objective.prepare`, with more padding and with ignored targets.

    Losses, metrics and gradients stay the same, up to the order of sums and to dropout, whose random numbers are those
    of another shape.
    """

    def prepare_padded(rows: Rows) -> Batch:
        batch = prepare(pad_rows(rows, context, lookahead))
        return task.pad_targets(batch, TARGETS) if isinstance(task, Task) else batch

    return prepare_padded


def pad_rows(rows: Rows, context: int, lookahead: int) -> Rows:
    """Rows whose inputs have a multiple of context / `LENGTHS` tokens, but not more than `context`.

    Text with a lookahead stays as it is: the last token of the longest rows would become an input, and be counted.
    """
    if lookahead and rows.source is None and rows.labels is None:
        return rows
    padded = _padded(rows, context, lookahead)
    return padded if rows.source is None else replace(padded, source=_padded(rows.source, context, 0))


def _padded(rows: Rows, context: int, lookahead: int) -> Rows:
    multiple, length = -(-context // LENGTHS), rows.ids.shape[1] - lookahead
    return rows.padded(max(length, min(context, -(-length // multiple) * multiple)) + lookahead)
