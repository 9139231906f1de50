"""A compiled task: one graph without a break for every objective, model and mixer, and the results of the task."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend, reset
from toys import every_mixer, present, small_model, with_every_mixer

from mini_tf.data.batch import Batch
from mini_tf.nn.model import ModelSettings
from mini_tf.nn.state import State, detach
from mini_tf.nn.token_positions import TokenPositions
from mini_tf.nn.tokens import Tokens
from mini_tf.objectives import LossSums
from mini_tf.objectives._token_loss import TokenLoss
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.testing.tiny.models import B, random_ids, source_for, tiny_model
from mini_tf.testing.tiny.objectives import tiny_objective
from mini_tf.training.machine.compiled import CompiledTask, flatten, unflatten
from mini_tf.training.machine.device import Setup

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler

MOST_GRAPHS = 2
"""In a run of rows of one shape: the first row of a stream has an empty state."""


def gradients_of(task: nn.Module, sums: LossSums) -> dict[str, Tensor]:
    task.zero_grad()
    torch.stack([*sums.parts.values()]).sum().backward()
    return {name: p.grad.clone() for name, p in task.named_parameters() if p.grad is not None}


def check(task: nn.Module, batches: list[Batch], state: State | None = None, by: str = "eager") -> None:
    """Compiled and plain, on one batch after another; a state is handed on.

    by: `eager` finds graph breaks; `aot_eager`, at twice the cost, also what torch cannot differentiate in a graph.
    """
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return lookup_backend(by)(graph, inputs)

    reset()
    compiled, plain_state = CompiledTask(task, fullgraph=True, backend=backend), state
    for batch in batches:
        plain, sums = task(batch, plain_state), compiled(batch, state)
        assert sums.parts.keys() == plain.parts.keys()
        assert sums.metrics.keys() == plain.metrics.keys()
        torch.testing.assert_close(
            (sums.parts, sums.metrics, sums.state), (plain.parts, plain.metrics, plain.state), rtol=1e-6, atol=1e-6
        )
        torch.testing.assert_close(gradients_of(task, sums), gradients_of(task, plain), rtol=1e-6, atol=1e-6)
        if state is not None:
            state, plain_state = (task.carry(detach(part.state)) for part in (sums, plain))  # type: ignore[operator]
    assert len(graphs) <= MOST_GRAPHS


@pytest.mark.parametrize("kind", listing("objectives"))
def test_every_objective_compiles_without_a_graph_break(kind: str) -> None:
    """Of classes also with n-grams of characters."""
    keys: dict[str, Any] = {"wide": {"characters": (2, 3)}} if kind == "classify" else {}
    case = tiny_objective(settings_of("objectives", kind)(**keys))
    batch = case.objective.prepare(case.rows)
    check(case.task.train(), [batch, batch], by="aot_eager" if kind == "masked" else "eager")


def check_packed(settings: ModelSettings, by: str = "eager") -> None:
    """On packed rows with padding, whose targets are some of the tokens."""
    model = tiny_model(settings).train()
    segments = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [1] * 6 + [0] * 3])
    inputs, targets = (
        Tokens(random_ids(), TokenPositions.packed(segments)),
        (segments != 0).flatten().nonzero().squeeze(1),
    )
    batch = Batch(inputs, random_ids(seed=5).flatten()[targets], targets, source_for(model))
    check(TokenLoss(model, "loss"), [batch], by=by)


MODELS = [pytest.param(word, marks=[pytest.mark.slow] * (word != "decoder")) for word in listing("models")]
OTHER_MIXERS = [name for name, mixer in every_mixer().items() if "causal" not in mixer.supports] or ["softmax"]


def with_cross_attention(mixer: str) -> ModelSettings:
    """A model that copies, with biases of positions."""
    return small_model("encoder_decoder", positions="t5", cross_attention=every_mixer()[mixer], copy_attention=True)


@pytest.mark.parametrize("kind", MODELS)
def test_every_mixer_compiles_without_a_graph_break(kind: str) -> None:
    """A fault names the mixer's file, or a parameter of its layer."""
    # With aot_eager, the graph of a perceiver's gradients fails in torch: a view in it does not fit its strides.
    check_packed(with_every_mixer(kind), by="eager" if kind == "perceiver" else "aot_eager")


@pytest.mark.parametrize("mixer", OTHER_MIXERS)
def test_other_mixers_compile_as_cross_attention(mixer: str) -> None:
    check_packed(with_cross_attention(mixer), by="aot_eager")


@pytest.mark.parametrize("kind", present("attention", "linear"))
def test_linear_cross_attention_of_packed_pairs_compiles(kind: str) -> None:
    """Rows of two, one and three pairs; also with another number of pairs in the next batch."""
    settings = small_model("encoder_decoder", cross_attention=settings_of("attention", kind)(), positions="learned")
    batches = []
    for documents in (3, 4):
        targets = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [1] * 3 + [2] * 3 + [documents] * 3])
        segments = torch.tensor([[1] * 2 + [2] * 3, [1] * 4 + [0], [1] * 1 + [2] * 2 + [documents] * 2])
        source = Tokens(random_ids(B, 5, 2), TokenPositions.packed(segments))
        batches.append(
            Batch(Tokens(random_ids(), TokenPositions.packed(targets)), random_ids(seed=5).flatten(), None, source)
        )
    check(TokenLoss(tiny_model(settings).train(), "loss"), batches, by="aot_eager")


RECURRENT = [pytest.param(kind, {}, marks=pytest.mark.slow) for kind in present("attention", "srupp")]


@pytest.mark.parametrize(("kind", "keys"), [("softmax", {"memory_length": 5}), *RECURRENT])
def test_a_stream_compiles_for_its_first_row_and_for_all_others(kind: str, keys: dict[str, int]) -> None:
    """Relative positions, as of Transformer-XL, where the mixer takes them."""
    mixer = settings_of("attention", kind)(**keys)
    positions = present("positions", "transformer_xl")[: kind == "softmax"] or ["none"]
    task = TokenLoss(tiny_model(small_model("decoder", attention=(mixer,), positions=positions[0])).train(), "loss")
    batches = [Batch(Tokens(random_ids(seed=seed)), random_ids(seed=seed + 1).flatten()) for seed in range(4)]
    check(task, batches, task.start(B), by="aot_eager")


def test_what_is_compiled_takes_and_returns_tensors_and_numbers_alone() -> None:
    """A batch and a state come back as they were, from leaves in one tuple."""
    positions = TokenPositions.packed(torch.tensor([[1, 1, 2]])).with_prefix(torch.tensor([2]))
    batch = Batch(Tokens(torch.tensor([[1, 2, 3]]), positions), torch.tensor([4.0]), extras={"draws": torch.rand(3)})
    state = {"layers": {"0": {"k": torch.rand(1, 2), "places": {"start": 7}}}, "empty": {}}
    leaves, structure = flatten((batch, state, None, ("word", 2.5, True)))
    assert all(isinstance(leaf, Tensor) or type(leaf) is int for leaf in leaves)
    hash(structure)  # so it holds no tensor
    again, same_state, *rest = unflatten(leaves, structure)
    assert flatten(again)[1] == flatten(batch)[1]
    assert all(
        torch.equal(one, other)
        for one, other in zip(flatten(again)[0], flatten(batch)[0], strict=True)
        if isinstance(one, Tensor)
    )
    assert same_state["layers"]["0"]["places"] == {"start": 7}
    assert same_state["empty"] == {}
    assert rest == [None, ("word", 2.5, True)]


def test_the_counts_of_a_batch_compile_nothing_anew() -> None:
    """They differ from batch to batch."""
    graphs = []

    def task(batch: Batch, state: State | None) -> LossSums:
        return LossSums({"loss": batch.labels.sum()}, {}, None)

    compiled = CompiledTask(task, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    for n in range(3):
        compiled(Batch(Tokens(torch.ones(1, 2).long()), torch.ones(2), counts={"loss": n}))
    assert len(graphs) == 1


def test_more_tasks_than_torch_compiles_of_one_function_are_compiled_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its limit torch runs a function as it is, without a word."""
    graphs = []
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)
    for n in range(4):
        task = CompiledTask(
            lambda batch, state: LossSums({"loss": batch.labels.sum()}, {}, None),
            backend=lambda graph, inputs: graphs.append(graph) or graph.forward,
        )
        task(Batch(Tokens(torch.ones(1, 2).long()), torch.ones(2)))
        assert len(graphs) == n + 1


def test_a_setup_compiles_a_task_only_if_it_says_so_and_once() -> None:
    """Tuning, trial and training ask for it one after the other."""
    task, setup = nn.Identity(), replace(Setup(), compile=True)
    assert Setup().compiled(task) is task
    assert isinstance(setup.compiled(task), CompiledTask)
    assert setup.compiled(task) is replace(setup, micro_batch_size=2).compiled(task)
    assert setup.compiled(task) is not setup.compiled(nn.Identity())
    copied = copy.deepcopy(task)
    assert setup.compiled(copied).task is copied
