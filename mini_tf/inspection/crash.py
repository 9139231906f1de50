"""A step that diverged, done again: where the first value that is not finite comes from, forward or backward.

Hooks listen to every module and every gradient while the training loop itself does the step, so nothing is done otherwise.
Costs three such steps at most.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from mini_tf.nn.block import Block
from mini_tf.nn.layers.embedding import Embedding
from mini_tf.nn.mixer import ForwardOutput
from mini_tf.training.loop import DivergedStep, Progress, Training, train


@dataclass(frozen=True)
class ReplayResult:
    """How the step ended. what: what was wrong with it, None where nothing was; micro-batches count from 0."""

    what: str | None
    micro: int | None
    loss: float
    grad_norm: float


@dataclass(frozen=True)
class Source:
    """The first module whose output is not finite. went_in: the largest |value| it was given, None where it read no numbers;
    share: of its output that is not finite."""

    module: str
    kind: str
    micro: int
    went_in: float | None
    share: float


@dataclass(frozen=True)
class BadGradient:
    """A parameter whose gradient is not finite, in which micro-batch first, and how much of it."""

    parameter: str
    micro: int
    share: float


@dataclass
class Level:
    """largest: the largest finite |value| that came out of a layer; not_finite: how many were not; weight: its largest |weight|."""

    module: str
    kind: str
    largest: float = 0.0
    not_finite: int = 0
    weight: float = 0.0


@dataclass(frozen=True)
class Findings:
    """outcome: of the very same step; source, gradients (in the order they were made) and levels: of it, not compiled.

    in_fp32: of the step where no product is computed in half precision, None where none was. weights: names of those that
    were not finite before the step.
    """

    outcome: ReplayResult
    source: Source | None
    gradients: list[BadGradient]
    levels: list[Level]
    in_fp32: ReplayResult | None
    weights: list[str]


@dataclass
class _Listener:
    """Collects while its hooks are on the task."""

    task: nn.Module
    names: dict[nn.Module, str] = field(default_factory=dict)
    micro: int = -1
    source: Source | None = None
    gradients: dict[str, BadGradient] = field(default_factory=dict)
    levels: dict[str, Level] = field(default_factory=dict)

    def began(self, task: nn.Module, given: tuple[Any, ...]) -> None:
        self.micro += 1

    def passed(self, module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        found = list(_floats(output))
        if isinstance(module, (Embedding, Block)):
            self._measure(module, found)
        values = sum(tensor.numel() for tensor in found)
        bad = sum(_not_finite(tensor) for tensor in found)
        if bad and self.source is None:
            went_in = [_largest(tensor) for tensor in _floats(given)]
            self.source = Source(self.names[module], type(module).__name__, self.micro, max(went_in, default=None), bad / values)

    def _measure(self, module: nn.Module, found: list[Tensor]) -> None:
        name = self.names[module]
        weights = [_largest(p.detach()) for p in module.parameters()]
        level = self.levels.setdefault(name, Level(name, type(module).__name__, weight=max(weights, default=0.0)))
        level.largest = max([level.largest, *map(_largest, found)])
        level.not_finite += sum(map(_not_finite, found))

    def flowed(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        if name not in self.gradients and (bad := _not_finite(parameter.grad)):
            self.gradients[name] = BadGradient(name, self.micro, bad / parameter.numel())


def investigate(training: Training, start: Progress) -> Findings:
    """Do the step after `start` again, with the weights as they are now; they stay so."""
    weights = [name for name, p in training.task.named_parameters() if _not_finite(p.detach())]
    outcome = _once(training, start)
    listener = _Listener(training.task)
    plain = replace(training, setup=replace(training.setup, compile=False))
    with ExitStack() as hooks:
        for hook in _listen(listener):
            hooks.enter_context(hook)
        _once(plain, start)
    in_fp32 = None
    if training.setup.precision != "fp32":
        in_fp32 = _once(replace(plain, setup=replace(plain.setup, precision="fp32")), start)
    return Findings(outcome, listener.source, [*listener.gradients.values()], [*listener.levels.values()], in_fp32, weights)


def _once(training: Training, start: Progress) -> ReplayResult:
    """The step as training does it, and what it made of the weights undone."""
    before = {name: p.detach().clone() for name, p in training.task.named_parameters()}
    try:
        # A clock that stands still: where time is the horizon, it is not over before the step.
        with closing(train(training, start, clock=lambda: 0.0)) as steps:
            report = next(steps)
        return ReplayResult(None, None, report.loss, report.grad_norm)
    except DivergedStep as fault:
        return ReplayResult(fault.problem.what, fault.problem.micro, fault.report.loss, fault.report.grad_norm)
    finally:
        _restore(training.task, before)


@torch.no_grad()
def _restore(task: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, parameter in task.named_parameters():
        parameter.copy_(before[name])
        parameter.grad = None


def _listen(listener: _Listener) -> Iterator[RemovableHandle]:
    task = listener.task
    # Innermost first: a container is heard after what it holds. The model's own name is left out, it stands before all.
    listener.names = {module: name.removeprefix("model.") or "the loss" for name, module in task.named_modules()}
    yield task.register_forward_pre_hook(listener.began)
    yield from (module.register_forward_hook(listener.passed) for module in task.modules())
    for name, parameter in task.named_parameters():
        if parameter.requires_grad:
            short = name.removeprefix("model.")
            yield parameter.register_post_accumulate_grad_hook(lambda p, short=short: listener.flowed(short, p))


def _floats(value: Any) -> Iterator[Tensor]:
    """The tensors of numbers that a module takes or gives; of a mixer's answer not the state that it hands on."""
    if isinstance(value, ForwardOutput):
        value = (value.y, value.penalty)
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value.detach()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _floats(item)
    elif isinstance(value, Mapping):
        yield from _floats([*value.values()])


def _not_finite(tensor: Tensor) -> int:
    return int(tensor.numel() - tensor.isfinite().sum())


def _largest(tensor: Tensor) -> float:
    """The largest |value| that is finite; 0 where there is none."""
    return float(tensor.float().abs().nan_to_num(0.0, 0.0, 0.0).max()) if tensor.numel() else 0.0
