"""What a model is made of and costs: counts that add up, work by the textbook's formula, memory by hand."""

from typing import Any

import pytest
from test_models import CONTEXT, V, model_of
from torch import nn

from mini_tf.inspection._modules import forward_flops, memory_of, merge_layers, module_parameters
from mini_tf.inspection.model import _tables
from mini_tf.optimizers import adamw, muon
from mini_tf.recipe.kinds import listing
from mini_tf.training import optimizer

ALIKE: dict[str, Any] = {"n_kv_heads": None, "d_k": None, "d_v": None}
"""All heads d_model / n_heads wide."""


@pytest.mark.parametrize(
    ("positions", "settings"),
    [
        ("learned", {}),
        ("rotary", {"tied": False}),
        ("learned", {"head": "bert", "n_types": 2, "embed_norm": True, "bias": True}),
    ],
)
def test_the_counts_add_up_to_the_models_own(positions: str, settings: dict[str, Any]) -> None:
    """That each parameter of any model counts once is its contract."""
    model = model_of("encoder", ("softmax",), positions, **settings)
    for parts in (module_parameters(model), merge_layers(module_parameters(model))):
        assert sum(part.parameters for part in parts) == sum(p.numel() for p in model.parameters())
        assert sum(part.bytes for part in parts) == 8 * sum(p.numel() for p in model.parameters())
    tied = [part.name for part in module_parameters(model) if part.tied]
    assert tied == ([] if settings.get("tied") is False else ["head.linear"])


def test_parts_are_a_layers_mixer_its_feed_forward_and_the_norms() -> None:
    model = model_of("decoder", ("softmax", "window"), "learned", n_layers=2, d_ff=32)
    found = {part.name: (part.kind, part.shapes) for part in module_parameters(model)}
    assert list(found) == [
        "embedding.tokens",
        "embedding.position",
        "stack.layers.0.self_attn.part",
        "stack.layers.0.self_attn.norm",
        "stack.layers.0.feed_forward.part",
        "stack.layers.0.feed_forward.norm",
        "stack.layers.1.self_attn.part",
        "stack.layers.1.self_attn.norm",
        "stack.layers.1.feed_forward.part",
        "stack.layers.1.feed_forward.norm",
        "stack.norm",
        "head.linear",
    ]
    assert found["embedding.position"] == ("learned", {"table.weight": (CONTEXT, 24)})
    assert found["stack.layers.1.self_attn.part"] == (
        "window",
        {"qkv.weight": (4 * 6 + 2 * 6 + 2 * 8, 24), "out.weight": (24, 4 * 8)},
    )
    assert found["stack.layers.0.feed_forward.part"] == (
        "FeedForward",
        {"up.weight": (32, 24), "down.weight": (24, 32)},
    )


def test_equal_parts_of_layers_fold_into_one_and_others_stay_apart() -> None:
    parts = merge_layers(module_parameters(model_of("decoder", ("softmax", "window"), "learned", n_layers=6)))
    times = {(part.name, part.kind): part.times for part in parts}
    assert times["stack.layers.*.self_attn.part", "softmax"] == times["stack.layers.*.self_attn.part", "window"] == 3
    assert times["stack.layers.*.feed_forward.part", "FeedForward"] == 6
    assert times["embedding.tokens", "Embedding"] == 1


@pytest.mark.parametrize("positions", listing("positions"))
def test_work_is_two_a_parameter_of_a_matrix_and_four_a_layer_token_and_dimension(positions: str) -> None:
    """2 N + 4 n_layers L d (Kaplan et al. 2020, table 1: 2 N + 2 n_layers L d, which halves the square of a causal
    mask).
    """
    model = model_of("decoder", ("softmax",), positions, **ALIKE).float()
    matrices = sum(part.weight.numel() for part in model.stack.modules() if isinstance(part, nn.Linear))  # type: ignore[union-attr]
    work = forward_flops(model)
    assert (work.forward, work.training) == (work.stack + work.logits, 3 * (work.stack + work.logits))
    mapped = {"fourier": 2 * (2 * 32 + 1) * 24}.get(positions, 0)  # its linear map, of 32 bands
    if positions == "transformer_xl":  # in each layer: 33 distances, mapped once and compared with every query
        mapped = 3 * 2 * 24 * 33 * (24 + CONTEXT) / CONTEXT
    assert work.stack == 2 * matrices + 4 * 3 * CONTEXT * 24 + mapped
    assert work.logits == 2 * V * 24
    assert work.training == 3 * work.forward


def test_work_counts_free_widths_of_heads_as_the_kernel_computes_them() -> None:
    """d_k 6 and d_v 8: the fused kernel wants both equally wide, so both are 8."""
    model = model_of("decoder").float()
    matrices = sum(part.weight.numel() for part in model.stack.modules() if isinstance(part, nn.Linear))  # type: ignore[union-attr]
    assert forward_flops(model).stack == 2 * matrices + 2 * 3 * CONTEXT * 4 * (8 + 8)


def test_training_holds_gradients_and_two_moments_of_adamw_or_one_of_muon_for_matrices() -> None:
    model = model_of("encoder", head="bert").float()
    memory = memory_of(model, adamw.Settings())
    assert memory.weights == sum(4 * t.numel() for t in model.weights().values())
    assert memory.training == 4 * memory.weights
    roles = optimizer.roles_of(model)
    matrices = sum(4 * p.numel() for name, p in model.named_parameters() if roles[name] == "matrix")
    assert memory_of(model, muon.Settings()).training == 4 * memory.weights - matrices
    assert memory.state is None


def test_a_state_grows_by_keys_and_values_and_that_of_a_window_only_to_its_reach() -> None:
    memory = memory_of(model_of("decoder").float(), adamw.Settings())
    assert memory.state_per_token == 3 * 2 * (6 + 8) * 4  # layers, heads of keys and values, their widths, bytes
    assert memory.state is not None
    assert 0 <= memory.state - CONTEXT * memory.state_per_token < 100  # a few counts beside them
    assert memory_of(model_of("decoder", ("window",)).float(), adamw.Settings()).state_per_token == 0


def test_types_of_parts_are_truncated_before_their_names_are() -> None:
    parts = merge_layers(module_parameters(model_of("decoder", ("softmax",), "learned", n_layers=2, d_ff=32)))
    facts = {"kind": "decoder", "attention": ["softmax"], "positions": "learned", "context": 16, "vocabulary": 40}
    picture = [*_tables(facts, parts, 10**6)][-1]
    shown = picture(colored=False, width=66).plain
    assert "layers.*.feed_forward.norm" in shown
    assert "FeedForward" not in shown
    assert "2 × FeedForward" in picture(colored=False, width=90).plain
