"""Replay of a step that diverged, to find the first non-finite value of the forward or backward pass.

The training loop runs the step with hooks on every module and gradient. Takes at most three steps.
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
from mini_tf.training.loop import DivergedStep, Progress, train
from mini_tf.training.training import Training


@dataclass(frozen=True)
class ReplayResult:
    """Result of the step. what: the reason why it diverged, or None; micro: the micro-batch, from 0."""

    what: str | None
    micro: int | None
    loss: float
    grad_norm: float


@dataclass(frozen=True)
class NonFiniteOutput:
    """The first module with a non-finite output.

    went_in: largest |value| of its input, None without float inputs; share: fraction of the output that is not finite.
    """

    module: str
    kind: str
    micro: int
    went_in: float | None
    share: float


@dataclass(frozen=True)
class NonFiniteGradient:
    """A parameter with a non-finite gradient: its first micro-batch, and the fraction that is not finite."""

    parameter: str
    micro: int
    share: float


@dataclass
class LayerRange:
    """A layer: its largest finite |output|, number of non-finite outputs, and largest |weight|."""

    module: str
    kind: str
    largest: float = 0.0
    not_finite: int = 0
    weight: float = 0.0


@dataclass(frozen=True)
class CrashReport:
    """outcome: result of the same step; source, gradients (in backward order), levels: of the step without compilation.

    in_fp32: result of the step in fp32, None if the run used fp32. weights: names of parameters that were not finite
    before the step.
    """

    outcome: ReplayResult
    source: NonFiniteOutput | None
    gradients: list[NonFiniteGradient]
    levels: list[LayerRange]
    in_fp32: ReplayResult | None
    weights: list[str]


@dataclass
class _Recorder:
    """Hooks and the values that they record."""

    task: nn.Module
    names: dict[nn.Module, str] = field(default_factory=dict)
    micro: int = -1
    source: NonFiniteOutput | None = None
    gradients: dict[str, NonFiniteGradient] = field(default_factory=dict)
    levels: dict[str, LayerRange] = field(default_factory=dict)

    def start_micro_batch(self, task: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.micro += 1

    def record_output(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = list(_float_tensors(output))
        if isinstance(module, (Embedding, Block)):
            self._measure_range(module, outputs)
        values = sum(tensor.numel() for tensor in outputs)
        bad = sum(_count_non_finite(tensor) for tensor in outputs)
        if bad and self.source is None:
            went_in = [_max_abs(tensor) for tensor in _float_tensors(inputs)]
            self.source = NonFiniteOutput(
                self.names[module], type(module).__name__, self.micro, max(went_in, default=None), bad / values
            )

    def _measure_range(self, module: nn.Module, outputs: list[Tensor]) -> None:
        name = self.names[module]
        weights = [_max_abs(p.detach()) for p in module.parameters()]
        level = self.levels.setdefault(name, LayerRange(name, type(module).__name__, weight=max(weights, default=0.0)))
        level.largest = max([level.largest, *map(_max_abs, outputs)])
        level.not_finite += sum(map(_count_non_finite, outputs))

    def record_gradient(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        if name not in self.gradients and (bad := _count_non_finite(parameter.grad)):
            self.gradients[name] = NonFiniteGradient(name, self.micro, bad / parameter.numel())


def replay_step(training: Training, start: Progress) -> CrashReport:
    """Run the step after `start` with the current weights, which are restored afterwards."""
    weights = [name for name, p in training.task.named_parameters() if _count_non_finite(p.detach())]
    outcome = _run_step(training, start)
    recorder = _Recorder(training.task)
    plain = replace(training, setup=replace(training.setup, compile=False))
    with ExitStack() as hooks:
        for hook in _register_hooks(recorder):
            hooks.enter_context(hook)
        _run_step(plain, start)
    in_fp32 = None
    if training.setup.precision != "fp32":
        in_fp32 = _run_step(replace(plain, setup=replace(plain.setup, precision="fp32")), start)
    return CrashReport(
        outcome, recorder.source, [*recorder.gradients.values()], [*recorder.levels.values()], in_fp32, weights
    )


def _run_step(training: Training, start: Progress) -> ReplayResult:
    """Run one step of training, then restore the weights."""
    before = {name: p.detach().clone() for name, p in training.task.named_parameters()}
    try:
        # A constant clock, so a run with `train.time` does not end before the step.
        with closing(train(training, start, clock=lambda: 0.0)) as steps:
            report = next(steps)
        return ReplayResult(None, None, report.loss, report.grad_norm)
    except DivergedStep as fault:
        return ReplayResult(fault.problem.message, fault.problem.micro, fault.report.loss, fault.report.grad_norm)
    finally:
        _restore(training.task, before)


@torch.no_grad()
def _restore(task: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, parameter in task.named_parameters():
        parameter.copy_(before[name])
        parameter.grad = None


def _register_hooks(recorder: _Recorder) -> Iterator[RemovableHandle]:
    task = recorder.task
    # Hooks of submodules run before those of their container. The prefix of the model itself is left out.
    recorder.names = {module: name.removeprefix("model.") or "the loss" for name, module in task.named_modules()}
    yield task.register_forward_pre_hook(recorder.start_micro_batch)
    yield from (module.register_forward_hook(recorder.record_output) for module in task.modules())
    for name, parameter in task.named_parameters():
        if parameter.requires_grad:
            short = name.removeprefix("model.")
            yield parameter.register_post_accumulate_grad_hook(
                lambda p, short=short: recorder.record_gradient(short, p)
            )


def _float_tensors(value: Any) -> Iterator[Tensor]:
    """Float tensors among the inputs or outputs of a module, without the state of a `ForwardOutput`."""
    if isinstance(value, ForwardOutput):
        value = (value.y, value.penalty)
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value.detach()
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _float_tensors(item)
    elif isinstance(value, Mapping):
        yield from _float_tensors([*value.values()])


def _count_non_finite(tensor: Tensor) -> int:
    return int(tensor.numel() - tensor.isfinite().sum())


def _max_abs(tensor: Tensor) -> float:
    """Largest finite |value|, or 0."""
    return float(tensor.float().abs().nan_to_num(0.0, 0.0, 0.0).max()) if tensor.numel() else 0.0
