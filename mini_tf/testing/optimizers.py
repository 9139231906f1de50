"""The contract of optimizers, over parameters of every role.

The settings need a learning rate `lr` that minimizes a loss of curvature 1 in 400 steps from a distance of 0.1; in all
other checks gradients are random, with fixed seeds.
"""

from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor

from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter, Role, state_bytes
from mini_tf.testing import Case, cases_of, checks_of

_SHAPES: dict[str, tuple[Role, tuple[int, ...], tuple[int, ...]]] = {
    "matrix": ("matrix", (6, 4), ()),
    "wide": ("matrix", (4, 6), ()),
    "joined": ("matrix", (8, 4), (4, 2, 2)),
    "table": ("embedding", (5, 4), ()),
    "ngrams": ("features", (5, 2), ()),
    "head": ("head", (5, 4), ()),
    "narrow": ("adapter", (2, 4), ()),
    "norm": ("vector", (4,), ()),
}
"""By name: role, shape, and rows of the parts."""
_DECAYED = ("matrix", "wide", "joined", "head", "narrow")
_LR = 0.01


def minimizes_a_quadratic(settings: OptimizerSettings) -> None:
    """The loss |p - target|^2 / 2 falls from the first steps on, and ends near 0 if the learning rate falls to 0."""
    parameters = _parameters(rates=False)
    with torch.no_grad():
        targets = {
            name: p.tensor + 0.1 * drawn / drawn.norm()
            for name, p in parameters.items()
            for drawn in [_drawn(name, 1, p)]
        }
    optimizer = _without_decay(settings).build(parameters)
    losses: dict[str, list[float]] = {name: [] for name in parameters}
    for step in range(400):
        for name, p in parameters.items():
            p.tensor.grad = p.tensor.detach() - targets[name]
            losses[name].append(p.tensor.grad.square().sum().item() / 2)
        optimizer.step(settings.lr * (1 - step / 400))
    for name, curve in losses.items():
        assert curve[10] < curve[0], f"{name}: the loss must fall within 10 steps: {curve[10]:.3g} after {curve[0]:.3g}"
        assert curve[-1] < 0.01 * curve[0], (
            f"{name}: the loss must come near 0 in 400 steps: {curve[-1]:.3g} after {curve[0]:.3g}"
        )


def is_deterministic_to_the_bit(settings: OptimizerSettings) -> None:
    """The same gradients give the same weights and state."""
    first, second = (_stepped(settings, range(4)) for _ in range(2))
    _equal(_all(first), _all(second), "two runs of the same steps")


def continues_from_its_saved_state_to_the_bit(settings: OptimizerSettings) -> None:
    """Saving and loading after any step does not change later steps."""
    whole = _all(_stepped(settings, range(5)))
    for cut in range(5):
        first = _stepped(settings, range(cut))
        saved = {name: tensor.clone() for name, tensor in first.state_tensors().items()}
        second = settings.build(
            {name: p._replace(tensor=p.tensor.detach().clone()) for name, p in first.parameters.items()}
        )
        second.load(saved)
        _equal(_all(_steps(second, range(cut, 5))), whole, f"a run continued after step {cut} and one without a break")


def allocates_the_declared_state_bytes(settings: OptimizerSettings) -> None:
    """`state_bytes` equals the state's size after some steps; its tensors are named after their parameters."""
    optimizer = _stepped(settings, range(3))
    tensors = {name: tensor for name, tensor in optimizer.state_tensors().items() if name != "step"}
    allocated = sum(t.numel() * t.element_size() for t in tensors.values())
    declared = state_bytes(settings, _parameters())
    assert allocated == declared, (
        f"the state must take the {declared} bytes that Settings.moments declares: {allocated}"
    )
    misnamed = [name for name in tensors if name.rpartition(".")[0] not in _SHAPES]
    assert not misnamed, f"a tensor of the state must be named PARAMETER.MOMENT: {misnamed}"


def refuses_mismatched_state(settings: OptimizerSettings) -> None:
    """Another name, shape or dtype raises ValueError, and nothing is loaded."""
    optimizer = _stepped(settings, range(2))
    before = {name: tensor.clone() for name, tensor in _all(optimizer).items()}
    fitting = {name: tensor.clone() + 1 for name, tensor in optimizer.state_tensors().items()}
    name = list(fitting)[-1]
    mismatched = [
        {other: tensor for other, tensor in fitting.items() if other != name},
        fitting | {"another.moment": torch.zeros(3)},
        fitting | {name: fitting[name][None]},
        fitting | {name: fitting[name].to(torch.float16)},
    ]
    for tensors in mismatched:
        try:
            optimizer.load(tensors)
        except ValueError:
            _equal(_all(optimizer), before, "the state before and after a refused load")
        else:
            raise AssertionError("load must raise ValueError for a state of other names, shapes or types")


def skips_parameters_without_gradient(settings: OptimizerSettings) -> None:
    """Parameters without a gradient, and their state, are unchanged, also if no parameter has one."""
    for idle in [*([name] for name in _SHAPES), list(_SHAPES)]:
        optimizer = _stepped(settings, range(2))
        before = {name: tensor.clone() for name, tensor in _all(optimizer).items() if name.partition(".")[0] in idle}
        _steps(optimizer, range(2, 4), idle)
        message = "a parameter before and after steps without its gradient"
        _equal({name: _all(optimizer)[name] for name in before}, before, message)


def returns_the_gradient_norm(settings: OptimizerSettings) -> None:
    """The norm of all gradients as one vector; `zero_grad` drops them."""
    optimizer = settings.build(_parameters())
    _draw_gradients(optimizer.parameters, 0, idle=["wide"])
    grads = [p.grad.flatten() for name, p in optimizer.parameters.items() if name != "wide"]
    norm, expected = optimizer.grad_norm(), torch.cat(grads).norm()
    assert norm.shape == (), f"the norm must have no axes: {list(norm.shape)}"
    assert torch.allclose(norm, expected), f"the norm must be that of all gradients, {expected:.6g}: {norm:.6g}"
    optimizer.zero_grad()
    assert all(p.tensor.grad is None for p in optimizer.parameters.values()), "zero_grad must leave no gradient"


def multiplies_gradients_by_the_factor(settings: OptimizerSettings) -> None:
    """A step with a factor, as in clipping, equals a step with scaled gradients."""
    optimizer, scaled = (settings.build(_parameters()) for _ in range(2))
    for step, factor in enumerate((0.25, 1.0, 2.0)):
        _draw_gradients(optimizer.parameters, step)
        _draw_gradients(scaled.parameters, step, factor=factor)
        optimizer.step(_LR, factor)
        scaled.step(_LR)
    _close(optimizer, scaled, "steps with a factor and steps with scaled gradients")


def takes_numbers_on_the_device(settings: OptimizerSettings) -> None:
    """If it is CAPTURABLE: tensors for learning rate, factor and step give the same steps; `step_count` is not read."""
    if not settings.CAPTURABLE:
        return
    numbers, tensors = (settings.build(_parameters()) for _ in range(2))
    for step, (lr, factor) in enumerate(((_LR, 1.0), (2 * _LR, 0.25), (_LR, 3.0)), 1):
        for optimizer in (numbers, tensors):
            _draw_gradients(optimizer.parameters, step, idle=["wide"] if step == 2 else [])
        numbers.step(lr, factor)
        tensors.set_step(step)
        tensors.step_count = 10**6  # as a graph that was captured in another step
        tensors.apply(torch.tensor(lr), torch.tensor(factor))
        tensors.step_count = step
    _close(numbers, tensors, "steps with numbers and steps with tensors")


def scales_the_learning_rate_of_each_parameter(settings: OptimizerSettings) -> None:
    """A parameter of rate 1/2 is updated as with half the learning rate."""
    half = {name: p._replace(lr_scale=0.5) for name, p in _parameters().items()}
    whole = {name: p._replace(lr_scale=1.0) for name, p in _parameters().items()}
    slow, slowed = settings.build(half), settings.build(whole)
    for step in range(3):
        for optimizer, lr in ((slow, _LR), (slowed, _LR / 2)):
            _draw_gradients(optimizer.parameters, step)
            optimizer.step(lr)
    _close(slow, slowed, "parameters of rate 1/2, and half the learning rate for all")


def changes_nothing_at_learning_rate_zero(settings: OptimizerSettings) -> None:
    before = {name: p.tensor.detach() for name, p in _parameters().items()}
    optimizer = _stepped(settings, range(3), lr=0.0)
    message = "weights before and after steps at learning rate 0"
    _equal({name: p.tensor for name, p in optimizer.parameters.items()}, before, message)


def decays_matrices_and_nothing_else(settings: OptimizerSettings) -> None:
    """With zero gradients, weight decay shrinks matrices, heads and adapters, and leaves embeddings and vectors."""
    plain, decayed = (settings.model_copy(update={"weight_decay": decay}).build(_parameters()) for decay in (0.0, 0.5))
    for optimizer in (plain, decayed):
        for p in optimizer.parameters.values():
            p.tensor.grad = torch.zeros_like(p.tensor)
        optimizer.step(_LR)
    for name, p in decayed.parameters.items():
        other = plain.parameters[name].tensor
        if name in _DECAYED:
            assert p.tensor.norm() < other.norm(), f"{name}: weight_decay must make a {p.role} smaller"
        else:
            assert torch.equal(p.tensor, other), f"{name}: weight_decay must not change a {p.role}"


def supports_every_matmul_dtype(settings: OptimizerSettings) -> None:
    """Weights stay fp32 and finite whatever the dtype of the forward pass, also with gradients beyond fp16."""
    for products in (torch.float32, torch.bfloat16, torch.float16):
        optimizer = _steps(settings.build(_parameters(), products), range(1))
        _draw_gradients(optimizer.parameters, 1, factor=1e6)
        optimizer.step(_LR)
        for name, p in optimizer.parameters.items():
            assert p.tensor.dtype == torch.float32, (
                f"{name}: weights must stay float32 with matmuls in {products}: {p.tensor.dtype}"
            )
            assert p.tensor.isfinite().all(), f"{name}: weights must stay finite with matmuls in {products}"


def updates_parameters_of_one_role_alone(settings: OptimizerSettings) -> None:
    """A model may have no matrices, or all parameters but one frozen."""
    for role in get_args(Role):
        optimizer = settings.build({name: p for name, p in _parameters().items() if p.role == role})
        before = {name: p.tensor.detach().clone() for name, p in optimizer.parameters.items()}
        _steps(optimizer, range(2))
        still = [name for name, p in optimizer.parameters.items() if torch.equal(p.tensor, before[name])]
        assert not still, f"parameters of role {role} must be updated without any others: {still} are not"


def updates_rows_by_themselves_unless_it_needs_the_whole(settings: OptimizerSettings) -> None:
    """Rows that several processes have give the weights and the state of the whole, if not `needs_whole`."""
    if not (divided := {name: p for name, p in _parameters().items() if not settings.needs_whole(p)}):
        return
    whole, sizes = settings.build(divided), {name: [2, p.tensor.shape[0] - 2, 0] for name, p in divided.items()}
    blocks = [
        settings.build(
            {name: p._replace(tensor=p.tensor.detach().split(sizes[name])[i].clone()) for name, p in divided.items()}
        )
        for i in range(3)
    ]
    for step in range(3):
        _draw_gradients(whole.parameters, step)
        for i, block in enumerate(blocks):
            for name, p in block.parameters.items():
                p.tensor.grad = whole.parameters[name].grad.split(sizes[name])[i].clone()
            block.step(_LR)
        whole.step(_LR)
    of_blocks = [_all(block) for block in blocks]
    for name, tensor in _all(whole).items():
        joined = torch.cat([block[name] for block in of_blocks]) if name != "step" else tensor
        same = joined.shape == tensor.shape and torch.allclose(joined, tensor, rtol=1e-5, atol=1e-6)
        assert same, f"{name}: rows by themselves must give what the whole gives; else `needs_whole` must be True"


CONTRACT = checks_of(__name__)


def cases(settings: OptimizerSettings) -> list[Case]:
    """All checks for an optimizer of these settings."""
    return cases_of(CONTRACT, settings)


def _seeded(*words: object) -> torch.Generator:
    return torch.Generator().manual_seed(sum(ord(letter) * 31**i for i, letter in enumerate(repr(words))) % 2**31)


def _drawn(name: str, step: int, p: Parameter) -> Tensor:
    return torch.randn(p.tensor.shape, generator=_seeded(name, step))


def _parameters(rates: bool = True) -> dict[str, Parameter]:
    """Fixed parameters of every role and shape; rates: some rates differ from 1."""
    made = {}
    for i, (name, (role, shape, rows)) in enumerate(_SHAPES.items()):
        tensor = torch.randn(shape, generator=_seeded(name)).requires_grad_()
        made[name] = Parameter(tensor, role, 0.8**i if rates else 1.0, rows)
    return made


def _draw_gradients(parameters: Mapping[str, Parameter], step: int, idle: Any = (), factor: float = 1.0) -> None:
    for name, p in parameters.items():
        p.tensor.grad = None if name in idle else factor * _drawn(name, step, p)


def _steps(optimizer: Optimizer, steps: range, idle: Any = (), lr: float = _LR) -> Optimizer:
    for step in steps:
        _draw_gradients(optimizer.parameters, step, idle)
        optimizer.step(lr)
    return optimizer


def _stepped(settings: OptimizerSettings, steps: range, lr: float = _LR) -> Optimizer:
    return _steps(settings.build(_parameters()), steps, lr=lr)


def _without_decay(settings: OptimizerSettings) -> OptimizerSettings:
    return settings.model_copy(update={"weight_decay": 0.0})


def _all(optimizer: Optimizer) -> dict[str, Tensor]:
    """Weights and state by name."""
    return {name: p.tensor.detach() for name, p in optimizer.parameters.items()} | optimizer.state_tensors()


def _equal(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], subject: str) -> None:
    assert actual.keys() == expected.keys(), f"{subject}: {sorted(actual.keys() ^ expected.keys())} on one side only"
    different = [name for name, tensor in actual.items() if not torch.equal(tensor, expected[name])]
    assert not different, f"{subject} must be equal to the bit: {different} differ"


def _close(optimizer: Optimizer, other: Optimizer, subject: str) -> None:
    for name, p in optimizer.parameters.items():
        expected = other.parameters[name].tensor
        assert torch.allclose(p.tensor, expected, rtol=1e-5, atol=1e-6), (
            f"{subject} must give the same {name}: {p.tensor} != {expected}"
        )
