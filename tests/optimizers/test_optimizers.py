"""The contract of optimizers over every kind, over two of other people's, and against kinds that break it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUIET, TINY, minitf
from safetensors.torch import load_file
from strangers import strangers, words
from torch import Tensor

from mini_tf.optimizers import Optimizer, OptimizerSettings, Parameter, adamw, state_bytes
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing import optimizers as contract
from mini_tf.testing import run_all

__all__ = ["strangers"]


def settings_for(kind: str, **given: Any) -> OptimizerSettings:
    settings = settings_of("optimizers", kind)(**given)
    assert isinstance(settings, OptimizerSettings)
    return settings


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("kind", [*listing("optimizers"), *words("optimizers")])
def test_every_optimizer(kind: str) -> None:
    run_all(contract.cases(settings_for(kind)))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_those_that_update_features_by_adagrad(kind: str) -> None:
    cases = contract.cases(settings_for(kind, features_lr=0.2))
    run_all(case for case in cases if case.name != "minimizes_a_quadratic")


@pytest.mark.parametrize(("kind", "eps"), [("adamw", 1e-10), ("adamw", 0.1), ("muon", 0.1)])
def test_features_move_as_by_adagrad_of_torch(kind: str, eps: float) -> None:
    """Rows without a gradient keep still, and the rates of other parameters do not matter."""
    features, other, expected = (torch.ones(6, 2, requires_grad=True) for _ in range(3))
    settings = settings_for(kind, features_lr=0.3, features_eps=eps, lr=0.01)
    scale = settings.lr_of("features") / settings.lr
    optimizer = settings.build(
        {"features": Parameter(features, "features", scale), "other": Parameter(other, "embedding")}
    )
    theirs = torch.optim.Adagrad([expected], lr=0.3, eps=eps)
    for step in range(4):
        drawn = (
            torch.randn(6, 2, generator=torch.Generator().manual_seed(step))
            * (torch.arange(6) % (step + 1) == 0)[:, None]
        )
        for tensor in (features, other, expected):
            tensor.grad = drawn.clone()
        optimizer.step(0.01)
        theirs.step()
    torch.testing.assert_close(features, expected)
    assert not torch.allclose(other, expected)
    assert optimizer.state_tensors()["features.sum"].shape == (6, 2)
    with_adam = settings_for(kind).build({"features": Parameter(features, "features")}).state_tensors()
    assert sorted(with_adam) == ["features.exp_avg", "features.exp_avg_sq", "step"]


@pytest.mark.parametrize(
    ("kind", "given", "rates"),
    [  # of matrices, embeddings, features, heads, adapters and vectors
        ("adamw", {"lr": 1}, (1, 1, 1, 1, 1, 1)),
        ("adamw", {"lr": 1, "embedding_lr": 2, "head_lr": 3}, (1, 2, 2, 3, 1, 1)),
        ("adamw", {"lr": 1, "embedding_lr": 2, "head_lr": 3, "features_lr": 4}, (1, 2, 4, 3, 1, 1)),
        ("muon", {"lr": 1}, (1, 1, 1, 1, 1, 1)),
        ("muon", {"lr": 1, "embedding_lr": 2, "head_lr": 3}, (1, 2, 2, 3, 3, 3)),
    ],
)
def test_every_role_has_its_learning_rate(kind: str, given: dict[str, float], rates: tuple[float, ...]) -> None:
    roles = ("matrix", "embedding", "features", "head", "adapter", "vector")
    assert tuple(settings_for(kind, **given).lr_of(role) for role in roles) == rates


class Plain(OptimizerSettings):
    """Descent along a mean of gradients; `Broken` ones below differ from it in one thing."""

    CAPTURABLE = True

    def moments(self, parameter: Parameter) -> dict[str, Tensor]:
        return {"mean": parameter.zeros()}

    def needs_whole(self, parameter: Parameter) -> bool:
        return False

    def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> "Optimizer":
        return Descent(self, parameters)


class Descent(Optimizer):
    def __init__(self, settings: OptimizerSettings, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(settings, parameters)
        self.settings = settings

    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for name, p in parameters.items():
            self.one(name, p, lr * p.lr_scale)

    def one(self, name: str, p: Parameter, lr: float) -> None:
        p.tensor.mul_(1 - lr * self.settings.weight_decay_of(p))
        p.tensor.sub_(lr * self.state[name]["mean"].lerp_(p.grad, 0.5))


class Uphill(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, -lr)


class Tired(Descent):
    """Stops after eleven steps."""

    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, lr if int(self.step_count) <= 11 else 0.0)


class Random(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, lr)
        p.tensor.sub_(lr * torch.rand_like(p.tensor))


class Forgetful(Descent):
    """Keeps a mean that it does not save."""

    def one(self, name: str, p: Parameter, lr: float) -> None:
        hidden = self.__dict__.setdefault("hidden", {})
        hidden[name] = hidden.get(name, 0) + p.grad
        p.tensor.sub_(lr * hidden[name])


class Growing(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, lr)
        self.state[name]["more"] = p.tensor.clone()


class Careless(Descent):
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state_tensors().items():
            if name in tensors:
                tensor.copy_(tensors[name].reshape(tensor.shape))
        self.step_count = int(tensors["step"])


class Restless(Descent):
    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        super().update(parameters, lr)
        for name, p in self.parameters.items():
            p.tensor.sub_(lr * self.state[name]["mean"])


class Deaf(Descent):
    """Sums the norms."""

    def grad_norm(self) -> Tensor:
        return torch.stack([p.grad.norm() for p in self.parameters.values() if p.tensor.grad is not None]).sum()


class Unclipped(Descent):
    def step(self, lr: float, grad_factor: float = 1.0) -> None:
        super().step(lr)


class OneRate(Descent):
    def update(self, parameters: Mapping[str, Parameter], lr: float) -> None:
        for name, p in parameters.items():
            self.one(name, p, lr)


class OwnRate(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, lr + 1e-4)


class DecaysAll(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        p.tensor.mul_(1 - lr * self.settings.weight_decay)
        p.tensor.sub_(lr * self.state[name]["mean"].lerp_(p.grad, 0.5))


class DecaysNothing(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        p.tensor.sub_(lr * self.state[name]["mean"].lerp_(p.grad, 0.5))


class Overflowing(Descent):
    """Multiplies in the type that it is given."""

    matmul_dtype = torch.float32

    def one(self, name: str, p: Parameter, lr: float) -> None:
        p.tensor.sub_(lr * (p.grad.to(self.matmul_dtype) * 6e4) * 6e4)


class Normalized(Descent):
    """Steps of one length a parameter, so a row moves less if the others have larger gradients."""

    def one(self, name: str, p: Parameter, lr: float) -> None:
        p.tensor.grad = p.grad / (p.grad.norm() + 1e-12)
        super().one(name, p, lr)


class CountsOnTheHost(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        super().one(name, p, lr / self.step_count)


class NeedsMatrices(Descent):
    def one(self, name: str, p: Parameter, lr: float) -> None:
        if any(other.role == "matrix" for other in self.parameters.values()):
            super().one(name, p, lr)


BROKEN: dict[str, tuple[type[Descent], str]] = {
    "minimizes_a_quadratic": (Uphill, "the loss must fall within 10 steps"),
    "is_deterministic_to_the_bit": (Random, "two runs of the same steps must be equal to the bit"),
    "continues_from_its_saved_state_to_the_bit": (Forgetful, "a run continued after step 1 and one without a break"),
    "allocates_the_declared_state_bytes": (Growing, "the 568 bytes that Settings.moments declares: 1136"),
    "refuses_mismatched_state": (Careless, "load must raise ValueError"),
    "skips_parameters_without_gradient": (Restless, "before and after steps without its gradient must be equal"),
    "returns_the_gradient_norm": (Deaf, "the norm must be that of all gradients"),
    "multiplies_gradients_by_the_factor": (Unclipped, "steps with a factor and steps with scaled gradients"),
    "takes_numbers_on_the_device": (CountsOnTheHost, "steps with numbers and steps with tensors must give the same"),
    "scales_the_learning_rate_of_each_parameter": (OneRate, "parameters of rate 1/2, and half the learning rate"),
    "changes_nothing_at_learning_rate_zero": (OwnRate, "before and after steps at learning rate 0 must be equal"),
    "decays_matrices_and_nothing_else": (DecaysAll, "table: weight_decay must not change a embedding"),
    "supports_every_matmul_dtype": (Overflowing, "weights must stay finite with matmuls in torch.float16"),
    "updates_parameters_of_one_role_alone": (NeedsMatrices, "parameters of role embedding must be updated without"),
    "updates_rows_by_themselves_unless_it_needs_the_whole": (Normalized, "matrix: rows by themselves must give what"),
}


def broken(optimizer: type[Descent]) -> OptimizerSettings:
    """Settings that build `optimizer`."""

    class Settings(Plain):
        def build(self, parameters: Mapping[str, Parameter], matmul_dtype: torch.dtype = torch.float32) -> Optimizer:
            built = optimizer(self, parameters)
            if isinstance(built, Overflowing):
                built.matmul_dtype = matmul_dtype
            return built

    return Settings(lr=0.1)


@pytest.mark.parametrize("holds", contract.CONTRACT, ids=lambda holds: holds.__name__)
def test_one_that_breaks_the_contract_is_told_and_the_same_without_the_fault_is_not(
    holds: Callable[[OptimizerSettings], None],
) -> None:
    fault, told = BROKEN[holds.__name__]
    holds(Plain(lr=0.1))
    with pytest.raises(AssertionError, match=told):
        holds(broken(fault))


def test_one_that_does_not_come_near_the_minimum_is_told() -> None:
    with pytest.raises(AssertionError, match="the loss must come near 0 in 400 steps"):
        contract.minimizes_a_quadratic(broken(Tired))


def test_one_that_never_decays_is_told() -> None:
    with pytest.raises(AssertionError, match="matrix: weight_decay must make a matrix smaller"):
        contract.decays_matrices_and_nothing_else(broken(DecaysNothing))


@pytest.mark.usefixtures("strangers")
def test_moments_of_rows_and_columns_need_the_whole_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer that declares nothing is not divided; one that says wrongly that it may be is refused."""
    settings = settings_for("factored")
    assert settings.needs_whole(Parameter(torch.zeros(3, 5)))
    monkeypatch.setattr(type(settings), "needs_whole", lambda *_: False)
    with pytest.raises(AssertionError, match="rows by themselves must give what the whole gives"):
        contract.updates_rows_by_themselves_unless_it_needs_the_whole(settings)


def test_memory_is_told_by_the_moments_of_each_role() -> None:
    """Of fp32: two tensors for AdamW, one for a matrix of Muon; R + C numbers for one that keeps rows and columns."""
    parameters = {"a.weight": Parameter(torch.zeros(3, 5)), "a.bias": Parameter(torch.zeros(3), "vector")}
    assert state_bytes(adamw.Settings(), parameters) == 4 * (2 * 15 + 2 * 3)
    assert state_bytes(settings_for("muon"), parameters) == 4 * (15 + 2 * 3)


@pytest.mark.usefixtures("strangers")
def test_lion_moves_every_number_by_the_rate_against_the_sign_of_the_mean() -> None:
    optimizer = settings_for("lion", beta1=0.5, beta2=0.9, weight_decay=0.0).build(
        {"w": Parameter(torch.zeros(3), "vector")}
    )
    w = optimizer.parameters["w"].tensor
    for grad in ([1.0, -2.0, 3.0], [-0.05, -1.0, -9.0]):  # the second turns the last number of the mean only
        w.grad = torch.tensor(grad)
        optimizer.step(0.25)
    assert w.tolist() == [-0.5, 0.5, 0.0]


@pytest.mark.usefixtures("strangers")
def test_a_recipe_trains_and_continues_with_kinds_of_other_people(tmp_path: Path) -> None:
    """One file each; their keys are read, listed and told of like all others, and their state is saved."""
    run = tmp_path / "run"
    kinds = ("optimizer={kind: lion, lr: 1e-3, beta2: 0.95}", "schedule={kind: polynomial, power: 3}", "train.steps=4")
    assert minitf("pretrain", TINY, *QUIET, *kinds, "-d", run).exit_code == 0
    assert minitf("pretrain", run, "--extend", "2", "-d", run).exit_code == 0
    saved = load_file(max((run / "checkpoints").glob("*/optimizer.safetensors")))
    names = load_file(run / "model.safetensors")
    assert saved.keys() == {"step"} | {f"{name}.mean" for name in names}
    assert saved["step"] == 6
    keys = {key["name"]: key for key in json.loads(minitf("recipe", "keys", "--json").stdout)["result"]}
    words_of = keys["optimizer.kind"]["type"].removeprefix("one of ").split(", ")
    assert sorted({"adamw", "factored", "lion", "muon"} | {*listing("optimizers")}) == words_of
    assert keys["optimizer.beta2"]["kinds"] == ["lion"]
    refused = minitf("recipe", "check", TINY, "optimizer.kind=lion", "optimizer.orthogonal_steps=3", "schedule.power=2")
    assert "optimizer.orthogonal_steps=3: no such key of this kind; it belongs to muon" in refused.stderr
    assert "schedule.power=2: no such key of this kind; it belongs to polynomial" in refused.stderr
