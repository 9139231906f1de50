"""What processes divide gives what one process has: optimizers by threads, torch's FSDP in forks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import in_processes
from threads import in_threads, process_ranks
from torch import Tensor, nn
from torch.testing import assert_close
from toys import present

from mini_tf.nn.block import Block
from mini_tf.nn.weights import unique_tensors
from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter
from mini_tf.parallel.full_sharding import SHARDINGS, FullSharding, RowOptimizer, is_divided, sharding_of
from mini_tf.parallel.group import ProcessGroup
from mini_tf.parallel.sharding import ShardedOptimizer, Sharding, owners
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny.models import logits_of, random_ids, tiny_model
from mini_tf.training.optimizer import build


class WholeSettings(OptimizerSettings):
    """Needs whole matrices, which it need not say, and begins with the weights."""

    lr: float = 0.1

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        columns = parameter.zeros(parameter.tensor.shape[1]) if parameter.tensor.dim() == 2 else parameter.zeros()
        return {"first": parameter.tensor.detach().clone(), "columns": columns}

    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> "Whole":
        return Whole(self, parameters)


class Whole(Optimizer):
    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for name, p in parameters.items():
            first, columns = self.state[name]["first"], self.state[name]["columns"]
            columns.mul_(0.9).add_(p.grad.square().sum(0) if p.tensor.dim() == 2 else p.grad.square().sum())
            p.tensor.sub_(lr * p.lr_scale * (p.grad / (columns.sqrt() + self.step_count) + 0.1 * (p.tensor - first)))


SETTINGS: dict[str, Callable[[], OptimizerSettings]] = {
    kind: settings_of("optimizers", kind) for kind in listing("optimizers")
}
SETTINGS["whole"] = WholeSettings
SHAPES = {"a": (6, 4), "b": (4, 6), "c": (5,), "d": (6, 4), "e": (40, 3), "f": (1, 4), "gate": ()}
"""By name; of one row some of several processes have none, and a gate has no rows."""
STEPS = 3


def numbers(seed: int) -> dict[str, Tensor]:
    """Of every parameter."""
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()}


def parameter_of(name: str, tensor: Tensor) -> Parameter:
    return Parameter(
        tensor,
        {"e": "embedding"}.get(name, "matrix" if len(SHAPES[name]) == 2 else "vector"),
        0.5 if name == "d" else 1.0,
    )  # type: ignore[arg-type]


def whole(settings: OptimizerSettings) -> Optimizer:
    return settings.build({name: parameter_of(name, tensor.requires_grad_()) for name, tensor in numbers(0).items()})


def stepped(
    optimizer: Optimizer, set_gradients: Callable[[dict[str, Tensor]], None], norms: list[float] | None = None
) -> Optimizer:
    """After three steps; in the second of them some parameters have no gradient."""
    for step in range(STEPS):
        grads = numbers(step + 1)
        set_gradients({name: grad for name, grad in grads.items() if step != 1 or name not in ("a", "f")})
        if norms is not None:
            norms.append(float(optimizer.grad_norm()))
        optimizer.step(0.1, 0.5)
        optimizer.zero_grad()
    return optimizer


def into(optimizer: Optimizer) -> Callable[[dict[str, Tensor]], None]:
    """A function that gives whole parameters their gradients."""

    def set_gradients(grads: dict[str, Tensor]) -> None:
        for name, grad in grads.items():
            optimizer.parameters[name].tensor.grad = grad.clone()

    return set_gradients


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("size", [2, 3])
def test_an_optimizer_whose_state_is_divided_moves_the_weights_as_a_whole_one(kind: str, size: int) -> None:
    settings = SETTINGS[kind]()
    alone = whole(settings)
    stepped(alone, into(alone))
    sizes = {name: sum(tensor.numel() for tensor in moments.values()) for name, moments in alone.state.items()}

    def work(group: ProcessGroup) -> ShardedOptimizer:
        parameters = {name: parameter_of(name, tensor.requires_grad_()) for name, tensor in numbers(0).items()}
        optimizer = ShardedOptimizer(settings, parameters, torch.float32, group)
        stepped(optimizer, into(optimizer))
        return optimizer

    made = in_threads(size, work)
    for optimizer in made:
        own = [
            name for name, moments in optimizer.state.items() if not any(tensor.is_meta for tensor in moments.values())
        ]
        assert sum(sizes[name] for name in own) <= sum(sizes.values()) / size + max(sizes.values())
        for name, p in alone.parameters.items():
            assert_close(optimizer.parameters[name].tensor, p.tensor)
        for name, tensor in optimizer.state_tensors().items():
            expected = alone.state_tensors()[name]
            assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype)
            if not tensor.is_meta:
                assert_close(tensor, expected)
    assert sorted(name for optimizer in made for name in optimizer.inner.state) == sorted(SHAPES)
    for optimizer in made:
        for tensor in optimizer.state_tensors().values():
            tensor.zero_()
        optimizer.step_count = 0
        optimizer.load(alone.state_tensors())
        assert optimizer.step_count == STEPS
        for name, moments in optimizer.inner.state.items():
            for moment, tensor in moments.items():
                assert torch.equal(tensor, alone.state[name][moment])


def test_the_largest_parameters_come_first_each_to_the_process_with_fewest_numbers() -> None:
    assert owners({"b": 5, "a": 5, "large": 9, "small": 1, "none": 0}, 2) == {
        "large": 0,
        "a": 1,
        "b": 1,
        "small": 0,
        "none": 0,
    }
    assert owners({"x": 3, "y": 3, "z": 2}, 3) == {"x": 0, "y": 1, "z": 2}


@pytest.mark.parametrize(
    ("word", "divided", "bytes_of"), [("none", "", 111), ("optimizer", "state", 61), ("full", "weights", 55)]
)
def test_each_sharding_says_what_it_divides_and_what_a_process_has(word: str, divided: str, bytes_of: int) -> None:
    sharding = SHARDINGS[word](ProcessGroup(process_ranks(2)[0]))
    assert divided in sharding.DIVIDES
    assert sharding.bytes_of(10, 1, 100) == bytes_of
    assert sharding.divides_weights == (word == "full")
    assert type(sharding_of(word, ProcessGroup(process_ranks(2)[1]))) is SHARDINGS[word]
    assert type(sharding_of(word, ProcessGroup())) is SHARDINGS["none"]


def by_rows(group: ProcessGroup) -> dict[str, Any]:
    """What each optimizer makes of parameters that are divided by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (group.world_size,))
    sharding = FullSharding(group)

    def divided(tensor: Tensor) -> Tensor:
        return distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.dim() else tensor.clone()

    def of(kind: str) -> Any:
        settings = SETTINGS[kind]()
        tensors = {name: divided(tensor).requires_grad_() for name, tensor in numbers(0).items()}
        optimizer = sharding.optimizer(
            settings, {name: parameter_of(name, tensor) for name, tensor in tensors.items()}, torch.float32
        )
        assert isinstance(optimizer, RowOptimizer)

        def set_gradients(grads: dict[str, Tensor]) -> None:
            for name, grad in grads.items():
                local = divided(grad)
                optimizer.parameters[name].tensor.grad = local.to_local().clone() if is_divided(local) else local  # type: ignore[attr-defined]

        norms = list[float]()
        stepped(optimizer, set_gradients, norms)
        weights = sharding.gather(tensors)
        before = {name: tensor.clone() for name, tensor in sharding.gather(optimizer.state_tensors()).items()}
        state = before if group.is_rank_0 else {}
        own = sum(tensor.numel() for moments in optimizer.inner.state.values() for tensor in moments.values())
        alone = whole(settings)
        stepped(alone, into(alone))
        for moments in optimizer.inner.state.values():
            for tensor in moments.values():
                tensor.zero_()
        optimizer.step_count = 0
        optimizer.load(alone.state_tensors())
        loaded = sharding.gather(optimizer.state_tensors())
        if group.is_rank_0:
            assert loaded.keys() == alone.state_tensors().keys()
            assert all(torch.equal(tensor, alone.state_tensors()[name]) for name, tensor in loaded.items())
        return [norms, as_lists(weights), as_lists(state), own]

    return {kind: of(kind) for kind in SETTINGS}


def as_lists(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in tensors.items() if not tensor.is_meta}


def test_an_optimizer_of_rows_moves_the_weights_as_a_whole_one(tmp_path: Path) -> None:
    """Also one that needs whole matrices; the norm counts what every process has once. Some rows divide evenly."""
    import torch.distributed.tensor  # once, not in every fork

    size = 3
    found = in_processes(size, by_rows, tmp_path)
    for kind, settings in SETTINGS.items():
        alone, norms = whole(settings()), list[float]()
        stepped(alone, into(alone), norms)
        n_numbers = sum(tensor.numel() for moments in alone.state.values() for tensor in moments.values())
        for rank in range(size):
            assert found[rank][kind][0] == pytest.approx(norms, rel=1e-5)
            assert found[rank][kind][3] <= 0.75 * n_numbers
        _, weights, state, _ = found[0][kind]
        for name, p in alone.parameters.items():
            assert_close(torch.tensor(weights[name]), p.tensor.detach(), rtol=1e-5, atol=1e-6, msg=f"{kind} {name}")
        assert state.keys() == alone.state_tensors().keys()
        for name, tensor in alone.state_tensors().items():
            assert_close(
                torch.tensor(state[name], dtype=tensor.dtype), tensor, rtol=1e-5, atol=1e-6, msg=f"{kind} {name}"
            )


SPANS = [{"kind": word, "max_span": 6} for word in present("attention", "expire_span")] or ["softmax"]
MODELS: dict[str, dict[str, Any]] = {
    "decoder": {"attention": SPANS, "n_layers": 2, "d_model": 8, "n_heads": 2},
    "encoder_decoder": {"n_layers": 1, "d_model": 8, "n_heads": 2},
}
OPTIMIZERS: dict[str, OptimizerSettings] = {
    "decoder": WholeSettings(),
    "encoder_decoder": settings_of("optimizers", "muon")(lr=0.02),
}  # type: ignore[dict-item]
N_MICRO, N_STEPS = 5, 2
"""Of two processes one has three micro-batches, and the other calls the model once more than it needs."""


class Loss(nn.Module):
    """The sum of the losses of a micro-batch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.model = tiny_model(settings_of("models", kind).model_validate(MODELS[kind])).float()  # type: ignore[arg-type]

    def forward(self, micro: int) -> Tensor:
        ids = random_ids(seed=micro)
        return torch.nn.functional.cross_entropy(
            logits_of(self.model, ids).flatten(0, 1), ids.flatten(), reduction="sum"
        )


def trained(kind: str, sharding: Sharding) -> dict[str, Any]:
    """Norms of gradients, losses and weights of a training in two steps, with what is expected of the weights on the
    way.
    """
    task = Loss(kind)
    initial = {name: tensor.clone() for name, tensor in unique_tensors(task.model).items()}
    sharding.place(task, torch.device("cpu"))
    optimizer = build(OPTIMIZERS[kind], task.model, sharding=sharding)
    reduction = sharding.reduction("sum", optimizer)
    norms, losses = list[float](), list[float]()
    for _ in range(N_STEPS):
        assigned = reduction.assigned(N_MICRO)
        for micro, weight in [*((micro, 1.0) for micro in assigned), *[(0, 0.0)] * reduction.spare(N_MICRO)]:
            with reduction.micro_batch(micro, N_MICRO):
                (weight * task(micro)).backward()
            reduction.add()
        reduction.finish(N_MICRO)
        norms.append(float(optimizer.grad_norm()))
        optimizer.step(0.02)
        optimizer.zero_grad()
        with torch.no_grad():
            losses.append(float(task(7)))
        divided = [name for name, tensor in unique_tensors(task.model).items() if is_divided(tensor)]
        with sharding.whole():
            if sharding.group.is_rank_0:  # as often as it likes
                losses.append(float(task(8).detach()))
            assert not any(map(is_divided, task.model.parameters()))
        assert divided == [name for name, tensor in unique_tensors(task.model).items() if is_divided(tensor)]
    weights = as_lists(sharding.gather(unique_tensors(task.model)))
    sharding.copy(unique_tensors(task.model), initial)
    copied = sharding.gather(unique_tensors(task.model))
    assert not sharding.group.is_rank_0 or all(torch.equal(tensor, initial[name]) for name, tensor in copied.items())
    return {"norms": norms, "losses": losses, "weights": weights, "divided": divided}


@pytest.mark.parametrize("kind", MODELS)
def test_weights_that_are_divided_train_as_whole_ones(kind: str, tmp_path: Path) -> None:
    import torch.distributed.fsdp

    alone = trained(kind, Sharding(ProcessGroup()))
    several = in_processes(2, lambda group: trained(kind, FullSharding(group)), tmp_path)
    for rank, found in enumerate(several):
        assert found["norms"] == pytest.approx(alone["norms"], rel=1e-4)
        losses = alone["losses"] if rank == 0 else alone["losses"][::2]
        assert found["losses"] == pytest.approx(losses, rel=1e-4)
        whole = {name for name in alone["weights"] if "expire" in name or "span" in name}
        assert {*alone["weights"]} - {*found["divided"]} == whole
    assert several[1]["weights"] == {}
    assert several[0]["weights"].keys() == alone["weights"].keys()
    for name, tensor in alone["weights"].items():
        assert_close(torch.tensor(several[0]["weights"][name]), torch.tensor(tensor), rtol=1e-3, atol=1e-4, msg=name)


def test_a_process_gathers_one_block_with_its_gradients_and_all_that_is_in_none() -> None:
    """Embedding 23 x 8, head bias or not, final norm 8; the numbers of a block are those of its parameters."""
    task = Loss("decoder")
    blocks = [{*block.parameters()} for block in task.modules() if isinstance(block, Block)]
    of_block = [sum(p.numel() for p in block) for block in blocks]
    others = sum(p.numel() for p in task.parameters()) - sum(of_block)
    sharding = FullSharding(ProcessGroup(process_ranks(2)[0]))
    assert of_block[0] == of_block[1] > others > 23 * 8
    assert sharding.gathered_bytes(task) == 4 * (others + 2 * of_block[0])
    for p in task.parameters():
        p.requires_grad_(not any(p in block for block in blocks))
    assert sharding.gathered_bytes(task) == 4 * (others + of_block[0])  # frozen
    for block in blocks:
        for p in block:
            p.data = p.data.new_empty(0)
    assert sharding.gathered_bytes(task) == 4 * (others + others)
    assert Sharding(ProcessGroup()).gathered_bytes(task) == 0
