"""What is frozen stays as it is to the bit, whatever moves the rest; and patterns that mean nothing are refused."""

import pytest
import torch
from test_nn_lora import KINDS, loss_of, small

from mini_tf.nn.lora import adapt
from mini_tf.recipe.kinds import listing, settings_of
from mini_tf.recipe.sections import Adapter
from mini_tf.system.errors import RecipeFault
from mini_tf.training.optimizer import build, clip_factor, freeze

PATTERNS = ("*embedding.*", "*.layers.0.*")


@pytest.mark.parametrize("optimizer", listing("optimizers"))
@pytest.mark.parametrize("kind", KINDS)
def test_the_frozen_stay_to_the_bit_through_five_steps_and_all_others_move(kind: str, optimizer: str) -> None:
    """With weight decay, momentum, clipping and layer-wise decay; the table is the head's too."""
    torch.manual_seed(0)
    model = small(kind, torch.float32, bias=True).train()
    names = [
        name for name in model.weights() if name.startswith(("embedding.", "source_embedding.")) or ".layers.0." in name
    ]
    before = {name: tensor.clone() for name, tensor in model.weights().items()}
    assert freeze(model, PATTERNS) == names
    settings = settings_of("optimizers", optimizer)(lr=0.01, weight_decay=0.5, layer_decay=0.8)
    moving = build(settings, model)
    for _ in range(5):
        moving.zero_grad()
        loss_of(model).backward()
        moving.step(0.01, clip_factor(float(moving.grad_norm()), 1.0))
    assert [name for name, tensor in model.weights().items() if torch.equal(tensor, before[name])] == names
    kept = {name.rpartition(".")[0] for name in moving.state_tensors()} - {""}
    assert kept == before.keys() - set(names)


def test_frozen_parameters_make_no_gradient_and_those_that_learn_the_same_as_before() -> None:
    whole, part = small(), small()
    freeze(part, PATTERNS)
    for model in (whole, part):
        loss_of(model).backward()
    for name, p in part.named_parameters():
        if p.requires_grad:
            assert torch.equal(p.grad, whole.get_parameter(name).grad)
        else:
            assert p.grad is None


def test_all_but_one_matrix_may_be_frozen_under_muon() -> None:
    model = small()
    kept = "stack.layers.1.self_attn.part.out.weight"
    freeze(model, [name for name in model.weights() if name != kept])
    optimizer = build(settings_of("optimizers", "muon")(), model)
    before = model.get_parameter(kept).detach().clone()
    loss_of(model).backward()
    assert optimizer.grad_norm() > 0
    optimizer.step(0.01)
    assert not torch.equal(model.get_parameter(kept), before)
    optimizer.load({name: tensor.clone() for name, tensor in optimizer.state_tensors().items()})


def test_patterns_name_matrices_with_an_adapter_as_they_are_called_without() -> None:
    """And A and B of a frozen layer are frozen with it."""
    model = small()
    adapt(model, Adapter(rank=2))
    frozen = freeze(model, ["embedding.*", "stack.layers.0.*", "stack.layers.1.self_attn.part.qkv.weight"])
    assert "stack.layers.0.self_attn.part.qkv.weight" in frozen
    assert "stack.layers.0.self_attn.part.qkv.parametrizations.weight.0.A.0" in frozen
    learning = [name for name, p in model.named_parameters() if p.requires_grad]
    assert learning
    assert all(name.startswith("stack.layers.1.") and ".weight.0." in name for name in learning)


def test_no_pattern_freezes_nothing() -> None:
    model = small()
    assert freeze(model, ()) == []
    assert all(p.requires_grad for p in model.parameters())


def test_a_pattern_that_matches_nothing_is_told_with_the_nearest_names_first() -> None:
    with pytest.raises(
        RecipeFault,
        match=r"train\.freeze: no parameter matches 'embeding\.\*'; there are embedding\.tokens\.weight, .* more$",
    ):
        freeze(small(), ["stack.*", "embeding.*"])
    with pytest.raises(RecipeFault, match=r"no parameter matches '\\x1b\[2J'; there are "):
        freeze(small(), ["\x1b[2J"])


def test_a_model_of_which_nothing_is_left_to_learn_is_refused() -> None:
    with pytest.raises(RecipeFault, match=r"train\.freeze: all parameters are frozen, at least one must be trainable"):
        freeze(small(), ["*"])


def test_names_are_those_of_the_weights_in_a_file() -> None:
    assert freeze(small(tied=False), ["*d*"]) == [name for name in small(tied=False).weights() if "d" in name]
