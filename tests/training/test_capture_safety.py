"""No step waits for the device or has an operation without a deterministic kernel: no objective, model or mixer.

A graph holds what a GPU does, not what the host decides; so a replay on other numbers has the bits of a pass on them.
"""

from typing import Any

import pytest
import torch
from tape import Tapes, Waiting
from test_compiled import MODELS, OTHER_MIXERS, with_cross_attention
from test_deterministic import Operations, deterministic
from torch import Tensor, nn
from torch.testing import assert_close
from toys import with_every_mixer

from mini_tf.data.batch import Batch
from mini_tf.nn.layers import attention_kernels
from mini_tf.nn.model import ModelSettings
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums
from mini_tf.objectives._token_loss import TokenLoss
from mini_tf.papers.diminishing.attention import diminishing
from mini_tf.papers.performer import linear_attention
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny import models as tiny_models
from mini_tf.testing.tiny.models import random_ids, source_for, tiny_model
from mini_tf.testing.tiny.objectives import tiny_objective
from mini_tf.training.machine.compiled import flatten, unflatten

__all__ = ["deterministic"]  # a fixture

SEGMENTS = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [1] * 6 + [0] * 3])


@pytest.fixture(autouse=True)
def as_elsewhere_than_on_a_cpu(deterministic: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU reads sizes and checks lengths where a GPU, or a compiled graph, does without."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def forward_backward(task: nn.Module, batch: Batch) -> tuple[LossSums, dict[str, Tensor]]:
    for p in task.parameters():
        p.grad = None
    sums = task(batch)
    torch.stack([*sums.parts.values()]).sum().backward()
    return LossSums({name: part.detach() for name, part in sums.parts.items()}, sums.metrics, None), {
        name: p.grad for name, p in task.named_parameters() if p.grad is not None
    }


def check(task: nn.Module, first: Batch, second: Batch) -> None:
    """A graph of the first batch, replayed on the second one; and all operations have deterministic kernels."""
    torch.manual_seed(3)
    with Waiting(), Operations() as operations:
        expected = forward_backward(task, second)
    assert operations.refused == set()
    leaves, structure = flatten(first)
    others, _ = flatten(second)
    fixed = tuple(leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves)
    result, replay = Tapes().record(lambda: forward_backward(task, unflatten(fixed, structure)))
    for into, tensor in zip(fixed, others, strict=True):
        assert isinstance(into, Tensor) or into == tensor
        if isinstance(into, Tensor):
            into.copy_(tensor)
    torch.manual_seed(3)
    replay()
    assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", listing("objectives"))
def test_no_objective_waits_for_the_device_or_adds_in_any_order(kind: str) -> None:
    case = tiny_objective(settings_of("objectives", kind)())
    batch = case.objective.prepare(case.rows)
    check(case.task.train(), batch, batch)


def check_packed(settings: ModelSettings) -> None:
    """On packed rows with padding, whose targets are some of the tokens."""
    model = tiny_model(settings).train()
    targets = (SEGMENTS != 0).flatten().nonzero().squeeze(1)

    def batch(seed: int) -> Batch:
        labels = random_ids(seed=seed + 1).flatten()[targets]
        return Batch(Tokens(random_ids(seed=seed), TokenPositions.packed(SEGMENTS)), labels, targets, source_for(model))

    check(TokenLoss(model, "loss"), batch(0), batch(7))


@pytest.mark.parametrize("kind", MODELS)
def test_no_mixer_waits_for_the_device_or_adds_in_any_order(kind: str) -> None:
    check_packed(with_every_mixer(kind))


@pytest.mark.parametrize("mixer", OTHER_MIXERS)
def test_no_cross_attention_waits_for_the_device_or_adds_in_any_order(mixer: str) -> None:
    check_packed(with_cross_attention(mixer))


@pytest.mark.parametrize(
    ("kind", "model"), [("softmax", "decoder"), ("linear", "decoder"), ("diminishing", "encoder_decoder")]
)
def test_attention_that_is_recomputed_in_the_backward_pass_is_captured(
    kind: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of long rows, here of short ones."""
    recomputed = list[object]()
    checkpoint = attention_kernels.checkpoint

    def noted(function: Any, *arguments: Any, **keywords: Any) -> Any:
        recomputed.append(function)
        return checkpoint(function, *arguments, **keywords)

    monkeypatch.setattr(attention_kernels, "checkpoint", noted)
    for module in (attention_kernels, diminishing):
        monkeypatch.setattr(module, "MASK_ELEMENTS", 70)
    monkeypatch.setattr(linear_attention, "CHUNK", 2)
    small: Any = settings_of("models", model)
    mixer: Any = settings_of("attention", kind)()
    [settings, *_] = tiny_models.every_mixer(small(d_model=16, n_layers=1, n_heads=2), [mixer])
    network = tiny_model(settings).train()

    def batch(seed: int) -> Batch:
        inputs = Tokens(random_ids(seed=seed), TokenPositions.packed(SEGMENTS))
        return Batch(inputs, random_ids(seed=seed + 1).flatten(), None, source_for(network))

    check(TokenLoss(network, "loss"), batch(0), batch(7))
    assert recomputed


@pytest.mark.parametrize("kind", listing("positions"))
def test_no_positional_encoding_waits_for_the_device(kind: str) -> None:
    settings: Any = settings_of("models", "decoder")
    [model] = tiny_models.every_mixer(
        settings(d_model=16, n_layers=1, n_heads=2, positions=settings_of("positions", kind)()), [softmax()]
    )
    batches = [
        Batch(Tokens(random_ids(seed=seed), TokenPositions.packed(SEGMENTS)), random_ids(seed=seed).flatten())
        for seed in (0, 1)
    ]
    check(TokenLoss(tiny_model(model).train(), "loss"), *batches)


def softmax() -> Any:
    return settings_of("attention", "softmax")()
